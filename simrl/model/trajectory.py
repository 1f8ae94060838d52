"""The life of a trajectory: its turns, its states, and the one object that changes them and writes them down.

opened -> generating -> (away -> generating -> ...) scored -> ready -> trained; dropped or cancelled on the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from simrl.model.engine.requests import FinishedRequest, OpenRequest, Progress
from simrl.model.records import DROPPED_L2, DROPPED_L3, NONE, TrajectoryLog
from simrl.model.records import TRAINED as FATE_TRAINED

OPENED = "opened"
"""Its group was admitted; not submitted yet."""
GENERATING = "generating"
"""A turn of it is on an engine."""
AWAY = "away"
"""Between two turns, at a tool."""
SCORED = "scored"
"""Its last turn is over and its reward known."""
READY = "ready"
"""It may be trained: its controller has let it through."""
TRAINED, DROPPED, CANCELLED = "trained", "dropped", "cancelled"
"""How it ended: in a batch, thrown away by sampling (L3), or by cancellation (L2)."""

NEXT: dict[str, frozenset[str]] = {
    OPENED: frozenset({GENERATING, CANCELLED}),
    GENERATING: frozenset({AWAY, SCORED, CANCELLED}),
    AWAY: frozenset({GENERATING, CANCELLED}),
    SCORED: frozenset({READY, DROPPED, CANCELLED}),
    READY: frozenset({TRAINED, DROPPED}),
    TRAINED: frozenset(),
    DROPPED: frozenset(),
    CANCELLED: frozenset(),
}
"""The states that may follow each."""


class LifecycleError(RuntimeError):
    """A trajectory was asked into a state that cannot follow its own."""


class Turn(NamedTuple):
    """One request of a trajectory."""

    input_tokens: int
    """New ones: the prompt, or what came back from the tool."""
    output_tokens: int
    away_ns: int = 0
    """Time between its end and the next turn."""


def one_turn(prompt_tokens: int, responses: Iterable[int]) -> list[tuple[Turn, ...]]:
    """Return the turns of a group's members that answer one prompt, once, with *responses* tokens each."""
    return [(Turn(prompt_tokens, tokens),) for tokens in responses]


@dataclass(slots=True, eq=False)
class Trajectory:
    """One sampled response, as it stands; only :class:`Trajectories` writes to it."""

    number: int
    """group * group_size + member."""
    group: int
    turns: tuple[Turn, ...]
    input_tokens: int
    """Of all turns; with the output its length in training."""
    output_tokens: int
    """Of all turns."""
    state: str = OPENED
    turns_done: int = 0
    instance: int = NONE
    """Where its turn is, or was last."""
    end_version: int = NONE
    """Weights of its last token; known when it is scored."""

    @property
    def turn(self) -> Turn:
        """The turn that is under way or comes next."""
        return self.turns[self.turns_done]

    @property
    def tokens(self) -> int:
        """Its length in training: all that it was given and all that it generates."""
        return self.input_tokens + self.output_tokens


class Trajectories:
    """All trajectories of a run that have not ended, by number.

    Args:
        group_size: members of a group.
        log: where their lives are written down; it is not read.
    """

    def __init__(self, group_size: int, log: TrajectoryLog):
        self.group_size = group_size
        self._log = log
        self._living: dict[int, Trajectory] = {}

    def __getitem__(self, number: int) -> Trajectory:
        return self._living[number]

    def of_group(self, group: int) -> list[Trajectory]:
        """Return the living members of a group, in order."""
        first = group * self.group_size
        living = self._living
        return [living[number] for number in range(first, first + self.group_size) if number in living]

    def open_group(self, group: int, version: int, members: Sequence[tuple[Turn, ...]]) -> None:
        """Open the members of a group.

        Args:
            group: its number; groups are opened in order.
            version: trainer version at its admission.
            members: the turns of each.
        """
        lengths: list[int] = []
        for number, turns in enumerate(members, group * self.group_size):
            input_tokens, output_tokens, _ = turns[0]
            for turn in turns[1:]:
                input_tokens += turn.input_tokens
                output_tokens += turn.output_tokens
            self._living[number] = Trajectory(number, group, turns, input_tokens, output_tokens)
            lengths += (input_tokens, output_tokens)
        self._log.opened(group, version, lengths)

    def generate(self, trajectory: Trajectory, instance: int, now_ns: int) -> None:
        """Begin a turn on *instance*."""
        if trajectory.state == OPENED:
            self._log.submitted(trajectory.number, instance, now_ns)
        _enter(GENERATING, (trajectory,))
        trajectory.instance = instance

    def move(self, trajectory: Trajectory, instance: int) -> None:
        """Go on with the turn under way on another instance."""
        trajectory.instance = instance
        self._log.moved(trajectory.number, instance)

    def end_turn(self, finished: FinishedRequest, version: int) -> Trajectory:
        """End a turn, the last token of which has the weights *version*: away, or scored after the last turn."""
        trajectory = self._living[finished.trajectory]
        if trajectory.turns_done + 1 < len(trajectory.turns):
            _enter(AWAY, (trajectory,))
            trajectory.turns_done += 1
            return trajectory
        _enter(SCORED, (trajectory,))
        trajectory.turns_done += 1
        trajectory.end_version = version
        self._log.finished(finished, version)
        return trajectory

    def interrupt(self, request: OpenRequest, version: int) -> None:
        """Write down how far a trajectory has come that an engine, with the weights *version*, no longer works on."""
        self._log.interrupted(request, version)

    def change_weights(self, progress: Progress, version: int) -> None:
        """Write down how far trajectories have come under the weights *version*, which go."""
        self._log.weights_changed(progress.trajectories, progress.tokens, version)

    def let_through(self, trajectories: Iterable[Trajectory]) -> None:
        """Make scored trajectories ready for training."""
        _enter(READY, trajectories)

    def train(self, trajectories: Sequence[Trajectory], version: int, now_ns: int) -> None:
        """End ready trajectories in the batch of the trainer version *version*."""
        self._end(trajectories, TRAINED)
        self._log.decided([trajectory.number for trajectory in trajectories], FATE_TRAINED, now_ns, version)

    def drop(self, trajectories: Sequence[Trajectory], now_ns: int) -> None:
        """Throw scored or ready trajectories away (L3)."""
        self._end(trajectories, DROPPED)
        self._log.decided([trajectory.number for trajectory in trajectories], DROPPED_L3, now_ns)

    def cancel(self, trajectories: Sequence[Trajectory], now_ns: int) -> None:
        """Throw trajectories of an unfinished group away (L2)."""
        self._end(trajectories, CANCELLED)
        self._log.decided([trajectory.number for trajectory in trajectories], DROPPED_L2, now_ns)

    def _end(self, trajectories: Sequence[Trajectory], state: str) -> None:
        _enter(state, trajectories)
        for trajectory in trajectories:
            del self._living[trajectory.number]


def _enter(state: str, trajectories: Iterable[Trajectory]) -> None:
    for trajectory in trajectories:
        if state not in NEXT[trajectory.state]:
            raise LifecycleError(f"trajectory {trajectory.number} is {trajectory.state} and cannot become {state}")
        trajectory.state = state
