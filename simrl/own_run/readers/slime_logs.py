"""slime (and its forks miles and vime): debug rollout dumps and the ``perf`` lines of its log.

Forms read in slime 624b824 (2026-08-21): observability/rollout_data_utils.py, utils/types.py, train_metric_utils.py.
A dump is a pickle in a zip. Nothing in it is run: only containers and numbers are built, whatever else it names becomes
an empty placeholder.
"""

from __future__ import annotations

import ast
import io
import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

from simrl.own_run.imported_run import FileCount, ImportedRun
from simrl.own_run.text_lines import ReadProgress, count_of, kind_of, looked_at, number_of, text_lines

NAME = "slime"
LARGEST_PICKLE = 2 << 30
"""Bytes of data.pkl; token lists of a step of 1,024 trajectories of 32k take 100 MB."""
PERF = re.compile(r"\b(?:perf|rollout|step) (\d+): (\{.*)$")
METRICS = {
    "perf/train_wait_time": "gen_wait_s",
    "perf/actor_train_time": "update_s",
    "perf/log_probs_time": "logprob_s",
    "perf/ref_log_probs_time": "reference_s",
    "perf/update_weights_time": "sync_s",
    "perf/step_time": "step_s",
    "perf/rollout_time": "generate_s",
    "rollout/response_len/mean": "response_tokens",
    "rollout/response_len/max": "response_max",
    "rollout/truncated_ratio": "clip_share",
}


class Placeholder:
    """Stands for an object that is not built; takes whatever a pickle gives it."""

    def __init__(self, *_: object, **__: object):
        pass

    def __setstate__(self, _: object) -> None:
        pass

    def append(self, _: object) -> None:
        """Forget an item."""

    def extend(self, _: object) -> None:
        """Forget items."""

    def __setitem__(self, _: object, __: object) -> None:
        pass


CONTAINERS = {
    ("builtins", name): kind
    for name, kind in {"set": set, "frozenset": frozenset, "list": list, "dict": dict, "tuple": tuple}.items()
} | {("builtins", name): kind for name, kind in {"int": int, "float": float, "bool": bool, "complex": complex}.items()}


class RestrictedUnpickler(pickle.Unpickler):
    """Builds containers, numbers and texts; every other class or function a pickle names is a placeholder."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what stands for a name in a pickle."""
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        return CONTAINERS.get((module, name), Placeholder)

    def persistent_load(self, _: Any) -> None:
        """Return nothing for a tensor's storage."""


def sniff(path: Path) -> bool:
    """Return whether a file is a rollout dump or a log with slime's ``perf`` lines."""
    if kind_of(path) == ".pt":
        return zipfile.is_zipfile(path)
    if kind_of(path) in (".jsonl", ".json", ".yaml", ".csv"):
        return False
    text = looked_at(path)
    return PERF.search(text.replace("\n", " \n")) is not None if "perf/" in text else False


def read(path: Path, run: ImportedRun, progress: ReadProgress | None = None) -> None:
    """Read a file into *run*; dumps of an evaluation are left out."""
    count = run.opened(path, NAME)
    if kind_of(path) == ".pt":
        if not path.name.startswith("eval_"):
            _dump(path, run, count)
        if progress is not None:
            progress.read(path.stat().st_size)
        return
    for line in text_lines(path, count, progress):
        found = PERF.search(line.text) if "/" in line.text else None
        if found is None:
            continue
        try:
            values = ast.literal_eval(found[2].strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            count.damaged["perf line that is cut or garbled"] += 1
            continue
        if isinstance(values, dict) and _metrics(int(found[1]), values, run):
            count.used += 1


def _metrics(step: int, values: dict[Any, Any], run: ImportedRun) -> bool:
    known = {ours: number_of(values.get(key)) for key, ours in METRICS.items()}
    if not any(value is not None for value in known.values()):
        return False
    run.step(step, known)
    return True


def _dump(path: Path, run: ImportedRun, count: FileCount) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            name = next(name for name in archive.namelist() if name.endswith("/data.pkl") or name == "data.pkl")
            if archive.getinfo(name).file_size > LARGEST_PICKLE:
                count.damaged["dump of more than 2 GB"] += 1
                return
            content = RestrictedUnpickler(io.BytesIO(archive.read(name))).load()
    # a damaged pickle may raise anything
    except Exception as error:
        count.damaged[f"dump that cannot be read ({type(error).__name__})"] += 1
        return
    samples = content.get("samples") if isinstance(content, dict) else None
    if not isinstance(samples, list):
        count.damaged["dump without samples"] += 1
        return
    step = count_of(content.get("rollout_id"))
    for sample in samples:
        _sample(sample, step, run, count)


def _sample(sample: Any, step: int | None, run: ImportedRun, count: FileCount) -> None:
    tokens = sample.get("tokens") if isinstance(sample, dict) else None
    response = count_of(sample.get("response_length"), 1) if isinstance(sample, dict) else None
    if not isinstance(tokens, list | tuple) or response is None or response >= len(tokens):
        count.damaged["sample without usable lengths"] += 1
        return
    versions = [int(version) for version in sample.get("weight_versions") or [] if str(version).isdecimal()]
    group = sample.get("group_index")
    status = sample.get("status")
    run.trajectories.add(
        group=f"{step}-{group}" if group is not None else None, member=count_of(sample.get("index")), step=step,
        prompt_tokens=len(tokens) - response, response_tokens=response, reward=number_of(sample.get("reward")),
        tool_s=number_of(sample.get("non_generation_time")), status=status if isinstance(status, str) else None,
        version_first=versions[0] if versions else None, version_last=versions[-1] if versions else None,
    )  # fmt: skip
    count.used += 1
