"""The tally of replayed golden cases, printed at the end of a test run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

_outcomes: dict[str, dict[str, tuple[bool, str]]] = {}


def record(file: str, case: str, replayed: bool, reason: str = "") -> None:
    """Note whether *case* of the golden *file* was replayed through our rules, and if not, why."""
    _outcomes.setdefault(file, {})[case] = (replayed, reason)


@contextmanager
def replay(file: str, case: str) -> Iterator[None]:
    """Note the case as replayed if the block runs through, as different if an assertion in it fails."""
    record(file, case, replayed=False, reason="decisions differ")
    yield
    record(file, case, replayed=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print replayed / total for each golden file, then what was left out and why."""
    if not _outcomes:
        return
    terminalreporter.section("conformance")
    for file, cases in sorted(_outcomes.items()):
        replayed = sum(done for done, _ in cases.values())
        terminalreporter.write_line(f"{file:<28} {replayed:>4} / {len(cases):<4} replayed")
        by_reason: dict[str, list[str]] = {}
        for case, (done, reason) in cases.items():
            if not done:
                by_reason.setdefault(reason, []).append(case)
        for reason, left_out in by_reason.items():
            terminalreporter.write_line(f"    {len(left_out)} not: {reason} ({', '.join(left_out)})")
