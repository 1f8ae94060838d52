"""Points of a sweep that cannot be simulated and were left out, because ``infeasible`` is ``skip``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from simrl.config.schema import ConfigError
from simrl.runs.atomic import atomic_file

FILE = "left_out.json"
MOST_LINES = 20
"""Of a report; the file has all."""


class InfeasibleError(ConfigError):
    """A point whose keys and options exist, but whose values cannot be simulated."""


@dataclass(frozen=True)
class LeftOut:
    """A point that is left out."""

    number: int
    """Its place in the sweep, from 0."""
    overrides: tuple[str, ...]
    """Hydra overrides, ``key=value``."""
    reason: str


def write_left_out(folder: Path, points: Sequence[LeftOut]) -> None:
    """Let a sweep's folder say which points are left out, or no more if there are none."""
    if points:
        with atomic_file(folder / FILE) as aside:
            aside.write_text(json.dumps([asdict(point) for point in points], indent=1) + "\n")
    else:
        (folder / FILE).unlink(missing_ok=True)


def read_left_out(folder: Path) -> list[LeftOut]:
    """Return the points that a sweep's folder says are left out.

    Raises:
        ConfigError: if the file is damaged.
    """
    try:
        content = json.loads((folder / FILE).read_text())
        return [LeftOut(int(one["number"]), tuple(one["overrides"]), str(one["reason"])) for one in content]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(FILE, folder / FILE, "is damaged; start the sweep again, its runs are kept") from error


def left_out_lines(points: Sequence[LeftOut], total: int) -> list[str]:
    """Return what is said of them: why each was left out of how many."""
    lines = [f"left out: {' '.join(point.overrides)}: {point.reason}" for point in points[:MOST_LINES]]
    if len(points) > MOST_LINES:
        lines.append(f"left out: {len(points) - MOST_LINES} more, see {FILE} in the sweep's folder")
    return [*lines, f"{len(points)} of {total} points cannot be simulated and were left out"] if points else []
