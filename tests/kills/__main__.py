"""Kill sweeps and start them again: ``python -m tests.kills [--trials N] [KIND ...]``; not part of the default run.

A kind is way-whom-signal, as multirun-worker-KILL. Each trial sends its signal at a moment of its own between the start
and the end of a small sweep. Whatever happens, no process may be left after 10 s, no lock or half-written folder, and
the same command again must leave the undisturbed sweep's tables byte by byte. Exit code 1 if a trial failed.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from simrl.terminal import print_answer
from tests.kills.trial import COMMANDS, Kind, tables, trial, undisturbed

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)


def kinds() -> list[Kind]:
    """Return every kind that this machine can try."""
    ways = [way for way in COMMANDS if way != "ray" or find_spec("ray")]
    return [Kind(way, whom, number) for way in ways for whom in ("parent", "worker") for number in SIGNALS]


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="all if none is named")
    parser.add_argument("--trials", type=int, default=20, help="of each kind")
    arguments = parser.parse_args()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # sweeps hear it, also where this runs under nohup
    wanted = [kind for kind in kinds() if not arguments.kinds or str(kind) in arguments.kinds]
    failures = 0
    with tempfile.TemporaryDirectory(prefix="kills-") as scratch:
        references = {}
        for way in dict.fromkeys(kind.way for kind in wanted):
            folder = Path(scratch, way)
            folder.mkdir()
            undisturbed(way, folder)  # what is compiled or loaded for the first time takes no part
            took_s = undisturbed(way, _fresh(scratch, f"{way}-again"))
            references[way] = (took_s, tables(folder))
        for kind in wanted:
            reached = failed = 0
            for number in range(arguments.trials):
                there, wrong = trial(kind, number, _fresh(scratch, f"{kind}-{number}"), *references[kind.way])
                reached += there
                failed += bool(wrong)
                for words in wrong:
                    print_answer(f"  {kind} {number}: {words}")
            print_answer(f"{kind!s:24} {arguments.trials} trials, {reached} reached a process, {failed} failed")
            failures += failed
    return 1 if failures else 0


def _fresh(scratch: str, name: str) -> Path:
    folder = Path(scratch, name)
    folder.mkdir()
    return folder


if __name__ == "__main__":
    sys.exit(main())
