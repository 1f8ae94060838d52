"""Records -> one summary row, and its units; all of it is of the measured window, see :mod:`simrl.model.window`."""

from __future__ import annotations

from typing import Any

import numpy as np

from simrl.config.schema import SimulationConfig
from simrl.model.clock import to_s
from simrl.model.records import DROPPED_L2, DROPPED_L3, TRAINED, TRAINING, UNFINISHED, Records
from simrl.model.window import (
    deciding_steps,
    first_segments,
    instance_totals,
    open_tokens,
    segment_tokens,
    step_starts_ns,
)

LONGEST_SHARE = 0.1

UNITS: dict[str, str] = {
    "run_id": "",
    "framework": "",
    "eta": "versions or batches, the framework's own",
    "warmup": "batches",
    "versions": "training steps",
    "measure_from": "the first training step measured",
    "measure_to": "the training step before which measuring ends",
    "seed": "",
    "effective_throughput": "token/s",
    "effective_throughput_per_gpu": "token/s per GPU of the hardware, idle ones included",
    "drift": "fraction, effective throughput of the window's second half over the first's, less 1",
    "total_throughput": "token/s",
    "waste": "fraction",
    "wasted_tokens_l2": "tokens",
    "wasted_tokens_l3": "tokens",
    "trained_tokens": "tokens",
    "unfinished_tokens": "tokens, undecided when measuring ends",
    "max_staleness": "versions",
    "mean_staleness": "versions, by token",
    "strict_bound": "versions",
    "expected_staleness": "versions a user expects of the knob",
    "duration_s": "s measured",
    "preemptions_per_trajectory": "preemptions/trained trajectory",
    "reprefill_tokens_per_trajectory": "tokens/trained trajectory",
    "dropped_share": "fraction of decided trajectories",
    "dropped_share_longest_decile": "fraction of decided trajectories",
    "enrichment": "ratio",
    "mean_length_ratio_dropped_to_trained": "ratio",
    "mean_response_tokens": "tokens, of trained trajectories",
    "median_response_tokens": "tokens, of trained trajectories",
    "p99_response_tokens": "tokens, of trained trajectories",
    "clipped_share": "fraction of trained trajectories, responses of workload.max_response_tokens",
    "trainer_busy": "fraction of duration",
    "rollout_busy": "fraction of duration",
    "idle_gpus": "GPUs that neither rollout nor training uses",
    "kv_blocks": "blocks/instance",
    "trainer_memory_share": "fraction of a GPU's memory, estimated for the fullest of the trainer",
    "trajectories": "trajectories admitted",
    "iterations": "engine iterations",
    "training_s": "s of log-prob and update",
    "preemptions": "preemptions",
    "generated_tokens": "tokens generated, whatever became or becomes of them",
    "instance_busy_s": "s, by instance; an iteration under way at the end counts whole",
}

SAME_AS = {"framework.name": "framework", "framework.eta": "eta", "framework.warmup": "warmup"}
"""Swept keys which the summary row already carries under a shorter name."""

BY_INSTANCE = ("instance_busy_s",)
"""Columns that hold a list, one value an instance."""


def tokens_of(trajectories: np.ndarray) -> np.ndarray:
    """Return prompt + generated tokens of each row; 0 for one that never gave a token."""
    given = trajectories["prompt_tokens"] + trajectories["generated_tokens"]
    return np.where(trajectories["generated_tokens"] > 0, given, 0)


def trained_levels(records: Records) -> dict[str, np.ndarray]:
    """Return the trained tokens by batch and staleness.

    Staleness is the version at which the batch was taken less the rollout version of the token; a prompt counts
    with its first response token. A trajectory counts at the staleness of its oldest token.

    Returns:
        Columns version, staleness, trajectories, tokens; one row per level that occurs, in that order.
    """
    rows = records.trajectories
    trained = rows["fate"][records.segments["trajectory"]] == TRAINED
    segments, tokens = records.segments[trained], segment_tokens(records)[trained]
    owner, first = rows[segments["trajectory"]], first_segments(segments)
    version, staleness = owner["consumed_version"], owner["consumed_version"] - segments["version"]
    base = int(staleness.max()) + 1  # one number for both: sorting pairs takes ten times longer
    unique, place = np.unique(version * base + staleness, return_inverse=True)
    return {
        "version": unique // base,
        "staleness": unique % base,
        "trajectories": np.bincount(place, weights=first, minlength=len(unique)).astype(np.int64),
        "tokens": np.bincount(place, weights=tokens, minlength=len(unique)).astype(np.int64),
    }


def length_bias(trajectories: np.ndarray) -> dict[str, float | None]:
    """Return how dropping falls on long trajectories (article, section 8), by the response they would have had."""
    decided = trajectories[trajectories["fate"] != UNFINISHED]
    dropped = decided["fate"] != TRAINED
    lengths = decided["response_tokens"]
    share = float(dropped.mean())
    longest = np.argsort(-lengths, kind="stable")[: max(1, round(LONGEST_SHARE * len(decided)))]
    share_longest = float(dropped[longest].mean())
    return {
        "dropped_share": share,
        "dropped_share_longest_decile": share_longest,
        "enrichment": share_longest / share if share > 0 else None,
        "mean_length_ratio_dropped_to_trained": (
            float(lengths[dropped].mean() / lengths[~dropped].mean()) if 0 < share < 1 else None
        ),
    }


def response_lengths(trained: np.ndarray, cap_tokens: int) -> dict[str, float]:
    """Return what a framework logs of the responses of trained trajectories.

    Args:
        trained: rows of trained trajectories.
        cap_tokens: longest response that is sampled.
    """
    lengths = trained["response_tokens"]
    return {
        "mean_response_tokens": float(lengths.mean()),
        "median_response_tokens": float(np.median(lengths)),
        "p99_response_tokens": float(np.percentile(lengths, 99)),
        "clipped_share": float((lengths >= cap_tokens).mean()),
    }


def drift(tokens: np.ndarray, starts_ns: np.ndarray) -> float | None:
    """Return by what share more the second half of some steps trained a second than the first.

    None if there is one step only, or a half took no time.

    Args:
        tokens: trained, by step.
        starts_ns: when each step begins, and when the last one ends.
    """
    middle = len(tokens) // 2
    if middle == 0 or starts_ns[middle] in (starts_ns[0], starts_ns[-1]):
        return None
    first = tokens[:middle].sum() / (starts_ns[middle] - starts_ns[0])
    second = tokens[middle:].sum() / (starts_ns[-1] - starts_ns[middle])
    return float(second / first - 1)


def summarise(config: SimulationConfig, records: Records, run_id: str) -> dict[str, Any]:
    """Return the summary row of a run; units in :data:`UNITS`, None where a metric does not exist.

    Raises:
        ValueError: if the measured steps took no time.
    """
    steps = config.measured
    starts_ns = step_starts_ns(records)[steps.start : steps.stop + 1]
    duration_ns = int(starts_ns[-1] - starts_ns[0])
    if duration_ns == 0:
        raise ValueError(f"training steps {steps.start} to {steps.stop - 1} took no time, so they have no throughput")
    duration_s = to_s(duration_ns)
    deciding = deciding_steps(records)
    decided = records.trajectories[(deciding >= steps.start) & (deciding < steps.stop)]
    tokens, fate = tokens_of(decided), decided["fate"]
    trained, l2, l3 = (int(tokens[fate == kind].sum()) for kind in (TRAINED, DROPPED_L2, DROPPED_L3))
    trained_trajectories = int((fate == TRAINED).sum())
    levels = trained_levels(records)
    measured = (levels["version"] >= steps.start) & (levels["version"] < steps.stop)
    levels = {name: column[measured] for name, column in levels.items()}
    by_step = np.bincount(levels["version"] - steps.start, levels["tokens"], len(steps))
    training_ns = sum(batch.spent_ns(*TRAINING) for batch in records.batches[steps.start : steps.stop])
    instances = instance_totals(records, steps)
    busy_ns = sum(instance.busy_ns for instance in instances)
    preemptions = sum(instance.preemptions for instance in instances)
    reprefill_tokens = sum(instance.reprefill_tokens for instance in instances)
    admitted, version = records.trajectories["admission_version"], records.segments["version"]
    return {
        "run_id": run_id,
        "framework": config.framework.name,
        "eta": config.framework.eta,
        "warmup": config.framework.knobs["warmup"].value if "warmup" in config.framework.knobs else None,
        "versions": config.versions,
        "measure_from": steps.start,
        "measure_to": steps.stop,
        "seed": config.seed,
        "effective_throughput": trained / duration_s,
        "effective_throughput_per_gpu": trained / duration_s / config.hardware.gpus,
        "drift": drift(by_step, starts_ns),
        "total_throughput": (trained + l2 + l3) / duration_s,
        "waste": (l2 + l3) / (trained + l2 + l3),
        "wasted_tokens_l2": l2,
        "wasted_tokens_l3": l3,
        "trained_tokens": trained,
        "unfinished_tokens": open_tokens(records, steps.stop),
        "max_staleness": int(levels["staleness"].max()),
        "mean_staleness": float(np.average(levels["staleness"], weights=levels["tokens"])),
        "strict_bound": config.framework.strict_bound,
        "expected_staleness": config.framework.eta + config.framework.expected_offset,
        "duration_s": duration_s,
        "preemptions_per_trajectory": preemptions / trained_trajectories,
        "reprefill_tokens_per_trajectory": reprefill_tokens / trained_trajectories,
        **length_bias(decided),
        **response_lengths(decided[fate == TRAINED], config.workload.max_response_tokens),
        "trainer_busy": training_ns / duration_ns,
        # an iteration under way at the end is counted to its end, so a busy instance may exceed the run by a part of it
        "rollout_busy": min(1.0, busy_ns / (len(instances) * duration_ns)),
        "idle_gpus": config.hardware.gpus - config.gpus,
        "kv_blocks": records.kv_blocks + 1,
        "trainer_memory_share": records.trainer_memory_share,
        "trajectories": int(((admitted >= steps.start) & (admitted < steps.stop)).sum()),
        "iterations": sum(instance.iterations for instance in instances),
        "training_s": to_s(training_ns),
        "preemptions": preemptions,
        "generated_tokens": int(records.segments["tokens"][(version >= steps.start) & (version < steps.stop)].sum()),
        "instance_busy_s": [to_s(instance.busy_ns) for instance in instances],
    }
