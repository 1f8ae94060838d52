"""Public runs against their predictions: ``python -m sweeps.validation`` prints a table and draws a parity plot.

sweeps/validation.yaml says how the runs of sweeps/public_runs.csv are expressed, and which rows the one constant of an
engine or trainer is fitted on; all others are predictions. A step is put together from its phases: colocated they
follow each other, one step off the longer of generation and training sets the pace. What SimRL cannot express yet (vime
on NPUs, AReaL's SWE-bench sessions) is left out.
"""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf

from simrl import load_config
from simrl.config.schema import SimulationConfig
from simrl.model.cost.engine_switch import sleep_s, wake_s
from simrl.model.cost.training import step_time
from simrl.model.cost.weight_sync import weight_sync_s
from simrl.model.engine.vllm.engine import VllmEngine
from simrl.model.workload import build_workload
from simrl.terminal import print_answer
from simrl.text_table import text_table

HERE = Path(__file__).parent
SERVED_AT_A_TIME = 128
"""Concurrency of the serving runs (vLLM pull request 44594)."""
HALVINGS, ROUNDS = 12, 3
"""Of the range a constant is searched in, and over the constants of a set."""
KNOWN_S: dict[str, float] = {}
"""Generations computed before: a fit of the trainer's constant asks for the same one."""
Lengths = Sequence[tuple[int, int, int]]
"""Group, prompt and response of requests, tokens."""


@dataclass(frozen=True)
class Measured:
    """One row of public_runs.csv."""

    run: str
    source: str
    mode: str
    groups: int
    group_size: int
    quantity: str
    unit: str
    value: float


@dataclass(frozen=True)
class Outcome:
    """A measured quantity and what is predicted for it."""

    measured: Measured
    predicted: float
    fitted: bool
    """Whether a constant was fitted on it."""

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted / self.measured.value


def read_public_runs() -> list[Measured]:
    """Return the measured rows; "same" as a source repeats the one above."""
    rows, source = [], ""
    with (HERE / "public_runs.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            source = source if row["source"] == "same" else row["source"]
            count = int(row["prompts_per_step"]), int(row["responses_per_prompt"])
            rows.append(
                Measured(row["run"], source, row["mode"], *count, row["quantity"], row["unit"], float(row["measured"]))
            )
    return rows


def served(config: SimulationConfig, lengths: Lengths, at_a_time: int) -> VllmEngine:
    """Run requests through one engine, at most *at_a_time* of them together; return it at its end."""
    engine = VllmEngine.build(config, max(prompt + response for _, prompt, response in lengths))
    for number, (group, prompt, response) in enumerate(lengths):
        while engine.in_flight >= at_a_time:
            complete(engine)
        engine.submit(number, prompt, response, group, prompt)
    while engine.in_flight:
        complete(engine)
    return engine


def complete(engine: VllmEngine) -> None:
    """Move an engine to its next completion."""
    due_ns = engine.advance()
    assert due_ns is not None
    engine.catch_up(due_ns)
    for _ in engine.collect():
        pass


def batch_of(config: SimulationConfig) -> Lengths:
    """Return the requests of a step."""
    workload = build_workload(config.workload, config.seed, config.groups_per_batch, config.group_size)
    drawn = [(group, *workload.lengths(group)) for group in range(config.groups_per_batch)]
    return [(group, prompt, int(response)) for group, prompt, responses in drawn for response in responses]


def generation(config: SimulationConfig, batch: Lengths) -> float:
    """Return how long a step's generation takes, s: its groups are dealt to the instances in turn."""
    key = repr((config.hardware, config.model, config.workload, config.rollout, len(batch)))
    if key not in KNOWN_S:
        instances = config.rollout.instances
        shares = [[request for request in batch if request[0] % instances == number] for number in range(instances)]
        ends = [int(served(config, share, len(share)).state.engine["clock_ns"][0]) for share in shares]
        KNOWN_S[key] = max(ends) / 1e9
    return KNOWN_S[key]


def predict(config: SimulationConfig, mode: str) -> dict[str, float]:
    """Return the predicted quantities of a run.

    Args:
        config: the run.
        mode: colocated | one_step_off | serving.

    Returns:
        Seconds by the names of public_runs.csv; preemptions of a serving run.
    """
    if mode == "serving":
        lines = (HERE / "watermark_trace.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        requests = [(row["group"], row["prompt_tokens"], row["response_tokens"]) for row in rows]
        return {"preemptions": float(served(config, requests, SERVED_AT_A_TIME).state.engine["preemptions"][0])}
    batch = batch_of(config)
    generation_s = generation(config, batch)
    tokens = np.array([prompt + response for _, prompt, response in batch])
    step = step_time(config.hardware, config.model, config.trainer, tokens)
    training_s = step.logprob_s + step.reference_s + step.update_s
    if mode == "colocated":
        sync_s = sleep_s() + wake_s(0, 2)
        trainer = replace(config.trainer, weight_sync_backend="cuda_ipc")
        step_s = generation_s + training_s + sync_s + weight_sync_s(config.hardware, config.model, trainer)
    else:
        step_s = max(generation_s, training_s) + weight_sync_s(config.hardware, config.model, config.trainer)
    return {
        "step": step_s,
        "generation": generation_s,
        "generate_sequences": generation_s,
        "old_log_prob": step.logprob_s,
        "update": step.update_s,
        "trainer_wait": max(0.0, generation_s - training_s),
    }


class PublicSet:
    """Runs that share their choices and their constants."""

    def __init__(self, given: Mapping[str, Any], rows: Sequence[Measured]):
        self.name: str = given["name"]
        self._given = given
        self.rows = [row for row in rows if row.run in given["runs"]]
        self.constants: dict[str, float] = {}

    def predicted(self, run: str, constants: Mapping[str, float]) -> dict[str, float]:
        """Return what is predicted for a run with *constants*."""
        row = next(row for row in self.rows if row.run == run)
        values = [f"{key}={value!r}" for key, value in constants.items()]
        shape = [f"groups_per_batch={row.groups}", f"group_size={row.group_size}", "workload.draw=0"]
        chosen = [*self._given["common"], *self._given["runs"][run], "hardware.gpus=64"]
        return predict(load_config([*chosen, *shape, *values]), row.mode)

    def fit(self) -> None:
        """Find each constant where the mean of log(predicted / measured) over its rows is 0, the others as they are."""
        given = self._given["fit"]
        for key, *ends, names in given * (ROUNDS if len(given) > 1 else 1):
            targets = [tuple(name.split()) for name in names]
            low, high = ends
            for _ in range(HALVINGS):  # of the logarithm
                middle = math.sqrt(low * high)
                off = 0.0
                for run, quantity in targets:
                    predicted = self.predicted(run, {**self.constants, key: middle})[quantity]
                    off += math.log(predicted / self._measured(run, quantity))
                low, high = (low, middle) if off > 0 else (middle, high)
            self.constants[key] = float(f"{math.sqrt(low * high):.4g}")

    def _measured(self, run: str, quantity: str) -> float:
        return next(row.value for row in self.rows if (row.run, row.quantity) == (run, quantity))

    def outcomes(self) -> list[Outcome]:
        """Return every measured row with its prediction."""
        fitted = {name for *_, names in self._given["fit"] for name in names}
        runs = {run: self.predicted(run, self.constants) for run in self._given["runs"]}
        return [Outcome(row, runs[row.run][row.quantity], f"{row.run} {row.quantity}" in fitted) for row in self.rows]


@dataclass(frozen=True)
class Pair:
    """The same training, synchronous and asynchronous: how many times as fast asynchronous is."""

    name: str
    measured: float
    predicted: float

    @property
    def same_sign(self) -> bool:
        """Whether both say that asynchronous is faster, or both that it is slower."""
        return (self.measured > 1) == (self.predicted > 1)


def pairs(outcomes: Sequence[Outcome]) -> list[Pair]:
    """Return the pairs of runs whose names end in sync and async, or on and 1off."""
    steps = {out.measured.run: out for out in outcomes if out.measured.quantity == "step"}
    found = []
    for run, sync in steps.items():
        for end, other in (("_sync", "_async"), ("_on", "_1off")):
            partner = steps.get(f"{run.removesuffix(end)}{other}") if run.endswith(end) else None
            if partner:
                measured = sync.measured.value / partner.measured.value
                found.append(Pair(run.removesuffix(end), measured, sync.predicted / partner.predicted))
    return found


def validate() -> tuple[list[Outcome], dict[str, dict[str, float]]]:
    """Return all outcomes, and the constants by set."""
    rows, outcomes, constants = read_public_runs(), [], {}
    for given in OmegaConf.to_container(OmegaConf.load(HERE / "validation.yaml")):  # type: ignore[union-attr]
        runs = PublicSet(given, rows)  # type: ignore[arg-type]
        runs.fit()
        outcomes += runs.outcomes()
        constants[runs.name] = runs.constants
    return outcomes, constants


def report_text(outcomes: Sequence[Outcome], constants: Mapping[str, Mapping[str, float]]) -> str:
    """Return the printed report: the rows, the pairs and the constants."""
    rows = [
        [
            out.measured.run,
            out.measured.quantity,
            f"{out.measured.value:g}",
            f"{out.predicted:.0f}",
            out.measured.unit,
            f"{out.ratio - 1:+.0%}",
            "fitted" if out.fitted else "",
        ]
        for out in outcomes
    ]
    lines = [text_table(["run", "quantity", "measured", "predicted", "unit", "off", ""], rows), ""]
    compared = pairs(outcomes)
    two = [[p.name, f"{p.measured:.2f}", f"{p.predicted:.2f}", "yes" if p.same_sign else "NO"] for p in compared]
    lines += [text_table(["sync / async step", "measured", "predicted", "same sign"], two), ""]
    for name, values in constants.items():
        lines.append(f"{name}: " + (", ".join(f"{key}={value:g}" for key, value in values.items()) or "no constant"))
    free = [abs(out.ratio - 1) for out in outcomes if not out.fitted]
    lines.append(f"{len(free)} predictions off by {np.mean(free):.0%} in the mean, {np.median(free):.0%} in the median")
    return "\n".join(lines)


def main() -> None:
    """Print the report and write the parity plot."""
    from sweeps.figures.parity import draw_parity  # noqa: PLC0415 - matplotlib takes a second

    outcomes, constants = validate()
    print_answer(report_text(outcomes, constants))
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "outputs/validation.png")
    target.parent.mkdir(parents=True, exist_ok=True)
    draw_parity(target, [(o.measured.value, o.predicted, o.fitted, o.measured.unit) for o in outcomes])
    print_answer(f"parity plot: {target}")


if __name__ == "__main__":
    main()
