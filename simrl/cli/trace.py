"""Write a run's timeline as Chrome Trace Events for https://ui.perfetto.dev.

The run is simulated again, with engines that keep a diary; it is deterministic, so that is the same run.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from simrl.cli.commands import answer
from simrl.config.schema import ConfigError, SimulationConfig
from simrl.model.clock import to_s
from simrl.model.engine.vllm.compilation import compile_engine
from simrl.model.engine.vllm.observed import ObservedEngine
from simrl.model.metrics import summarise
from simrl.model.records import Records
from simrl.model.simulation import simulate
from simrl.runs.identity import run_id
from simrl.runs.summary import read_summary
from simrl.terminal import report
from simrl.timeline.chrome_trace import trace_events, trace_sums, write_trace
from simrl.timeline.stored_run import find_run, stored_config

FILE = "trace.json"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("run", metavar="RUN", help="a run's folder, or a sweep's link to it")
    parser.add_argument("--output", metavar="FILE", help=f"where to write; default {FILE} in the run's folder")
    parser.add_argument("--json", action="store_true", help="print what was written as JSON")


def main(options: argparse.Namespace) -> int:
    """Write the trace and print what it adds up to.

    Raises:
        ConfigError: if there is no such run, or the code or a file it reads changed since.
    """
    folder = find_run(options.run)
    output = Path(options.output) if options.output else folder / FILE
    if not output.parent.is_dir() or output.is_dir():
        raise ConfigError("--output", options.output, "must be a file in a folder that exists")
    config = stored_config(folder)
    check_same(config, folder.name)
    if config.rollout.engine != "vllm":
        raise ConfigError("rollout.engine", config.rollout.engine, "keeps no diary; only runs of vllm can be traced")
    compile_engine(report)
    records, engines = observe(config)
    events = list(trace_events(records, engines))
    sums = trace_sums(events)
    summary = read_summary(folder)
    again = summarise(config, records, folder.name)
    if any(summary[name] != again[name] for name in sums):
        raise ConfigError("RUN", folder.name, "simulated again it is another run (other libraries?); run it again")
    about = {"run_id": folder.name, "duration_s": to_s(records.duration_ns)}
    try:
        write_trace(events, about, output)
    except OSError as error:
        raise ConfigError("--output", output, f"cannot be written ({error.strerror}); choose another file") from error
    written = {"file": str(output), "bytes": output.stat().st_size, "events": len(events), **about, **sums}
    answer(options, written, answer_text(written))
    return 0


def check_same(config: SimulationConfig, name: str) -> None:
    """Raise ConfigError if *config* does not make the run *name* any more."""
    try:
        same = run_id(config) == name
    except OSError as error:
        raise ConfigError("workload.path", config.workload.path, f"is gone ({error.strerror})") from error
    if not same:
        raise ConfigError("RUN", name, "the code or the trace file changed since; run it again, then trace that run")


def observe(config: SimulationConfig) -> tuple[Records, list[ObservedEngine]]:
    """Return a run's records and its engines with their diaries, by instance."""
    engines: list[ObservedEngine] = []

    def build_engine(config: SimulationConfig, longest_tokens: int) -> ObservedEngine:
        engines.append(ObservedEngine.build(config, longest_tokens))
        return engines[-1]

    return simulate(config, build_engine), engines


def answer_text(written: dict[str, Any]) -> str:
    """Return the printed answer."""
    busy = ", ".join(f"{busy_s:,.1f}" for busy_s in written["instance_busy_s"])
    return "\n".join(
        [
            f"trace of {written['run_id']}: {written['events']:,} events over {written['duration_s']:,.1f} s",
            f"  training          {written['training_s']:,.1f} s",
            f"  instances busy    {busy} s",
            f"  generated tokens  {written['generated_tokens']:,}",
            f"  preemptions       {written['preemptions']:,}",
            f"  {written['file']} ({written['bytes'] / 1e6:.1f} MB): open it in https://ui.perfetto.dev",
        ]
    )
