"""The article by one command: ``python -m sweeps.article [seeds=16] [output_dir=outputs] [key=value ...]``.

Runs every experiment of sweeps/article.yaml that was not run before, draws every figure, sets each published value
beside ours and writes all of it to <output_dir>/sweeps/article/: sweep.parquet, comparison.csv, conclusions.csv,
paired.csv, figures/ and report.html.

    seeds=16            how many loads (or a list, or a range 0..15); default 1
    output_dir=outputs  where runs and the sweep go
    workers=2           processes; default one a core
    backend=ray         run on Ray, see docs/sweeps_launchers.md; ray.address=auto|ray://host:port|local, default local
    resume=false        compute again what is there
    key=value           any configuration key, for every block: versions=2, hardware=h100, ...
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from yaml import YAMLError, safe_load  # type: ignore[import-untyped]

from simrl.config import ConfigError
from simrl.grid import expand, force, load_sweep, seeds_of
from simrl.sweep import say

GRID = Path(__file__).parent / "article.yaml"
FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130


@dataclass(frozen=True)
class Request:
    """What the command line asks for."""

    seeds: tuple[int, ...] | None
    output_dir: Path
    workers: int | None
    resume: bool
    backend: str
    ray_address: str
    settings: Mapping[str, Any]
    """Configuration keys forced on every block."""


def parse(arguments: Sequence[str]) -> Request:
    """Return what *arguments* ask for.

    Raises:
        ConfigError: for an argument that is no ``key=value``, or a value that cannot be.
    """
    given: dict[str, Any] = {}
    for argument in arguments:
        key, equals, text = argument.partition("=")
        if not equals or not key:
            raise ConfigError("argument", argument, "must be key=value; --help tells which")
        try:
            given[key] = safe_load(text) if text else None
        except YAMLError as error:
            raise ConfigError(key, text, "is no value; quote it") from error
    seeds = seeds_of(given.pop("seeds")) if "seeds" in given else None
    workers, resume = given.pop("workers", None), given.pop("resume", True)
    if workers is not None and (not isinstance(workers, int) or isinstance(workers, bool) or workers < 1):
        raise ConfigError("workers", workers, "must be 1 or more")
    if not isinstance(resume, bool):
        raise ConfigError("resume", resume, "must be true or false")
    output_dir = Path(str(given.pop("output_dir", "outputs")))
    backend, ray_address = str(given.pop("backend", "processes")), str(given.pop("ray.address", "local"))
    return Request(seeds, output_dir, workers, resume, backend, ray_address, given)


def reproduce(request: Request) -> int:
    """Run, collect, compare, draw and report; return the exit code.

    Raises:
        ConfigError: before anything runs, for a request that cannot be met.
    """
    sweep = force(load_sweep(GRID), request.settings)
    if request.seeds is not None:
        sweep = replace(sweep, seeds=request.seeds)
    points = expand(sweep)

    from simrl.pool import cores, run_points  # noqa: PLC0415 - workers read this file too: no pandas up there
    from sweeps.collection import collect  # noqa: PLC0415
    from sweeps.comparison import compare  # noqa: PLC0415
    from sweeps.conclusions import conclusions_table, paired_table  # noqa: PLC0415
    from sweeps.digest import summary_text  # noqa: PLC0415
    from sweeps.figures import draw_figures  # noqa: PLC0415
    from sweeps.loads import loads_of  # noqa: PLC0415
    from sweeps.page import Content, write_page  # noqa: PLC0415
    from sweeps.published import read_published  # noqa: PLC0415

    file = os.path.relpath(GRID)
    outcomes = run_points(
        points,
        request.output_dir,
        file=file,
        workers=request.workers,
        resume=request.resume,
        backend=request.backend,
        ray_address=request.ray_address,
    )
    failed = {outcome.run_id: outcome.error for outcome in outcomes if outcome.state != "ok"}
    for run_id, error in failed.items():
        say(f"failed: {run_id}: {error}")
    if len(failed) == len({outcome.run_id for outcome in outcomes}):
        return FAILED
    folder = request.output_dir / "sweeps" / "article"
    tables = collect(points, outcomes, folder, request.output_dir / "runs")
    loads = loads_of(tables)
    comparison = compare(read_published(), loads)
    conclusions, paired = conclusions_table(loads), paired_table(loads)
    for name, table in (("comparison", comparison), ("conclusions", conclusions), ("paired", paired)):
        table.to_csv(folder / f"{name}.csv", index=False, float_format="%.6g")
    drawn = draw_figures(tables, folder, request.workers or cores())
    content = Content(
        comparison, conclusions, paired, drawn.figures, [load.seed for load in loads], len(tables.summary)
    )
    write_page(content, folder / "report.html")
    print(summary_text(comparison, conclusions, len(loads)))  # noqa: T201 - the command's answer
    print(f"\n  {folder}/: report.html, comparison.csv, sweep.parquet, figures/")  # noqa: T201
    return FAILED if failed or drawn.failed else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks; return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if any(argument in ("-h", "--help") for argument in given):
        print(__doc__)  # noqa: T201
        return 0
    try:
        return reproduce(parse(given))
    except ConfigError as error:
        say(str(error))
        return BAD_INPUT
    except KeyboardInterrupt:
        say("interrupted; what is finished is kept")
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
