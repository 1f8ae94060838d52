"""What the commands of this folder have in common: ``key=value`` arguments, --help, one line for every error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from simrl.cli.exit_code import exit_code
from simrl.sweep.request import KEYS, Request, parse
from simrl.terminal import print_answer


def command(carry_out: Callable[[Request], int], text: str, arguments: Sequence[str] | None) -> int:
    """Do what the command line asks; return the exit code.

    Args:
        carry_out: does what a request asks for, and returns the exit code.
        text: what --help prints before the keys that every command takes.
        arguments: those of the command line; the program's own if None.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if any(argument in ("-h", "--help") for argument in given):
        print_answer(f"{text}\n{KEYS}")
        return 0
    return exit_code(lambda: carry_out(parse(given)))
