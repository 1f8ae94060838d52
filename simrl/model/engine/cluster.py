"""All rollout instances: routing of trajectories and weight updates."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
from simpy import AllOf, Environment, Event

from simrl.model.clock import now_ns
from simrl.model.engine.instance import Instance
from simrl.model.engine.vllm.engine import Engine, Finished
from simrl.model.records import InstanceTotals, TrajectoryLog


class Cluster:
    """The rollout side.

    Args:
        env: the simulation.
        engines: one an instance.
        log: where trajectories are recorded.
        on_finish: called with each finished trajectory's number.
    """

    def __init__(
        self,
        env: Environment,
        engines: Sequence[Engine],
        log: TrajectoryLog,
        on_finish: Callable[[int], None],
    ):
        self.env = env
        self.version = 0
        self._log = log
        self._on_finish = on_finish
        self._loads = [0] * len(engines)
        self.instances = [Instance(env, index, engine, self._finished) for index, engine in enumerate(engines)]

    def submit(self, trajectory: int, prompt_tokens: int, response_tokens: int, prefix_key: int) -> None:
        """Send a trajectory to the instance with the fewest requests in flight.

        Ties go to the lowest index, which a router that scans its list finds first.
        """
        index = self._loads.index(min(self._loads))
        self._loads[index] += 1
        self._log.rows[trajectory]["instance"] = index
        self.instances[index].reach().submit(trajectory, prompt_tokens, response_tokens, prefix_key, prompt_tokens)

    def _finished(self, instance: Instance, finished: Finished) -> None:
        self._loads[instance.index] -= 1
        row = self._log.rows[finished.trajectory]
        row["generated_tokens"] = row["response_tokens"]
        row["first_token_version"] = finished.first_version
        row["end_version"] = self.version
        row["preemptions"] = finished.preemptions
        row["reprefill_tokens"] = finished.reprefill_tokens
        row["first_token_ns"] = finished.first_token_ns
        row["finish_ns"] = finished.finish_ns
        self._on_finish(finished.trajectory)

    def _note_open(self, record: np.void) -> None:
        row = self._log.rows[int(record["trajectory"])]
        row["generated_tokens"] = record["generated_tokens"]
        row["first_token_version"] = record["first_version"]
        row["end_version"] = self.version
        row["preemptions"] = record["preemptions"]
        row["reprefill_tokens"] = record["reprefill_tokens"]
        row["first_token_ns"] = record["first_token_ns"]

    def abort(self, trajectory: int) -> None:
        """Cancel a running trajectory; what it generated so far is recorded."""
        index = int(self._log.rows[trajectory]["instance"])
        self._loads[index] -= 1
        self._note_open(self.instances[index].reach().abort(trajectory))

    def update_weights(self, version: int, mode: str, hold_until_ns: int) -> None:
        """Give all engines the weights *version*; none starts an iteration before *hold_until_ns*.

        The token of an iteration under way belongs to the old weights; with abort it is lost.
        """
        for instance in self.instances:
            engine = instance.reach()
            trajectories, tokens = engine.generated(with_iteration_under_way=mode != "abort")
            self._log.boundaries.append((trajectories, self.version, tokens))
            if mode == "abort":
                engine.abort_and_resubmit_all()
            elif mode == "recompute":
                engine.drop_kv_in_place()
            elif mode == "drain":
                engine.drop_kv_in_place()  # nothing runs: this clears the prefix cache
                engine.pause_admission(False)
            engine.set_version(version, hold_until_ns)
        self.version = version

    def hold(self, until_ns: int) -> None:
        """Let no engine start an iteration before *until_ns* (a training phase on the same accelerators)."""
        for instance in self.instances:
            instance.reach().hold(until_ns)

    def drain(self) -> Generator[Event, Any, None]:
        """Stop admission everywhere and wait until no request is running."""
        yield AllOf(self.env, [instance.drain() for instance in self.instances])

    def close(self) -> None:
        """Bring all engines to the present and record what is unfinished."""
        for instance in self.instances:
            instance.engine.catch_up(now_ns(self.env))
            for record in instance.engine.open_requests():
                self._note_open(record)

    def timelines(self) -> list[np.ndarray]:
        """Return each instance's samples."""
        return [instance.engine.samples for instance in self.instances]

    def totals(self) -> list[InstanceTotals]:
        """Return each instance's counters."""
        return [instance.engine.totals(now_ns(self.env)) for instance in self.instances]
