"""What holds in the long run: ``python -m sweeps.steady [seeds=8] [output_dir=outputs] [workers=2]``.

Runs the article's grid three times: as the article does, ten steps from an empty start on 2 + 6 GPUs; in steady state;
and in steady state with as many GPUs for rollout as for training. Prints the tables of docs/steady.md and writes them
with the figure to <output_dir>/sweeps/steady/. In steady state the deadline rule has its defaults, not the form of the
article's ten steps, and goes on as if there were no last step; the window ends four steps before the run does, should
another mechanism behave differently there.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simrl.cli.exit_code import FAILED
from simrl.config.schema import ConfigError
from simrl.sweep.grid import Sweep, expand, load_sweep
from simrl.sweep.request import Request, asked_of, carry_out_points
from simrl.terminal import print_answer, report
from simrl.text_table import markdown_table
from sweeps.command_line import command

if TYPE_CHECKING:
    from sweeps.standings import Standing

GRID = Path(__file__).parent / "article.yaml"
STEADY = {"versions": 40, "measure_from": 10, "measure_to": 36}
BALANCED = {"rollout.instances": 4, "trainer.tensor_parallel": 4, "trainer.pipeline_parallel": 1}
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "ten steps, 2 + 6": {},
    "steady, 2 + 6": STEADY,
    "steady, 4 + 4": STEADY | BALANCED,
}
"""What is set beside the article's grid, by name."""
OURS = {"framework": "deadline", "framework.eta": "0..5", "framework.admission.stop_at_last_step": False}
"""The deadline rule in steady state: what it gains in the last steps of a run is no steady state's."""
STEADY_ONES = tuple(name for name, settings in VARIANTS.items() if settings)


def sweep_of_variant(variant: str, request: Request) -> Sweep:
    """Return what a variant runs: the article's grid with its settings."""
    grid = load_sweep(GRID)
    if variant in STEADY_ONES:
        others = {name: block for name, block in grid.blocks.items() if block["framework"] != OURS["framework"]}
        grid = replace(grid, blocks=others | {"deadline": OURS})
    return asked_of(grid, replace(request, settings=VARIANTS[variant]))


def standings_table(found: Sequence[Standing]) -> str:
    """Return a Markdown table, a framework a row; a cell holds one value for each eta."""
    etas = dict.fromkeys(standing.eta for standing in found)
    head = [f"at eta {', '.join(map(str, etas))}", "token/s", "times areal", "waste, %", "max staleness"]
    rows = []
    for framework in dict.fromkeys(standing.framework for standing in found):
        own = [standing for standing in found if standing.framework == framework]
        rows.append(
            [
                framework,
                " / ".join(f"{standing.throughput:,.0f}" for standing in own),
                " / ".join(f"{standing.ratio:.2f} ± {standing.half_width:.2f}" for standing in own),
                " / ".join(f"{100 * standing.waste:.0f}" for standing in own),
                " / ".join(str(standing.staleness) for standing in own),
            ]
        )
    return markdown_table(head, rows)


def conclusions_text(tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return a Markdown table: every conclusion of the article and on how many loads it holds, by variant."""
    head = ["conclusion", "section", *tables]
    first, *_ = tables.values()
    rows = [
        [of["statement"], str(of["section"]), *(_share(table[number]) for table in tables.values())]
        for number, of in enumerate(first)
    ]
    return markdown_table(head, rows)


def _share(conclusion: Mapping[str, Any]) -> str:
    """Return on how many loads a conclusion holds, of those that have the runs to judge it."""
    return f"{conclusion['holds']} of {conclusion['loads']}" if conclusion["loads"] else "-"


def slug(variant: str) -> str:
    """Return a variant's name as a folder's."""
    return variant.replace(" + ", "+").replace(", ", "_").replace(" ", "_")


def compute(request: Request) -> int:
    """Run the variants, print the tables and write them; return the exit code.

    Raises:
        ConfigError: before anything runs, for a request that cannot be met.
    """
    from sweeps.collection import article_tables  # noqa: PLC0415 - workers read this file too: no pandas up there
    from sweeps.conclusions import conclusions_table  # noqa: PLC0415
    from sweeps.figures.steady_state import draw_steady_state  # noqa: PLC0415
    from sweeps.loads import loads_of  # noqa: PLC0415
    from sweeps.standings import standings  # noqa: PLC0415

    if request.settings:
        key, value = next(iter(request.settings.items()))
        raise ConfigError(
            key, value, "is not taken here: the three variants are set; python -m sweeps.article takes it"
        )
    folder = request.output_dir / "sweeps" / "steady"
    conclusions: dict[str, list[Mapping[str, Any]]] = {}
    found: dict[str, list[Standing]] = {}
    for variant in VARIANTS:
        sweep = sweep_of_variant(variant, request)
        points = expand(sweep)
        report(f"{variant}: {len(points)} runs")
        carried = carry_out_points(sweep, points, request, folder / slug(variant))
        if not carried.all_ok:
            report(f"{variant}: not every run finished; start again")
            return FAILED
        loads = loads_of(article_tables(points, carried.outcomes, folder / slug(variant), request.output_dir / "runs"))
        conclusions[variant] = conclusions_table(loads).to_dict("records")
        found[variant] = standings(loads)
    tables = [f"{name}:\n\n{standings_table(found[name])}" for name in STEADY_ONES]
    text = "\n\n".join([conclusions_text(conclusions), *tables])
    (folder / "steady.md").write_text(text + "\n")
    draw_steady_state(folder / "steady.png", {name: found[name] for name in STEADY_ONES}, len(sweep.seeds))
    print_answer(f"{text}\n\n  {folder}/: steady.md, steady.png")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks; return the exit code."""
    return command(compute, str(__doc__), arguments)


if __name__ == "__main__":
    sys.exit(main())
