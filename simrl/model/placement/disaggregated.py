"""Engines and trainer on accelerators of their own, at work at the same time."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Self

from simpy import Event

from simrl.model.clock import TRAINER, Alarm, now_ns, to_ns
from simrl.model.cost.weight_sync import weight_sync_s
from simrl.model.engine.protocol import DRAIN
from simrl.model.placement.protocol import Parties
from simrl.model.records import PUBLISH

if TYPE_CHECKING:
    from simrl.config.schema import SimulationConfig


class Disaggregated:
    """Training takes nothing from the engines; a publish holds them for its time.

    Args:
        parties: whom it acts on.
        weight_update: what becomes of requests in flight when new weights come; see :class:`FrameworkConfig`.
        sync_s: version -> how long its publish holds the engines, s.
    """

    def __init__(self, parties: Parties, weight_update: str, sync_s: Callable[[int], float]):
        self._parties = parties
        self._weight_update = weight_update
        self._sync_s = sync_s

    @classmethod
    def placed(cls, config: SimulationConfig) -> SimulationConfig:
        """Return *config*: neither takes anything from the other."""
        return config

    @classmethod
    def build(cls, config: SimulationConfig, parties: Parties) -> Self:
        """Return the placement of a run."""
        sync_s = weight_sync_s(config.hardware, config.model, config.trainer)
        return cls(parties, config.framework.weight_update, lambda _: sync_s)

    def to_training(self) -> Generator[Event, Any, None]:
        """Do nothing: the engines go on."""
        yield from ()

    def publish(self, version: int) -> Generator[Event, Any, None]:
        """Update the engines' weights in the framework's mode."""
        env, controller, rollout, phases = self._parties
        if self._weight_update == DRAIN:
            yield from rollout.drain()
        controller.begin_publish(version)
        sync_ns = to_ns(self._sync_s(version))
        rollout.update_weights(version, self._weight_update, now_ns(env) + sync_ns)
        if sync_ns:
            yield Alarm(env, sync_ns, TRAINER)
        controller.end_publish(version)
        phases.end(PUBLISH)
