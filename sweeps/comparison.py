"""Every published value beside ours: over all loads, with its tolerance and, for a miss, a reason.

Staleness, exact values and inequalities are judged on the default load, the first seed; all other values as the mean
over loads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from yaml import safe_load  # type: ignore[import-untyped]

from simrl.stats import percentile_rank, standard_deviation
from sweeps.loads import Load, mean_of
from sweeps.measures import Span, measure
from sweeps.published import Published
from sweeps.reasons import reason_for

CALIBRATION = Path(__file__).parent / "calibration.yaml"
THROUGHPUTS = ("effective_throughput", "total_throughput", "best_effective_throughput")
FRACTIONS = (
    "waste",
    "dropped_share",
    "dropped_share_longest_decile",
    "drop_from_peak_to_eta5",
    "throughput_loss_vs_l1",
    "throughput_gain_vs_l1_l3",
)
WITHIN_ONE = ("areal", "skyrl", "nemo_ready_first", "openrlhf", "slime", "layers_l1")
"""Mechanisms whose largest staleness moves by 1 with the load."""
THROUGHPUT_TOLERANCE, FRACTION_TOLERANCE, COUNT_TOLERANCE = 0.075, 0.05, 0.35
ROUNDING = 1e-9
FEW_TOKENS = 1000
"""Fewer count as none, where the article's figure shows none."""


@dataclass(frozen=True)
class Verdict:
    """Whether our value agrees with a published one, and by which rule."""

    rule: str
    within: bool | None
    """None where there is nothing to compare."""


def tolerance(metric: str, published: float) -> tuple[float, str]:
    """Return how far from *published* a value of this metric may lie, and the rule in words."""
    if metric in THROUGHPUTS:
        return THROUGHPUT_TOLERANCE * published, f"within {THROUGHPUT_TOLERANCE:.1%}"
    if metric in FRACTIONS:
        return FRACTION_TOLERANCE, f"within {FRACTION_TOLERANCE}"
    return COUNT_TOLERANCE * abs(published), f"within {COUNT_TOLERANCE:.0%}"


def judge(row: Published, default: Span, mean: Span) -> Verdict:
    """Judge our value.

    Args:
        row: the published value.
        default: ours on the default load.
        mean: ours as the mean over loads; least and largest over the configurations meant.
    """
    low, high = row.bounds
    if row.compare == "info":
        return Verdict("for information: the real run's trace is not public", None)
    if row.compare == "range" and low < high:
        return _judge_range(row.metric, row.bounds, mean)
    if row.compare in ("range", "near"):
        return _judge_near(row.metric, low, sum(mean) / 2)
    if row.compare == "at_most":
        return Verdict("default load: at most the bound", default[1] <= low + ROUNDING)
    if row.compare == "above":
        return Verdict("default load: above", default[0] > low)
    allowed = 1 if row.metric == "max_staleness" and row.framework in WITHIN_ONE else 0
    rule = "default load: within 1" if allowed else "default load: equal"
    return Verdict(rule, abs(default[0] - low) <= allowed + ROUNDING)


def _judge_near(metric: str, published: float, mean: float) -> Verdict:
    if metric.startswith("wasted_tokens") and published == 0:
        return Verdict(f"mean under {FEW_TOKENS:,} tokens", mean < FEW_TOKENS)
    allowed, rule = tolerance(metric, published)
    return Verdict(f"mean {rule}", abs(mean - published) <= allowed + ROUNDING)


def _judge_range(metric: str, published: Span, mean: Span) -> Verdict:
    """Judge a published range.

    A range over configurations must overlap ours over the same ones. Where the article gives the range of a scan and
    the row is one configuration of it, ours is one number, with the same tolerance as a single published value.
    """
    (low, high), (least, most) = published, mean
    overlap = least <= high + ROUNDING and most >= low - ROUNDING
    if least < most:
        return Verdict("mean ranges overlap", overlap)
    if overlap:
        return Verdict("mean inside the range", within=True)
    allowed, rule = tolerance(metric, low if least < low else high)
    return Verdict(f"mean {rule} of the range", low - allowed <= least <= high + allowed)


def compare(published: Sequence[Published], loads: Sequence[Load], changed: Sequence[str] = ()) -> pd.DataFrame:
    """Return one row per published value, in their order.

    Args:
        published: the article's values.
        loads: ours.
        changed: what was set otherwise than in the article, ``key=value``: then that is why a value misses, and one
            that no run has is not judged.

    Returns:
        The published columns; ours (mean over loads; for a range its least), ours_high (largest, for ranges), std, low
        and high over loads, loads (how many have the value), default (ours on the first seed), difference and
        relative_difference (ours - published), z and percentile (the published value's place in ours over loads; for
        ranges, bounds and yes-or-no values none), in_our_range (whether it lies between low and high), rule, within,
        agreeing (loads that would be within by themselves), reason.
    """
    table = pd.DataFrame([_compared(row, loads, without=None if changed else False) for row in published])
    if changed:
        table.loc[table["within"].eq(False), "reason"] = f"made with {' '.join(changed)}, unlike the article"
    return table


def _compared(row: Published, loads: Sequence[Load], *, without: bool | None) -> dict[str, object]:
    """Return a row; *without*: the verdict on a value that we have nothing to set beside."""
    out: dict[str, object] = {
        name: getattr(row, name) for name in ("section", "framework", "params", "metric", "value", "unit", "compare")
    }
    low, high = row.bounds
    missing = ""
    spans: list[Span] = []
    if row.compare != "info":
        try:
            spans = [measure(load, row) for load in loads]
        except LookupError as error:
            missing = f"not computed: {error}"
    lows, highs = [one for one, _ in spans], [other for _, other in spans]
    mean: Span = (mean_of(lows), mean_of(highs))
    default: Span = spans[0] if spans else (math.nan, math.nan)
    verdict = judge(row, default, mean)
    is_number = low == high and row.unit != "bool" and row.compare in ("exact", "near", "range")
    there = [value for value in lows if not math.isnan(value)]
    comparable = row.compare != "info"
    within = verdict.within if there or not comparable else without
    std = standard_deviation(there)
    middle = sum(mean) / 2
    outside = (max(0.0, low - mean[1]) or min(0.0, high - mean[0])) if low < high else low - middle
    out |= {
        "ours": mean[0],
        "ours_high": mean[1] if mean[1] > mean[0] else math.nan,
        "std": std,
        "low": min(there, default=math.nan),
        "high": max((value for value in highs if not math.isnan(value)), default=math.nan),
        "loads": len(there),
        "default": default[0],
        "default_high": default[1] if default[1] > default[0] else math.nan,
        "difference": 0.0 - outside,
        "relative_difference": (0.0 - outside) / low if low and is_number else math.nan,
        "z": (low - mean[0]) / std if is_number and std > 0 else math.nan,
        "percentile": percentile_rank(low, there) if is_number and len(there) > 1 else math.nan,
        "rule": verdict.rule,
        "within": within,
        "agreeing": sum(judge(row, one, one).within is True for one in spans),
    }
    out["in_our_range"] = None if not there else bool(out["low"] <= high and out["high"] >= low)  # type: ignore[operator]
    out["reason"] = "" if within or not comparable else missing or reason_for(row, out)
    out["note"] = row.note
    return out


def fitted_on() -> tuple[str, ...]:
    """Return the mechanisms that costs and lengths are fitted on; some rules of others were chosen by their values."""
    return tuple(safe_load(CALIBRATION.read_text(encoding="utf-8"))["fit_on"])


def throughput_errors(comparison: pd.DataFrame) -> pd.Series:
    """Return the relative error of every published throughput, and, apart, of those the fit has not seen.

    Returns:
        Index all, fitted, held_out: the mean absolute relative error; NaN where there is no value.
    """
    part = comparison[comparison["metric"].isin(THROUGHPUTS) & (comparison["compare"] == "near")]
    fitted = part["framework"].isin(fitted_on())
    errors = part["relative_difference"].abs()
    return pd.Series({"all": errors.mean(), "fitted": errors[fitted].mean(), "held_out": errors[~fitted].mean()})


def percent(share: float) -> str:
    """Return a share as people read it, - for one that is not there."""
    return "-" if math.isnan(share) else f"{share:.1%}"


def tally(comparison: pd.DataFrame) -> pd.DataFrame:
    """Return, per section: values compared, how many are within tolerance, mean absolute throughput error.

    The last row is all sections together; a section without a value compared has none.
    """
    rows = []
    for section, part in [*comparison.groupby("section", sort=False), ("all", comparison)]:
        comparable = part[part["within"].notna()]
        if comparable.empty and section != "all":
            continue
        throughput = part[part["metric"].isin(THROUGHPUTS) & (part["compare"] == "near")]
        throughput = throughput[throughput["relative_difference"].notna()]
        rows.append(
            {
                "section": section,
                "values": len(comparable),
                "within": int(comparable["within"].astype(bool).sum()),
                "throughputs": len(throughput),
                "throughput_error": float(throughput["relative_difference"].abs().mean()),
            }
        )
    return pd.DataFrame(rows)
