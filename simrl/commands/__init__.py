"""The commands beside a run: ``simrl NAME ...``; each is a module of its name with ``arguments`` and ``main``."""

from __future__ import annotations

import argparse
from importlib import import_module

from simrl.config import ConfigError
from simrl.sweep import say

NAMES = ("show", "trace")
BAD_INPUT = 2


def main(argv: list[str]) -> int:
    """Run the command *argv* names; return the exit code."""
    command = import_module(f"{__name__}.{argv[0]}")
    parser = argparse.ArgumentParser(prog=f"simrl {argv[0]}", description=(command.__doc__ or "").split("\n")[0])
    command.arguments(parser)
    try:
        return int(command.main(parser.parse_args(argv[1:])))
    except ConfigError as error:
        say(str(error))
        return BAD_INPUT
