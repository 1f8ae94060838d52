"""The shape of a model from the ``config.json`` of a Hugging Face model: ``model=hf model.path=config.json``.

Every value of ``conf/model/hf.yaml`` asks for itself (``${hugging_face:layers}``), so one that is given on the command
line is never looked for. What a :class:`simrl.config.schema.ModelConfig` cannot express is refused, not approximated.

A shape that an option of ``model/`` has takes that option's name, so that costs which were measured for it are used.

Source of the keys: the configuration classes of Hugging Face transformers 4.57 (Llama, Mistral, Mixtral, Qwen2, Qwen3,
Qwen3-MoE, Qwen3-Next, Gemma, DeepSeek-V3, GLM-4-MoE, gpt-oss).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from simrl.config.schema import ConfigError, ModelConfig

FILE = "config.json"
LARGEST = 10**8
"""No size of a transformer is larger."""
LARGEST_FILE_BYTES = 10_000_000
"""A configuration has some kB; more is a file of weights."""
LANGUAGE_PARTS = ("text_config", "llm_config")
"""Where a multimodal model keeps its decoder."""
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
GATED = ("silu", "swish")
"""Activations of a gated feed-forward layer (three matrices), which is what a ModelConfig has; so has every Gemma."""
BIASED = ("qwen2", "qwen2_moe", "qwen2_vl_text", "qwen2_5_vl_text", "qwen2_vl", "qwen2_5_vl")
"""Model types whose q, k and v have biases although their file says nothing of it."""
BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
MXFP4_BYTES = 0.53125
"""4 bits, and an 8-bit scale for 32 weights."""
OTHER_ATTENTION = {
    "mamba_d_state": "state-space layers",
    "attn_layer_period": "state-space layers",
    "attention_chunk_size": "chunked attention",
}
SPARSE_IN_SOME = ("decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step")
"""Keys that say, by a number above 1, that layers with experts alternate with dense ones."""
HINT = "which a SimRL model cannot express; choose another model, or write an option of model/ that comes near"


@dataclass(frozen=True)
class ConfigFile:
    """A config.json: its decoder, and what stands around it in a multimodal model."""

    path: str
    """As the user wrote it."""
    decoder: Mapping[str, Any]
    outer: Mapping[str, Any]

    def refuse(self, reason: str) -> ConfigError:
        """Return the error of this file."""
        return ConfigError("model.path", self.path, reason)

    def get(self, *names: str) -> Any:
        """Return the first of several keys that the file has with a value; None if it has none."""
        for content in (self.decoder, self.outer):
            for name in names:
                if content.get(name) is not None:
                    return content[name]
        return None

    def count(self, *names: str, default: int | None = None) -> int:
        """Return a size under the first of several keys.

        Raises:
            ConfigError: if it is missing and has no default, or is no size.
        """
        value = self.get(*names)
        if value is None:
            if default is None:
                raise self.refuse(f"has no {' or '.join(names)}; give a decoder's {FILE}, or the value it lacks")
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LARGEST:
            raise self.refuse(f"{names[0]} is {value!r}; must be a whole number from 1 to {LARGEST}")
        return value

    def size(self, *names: str) -> int:
        """Return a size under the first of several keys; 0 if there is none of it."""
        return self.count(*names) if self.get(*names) else 0

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a key that is true or false."""
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.refuse(f"{name} is {value!r}; must be true or false")
        return value

    def items(self, name: str) -> list[Any]:
        """Return a list under a key; an empty one if there is none."""
        value = self.get(name)
        if value is not None and not isinstance(value, list):
            raise self.refuse(f"{name} is {value!r}; must be a list")
        return value or []

    def refuse_any(self, keys: Mapping[str, str]) -> None:
        """Raise ConfigError if the decoder has one of *keys*, key -> what it means, switched on."""
        for key, meaning in keys.items():
            if self.decoder.get(key):
                raise self.refuse(f"has {key} ({meaning}), {HINT}")


def read(path: str | None) -> ConfigFile:
    """Read a config.json.

    Args:
        path: the file or its folder; ``~`` is the home folder, a relative path begins at the working directory.

    Raises:
        ConfigError: if there is none, or it is not one.
    """
    if not path:
        raise ConfigError("model.path", path, f"name the {FILE} of a Hugging Face model, or its folder")
    file = Path(path).expanduser()
    file = file / FILE if os.path.isdir(file) else file  # noqa: PTH112 - Path.is_dir raises for long names
    if not os.path.isfile(file):  # noqa: PTH113
        raise ConfigError("model.path", path, f"no such file (looked for {file.absolute()}); name a {FILE}")
    try:
        if file.stat().st_size > LARGEST_FILE_BYTES:
            raise ConfigError("model.path", path, f"is too large for a model's configuration; name its {FILE}")
        content = json.loads(file.read_bytes())
    except OSError as error:
        raise ConfigError("model.path", path, f"cannot be read ({error.strerror}); allow it, or copy it") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError("model.path", path, f"is not valid JSON ({error}); download the file again") from error
    if not isinstance(content, dict):
        raise ConfigError("model.path", path, f"must be a JSON object; name a model's {FILE}")
    parts = (content[part] for part in LANGUAGE_PARTS if isinstance(content.get(part), dict))
    return ConfigFile(path, next(parts, content), content)


def blocks(file: ConfigFile) -> dict[str, Any]:
    """Return number and width of the layers."""
    if file.get("is_encoder_decoder"):
        raise file.refuse(f"has is_encoder_decoder (an encoder beside the decoder), {HINT}")
    return {"layers": file.count("num_hidden_layers"), "hidden": file.count("hidden_size")}


def attention(file: ConfigFile) -> dict[str, Any]:
    """Return the heads of an attention with grouped keys and values, or with latent ones.

    Raises:
        ConfigError: for an attention of another kind.
    """
    file.refuse_any(OTHER_ATTENTION)
    heads = file.count("num_attention_heads")
    kv_heads = file.count("num_key_value_heads", default=heads)
    if heads % kv_heads:
        raise file.refuse(f"num_key_value_heads is {kv_heads}; must divide num_attention_heads ({heads})")
    bias = file.flag("attention_bias", default=file.get("model_type") in BIASED)
    shape = {"heads": heads, "kv_heads": kv_heads, "attention_bias": bias}
    if file.get("kv_lora_rank"):
        return {**shape, **_latent(file)}
    if file.get("head_dim") is None and file.count("hidden_size") % heads:
        raise file.refuse(f"has no head_dim, and num_attention_heads ({heads}) does not divide hidden_size")
    head_dim = file.count("head_dim", default=file.count("hidden_size") // heads)
    return {**shape, "head_dim": head_dim, "kv_lora_rank": 0, "q_lora_rank": 0, "rope_dim": 0}


def _latent(file: ConfigFile) -> dict[str, Any]:
    """Return the sizes of multi-head latent attention."""
    if file.get("q_lora_rank") is None:
        raise file.refuse(f"has kv_lora_rank without q_lora_rank (queries that are not compressed), {HINT}")
    keys, values = file.count("qk_nope_head_dim"), file.count("v_head_dim")
    if keys != values:
        raise file.refuse(f"has v_head_dim={values} beside qk_nope_head_dim={keys}, {HINT}")
    ranks = {"kv_lora_rank": file.count("kv_lora_rank"), "q_lora_rank": file.count("q_lora_rank")}
    return {"head_dim": keys, "rope_dim": file.count("qk_rope_head_dim"), **ranks}


def layer_kinds(file: ConfigFile) -> dict[str, Any]:
    """Return which layers attend to the whole context, and what the others do: a window, or linear attention.

    Raises:
        ConfigError: if no layer attends to the whole context, or not one in so many.
    """
    shape = {"full_attention_interval": 1, "sliding_window": 0, "attention_gate": False}
    shape |= dict.fromkeys(("linear_key_heads", "linear_value_heads", "linear_head_dim"), 0)
    kinds = [str(kind) for kind in file.items("layer_types")]
    others = {*kinds} - {"full_attention"}
    shape["full_attention_interval"] = interval = _full_attention_every(file, kinds)
    gated = str(file.get("model_type")).startswith(("qwen3_next", "qwen3_5"))
    shape["attention_gate"] = file.flag("attn_output_gate", default=gated)
    if others == {"linear_attention"} or (not kinds and interval > 1 and file.get("linear_num_value_heads")):
        head_dim = file.count("linear_key_head_dim")
        if file.count("linear_value_head_dim") != head_dim:
            raise file.refuse(f"has linear_value_head_dim beside linear_key_head_dim={head_dim}, {HINT}")
        heads = {f"linear_{kind}_heads": file.count(f"linear_num_{kind}_heads") for kind in ("key", "value")}
        return {**shape, **heads, "linear_head_dim": head_dim}
    if others - {"sliding_attention"}:
        raise file.refuse(f"has {', '.join(sorted(others))} in layer_types, {HINT}")
    windows = others or (not kinds and file.flag("use_sliding_window", default=True) and file.get("sliding_window"))
    if windows and interval == 1:
        raise file.refuse(f"has sliding_window={file.get('sliding_window')!r} in all layers, {HINT}")
    return {**shape, "sliding_window": file.count("sliding_window") if windows else 0}


def _full_attention_every(file: ConfigFile, kinds: list[str]) -> int:
    """Return every how many layers one attends to the whole context."""
    if not kinds:
        return file.count("full_attention_interval", "sliding_window_pattern", default=1)
    full = [place for place, kind in enumerate(kinds, start=1) if kind == "full_attention"]
    interval = len(kinds) // len(full) if full else 0
    if full != [*range(interval, len(kinds) + 1, interval or 1)] or not full:
        raise file.refuse(f"has layer_types in which not every {interval or 'so many'}th is full_attention, {HINT}")
    return interval


def feed_forward(file: ConfigFile) -> dict[str, Any]:
    """Return the width of a gated feed-forward layer, or of one expert, the experts, and the layers without them.

    Raises:
        ConfigError: for a layer without a gate, and for experts in every second or third layer.
    """
    activation = file.get("hidden_act", "hidden_activation", "hidden_activation_function")
    gemma = str(file.get("model_type")).startswith("gemma")
    if activation not in GATED and not gemma:
        raise file.refuse(f"hidden_act is {activation!r} (a feed-forward layer without a gate), {HINT}")
    dense = {"dense_layers": 0, "dense_ffn": 0, "shared_ffn": 0}
    experts = file.count(*EXPERTS, default=1)
    if experts == 1:
        return {"ffn": file.count("intermediate_size"), "experts": 1, "experts_per_token": 1, **dense}
    file.refuse_any({"intermediate_size_mlp": "dense layers among those with experts"})
    for key in SPARSE_IN_SOME:
        if file.get(key) not in (None, 1):
            raise file.refuse(f"has {key}={file.get(key)!r} (dense layers among those with experts), {HINT}")
    width = file.count("moe_intermediate_size", "intermediate_size")
    if dense_layers := file.size("first_k_dense_replace") or len(file.items("mlp_only_layers")):
        dense |= {"dense_layers": dense_layers, "dense_ffn": file.count("intermediate_size")}
    shared = file.size("n_shared_experts", "num_shared_experts") * width
    dense["shared_ffn"] = shared or file.size("shared_expert_intermediate_size")
    return {
        "ffn": width,
        "experts": experts,
        "experts_per_token": file.count("num_experts_per_tok", "num_experts_per_token"),
        **dense,
    }


def embeddings(file: ConfigFile) -> dict[str, Any]:
    """Return the vocabulary and whether the head shares its weights; a Gemma's does where its file is silent."""
    gemma = str(file.get("model_type")).startswith("gemma")
    return {"vocab": file.count("vocab_size"), "tied_embeddings": file.flag("tie_word_embeddings", default=gemma)}


def number_format(file: ConfigFile) -> dict[str, Any]:
    """Return the bytes of a number in training, bf16 if the file says nothing, and of a published expert's weight.

    Weights that are published in fp8 were trained in what ``dtype`` says; ``rollout.weight_precision`` serves them so.

    Raises:
        ConfigError: for another quantization.
    """
    quantization = file.get("quantization_config")
    method = quantization.get("quant_method") if isinstance(quantization, dict) else quantization
    if method not in (None, "fp8", "mxfp4"):
        hint = "choose the unquantized model, or give model.dtype_bytes and model.expert_weight_bytes"
        raise file.refuse(f"has quantization_config of {method!r}; {hint}")
    dtype = file.get("dtype", "torch_dtype") or "bfloat16"
    if str(dtype) not in BYTES:
        raise file.refuse(f"dtype is {dtype!r}; must be one of {', '.join(BYTES)}, or give model.dtype_bytes")
    return {"dtype_bytes": BYTES[dtype], "expert_weight_bytes": MXFP4_BYTES if method == "mxfp4" else None}


CONCERNS: dict[Callable[[ConfigFile], dict[str, Any]], tuple[str, ...]] = {
    blocks: ("layers", "hidden"),
    attention: ("heads", "kv_heads", "head_dim", "attention_bias", "kv_lora_rank", "q_lora_rank", "rope_dim"),
    layer_kinds: (
        "full_attention_interval",
        "sliding_window",
        "linear_key_heads",
        "linear_value_heads",
        "linear_head_dim",
        "attention_gate",
    ),
    feed_forward: ("ffn", "experts", "experts_per_token", "dense_layers", "dense_ffn", "shared_ffn"),
    embeddings: ("vocab", "tied_embeddings"),
    number_format: ("dtype_bytes", "expert_weight_bytes"),
}
"""What is read together, and the values of a model that it gives: all but the name."""
READERS = {key: reader for reader, keys in CONCERNS.items() for key in keys}


def value(key: str, path: str | None, options: Path) -> Any:
    """Return one value of the model that a config.json describes.

    Args:
        key: field of :class:`simrl.config.schema.ModelConfig`.
        path: the config.json, or its folder.
        options: the folder of SimRL's own models.

    Raises:
        ConfigError: if the file cannot be read or its model not be expressed; one line that names the file's key.
    """
    file = read(path)
    return model_name(file, options) if key == "name" else READERS[key](file)[key]


def model_name(file: ConfigFile, options: Path) -> str:
    """Return the name of the option that has the file's shape; else the file's own, without the organisation's."""
    own = str(file.get("_name_or_path") or file.get("model_type") or "hf").rstrip("/").rpartition("/")[2]
    with suppress(ConfigError):  # values given on the command line may stand for what cannot be read
        shape = {key: part for reader in CONCERNS for key, part in reader(file).items()}
        return next((known.name for known in _known(options) if known == ModelConfig(known.name, **shape)), own)
    return own


def _known(options: Path) -> Iterator[ModelConfig]:
    """Yield SimRL's own models, by name."""
    names = {field.name for field in fields(ModelConfig)}
    for file in sorted(options.glob("*.yaml")):
        content: Any = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
        if "path" not in content:  # one that reads a file itself
            yield ModelConfig(**{key: part for key, part in content.items() if key in names})
