"""The synchronous hybrid engine: the accelerators generate, then the same ones train.

verl 1dda039 trainer_mode=sync: wait for the batch, sleep, train, update weights (which wakes the engines); slime
624b824a ``train.py --colocate`` and TRL's vllm_mode=colocate go round the same circle.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from simpy import Event

from simrl.model.clock import TRAINER, Alarm, now_ns, to_ns
from simrl.model.cost.colocation import SwitchTime, rollout_beside_trainer, switch_time
from simrl.model.cost.weight_sync import weight_sync_s
from simrl.model.engine.protocol import DRAIN
from simrl.model.placement.protocol import Parties
from simrl.model.records import PUBLISH, SWITCH, WAIT

if TYPE_CHECKING:
    from simrl.config.schema import SimulationConfig


class Colocated:
    """Engines sleep from the moment a batch is taken until the next weights have come; their KV is lost.

    What runs beyond the batch ends first; what waits in the engines' queues stays there, and what is submitted
    meanwhile too.

    Args:
        parties: whom it acts on.
        sync_s: how long the weights take, s.
        switch: what the changes take.
    """

    def __init__(self, parties: Parties, sync_s: float, switch: SwitchTime):
        self._parties = parties
        self._sync_ns = to_ns(sync_s)
        self._to_training_ns, self._to_rollout_ns = to_ns(switch.to_training_s), to_ns(switch.to_rollout_s)
        self._mode = DRAIN
        """In which the engines went to sleep."""

    @classmethod
    def placed(cls, config: SimulationConfig) -> SimulationConfig:
        """Return *config* with the memory that the trainer leaves the engines, and how weights reach them there."""
        backend = config.placement.weight_sync_backend or config.trainer.weight_sync_backend
        return replace(
            config,
            rollout=rollout_beside_trainer(config.hardware, config.model, config.rollout, config.trainer),
            trainer=replace(config.trainer, weight_sync_backend=backend),
        )

    @classmethod
    def build(cls, config: SimulationConfig, parties: Parties) -> Self:
        """Return the placement of a run."""
        hardware, model, trainer = config.hardware, config.model, config.trainer
        switch = switch_time(hardware, model, config.rollout, trainer, config.placement)
        return cls(parties, weight_sync_s(hardware, model, trainer), switch)

    def to_training(self) -> Generator[Event, Any, None]:
        """Let the engines end what runs, send them to sleep and bring the trainer's state in."""
        yield from self._parties.rollout.drain()
        self._parties.phases.end(WAIT)
        yield from self._fall_asleep(DRAIN)

    def _fall_asleep(self, mode: str) -> Generator[Event, Any, None]:
        self._mode = mode
        self._parties.rollout.sleep(mode)
        yield from self._take(self._to_training_ns)
        self._parties.phases.end(SWITCH)

    def publish(self, version: int) -> Generator[Event, Any, None]:
        """Take the trainer's state out, update the weights and wake the engines."""
        env, controller, rollout, phases = self._parties
        yield from self._take(self._to_rollout_ns)
        phases.end(SWITCH)
        controller.begin_publish(version)
        yield from self._take(self._sync_ns)
        rollout.update_weights(version, self._mode, now_ns(env))
        rollout.wake()
        controller.end_publish(version)
        phases.end(PUBLISH)

    def _take(self, duration_ns: int) -> Generator[Event, Any, None]:
        if duration_ns:
            yield Alarm(self._parties.env, duration_ns, TRAINER)
