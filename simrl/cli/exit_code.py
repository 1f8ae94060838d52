"""Exit codes of commands, and one line for every error."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from contextlib import suppress
from io import TextIOWrapper

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from simrl.cli.signals import code_of, listen, words_of
from simrl.config.compose import explain
from simrl.config.schema import ConfigError, brief
from simrl.terminal import close_stdout, report

FAILED, BAD_INPUT = 1, 2
"""A run failed; bad input, and nothing was written. Signals have codes of their own."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def exit_code(action: Callable[[], int]) -> int:
    """Run a command and return its exit code; an error becomes one line on stderr."""
    if isinstance(sys.stdout, TextIOWrapper):  # as stderr: a name may have what the terminal's encoding has not
        sys.stdout.reconfigure(errors="backslashreplace")
    restore = listen()
    try:
        try:
            return action()
        finally:
            sys.stdout.flush()  # a closed pipe shows here, not while the interpreter ends
    except (ConfigError, HydraException, OmegaConfBaseException) as error:
        report(explain(error))
        return BAD_INPUT
    except BrokenPipeError:  # | head has closed the pipe
        close_stdout()
        return 0
    except OSError as error:
        full = error.errno in NO_ROOM
        hint = "make room and start again" if full else "choose another output_dir"
        report(brief(f"cannot write results: {error}; {hint}"))
        return FAILED if full else BAD_INPUT
    except KeyboardInterrupt as stopped:
        with suppress(OSError):  # of a terminal that is gone
            report(f"{words_of(stopped)}; what is finished is kept")
        return code_of(stopped)
    finally:
        restore()
