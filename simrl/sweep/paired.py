"""Runs side by side under the same loads, so that the loads' luck cancels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simrl.stats import t_interval

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Pair:
    """Two configurations under the same loads: one in both sweeps, or two of one sweep."""

    settings: tuple[Any, ...]
    """What distinguishes the pair from others of its kind: values of keys."""
    a: tuple[Row, ...]
    """Runs of the first, one for each seed that both have, by seed."""
    b: tuple[Row, ...]
    """The same of the second."""


@dataclass(frozen=True)
class Difference:
    """What a metric's change from the first to the second is."""

    n: int
    """Seeds that both have."""
    a: float
    """Mean in the first over these seeds."""
    b: float
    difference: float
    """Mean of b - a."""
    ci95: float
    """Half-width of its 95 % t interval; NaN for one seed."""
    relative: float
    """difference / a; NaN if a is 0."""
    ratio: float
    """Mean of b / a; NaN if a is 0 for a seed."""
    ratio_ci95: float
    """Half-width of its 95 % t interval; NaN for one seed."""


def pairing_keys(a: Sequence[Row], b: Sequence[Row], names: Sequence[str]) -> list[str]:
    """Return which of the set keys distinguish configurations within a sweep.

    A key with one value in each sweep pairs nothing: if the two differ, that is what is compared.
    """

    def varies(rows: Sequence[Row], name: str) -> bool:
        return len({str(row.get(name)) for row in rows}) > 1

    return [name for name in names if varies(a, name) or varies(b, name)]


def pairs(a: Sequence[Row], b: Sequence[Row], keys: Sequence[str]) -> list[Pair]:
    """Return the configurations that both have with at least one common seed, in the order of the first.

    Raises:
        ValueError: if a sweep has two runs of one configuration and seed.
    """
    there_a, there_b = by_configuration(a, keys), by_configuration(b, keys)
    out = []
    for settings, runs in there_a.items():
        others = there_b.get(settings, {})
        seeds = sorted(runs.keys() & others.keys())
        if seeds:
            first = runs[seeds[0]]
            values = tuple(first.get(key) for key in keys)
            out.append(Pair(values, tuple(runs[seed] for seed in seeds), tuple(others[seed] for seed in seeds)))
    return out


def by_configuration(rows: Sequence[Row], keys: Sequence[str]) -> dict[tuple[str, ...], dict[int, Row]]:
    """Return the runs of each configuration, by seed.

    Raises:
        ValueError: if there are two runs of one configuration and seed.
    """
    out: dict[tuple[str, ...], dict[int, Row]] = {}
    for row in rows:
        runs = out.setdefault(tuple(value_text(row.get(key)) for key in keys), {})
        known = runs.setdefault(row["seed"], row)
        if known["run_id"] != row["run_id"]:
            raise ValueError(f"{known['run_id']} and {row['run_id']} have the same {', '.join([*keys, 'seed'])}")
    return out


def value_text(value: Any) -> str:
    """Return a value so that 1 and 1.0, as two sweeps may hold it, are one, and words are as overrides have them."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def difference(pair: Pair, metric: str) -> Difference | None:
    """Return a metric's paired difference; None if no seed has it in both."""
    both = [(row[metric], other[metric]) for row, other in zip(pair.a, pair.b, strict=True)]
    values = [(float(one), float(other)) for one, other in both if one is not None and other is not None]
    if not values:
        return None
    n = len(values)
    a, b = (math.fsum(side) / n for side in zip(*values, strict=True))
    changes = [other - one for one, other in values]
    change = math.fsum(changes) / n
    ratios = [other / one for one, other in values] if all(one for one, _ in values) else [math.nan]
    ratio, ratio_ci95 = math.fsum(ratios) / len(ratios), t_interval(ratios)
    return Difference(n, a, b, change, t_interval(changes), change / a if a else math.nan, ratio, ratio_ci95)
