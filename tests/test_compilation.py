"""Compiling ahead: what is compiled beside the command is what the engine calls."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from simrl.model.engine.vllm import compilation, compiled
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


def test_a_second_checkout_does_not_take_the_mark_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba keys machine code on its source's path and time, so the mark of a complete cache is of these too."""
    sources = Path(compiled.__file__).parent
    here = compiled.stamp()
    copied = shutil.copytree(sources, tmp_path / "vllm")
    monkeypatch.setattr(compiled, "__file__", str(copied / "compiled.py"))
    there = compiled.stamp()
    os.utime(copied / "stretch.py", (0, 0))
    assert len({here, there, compiled.stamp()}) == 3


def test_old_caches_go(tmp_path: Path) -> None:
    """Caches that nobody used for a month go; the one in use, the two newest others and what is no cache stay."""
    names = [f"{number:016x}" for number in range(5)]
    for age, name in enumerate([*names, "somebodys"]):
        (tmp_path / name).mkdir()
        then_s = time.time() - (31 + age) * 24 * 3600
        os.utime(tmp_path / name, (then_s, then_s))
    recent = tmp_path / "ffffffffffffffff"
    recent.mkdir()
    compiled.remove_old_caches(tmp_path / names[4])
    kept = {names[4], names[0], recent.name, "somebodys"}
    assert {entry.name for entry in tmp_path.iterdir()} == kept


@pytest.mark.parametrize("trouble", ["open to others", "a link", "another owner"])
def test_a_temporary_cache_that_others_could_fill_is_refused(
    trouble: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a home the cache is a private folder under the temporary one; one that others could fill is not used."""
    home = tmp_path / "home"
    home.write_text("")  # no folder can be made in it
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    usual = tmp_path / f"simrl-{os.getuid()}"
    assert compiled.cache_folder().parent == usual
    assert usual.stat().st_mode & 0o777 == 0o700
    if trouble == "open to others":
        usual.chmod(0o755)
    elif trouble == "a link":
        usual.rename(tmp_path / "elsewhere")
        usual.symlink_to(tmp_path / "elsewhere")
    else:
        other_uid = os.getuid() + 1
        monkeypatch.setattr(os, "getuid", lambda: other_uid)
        usual.rename(tmp_path / f"simrl-{os.getuid()}")
    other = compiled.cache_folder()
    assert other.parent == tmp_path
    assert other.stat().st_mode & 0o777 == 0o700
    assert os.environ["NUMBA_CACHE_DIR"] == str(other)  # the processes that are started here share it
