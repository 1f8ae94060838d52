"""A fit as Markdown: values and their errors, what the data cannot tell, and what the fit is good for, in words."""

from __future__ import annotations

import math
from typing import NamedTuple

from simrl.own_run.option_files import LABEL
from simrl.own_run.own_fit import FEW_LOST, IDENTIFIED, OPEN, ROUGH, WORST_RESIDUAL, Coefficient, OwnFit
from simrl.text_table import markdown_table, number_text

GOOD_UPDATE = 0.10
"""Root mean square of the update times' misses up to which the trainer's constant predicts them."""
ADVICE = {
    "engine": "log the engine: vLLM's console lines, better --enable-logging-iteration-details",
    "pool": "keep the engine's first lines (GPU KV cache size) in the log",
    "ramp": "include the ramp-up, or a short run with a tenth of the batch, in the engine's log",
    "lengths": "dump rollouts with their group (verl trainer.rollout_data_dir; AReaL rollout.dump_to_file)",
    "steps": "log at least 20 steps with their phases",
    "sync": "log the weight sync (verl: timing_s/update_weights or param_sync)",
}


def fit_report(fitted: OwnFit, usage: str) -> str:
    """Return the report of a fit; *usage* says how to run with it."""
    lines = ["# Fit of your own run", "", *verdict(fitted), "", "## Values", ""]
    rows = [_row(one) for one in fitted.coefficients]
    lines += [markdown_table(("value", "", "standard error", "", ""), rows) if rows else "Nothing could be fitted.", ""]
    if fitted.engine is not None:
        engine = fitted.engine
        lines += [
            f"Engine: {engine.windows:,} windows of {engine.requests[0]:.0f} to {engine.requests[1]:.0f} requests, "
            f"{engine.left_out:,} left out as the engine stood still or did what its log does not count; "
            f"the law misses {engine.residual:.1%} of a window (root mean square).", "",
        ]  # fmt: skip
    if fitted.trainer is not None:
        lines += [f"Training: {fitted.trainer.steps} steps, missed by {fitted.trainer.misses:.1%}.", ""]
    if fitted.lengths is not None:
        law = fitted.lengths
        lines += [
            f"Lengths: {law.trajectories:,} trajectories in {law.groups:,} groups, {law.capped_share:.1%} at the "
            f"cap of {law.cap:,} tokens.", "",
        ]  # fmt: skip
    lines += ["## What the data cannot tell", ""]
    lines += [f"* {note}" for note in fitted.notes] or ["* nothing that SimRL asks of it"]
    return "\n".join(lines) + f"\n{usage}"


def _row(one: Coefficient) -> tuple[str, str, str, str, str]:
    error = "-" if math.isnan(one.error) else number_text(one.error, 2)
    label = f"{one.standing}, {LABEL}" if one.standing != OPEN else f"{one.standing}: SimRL's own value"
    return (f"`{one.key}`", number_text(one.value, 5), error, label, one.remark)


class Answers(NamedTuple):
    """What a fit can be used for, what not, and what to log to improve it."""

    good: list[str]
    bad: list[str]
    advice: list[str]


def verdict(fitted: OwnFit) -> list[str]:
    """Return for which questions the fit can be used, for which not, and what to log to improve it."""
    answers = Answers([], [], [])
    _rollouts(fitted, answers)
    _training(fitted, answers)
    _lengths(fitted, answers)
    sure = sum(one.standing == IDENTIFIED for one in fitted.coefficients)
    head = f"{sure} of {len(fitted.coefficients)} values are identified (95 % interval within 3 %)."
    lines = [head, "", "Usable for:", "", *[f"* {text}" for text in answers.good or ["nothing yet"]]]
    lines += ["", "Not usable for:", "", *[f"* {text}" for text in answers.bad or ["nothing that SimRL models"]]]
    if answers.advice:
        lines += ["", "To improve it:", "", *[f"* {text}" for text in dict.fromkeys(answers.advice)]]
    return lines


def _rollouts(fitted: OwnFit, answers: Answers) -> None:
    engine = fitted.engine
    decode = [one for one in fitted.coefficients if one.key.startswith("rollout.costs.decode_")]
    if engine is None:
        answers.bad.append("how fast rollouts are: engine costs are SimRL's own")
        answers.advice.append(ADVICE["engine"])
    elif engine.residual <= WORST_RESIDUAL:
        least, largest = engine.requests
        answers.good.append(f"decode speed at {least:.0f} to {largest:.0f} requests an engine")
        if any(one.standing == ROUGH for one in decode):
            told = "base, request and context are not told apart"
            answers.bad.append(f"decode speed far outside those numbers of requests: {told}")
            answers.advice.append(ADVICE["ramp"])
    else:
        answers.bad.append(f"decode speed better than {engine.residual:.0%}: the windows do not follow the law")
    if fitted.kv_blocks is None:
        answers.bad.append("preemptions and how many requests fit: the KV pool is computed")
        answers.advice.append(ADVICE["pool"])
    else:
        answers.good.append("how many requests fit, and preemptions")


def _training(fitted: OwnFit, answers: Answers) -> None:
    trainer = fitted.trainer
    if trainer is None:
        answers.bad.append("training time: the constant is SimRL's own")
        answers.advice.append(ADVICE["steps"])
    elif trainer.misses <= GOOD_UPDATE:
        answers.good.append("training time at this layout, and the split of GPUs between rollout and training")
        answers.bad.append("training time at another layout: one was measured, others are SimRL's formula")
    else:
        answers.bad.append(f"training time better than {trainer.misses:.0%}: it does not follow from the lengths")
    if fitted.sync is None:
        answers.advice.append(ADVICE["sync"])


def _lengths(fitted: OwnFit, answers: Answers) -> None:
    if fitted.lost > FEW_LOST:
        answers.bad.append("the long tail, waste and staleness: lengths of cancelled trajectories are missing")
    elif fitted.lengths is not None and fitted.lengths.grouped:
        answers.good.append("waiting for long trajectories, waste and staleness, at these lengths")
    if fitted.lengths is not None and fitted.lengths.grouped:
        return
    known = fitted.lengths is not None
    answers.bad.append(
        "waiting for the slowest member of a group: groups are not known"
        if known
        else "the long tail: lengths are SimRL's"
    )
    answers.advice.append(ADVICE["lengths"])
