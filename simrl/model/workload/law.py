"""A law of the user's own: ``workload.law=my_package.laws:MyLaw``, its parameters under ``workload.parameters``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from simrl.config.import_path import load_class
from simrl.config.parameters import build
from simrl.config.schema import ConfigError
from simrl.model.workload.streams import stream

if TYPE_CHECKING:
    from simrl.config.schema import WorkloadConfig
    from simrl.model.workload.lengths import Tokens

KEY = "workload.law"
KEPT_GROUPS = 4096
"""Lengths are asked for more than once while a group is there."""


class Law:
    """Lengths group by group. A law is a dataclass: its fields are its parameters, checked by their annotations."""

    def longest_tokens(self) -> int:
        """Return the largest prompt + response it can ever give, tokens."""
        raise NotImplementedError

    def lengths(self, random: np.random.Generator, group: int, group_size: int) -> tuple[int, Sequence[int]]:
        """Return the lengths of one group.

        Args:
            random: the group's own random stream, which follows from the run's seed and the group's number alone.
            group: its number in order of submission, from 0.
            group_size: its members.

        Returns:
            Prompt length, tokens, and the members' response lengths, tokens, group_size of them.
        """
        raise NotImplementedError


class LawWorkload:
    """The workload of a :class:`Law`; it never runs out."""

    groups_available: int | None = None

    def __init__(self, law: Law, seed: int, group_size: int):
        """Keep the law; nothing is drawn yet.

        Raises:
            ConfigError: if its longest trajectory is none.
        """
        self.longest_tokens = law.longest_tokens()
        if not isinstance(self.longest_tokens, int) or self.longest_tokens < 2:
            raise _bad(law, f"longest_tokens() is {self.longest_tokens!r}; must be a whole number of 2 tokens or more")
        self._law = law
        self._seed = seed
        self._group_size = group_size
        self.lengths = lru_cache(KEPT_GROUPS)(self._lengths)

    def _lengths(self, group: int) -> tuple[int, Tokens]:
        """Return prompt length and response lengths of one group; see :meth:`simrl.model.workload.Workload.lengths`.

        Raises:
            ConfigError: if the law gives something else.
        """
        random = stream(self._seed, "workload.law", group)
        prompt_tokens, responses = self._law.lengths(random, group, self._group_size)
        response_tokens = np.asarray(responses)
        if response_tokens.shape != (self._group_size,) or response_tokens.dtype.kind not in "iu":
            raise _bad(self._law, f"gives {responses!r} for group {group}; must be {self._group_size} whole numbers")
        least, longest = min(prompt_tokens, int(response_tokens.min())), prompt_tokens + int(response_tokens.max())
        if least < 1 or longest > self.longest_tokens:
            limits = f"must be 1 or more, and prompt + response {self.longest_tokens} (longest_tokens()) or less"
            raise _bad(self._law, f"gives {prompt_tokens} and {responses!r} tokens for group {group}; {limits}")
        response_tokens = response_tokens.astype(np.int64)
        response_tokens.flags.writeable = False
        return int(prompt_tokens), response_tokens


def law_workload(config: WorkloadConfig, seed: int, group_size: int) -> LawWorkload:
    """Build the workload of the law that ``config.law`` names by its import path.

    Raises:
        ConfigError: if there is no such law, or it does not take the parameters.
    """
    kind = load_class(KEY, config.law, Law)
    workload = LawWorkload(build(kind, config.law, "workload.parameters", config.parameters), seed, group_size)
    workload.lengths(0)  # a law that gives no lengths is refused before anything runs
    return workload


def _bad(law: Law, hint: str) -> ConfigError:
    return ConfigError(KEY, f"{type(law).__module__}:{type(law).__qualname__}", hint)
