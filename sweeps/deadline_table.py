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

from simrl.cli.exit_code import FAILED
from simrl.config.schema import ConfigError
from simrl.runs.atomic import atomic_file
from simrl.runs.run import Outcome
from simrl.runs.status import SUMMARY
from simrl.runs.table_file import read_table
from simrl.sweep.grid import Point, Sweep, expand, override_text, sweep_of, values_of
from simrl.sweep.paired import Pair, difference
from simrl.sweep.request import Request, asked_of, carry_out_points
from simrl.terminal import print_answer, report
from simrl.text_table import markdown_table
from sweeps.command_line import command

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


def sweeps_of(request: Request, splits: Sequence[str], etas: Sequence[int]) -> dict[str, Sweep]:
    """Return the sweep of each split."""
    blocks = {"others": {"framework": [*STRICT, BASE]}, OURS: {"framework": OURS, **ENDLESS}}
    found = {}
    for split in splits:
        shared = {**STEADY, **SPLITS[split], "framework.eta": list(etas)}
        content = {"seeds": SEEDS, "shared": shared, "blocks": blocks}
        found[split] = asked_of(sweep_of(content, "sweeps.deadline_table"), request)
    return found


def points_of(sweeps: Mapping[str, Sweep]) -> list[Point]:
    """Return all runs; a point's block is its split."""
    return [replace(point, block=split) for split, sweep in sweeps.items() for point in expand(sweep)]


def runs_of(points: Sequence[Point], outcomes: Sequence[Outcome]) -> Runs:
    """Return the summaries of the finished runs by split, eta and framework."""
    found: dict[tuple[str, int, str], dict[int, Mapping[str, Any]]] = {}
    for point, outcome in zip(points, outcomes, strict=True):
        columns = ["run_id", "framework", "eta", "seed", *METRICS]
        (row,) = read_table(outcome.folder / SUMMARY, columns).to_pylist()
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
    sweeps = sweeps_of(request, splits, etas)
    points = points_of(sweeps)
    report(f"{', '.join(splits)}: {len(points)} runs")
    carried = carry_out_points(sweeps[splits[0]], points, request, folder)
    if not carried.all_ok:
        report("not every run finished; start again")
        return FAILED
    found = places(runs_of(points, carried.outcomes), request)
    text = table(found)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "deadline.md").write_text(text + "\n")
    write_csv(found, folder / "deadline.csv")
    print_answer(f"{text}\n\n  {folder}/: deadline.md, deadline.csv")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks; return the exit code."""
    keys = "splits=[2+6,4+4]     which splits; default all three\netas=1..3"
    return command(compute, f"{__doc__}\n{keys}", arguments)


if __name__ == "__main__":
    sys.exit(main())
