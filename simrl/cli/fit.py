"""Fit costs and lengths to an imported run: ``simrl fit FOLDER [key=value ...] --output FIT``.

FOLDER is what `simrl import` wrote. Keys are those of a run, and say what the logs cannot: hardware, model, layout;
they go before what the import read. The fit's folder gets report.md, lengths.parquet, and options/ for --config-dir.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from simrl.api import load_config
from simrl.config.schema import ConfigError, SimulationConfig
from simrl.own_run.importing import no_folder_left
from simrl.own_run.option_files import LENGTHS, OPTIONS, check_name, option_texts, write_lengths
from simrl.own_run.own_fit import OwnFit, fit_own_run
from simrl.own_run.stored_import import StoredImport, read_import
from simrl.own_run.verdict import fit_report
from simrl.runs.atomic import atomic_folder
from simrl.runs.output_folder import output_folder
from simrl.terminal import print_answer

REPORT = "report.md"


def fit_import(given: str | Path, overrides: Sequence[str], output: Path, name: str) -> tuple[OwnFit, str]:
    """Fit an import and write report and options to *output*; return the fit and the report.

    Args:
        given: the import's folder.
        overrides: ``key=value`` texts that go before what the import read.
        output: the fit's folder; a fit that is there is replaced.
        name: of the options.

    Raises:
        ConfigError: for a folder, a key or a name that is none.
    """
    check_name(name)
    run = read_import(given)
    refuse_other_folder(output)
    all_overrides = together(run.overrides, overrides)
    config = load_config(all_overrides)
    fitted = fit_own_run(run, config)
    if not fitted.coefficients:
        raise ConfigError("FOLDER", given, "has nothing that can be fitted; its import.md says what is missing")
    with no_folder_left(output), atomic_folder(output) as aside:
        return fitted, write_fit(aside, name, fitted, run, config, all_overrides, output)


def write_fit(
    aside: Path,
    name: str,
    fitted: OwnFit,
    run: StoredImport,
    config: SimulationConfig,
    overrides: Sequence[str],
    output: Path,
) -> str:
    """Write report, options and lengths into *aside*, which will be *output*; return the report."""
    report = fit_report(fitted, usage(output, name))
    for path, text in {REPORT: report, **option_texts(name, fitted, run, config, overrides, output)}.items():
        (aside / path).parent.mkdir(parents=True, exist_ok=True)
        (aside / path).write_text(text, encoding="utf-8")
    write_lengths(run, config.group_size, aside / LENGTHS)
    return report


def together(imported: Sequence[str], given: Sequence[str]) -> list[str]:
    """Return the overrides of both, a key that is given in the place of one that was imported."""
    keys = {override.partition("=")[0] for override in given}
    return [*(override for override in imported if override.partition("=")[0] not in keys), *given]


def refuse_other_folder(output: Path) -> None:
    """Refuse to replace a folder that no fit wrote.

    Raises:
        ConfigError: if something else is there.
    """
    if output.exists() and not (output.is_dir() and ((output / REPORT).is_file() or not any(output.iterdir()))):
        raise ConfigError("--output", output, "is there and no fit wrote it; choose another")


def usage(output: Path, name: str) -> str:
    """Return the end of a report: how to run with the values."""
    folder = quote(str(output / OPTIONS))
    return (
        "\n## To run with these values\n\n"
        f"    simrl --config-dir {folder} experiment={name}\n\n"
        f"The load of the run itself, where it was dumped in whole groups, is workload={name}_trace.\n"
    )


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add what a fit takes."""
    parser.add_argument("folder", metavar="FOLDER", help="what simrl import wrote")
    parser.add_argument("overrides", metavar="key=value", nargs="*", help="hardware=, model=, layout: as for a run")
    parser.add_argument("--output", metavar="FIT", type=Path, default=Path("outputs/fit"), help="the folder to write")
    parser.add_argument("--name", default="mine", help="name of the options; default mine")


def main(options: argparse.Namespace) -> int:
    """Fit and print the report.

    Raises:
        ConfigError: for bad input.
    """
    output_folder("--output", options.output)
    _, report = fit_import(options.folder, options.overrides, options.output, options.name)
    print_answer(report)
    return 0
