"""The first part of a run to fit, and what was measured of the rest beside what is predicted of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from simrl.config.schema import ConfigError
from simrl.own_run.export.run_columns import step_rows
from simrl.own_run.replay import replay
from simrl.text_table import markdown_table, number_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from simrl.config.schema import SimulationConfig
    from simrl.model.records import Records
    from simrl.own_run.stored_import import Columns, StoredImport

COMPARED = {
    "step_s": "s",
    "gen_wait_s": "s",
    "logprob_s": "s",
    "update_s": "s",
    "response_tokens": "tokens",
    "staleness_mean": "versions",
    "staleness_max": "versions",
    "dropped": "trajectories",
    "preemptions": "a trajectory",
}
"""Columns of a step that are compared, and their units. The weight sync is a constant that was fitted."""
INPUTS = ("response_tokens",)
"""Of those, what the simulation was given: it differs only if the trajectories were trained in other steps."""


@dataclass(frozen=True)
class Comparison:
    """One figure, as measured and as predicted, of each held-out step or request."""

    name: str
    unit: str
    measured: NDArray[np.float64]
    predicted: NDArray[np.float64]

    @property
    def error(self) -> float:
        """Predicted mean / measured mean - 1; NaN if nothing was measured."""
        middle = float(self.measured.mean())
        return float(self.predicted.mean()) / middle - 1 if middle else math.nan


def _some(columns: Columns, chosen: NDArray[np.bool_]) -> Columns:
    def part(values: Any) -> Any:
        if isinstance(values, np.ndarray):
            return values[chosen]
        return [value for value, one in zip(values, chosen, strict=True) if one]

    return {name: part(values) for name, values in columns.items()}


def first_part(run: StoredImport, share: float) -> tuple[StoredImport, int]:
    """Return the part of a run up to a share of its steps, or of its time if it has none, and how many steps that is.

    The engines' clocks are not the steps': of each engine's windows the same share of the time is taken as of steps.
    Of a serving run's requests those are taken that came until then; their contexts an engine could have logged.

    Raises:
        ConfigError: if nothing would be left to fit or to predict.
    """
    steps = len(run.steps["step"])
    part = round(share * steps)
    if steps and not 1 <= part < steps:
        raise ConfigError("--fit-on", share, f"leaves {part} of {steps} steps to fit; both parts need at least one")
    times = np.nan_to_num(run.steps["step_s"])
    of_time = float(times[:part].sum() / times.sum()) if steps and times.sum() > 0 else share
    early = np.zeros(len(run.engine["t_s"]), dtype=bool)
    engines = np.array([name or "" for name in run.engine["engine"]], dtype=object)
    for name in set(engines):
        own = engines == name
        t_s = run.engine["t_s"][own]
        early[own] = t_s <= t_s.min() + of_time * (t_s.max() - t_s.min())
    rows = run.trajectories
    if steps:
        known = rows["step"] <= run.steps["step"][part - 1]
    else:
        start_s, end_s = rows["submitted_s"], np.nanmax(rows["finished_s"], initial=0.0)
        origin_s = np.nanmin(start_s, initial=end_s)
        known = start_s - origin_s <= of_time * (end_s - origin_s)
    own_steps = np.arange(steps) < part
    return (
        replace(
            run, trajectories=_some(rows, known), steps=_some(run.steps, own_steps), engine=_some(run.engine, early)
        ),
        part,
    )


def is_serving(run: StoredImport) -> bool:
    """Return whether an import is requests to engines and no training."""
    return not len(run.steps["step"]) and bool(np.isfinite(run.trajectories["submitted_s"]).any())


def compare_steps(run: StoredImport, config: SimulationConfig, records: Records, first: int) -> list[Comparison]:
    """Return the figures of the steps from *first* on, counted from 0, that were measured."""
    simulated = [columns for _, columns in step_rows(config, records)]
    out = []
    for name, unit in COMPARED.items():
        measured = run.steps[name][first : len(simulated)]
        known = np.isfinite(measured)
        if known.any():
            predicted = np.array([columns[name] for columns in simulated[first:]])[: len(measured)]
            out.append(Comparison(name, unit, measured[known], predicted[known]))
    return out


def compare_requests(run: StoredImport, config: SimulationConfig) -> tuple[list[Comparison], dict[str, Any]]:
    """Replay all requests of a serving run; return the figures of each, and duration and preemptions of the whole."""
    rows = run.trajectories
    whole = np.isfinite(rows["submitted_s"]) & np.isfinite(rows["prompt_tokens"]) & (rows["response_tokens"] >= 1)
    own = _some(rows, whole)
    order = np.argsort(own["submitted_s"], kind="stable")
    arrival_s = own["submitted_s"][order] - own["submitted_s"][order[0]]
    responses = own["response_tokens"][order]
    found = replay(config, arrival_s, own["prompt_tokens"][order], responses)
    end_s = own["finished_s"][order] - own["submitted_s"][order[0]]
    with np.errstate(divide="ignore", invalid="ignore"):
        token_s = own["generate_s"][order] / (responses - 1)
    pairs = (
        ("time per output token", token_s, found.token_s(responses)),
        ("time to the end", end_s - arrival_s, found.finish_s - arrival_s),
    )
    out = []
    for name, measured, predicted in pairs:
        known = np.isfinite(measured) & np.isfinite(predicted)
        if known.any():
            out.append(Comparison(name, "s", measured[known], predicted[known]))
    whole_s = {"measured": float(np.nanmax(end_s, initial=math.nan)), "predicted": float(found.finish_s.max())}
    return out, {"duration_s": whole_s, "preemptions": {"predicted": found.preemptions, "measured": _preempted(run)}}


def _preempted(run: StoredImport) -> float:
    counted = run.engine["preemptions"]
    return float(np.nanmax(counted)) if np.isfinite(counted).any() else math.nan


def comparison_table(comparisons: list[Comparison]) -> str:
    """Return the comparisons as Markdown."""
    rows = []
    for one in comparisons:
        each = one.measured != 0
        ratios = one.predicted[each] / one.measured[each] - 1
        typical = f"{np.sqrt(np.mean(np.square(ratios))):.1%}" if each.any() else "-"
        error = "-" if math.isnan(one.error) else f"{one.error:+.1%}"
        rows.append(
            (f"{one.name} ({'given' if one.name in INPUTS else one.unit})", str(len(one.measured)),
             number_text(float(one.measured.mean())), number_text(float(one.predicted.mean())), error, typical)
        )  # fmt: skip
    return markdown_table(("mean of", "held out", "measured", "predicted", "error", "one by one (rms)"), rows)
