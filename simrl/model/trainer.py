"""The trainer as a SimPy process: take a batch, recompute log-probs, update, publish."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import numpy as np
from simpy import Environment, Event

from simrl.config.schema import FrameworkConfig
from simrl.model.clock import TRAINER, Alarm, now_ns, to_ns
from simrl.model.control.protocol import Controller
from simrl.model.cost.training import StepTime
from simrl.model.engine.protocol import DRAIN, Rollout
from simrl.model.records import Batch
from simrl.model.trajectory import Trajectory


class Trainer:
    """Runs *updates* training steps.

    Args:
        env: the simulation.
        framework: which phases overlap with rollout, and how weights are published.
        updates: training steps to run, one a batch.
        controller: where batches come from.
        rollout: where weights go.
        step_time: lengths (tokens, one a trajectory) -> seconds of log-prob and update.
        sync_s: version -> how long its publish holds the engines, s.
        updates_per_publish: training steps after which the weights are published.
    """

    def __init__(
        self,
        env: Environment,
        framework: FrameworkConfig,
        updates: int,
        controller: Controller,
        rollout: Rollout,
        step_time: Callable[[np.ndarray], StepTime],
        sync_s: Callable[[int], float],
        updates_per_publish: int = 1,
    ):
        self.env = env
        self._framework = framework
        self._updates = updates
        self._controller = controller
        self._rollout = rollout
        self._step_time = step_time
        self._sync_s = sync_s
        self._updates_per_publish = updates_per_publish
        self.batches: list[Batch] = []
        self.process = env.process(self._run())

    def _run(self) -> Generator[Event, Any, None]:
        self._controller.start()
        for update in range(self._updates):
            wait_ns = now_ns(self.env)
            batch: list[Trajectory] = yield self._controller.next_batch()
            start_ns = now_ns(self.env)
            time = self._step_time(np.array([trajectory.tokens for trajectory in batch]))
            if self._framework.logprob_recompute:
                yield from self._phase(time.logprob_s, overlap=self._framework.overlap_logprob)
            if time.reference_s:
                yield from self._phase(time.reference_s, overlap=self._framework.overlap_logprob)
            update_ns = now_ns(self.env)
            yield from self._phase(time.update_s, overlap=self._framework.overlap_update)
            end_ns = now_ns(self.env)
            done = update + 1
            if done < self._updates and done % self._updates_per_publish == 0:  # nobody would use the last weights
                yield from self._publish(done // self._updates_per_publish)
            self.batches.append(Batch(update, wait_ns, start_ns, update_ns, end_ns, now_ns(self.env)))

    def _phase(self, seconds: float, *, overlap: bool) -> Generator[Event, Any, None]:
        duration_ns = to_ns(seconds)
        if not overlap:
            self._rollout.hold(now_ns(self.env) + duration_ns)
        yield Alarm(self.env, duration_ns, TRAINER)

    def _publish(self, version: int) -> Generator[Event, Any, None]:
        mode = self._framework.weight_update
        if mode == DRAIN:
            yield from self._rollout.drain()
        self._controller.begin_publish(version)
        sync_ns = to_ns(self._sync_s(version))
        self._rollout.update_weights(version, mode, now_ns(self.env) + sync_ns)
        if sync_ns:
            yield Alarm(self.env, sync_ns, TRAINER)
        self._controller.end_publish(version)
