"""How fast a simulation is: CPU seconds in one process after imports and compilation, and events per second.

Run with ``python -m pytest tests/benchmarks -n 0 -s``; the figures are printed. Limits are generous multiples of what a
2-core machine needs, so that a busy one does not fail them.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

import pytest

from simrl.config.schema import SimulationConfig
from simrl.model.engine.vllm.compilation import compile_engine
from simrl.model.simulation import simulate
from tests.conftest import compose_config


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    compile_engine()
    simulate(compose_config("versions=1"))


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Print past pytest's capture."""

    def line(text: str) -> None:
        with capsys.disabled():
            print(f"\n{text}", end="", flush=True)  # noqa: T201

    return line


def measured(config: SimulationConfig, name: str, report: Callable[[str], None], times: int = 3) -> tuple[float, int]:
    """Simulate *times* times; say and return the least CPU seconds, and the trajectories."""
    least = float("inf")
    for _ in range(times):
        started = time.process_time()
        records = simulate(config)
        least = min(least, time.process_time() - started)
    iterations = sum(instance.iterations for instance in records.instances)
    trajectories = len(records.trajectories)
    report(
        f"{name}: {least:.3f} s CPU, {trajectories} trajectories, {1e6 * least / trajectories:.0f} us each, "
        f"{records.events / least:,.0f} SimPy events/s, {iterations / least:,.0f} engine iterations/s"
    )
    return least, trajectories


def large(base: SimulationConfig) -> SimulationConfig:
    """Return 128,000 trajectories on 64 instances: 100 versions, the batch and the trainer scaled with the cluster."""
    return dataclasses.replace(
        base,
        versions=100,
        groups_per_batch=160,
        hardware=dataclasses.replace(base.hardware, gpus=1024),
        rollout=dataclasses.replace(base.rollout, instances=64),
        trainer=dataclasses.replace(base.trainer, data_parallel=32),
    )


def test_default_run(configure: Callable[..., SimulationConfig], report: Callable[[str], None]) -> None:
    """The default run (areal, eta=1) takes at most 0.3 s of CPU."""
    assert measured(configure(), "default run", report)[0] <= 0.3


def test_heavy_preemption(configure: Callable[..., SimulationConfig], report: Callable[[str], None]) -> None:
    """AReaL at eta=5 (five preemptions a trajectory) takes at most 0.6 s of CPU."""
    assert measured(configure("framework.eta=5"), "areal eta=5", report)[0] <= 0.6


def test_cost_per_trajectory_is_flat(configure: Callable[..., SimulationConfig], report: Callable[[str], None]) -> None:
    """128,000 trajectories on 64 instances cost at most 1.3 times the default run's CPU a trajectory, in the mean."""
    base = configure()
    small_s, large_s = [], []
    for _ in range(2):  # in turns, since a machine's speed drifts
        for _ in range(10):
            seconds, small = measured(base, "default run", report, times=1)
            small_s.append(seconds / small)
        seconds, count = measured(large(base), "128,000 trajectories on 64 instances", report, times=1)
        large_s.append(seconds / count)
    assert sum(large_s) / len(large_s) <= 1.3 * sum(small_s) / len(small_s)


@pytest.mark.parametrize(("framework", "limit"), [("deadline", 1.6), ("prime_rl", 1.4), ("areal", 1.4)])
def test_control_at_scale(framework: str, limit: float, report: Callable[[str], None]) -> None:
    """A trajectory costs at most *limit* times as much CPU on 200 instances as on 2, the batch in proportion."""
    few, many = (
        compose_config(
            f"framework={framework}", "framework.eta=2", f"rollout.instances={instances}", "versions=3",
            f"hardware.gpus={4 * instances}", f"trainer.data_parallel={instances // 2}",
            f"groups_per_batch={8 * instances}",
        )
        for instances in (2, 200)
    )  # fmt: skip
    few_s, many_s = [], []
    for _ in range(4):  # in turns, since a machine's speed drifts
        for _ in range(20):
            seconds, trajectories = measured(few, f"{framework} on 2 instances", lambda _: None, times=1)
            few_s.append(seconds / trajectories)
        seconds, trajectories = measured(many, f"{framework} on 200 instances", report, times=1)
        many_s.append(seconds / trajectories)
    ratio = median(many_s) / median(few_s)
    report(f"{framework}: {ratio:.2f} times a trajectory's CPU on 200 instances")
    assert ratio <= limit


def test_peak_memory(report: Callable[[str], None]) -> None:
    """128,000 trajectories on 64 instances stay under 1.5 GB."""
    script = (
        "import resource; from tests.benchmarks.test_speed import large;"
        "from tests.conftest import compose_config; from simrl.model.simulation import simulate;"
        "simulate(large(compose_config())); print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    peak_gb = int(done.stdout) * 1024 / 1e9
    report(f"peak memory: {peak_gb:.2f} GB")
    assert peak_gb < 1.5
