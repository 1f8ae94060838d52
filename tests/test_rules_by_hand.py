"""Single rules on ledgers of a few groups: how many may be admitted, which go into a batch, in what order."""

from __future__ import annotations

import pytest

from simrl.model.control.admission.batch_permits import BatchPermits
from simrl.model.control.admission.buffer_permits import BufferPermits
from simrl.model.control.admission.held_permits import HeldPermits
from simrl.model.control.admission.quota_and_extras import QuotaAndExtras
from simrl.model.control.admission.running_window import RunningWindow
from simrl.model.control.admission.version_quota import VersionQuota
from simrl.model.control.deadline import Backlog, MostUrgent
from simrl.model.control.ledger import Group, Ledger
from simrl.model.control.psrl import Reservations
from simrl.model.control.sampling.oldest_first import OldestFirst
from simrl.model.control.sampling.version_by_version import VersionByVersion


def ledger_of(
    *versions: int, now: int = 0, batch: int = 2, ready: tuple[int, ...] = (), group_size: int = 1
) -> tuple[Ledger, list[Group]]:
    """Return a ledger and its groups, admitted at *versions*; those numbered *ready* are finished, in that order."""
    ledger = Ledger(batch, group_size)
    groups = []
    for version in versions:
        ledger.version = version
        groups.append(ledger.admit())
        ledger.start(groups[-1], group_size)
    ledger.version = now
    for index in ready:
        for _ in range(group_size):
            ledger.finish_member(groups[index])
        ledger.finish(groups[index])
    return ledger, groups


# --- the ledger


def test_a_cancelled_group_leaves_no_trajectory_running() -> None:
    """Three of four members were started and one ended: cancelling takes the two off that run."""
    ledger = Ledger(groups_per_batch=1, group_size=4)
    group = ledger.admit()
    ledger.start(group, 3)
    ledger.finish_member(group)
    assert ledger.running_trajectories == 2
    ledger.cancel(group)
    assert ledger.running_trajectories == 0
    assert ledger.part_started is None


# --- admission


def test_a_fractional_ratio_is_rounded_up_to_groups() -> None:
    """ROLL's first quota at ratio 0.5 and three groups a batch: the batch and two more."""
    assert QuotaAndExtras(ratio=0.5, max_additional_running_prompts=1).room(Ledger(3, 1)) == 3 + 2


def test_extra_groups_run_beyond_the_quota_while_few_run() -> None:
    """With its quota of two ready a run may hold three extra ones at once; what of them ended does not count."""
    rule = QuotaAndExtras(ratio=0, max_additional_running_prompts=3)
    ledger = Ledger(2, 1)
    for _ in range(rule.room(ledger)):
        rule.admitted(ledger, ledger.admit())
    assert ledger.admitted == 3  # the quota of two, and one extra beside them
    for index in (0, 1, 2):
        ledger.finish(ledger.running[index])
        rule.finished(ledger, ledger.ready[index])
    assert (rule.quota_finished, rule.extra_running) == (2, 0)
    assert rule.room(ledger) == 3


def test_held_permits_have_a_floor() -> None:
    """TRL at max_staleness 0 still has one batch of permits; the floor can be set."""
    ledger, _ = ledger_of(0, 0, 0, batch=4, ready=(1,))
    assert HeldPermits(batches=0).room(ledger) == 4 - 3
    assert HeldPermits(batches=0, at_least_batches=2).room(ledger) == 8 - 3
    assert HeldPermits(batches=3, at_least_batches=2).room(ledger) == 12 - 3


def test_a_quota_takes_losses_back_only_if_it_gives_back() -> None:
    """Of five groups at most two batches may be; one was dropped and one cancelled."""
    ledger, groups = ledger_of(0, 0, 0, ready=(0,))
    ledger.drop(groups[0])
    ledger.cancel(groups[1])
    assert VersionQuota(ahead=1).room(ledger) == 4 - 3
    assert VersionQuota(ahead=1, give_back=True).room(ledger) == 4 - 1


def test_a_cap_on_rollouts_counts_running_groups() -> None:
    """Ready groups hold no place under max_concurrent_rollouts."""
    ledger, _ = ledger_of(0, 0, 0, ready=(0, 1))
    assert VersionQuota(ahead=9, max_concurrent_rollouts=3).room(ledger) == 3 - 1


def test_a_quota_grows_by_its_own_batch_from_its_own_start() -> None:
    """At version 3: the start (two batches of five, or seven groups) and three batches more."""
    ledger, _ = ledger_of(now=3)
    assert VersionQuota(ahead=1, quota_batch=5).room(ledger) == 2 * 5 + 3 * 5
    assert VersionQuota(ahead=1, start_groups=7).room(ledger) == 7 + 3 * 2


def test_a_full_queue_shuts_the_window() -> None:
    """The window stays open while the queue has a place left, and shuts when it has none."""
    rule = RunningWindow(max_running=5, max_ready=2)
    assert rule.room(ledger_of(0, 0, ready=(0,))[0]) == 5 - 1
    assert rule.room(ledger_of(0, 0, 0, ready=(0, 1))[0]) == 0


@pytest.mark.parametrize(
    ("permits", "room"),
    [
        (BufferPermits(max_inflight_prompts=3, max_buffered_rollouts=99), 3 - 1),  # one runs
        (BufferPermits(max_inflight_prompts=99, max_buffered_rollouts=6), 6 - 3),  # one runs, two lie ready
        (BufferPermits(max_inflight_prompts=99, max_buffered_rollouts=99, ahead=1), (1 + 1 + 1) * 2 - 3),
    ],
    ids=["in flight", "buffered", "gate"],
)
def test_a_group_needs_a_permit_of_each_pool(permits: BufferPermits, room: int) -> None:
    """NeMo-RL: the scarcest of in-flight permits, buffer permits and the gate; none while weights are loaded."""
    ledger, _ = ledger_of(0, 0, 0, now=1, ready=(0, 1))
    assert permits.room(ledger) == room
    ledger.publishing = True
    assert permits.room(ledger) == 0


def test_a_lost_group_is_replaced_within_its_batch() -> None:
    """OpenRLHF with one permit: a batch of two of which one was cancelled lacks one, a whole one holds the permit."""
    ledger, groups = ledger_of(0, 0, ready=(0,))
    assert BatchPermits(permits=1).room(ledger) == 0
    ledger.cancel(groups[1])
    assert BatchPermits(permits=1).room(ledger) == 1


# --- sampling


def test_ties_go_by_start_or_by_completion() -> None:
    """Three groups of one version ended in the order 2, 0, 1."""
    ledger, _ = ledger_of(0, 0, 0, ready=(2, 0, 1))
    assert [group.index for group in OldestFirst(ties="completion").pick(ledger)] == [2, 0]
    assert [group.index for group in OldestFirst(ties="start").pick(ledger)] == [0, 1]


def test_a_barrier_waits_for_running_groups_of_its_age() -> None:
    """A batch is ready; a running group one version old holds it up at barrier_age 1, not at 2."""
    ledger, _ = ledger_of(0, 1, 1, now=1, ready=(1, 2))
    assert OldestFirst(barrier_age=1).pick(ledger) == []
    assert len(OldestFirst(barrier_age=2).pick(ledger)) == 2


def test_a_fractional_ratio_bounds_the_oldest_groups_share() -> None:
    """ROLL at ratio 0.5 and four groups a batch: at most two of the older version, then the newer one."""
    ledger, _ = ledger_of(0, 0, 0, 1, 1, 1, now=1, batch=4, ready=(0, 1, 2, 3, 4, 5))
    picked = VersionByVersion(ratio=0.5).pick(ledger)
    assert [group.index for group in picked] == [0, 1]
    ledger.pick(picked)
    assert [group.index for group in VersionByVersion(ratio=0.5).pick(ledger)] == [3, 4]


# --- deadline


def test_a_batch_in_training_holds_its_places() -> None:
    """Until its weights are out a batch that was taken counts against the quota."""
    ledger, groups = ledger_of(0, 0, 0, ready=(0, 1))
    ledger.pick(groups[:2])
    ledger.take()
    rule = Backlog(eta=1, quota=2, running_batches=None, hold_while_training=False)
    assert rule.room(ledger) == 2 * 2 - 1 - 2
    ledger.version = 1
    assert rule.room(ledger) == 2 * 2 - 1
    ledger.version = 0
    assert Backlog(eta=1, quota=2, running_batches=None, hold_while_training=True).room(ledger) == 0


def test_a_window_of_running_groups_is_filled_within_the_quota() -> None:
    """Two batches of quota, 1.5 of them running: three groups at a time."""
    ledger, _ = ledger_of(0, ready=(0,))
    assert Backlog(eta=1, quota=2, running_batches=1.5).room(ledger) == min(4 - 1, 3)
    assert Backlog(eta=1, quota=2, running_batches=0.1).room(ledger) == 1


def test_nothing_starts_while_more_than_a_few_of_a_due_group_run() -> None:
    """Where rollout is not scarce: two instances may have one unfinished trajectory of due groups each."""
    ledger, groups = ledger_of(0, 1, now=1)
    rule = Backlog(eta=1, due_per_instance=1, instances=2, scarce_from=0.5, hold_while_training=True)
    ledger.open_by_version[0] = 3
    assert rule.room(ledger) == 0
    ledger.open_by_version[0] = 2
    ledger.taken = 2
    assert rule.room(ledger) == 2 * 2 - len(groups)
    ledger.open_by_version[0] = 3
    ledger.publishes.append((100, 50))
    assert rule.room(ledger) == 2 * 2 - len(groups), "rollout is scarce: they are not waited for"


@pytest.mark.parametrize(("seen", "share"), [(1, 0.8), (2, 0.5), (9, 0.4)])
def test_the_waiting_share_is_that_of_the_last_versions(seen: int, share: float) -> None:
    """Three versions of 100 ns, of which the trainer waited 20, 20 and 80: over the last ones, or all there were."""
    ledger = Ledger(2, 1)
    assert ledger.wait_share(seen) == 0, "nothing is known before the first is published"
    ledger.publishes += [(100, 20), (200, 40), (300, 120)]
    assert ledger.wait_share(seen) == pytest.approx(share)


def test_nothing_is_admitted_that_no_step_is_left_to_train() -> None:
    """Two steps of two groups, three admitted: one more."""
    ledger, _ = ledger_of(0, 0, 0, now=1)
    ledger.steps = 2
    ledger.taken = 2
    assert Backlog(eta=1, quota=2, running_batches=None, stop_at_last_step=True).room(ledger) == 1


@pytest.mark.parametrize(
    ("versions", "now", "ready", "picked"),
    [
        ((0, 0, 1), 1, (0, 1), [0, 1]),  # the two oldest are due now and ready
        ((0, 0, 0, 1), 1, (0, 1, 3), []),  # a third is due now and still runs
        ((0, 1, 1), 1, (1, 2), []),  # the one that is due now still runs
        ((0, 0, 0, 0), 0, (0, 1), [0, 1]),  # the two that are left just fill the next batch
        ((0, 0, 0, 0, 0), 0, (0, 1), []),  # three left would not fit in it
        ((1, 0, 0), 1, (0, 1, 2), [1, 2]),  # the most urgent go first
    ],
)
def test_a_batch_is_taken_as_soon_as_all_others_can_meet_their_deadlines(
    versions: tuple[int, ...], now: int, ready: tuple[int, ...], picked: list[int]
) -> None:
    """Eta 1, two groups a batch: those left with k versions to go and fewer fit in k batches."""
    ledger, _ = ledger_of(*versions, now=now, ready=ready)
    assert [group.index for group in MostUrgent(eta=1).pick(ledger)] == picked


# --- psrl


def test_a_freed_reservation_takes_the_last_one_of_the_lowest_buffer() -> None:
    """Six groups reserve from the highest buffer down; the first one's end lets the newest of buffer 0 move up.

    The buffers are those of steps 0, 1 and 2, two entries each: (4, 5), (2, 3) and (0, 1) are reserved in them.
    """
    rule = Reservations(eta=2)
    ledger = Ledger(2, 1)
    for _ in range(rule.room(ledger)):
        rule.admitted(ledger, ledger.admit())
    ledger.finish(ledger.running[0])
    rule.finished(ledger, ledger.ready[0])
    reserved = {step: list(buffer.reserved) for step, buffer in rule.buffers.items()}
    occupied = {step: [group.index for group in buffer.occupied] for step, buffer in rule.buffers.items()}
    assert reserved == {0: [4], 1: [2, 3], 2: [1, 5]}
    assert occupied == {0: [0], 1: [], 2: []}


def test_a_reservation_moves_up_only_within_its_bound() -> None:
    """A group of version 0 may not move into the buffer of step 3 when eta is 2; one of version 1 may."""
    rule = Reservations(eta=2)
    ledger = Ledger(1, 1)
    for _ in range(rule.room(ledger)):  # groups 0, 1, 2 in buffers 2, 1, 0
        rule.admitted(ledger, ledger.admit())
    ledger.finish(ledger.running[2])
    rule.finished(ledger, ledger.ready[2])
    (batch,) = [rule.pick(ledger)]
    ledger.pick(batch)
    rule.taken(ledger, ledger.take())
    ledger.version = 1
    rule.admitted(ledger, ledger.admit())  # group 3 in buffer 3
    ledger.finish(ledger.running[3])
    rule.finished(ledger, ledger.ready[3])
    reserved = {step: list(buffer.reserved) for step, buffer in rule.buffers.items()}
    assert reserved == {1: [1], 2: [0], 3: []}
    assert [group.index for group in rule.buffers[3].occupied] == [3]
