"""Shapes that measured rows are of and conf/model has not; slime scripts/models (vime b332ffc), model cards."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from simrl.config.schema import ModelConfig
from tests.cost_files import hardware, model

CARD = cache(hardware)

SHAPES = {
    shape.name: shape
    for shape in (
        ModelConfig("qwen2_5_0_5b", 24, 896, 14, 2, 64, 4864, 151936, tied_embeddings=True, attention_bias=True),
        ModelConfig("qwen3_0_6b", 28, 1024, 16, 8, 128, 3072, 151936, tied_embeddings=True),
        ModelConfig("qwen2_5_14b", 48, 5120, 40, 8, 128, 13824, 152064, tied_embeddings=False, attention_bias=True),
        ModelConfig("qwen2_5_72b", 80, 8192, 64, 8, 128, 29568, 152064, tied_embeddings=False, attention_bias=True),
        ModelConfig("llama3_1_405b", 126, 16384, 128, 8, 128, 53248, 128256, tied_embeddings=False),
        ModelConfig(
            "minimax_m2_5", 62, 3072, 48, 8, 128, 1536, 200064, tied_embeddings=False, experts=256, experts_per_token=8
        ),
        ModelConfig(
            "qwen3_5_397b_a17b",
            60,
            4096,
            32,
            2,
            256,
            1024,
            248320,
            tied_embeddings=False,
            experts=512,
            experts_per_token=10,
            shared_ffn=1024,
            full_attention_interval=4,
            linear_key_heads=16,
            linear_value_heads=64,
            linear_head_dim=128,
            attention_gate=True,
        ),
    )
}


@cache
def shape(name):
    """One model by the name its rows have."""
    if name == "llama3_1_70b":
        return replace(model("llama3_3_70b"), name=name)
    return SHAPES[name] if name in SHAPES else model(name)
