"""Colocated with partial rollout: generation ends when a batch is complete, the rest goes on in the next step.

verl 1dda039 trainer_mode=colocate_async: unfinished requests are aborted with the tokens they have, engines sleep; with
the next weights they are queued again and prefill what they had, since sleep drops the KV cache.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from simpy import Event

from simrl.model.engine.protocol import ABORT
from simrl.model.placement.colocated import Colocated


class ColocatedPartial(Colocated):
    """Nothing is waited for: what runs when a batch is taken is interrupted."""

    def to_training(self) -> Generator[Event, Any, None]:
        """Interrupt what runs, send the engines to sleep and bring the trainer's state in."""
        yield from self._fall_asleep(ABORT)
