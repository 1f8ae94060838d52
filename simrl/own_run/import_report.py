"""What an import found, what it missed, and what each miss costs, as Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from simrl.own_run.imported_run import ImportedRun
from simrl.text_table import markdown_table

FOUND, MISSING = "found", "missing"
COSTS = {
    "engine windows": "decode and prefill costs stay SimRL's own; log the engine (docs/own_run.md)",
    "KV pool": "the pool is computed from memory; keep the engine's start in the log",
    "contexts (KV usage)": "context's share of decode is not measured, unless the pool and its usage are logged",
    "step times": "nothing of the trainer can be fitted or checked",
    "update times": "the training constant is not measured",
    "log-prob times": "the log-prob pass is not checked",
    "weight sync times": "the pause for new weights stays SimRL's own",
    "token counts by step": "MFU uses the lengths alone",
    "response lengths": "the law of lengths is not measured; dump rollouts",
    "groups": "lengths are drawn as independent within a group",
    "weights' versions": "staleness is not checked by trajectory",
    "settings": "mechanism, batch and layout are to be given by hand",
}
"""What is looked for, and what it costs if it is not there."""


def findings(run: ImportedRun, overrides: list[str]) -> list[tuple[str, str, str]]:
    """Return (what, found or missing, how much or what that costs) of everything in COSTS."""

    def steps_with(name: str) -> int:
        return sum(name in row for row in run.steps.values())

    rows = run.trajectories
    tokens, usage = rows.numbers("response_tokens"), len(run.engine)
    groups = sum(bool(group) for group in rows.columns["group"])
    versions = rows.numbers("version_first")
    amounts = {
        "engine windows": (len(run.engine), "windows"),
        "KV pool": (len(run.pools), "engines"),
        "contexts (KV usage)": (usage if run.pools else 0, "windows"),
        "step times": (steps_with("step_s"), "steps"),
        "update times": (steps_with("update_s"), "steps"),
        "log-prob times": (steps_with("logprob_s"), "steps"),
        "weight sync times": (steps_with("sync_s"), "steps"),
        "token counts by step": (steps_with("tokens"), "steps"),
        "response lengths": (int(np.count_nonzero(~np.isnan(tokens))), "trajectories"),
        "groups": (groups, "trajectories"),
        "weights' versions": (int(np.count_nonzero(~np.isnan(versions))), "trajectories"),
        "settings": (len(overrides), "overrides"),
    }
    return [
        (name, FOUND if count else MISSING, f"{count:,} {unit}" if count else COSTS[name])
        for name, (count, unit) in amounts.items()
    ]


def import_report(run: ImportedRun, files: int, overrides: list[str], not_read: dict[str, Any], output: Path) -> str:
    """Return the report of an import into *output*."""
    lines = ["# Import", "", f"{len({c.path for c in run.files})} of {files} files were read into {output}.", ""]
    lines += [markdown_table(("what", "", "how much, or what it costs"), findings(run, overrides)), ""]
    lines += [f"* {text}" for text in remarks(run)]
    lines += ["", "## Files", ""]
    counts = [(f"`{count.path.name}`", count.source, f"{count.used:,}", _damage(count.damaged)) for count in run.files]
    lines += [markdown_table(("file", "read as", "lines or records used", "not usable"), counts), ""]
    lines += ["## Settings", ""]
    lines += [f"    {override}" for override in overrides] or ["None were found."]
    if not_read:
        lines += ["", "Found, and not translated:", ""]
        lines += [f"* `{key}: {str(value)[:80]}`" for key, value in sorted(not_read.items())]
    return "\n".join(lines) + "\n"


def _damage(damaged: dict[str, int]) -> str:
    return "; ".join(f"{number:,} x {reason}" for reason, number in sorted(damaged.items())) or "-"


def remarks(run: ImportedRun) -> list[str]:
    """Return what a reader of the report must know about how values came about."""
    out = []
    for kind in ("prompt", "response"):
        if count := run.facts.get(f"{kind} tokens from characters"):
            out.append(
                f"{count:,} {kind} lengths are characters scaled to the logged mean of tokens, not token counts."
            )
        if run.facts.get(f"{kind} characters only"):
            out.append(f"{kind} texts have no token counts and no logged mean: their lengths are not used.")
    if run.facts.get("groups by prompt"):
        out.append("Groups are rollouts of one step with equal prompts: a prompt drawn twice in a step is one group.")
    if run.facts.get("group size unknown"):
        out.append("Samples have no group: no setting says how many generations a prompt has.")
    if run.repeated_steps:
        out.append(
            f"{run.repeated_steps:,} values of steps were logged again, as after a restart; the last one is kept."
        )
    if repeated := run.facts.get("repeated files"):
        out.append(f"{repeated} files have the content of another one and were left out.")
    return out
