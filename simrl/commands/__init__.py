"""The commands: ``simrl <command> ...``, each in the module of its name."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence

NAMES = ("sweep",)


def main(argv: Sequence[str]) -> int:
    """Run the command that stands first in *argv*; return its exit code."""
    module = importlib.import_module(f"simrl.commands.{argv[0]}")
    parser = argparse.ArgumentParser(prog=f"simrl {argv[0]}", description=module.__doc__)
    module.arguments(parser)
    code: int = module.main(parser.parse_intermixed_args(list(argv[1:])))
    return code
