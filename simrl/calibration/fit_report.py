"""A calibration as Markdown: values, errors of what was fitted and of what was predicted, what stays open."""

from __future__ import annotations

import numpy as np

from simrl.calibration.fit import Fit, misfits, not_identified
from simrl.calibration.targets import TOLERANCES
from simrl.text_table import markdown_table

ABSOLUTE = ("waste",)
"""Kinds whose error is a difference; the others' is relative."""


def error_of(fitted: Fit, found: np.ndarray, kind: str, *, held_out: bool) -> tuple[int, float]:
    """Return how many targets of a kind there are and their mean absolute error, relative unless in ABSOLUTE."""
    errors = [
        abs(float(ours) - target.value) / (1.0 if kind in ABSOLUTE else target.value)
        for ours, target in zip(found, fitted.spec.targets, strict=True)
        if target.kind == kind and target.fitted != held_out
    ]
    return len(errors), float(np.mean(errors)) if errors else float("nan")


def fit_report(fitted: Fit) -> str:
    """Return the fit as Markdown."""
    spec = fitted.spec
    values = []
    for number, parameter in enumerate(spec.parameters):
        bound = fitted.bound_of(number)
        remark = f"AT ITS {bound.upper()} BOUND" if bound else ""
        value = f"{fitted.values[parameter.key]:.6g}"
        ends = f"{parameter.low:.6g} to {parameter.high:.6g}"
        values.append((parameter.key, f"{parameter.start:.6g}", value, ends, remark))
    lines = ["# Calibration", "", markdown_table(("parameter", "start", "fitted", "range", ""), values), ""]
    for number, parameter in enumerate(spec.parameters):
        if (bound := fitted.bound_of(number)) is not None:
            lines += [f"{parameter.key} ended at its {bound} bound: widen its range, or doubt the model.", ""]
    count, predicted = len(spec.fitted), len(spec.targets) - len(spec.fitted)
    lines += [
        "## Errors",
        "",
        f"{count} targets were fitted, {predicted} are predictions (held out).",
        "",
    ]
    lines += [markdown_table(("mean absolute error of", "targets", "", "at the start", "now"), _errors(fitted)), ""]
    for held_out, name in ((False, "fitted"), (True, "held out")):
        own = [t.fitted != held_out for t in spec.targets]
        if any(own):
            square = float(np.mean(misfits(fitted.found, spec.targets)[own] ** 2))
            lines.append(f"Mean squared misfit, {name}: {square:.3g} (tolerances squared)")
    lines += ["", "## What the fitted targets do not fix", ""]
    lines += [f"* {text}" for text in not_identified(fitted.jacobian, spec.parameters)] or [
        "* nothing: every parameter is fixed by the data"
    ]
    lines += ["", "Each parameter is measured by its range above; a wider range makes it count for more.", ""]
    lines += [
        "## Targets",
        "",
        markdown_table(("target", "wanted", "ours", "misfit (tolerances)", "used"), _targets(fitted)),
    ]
    return "\n".join(lines) + "\n"


def _errors(fitted: Fit) -> list[tuple[str, str, str, str, str]]:
    rows = []
    for kind in TOLERANCES:
        for held_out, used in ((False, "fitted"), (True, "held out")):
            count, before = error_of(fitted, fitted.before, kind, held_out=held_out)
            _, now = error_of(fitted, fitted.found, kind, held_out=held_out)
            form = "{:.3f}" if kind in ABSOLUTE else "{:.2%}"
            if count:
                rows.append((kind, str(count), used, form.format(before), form.format(now)))
    return rows


def _targets(fitted: Fit) -> list[tuple[str, str, str, str, str]]:
    return [
        (
            target.name,
            f"{target.value:.6g}",
            f"{ours:.6g}",
            f"{target.misfit(float(ours)):+.2f}",
            "fitted" if target.fitted else "held out",
        )
        for ours, target in zip(fitted.found, fitted.spec.targets, strict=True)
    ]
