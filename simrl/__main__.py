"""``python -m simrl``, and ``simrl``."""

from __future__ import annotations

import sys
from contextlib import suppress

from simrl.cli.signals import code_of, let_pass, listen, words_of


def start() -> None:
    """Do what the command line asks and leave with its exit code; signals are heard while modules load, too."""
    listen()
    try:
        from simrl.cli.main import main  # noqa: PLC0415 - see above

        main()
    except KeyboardInterrupt as stopped:
        with suppress(OSError):  # of a terminal that is gone
            sys.stderr.write(f"simrl: {words_of(stopped)}\n")
        sys.exit(code_of(stopped))
    finally:
        let_pass()


if __name__ == "__main__":
    start()
