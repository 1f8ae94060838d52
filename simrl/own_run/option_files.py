"""Fitted values as options that ``--config-dir`` takes: hardware, workload, framework, and an experiment of all."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml  # type: ignore[import-untyped]

from simrl.config.schema import ConfigError
from simrl.config.yaml_text import plain_yaml_text
from simrl.model.cost.iteration_table import measured_key
from simrl.own_run.length_law import whole_trajectories
from simrl.own_run.own_fit import OPEN, Coefficient, OwnFit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simrl.config.schema import SimulationConfig
    from simrl.own_run.stored_import import StoredImport

LABEL = "measured (yours)"
OPTIONS, LENGTHS = "options", "lengths.parquet"
"""Folder of options in a fit's folder, and the file of whole groups beside it."""


def check_name(name: str) -> None:
    """Refuse what is no option's name.

    Raises:
        ConfigError: for a name that has other characters than lower-case letters, digits and underscores.
    """
    if not name.isidentifier() or not name.isascii() or name != name.lower():
        raise ConfigError("--name", name, "must be of lower-case letters, digits and underscores, such as mine")


def option_texts(
    name: str, fitted: OwnFit, run: StoredImport, config: SimulationConfig, overrides: Sequence[str], output: Path
) -> dict[str, str]:
    """Return the options' texts by their path below the fit's folder.

    Args:
        name: of the options.
        fitted: the values.
        run: where they come from.
        config: the configuration that was fitted.
        overrides: those that gave it.
        output: the fit's folder.
    """
    texts = {f"{OPTIONS}/hardware/{name}.yaml": hardware_text(name, fitted, run, config, overrides)}
    if fitted.lengths is not None:
        texts[f"{OPTIONS}/workload/{name}.yaml"] = workload_text(name, fitted, run)
    if lengths_are_usable(run, config.group_size):
        texts[f"{OPTIONS}/workload/{name}_trace.yaml"] = trace_text(name, run, output)
    framework = [override for override in overrides if override.startswith(("framework=", "framework."))]
    chosen = next((word.partition("=")[2] for word in framework if word.startswith("framework=")), None)
    if chosen is not None:
        texts[f"{OPTIONS}/framework/{name}.yaml"] = framework_text(name, chosen, framework, run)
    texts[f"{OPTIONS}/experiment/{name}.yaml"] = experiment_text(name, texts, fitted, overrides, run)
    return texts


def hardware_text(
    name: str, fitted: OwnFit, run: StoredImport, config: SimulationConfig, overrides: Sequence[str]
) -> str:
    """Return the hardware with its engine costs, its trainer's efficiency and what else was given of it."""
    content: dict[str, Any] = {"defaults": [config.hardware.name, "_self_"], "name": name}
    content["gpus"] = config.hardware.gpus
    for override in overrides:
        key, _, value = override.partition("=")
        if key.startswith("hardware."):
            _set(content, key.removeprefix("hardware."), number_or_text(value))
    efficiency = _usable(fitted, "hardware.training_efficiency")
    if efficiency is not None:
        content["training_efficiency"] = efficiency.value
        content["provenance"] = {"training_efficiency": "measured"}
    if fitted.costs and fitted.engine is not None:
        prefill = fitted.coefficient("rollout.costs.prefill_per_token_s").standing
        content["measured"] = {
            measured_key(config.model, config.rollout.tensor_parallel): {
                **fitted.costs,
                "decode_points": [],
                "provenance": "measured",
                "prefill_provenance": "derived" if prefill == OPEN else "measured",
                "source": f"{LABEL}: {fitted.engine.windows:,} engine windows of {run.folder}",
            }
        }
    return _headed(f"{config.hardware.name}, {LABEL}", run, content)


def workload_text(name: str, fitted: OwnFit, run: StoredImport) -> str:
    """Return the law of lengths."""
    lengths = fitted.lengths
    assert lengths is not None
    content = {
        "defaults": ["schema/base@_here_", "_self_"],
        "name": name,
        "law": "lognormal",
        "mean_response_tokens": lengths.mean,
        "max_response_tokens": lengths.cap,
        "sigma_between_groups": lengths.sigma_between,
        "sigma_within_group": lengths.sigma_within,
        "prompt_median_tokens": lengths.prompt_median,
        "prompt_sigma": lengths.prompt_sigma,
        "prompt_min_tokens": lengths.prompt_min,
        "prompt_max_tokens": lengths.prompt_max,
    }
    return _headed(f"lengths, {LABEL}: {lengths.trajectories:,} trajectories", run, content)


def trace_text(name: str, run: StoredImport, output: Path) -> str:
    """Return the lengths themselves as a load."""
    content = {
        "defaults": ["schema/base@_here_", "_self_"],
        "name": f"{name}_trace",
        "law": "trace",
        "path": str((output / LENGTHS).absolute()),
    }
    return _headed(f"lengths, {LABEL}, one by one", run, content)


def framework_text(name: str, chosen: str, overrides: Sequence[str], run: StoredImport) -> str:
    """Return the framework with the run's knobs."""
    content: dict[str, Any] = {"defaults": [chosen, "_self_"], "name": name}
    for override in overrides:
        key, _, value = override.partition("=")
        if key.startswith("framework."):
            content[key.removeprefix("framework.")] = number_or_text(value)
    return _headed(f"{chosen} as the run set it, {LABEL}", run, content)


def experiment_text(
    name: str, texts: dict[str, str], fitted: OwnFit, overrides: Sequence[str], run: StoredImport
) -> str:
    """Return what chooses all of it, with the settings that belong to no group's option."""
    groups = [path.split("/")[1] for path in texts if not path.endswith("_trace.yaml")]
    content: dict[str, Any] = {"defaults": [{f"override /{group}": name} for group in dict.fromkeys(groups)]}
    choices = [word.split("=", 1) for word in overrides if "." not in word.partition("=")[0]]
    content["defaults"] += [
        {f"override /{key}": value} for key, value in choices if key in ("model", "rollout", "trainer")
    ]
    own = {key: number_or_text(value) for key, value in choices if key in ("groups_per_batch", "group_size")}
    content |= own
    for override in overrides:
        key, _, value = override.partition("=")
        if key.startswith(("rollout.", "trainer.", "model.")):
            _set(content, key, number_or_text(value))
    for key in ("rollout.kv_blocks", "trainer.pass_scale", "trainer.weight_sync_s"):
        if (found := _usable(fitted, key)) is not None:
            _set(content, key, int(found.value) if key == "rollout.kv_blocks" else found.value)
    return "# @package _global_\n" + _headed(f"all that was fitted, {LABEL}", run, content)


def number_or_text(value: str) -> Any:
    """Return the value an override's text stands for; 1e12 is a number, which YAML 1.1 takes for a text."""
    try:
        return (
            yaml.safe_load(value) if not re.fullmatch(r"[-+]?[\d.]+e[-+]?\d+", value, re.IGNORECASE) else float(value)
        )
    except yaml.YAMLError:
        return value


def _set(content: dict[str, Any], key: str, value: Any) -> None:
    *groups, last = key.split(".")
    for group in groups:
        content = content.setdefault(group, {})
    content[last] = value


def _usable(fitted: OwnFit, key: str) -> Coefficient | None:
    return next((one for one in fitted.coefficients if one.key == key and one.standing != OPEN), None)


def _headed(what: str, run: StoredImport, content: dict[str, Any]) -> str:
    return f"# {what}; by simrl fit of {run.folder}\n{plain_yaml_text(content)}"


def lengths_are_usable(run: StoredImport, group_size: int) -> bool:
    """Return whether there is a whole group to replay."""
    return bool(len(whole_groups(run, group_size)))


def whole_groups(run: StoredImport, group_size: int) -> list[int]:
    """Return rows of trajectories in groups of *group_size* with one prompt length, in order of submission, or of rows.

    Members of a group whose logged prompts differ by a little, as scaled characters do, are taken with the first one's.
    """
    rows = run.trajectories
    usable = whole_trajectories(rows) & (rows["prompt_tokens"] >= 1)
    members: dict[str, list[int]] = {}
    for row, group in enumerate(rows["group"]):
        if usable[row] and group:
            members.setdefault(group, []).append(row)
    whole = [part for part in members.values() if len(part) == group_size]
    submitted = rows["submitted_s"]
    # groups without a time keep the order of their rows, which is the order of training
    return [row for part in sorted(whole, key=lambda part: submitted[part].min() if part else 0.0) for row in part]


def write_lengths(run: StoredImport, group_size: int, path: Path) -> None:
    """Write whole groups as ``workload=trace`` takes them; nothing if there are none."""
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import parquet  # noqa: PLC0415

    rows = whole_groups(run, group_size)
    if not rows:
        return
    columns = run.trajectories
    prompts = columns["prompt_tokens"][rows].reshape(-1, group_size)
    prompts[:] = prompts[:, :1]
    content = {
        "group": [columns["group"][row] for row in rows],
        "prompt_tokens": prompts.ravel().astype("int64"),
        "response_tokens": columns["response_tokens"][rows].astype("int64"),
    }
    parquet.write_table(pa.table(content), path)
