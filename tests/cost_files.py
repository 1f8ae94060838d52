"""The files of conf/ as the cost tests read them, and the loads they use."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import numpy as np
from omegaconf import OmegaConf

from simrl.config.schema import EngineCosts, HardwareConfig, IterationRates, ModelConfig, TrainerConfig

CONF = Path(__file__).parents[1] / "conf"


def load(group, schema, name):
    """Load one file of conf/ into its schema, types checked."""
    values = OmegaConf.to_container(OmegaConf.load(CONF / group / f"{name}.yaml"))
    del values["defaults"]
    if "measured" in values:  # OmegaConf makes frozen schemas read-only, so it cannot merge into the nested one
        values["measured"] = {key: EngineCosts(**costs) for key, costs in values["measured"].items()}
    if "iteration" in values:
        values["iteration"] = IterationRates(**values["iteration"])
    return OmegaConf.to_object(OmegaConf.structured(schema(**values)))


def hardware(name="h20"):
    """One file of conf/hardware."""
    return load("hardware", HardwareConfig, name)


def model(name="qwen3_8b"):
    """One file of conf/model."""
    return load("model", ModelConfig, name)


def trainer(name="megatron", **changes):
    """One file of conf/trainer, changed."""
    return replace(load("trainer", TrainerConfig, name), **changes)


def article_batch():
    """128 lengths with the article's moments: 1.33e6 tokens, sum of squares 2.14e10, some at the cap."""
    quantiles = np.array([NormalDist().inv_cdf((i + 0.5) / 128) for i in range(128)])
    response = np.minimum(np.exp(8.99 + 0.725 * quantiles), 38912)
    return np.round(response + 150).astype(np.int64)
