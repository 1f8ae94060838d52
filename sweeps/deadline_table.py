"""The deadline rule beside others: ``python -m sweeps.deadline_table [seeds=8] [splits=4+4] [key=value ...]``.

Runs deadline, the best strict mechanisms that drop nothing (weight_fifo, in_order, PSRL) and AReaL, which has no bound,
in steady state (experiment=steady) at three splits of eight GPUs, all with weight_update=abort. Prints the table of
docs/deadline.md, each row with the command that computes it alone, and writes it with a CSV of every framework's row to
<output_dir>/sweeps/deadline/. deadline admits here as if the run went on after its last step.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from simrl.cli.exit_code import FAILED, exit_code
from simrl.config.schema import ConfigError
from simrl.runs.atomic import atomic_file
from simrl.runs.run import Outcome
from simrl.runs.status import SUMMARY
from simrl.sweep.execute import run_points
from simrl.sweep.grid import Point, expand, force, override_text, sweep_of, values_of
from simrl.sweep.paired import Pair, difference
from simrl.sweep.request import KEYS, Request, parse
from simrl.terminal import print_answer, report
from simrl.text_table import markdown_table

OURS, BASE = "deadline", "areal"
STRICT = ("nemo_weight_fifo", "nemo_in_order", "psrl")
"""What deadline is measured by: a strict bound, nothing dropped."""
SPLITS: Mapping[str, Mapping[str, Any]] = {
    "2+6": {"rollout.instances": 2, "trainer.tensor_parallel": 2, "trainer.pipeline_parallel": 3},
    "4+4": {"rollout.instances": 4, "trainer.tensor_parallel": 4, "trainer.pipeline_parallel": 1},
    "5+3": {"rollout.instances": 5, "trainer.tensor_parallel": 1, "trainer.pipeline_parallel": 3},
}
"""GPUs that generate (TP1) + GPUs that train."""
ETAS = (1, 2, 3)
SEEDS = 8
STEADY = {"experiment": "steady", "framework.weight_update": "abort"}
ENDLESS = {"framework.admission.stop_at_last_step": False}
"""Of deadline: what it gains in the last steps of a run is no steady state's."""
METRICS = ("effective_throughput", "max_staleness", "waste")
Runs = Mapping[tuple[str, int, str], tuple[Mapping[str, Any], ...]]
"""(split, eta, framework) -> summaries, by seed."""


@dataclass(frozen=True)
class Place:
    """One framework at one split and eta, beside the fastest strict one and AReaL on the same loads."""

    split: str
    eta: int
    framework: str
    loads: int
    throughput: float
    """Effective, token/s; mean over the loads."""
    best_strict: str
    """The fastest of :data:`STRICT` here."""
    ratio: float
    """To that one's throughput, mean over the loads."""
    ratio_ci95: float
    """Half-width of its 95 % t interval; NaN for one load."""
    ratio_to_areal: float
    ratio_to_areal_ci95: float
    waste: float
    max_staleness: int
    """The largest of all loads, versions."""
    command: str
    """What computes it."""


def chosen(key: str, value: Any, known: Sequence[Any] | None) -> tuple[Any, ...]:
    """Return the splits or etas that *value* names, all of *known* if it is None.

    Raises:
        ConfigError: for one that is not there.
    """
    found = tuple(dict.fromkeys(values_of(key, value)))
    for one in found:
        if known is not None and one not in known:
            raise ConfigError(key, one, f"must be of {', '.join(map(str, known))}")
        if known is None and (not isinstance(one, int) or isinstance(one, bool) or one < 0):
            raise ConfigError(key, one, "must be 0 or more: a number, a list or a range first..last")
    return found


def points_of(request: Request, splits: Sequence[str], etas: Sequence[int]) -> list[Point]:
    """Return all runs; a point's block is its split."""
    blocks: list[Point] = []
    for split in splits:
        shared = {**STEADY, **SPLITS[split], "framework.eta": list(etas)}
        content = {
            "seeds": list(request.seeds or range(SEEDS)),
            "shared": shared,
            "blocks": {"others": {"framework": [*STRICT, BASE]}, OURS: {"framework": OURS, **ENDLESS}},
        }
        sweep = force(sweep_of(content, "sweeps.deadline_table"), request.settings)
        blocks += [replace(point, block=split) for point in expand(sweep)]
    return blocks


def runs_of(points: Sequence[Point], outcomes: Sequence[Outcome]) -> Runs:
    """Return the summaries of the finished runs by split, eta and framework."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - workers read this file too

    found: dict[tuple[str, int, str], dict[int, Mapping[str, Any]]] = {}
    for point, outcome in zip(points, outcomes, strict=True):
        columns = ["run_id", "framework", "eta", "seed", *METRICS]
        (row,) = pq.read_table(outcome.folder / SUMMARY, columns=columns).to_pylist()
        found.setdefault((point.block, row["eta"], row["framework"]), {})[row["seed"]] = row
    return {key: tuple(row for _, row in sorted(rows.items())) for key, rows in found.items()}


def places(runs: Runs, request: Request) -> list[Place]:
    """Return how every framework stands, by split and eta."""
    found = []
    for split, eta in dict.fromkeys((split, eta) for split, eta, _ in runs):
        here = {framework: rows for (s, e, framework), rows in runs.items() if (s, e) == (split, eta)}
        means = {name: fmean(row["effective_throughput"] for row in rows) for name, rows in here.items()}
        best = max(STRICT, key=means.__getitem__)
        for framework, rows in here.items():
            to_best, to_areal = (
                difference(Pair((), here[base], rows), "effective_throughput") for base in (best, BASE)
            )
            assert to_best is not None, "every run has a throughput"
            assert to_areal is not None
            found.append(
                Place(
                    split,
                    eta,
                    framework,
                    len(rows),
                    means[framework],
                    best,
                    to_best.ratio,
                    to_best.ratio_ci95,
                    to_areal.ratio,
                    to_areal.ratio_ci95,
                    fmean(row["waste"] for row in rows),
                    max(row["max_staleness"] for row in rows),
                    command_of(split, eta, request),
                )
            )
    return found


def command_of(split: str, eta: int, request: Request) -> str:
    """Return the command that computes one row of the table."""
    seeds = request.seeds or tuple(range(SEEDS))
    first, last = seeds[0], seeds[-1]
    listed = f"{first}..{last}" if seeds == tuple(range(first, last + 1)) else f"[{','.join(map(str, seeds))}]"
    given = str(len(seeds)) if seeds == tuple(range(len(seeds))) else listed
    more = "".join(f" '{key}={override_text(value)}'" for key, value in request.settings.items())
    return f"python -m sweeps.deadline_table splits={split} etas={eta} seeds={given}{more}"


def table(found: Sequence[Place]) -> str:
    """Return the Markdown table: a row a split and eta, with the command that computes it."""
    head = ["split", "eta", *(f"{name}, token/s" for name in (OURS, *STRICT, BASE)), "deadline / best strict"]
    head += ["deadline / areal", "max staleness", "command"]
    rows = []
    for split, eta in dict.fromkeys((place.split, place.eta) for place in found):
        here = {place.framework: place for place in found if (place.split, place.eta) == (split, eta)}
        ours = here[OURS]
        rows.append(
            [
                split,
                str(eta),
                *(f"{here[name].throughput:,.0f}" for name in (OURS, *STRICT, BASE)),
                f"{ours.ratio:.3f} ± {ours.ratio_ci95:.3f}",
                f"{ours.ratio_to_areal:.3f} ± {ours.ratio_to_areal_ci95:.3f}",
                str(ours.max_staleness),
                f"`{ours.command}`",
            ]
        )
    return markdown_table(head, rows)


def write_csv(found: Sequence[Place], file: Path) -> None:
    """Write every framework's place."""
    names = [field.name for field in fields(Place)]
    with atomic_file(file) as aside, Path(aside).open("w", newline="") as out:
        rows = csv.writer(out)
        rows.writerow(names)
        rows.writerows([getattr(place, name) for name in names] for place in found)


def compute(request: Request) -> int:
    """Run what is asked for, print the table and write it; return the exit code.

    Raises:
        ConfigError: before anything runs, for a request that cannot be met.
    """
    settings = dict(request.settings)
    asked_splits, asked_etas = settings.pop("splits", list(SPLITS)), settings.pop("etas", list(ETAS))
    splits = chosen("splits", asked_splits, list(SPLITS))
    etas = chosen("etas", asked_etas, None)
    request = replace(request, settings=settings)
    name = OURS
    if splits != tuple(SPLITS) or etas != ETAS or settings:  # a part, or other settings, leaves the whole alone
        name += "-" + "-".join([*splits, *(f"eta{eta}" for eta in etas), *(["set"] if settings else [])])
    folder = request.output_dir / "sweeps" / name
    points = points_of(request, splits, etas)
    report(f"{', '.join(splits)}: {len(points)} runs")
    outcomes = run_points(
        points,
        request.output_dir,
        workers=request.workers,
        resume=request.resume,
        backend=request.backend,
        sweep_folder=folder,
        ray_address=request.ray_address,
    )
    if not all(outcome.state == "ok" for outcome in outcomes):
        for outcome in outcomes:
            if outcome.state == "failed":
                report(f"failed: {outcome.run_id}: {outcome.error}")
        report(f"{sum(outcome.state != 'ok' for outcome in outcomes)} runs did not finish; start again")
        return FAILED
    found = places(runs_of(points, outcomes), request)
    text = table(found)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "deadline.md").write_text(text + "\n")
    write_csv(found, folder / "deadline.csv")
    print_answer(f"{text}\n\n  {folder}/: deadline.md, deadline.csv")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks; return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if any(argument in ("-h", "--help") for argument in given):
        print_answer(f"{__doc__}\nsplits=[2+6,4+4]     which splits; default all three\netas=1..3\n{KEYS}")
        return 0
    return exit_code(lambda: compute(parse(given)))


if __name__ == "__main__":
    sys.exit(main())
