"""Records -> one summary row, and its units."""

from __future__ import annotations

from typing import Any

import numpy as np

from simrl.config.schema import SimulationConfig
from simrl.model.clock import to_s
from simrl.model.records import DROPPED_L2, DROPPED_L3, TRAINED, UNFINISHED, Records

LONGEST_SHARE = 0.1

UNITS: dict[str, str] = {
    "run_id": "",
    "framework": "",
    "eta": "versions or batches, the framework's own",
    "warmup": "batches",
    "versions": "training steps",
    "seed": "",
    "effective_throughput": "token/s",
    "total_throughput": "token/s",
    "waste": "fraction",
    "wasted_tokens_l2": "tokens",
    "wasted_tokens_l3": "tokens",
    "trained_tokens": "tokens",
    "unfinished_tokens": "tokens",
    "max_staleness": "versions",
    "mean_staleness": "versions, by token",
    "strict_bound": "versions",
    "expected_staleness": "versions a user expects of the knob",
    "duration_s": "s",
    "preemptions_per_trajectory": "preemptions/trained trajectory",
    "reprefill_tokens_per_trajectory": "tokens/trained trajectory",
    "dropped_share": "fraction of decided trajectories",
    "dropped_share_longest_decile": "fraction of decided trajectories",
    "enrichment": "ratio",
    "mean_length_ratio_dropped_to_trained": "ratio",
    "trainer_busy": "fraction of duration",
    "rollout_busy": "fraction of duration",
    "kv_blocks": "blocks/instance",
    "trajectories": "trajectories",
    "iterations": "engine iterations",
    "training_s": "s of log-prob and update",
    "preemptions": "preemptions",
    "generated_tokens": "tokens generated, whatever became of them",
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
    segments = records.segments[rows["fate"][records.segments["trajectory"]] == TRAINED]
    owner = rows[segments["trajectory"]]
    first = np.ones(len(segments), bool)
    first[1:] = segments["trajectory"][1:] != segments["trajectory"][:-1]
    tokens = segments["tokens"] + np.where(first, owner["prompt_tokens"], 0)
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


def summarise(config: SimulationConfig, records: Records, run_id: str) -> dict[str, Any]:
    """Return the summary row of a run; units in :data:`UNITS`, None where a metric does not exist."""
    rows = records.trajectories
    tokens = tokens_of(rows)
    fate = rows["fate"]
    trained, l2, l3 = (int(tokens[fate == kind].sum()) for kind in (TRAINED, DROPPED_L2, DROPPED_L3))
    decided = trained + l2 + l3
    duration_s = to_s(records.duration_ns)
    trained_trajectories = int((fate == TRAINED).sum())
    levels = trained_levels(records)
    training_ns = sum(batch.end_ns - batch.start_ns for batch in records.batches)
    busy_ns = sum(instance.busy_ns for instance in records.instances)
    return {
        "run_id": run_id,
        "framework": config.framework.name,
        "eta": config.framework.eta,
        "warmup": config.framework.knobs["warmup"].value if "warmup" in config.framework.knobs else None,
        "versions": config.versions,
        "seed": config.seed,
        "effective_throughput": trained / duration_s,
        "total_throughput": decided / duration_s,
        "waste": (l2 + l3) / decided,
        "wasted_tokens_l2": l2,
        "wasted_tokens_l3": l3,
        "trained_tokens": trained,
        "unfinished_tokens": int(tokens[fate == UNFINISHED].sum()),
        "max_staleness": int(levels["staleness"].max()),
        "mean_staleness": float(np.average(levels["staleness"], weights=levels["tokens"])),
        "strict_bound": config.framework.strict_bound,
        "expected_staleness": config.framework.eta + config.framework.expected_offset,
        "duration_s": duration_s,
        "preemptions_per_trajectory": float(rows["preemptions"].sum() / trained_trajectories),
        "reprefill_tokens_per_trajectory": float(rows["reprefill_tokens"].sum() / trained_trajectories),
        **length_bias(rows),
        "trainer_busy": training_ns / records.duration_ns,
        # an iteration under way at the end is counted to its end, so a busy instance may exceed the run by a part of it
        "rollout_busy": min(1.0, busy_ns / (len(records.instances) * records.duration_ns)),
        "kv_blocks": records.kv_blocks + 1,
        "trajectories": len(rows),
        "iterations": sum(instance.iterations for instance in records.instances),
        "training_s": to_s(training_ns),
        "preemptions": int(rows["preemptions"].sum()),
        "generated_tokens": int(rows["generated_tokens"].sum()),
        "instance_busy_s": [to_s(instance.busy_ns) for instance in records.instances],
    }
