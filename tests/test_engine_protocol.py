"""Engines behind the protocol: chosen by name or import path, asleep and awake, weights in every mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from simrl.config.schema import ConfigError, EngineCosts, SimulationConfig
from simrl.model.engine.engines import ENGINES, engine_class
from simrl.model.engine.protocol import ABORT, DRAIN, KEEP, RECOMPUTE, Engine
from simrl.model.engine.vllm.engine import EngineOptions, VllmEngine
from simrl.model.simulation import prepare, simulate
from tests.iteration_time import times
from tests.test_invariants import same_records

MS = 1_000_000
A_MILLISECOND_AN_ITERATION = times(EngineCosts(1e-3, 0, 0, 0, 0, 0))


class OwnEngine(VllmEngine):
    """A user's engine: vLLM that counts how often it was built."""

    built = 0

    @classmethod
    def build(cls, config: SimulationConfig, longest_tokens: int) -> OwnEngine:
        """Return one more."""
        OwnEngine.built += 1
        return super().build(config, longest_tokens)


class Unfinished:
    """A user's engine that cannot sleep."""

    build = submit = resume = abort = advance = catch_up = look = collect = open_requests = hold = update = wake = (
        totals
    ) = 0
    pause_admission = samples = 0


def engine(*targets: int, **options: Any) -> VllmEngine:
    """Return an engine at work on requests of 16 prompt tokens."""
    made = VllmEngine(EngineOptions(**{"blocks": 64, "max_model_len": 400} | options), A_MILLISECOND_AN_ITERATION)
    for trajectory, target in enumerate(targets):
        made.submit(trajectory, 16, target, trajectory, 16)
    made.advance()
    return made


def generated(made: Engine) -> dict[int, int]:
    """Return the tokens of the open requests by trajectory."""
    return {request.trajectory: request.generated_tokens for request in made.open_requests()}


def test_an_engine_that_does_not_exist_is_refused(configure: Callable[..., SimulationConfig]) -> None:
    """One line that names the key, the value and what there is, before the run."""
    with pytest.raises(ConfigError, match=r"^rollout\.engine=sglang_0_5: must be vllm, or your own: package"):
        prepare(configure("rollout.engine=sglang_0_5"))


def test_our_engines_have_what_the_protocol_asks_for() -> None:
    """Every name leads to a class with all methods."""
    assert [engine_class(name) for name in ENGINES] == [VllmEngine]


def test_an_engine_of_ones_own_is_named_by_its_import_path(configure: Callable[..., SimulationConfig]) -> None:
    """It is built once an instance and gives the run that its scheduler gives."""
    own = configure(f"rollout.engine={__name__}:OwnEngine", "versions=2")
    OwnEngine.built = 0
    records = simulate(own)
    assert OwnEngine.built == own.rollout.instances
    same_records(records, simulate(configure("versions=2")))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no_such_package.engines:Own", "cannot be imported"),
        (f"{__name__}:Missing", "has no class Missing"),
        (f"{__name__}:Unfinished", "has no sleep; see simrl.model.engine.protocol:Engine"),
    ],
    ids=["module", "class", "method"],
)
def test_a_path_that_leads_to_no_engine_is_refused(
    name: str, reason: str, configure: Callable[..., SimulationConfig]
) -> None:
    """A module, a class or a method that is missing is one line."""
    with pytest.raises(ConfigError, match=reason):
        prepare(configure(f"rollout.engine={name}"))


def test_asleep_nothing_is_computed_and_the_time_counts_as_paused() -> None:
    """KV is gone, tokens stay, requests that come wait; awake it takes up where it was, KV computed again."""
    made = engine(30, 60)
    made.catch_up(10 * MS)
    made.sleep(ABORT)
    shown = made.look(10 * MS)
    assert (shown.running, shown.used_blocks, shown.in_flight, shown.waiting) == (0, 0, 2, 2)
    kept = generated(made)
    assert kept == {0: 10, 1: 10}
    made.submit(2, 16, 5, 2, 16)
    assert made.advance() is None
    made.catch_up(110 * MS)
    assert generated(made) == {**kept, 2: 0}
    made.wake()
    assert made.look(110 * MS).running == 0
    due_ns = made.advance()
    assert due_ns == (110 + 5) * MS
    made.catch_up(due_ns)
    assert [finished.trajectory for finished in made.collect()] == [2]
    totals = made.totals(due_ns)
    assert totals.paused_ns == 100 * MS
    assert totals.busy_ns == 15 * MS
    assert totals.reprefill_tokens == 2 * (16 + 9)  # the tenth token's KV was never computed


def test_an_iteration_under_way_when_sleep_comes_is_lost_but_takes_its_time() -> None:
    """Paused time begins at its end."""
    made = engine(30)
    made.catch_up(10 * MS + MS // 2)
    made.sleep(ABORT)
    made.advance()
    made.catch_up(50 * MS)
    assert generated(made) == {0: 10}
    assert made.totals(50 * MS).paused_ns == (50 - 11) * MS


def test_a_drained_engine_sleeps_and_one_that_runs_does_not() -> None:
    """With drain the caller has waited until nothing runs; else it is an error, as is any other mode."""
    made = engine(5)
    made.catch_up(2 * MS)
    for mode in (DRAIN, KEEP, RECOMPUTE):
        with pytest.raises(ValueError, match="1 requests running"):
            made.sleep(mode)
    made.pause_admission(True)
    due_ns = made.advance()
    made.catch_up(due_ns or 0)
    made.collect()
    made.sleep(DRAIN)
    made.pause_admission(False)
    made.submit(1, 16, 5, 1, 16)
    assert made.advance() is None


@pytest.mark.parametrize("mode", [ABORT, KEEP, RECOMPUTE, DRAIN])
def test_new_weights_do_not_wake_a_sleeping_engine(mode: str) -> None:
    """They are loaded; the request goes on with them once it is awake."""
    made = engine(30)
    made.catch_up(10 * MS)
    made.sleep(ABORT)
    made.update(1, mode, 20 * MS)
    assert made.advance() is None
    made.catch_up(40 * MS)
    made.wake()
    assert made.advance() == 60 * MS
    made.catch_up(60 * MS)
    assert made.totals(60 * MS).paused_ns == 30 * MS
    assert [finished.trajectory for finished in made.collect()] == [0]


@pytest.mark.parametrize(("mode", "tokens"), [(ABORT, 10), (KEEP, 11), (RECOMPUTE, 11)])
def test_an_update_tells_how_far_requests_have_come(mode: str, tokens: int) -> None:
    """The token of the iteration under way belongs to the old weights, with abort it is lost."""
    made = engine(30)
    made.catch_up(10 * MS + MS // 2)
    progress = made.update(1, mode, 10 * MS)
    assert (progress.trajectories.tolist(), progress.tokens.tolist()) == ([0], [tokens])


def test_an_unknown_mode_of_update_is_refused() -> None:
    """Nothing is changed."""
    made = engine(30)
    made.catch_up(10 * MS)
    with pytest.raises(ValueError, match="restart"):
        made.update(1, "restart", 10 * MS)


def test_the_view_reports_the_pool_as_vllm_does() -> None:
    """Usable blocks leave the null block out, the capacity in tokens has it."""
    shown = engine(30).look(0)
    assert (shown.usable_blocks, shown.kv_capacity_tokens, shown.max_model_len) == (63, 64 * 16, 400)
    assert shown.kv_usage == pytest.approx(shown.used_blocks / 63)


@pytest.mark.parametrize("mode", [None, KEEP, RECOMPUTE, ABORT])
@pytest.mark.parametrize("hold_ms", [0, 5])
@pytest.mark.parametrize("also_before", [False, True])
def test_what_is_shown_is_what_stands_at_every_quarter_of_an_iteration(
    mode: str | None, hold_ms: int, also_before: bool
) -> None:
    """A look into the future, also after an earlier one, shows what the engine caught up shows.

    Blocks of one token change with every iteration; new weights, perhaps with a hold, come in the middle of one.
    """
    for now_ns in range(11 * MS, 30 * MS, MS // 4):
        looking, standing = (engine(40, 60, block_size=1, blocks=400) for _ in range(2))
        for made in (looking, standing):
            made.catch_up(10 * MS + MS // 2)
            if mode:
                made.update(1, mode, (10 + hold_ms) * MS + MS // 2)
            made.advance()
        if also_before:
            looking.look(11 * MS)
            looking.look((11 * MS + now_ns) // 2)
        standing.catch_up(now_ns)
        assert looking.look(now_ns) == standing.look(now_ns)
