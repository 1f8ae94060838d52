"""Compiling ahead: what is compiled beside the command is what the engine calls."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simrl.model.engine.vllm import compilation
from simrl.model.engine.vllm.compilation import PARTS, calls_of, compile_engine, compiling_ahead, load_engine

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("part", PARTS)
def test_parts_are_compiled_for_the_types_the_engine_calls_them_with(part: str) -> None:
    """What was compiled ahead for types that nothing calls it with would stand in the cache beside what is called."""
    with compiling_ahead() as parts:
        compile_engine(ahead=parts)
    load_engine()
    for function, types in calls_of(part):
        assert function.signatures in ([types], []), function.__name__  # none if its callers came from the cache
        name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}-*.nbc"
        assert len(list(Path(function.stats.cache_path).glob(name))) == 1, name


def test_a_part_goes_to_the_cache(tmp_path: Path) -> None:
    """The process that compiles a part leaves it in the cache folder."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    environment.pop("NUMBA_CACHE_DIR", None)
    command = [sys.executable, "-m", "simrl.model.engine.vllm.compilation", "iteration"]
    subprocess.run(command, env=environment, cwd=tmp_path, check=True)
    assert {file.name.split("-")[0] for file in tmp_path.rglob("*.nbi")} >= {"stretch.end_iteration", "scheduler.abort"}


def test_nothing_is_compiled_ahead_if_all_is_there() -> None:
    """With a complete cache no process starts."""
    compile_engine()
    with compiling_ahead() as parts:
        assert parts == []


def test_what_is_not_waited_for_is_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A block that ends, by an error too, before it needed the engine leaves no compiler behind."""
    monkeypatch.setattr(compilation, "COMPLETE", tmp_path / "missing")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with compiling_ahead() as parts:  # the block waits for nothing
        pass
    assert len(parts) == len(PARTS)
    assert all(part.returncode is not None for part in parts)
