"""OpenRLHF's asynchronous trainer, replayed through batch_permits and completion_order."""

from __future__ import annotations

from typing import Any

import pytest

from simrl.cost.training import StepTime
from simrl.staleness.admission import Admission
from simrl.staleness.books import Books
from simrl.staleness.composition import Rules, compose_rules
from tests.conformance.conftest import record, replay
from tests.conformance.goldens import golden
from tests.conformance.journal import ADMIT, DONE, DROP, START, SYNC, TAKE, RejectingBooks
from tests.conformance.scripted_engines import ScriptedEngines
from tests.conformance.stage import stage
from tests.conftest import compose_config

LOOP, CHUNKS = "openrlhf_loop.json", "openrlhf_chunks.json"
SIZE = 2  # groups of a batch in the replay of whole batches


def scripts(file: str) -> list[Any]:
    """Return a file's scripts, each with its seed for a name."""
    return [pytest.param(case, id=str(case["seed"])) for case in golden(f"areal_skyrl_openrlhf/{file}")["scripts"]]


def openrlhf(permits: int, generate: int | None = None, update: str = "recompute") -> tuple[Any, Rules]:
    """Return OpenRLHF's configuration and rules."""
    framework = compose_config(
        "framework=openrlhf",
        "framework.form=upstream",
        f"framework.eta={permits}",
        f"framework.weight_update={update}",
        f"+framework.admission.upstream.generate_groups={'null' if generate is None else generate}",
    ).framework
    return framework, compose_rules(framework)


class LastPrompt(Admission):
    """Our rule, until the data end."""

    def __init__(self, rule: Admission, groups: int):
        self.rule = rule
        self.groups = groups

    def room(self, books: Books) -> int:
        """Return our rule's answer, at most the groups left."""
        return min(self.rule.room(books), self.groups - books.admitted)


class Lock(LastPrompt):
    """Our rule under the lock of the default mode: no batch begins while a sync waits for the running one."""

    engines: ScriptedEngines

    def room(self, books: Books) -> int:
        """Return our rule's answer, none while the trainer waits for the lock."""
        return 0 if self.engines.draining else super().room(books)


def phases(steps: list[list[Any]]) -> tuple[list[StepTime], list[float]]:
    """Return how long each batch trains and each sync takes, a step of the script a second."""
    begun: dict[str, int] = {}
    lengths: dict[str, list[float]] = {"train": [], "sync": []}
    for tick, (released, observed, _) in enumerate(steps):
        for name, *_ in observed:
            phase, _, edge = name.partition("_")
            if edge == "start":
                begun[phase] = tick
        if released in lengths and released in begun:
            start = begun[released] if (released != "sync" or begun["sync"] != tick) else tick
            lengths[released].append(float(tick - start))
    return [StepTime(0.0, seconds) for seconds in lengths["train"]], lengths["sync"]
