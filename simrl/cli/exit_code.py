"""Exit codes of commands, and one line for every error."""

from __future__ import annotations

import errno
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from simrl.config.compose import explain
from simrl.config.schema import ConfigError, brief
from simrl.terminal import close_stdout, report

FAILED, BAD_INPUT, INTERRUPTED, TERMINATED = 1, 2, 130, 143
"""A run failed; bad input, and nothing was written; Ctrl-C; SIGTERM."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Terminated(KeyboardInterrupt):
    """SIGTERM came: the same follows as after Ctrl-C."""


def exit_code(action: Callable[[], int]) -> int:
    """Run a command and return its exit code; an error becomes one line on stderr."""
    kept = signal.signal(signal.SIGTERM, _terminate)
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
    except Terminated:
        report("terminated; what is finished is kept")
        return TERMINATED
    except KeyboardInterrupt:
        report("interrupted; what is finished is kept")
        return INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, kept)


def _terminate(*_: object) -> NoReturn:
    raise Terminated
