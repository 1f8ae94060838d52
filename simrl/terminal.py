"""Lines for the person at the terminal, and the progress of a long job: a line rewritten, or one every few seconds."""

from __future__ import annotations

import math
import os
import re
import sys
import time
from typing import TextIO

TERMINAL_EVERY_S, ELSEWHERE_EVERY_S = 0.2, 5.0
OBEYED = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]")
"""Control characters other than tabs and line ends, what turns the writing's direction, and halves of characters."""
ENOUGH, ENOUGH_SHARE = 5, 0.1
"""So many finished pieces of work, or this share of all, are evidence for an estimate."""


def printable(text: str) -> str:
    """Return a text without what a terminal obeys or cannot show: it comes from files that anybody may have written."""
    return OBEYED.sub(lambda found: ascii(found[0])[1:-1], text)


def report(line: str) -> None:
    """Print a line to stderr for the person at the terminal; results go to stdout."""
    print(f"simrl: {printable(line)}", file=sys.stderr, flush=True)


def print_answer(text: str) -> None:
    """Print an answer to stdout; a reader that has closed the pipe (``| head``) is no error."""
    try:
        print(printable(text), flush=True)
    except BrokenPipeError:
        close_stdout()


def close_stdout() -> None:
    """Let what is still printed go nowhere: its reader is gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def clock_text(seconds: float) -> str:
    """Return a duration as people read it: 8 s, 3 min 20 s, 2 h 5 min."""
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60} s"
    return f"{rounded // 3600} h {rounded % 3600 // 60} min"


class Progress:
    """Counts finished pieces of work and prints, to *stream*, how many are left and for how long."""

    def __init__(self, what: str, total: int, stream: TextIO | None = None):
        """Start the clock.

        Args:
            what: what is counted, in the plural.
            total: how many there are.
            stream: where to write; stderr if none.
        """
        self.what = what
        self.total = total
        self.done = 0
        self.failed = 0
        self.stream = sys.stderr if stream is None else stream
        self.terminal = self.stream.isatty()
        self.started_s = time.monotonic()
        self.printed_s = self.started_s

    def step(self, *, failed: bool = False) -> None:
        """Count one finished piece and print, if it is time."""
        self.done += 1
        self.failed += failed
        now_s = time.monotonic()
        if now_s - self.printed_s >= (TERMINAL_EVERY_S if self.terminal else ELSEWHERE_EVERY_S):
            self.printed_s = now_s
            self._write(self.line(now_s))

    def line(self, now_s: float) -> str:
        """Return the state in words; the estimate, once enough is done, takes what is left to be like that."""
        failed = f", {self.failed} failed" if self.failed else ""
        state = f"simrl: {self.done} of {self.total} {self.what}{failed}"
        if self.done < min(ENOUGH, math.ceil(self.total * ENOUGH_SHARE)):
            return f"{state}, no estimate yet"
        left_s = (now_s - self.started_s) / self.done * (self.total - self.done)
        return f"{state}, about {clock_text(left_s)} left"

    def end(self, remark: str = "") -> None:
        """Print how it ended."""
        failed = f", {self.failed} failed" if self.failed else ""
        took = clock_text(time.monotonic() - self.started_s)
        self._write(f"simrl: {self.done} of {self.total} {self.what}{failed} in {took}{remark}")
        if self.terminal:
            self.stream.write("\n")
        self.stream.flush()

    def _write(self, line: str) -> None:
        self.stream.write(f"\r\033[K{line}" if self.terminal else f"{line}\n")
        self.stream.flush()
