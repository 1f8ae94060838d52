"""What a sweep would run: its runs, which of them are there, and how long the rest will take.

SWEEP is a sweep file (sweeps/article.yaml), with settings for every block: key=value, and seeds=, output_dir=,
workers= and resume= as for the sweep itself. Without a file, the overrides are those of `simrl -m`. Nothing is run
and nothing is written.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hydra import initialize_config_dir

from simrl.cli.commands import answer
from simrl.config.option_folders import config_folder
from simrl.config.overrides import given_values, points_of
from simrl.config.schema import ConfigError, one_of
from simrl.runs.limits import REFUSE, SKIP
from simrl.runs.output_folder import at_home, output_folder
from simrl.sweep.estimate import BASES, Estimate, estimate, times_of, wall_s
from simrl.sweep.executors.job import cores
from simrl.sweep.grid import Point, expand
from simrl.sweep.left_out import LeftOut, left_out_lines
from simrl.sweep.plan import plan_runs
from simrl.sweep.preflight import N_JOBS
from simrl.sweep.request import Request, parse, requested
from simrl.terminal import clock_text, report
from simrl.text_table import text_table

STATE_WORDS = {"ok": "cached", "failed": "failed before", "running": "running", "missing": "new"}


@dataclass(frozen=True)
class Row:
    """One run of the plan."""

    point: Point
    run_id: str
    state: str
    estimate: Estimate | None
    """None if it need not run."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("sweep", metavar="SWEEP", nargs="+", help="a sweep file and settings, or overrides alone")
    parser.add_argument("-m", "--multirun", action="store_true", help="allowed, as in the command that is planned")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def asked(given: Sequence[str]) -> tuple[Request, list[Point], str | None]:
    """Return what the command line asks to plan: the request, its points and the sweep file, if there is one.

    Raises:
        ConfigError: for what is no sweep.
    """
    if "=" not in given[0] or os.path.isfile(given[0]):  # noqa: PTH113 - Path.is_file raises for long names
        request = parse(given[1:])
        sweep = requested(given[0], request)
        return replace(request, limits={"infeasible": sweep.limits.infeasible}), expand(sweep), given[0]
    with initialize_config_dir(config_folder(), version_base="1.3"):
        words = [at_home(override) for override in given]
        points = [Point("", tuple(overrides)) for overrides in points_of(words)]
    last = given_values(words)
    workers, resume = last.get(N_JOBS, -1), last.get("resume", True)
    if not isinstance(workers, int) or isinstance(workers, bool) or workers == 0:
        raise ConfigError(N_JOBS, workers, "must be 1 or more, or -1 for one process a core")
    if not isinstance(resume, bool):
        raise ConfigError("resume", resume, "must be true or false")
    output_dir = output_folder("output_dir", last.get("output_dir", "outputs"))
    infeasible = last.get("infeasible", REFUSE)
    one_of("infeasible", infeasible, (REFUSE, SKIP))
    request = Request(output_dir=output_dir, workers=workers if workers > 0 else None, resume=resume)
    return replace(request, limits={"infeasible": infeasible}), points, None


def rows_of(request: Request, points: Sequence[Point], file: str | None) -> tuple[list[Row], list[LeftOut]]:
    """Return the plan's runs, each once, and the points that are left out.

    Raises:
        ConfigError: for the first point that cannot be simulated.
    """
    try:
        skip = request.limits["infeasible"] == SKIP
        plan = plan_runs(points, request.output_dir, file or "", resume=request.resume, skip=skip)
    except ConfigError as error:
        if file is None and isinstance(error.__cause__, Exception):
            raise error.__cause__ from None  # there is no file and no block to name
        raise
    runs = plan.runs.values()
    times = times_of(request.output_dir / "runs", {run.config.framework.name for run in runs if run.config})
    rows = [
        Row(
            run.point,
            run.run_id,
            STATE_WORDS[run.state.state],
            estimate(run.config, times) if run.config and run.state.state != "running" else None,
        )
        for run in runs
    ]
    return rows, plan.left_out


def settings_of(rows: Sequence[Row]) -> list[dict[str, str]]:
    """Return what the overrides of each row set, as far as it varies among the rows, and the block if there is one."""
    given = [
        {
            **({"block": row.point.block} if row.point.block else {}),
            **dict(override.partition("=")[::2] for override in row.point.overrides),
        }
        for row in rows
    ]
    keys = dict.fromkeys(key for values in given for key in values)
    varying = [key for key in keys if len({values.get(key) for values in given}) > 1]
    return [{key: values[key] for key in varying if key in values} for values in given]


def main(options: argparse.Namespace) -> int:
    """Print the plan.

    Raises:
        ConfigError: for what is no sweep or cannot be simulated.
    """
    request, points, file = asked(options.sweep)
    rows, left_out = rows_of(request, points, file)
    for line in left_out_lines(left_out, len(points)):
        report(line)
    workers = request.workers or cores()
    settings = settings_of(rows)
    to_run_s = [row.estimate.wall_s for row in rows if row.estimate]
    total = {
        "runs": len(rows),
        **{state: sum(row.state == state for row in rows) for state in STATE_WORDS.values()},
        "computing_s": sum(to_run_s),
        "workers": workers,
        "wall_s": wall_s(to_run_s, workers),
        "output_dir": str(request.output_dir),
    }
    document = {
        **total,
        "plan": [
            {
                "run_id": row.run_id,
                "state": row.state,
                "estimate_s": row.estimate.wall_s if row.estimate else None,
                "basis": row.estimate.basis if row.estimate else None,
                "settings": setting,
            }
            for row, setting in zip(rows, settings, strict=True)
        ],
        "left_out": [{"overrides": list(point.overrides), "reason": point.reason} for point in left_out],
    }
    answer(options, document, _text(rows, settings, total))
    return 0


def _text(rows: Sequence[Row], settings: Sequence[dict[str, str]], total: dict[str, Any]) -> str:
    keys = list(dict.fromkeys(key for setting in settings for key in setting))
    body = [
        [
            row.run_id,
            *(setting.get(key, "-") for key in keys),
            row.state,
            f"{row.estimate.wall_s:.2f} s" if row.estimate else "-",
        ]
        for row, setting in zip(rows, settings, strict=True)
    ]
    states = ", ".join(f"{total[state]} {state}" for state in STATE_WORDS.values() if total[state])
    lines = [text_table(["run", *keys, "state", "estimate"], body), "", f"{total['runs']} runs: {states}"]
    bases = [row.estimate.basis for row in rows if row.estimate]
    if bases:
        lines.append(
            f"about {clock_text(total['computing_s'])} of computing, "
            f"about {clock_text(total['wall_s'])} with {total['workers']} workers"
        )
        lines += [f"  {bases.count(basis)} of them {words}" for basis, words in BASES.items() if basis in bases]
    else:
        lines.append("nothing to compute")
    return "\n".join(lines)
