"""The measured window of a run: whole training steps, and what is credited to them.

A step lasts from where the trainer begins to wait for its batch to where the next step begins, the last one to the end
of the run. Steps tile the run, so that what windows that tile it are credited with adds up to the whole run's.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from simrl.model.records import TRAINED, UNFINISHED, InstanceTotals, Records


def step_starts_ns(records: Records) -> np.ndarray:
    """Return when each step begins, and after the last one when the run ends."""
    return np.array([*(batch.wait_ns for batch in records.batches), records.duration_ns])


def deciding_steps(records: Records) -> np.ndarray:
    """Return in which step each trajectory's fate was decided; of the unfinished the number of steps.

    A batch's trajectories are its step's. What is dropped at the instant at which a step begins is that step's.
    """
    rows, steps = records.trajectories, len(records.batches)
    dropped = np.searchsorted(step_starts_ns(records)[:-1], rows["decided_ns"], side="right") - 1
    decided = np.where(rows["fate"] == TRAINED, rows["consumed_version"], dropped)
    return np.where(rows["fate"] == UNFINISHED, steps, decided)


def segment_tokens(records: Records) -> np.ndarray:
    """Return the tokens of each segment; a prompt counts with its first response token."""
    segments = records.segments
    prompts = records.trajectories["prompt_tokens"][segments["trajectory"]]
    return np.asarray(segments["tokens"] + np.where(first_segments(segments), prompts, 0))


def first_segments(segments: np.ndarray) -> np.ndarray:
    """Return which segments are their trajectory's first."""
    first = np.ones(len(segments), bool)
    first[1:] = segments["trajectory"][1:] != segments["trajectory"][:-1]
    return first


def open_tokens(records: Records, step: int) -> int:
    """Return the tokens, prompts included, that exist when *step* begins and whose fate is not decided before it."""
    segments = records.segments
    undecided = deciding_steps(records)[segments["trajectory"]] >= step
    return int(segment_tokens(records)[undecided & (segments["version"] < step)].sum())


def instance_totals(records: Records, steps: range) -> list[InstanceTotals]:
    """Return what each instance did in *steps*: between the arrivals of the first one's weights and of the next ones.

    An iteration under way at such a moment counts whole, before it.
    """
    ends = [*records.updates, records.instances]
    if steps.start == 0:
        return ends[steps.stop - 1]
    return [_less(last, first) for last, first in zip(ends[steps.stop - 1], ends[steps.start - 1], strict=True)]


def _less(last: InstanceTotals, first: InstanceTotals) -> InstanceTotals:
    names = [field.name for field in fields(InstanceTotals)]
    return InstanceTotals(**{name: getattr(last, name) - getattr(first, name) for name in names})
