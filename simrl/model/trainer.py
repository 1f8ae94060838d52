"""The trainer as a SimPy process: take a batch, recompute log-probs, update, publish."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Protocol

import numpy as np
from simpy import Environment, Event

from simrl.config.schema import FrameworkConfig
from simrl.model.clock import TRAINER, Alarm, now_ns, to_ns
from simrl.model.control.ledger import Ledger
from simrl.model.cost.training import StepTime
from simrl.model.engine.cluster import Cluster
from simrl.model.records import Batch, TrajectoryLog


class BatchSource(Protocol):
    """What the trainer sees of a staleness control."""

    ledger: Ledger

    def admit(self) -> None:
        """Start work: at the beginning, and when the engines run with new weights."""

    def next_batch(self) -> Event:
        """Return an event that brings the numbers of the trajectories of the next batch."""

    def cancel_stale(self, version: int) -> None:
        """Cancel what is too old when *version* is published."""


class Trainer:
    """Runs *versions* training steps.

    Args:
        env: the simulation.
        framework: which phases overlap with rollout, and how weights are updated.
        versions: steps to run.
        control: where batches come from.
        cluster: where weights go.
        log: lengths of the trajectories of a batch.
        step_time: lengths (tokens, one a trajectory) -> seconds of log-prob and update.
        sync_s: how long a publish holds the engines, s.
    """

    def __init__(
        self,
        env: Environment,
        framework: FrameworkConfig,
        versions: int,
        control: BatchSource,
        cluster: Cluster,
        log: TrajectoryLog,
        step_time: Callable[[np.ndarray], StepTime],
        sync_s: float,
    ):
        self.env = env
        self._framework = framework
        self._versions = versions
        self._control = control
        self._cluster = cluster
        self._log = log
        self._step_time = step_time
        self._sync_ns = to_ns(sync_s)
        self.batches: list[Batch] = []
        self.process = env.process(self._run())

    def _run(self) -> Generator[Event, Any, None]:
        self._control.admit()
        for version in range(self._versions):
            wait_ns = now_ns(self.env)
            batch: np.ndarray = yield self._control.next_batch()
            start_ns = now_ns(self.env)
            time = self._step_time(self._lengths(batch))
            if self._framework.logprob_recompute:
                yield from self._phase(time.logprob_s, overlap=self._framework.overlap_logprob)
            update_ns = now_ns(self.env)
            yield from self._phase(time.update_s, overlap=self._framework.overlap_update)
            end_ns = now_ns(self.env)
            if version + 1 < self._versions:  # nobody would use the last step's weights
                yield from self._publish(version + 1)
            self.batches.append(Batch(version, wait_ns, start_ns, update_ns, end_ns, now_ns(self.env)))

    def _lengths(self, batch: np.ndarray) -> np.ndarray:
        rows = self._log.rows[batch]
        return rows["prompt_tokens"] + rows["response_tokens"]  # type: ignore[no-any-return]

    def _phase(self, seconds: float, *, overlap: bool) -> Generator[Event, Any, None]:
        duration_ns = to_ns(seconds)
        if not overlap:
            self._cluster.hold(now_ns(self.env) + duration_ns)
        yield Alarm(self.env, duration_ns, TRAINER)

    def _publish(self, version: int) -> Generator[Event, Any, None]:
        mode = self._framework.weight_update
        if mode == "drain":
            yield from self._cluster.drain()
        self._control.ledger.publishing = True
        self._control.cancel_stale(version)
        self._cluster.update_weights(version, mode, now_ns(self.env) + self._sync_ns)
        if self._sync_ns:
            yield Alarm(self.env, self._sync_ns, TRAINER)
        self._control.ledger.publishing = False
        self._control.ledger.version = version
        self._control.admit()
