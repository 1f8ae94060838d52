"""The article by one command: ``python -m sweeps.article [seeds=16] [output_dir=outputs] [key=value ...]``.

Runs every experiment of sweeps/article.yaml that was not run before, draws every figure, sets each published value
beside ours and writes all of it to <output_dir>/sweeps/article/: sweep.parquet, comparison.csv, conclusions.csv,
paired.csv, figures/ and report.html. With configuration keys set it is no longer the article: then all of that goes to
<output_dir>/sweeps/article-<the settings>/.

The arguments, seeds=16 for sixteen loads among them, are those of every sweep: --help lists them.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from simrl.cli.exit_code import FAILED
from simrl.config.schema import ConfigError
from simrl.sweep.request import Request, carry_out
from simrl.terminal import report
from sweeps.command_line import command

GRID = Path(__file__).parent / "article.yaml"
MOST_NAME = 80
"""Characters of a folder's name that the settings may take."""


def folder_name(settings: Mapping[str, Any]) -> str:
    """Return the name of the folder for the tables and the report: article, or with its settings if there are any."""
    if not settings:
        return "article"
    given = "-".join(f"{key}={value}" for key, value in sorted(settings.items()))
    name = re.sub(r"[^A-Za-z0-9._=-]+", "_", given)[:MOST_NAME]
    if name != given:  # two settings must not share a name
        name += f"-{sha256(given.encode()).hexdigest()[:8]}"
    return f"article-{name}"


def reproduce(request: Request) -> int:
    """Run, collect, compare, draw and report; return the exit code.

    Raises:
        ConfigError: before anything runs, for a request that cannot be met.
    """
    from simrl.sweep.executors.job import cores  # noqa: PLC0415
    from sweeps.collection import article_tables  # noqa: PLC0415 - workers read this file too: no pandas up there
    from sweeps.comparison import compare  # noqa: PLC0415
    from sweeps.comparison_summary import summary_text  # noqa: PLC0415
    from sweeps.conclusions import conclusions_table, paired_table  # noqa: PLC0415
    from sweeps.figures.drawing import draw_figures, drawing  # noqa: PLC0415
    from sweeps.loads import loads_of  # noqa: PLC0415
    from sweeps.published import read_published  # noqa: PLC0415

    try:
        from sweeps.page import Content, write_page  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigError(
            "report.html", str(error.name), "needs the extra article; pip install -e '.[article]'"
        ) from error

    carried = carry_out(os.path.relpath(GRID), request)
    if not carried.any_ok:
        return FAILED
    folder = request.output_dir / "sweeps" / folder_name(request.settings)
    if request.settings:
        report(f"with settings given this is not the article: tables and report go to {folder}/")
    new = any(not outcome.cached for outcome in carried.outcomes)
    with drawing(request.workers or cores(), folder, ahead=new) as pool:
        tables = article_tables(carried.points, carried.outcomes, folder, request.output_dir / "runs")
        loads = loads_of(tables)
        changed = [f"{key}={value}" for key, value in request.settings.items()]
        comparison = compare(read_published(), loads, changed)
        conclusions, paired = conclusions_table(loads), paired_table(loads)
        for name, table in (("comparison", comparison), ("conclusions", conclusions), ("paired", paired)):
            table.to_csv(folder / f"{name}.csv", index=False, float_format="%.6g")
        drawn = draw_figures(tables, folder, pool)
    seeds = [load.seed for load in loads]
    content = Content(comparison, conclusions, paired, drawn.figures, seeds, len(tables.summary), changed)
    write_page(content, folder / "report.html")
    print(summary_text(comparison, conclusions, len(loads), changed))  # noqa: T201 - the command's answer
    print(f"\n  {folder}/: report.html, comparison.csv, sweep.parquet, figures/")  # noqa: T201
    return 0 if carried.all_ok and not drawn.failed else FAILED


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks; return the exit code."""
    return command(reproduce, str(__doc__), arguments)


if __name__ == "__main__":
    sys.exit(main())
