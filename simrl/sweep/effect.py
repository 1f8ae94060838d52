"""The effect of a swept key: each of its values against a base value, under the same loads and with all else alike.

What else varies is matched as far as it varies among the base's runs; what varies only elsewhere (a knob that the base
does not have) makes configurations of their own, each set against the base's.

The best of many settings looks better than it is, since part of its lead is luck. So a key may be *chosen*: for each
configuration its best value is found on the first half of the seeds, and compared on the second.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from simrl.config.schema import ConfigError
from simrl.model.metrics import SAME_AS
from simrl.sweep.paired import Difference, Pair, Row, by_configuration, difference, value_text
from simrl.sweep.seeds import METRICS, configuration_columns, distinguishing_columns

CHOSEN_BY = "effective_throughput"
"""The metric whose mean is largest where a key is chosen."""


@dataclass(frozen=True)
class Effect:
    """What a value of the key does against the base value, in one metric."""

    metric: str
    settings: dict[str, Any]
    """The value's configuration: that key, and the others that vary or are chosen."""
    base: dict[str, Any]
    """The base's configuration, the same keys."""
    change: Difference
    """From the base to the value."""
    chosen: tuple[str, ...] = ()
    """Keys that were chosen, so that the base may have another value of them."""

    def row(self) -> dict[str, Any]:
        """Return it flat: metric, the settings, ``base_<key>`` of chosen keys, n, means, difference and ratio."""
        return {
            "metric": self.metric,
            **self.settings,
            **{f"base_{name}": self.base[name] for name in self.chosen},
            "n": self.change.n,
            "base_mean": self.change.a,
            "mean": self.change.b,
            "difference": self.change.difference,
            "ci95": self.change.ci95,
            "ratio": self.change.ratio,
            "ratio_ci95": self.change.ratio_ci95,
        }


def effects(
    rows: Sequence[Row], by: str, base: str, metrics: Sequence[str], choose: Sequence[str] = ()
) -> list[Effect]:
    """Return the effect of each value of a key, in the order of the rows, metric by metric.

    Args:
        rows: one a run, see docs/results.md; a run that stands there twice counts once.
        by: the key; its short name where the rows have one.
        base: the value the others are compared with.
        metrics: what is compared.
        choose: keys that are chosen on the first half of the seeds; then only the second half is compared.

    Raises:
        ConfigError: for a key that does not vary or a value it does not have, a metric that is none, too few seeds,
            runs that cannot be told apart, and if no other value shares a seed with the base.
    """
    rows = list({row["run_id"]: row for row in rows}.values())
    varying = distinguishing_columns(rows, configuration_columns([*dict.fromkeys(key for row in rows for key in row)]))
    key, *chosen = (SAME_AS.get(name, name) for name in (by, *choose))
    _check(key, chosen, metrics, varying)
    values = list(dict.fromkeys(value_text(row.get(key)) for row in rows))
    if base not in values:
        raise ConfigError("base", base, f"is no value of {key} here; there are {', '.join(values)}")
    names = [key, *(name for name in varying if name != key)]
    seeds = halves(row["seed"] for row in rows) if chosen else None
    try:
        if seeds is not None:
            rows = _chosen(rows, [name for name in names if name not in chosen], chosen, *seeds)
        found = _against(rows, key, base, names, chosen)
    except ValueError as error:
        raise ConfigError("by", key, f"has runs that cannot be told apart: {error}") from error
    if not found:
        raise ConfigError("base", base, f"has no seed and setting in common with another {key}: nothing to compare")
    out = [
        Effect(metric, _settings(pair.b[0], names), _settings(pair.a[0], names), change, tuple(chosen))
        for metric in metrics
        for pair in found
        if (change := difference(pair, metric)) is not None
    ]
    if not out:
        raise ConfigError("metric", ", ".join(metrics), "is null in these runs: there is nothing to compare")
    return out


def _check(key: str, chosen: Sequence[str], metrics: Sequence[str], varying: Sequence[str]) -> None:
    for metric in metrics:
        if metric not in METRICS:
            raise ConfigError("metric", metric, f"must be one of {', '.join(METRICS)}")
    for option, name in (("by", key), *(("choose", name) for name in chosen)):
        if name not in varying:
            raise ConfigError(option, name, f"does not vary here; what does is {', '.join(varying) or 'nothing'}")
    if key in chosen:
        raise ConfigError("choose", key, "is what is compared; choose another key")


def halves(seeds: Iterable[int]) -> tuple[list[int], list[int]]:
    """Return the seeds on which is chosen and those on which is judged; of an odd number one more judges.

    Raises:
        ConfigError: for fewer than two seeds.
    """
    listed = sorted(set(seeds))
    if len(listed) < 2:
        raise ConfigError("choose", f"{len(listed)} seed", "needs two seeds or more: one to choose, one to judge")
    return listed[: len(listed) // 2], listed[len(listed) // 2 :]


def _settings(row: Row, names: Sequence[str]) -> dict[str, Any]:
    return {name: row.get(name) for name in names}


def _against(rows: Sequence[Row], key: str, base: str, names: Sequence[str], chosen: Sequence[str]) -> list[Pair]:
    of_base = [row for row in rows if value_text(row.get(key)) == base]
    others = [row for row in rows if value_text(row.get(key)) != base]
    matched = [name for name in names if name not in chosen and len({value_text(row.get(name)) for row in of_base}) > 1]
    bases = by_configuration(of_base, matched)
    out = []
    for settings, runs in by_configuration(others, names).items():
        first = next(iter(runs.values()))
        there = bases.get(tuple(value_text(first.get(name)) for name in matched), {})
        seeds = sorted(runs.keys() & there.keys())
        if seeds:
            out.append(Pair(settings, tuple(there[seed] for seed in seeds), tuple(runs[seed] for seed in seeds)))
    return out


def _chosen(
    rows: Sequence[Row], names: Sequence[str], chosen: Sequence[str], choosing: Sequence[int], judging: Sequence[int]
) -> list[Row]:
    """Return, of each configuration in *names*, the judging seeds' runs of the best setting of the *chosen* keys."""
    best: dict[tuple[str, ...], tuple[float, list[Row]]] = {}
    for settings, runs in by_configuration(rows, [*names, *chosen]).items():
        tried = [float(runs[seed][CHOSEN_BY]) for seed in choosing if seed in runs]
        if not tried:
            continue
        mean = math.fsum(tried) / len(tried)
        configuration = settings[: len(names)]
        if configuration not in best or mean > best[configuration][0]:  # the first of equals
            best[configuration] = mean, [runs[seed] for seed in judging if seed in runs]
    return [row for _, kept in best.values() for row in kept]
