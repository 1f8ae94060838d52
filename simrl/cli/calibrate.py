"""Fit named parameters to a reference table or to a measured run: ``simrl calibrate SPEC.yaml``.

The specification (see sweeps/calibration.yaml and docs/calibration.md) names parameters with bounds, targets, and what
is held out. report.md, values.json and an option file of the values go to the output folder when the fit is done, and
not before.
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from simrl.calibration.fit import fit
from simrl.calibration.fit_report import fit_report
from simrl.calibration.fitted_option import OPTION, OPTIONS, option_file, usage
from simrl.calibration.forward_model import ForwardModel
from simrl.calibration.spec import read_spec
from simrl.cli.exit_code import BAD_INPUT, FAILED
from simrl.cli.signals import code_of, words_of
from simrl.config.schema import ConfigError
from simrl.model.engine.vllm.compilation import compile_engine
from simrl.runs.atomic import atomic_file
from simrl.runs.output_folder import output_folder
from simrl.sweep.executors.job import cores
from simrl.terminal import print_answer, report


def calibrate(spec_file: Path, output: Path, workers: int) -> str:
    """Fit what a specification asks for, write report and values to *output*; return the report and how to use them.

    Raises:
        ConfigError: before anything runs, for a specification that cannot be met.
    """
    if workers < 1:
        raise ConfigError("--workers", workers, "must be 1 or more")
    output_folder("--output", output)
    with ForwardModel(read_spec(spec_file), workers) as model:
        model.check()
        compile_engine(report)
        fitted = fit(model, report)
    text = fit_report(fitted)
    contents = {
        "report.md": text,
        "values.json": json.dumps(fitted.values, indent=2) + "\n",
        f"{OPTIONS}/experiment/{OPTION}.yaml": option_file(fitted.values, spec_file),
    }
    for name, content in contents.items():
        with atomic_file(output / name) as aside:
            aside.write_text(content)
    return text + usage(fitted.values, output)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add what calibrating takes."""
    parser.add_argument("spec", type=Path, help="a YAML file: parameters, reference or measured, seeds, rounds")
    parser.add_argument("--output", type=Path, default=Path("outputs/calibration"), help="folder for the report")
    parser.add_argument("--workers", type=int, default=cores(), help="processes; default one a core")


def main(options: argparse.Namespace) -> int:
    """Calibrate and print the report; return the exit code."""
    try:
        text = calibrate(options.spec, options.output, options.workers)
    except ConfigError as error:
        report(str(error))
        return BAD_INPUT
    except OSError as error:
        report(f"cannot write results: {error}; choose another --output")
        return BAD_INPUT
    except BrokenProcessPool:
        report("a worker process was killed (out of memory, or a crash in native code); try fewer --workers")
        return FAILED
    except RuntimeError as error:
        report(f"a run failed: {error}")
        return FAILED
    except KeyboardInterrupt as stopped:
        report(f"{words_of(stopped)}; nothing was written")
        return code_of(stopped)
    print_answer(text)
    return 0
