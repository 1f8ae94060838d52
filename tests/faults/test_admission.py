"""Faults 4 and 5: batches of other sizes than the article's 16 groups."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simrl.config.schema import ConfigError, SimulationConfig
from simrl.model.control.admission.running_window import RunningWindow
from simrl.model.control.ledger import Ledger
from simrl.model.control.rules import compose_rules
from simrl.model.records import TRAINED
from simrl.model.simulation import prepare, simulate
from tests.conftest import compose_config

SHORT = ("workload.mean_response_tokens=60", "workload.max_response_tokens=200", "versions=2")


def ledger(ready: int, *, waiting: bool) -> Ledger:
    """Return a ledger with batches of eight, ten running groups and *ready* finished ones."""
    made = Ledger(groups_per_batch=8, group_size=1)
    groups = [made.admit() for _ in range(10 + ready)]
    for group in groups[:ready]:
        made.finish(group)
    made.waiting_for_batch = waiting
    return made


@pytest.mark.parametrize(
    ("ready", "waiting", "room"),
    [(3, False, 5), (4, False, 0), (7, True, 5), (11, True, 5), (12, True, 0)],
    ids=["one place free", "full", "all of them collected", "one place free beside a batch", "full beside a batch"],
)
def test_4_only_what_no_batch_takes_is_queued(ready: int, *, waiting: bool, room: int) -> None:
    """A queue of four shuts the window; what a waiting trainer's batch of eight lacks does not count."""
    assert RunningWindow(max_running=15, max_ready=4).room(ledger(ready, waiting=waiting)) == room


@pytest.mark.parametrize(("groups", "size"), [(32, 8), (128, 8), (512, 16)])
def test_4_slime_runs_batches_beyond_its_windows(groups: int, size: int) -> None:
    """Batches of more groups than may run and be queued are trained whole."""
    batch = (f"groups_per_batch={groups}", f"group_size={size}")
    rows = simulate(compose_config("framework=slime", *batch, *SHORT)).trajectories
    assert (rows["fate"] == TRAINED).sum() == 2 * groups * size


@pytest.mark.parametrize(
    ("concurrency", "engines", "factor", "groups"), [(3, 2, 1, 1), (1, 1, 5, 1), (64, 2, 1, 16), (23, 1, 1, 2)]
)
def test_4_the_window_is_whole_groups_and_one_at_least(
    concurrency: int, engines: int, factor: float, groups: int
) -> None:
    """Concurrency x engines / 8 samples x factor, cut to a whole number, as max(1, floor) upstream."""
    rule = RunningWindow(concurrency_per_engine=concurrency, engines=engines, group_size=8, factor=factor)
    assert rule.window == groups


@pytest.mark.parametrize("groups", [4, 16, 128])
def test_5_nemo_windowed_starts_with_six_batches(groups: int) -> None:
    """Whatever the batch: the article's 96 groups are six of its batches of 16."""
    admission = compose_rules(compose_config("framework=nemo_windowed").framework).admission
    assert admission.room(Ledger(groups, 8)) == 6 * groups
    prepare(compose_config("framework=nemo_windowed", f"groups_per_batch={groups}"))


def test_5_a_buffer_too_small_for_a_batch_names_its_key(configure: Callable[..., SimulationConfig]) -> None:
    """The upstream form's buffer of 96 groups holds no batch of 128: the line says which parameter to raise."""
    with pytest.raises(ConfigError, match=r"groups_per_batch=128: .*raise framework\.admission\.max_buffered_rollouts"):
        prepare(configure("framework=nemo_windowed", "framework.form=upstream", "groups_per_batch=128"))
