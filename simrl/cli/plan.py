"""What a sweep would run: its runs, which of them are there, and how long the rest will take.

SWEEP is a sweep file (sweeps/article.yaml), with settings for every block: key=value, and seeds=, output_dir=,
workers= and resume= as for the sweep itself. Without a file, the overrides are those of `simrl -m`. Nothing is run
and nothing is written.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra import initialize_config_dir

from simrl.cli.commands import answer
from simrl.config.compose import config_folder
from simrl.config.overrides import given_values, points_of
from simrl.config.schema import ConfigError, SimulationConfig
from simrl.runs.output_folder import output_folder
from simrl.runs.run import run_folder
from simrl.sweep.estimate import BASES, Estimate, estimate, times_of, wall_s
from simrl.sweep.executors.job import cores
from simrl.sweep.grid import Point, configurations, expand
from simrl.sweep.point_ids import key_of, recall
from simrl.sweep.preflight import N_JOBS
from simrl.sweep.request import parse, requested
from simrl.sweep.run_state import state_of
from simrl.terminal import clock_text
from simrl.text_table import text_table

STATE_WORDS = {"ok": "cached", "failed": "failed before", "running": "running", "missing": "new"}
TO_RUN = ("failed before", "new")


@dataclass(frozen=True)
class Request:
    """What is to be planned."""

    file: str | None
    points: Sequence[Point]
    output_dir: Path
    workers: int
    resume: bool


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


def request_of(given: Sequence[str]) -> Request:
    """Return what the command line asks to plan.

    Raises:
        ConfigError: for what is no sweep.
    """
    file = "=" not in given[0] or Path(given[0]).is_file()
    return _of_file(given[0], given[1:]) if file else _of_overrides(given)


def _of_file(file: str, given: Sequence[str]) -> Request:
    asked = parse(given)
    points = expand(requested(file, asked))
    return Request(file, points, asked.output_dir, asked.workers or cores(), asked.resume)


def _of_overrides(given: Sequence[str]) -> Request:
    with initialize_config_dir(config_folder(), version_base="1.3"):
        points = [Point("", tuple(overrides)) for overrides in points_of(list(given))]
    last = given_values(list(given))
    workers, resume = last.get(N_JOBS, -1), last.get("resume", True)
    if not isinstance(workers, int) or isinstance(workers, bool) or workers == 0:
        raise ConfigError(N_JOBS, workers, "must be 1 or more, or -1 for one process a core")
    if not isinstance(resume, bool):
        raise ConfigError("resume", resume, "must be true or false")
    output_dir = output_folder("output_dir", last.get("output_dir", "outputs"))
    return Request(None, points, output_dir, workers if workers > 0 else cores(), resume)


def rows_of(request: Request) -> list[Row]:
    """Return the plan's runs, each once.

    Raises:
        ConfigError: for the first point that cannot be simulated.
    """
    runs = request.output_dir / "runs"
    known = recall(request.output_dir)
    ids = [known.get(key_of(point) or "") for point in request.points]
    states = {name: STATE_WORDS[state_of(runs, name).state] for name in ids if name}
    if not request.resume:
        states = dict.fromkeys(states, "new")
    unknown = [place for place, name in enumerate(ids) if name is None or states[name] in TO_RUN]
    configs: dict[str, SimulationConfig] = {}
    for place, config in zip(unknown, _configurations(request, unknown), strict=True):
        name = run_folder(config, request.output_dir).name
        ids[place], configs[name] = name, config
        if name not in states:
            states[name] = STATE_WORDS[state_of(runs, name).state] if request.resume else "new"
    times = times_of(runs, {config.framework.name for config in configs.values()})
    first = {name: point for point, name in reversed(list(zip(request.points, ids, strict=True))) if name}
    return [
        Row(first[name], name, states[name], estimate(configs[name], times) if states[name] in TO_RUN else None)
        for name in dict.fromkeys(ids)
        if name
    ]


def _configurations(request: Request, places: Sequence[int]) -> list[SimulationConfig]:
    points = [request.points[place] for place in places]
    try:
        return configurations(points, request.file or "")
    except ConfigError as error:
        if request.file is None and isinstance(error.__cause__, Exception):
            raise error.__cause__ from None  # there is no file and no block to name
        raise


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
    request = request_of(options.sweep)
    rows = rows_of(request)
    settings = settings_of(rows)
    to_run_s = [row.estimate.wall_s for row in rows if row.estimate]
    total = {
        "runs": len(rows),
        **{state: sum(row.state == state for row in rows) for state in STATE_WORDS.values()},
        "computing_s": sum(to_run_s),
        "workers": request.workers,
        "wall_s": wall_s(to_run_s, request.workers),
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
