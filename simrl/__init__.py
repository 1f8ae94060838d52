"""SimRL: a simulator and experiment-sweep platform for asynchronous LLM reinforcement-learning post-training.

>>> import simrl
>>> result = simrl.simulate(["framework=areal", "framework.eta=2", "versions=2", "groups_per_batch=4"])
>>> result.summary["max_staleness"]
1
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

from simrl.version import VERSION

TYPE_CHECKING = False  # as typing has it, which takes longer to load than all that is here
if TYPE_CHECKING:
    from typing import Any

    from simrl.api import ConfigError, Result, SimulationConfig, SweepResult, load, load_config, simulate, sweep

__all__ = [
    "ConfigError",
    "Result",
    "SimulationConfig",
    "SweepResult",
    "load",
    "load_config",
    "simulate",
    "sweep",
]
__version__ = VERSION


def __getattr__(name: str) -> Any:
    """Load the API when one of its names is asked for: that takes half a second, and most commands need none of it."""
    if name not in __all__:
        raise AttributeError(f"module 'simrl' has no attribute {name!r}")
    return getattr(import_module("simrl.api"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Sweep(ModuleType):
    """The package simrl.sweep, to which Python binds the name of the function; so it can be called as one."""

    def __call__(self, *args: Any, **kwargs: Any) -> SweepResult:
        return import_module("simrl.api").sweep(*args, **kwargs)  # type: ignore[no-any-return]


import_module("simrl.sweep")
sys.modules["simrl.sweep"].__class__ = _Sweep
