"""prime-rl's control on random small simulations long enough for its cap to grow, to be trimmed and to be cut."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simrl.config.schema import ConfigError, EngineCosts, SimulationConfig
from simrl.model.clock import to_ns
from simrl.model.control.prime_rl.concurrency import AdaptiveConcurrency, Concurrency
from simrl.model.control.prime_rl.dispatcher import BURST_SHARE, BURST_WINDOW_NS
from simrl.model.control.prime_rl.orchestrator import Orchestrator
from simrl.model.engine.vllm.engine import EngineOptions, VllmEngine
from simrl.model.metrics import summarise, tokens_of
from simrl.model.records import DROPPED_L2, NONE, TRAINED, Records
from simrl.model.simulation import DeadlockError, prepare, simulate
from tests.conftest import compose_config
from tests.iteration_time import times
from tests.random_configs import small_configs
from tests.test_invariants import same_records


@st.composite
def slow_configs(draw: st.DrawFn) -> SimulationConfig:
    """Draw a prime-rl configuration whose run lasts many polls: iterations of 0.1 s and more, a small KV cache."""
    config = draw(small_configs(("prime_rl",)))
    costs = EngineCosts(0.0, draw(st.sampled_from([0.1, 0.5])), 0.0, 0.0, 1e-3, 0.0)
    trainer = dataclasses.replace(config.trainer, fitted_per_token_s=draw(st.sampled_from([1e-3, 2e-2, 0.2])))
    admission: dict[str, Any] = {"rule": "adaptive_concurrency", "kv_usage": draw(st.sampled_from(["mean", "largest"]))}
    if draw(st.booleans()):
        admission["initial_inflight"] = draw(st.integers(1, 40))
    eta = draw(st.integers(0, 4))
    framework = dataclasses.replace(
        config.framework,
        eta=eta,
        admission=admission,
        cancellation={"rule": "older_than_collecting", "max_age": eta},
        sampling={"rule": "fifo_sink", "max_age": eta},
    )
    rollout = dataclasses.replace(config.rollout, costs=costs, sample_every_s=10.0)
    return dataclasses.replace(config, framework=framework, rollout=rollout, trainer=trainer)


random_runs = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


def whole_batches(config: SimulationConfig, records: Records) -> None:
    """Assert that every step trained a batch of trajectories."""
    rows = records.trajectories
    versions, counts = np.unique(rows["consumed_version"][rows["fate"] == TRAINED], return_counts=True)
    assert versions.tolist() == list(range(config.versions))
    assert (counts == config.groups_per_batch * config.group_size).all()


@random_runs
@given(slow_configs())
def test_it_keeps_its_bound_and_comes_to_an_end(config: SimulationConfig) -> None:
    """Nothing staler than eta is trained, eta 0 included, and every run trains all its batches."""
    records = simulate(config)
    whole_batches(config, records)
    trained = records.trajectories[records.trajectories["fate"] == TRAINED]
    assert (trained["consumed_version"] - trained["admission_version"]).max() <= config.framework.eta
    assert (trained["first_token_version"] >= trained["admission_version"]).all()


@random_runs
@given(slow_configs())
def test_tokens_are_conserved_by_fate(config: SimulationConfig) -> None:
    """Each generated token is trained, dropped or unfinished; one that was never submitted has none."""
    records = simulate(config)
    rows = records.trajectories
    row = summarise(config, records, "x")
    parts = (row[name] for name in ("trained_tokens", "wasted_tokens_l2", "wasted_tokens_l3", "unfinished_tokens"))
    assert sum(parts) == tokens_of(rows).sum()
    unsubmitted = rows[rows["submit_ns"] == NONE]
    assert (unsubmitted["generated_tokens"] == 0).all()
    assert (unsubmitted["instance"] == NONE).all()
    assert (unsubmitted["fate"] != TRAINED).all()
    assert (rows["finish_ns"][rows["fate"] == TRAINED] != NONE).all()


@random_runs
@given(slow_configs())
def test_permits_bursts_and_the_gate_are_respected(config: SimulationConfig) -> None:
    """At a start: in flight within the limit, the window's budget not exceeded, at most one batch of lead."""
    seen: list[int] = []

    def fill(self: Orchestrator, now_ns: int) -> list[int]:
        started = original(self, now_ns)
        if started:
            seen.append(len(started))
            assert self.dispatcher.in_flight <= self.concurrency.limit
            most = max(config.group_size, self.concurrency.limit // BURST_SHARE)
            assert self.burst.started <= most
            assert now_ns < self.burst.opened_ns + BURST_WINDOW_NS
            assert self.gate_open
            assert self.sink.step - 1 - self.version <= 1
        assert self.dispatcher.in_flight == sum(len(group.running) for group in self.dispatcher.groups.values())
        return started

    original = Orchestrator.fill
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Orchestrator, "fill", fill)
        simulate(config)
    assert seen


@random_runs
@given(slow_configs())
def test_polls_see_the_same_engines_in_both_steppings(config: SimulationConfig) -> None:
    """Stretches and single iterations give identical records, polls, cuts and sheds included."""
    stepped = dataclasses.replace(config, rollout=dataclasses.replace(config.rollout, stepping="iteration"))
    same_records(simulate(config), simulate(stepped))


def test_a_look_disturbs_nothing_and_sees_what_catching_up_sees() -> None:
    """What look() shows is what stands after catch_up() at any time, and the completion due stays due."""
    options = EngineOptions(blocks=200, max_model_len=2000)
    costs = EngineCosts(0.0, 0.02, 1e-4, 1e-6, 1e-4, 0.0)
    looked, caught = (VllmEngine(options, times(costs)) for _ in range(2))
    for engine in (looked, caught):
        for trajectory, target in enumerate((300, 700, 900, 1500)):
            engine.submit(trajectory, 100, target, trajectory, 100)
    due_ns = looked.advance()
    for now_ns in range(to_ns(0.01), to_ns(6.0), to_ns(0.37)):
        caught.advance()
        caught.catch_up(now_ns)
        assert looked.look(now_ns) == caught.look(now_ns)
    assert looked.due_ns == due_ns
    assert [finished.trajectory for finished in looked.collect()] == [0]


@pytest.fixture(scope="module")
def crowded() -> tuple[SimulationConfig, Records]:
    """Give a run whose engines preempt: too little KV for what was started."""
    config = compose_config(
        "framework=prime_rl",
        "framework.eta=2",
        "framework.admission.article.initial_inflight=40",
        "rollout.kv_blocks=6000",
        "versions=4",
    )
    return config, simulate(config)


def test_a_group_shed_for_overload_survives_short(crowded: tuple[SimulationConfig, Records]) -> None:
    """Preemptions make the cap give up whole groups; what they had returned is trained, the rest is wasted."""
    config, records = crowded
    whole_batches(config, records)
    groups = records.trajectories.reshape(-1, config.group_size)
    short = groups[(groups["fate"] == DROPPED_L2).any(axis=1) & (groups["fate"] == TRAINED).any(axis=1)]
    assert len(short) > 0
    assert (short["finish_ns"][short["fate"] == DROPPED_L2] == NONE).all()


def test_the_cap_starts_at_what_the_kv_cache_holds(configure: Callable[..., SimulationConfig]) -> None:
    """Two engines of 31,262 blocks hold 25 trajectories of 39,912 tokens, at most a group of them in a window."""
    config = configure("framework=prime_rl", "versions=1")
    rows = simulate(config).trajectories
    limits: list[int] = []

    def poll(self: Concurrency, *arguments: Any) -> int:
        shed = original(self, *arguments)
        limits.append(self.limit)
        return shed

    original = Concurrency.poll
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Concurrency, "poll", poll)
        simulate(config)
    assert limits[0] == 2 * 31262 * 16 // 39912 == 25
    assert (rows["submit_ns"] == 0).sum() == config.group_size
    assert ((rows["submit_ns"] >= 0) & (rows["submit_ns"] < to_ns(5.0))).sum() == config.group_size


@pytest.mark.parametrize(
    ("overrides", "names"),
    [
        (("framework.admission.article.kv_usage=median",), "framework.admission.article.kv_usage=median"),
        (("framework.admission.article.min_inflight=0",), "framework.admission.article.min_inflight=0"),
        (("framework.admission.article.max_inflight=0",), "framework.admission.article.max_inflight=0"),
        (("framework.sampling={rule:completion_order,max_age:1}",), "framework.sampling.rule=completion_order"),
    ],
    ids=str,
)
def test_what_it_cannot_run_is_refused(
    overrides: tuple[str, ...], names: str, configure: Callable[..., SimulationConfig]
) -> None:
    """A bad parameter, or a rule of another control class, is one line before the run."""
    with pytest.raises(ConfigError, match=names.replace(".", r"\.")):
        prepare(configure("framework=prime_rl", *overrides))


def test_a_standstill_is_told(monkeypatch: pytest.MonkeyPatch, configure: Callable[..., SimulationConfig]) -> None:
    """Polls go on for ever; if nothing but them is left, the run ends with who waits for what."""
    monkeypatch.setattr(Orchestrator, "fill", lambda self, now_ns: [])  # noqa: ARG005
    monkeypatch.setattr(Orchestrator, "next_pass_ns", lambda self, now_ns: None)  # noqa: ARG005
    with pytest.raises(DeadlockError, match="trainer: at version 0, waits for a batch"):
        simulate(configure("framework=prime_rl"))


def test_a_cap_set_by_hand_is_not_moved_by_the_capacity() -> None:
    """initial_inflight switches the jump to the KV cache's capacity off."""
    assert Concurrency(AdaptiveConcurrency(initial_inflight=7)).limit == 7


@pytest.mark.parametrize("eta", [1, 2, 3])
def test_staleness_reaches_eta_on_the_default_load(eta: int, configure: Callable[..., SimulationConfig]) -> None:
    """As published: the largest staleness equals max_off_policy_steps at 1, 2 and 3."""
    config = configure("framework=prime_rl", f"framework.eta={eta}")
    assert summarise(config, simulate(config), "x")["max_staleness"] == eta
