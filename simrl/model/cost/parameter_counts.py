"""Parameters of a model, counted from its shape; the counts agree with the models' published totals.

Attention is grouped-query, multi-head latent (DeepSeek's; ``kv_lora_rank`` above 0) or, in all but every
``full_attention_interval``-th layer of a hybrid model, a gated delta net (Qwen3.5's; ``linear_value_heads`` above 0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simrl.config.schema import ModelConfig


def full_attention_layers(model: ModelConfig) -> int:
    """Count the layers that attend to the whole context.

    Args:
        model: Shape of the model.

    Returns:
        Number of layers; the others have a window or a linear attention.
    """
    return model.layers // model.full_attention_interval


def linear_attention_layers(model: ModelConfig) -> int:
    """Count the layers whose attention keeps a state of fixed size.

    Args:
        model: Shape of the model.

    Returns:
        Number of layers.
    """
    return model.layers - full_attention_layers(model) if model.linear_value_heads else 0


def moe_layers(model: ModelConfig) -> int:
    """Count the layers with experts.

    Args:
        model: Shape of the model.

    Returns:
        Number of layers; 0 in a dense model.
    """
    return model.layers - model.dense_layers if model.experts > 1 else 0


def _softmax_attention_weights(model: ModelConfig) -> int:
    """Weights of one layer's softmax attention: its projections."""
    if model.kv_lora_rank:
        query_key = model.head_dim + model.rope_dim
        query = model.hidden * model.q_lora_rank + model.q_lora_rank * model.heads * query_key
        compressed = model.hidden * (model.kv_lora_rank + model.rope_dim)
        expanded = model.kv_lora_rank * model.heads * 2 * model.head_dim
        return query + compressed + expanded + model.heads * model.head_dim * model.hidden
    gate = model.heads if model.attention_gate else 0
    return model.hidden * model.head_dim * (2 * model.heads + gate + 2 * model.kv_heads)


def _linear_attention_weights(model: ModelConfig) -> int:
    """Weights of one gated delta net: q, k, v and gate, the two scalars a head, the output projection."""
    keys = model.linear_key_heads * model.linear_head_dim
    values = model.linear_value_heads * model.linear_head_dim
    return model.hidden * (2 * keys + 2 * values + 2 * model.linear_value_heads) + values * model.hidden


def attention_weights(model: ModelConfig) -> int:
    """Count the weights of the attention of all layers.

    Args:
        model: Shape of the model.

    Returns:
        Number of weights, biases left out.
    """
    linear = linear_attention_layers(model)
    weights = (model.layers - linear) * _softmax_attention_weights(model)
    return weights + linear * _linear_attention_weights(model)


def expert_weights(model: ModelConfig) -> int:
    """Count the weights of one expert of one layer (gate, up and down projection); a dense layer is one expert.

    Args:
        model: Shape of the model.

    Returns:
        Number of weights.
    """
    return 3 * model.hidden * model.ffn


def always_read_weights(model: ModelConfig) -> int:
    """Count the weights that every token is multiplied with, head and embedding left out.

    Args:
        model: Shape of the model.

    Returns:
        Attention, dense feed-forward layers, shared experts and routers of all layers; number of weights.
    """
    experts = moe_layers(model)
    shared = experts * (3 * model.hidden * model.shared_ffn + model.hidden * model.experts)
    dense = model.dense_layers * 3 * model.hidden * model.dense_ffn
    if not experts:
        dense += (model.layers - model.dense_layers) * expert_weights(model)
    return attention_weights(model) + shared + dense


def parameter_count(model: ModelConfig) -> int:
    """Count all parameters: embedding, head, every expert, norms, biases.

    Norms on q and k are counted for every model although not all have them; for the others that is one
    parameter in a million too many.

    Args:
        model: Shape of the model.

    Returns:
        Number of parameters.
    """
    embeddings = model.vocab * model.hidden * (1 if model.tied_embeddings else 2)
    norms = 2 * model.hidden + 2 * model.head_dim
    biases = (model.heads + 2 * model.kv_heads) * model.head_dim if model.attention_bias else 0
    experts = moe_layers(model) * model.experts * expert_weights(model)
    layers = always_read_weights(model) + experts + model.layers * (norms + biases)
    return embeddings + layers + model.hidden


def multiplied_parameters(model: ModelConfig) -> int:
    """Count the parameters one token is multiplied with in a forward pass.

    The embedding is a lookup and does not count, the head does, tied or not; of the experts only the chosen ones.

    Args:
        model: Shape of the model.

    Returns:
        Number of parameters; a forward pass spends twice as many FLOPs a token on them.
    """
    chosen = moe_layers(model) * model.experts_per_token * expert_weights(model)
    return model.vocab * model.hidden + always_read_weights(model) + chosen
