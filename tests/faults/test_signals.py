"""Faults 35 and 36: when a signal comes, and how often, changes nothing about how a command ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from simrl.cli.signals import CLEAR_UP_S, HungUp, Terminated, code_of, listen
from simrl.sweep.executors.ray_cluster import own_sigterm

ENDINGS = [
    (signal.SIGINT, KeyboardInterrupt, 130, "interrupted"),
    (signal.SIGTERM, Terminated, 143, "terminated"),
    (signal.SIGHUP, HungUp, 129, "hung up"),
]
LOADING = """
import os, signal, sys
import simrl.__main__ as program
signal.signal(signal.SIGHUP, signal.SIG_DFL)

class Disturbed:
    def find_spec(self, name, *_):
        if name == "simrl.config.compose":
            os.kill(os.getpid(), {number})

sys.meta_path.insert(0, Disturbed())
sys.argv[1:] = ["versions=1"]
program.start()
"""


@pytest.fixture
def listening() -> Iterator[None]:
    """Listen as a command does, also if the tests run under nohup."""
    kept = {number: signal.signal(number, signal.SIG_DFL) for number, *_ in ENDINGS}
    restore = listen()
    yield
    restore()
    assert {signal.getsignal(number) for number in kept} == {signal.SIG_DFL}
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(("number", "raised", "code", "words"), ENDINGS, ids=[end[0].name for end in ENDINGS])
def test_a_signal_while_modules_load_is_one_line(
    number: signal.Signals, raised: type[KeyboardInterrupt], code: int, words: str
) -> None:
    """The exit code of the signal, no traceback."""
    program = LOADING.format(number=int(number))
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "", f"simrl: {words}\n")
    assert code_of(raised()) == code


@pytest.mark.usefixtures("listening")
@pytest.mark.parametrize(("number", "raised"), [end[:2] for end in ENDINGS], ids=[end[0].name for end in ENDINGS])
def test_only_the_first_signal_raises(number: signal.Signals, raised: type[KeyboardInterrupt]) -> None:
    """What comes while the command clears up, of whatever kind, passes."""
    with pytest.raises(raised):
        os.kill(os.getpid(), number)
    for later, *_ in ENDINGS:
        os.kill(os.getpid(), later)


@pytest.mark.usefixtures("listening")
def test_a_signal_raises_again_once_clearing_up_should_be_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one may have been lost in code that catches everything."""
    with pytest.raises(Terminated):
        os.kill(os.getpid(), signal.SIGTERM)
    later_s = time.monotonic() + CLEAR_UP_S
    monkeypatch.setattr(time, "monotonic", lambda: later_s)
    with pytest.raises(Terminated):
        os.kill(os.getpid(), signal.SIGTERM)


def test_what_is_ignored_stays_so() -> None:
    """Under nohup SIGHUP ends nothing."""
    kept = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    restore = listen()
    try:
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        restore()
        signal.signal(signal.SIGHUP, kept)


@pytest.mark.usefixtures("listening")
def test_35_ray_does_not_take_over_sigterm() -> None:
    """Whatever Ray sets when it starts, a sweep on it still ends as others do."""
    with own_sigterm():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(15))
    with pytest.raises(Terminated):
        os.kill(os.getpid(), signal.SIGTERM)
