"""What a value may be, and the one line that says so of a value outside."""

from __future__ import annotations

import re
from math import inf

PROVENANCES = ("measured", "derived", "assumed")
PRECISIONS = ("bf16", "fp8")
CLOCK_TICK_S = 1e-9
"""The simulation's clock counts nanoseconds."""
LONGEST = 300
"""Characters beyond which a message cuts a value or a word."""


def brief(text: str) -> str:
    """Return a text as one line: without control characters, and with words nobody would read to their end cut."""
    line = "".join(character if character.isprintable() else " " for character in text)
    return re.sub(rf"([^\s']{{{LONGEST}}})[^\s']+", r"\1...", line)


LARGEST = 1 << 62
"""Whole numbers end here: the simulation counts in 64 bits."""
MOST_POINTS = 1_000_000
"""Points of a sweep: more would fill the memory before the first one runs."""


class ConfigError(ValueError):
    """An input that cannot be simulated; one line that names the key, the value and the hint."""

    def __init__(self, key: str, value: object, hint: str):
        given = str(value)
        shown = given if len(given) <= LONGEST else f"{given[:LONGEST]}..."
        super().__init__(f"{brief(key)}={brief(shown)}: {brief(hint)}")
        self.key, self.value, self.hint = key, value, hint

    def __reduce__(self) -> tuple[type[ConfigError], tuple[str, object, str]]:
        """Let it come back from a worker process."""
        return ConfigError, (self.key, self.value, self.hint)

    def within(self, file: str) -> ConfigError:
        """Return the same error of a key that stands in a file."""
        return ConfigError(f"{file}: {self.key}", self.value, self.hint)


def at_least(key: str, value: float | None, least: float) -> None:
    """Raise :class:`ConfigError` if *value* is given and below *least*."""
    if value is not None and not value >= least:
        raise ConfigError(key, value, f"must be {least:g} or more")
    if value == inf:
        raise ConfigError(key, value, "must be finite")


def at_most(key: str, value: float | None, most: float) -> None:
    """Raise :class:`ConfigError` if *value* is given and above *most*."""
    if value is not None and not value <= most:
        raise ConfigError(key, value, f"must be {most:g} or less")


def more_than(key: str, value: float | None, bound: float) -> None:
    """Raise :class:`ConfigError` if *value* is given and not above *bound*."""
    if value is not None and not value > bound:
        raise ConfigError(key, value, f"must be more than {bound:g}")
    if value == inf:
        raise ConfigError(key, value, "must be finite")


def one_of(key: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise :class:`ConfigError` if *value* is none of *choices*."""
    if value not in choices:
        raise ConfigError(key, value, f"must be one of {', '.join(choices)}")


def check_count(key: str, value: object, count: int) -> None:
    """Raise :class:`ConfigError` if *value* stands for too many points of a sweep, before any list of it is made."""
    if count > MOST_POINTS:
        raise ConfigError(key, value, f"stands for {count:,} points; a sweep takes {MOST_POINTS:,} at most")


def fraction(key: str, value: float | None) -> None:
    """Raise :class:`ConfigError` if *value* is given and outside (0, 1]."""
    if value is not None and not 0 < value <= 1:
        raise ConfigError(key, value, "must be above 0 and at most 1")
