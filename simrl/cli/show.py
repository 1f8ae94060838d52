"""Show a run's summary and where the time of its trainer and instances went."""

from __future__ import annotations

import argparse

from simrl.cli.commands import answer
from simrl.cli.run_report import run_report
from simrl.runs.summary import read_summary
from simrl.timeline.stored_run import find_run, stored_config
from simrl.timeline.time_breakdown import breakdown_text, time_breakdowns


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("run", metavar="RUN", help="a run's folder, or a sweep's link to it")
    parser.add_argument("--json", action="store_true", help="print summary and breakdown as JSON, times in s")


def main(options: argparse.Namespace) -> int:
    """Print summary and breakdown.

    Raises:
        ConfigError: if there is no such run.
    """
    folder = find_run(options.run)
    summary = read_summary(folder)
    breakdowns = time_breakdowns(folder)
    times = {breakdown.name: breakdown.parts_s for breakdown in breakdowns}
    summary_text = run_report(stored_config(folder), summary)
    text = f"{summary_text}\n\n{breakdown_text(breakdowns)}\n\n  results: {folder}"
    answer(options, {"folder": str(folder), "summary": summary, "time_s": times}, text)
    return 0
