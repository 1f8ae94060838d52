"""A run's identity: a digest of everything its results depend on."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from simrl.config.compose import plain
from simrl.config.schema import PlacementConfig, SimulationConfig
from simrl.model.control.controllers import controller_path
from simrl.model.control.rules import rule_classes
from simrl.model.engine.engines import engine_path
from simrl.model.placement.placements import PLACEMENTS
from simrl.runs import sources

MAKERS = ("config", "model")
"""Parts of the package whose code makes results."""
ROOTS = ("simrl.model.simulation", "simrl.model.metrics")
"""What makes them: all code that a run uses is reached from here, or named in its configuration."""
NO_RESULTS = {
    "simrl.config.bounds",  # refuses, and computes nothing
    "simrl.config.ranges",  # the same
    "simrl.model.extent",  # the same
    "simrl.model.control.rule_names",  # the modules it names are in the digest themselves
    "simrl.model.control.controllers",  # the same
    "simrl.model.engine.engines",  # the same
    "simrl.model.placement.placements",  # the same
}
CHOSEN_BY_LAW = {f"simrl.model.workload.{law}" for law in ("lognormal", "quantiles", "histogram", "batches", "trace")}
"""Modules that are used if their law is chosen; those of other laws count always."""
COMMENTS = ("upstream", "upstream_knob", "bounds", "differs", "knobs")
"""Keys of a framework that say something about it."""
IMPORT_PATH = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):[^\W\d]\w*")


@cache
def code_digest() -> str:
    """Return a digest of all code that makes results, used or not, as it is written: changes if anything there does."""
    digest = hashlib.sha256()
    for part in MAKERS:
        for source in sorted((sources.PACKAGE / part).rglob("*.py")):
            digest.update(source.relative_to(sources.PACKAGE).as_posix().encode() + source.read_bytes())
    return digest.hexdigest()


def identity(config: SimulationConfig) -> dict[str, Any]:
    """Return what identifies a run: its configuration (comments on it left out), its trace and the code it uses."""
    content = plain(config)
    content["hardware"].pop("provenance")
    if config.placement == PlacementConfig(config.placement.name):
        del content["placement"]  # it was the only one
    del content["measure_from"], content["measure_to"]
    if config.measured != range(config.versions):  # however it is written
        content["measured"] = [config.measured.start, config.measured.stop]
    for comment in COMMENTS:
        content["framework"].pop(comment)
    for costs in [*content["hardware"]["measured"].values(), content["rollout"]["costs"] or {}]:
        for comment in ("source", "provenance", "prefill_provenance"):
            costs.pop(comment, None)
    if config.workload.path:
        content["trace"] = hashlib.sha256(Path(config.workload.path).read_bytes()).hexdigest()
    content["code"] = code_used(config)
    return content


def code_used(config: SimulationConfig) -> dict[str, str]:
    """Return module -> digest of the code that *config* uses: ours, and that of the user's own classes it names."""
    placement = PLACEMENTS[config.placement.kind]
    chosen = {engine_path(config.rollout.engine), controller_path(config.framework), placement}
    named = {path.partition(":")[0] for path in chosen}.union(_modules_named(plain(config)))
    if config.framework.controller is None:
        named |= {rule.__module__ for rule in rule_classes(config.framework).values()}
    return dict(_code(tuple(sorted(named)), config.workload.law))


@cache
def _code(named: tuple[str, ...], law: str) -> dict[str, str]:
    """Read once a process: a file that is edited meanwhile was imported as it was."""
    laws = CHOSEN_BY_LAW - {f"simrl.model.workload.{law}"}
    used = sources.code_of((*ROOTS, *named), {"simrl.model.workload.build": laws})
    return {module: digest for module, digest in used.items() if module not in NO_RESULTS}


def _modules_named(value: Any) -> Iterator[str]:
    """Find the modules of import paths among the values of a configuration."""
    if isinstance(value, dict):
        for part in value.values():
            yield from _modules_named(part)
    elif isinstance(value, str) and (match := IMPORT_PATH.fullmatch(value)):
        yield match[1]


def run_id(config: SimulationConfig) -> str:
    """Return the run's name: framework, eta, seed and a digest of the rest."""
    digest = hashlib.sha256(json.dumps(identity(config), sort_keys=True).encode()).hexdigest()[:10]
    framework = config.framework
    return f"{framework.name}-eta{framework.eta}-seed{config.seed}-{digest}"
