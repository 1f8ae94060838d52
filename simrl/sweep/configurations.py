"""From a sweep's points to checked configurations, each part of the work done once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from hydra import initialize_config_dir
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from simrl.config.compose import compose_point, explain, typed
from simrl.config.composition import Compositions
from simrl.config.option_folders import config_folder
from simrl.config.schema import ConfigError, SimulationConfig
from simrl.model.feasibility import check
from simrl.model.workload import Workload, build_workload
from simrl.sweep.grid import Point
from simrl.sweep.left_out import InfeasibleError, LeftOut

SEED_INTERPOLATION = re.compile(r"\$\{[^}]*seed")


class Configurations:
    """The configurations met so far.

    Points that choose the same options share one composition, and points that differ in the seed alone one typed
    configuration (unless something in it is computed from the seed).
    """

    def __init__(self, check_composed: Callable[[DictConfig], object] = lambda _: None):
        """Begin with none; *check_composed* is called with each composed configuration before it is typed."""
        self._check_composed = check_composed
        self._compositions: Compositions = {}
        self._seedless: dict[tuple[str, ...], SimulationConfig | None] = {}
        self._traces: dict[str, Workload] = {}

    def checked(self, overrides: Sequence[str]) -> SimulationConfig:
        """Return the configuration of one point that can be simulated; needs an initialised Hydra.

        Raises:
            InfeasibleError: if its values cannot.
            ConfigError: for a key or an option that does not exist.
        """
        config = self._typed(overrides)
        with _infeasible():
            check(config, self._workload(config))
        return config

    def _workload(self, config: SimulationConfig) -> Workload:
        """Build a point's workload; a trace is read once."""
        given = (config.workload, config.seed, config.groups_per_batch, config.group_size)
        if config.workload.law != "trace":
            return build_workload(*given)
        if repr(given) not in self._traces:
            self._traces[repr(given)] = build_workload(*given)
        return self._traces[repr(given)]

    def _typed(self, overrides: Sequence[str]) -> SimulationConfig:
        """Compose one point, or take another seed's configuration."""
        rest, seed = _without_seed(overrides)
        known = self._seedless.get(rest)
        if known is not None and seed is not None:
            return replace(known, seed=seed)
        composed = compose_point(list(overrides), self._compositions)
        self._check_composed(composed)
        with _infeasible():
            config = typed(composed)
        if rest not in self._seedless:
            text = str(OmegaConf.to_container(composed, resolve=False))
            self._seedless[rest] = None if SEED_INTERPOLATION.search(text) else config
        return config


@contextmanager
def _infeasible() -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        raise InfeasibleError(error.key, error.value, error.hint) from error


def configurations(points: Sequence[Point], file: str = "sweep") -> list[SimulationConfig]:
    """Return every point's checked configuration; nothing runs before all of them hold.

    Raises:
        ConfigError: for the first point that cannot be simulated.
    """
    return [config for config in feasible(points, file, skip=False) if not isinstance(config, LeftOut)]


def feasible(points: Sequence[Point], file: str = "sweep", *, skip: bool) -> list[SimulationConfig | LeftOut]:
    """Return every point's checked configuration, or, if such points are skipped, why it cannot be simulated.

    Raises:
        ConfigError: for the first point that cannot be simulated and is not skipped.
    """
    met = Configurations()
    out: list[SimulationConfig | LeftOut] = []
    with initialize_config_dir(config_folder(), version_base="1.3"):
        for number, point in enumerate(points):
            try:
                out.append(met.checked(point.overrides))
            except (ConfigError, HydraException, OmegaConfBaseException) as error:
                if not (skip and isinstance(error, InfeasibleError)):
                    raise refusal_of_point(file, point, explain(error)) from error
                out.append(LeftOut(number, point.overrides, str(error)))
    return out


def refusal_of_point(file: str, point: Point, reason: str) -> ConfigError:
    """Return the error of a point of a sweep file that cannot be simulated."""
    return ConfigError(f"{file}: block", point.block, f"{reason} ({' '.join(point.overrides)})")


def _without_seed(overrides: Iterable[str]) -> tuple[tuple[str, ...], int | None]:
    """Return the overrides without the seed's, and the seed if it is a plain number."""
    rest = tuple(override for override in overrides if not override.startswith("seed="))
    seeds = [override.removeprefix("seed=") for override in overrides if override.startswith("seed=")]
    return rest, int(seeds[0]) if len(seeds) == 1 and seeds[0].isdecimal() else None
