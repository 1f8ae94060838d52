"""Exit codes of commands, and one line for every error."""

from __future__ import annotations

import errno
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from io import TextIOWrapper
from typing import NoReturn

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from simrl.config.compose import explain
from simrl.config.schema import ConfigError, brief
from simrl.terminal import close_stdout, report

FAILED, BAD_INPUT, HUNG_UP, INTERRUPTED, TERMINATED = 1, 2, 129, 130, 143
"""A run failed; bad input, and nothing was written; the terminal is gone (SIGHUP); Ctrl-C; SIGTERM."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Terminated(KeyboardInterrupt):
    """SIGTERM came, or SIGHUP: the same follows as after Ctrl-C."""

    code = TERMINATED
    words = "terminated"


class HungUp(Terminated):
    """SIGHUP came."""

    code = HUNG_UP
    words = "hung up"


def exit_code(action: Callable[[], int]) -> int:
    """Run a command and return its exit code; an error becomes one line on stderr."""
    if isinstance(sys.stdout, TextIOWrapper):  # as stderr: a name may have what the terminal's encoding has not
        sys.stdout.reconfigure(errors="backslashreplace")
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGTERM, _terminate)
    if kept[signal.SIGHUP] == signal.SIG_DFL:  # nohup ignores it
        signal.signal(signal.SIGHUP, _hang_up)
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
    except Terminated as stopped:
        with suppress(OSError):  # of a terminal that is gone
            report(f"{stopped.words}; what is finished is kept")
        return stopped.code
    except KeyboardInterrupt:
        report("interrupted; what is finished is kept")
        return INTERRUPTED
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def _terminate(*_: object) -> NoReturn:
    raise Terminated


def _hang_up(*_: object) -> NoReturn:
    raise HungUp
