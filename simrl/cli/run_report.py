"""A run's printed summary: its metrics with units, the engine modelled and where its costs come from."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from simrl.config.schema import SimulationConfig
from simrl.model.cost.parallel_layout import TIGHT
from simrl.model.cost.provenance import provenance, switch_provenance
from simrl.model.placement.placements import placed
from simrl.runs.steadiness import transient

TIGHT_HINT = "by an estimate that may be 12 % low; raise trainer.tensor_parallel, pipeline_parallel or data_parallel"
SHOWN = (
    ("effective_throughput", "effective throughput", "{:,.0f}", "token/s (prompt + response, trained)"),
    ("effective_throughput_per_gpu", "  per GPU", "{:,.1f}", "token/s and GPU"),
    ("drift", "  second half against first", "{:+.1%}", "of the measured versions"),
    ("total_throughput", "total throughput", "{:,.0f}", "token/s (trained + dropped)"),
    ("waste", "waste", "{:.1%}", "of the tokens trained or dropped"),
    ("wasted_tokens_l2", "  cancelled while running (L2)", "{:,.0f}", "tokens"),
    ("wasted_tokens_l3", "  dropped when finished (L3)", "{:,.0f}", "tokens"),
    ("max_staleness", "max staleness", "{:d}", "versions"),
    ("mean_staleness", "mean staleness", "{:.2f}", "versions, by token"),
    ("duration_s", "duration", "{:,.0f}", "s measured"),
    ("preemptions_per_trajectory", "preemptions", "{:.2f}", "per trained trajectory"),
    ("reprefill_tokens_per_trajectory", "re-prefill", "{:,.0f}", "tokens per trained trajectory"),
    ("trainer_busy", "trainer busy", "{:.1%}", "of the duration"),
    ("rollout_busy", "rollout busy", "{:.1%}", "of the duration"),
    ("mean_response_tokens", "mean response", "{:,.0f}", "tokens, trained"),
    ("p99_response_tokens", "  99th percentile", "{:,.0f}", "tokens"),
    ("clipped_share", "  at the cap", "{:.1%}", "of the trained responses"),
    ("trainer_memory_share", "trainer's memory", "{:.0%}", "of its fullest GPU, estimated"),
    ("idle_gpus", "idle GPUs", "{:d}", "that no pool uses"),
)


def run_report(config: SimulationConfig, row: Mapping[str, Any]) -> str:
    """Return the printed summary of a run."""
    config = placed(config)
    shown = ["hardware", "model", "workload", "framework"]
    if config.placement.kind != "disaggregated":
        shown.append("placement")
    groups = " ".join(f"{name}={getattr(config, name).name}" for name in shown)
    bound = row["strict_bound"]
    begin, end = row["measure_from"], row["measure_to"]
    window = "" if end - begin == row["versions"] else f" (measured: {begin} to {end - 1})"
    knob = f" ({config.framework.upstream_knob})" if config.framework.upstream_knob else ""
    lines = [
        f"SimRL  {groups}",
        f"       eta={row['eta']}{knob} seed={row['seed']} versions={row['versions']}{window} "
        f"batch={config.groups_per_batch}x{config.group_size} "
        f"rollout={config.rollout.instances}xTP{config.rollout.tensor_parallel} "
        f"training=TP{config.trainer.tensor_parallel}/PP{config.trainer.pipeline_parallel}"
        f"/DP{config.trainer.data_parallel}",
        "",
    ]
    for key, label, form, unit in SHOWN:
        value = "-" if row[key] is None else form.format(row[key])
        note = unit
        if key == "max_staleness":
            note += f" (strict bound: {bound})" if bound is not None else " (no strict bound)"
        if key == "idle_gpus":
            note = f"of {config.hardware.gpus}, {note}"
        lines.append(f"  {label:<31}{value:>12}  {note}")
    if reason := transient(row):
        hint = "measure more versions" if config.measure_from else "try experiment=steady"
        lines += ["", f"  not steady: {reason}; {hint}"]
    if row["trainer_memory_share"] > TIGHT:
        share = row["trainer_memory_share"]
        lines += ["", f"  tight: the trainer's fullest GPU holds {share:.0%} of its memory, {TIGHT_HINT}"]
    engine = f"{config.rollout.engine} {config.rollout.version}".rstrip()
    lines += ["", f"  engine modelled: {engine}, KV pool {row['kv_blocks']:,} blocks an instance"]
    lines.append("  where the costs come from:")
    sources = provenance(config.hardware, config.model, config.rollout, config.trainer)
    if config.placement.same_gpus:
        sources["switch"] = switch_provenance(config)
    for part, source in sources.items():
        indent = " " * 17
        lines += textwrap.wrap(f"    {part:<12} {source}", 110, subsequent_indent=indent)
    return "\n".join(lines)
