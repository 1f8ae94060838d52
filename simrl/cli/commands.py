"""The commands around runs: ``simrl plan``, ``status``, ... Each is the module of its name and loads alone."""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from simrl.config.option_folders import config_folder
from simrl.config.schema import brief
from simrl.terminal import print_answer

NAMES = (
    "plan",
    "sweep",
    "status",
    "collect",
    "compare",
    "show",
    "trace",
    "calibrate",
    "import",
    "fit",
    "validate",
    "export",
)
BAD_INPUT = 2
HELP_COLUMNS = 118

HELP = """\
SimRL simulates asynchronous LLM reinforcement-learning post-training.

  simrl [key=value ...]            run one simulation and print its summary
  simrl -m [key=value,value ...]   run a sweep: every combination of the comma lists
  simrl COMMAND ...                what is done around runs and sweeps:

{commands}

  simrl COMMAND --help             what a command takes
  simrl --version                  SimRL's version

Keys are Hydra's: framework=roll chooses an option of a group, framework.eta=2 sets a value. `simrl --cfg job` prints
the configuration, `simrl --hydra-help` what Hydra takes. The groups and their options are:

{groups}

  simrl framework=areal framework.eta=2 versions=20
  simrl -m framework=areal,roll framework.eta=1,2 seed=0,1,2
  simrl plan framework=areal,roll framework.eta=1,2 seed=0,1,2
"""


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line, as everywhere in SimRL."""

    def error(self, message: str) -> NoReturn:
        """Print the error and leave with exit code 2."""
        self.exit(BAD_INPUT, brief(f"{self.prog}: {message}; {self.prog} --help lists what it takes") + "\n")


def help_line(name: str) -> str | None:
    """Return the first line of a command's docstring without loading it, None if it is not there."""
    file = Path(__file__).parent / f"{name}.py"
    if not file.is_file():
        return None
    return (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n")[0]


def help_text() -> str:
    """Return what ``simrl --help`` prints."""
    lines = [(name, help_line(name)) for name in NAMES]
    commands = "\n".join(f"    {name:<10} {line}" for name, line in lines if line)
    groups = "\n".join(
        textwrap.fill(
            ", ".join(options),
            width=HELP_COLUMNS,
            initial_indent=f"    {group:<10} ",
            subsequent_indent=" " * 15,
            break_on_hyphens=False,
        )
        for group, options in shipped_options().items()
    )
    return HELP.format(commands=commands, groups=groups)


def shipped_options() -> dict[str, list[str]]:
    """Return the groups of SimRL's configuration and the names of their options."""
    folders = sorted(folder for folder in Path(config_folder()).iterdir() if folder.is_dir())
    return {folder.name: sorted(file.stem for file in folder.glob("*.yaml")) for folder in folders}


def answer(options: argparse.Namespace, document: Any, text: str) -> None:
    """Print a command's answer to stdout: the *document* as JSON if --json was given, else the *text*."""
    print_answer(json.dumps(_plain(document), indent=2) if options.json else text)


def _plain(value: Any) -> Any:
    """Return *value* in what JSON knows: no NaN, no infinity, no numpy."""
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def main(argv: Sequence[str]) -> int:
    """Run the command that stands first in *argv*; return its exit code.

    Raises:
        ConfigError: for bad input.
    """
    module = importlib.import_module(f"simrl.cli.{argv[0]}")
    code: int = module.main(parser_of(argv[0]).parse_intermixed_args(list(argv[1:])))
    return code


def parser_of(name: str) -> OneLineParser:
    """Return the parser of a command's arguments."""
    module = importlib.import_module(f"simrl.cli.{name}")
    parser = OneLineParser(
        prog=f"simrl {name}", description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    module.arguments(parser)
    return parser
