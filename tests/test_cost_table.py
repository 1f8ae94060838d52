"""Rules of what a rollout engine looks up: measured costs win, to the digit; derived ones cover the rest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simrl.config.schema import ConfigError, EngineCosts, RolloutConfig
from simrl.model.cost.iteration_table import decode_points, derived_table, iteration_s, iteration_table, measured_key
from tests import iteration_time
from tests.conftest import compose_config
from tests.cost_files import model
from tests.cost_shapes import CARD

ROLLOUT = RolloutConfig(name="test", engine="vllm")
POINTS = EngineCosts(0, 0, 0, 1e-7, 1e-4, 4e-9, decode_points=[[1, 0.004], [16, 0.007], [64, 0.010]])


def test_the_default_keeps_its_fit_to_the_digit():
    """Qwen3-8B on an H20 TP1: every number of requests takes exactly what floor and line say."""
    h20, table = CARD("h20"), iteration_table(CARD("h20"), model(), ROLLOUT)
    costs = h20.measured["qwen3_8b"]
    for n in range(ROLLOUT.max_num_seqs + 1):
        assert table.decode_linear_s[n] == max(
            costs.decode_floor_s, costs.decode_base_s + costs.decode_per_request_s * n
        )
    for load in ((64, 512_000, 0, 0.0), (3, 24_000, 8000, 3.2e7), (0, 0, 5, 12.5)):
        assert iteration_s(table, *load) == iteration_time.iteration_s(costs, *load)


def test_measured_costs_are_looked_up_by_tensor_parallelism():
    """A name alone is tensor parallel 1; others carry it, and what was not measured is derived."""
    h20, name = CARD("h20"), "qwen3_30b_a3b"
    assert [measured_key(model(name), ranks) for ranks in (1, 2)] == [name, f"{name}_tp2"]
    for ranks, provenance in ((1, "measured"), (2, "measured"), (4, "derived")):
        table = iteration_table(h20, model(name), replace(ROLLOUT, tensor_parallel=ranks))
        assert table.provenance == provenance
    assert iteration_table(h20, model(name), replace(ROLLOUT, tensor_parallel=2)).decode_linear_s[64] == 0.009104


@pytest.mark.parametrize(
    "changes", [{"eager": True}, {"weight_precision": "fp8"}, {"kv_precision": "fp8"}, {"stack": "sglang"}], ids=str
)
def test_measured_costs_hold_for_the_stack_they_were_measured_on(changes):
    """Another stack, eager mode or another precision is derived, though the model was measured."""
    assert iteration_table(CARD("h20"), model(), replace(ROLLOUT, **changes)).provenance == "derived"


def test_given_costs_win():
    """rollout.costs replaces what was measured."""
    table = iteration_table(CARD("h20"), model(), replace(ROLLOUT, costs=POINTS))
    assert table.decode_linear_s[16] == 0.007
    assert table.prefill_per_token_s == 1e-4
    assert table.source == "rollout.costs"


def test_points_are_joined_by_lines_and_grow_as_derived_beyond_the_last():
    """Between points the time is linear; beyond the last it rises by what the card and model say."""
    rollout = replace(ROLLOUT, costs=POINTS)
    table = iteration_table(CARD("h20"), model("qwen3_4b"), rollout)
    derived = derived_table(CARD("h20"), model("qwen3_4b"), rollout).decode_linear_s
    assert table.decode_linear_s[[0, 1]] == pytest.approx(0.004)
    assert table.decode_linear_s[40] == pytest.approx(0.0085)
    assert table.decode_linear_s[1024] - 0.010 == pytest.approx(derived[1024] - derived[64])


def test_printed_points_give_the_table_back():
    """What decode_points prints can be given as costs: at most 2.5 % off between the points."""
    for card, name, ranks in (("h200", "qwen3_30b_a3b", 1), ("h100", "qwen3_8b", 1), ("h200", "qwen3_235b_a22b", 8)):
        rollout = replace(ROLLOUT, tensor_parallel=ranks)
        derived = derived_table(CARD(card), model(name), rollout)
        given = replace(POINTS, decode_points=decode_points(derived))
        table = iteration_table(CARD(card), model(name), replace(rollout, costs=given))
        assert table.decode_linear_s == pytest.approx(derived.decode_linear_s, rel=0.025)


def test_a_prefill_alone_pays_the_launches():
    """A derived iteration that only prefills pays its launches and tokens, and never less than reading the weights."""
    table = derived_table(CARD("h100"), model(), ROLLOUT)
    long = iteration_s(table, 0, 0, 8192, 0.0)
    assert long == pytest.approx(36 * 44.36e-6 + 8192 * table.prefill_per_token_s)
    assert iteration_s(table, 0, 0, 1, 0.0) == table.decode_linear_s[1]


def test_time_grows_with_the_requests():
    """More requests never take less time, on any card and number of ranks."""
    for card in ("h20", "h100", "b200", "l40s", "mi300x"):
        for ranks in (1, 2, 8):
            table = derived_table(CARD(card), model("qwen3_30b_a3b"), replace(ROLLOUT, tensor_parallel=ranks))
            assert (np.diff(table.decode_linear_s) >= 0).all()


@pytest.mark.parametrize(
    "given",
    [
        ("rollout.costs={decode_floor_s: 0.01, decode_base_s: 0.005, decode_per_request_s: 1e-4}",),
        tuple(f"rollout.costs.decode_{part}" for part in ("floor_s=0.01", "base_s=0.005", "per_request_s=1e-4")),
        ("+hardware.measured={qwen3_4b: {decode_floor_s: 0.01, decode_base_s: 0.005, decode_per_request_s: 1e-4}}",),
    ],
    ids=["together", "one by one", "measured"],
)
def test_costs_can_be_given_on_the_command_line(given):
    """All of a line, or what was measured of a model; prefill, which is not given, stays derived."""
    config = compose_config("model=qwen3_4b", *given)
    table = iteration_table(config.hardware, config.model, config.rollout)
    assert table.decode_linear_s[[1, 100]] == pytest.approx([0.01, 0.015])
    assert table.prefill_per_token_s == derived_table(config.hardware, config.model, ROLLOUT).prefill_per_token_s
    assert (table.provenance, table.prefill_provenance) == ("measured", "assumed")


def test_one_part_of_a_measured_line_can_be_changed():
    """rollout.costs.decode_base_s alone moves the line that was measured; floor and slope stay."""
    config = compose_config("rollout.costs.decode_base_s=0.02")
    table = iteration_table(config.hardware, config.model, config.rollout)
    assert table.decode_linear_s[100] == 0.02 + 100 * config.hardware.measured["qwen3_8b"].decode_per_request_s
    assert table.prefill_per_token_s == config.hardware.measured["qwen3_8b"].prefill_per_token_s


def test_part_of_a_line_that_nobody_measured_is_refused():
    """Derived times are no floor and line, so one part of these alone says nothing."""
    config = compose_config("model=qwen3_4b", "rollout.costs.decode_floor_s=0.02")
    with pytest.raises(ConfigError, match=r"^rollout.costs.decode_base_s=null: goes with decode_floor_s and "):
        iteration_table(config.hardware, config.model, config.rollout)


def test_a_slow_stack_is_slower_than_measured_too():
    """rollout.stack_scale multiplies measured times, which are measured no more."""
    fast, slow = (iteration_table(CARD("h20"), model(), replace(ROLLOUT, stack_scale=s)) for s in (1.0, 1.5))
    assert slow.decode_linear_s == pytest.approx(1.5 * fast.decode_linear_s)
    assert slow.prefill_per_token_s == 1.5 * fast.prefill_per_token_s
    assert (fast.provenance, slow.provenance) == ("measured", "derived")


@pytest.mark.parametrize(
    "points", [[[0, 0.1]], [[4, 0.1], [2, 0.2]], [[1, -0.1]], [[1, 0.1, 2]], [1, 2], [["1", 0.1]]], ids=str
)
def test_points_that_are_no_table_are_refused(points):
    """Requests start at 1 and rise, times are not negative."""
    with pytest.raises(ConfigError, match=r"decode_points.*rising"):
        replace(POINTS, decode_points=points)
