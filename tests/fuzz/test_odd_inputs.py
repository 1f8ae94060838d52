"""Some of the fuzz's inputs: whatever a stranger writes runs, or is refused in one line."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.fuzz.odd_inputs import KINDS, odd_input
from tests.fuzz.verdict import known, verdict

INPUTS = 60


def test_every_odd_input_runs_or_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty inputs of all kinds, the same every time; ``python -m tests.fuzz 2000`` tries more."""
    monkeypatch.chdir(tmp_path)
    kinds: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    for seed in range(INPUTS):
        given = odd_input(seed, known())
        found = verdict(given, tmp_path)
        assert found.outcome in ("runs", "refused"), f"{seed}: {given}\n{found.text}"
        kinds[given.kind] += 1
        outcomes[found.outcome] += 1
    assert kinds.keys() == dict(KINDS).keys()
    assert outcomes["runs"] > 1  # else nothing but the first check is tried


def test_an_input_is_its_seeds() -> None:
    """The same seed gives the same input, another seed another one."""
    made = [[odd_input(seed, known()) for seed in range(50)] for _ in range(2)]
    assert made[0] == made[1]
    assert len({str(given) for given in made[0]}) > 45
