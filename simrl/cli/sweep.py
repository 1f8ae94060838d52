"""Run every point of a YAML sweep file that was not run before, and leave one table of them."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from simrl.cli.commands import answer
from simrl.cli.exit_code import FAILED
from simrl.cli.seeds_report import MOST_ROWS, seeds_report
from simrl.config.schema import ConfigError
from simrl.plots.sweep_picture import draw_sweep
from simrl.runs.run import LEFT_OUT, NOT_STARTED
from simrl.sweep.request import KEYS, Carried, carry_out, parse
from simrl.sweep.table import Collected, collect_folder
from simrl.text_table import text_table

STATES = ("ok", "cached", "failed", NOT_STARTED)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = f"key=value arguments:\n{KEYS}"
    parser.add_argument("file", help="the sweep; a YAML file, see docs/sweeps.md")
    parser.add_argument("settings", nargs="*", metavar="key=value", help="see below")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def main(options: argparse.Namespace) -> int:
    """Run, collect and draw a sweep; return 1 if a run failed.

    Raises:
        ConfigError: for a request that cannot be met.
    """
    request = parse(options.settings)
    stem = Path(options.file).stem
    if "=" in options.file and not os.path.isfile(options.file):  # noqa: PTH113 - Path.is_file raises
        raise ConfigError("FILE", options.file, "must be a sweep file; key=value arguments follow it")
    carried = carry_out(options.file, request)
    folder = request.output_dir / "sweeps" / stem
    collected = collect_folder(folder, draw_sweep) if carried.any_ok else None
    answer(options, _document(carried, folder), _as_text(carried, collected))
    return 0 if carried.all_ok else FAILED


def _as_text(carried: Carried, collected: Collected | None) -> str:
    counts = {block: carried.states(block) for block in carried.sweep.blocks}
    states = (*STATES, LEFT_OUT) if carried.left_out else STATES
    rows = [[block, *(str(of[state]) for state in states)] for block, of in counts.items()]
    found = "no run has finished" if collected is None else seeds_report(collected, MOST_ROWS)
    return f"{text_table(['block', *states], rows)}\n\n{found}"


def _document(carried: Carried, folder: Path) -> dict[str, Any]:
    blocks = {block: {state: carried.states(block)[state] for state in STATES} for block in carried.sweep.blocks}
    failed = {o.run_id: o.error for o in carried.outcomes if o.state == "failed"}
    left_out = [{"overrides": list(point.overrides), "reason": point.reason} for point in carried.left_out]
    return {"folder": str(folder), "blocks": blocks, "failed": failed, "left_out": left_out}
