"""The trainer as a SimPy process: take a batch, recompute log-probs, update, publish."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import numpy as np
from simpy import Event

from simrl.config.schema import FrameworkConfig
from simrl.model.clock import TRAINER, Alarm, now_ns, to_ns
from simrl.model.cost.training import StepTime
from simrl.model.placement.protocol import Parties, Placement
from simrl.model.records import LOGPROB, MINI_BATCH_WAIT, REFERENCE, UPDATE, WAIT, Batch
from simrl.model.trajectory import Trajectory


class Trainer:
    """Runs *updates* training steps.

    Args:
        parties: where batches come from, and whom phases hold.
        placement: how the engines give way and get new weights.
        framework: which phases overlap with rollout.
        updates: training steps to run, one a batch.
        step_time: lengths (tokens, one a trajectory) and number of the mini-batch -> seconds of log-prob and update.
        updates_per_publish: training steps after which the weights are published.
        mini_batches: parts in which a step takes its batch as they become ready.
    """

    def __init__(
        self,
        parties: Parties,
        placement: Placement,
        framework: FrameworkConfig,
        updates: int,
        step_time: Callable[[np.ndarray, int], StepTime],
        updates_per_publish: int = 1,
        mini_batches: int = 1,
    ):
        self.env, self._controller, self._rollout, self._phases = parties
        self._placement = placement
        self._framework = framework
        self._updates = updates
        self._step_time = step_time
        self._updates_per_publish = updates_per_publish
        self._mini_batches = mini_batches
        self.batches: list[Batch] = []
        self.process = self.env.process(self._run())

    def _run(self) -> Generator[Event, Any, None]:
        self._controller.start()
        for update in range(self._updates):
            wait_ns = now_ns(self.env)
            starts_ns, updates_ns = [], []
            for number in range(self._mini_batches):
                batch: list[Trajectory] = yield self._controller.next_batch()
                self._phases.end(MINI_BATCH_WAIT if number else WAIT)
                starts_ns.append(now_ns(self.env))
                yield from self._placement.to_training()
                time = self._step_time(np.array([trajectory.tokens for trajectory in batch]), number)
                if self._framework.logprob_recompute:
                    yield from self._phase(LOGPROB, time.logprob_s, overlap=self._framework.overlap_logprob)
                if time.reference_s:
                    yield from self._phase(REFERENCE, time.reference_s, overlap=self._framework.overlap_logprob)
                updates_ns.append(now_ns(self.env))
                yield from self._phase(UPDATE, time.update_s, overlap=self._framework.overlap_update)
            end_ns = now_ns(self.env)
            done = update + 1
            if done < self._updates and done % self._updates_per_publish == 0:  # nobody would use the last weights
                yield from self._placement.publish(done // self._updates_per_publish)
            edges_ns = (wait_ns, starts_ns[0], updates_ns[0], end_ns, now_ns(self.env))
            self.batches.append(Batch(update, *edges_ns, self._phases.take()))

    def _phase(self, name: str, seconds: float, *, overlap: bool) -> Generator[Event, Any, None]:
        duration_ns = to_ns(seconds)
        if not overlap:
            self._rollout.hold(now_ns(self.env) + duration_ns)
        yield Alarm(self.env, duration_ns, TRAINER)
        self._phases.end(name)
