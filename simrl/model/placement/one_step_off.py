"""One step off: a batch is generated while the one before is trained; weights go out when both are over.

verl 1dda039 experimental/one_step_off_policy: await batch k, sync weights, start generating k+1, train k. slime
624b824a train_async.py with update_weights_interval 1: train k, await k+1, update weights. No request sees two.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from simpy import Event

from simrl.model.clock import TRAINER, Alarm, now_ns, to_ns
from simrl.model.engine.protocol import DRAIN
from simrl.model.placement.disaggregated import Disaggregated
from simrl.model.records import PUBLISH, WAIT


class OneStepOff(Disaggregated):
    """The trainer waits for all that is in flight before it publishes; then it takes its batch at once."""

    def publish(self, version: int) -> Generator[Event, Any, None]:
        """Update the weights of engines that have nothing to do."""
        env, controller, rollout, phases = self._parties
        yield from rollout.finish()
        phases.end(WAIT)
        controller.begin_publish(version)
        sync_ns = to_ns(self._sync_s(version))
        rollout.update_weights(version, DRAIN, now_ns(env) + sync_ns)
        if sync_ns:
            yield Alarm(env, sync_ns, TRAINER)
        controller.end_publish(version)
        phases.end(PUBLISH)
