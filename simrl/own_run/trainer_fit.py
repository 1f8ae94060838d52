"""The trainer's one constant, and log-prob and weight sync, from the phase times of a run's steps."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from simrl.model.cost.training import step_time
from simrl.own_run.length_law import whole_trajectories
from simrl.stats import t_interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from simrl.config.schema import SimulationConfig, TrainerConfig
    from simrl.own_run.stored_import import Columns, StoredImport

LEAST_STEPS = 5
TRIM = 3.0
"""Steps further from the median than so many deviations are left out: a checkpoint, a stall."""


@dataclass(frozen=True)
class TrainerFit:
    """What the steps' phases say."""

    key: str
    """hardware.training_efficiency or trainer.pass_scale."""
    value: float
    error: float
    """Standard error."""
    steps: int
    from_lengths: bool
    """Whether the steps' own trajectories were used; else equal ones of the logged mean."""
    logprob_ratio: float
    """Measured log-prob time / what SimRL gives with the fitted constant; NaN without times."""
    misses: float
    """Root mean square of measured / fitted update time - 1, over steps."""


@dataclass(frozen=True)
class SyncFit:
    """The pause for new weights."""

    value: float
    """Median, s."""
    error: float
    steps: int


def fit_sync(steps: Columns) -> SyncFit | None:
    """Return the median weight sync and its standard error; None without times."""
    times = steps["sync_s"][steps["sync_s"] > 0]  # the last step publishes nothing
    if not len(times):
        return None
    error = t_interval([float(time) for time in times]) / 2 if len(times) > 1 else math.nan
    return SyncFit(float(np.median(times)), error, len(times))


def fit_trainer(run: StoredImport, config: SimulationConfig) -> TrainerFit | None:
    """Return the constant with which SimRL's update takes as long as the logged ones; None without enough steps.

    With trainer.cost=flops an update is proportional to 1 / MFU, with passes it is a line in pass_scale, so that two
    evaluations are all it takes. trainer.cost=fitted has no constant of its own.
    """
    if config.trainer.cost == "fitted":
        return None
    batches = step_lengths(run)
    measured, units, rests, logprobs = [], [], [], []
    for place, lengths in batches.items():
        if not math.isfinite(run.steps["update_s"][place]):
            continue
        one, two = (step_time(config.hardware, config.model, _with_unit(config, unit), lengths) for unit in (1.0, 2.0))
        slope = two.update_s - one.update_s
        measured.append(run.steps["update_s"][place])
        units.append(slope)
        rests.append(one.update_s - slope)
        logprobs.append((run.steps["logprob_s"][place], one.logprob_s, two.logprob_s - one.logprob_s))
    if len(measured) < LEAST_STEPS:
        return None
    times, slopes, rest = np.array(measured), np.array(units), np.array(rests)
    each = (times - rest) / slopes
    middle = float(np.median(each))
    spread = 1.4826 * float(np.median(np.abs(each - middle)))
    used = np.abs(each - middle) <= max(TRIM * spread, 1e-6 * abs(middle))
    unit = float(((times - rest) * used).sum() / (slopes * used).sum())
    if unit <= 0:
        return None
    relative = t_interval([float(one) for one in each[used]]) / 2 / unit if used.sum() > 1 else math.nan
    flops = config.trainer.cost == "flops"
    value = 1.0 / unit if flops else unit
    misses = float(np.sqrt(np.mean(np.square(times[used] / (rest + unit * slopes)[used] - 1))))
    return TrainerFit(
        "hardware.training_efficiency" if flops else "trainer.pass_scale", value, value * relative, int(used.sum()),
        bool(np.isfinite(run.trajectories["step"]).any()), _logprob_ratio(logprobs, unit), misses,
    )  # fmt: skip


def _with_unit(config: SimulationConfig, unit: float) -> TrainerConfig:
    """Return the trainer whose computing takes *unit* times what it takes at the peak, or with a pass_scale of 1."""
    trainer = config.trainer
    return replace(trainer, mfu=1.0 / unit) if trainer.cost == "flops" else replace(trainer, pass_scale=unit)


def _logprob_ratio(times: list[tuple[float, float, float]], unit: float) -> float:
    ratios = [measured / (one + (unit - 1) * slope) for measured, one, slope in times if math.isfinite(measured)]
    return float(np.median(ratios)) if ratios else math.nan


def step_lengths(run: StoredImport) -> dict[int, NDArray[np.int64]]:
    """Return prompt + response of each step's trajectories, tokens, by the step's row.

    Where a step's trajectories are not known, they are as many as tokens / mean length says, all alike; a step of which
    that is not known either is left out.
    """
    rows, steps = run.trajectories, run.steps
    whole = whole_trajectories(rows) & np.isfinite(rows["prompt_tokens"])
    total = np.nan_to_num(rows["prompt_tokens"] + rows["response_tokens"]).astype(np.int64)
    out: dict[int, NDArray[np.int64]] = {}
    for place, step in enumerate(steps["step"]):
        own = whole & (rows["step"] == step)
        if own.any():
            lengths = total[own]
        else:
            tokens, mean = steps["tokens"][place], steps["response_tokens"][place]
            prompt = np.nan_to_num(steps["prompt_tokens"][place])
            if not (math.isfinite(tokens) and math.isfinite(mean) and mean > 0):
                continue
            count = max(1, round(tokens / (mean + prompt)))
            lengths = np.full(count, max(1, round(tokens / count)), dtype=np.int64)
        logged = steps["tokens"][place]
        if own.any() and math.isfinite(logged) and not 0.98 < lengths.sum() / logged < 1.02:
            continue  # the dump of this step is not whole
        out[place] = lengths
    return out
