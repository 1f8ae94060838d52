"""The model: the shape of a decoder-only transformer."""

from __future__ import annotations

from dataclasses import dataclass, fields

from simrl.config.ranges import ConfigError, at_least, more_than


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a decoder-only transformer."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    """Width of the feed-forward layer (of one expert, if there are experts)."""
    vocab: int
    tied_embeddings: bool
    """Whether the output head shares the embedding's weights."""
    experts: int = 1
    experts_per_token: int = 1
    dtype_bytes: int = 2
    """Bytes of one weight and of one KV element."""
    attention_bias: bool = False
    """Whether the q, k and v projections carry biases."""
    dense_layers: int = 0
    """Layers of a model with experts that have one dense feed-forward layer instead."""
    dense_ffn: int = 0
    """Width of the feed-forward layer of those."""
    shared_ffn: int = 0
    """Width of the experts that every token goes through, together; per layer with experts."""
    kv_lora_rank: int = 0
    """Multi-head latent attention: elements a token's keys and values are compressed to; 0 without it."""
    q_lora_rank: int = 0
    """Multi-head latent attention: the same for the queries."""
    rope_dim: int = 0
    """Multi-head latent attention: elements of a key that carry the position."""
    full_attention_interval: int = 1
    """Every so many layers one attends to the whole context; the others have a window or a linear attention."""
    sliding_window: int = 0
    """Tokens the other layers attend to; 0 if they have no window."""
    linear_key_heads: int = 0
    """Linear attention of the other layers: heads of keys; 0 if they have none."""
    linear_value_heads: int = 0
    """Linear attention: heads of values."""
    linear_head_dim: int = 0
    """Linear attention: elements of a head, of keys and of values."""
    attention_gate: bool = False
    """Whether the attention's output is gated by a projection as wide as the queries."""
    expert_weight_bytes: float | None = None
    """Bytes of one weight of an expert in the published checkpoint, if not dtype_bytes."""

    def __post_init__(self) -> None:
        check_model(self)


@dataclass(frozen=True)
class HuggingFaceModel(ModelConfig):
    """A model whose values come from a ``config.json``, see :mod:`simrl.config.hugging_face`."""

    path: str | None = None
    """The file or its folder."""

    def shape(self) -> ModelConfig:
        """Return the model itself: where it was read is no part of it."""
        return ModelConfig(**{part.name: getattr(self, part.name) for part in fields(ModelConfig)})


def check_model(model: ModelConfig) -> None:
    """Refuse a shape that no transformer has."""
    for key in ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "experts", "dtype_bytes"):
        at_least(f"model.{key}", getattr(model, key), 1)
    if not 1 <= model.experts_per_token <= model.experts:
        raise ConfigError(
            "model.experts_per_token", model.experts_per_token, f"must be 1 to model.experts ({model.experts})"
        )
    check_parts(model)


def check_parts(model: ModelConfig) -> None:
    """Refuse a latent attention, a window, a linear attention or dense layers that are half described."""
    for key in ("dense_ffn", "shared_ffn", "kv_lora_rank", "sliding_window", "linear_value_heads"):
        at_least(f"model.{key}", getattr(model, key), 0)
    at_least("model.full_attention_interval", model.full_attention_interval, 1)
    if not 0 <= model.dense_layers <= model.layers:
        raise ConfigError("model.dense_layers", model.dense_layers, f"must be 0 to model.layers ({model.layers})")
    if model.dense_layers:
        at_least("model.dense_ffn", model.dense_ffn, 1)
    if model.kv_lora_rank:
        at_least("model.q_lora_rank", model.q_lora_rank, 1)
        at_least("model.rope_dim", model.rope_dim, 1)
    if model.linear_value_heads:
        at_least("model.linear_key_heads", model.linear_key_heads, 1)
        at_least("model.linear_head_dim", model.linear_head_dim, 1)
    if model.full_attention_interval > 1 and not (model.sliding_window or model.linear_value_heads):
        raise ConfigError(
            "model.full_attention_interval",
            model.full_attention_interval,
            "says that some layers do not see the whole context; set model.sliding_window or model.linear_value_heads",
        )
    more_than("model.expert_weight_bytes", model.expert_weight_bytes, 0)
