"""Named random streams: one for each subsystem, so that no subsystem's draws shift another's."""

from __future__ import annotations

import zlib

import numpy as np


def stream(seed: int, name: str, *key: int) -> np.random.Generator:
    """Return the random stream of one subsystem.

    Args:
        seed: The run's seed, 0 or more.
        name: The subsystem, for instance ``workload.prompts``.
        key: Numbers that split the subsystem's stream further (a chunk, an instance), each 0 or more.

    Returns:
        A fresh PCG64 generator; the same arguments always give the same draws.
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(zlib.crc32(name.encode()), *key))
    return np.random.Generator(np.random.PCG64(sequence))
