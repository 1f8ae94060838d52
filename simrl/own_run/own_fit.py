"""All that one import says about engines, lengths and trainer, each value with how far it can be trusted."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from simrl.model.cost.iteration_table import IterationTable, iteration_table
from simrl.model.cost.memory import kv_blocks
from simrl.own_run.engine_fit import LEAST_SPREAD, LEAST_WINDOWS, EngineFit, fit_engine
from simrl.own_run.engine_windows import windows_of
from simrl.own_run.length_law import LengthLaw, fit_lengths
from simrl.own_run.trainer_fit import LEAST_STEPS, SyncFit, TrainerFit, fit_sync, fit_trainer

if TYPE_CHECKING:
    from simrl.config.schema import SimulationConfig
    from simrl.own_run.stored_import import StoredImport

IDENTIFIED, ROUGH, OPEN = "identified", "rough", "not measured"
SURE = 0.03
"""Half-width of the 95 % interval, as a share of the value, up to which a value is called identified."""
TOGETHER = 0.95
"""Correlation from which on two coefficients stand for one."""
FEW_LOST = 0.02
"""Share of trajectories that may be dropped or cancelled before lengths of those that are left stand for all."""
WORST_RESIDUAL = 0.05
"""Root mean square of a window's share that the law misses, from which on no engine coefficient is identified."""


@dataclass(frozen=True)
class Coefficient:
    """A fitted value."""

    key: str
    """As in SimRL's configuration."""
    value: float
    error: float
    """Standard error, in the value's unit; NaN if there is none."""
    standing: str
    """IDENTIFIED, ROUGH or OPEN; what is OPEN keeps SimRL's own value."""
    remark: str = ""


@dataclass(frozen=True)
class OwnFit:
    """Everything that was fitted."""

    coefficients: list[Coefficient]
    costs: dict[str, float]
    """Engine coefficients that go together into ``hardware.measured``; empty if there is no engine log."""
    engine: EngineFit | None
    lengths: LengthLaw | None
    trainer: TrainerFit | None
    sync: SyncFit | None
    kv_blocks: int | None
    lost: float = 0.0
    """Share of trajectories that were dropped or cancelled."""
    notes: list[str] = field(default_factory=list)
    """What the data cannot tell, in words."""

    def coefficient(self, key: str) -> Coefficient:
        """Return one by its key."""
        return next(one for one in self.coefficients if one.key == key)


def standing_of(value: float, error: float) -> str:
    """Return how far a value with a standard error can be trusted."""
    if not (math.isfinite(value) and value > 0 and math.isfinite(error)):
        return ROUGH
    return IDENTIFIED if 2 * error <= SURE * value else ROUGH


def fit_own_run(run: StoredImport, config: SimulationConfig) -> OwnFit:
    """Fit everything that an import allows.

    Args:
        run: the import.
        config: hardware, model, engine options and trainer's layout of the run; what is not fitted stays as there.
    """
    known = iteration_table(config.hardware, config.model, config.rollout)
    notes: list[str] = []
    engine = fit_engine(windows_of(run, config.rollout.block_size), known, config.rollout.max_num_batched_tokens)
    coefficients: list[Coefficient] = []
    costs: dict[str, float] = {}
    if engine is None:
        notes.append(
            f"decode and prefill: fewer than {LEAST_WINDOWS} engine windows; SimRL's own costs stay. Log the engine."
        )
    else:
        costs, coefficients = _engine_coefficients(engine, known, notes)
    blocks = _pool(run, config, coefficients, notes)
    lengths = fit_lengths(run.trajectories)
    lost = lost_share(run)
    _length_coefficients(lengths, lost, coefficients, notes)
    trainer, sync = fit_trainer(run, config), fit_sync(run.steps)
    _trainer_coefficients(trainer, sync, config, coefficients, notes)
    return OwnFit(coefficients, costs, engine, lengths, trainer, sync, blocks, lost, notes)


def _engine_coefficients(
    fitted: EngineFit, known: IterationTable, notes: list[str]
) -> tuple[dict[str, float], list[Coefficient]]:
    """Return the costs to use and how far each is to be trusted."""
    out = _decode(fitted, known, notes)
    out["prefill_per_token_s"] = _prefill(fitted, known, notes)
    out["decode_floor_s"] = _floor(fitted, out, known, notes)
    if fitted.residual > WORST_RESIDUAL:
        notes.append(
            f"engine: the law misses {fitted.residual:.1%} of a window's time (root mean square); no coefficient of it "
            "is called identified."
        )
    costs = {name: value for name, (value, _) in out.items()}
    if out["prefill_per_token_s"][1] == OPEN:
        costs.pop("prefill_per_token_s")
    coefficients = [
        Coefficient(f"rollout.costs.{name}", value, fitted.errors[name] if standing != OPEN else math.nan, standing)
        for name, (value, standing) in out.items()
    ]
    return costs, coefficients


Standings = dict[str, tuple[float, str]]
"""Name -> value and standing."""


def _standing(fitted: EngineFit, name: str) -> str:
    return standing_of(fitted.values[name], fitted.errors[name]) if fitted.residual <= WORST_RESIDUAL else ROUGH


def _decode(fitted: EngineFit, known: IterationTable, notes: list[str]) -> Standings:
    names = ("decode_base_s", "decode_per_request_s", "decode_per_context_token_s")
    out = {name: (fitted.values[name], _standing(fitted, name)) for name in names}
    if not fitted.with_context:
        out[names[2]] = (known.decode_per_context_token_s, OPEN)
        notes.append("decode per context token: the log says neither contexts nor KV usage with the pool's size.")
    least, largest = fitted.requests
    if largest < LEAST_SPREAD * least:
        notes.append(
            f"decode base and per request: all windows have {least:.0f} to {largest:.0f} requests; their sum there is "
            "measured, at other batch sizes it is a guess. Log the ramp-up or a smaller batch too."
        )
        out |= {name: (out[name][0], ROUGH) for name in names[:2]}
    notes += [
        f"{name} ended at zero: the windows do not tell it from the others, which carry its share."
        for name in names
        if fitted.values[name] <= 0 and out[name][1] != OPEN
    ]
    for (first, one), (second, other) in combinations(enumerate(names), 2):
        if min(fitted.values[one], fitted.values[other]) <= 0 or IDENTIFIED in (out[one][1], out[other][1]):
            continue
        if abs(correlation := fitted.solution.correlation(first, second)) >= TOGETHER:
            notes.append(f"{one} and {other} are told together, not apart (correlation {correlation:+.3f}).")
    return out


def _prefill(fitted: EngineFit, known: IterationTable, notes: list[str]) -> tuple[float, str]:
    value = fitted.values["prefill_per_token_s"]
    if not (math.isfinite(value) and value > 0):
        notes.append("prefill per token: no windows with enough prefill.")
        return known.prefill_per_token_s, OPEN
    if fitted.prefill_exact:
        return value, _standing(fitted, "prefill_per_token_s")
    notes.append(
        "prefill per token: windows of seconds do not show how prefill and decode shared iterations; vLLM's "
        "--enable-logging-iteration-details does."
    )
    return value, ROUGH


def _floor(fitted: EngineFit, out: Standings, known: IterationTable, notes: list[str]) -> tuple[float, str]:
    if fitted.values["decode_floor_s"] > 0:
        return fitted.values["decode_floor_s"], _standing(fitted, "decode_floor_s")
    notes.append("decode floor: no windows with few requests that lie above the line.")
    measured_down_to = out["decode_base_s"][0] + out["decode_per_request_s"][0] * max(1.0, fitted.requests[0])
    return min(float(known.decode_linear_s[1]), measured_down_to), OPEN


def _pool(run: StoredImport, config: SimulationConfig, coefficients: list[Coefficient], notes: list[str]) -> int | None:
    sizes = sorted(set(run.pools.values()))
    if not sizes:
        notes.append("KV pool: not in the logs; it is computed from memory. Keep the engine's start in the log.")
        return None
    blocks = int(sizes[0] // config.rollout.block_size)
    remark = f"computed from memory it would be {kv_blocks(config.hardware, config.model, config.rollout):,}"
    if len(sizes) > 1:
        notes.append(f"KV pool: engines have {sizes[0]:,.0f} to {sizes[-1]:,.0f} tokens; the least is used for all.")
    coefficients.append(Coefficient("rollout.kv_blocks", blocks, 0.0, IDENTIFIED, remark))
    return blocks


def lost_share(run: StoredImport) -> float:
    """Return the share of trajectories that were dropped or cancelled, as far as the steps say."""
    dropped, trained = np.nansum(run.steps["dropped"]), np.nansum(run.steps["trajectories"])
    trained = trained or np.isfinite(run.trajectories["step"]).sum()
    return float(dropped / (dropped + trained)) if dropped else 0.0


def _length_coefficients(lengths: LengthLaw | None, lost: float, out: list[Coefficient], notes: list[str]) -> None:
    if lengths is None:
        notes.append("lengths: no rollouts were dumped; SimRL's workload stays. Dump rollouts.")
        return
    rows = [
        ("workload.mean_response_tokens", lengths.mean, lengths.mean_error),
        ("workload.sigma_between_groups", lengths.sigma_between, lengths.between_error),
        ("workload.sigma_within_group", lengths.sigma_within, lengths.within_error),
    ]
    for key, value, error in rows:
        out.append(Coefficient(key, value, error, standing_of(value, error) if lost <= FEW_LOST else ROUGH))
    if lost > FEW_LOST:
        notes.append(
            f"lengths: {lost:.0%} of the trajectories were dropped or cancelled; what was cancelled has no whole "
            "length, and long ones are cancelled first: the true tail is longer than the fitted one."
        )
    if not lengths.grouped:
        notes.append("lengths: groups are not known, or too few; all spread is put between groups.")


def _trainer_coefficients(
    trainer: TrainerFit | None,
    sync: SyncFit | None,
    config: SimulationConfig,
    out: list[Coefficient],
    notes: list[str],
) -> None:
    if trainer is None:
        why = "trainer=fitted has no constant" if config.trainer.cost == "fitted" else f"fewer than {LEAST_STEPS} steps"
        notes.append(f"training: {why} with update times and lengths; SimRL's own constant stays.")
    else:
        standing = standing_of(trainer.value, trainer.error)
        remark = "" if trainer.from_lengths else "from mean lengths, not from each trajectory's"
        if trainer.key == "hardware.training_efficiency" and trainer.value > 1:
            notes.append("training: updates are faster than the hardware's peak; check layout, GPUs and hardware.")
            standing = OPEN
        out.append(Coefficient(trainer.key, trainer.value, trainer.error, standing, remark))
        if math.isfinite(trainer.logprob_ratio) and not 0.9 < trainer.logprob_ratio < 1.1:
            notes.append(
                f"log-prob: measured {trainer.logprob_ratio:.2f} times what the fitted constant gives; SimRL has no "
                "constant of its own for it."
            )
    if sync is None:
        notes.append("weight sync: no times; SimRL's own estimate stays.")
    else:
        standing = IDENTIFIED if sync.value > 0 and 2 * sync.error <= SURE * sync.value else ROUGH
        out.append(Coefficient("trainer.weight_sync_s", sync.value, sync.error, standing))
