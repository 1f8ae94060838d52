"""Fit the first part of an imported run and predict the rest: ``simrl validate FOLDER [key=value ...] --output OUT``.

The later steps are simulated with the lengths they had, and compared with what was measured: report.md and parity.png.
A serving run, which has requests and no steps, is replayed from its arrival times.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from math import isnan
from pathlib import Path

from simrl.api import load_config
from simrl.cli.fit import REPORT, refuse_other_folder, together, write_fit
from simrl.config.schema import ConfigError
from simrl.model.engine.vllm.compilation import compile_engine
from simrl.model.simulation import prepare, simulate
from simrl.own_run.held_out import (
    Comparison,
    compare_requests,
    compare_steps,
    comparison_table,
    first_part,
    is_serving,
)
from simrl.own_run.importing import no_folder_left
from simrl.own_run.option_files import LENGTHS, OPTIONS, lengths_are_usable, write_lengths
from simrl.own_run.own_fit import fit_own_run
from simrl.own_run.stored_import import StoredImport, read_import
from simrl.plots.agreement import Pair, draw_agreement
from simrl.runs.atomic import atomic_folder
from simrl.runs.output_folder import output_folder
from simrl.terminal import print_answer, report

NAME, PICTURE = "first_part", "parity.png"


def validate(given: str | Path, overrides: Sequence[str], output: Path, share: float) -> tuple[list[Comparison], str]:
    """Fit the first part, predict the rest, write report and plot to *output*; return the comparison and the report.

    Args:
        given: the import's folder.
        overrides: ``key=value`` texts that go before what the import read.
        output: a folder; what a validation wrote there is replaced.
        share: of the steps, or of a serving run's time, to fit on.

    Raises:
        ConfigError: for bad input, or an import that has nothing to compare.
    """
    if not 0 < share < 1:
        raise ConfigError("--fit-on", share, "must be above 0 and below 1, such as 0.5")
    refuse_other_folder(output)
    run = read_import(given)
    all_overrides = together(run.overrides, overrides)
    config = load_config(all_overrides)
    part, steps = first_part(run, share)
    fitted = fit_own_run(part, config)
    if not fitted.coefficients:
        raise ConfigError("FOLDER", given, "its first part has nothing that can be fitted; its import.md says why")
    compile_engine(report)
    with no_folder_left(output), atomic_folder(output) as aside:
        write_fit(aside, NAME, fitted, part, config, all_overrides, output)
        if is_serving(run):
            comparisons, text = _serving(run, aside)
        else:
            comparisons, text = _training(run, aside, config.group_size, steps)
        head = f"# Validation\n\nFitted on the first {share:.0%}.\n\n"
        whole = f"{head}{text}\n\n{(aside / REPORT).read_text(encoding='utf-8')}"
        (aside / REPORT).write_text(whole, encoding="utf-8")
        pairs = [Pair(*(getattr(one, name) for name in Pair._fields)) for one in comparisons]
        draw_agreement(pairs, f"predicted against measured, fitted on the first {share:.0%}", aside / PICTURE)
    return comparisons, whole


def _serving(run: StoredImport, aside: Path) -> tuple[list[Comparison], str]:
    fitted = load_config([f"experiment={NAME}"], config_dir=aside / OPTIONS)
    comparisons, whole = compare_requests(run, fitted)
    duration, preempted = whole["duration_s"], whole["preemptions"]
    error = duration["predicted"] / duration["measured"] - 1
    seen = "not logged" if isnan(preempted["measured"]) else f"measured {preempted['measured']:.0f}"
    lines = [
        "All requests, replayed from their arrival times with their lengths; the fit saw the first part of them.\n",
        comparison_table(comparisons),
        "",
        f"Duration: measured {duration['measured']:.1f} s, predicted {duration['predicted']:.1f} s ({error:+.1%}).",
        f"Preemptions: predicted {preempted['predicted']}, {seen}.",
    ]
    return comparisons, "\n".join(lines)


def _training(run: StoredImport, aside: Path, group_size: int, first: int) -> tuple[list[Comparison], str]:
    steps = len(run.steps["step"])
    if not steps:
        raise ConfigError(
            "FOLDER", run.folder, "has neither steps nor requests with times; there is nothing to compare"
        )
    chosen = [f"experiment={NAME}", f"versions={steps}"]
    with_lengths = lengths_are_usable(run, group_size)
    if with_lengths:
        lengths = aside / f"all_{LENGTHS}"
        write_lengths(run, group_size, lengths)
        chosen += ["workload=trace", f"workload.path='{lengths.absolute()}'"]
    config = load_config(chosen, config_dir=aside / OPTIONS)
    prepare(config)
    comparisons = compare_steps(run, config, simulate(config), first)
    if not comparisons:
        raise ConfigError("FOLDER", run.folder, "its later steps have no times to compare with")
    load = "the trajectories' own lengths" if with_lengths else "lengths drawn from the fitted law: compare means alone"
    about = f"Steps {first} to {steps - 1}, counted from 0, which the fit did not see, with {load}."
    return comparisons, f"{about}\n\n{comparison_table(comparisons)}"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add what a validation takes."""
    parser.add_argument("folder", metavar="FOLDER", help="what simrl import wrote")
    parser.add_argument("overrides", metavar="key=value", nargs="*", help="hardware=, model=, layout: as for a run")
    parser.add_argument(
        "--output", metavar="OUT", type=Path, default=Path("outputs/validation"), help="folder to write"
    )
    parser.add_argument("--fit-on", metavar="SHARE", type=float, default=0.5, help="of the steps; default 0.5")


def main(options: argparse.Namespace) -> int:
    """Validate and print the report.

    Raises:
        ConfigError: for bad input.
    """
    output_folder("--output", options.output)
    _, text = validate(options.folder, options.overrides, options.output, options.fit_on)
    print_answer(text)
    return 0
