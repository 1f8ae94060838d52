"""From a workload's configuration to the workload."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simrl.config.import_path import is_import_path
from simrl.config.schema import at_least
from simrl.model.workload.batches import batches_workload
from simrl.model.workload.histogram import histogram_law
from simrl.model.workload.law import law_workload
from simrl.model.workload.lognormal import lognormal_workload
from simrl.model.workload.piecewise import piecewise_workload
from simrl.model.workload.quantiles import quantiles_law
from simrl.model.workload.trace import read_trace

if TYPE_CHECKING:
    from simrl.config.schema import WorkloadConfig
    from simrl.model.workload.lengths import Workload


def build_workload(config: WorkloadConfig, seed: int, groups_per_batch: int, group_size: int) -> Workload:
    """Build the workload a configuration describes.

    Args:
        config: The ``workload`` group.
        seed: Seeds the laws; a trace ignores it.
        groups_per_batch: Groups of one training batch; lays out the constructed load.
        group_size: Trajectories of one group.

    Returns:
        Lengths by group.

    Raises:
        ConfigError: The law can't be met or the trace can't be used.
    """
    at_least("seed", seed, 0)
    seed += config.draw
    at_least("groups_per_batch", groups_per_batch, 1)
    at_least("group_size", group_size, 1)
    if is_import_path(config.law):
        return law_workload(config, seed, group_size)
    if config.law == "trace":
        return read_trace(config, group_size)
    if config.law == "batches":
        return batches_workload(config, seed, groups_per_batch, group_size)
    if config.law == "quantiles":
        return piecewise_workload(quantiles_law(config), config, seed, group_size)
    if config.law == "histogram":
        return piecewise_workload(histogram_law(config), config, seed, group_size)
    return lognormal_workload(config, seed, group_size)
