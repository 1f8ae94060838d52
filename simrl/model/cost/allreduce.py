"""The time of one all-reduce among the ranks of a rollout instance, as engines run it inside a CUDA graph."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from simrl.model.cost.allreduce_tables import FIRST_ELEMENTS, MEASURED_US

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from simrl.config.schema import HardwareConfig

ELEMENT_BYTES = 2
"""All-reduces carry bf16."""
# assumed for cards without a table: H100's two-rank latency, and the third of the link that its four and eight ranks
# reach from 16 KB to 8 MB (150 of 450 GB/s); AIConfigurator 095f58a, vLLM's custom all-reduce
ASSUMED_LATENCY_S = 5e-6
ASSUMED_LINK_SHARE = 1 / 3


def allreduce_s(hardware: HardwareConfig, ranks: int, elements: ArrayLike) -> NDArray[np.float64]:
    """Time one all-reduce.

    Within a node the card's measured table is made monotone from its large end, read log-log, and extended beyond its
    end by the bandwidth of its last step. A number of ranks without a table takes that of the next larger one. Among
    nodes the slower network's share of a ring comes on top (assumed).

    Args:
        hardware: Gives the table and the links.
        ranks: Accelerators that reduce; 1 takes no time.
        elements: Length of the vector, elements of two bytes; any shape.

    Returns:
        Duration, s; same shape.
    """
    size = np.asarray(elements, dtype=np.float64)
    if ranks == 1:
        return np.zeros_like(size)
    inside = min(ranks, hardware.gpus_per_node)
    seconds = _within_node_s(hardware, inside, size)
    nodes = -(-ranks // hardware.gpus_per_node)
    if nodes > 1:
        ring = 2 * (nodes - 1) / nodes * size * ELEMENT_BYTES
        seconds = seconds + ring / (inside * hardware.network_bytes_per_s)
    return seconds


def _within_node_s(hardware: HardwareConfig, ranks: int, elements: NDArray[np.float64]) -> NDArray[np.float64]:
    """Time of an all-reduce in one node, s; same shape as *elements*."""
    rates = hardware.iteration
    if rates.allreduce_table is None:
        rate = hardware.link_bytes_per_s * ASSUMED_LINK_SHARE
        return rates.allreduce_scale * (ASSUMED_LATENCY_S + elements * ELEMENT_BYTES / rate)
    tables = MEASURED_US[rates.allreduce_table]
    known = min((key for key in tables if key >= ranks), default=max(tables))
    measured = np.asarray(tables[known]) * 1e-6
    monotone = np.minimum.accumulate(measured[::-1])[::-1]
    grid = FIRST_ELEMENTS * 2.0 ** np.arange(len(monotone))
    within: NDArray[np.float64] = np.exp(np.interp(np.log(np.maximum(elements, 1.0)), np.log(grid), np.log(monotone)))
    per_element_s = (monotone[-1] - monotone[-2]) / (grid[-1] - grid[-2])
    beyond: NDArray[np.float64] = np.maximum(elements - grid[-1], 0.0) * per_element_s
    return rates.allreduce_scale * (within + beyond)


def layer_allreduces_s(hardware: HardwareConfig, ranks: int, elements: ArrayLike) -> NDArray[np.float64]:
    """Time the two all-reduces of one layer, with what an engine adds to their kernels.

    Args:
        hardware: Gives the table, the links and the time to synchronise.
        ranks: Accelerators that reduce.
        elements: Length of each vector, elements; any shape.

    Returns:
        Duration, s; same shape.
    """
    return 2 * (allreduce_s(hardware, ranks, elements) + hardware.iteration.sync_s * math.log2(ranks))
