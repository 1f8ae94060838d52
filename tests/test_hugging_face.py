"""model=hf: the shape of a model read from its config.json."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from hydra import initialize_config_dir
from omegaconf import OmegaConf

from simrl.config.compose import compose_point, config_folder, explain, stored, typed
from simrl.config.hugging_face import READERS
from simrl.config.schema import ConfigError, ModelConfig, SimulationConfig
from simrl.runs.identity import run_id

MODELS = Path(__file__).parent / "data" / "hugging_face"
BASES: dict = {}
TWINS = {
    "Qwen3-8B": "qwen3_8b",
    "Qwen3-30B-A3B": "qwen3_30b_a3b",
    "Llama-3.1-8B": "llama3_1_8b",
    "Qwen2.5-7B": "qwen2_5_7b",
    "Qwen3.5-35B-A3B": "qwen3_5_35b_a3b",
    "DeepSeek-V3": "deepseek_v3",
    "GLM-4.5-Air": "glm_4_5_air",
    "gpt-oss-120b": "gpt_oss_120b",
}
SMALL = {
    "model_type": "llama",
    "hidden_act": "silu",
    "num_hidden_layers": 4,
    "hidden_size": 256,
    "num_attention_heads": 8,
    "intermediate_size": 512,
    "vocab_size": 1000,
}


def composed(*overrides: str) -> SimulationConfig:
    """Compose; the files are read every time."""
    with initialize_config_dir(config_folder(), version_base="1.3"):
        return typed(compose_point(list(overrides), BASES))


@pytest.fixture
def shape(tmp_path: Path):
    """Give a function from a config.json's content, and overrides, to the model."""

    def read(content: dict, *overrides: str) -> ModelConfig:
        (tmp_path / "config.json").write_text(json.dumps(content))
        return composed("model=hf", f"model.path={tmp_path}", *overrides).model

    return read


@pytest.mark.parametrize(("name", "option"), TWINS.items())
def test_a_config_json_gives_the_shape_of_the_option_for_the_same_model(name: str, option: str) -> None:
    """Read from its config.json a model is the option of model/, under its name, and the run is the same run."""
    read, own = composed("model=hf", f"model.path={MODELS / name}"), composed(f"model={option}")
    assert read == own
    assert type(read.model) is ModelConfig
    assert run_id(read) == run_id(own)


def test_the_path_may_be_the_file_its_folder_relative_or_at_home(tmp_path: Path, monkeypatch) -> None:
    """The same file is the same model whichever way it is named, and wherever it lies."""
    for folder in (tmp_path / "one", tmp_path / "home" / "two"):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(SMALL))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    one, *others = (composed("model=hf", f"model.path='{path}'") for path in (tmp_path / "one", "one", "~/two"))
    assert others == [one, one]
    assert composed("model=hf", "model.path=one/config.json") == one


def test_what_a_file_leaves_out_is_what_hugging_face_takes(shape) -> None:
    """Missing kv heads are all heads, a missing head_dim is hidden / heads, missing experts are none."""
    assert shape(SMALL) == ModelConfig(
        name="llama", layers=4, hidden=256, heads=8, kv_heads=8, head_dim=32, ffn=512, vocab=1000, tied_embeddings=False
    )


def test_the_name_is_the_files_own(shape) -> None:
    """A shape no option has is called what the file calls it, without the organisation."""
    assert shape({**SMALL, "_name_or_path": "someone/Small-1M"}).name == "Small-1M"


def test_experts_are_read_in_both_spellings(shape) -> None:
    """Qwen3-MoE's num_experts with a width of their own, and Mixtral's num_local_experts with intermediate_size."""
    qwen = shape({**SMALL, "num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 64})
    mixtral = shape({**SMALL, "num_local_experts": 8, "num_experts_per_tok": 2})
    assert (qwen.experts, qwen.experts_per_token, qwen.ffn) == (16, 4, 64)
    assert (mixtral.experts, mixtral.experts_per_token, mixtral.ffn) == (8, 2, 512)


def test_layers_with_a_window_are_read_in_both_spellings(shape) -> None:
    """Layer by layer, or as every so many; a window that no layer uses is none."""
    listed = shape({**SMALL, "layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 64})
    counted = shape({**SMALL, "sliding_window_pattern": 2, "sliding_window": 64})
    unused = shape({**SMALL, "layer_types": ["full_attention"] * 4, "sliding_window": 64})
    assert listed == counted
    assert (listed.full_attention_interval, listed.sliding_window) == (2, 64)
    assert (unused.full_attention_interval, unused.sliding_window) == (1, 0)


def test_latent_attention_with_uneven_heads_is_refused(shape) -> None:
    """Keys and values of different width, and queries that are not compressed, have no key in a model."""
    latent = {"kv_lora_rank": 64, "q_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32}
    assert shape({**SMALL, **latent}).rope_dim == 16
    for change in ({"v_head_dim": 64}, {"q_lora_rank": None}):
        with pytest.raises(ConfigError, match=next(iter(change))):
            shape({**SMALL, **latent, **change})


def test_a_multimodal_model_is_its_decoder(shape) -> None:
    """The decoder's values stand in text_config; what stands around it counts where it has none."""
    model = shape({"text_config": SMALL, "hidden_size": 9, "tie_word_embeddings": True, "vision_config": {"depth": 2}})
    assert (model.hidden, model.tied_embeddings) == (256, True)


def test_a_gemma_ties_its_embeddings_and_gates_a_gelu(shape) -> None:
    """What is said of a Gemma by its type alone."""
    gemma = {**SMALL, "model_type": "gemma", "hidden_act": "gelu_pytorch_tanh", "head_dim": 64}
    assert shape(gemma).tied_embeddings
    assert shape(gemma).head_dim == 64


def test_a_number_of_a_file_has_two_or_four_bytes(shape) -> None:
    """Dtype is read in both spellings."""
    assert shape({**SMALL, "torch_dtype": "float32"}).dtype_bytes == 4
    assert shape({**SMALL, "dtype": "bfloat16"}).dtype_bytes == 2


def test_values_on_the_command_line_win(shape) -> None:
    """Also over what the file lacks, or has wrong."""
    model = shape({**SMALL, "vocab_size": "many"}, "model.vocab=5", "model.tied_embeddings=true", "model.name=mine")
    assert (model.vocab, model.tied_embeddings, model.name) == (5, True, "mine")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kv_lora_rank", 512),
        ("layer_types", ["full_attention", "linear_attention"]),
        ("layer_types", ["sliding_attention", "sliding_attention"]),
        ("layer_types", ["chunked_attention", "full_attention"]),
        ("sliding_window", 4096),
        ("attention_chunk_size", 8192),
        ("mamba_d_state", 16),
        ("is_encoder_decoder", True),
        ("hidden_act", "gelu_new"),
        ("intermediate_size_mlp", 64),
        ("decoder_sparse_step", 2),
        ("quantization_config", {"quant_method": "awq"}),
    ],
)
def test_a_shape_that_cannot_be_expressed_is_refused_by_its_key(shape, key: str, value: object) -> None:
    """One line names the key of the file that says so."""
    with pytest.raises(ConfigError, match=key):
        shape({**SMALL, "num_experts": 16, "num_experts_per_tok": 4, key: value})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_hidden_layers": None}, "has no num_hidden_layers"),
        ({"hidden_size": -1}, "hidden_size is -1"),
        ({"hidden_size": 4096.5}, "hidden_size is 4096.5"),
        ({"num_attention_heads": True}, "num_attention_heads is True"),
        ({"vocab_size": 10**12}, "vocab_size is 1000000000000"),
        ({"num_key_value_heads": 3}, "must divide num_attention_heads"),
        ({"num_attention_heads": 7, "num_key_value_heads": 7}, "does not divide hidden_size"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no'"),
        ({"layer_types": 5}, "layer_types is 5"),
        ({"torch_dtype": ["int4"]}, "dtype is"),
        ({"num_experts": 4, "num_experts_per_tok": 5}, "experts_per_token"),
    ],
)
def test_a_value_that_is_missing_or_absurd_is_named(shape, change: dict, said: str) -> None:
    """One line says which, what it is and what it must be."""
    with pytest.raises(ConfigError) as caught:
        shape({**SMALL, **change})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "no such file"), (b"{", "not valid JSON"), (b"\xff", "not valid JSON"), (b"[1]", "must be a JSON object")],
)
def test_a_file_that_is_none_is_refused_in_one_line(tmp_path: Path, content: bytes | None, said: str) -> None:
    """Missing, not JSON, not text, not an object."""
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ConfigError, match=said) as caught:
        composed("model=hf", f"model.path={tmp_path}")
    assert "\n" not in str(caught.value)


def test_without_a_path_the_run_asks_for_it() -> None:
    """model=hf alone says what to name."""
    with pytest.raises(ConfigError, match=r"model.path=None: name the config.json"):
        composed("model=hf")


def test_a_runs_files_keep_the_values_and_not_the_path() -> None:
    """.hydra/config.yaml has the model by value; where a value is asked for by Hydra, the error is the file's line."""
    with initialize_config_dir(config_folder(), version_base="1.3"):
        config = compose_point(["model=hf", f"model.path={MODELS / 'Qwen2.5-7B'}", "versions=3"], {})
        missing = compose_point(["model=hf", "model.path=nowhere"], {})
    kept = OmegaConf.to_container(stored(config), resolve=False)
    assert kept["model"] == asdict(composed("model=qwen2_5_7b").model)
    assert kept["versions"] == 3
    with pytest.raises(Exception, match="nowhere") as caught:
        OmegaConf.resolve(missing)
    assert explain(caught.value).startswith("model.path=nowhere: no such file")


def test_every_value_of_a_model_is_read() -> None:
    """The reader and conf/model/hf.yaml know every key of a model."""
    known = {*ModelConfig.__dataclass_fields__}
    asked = OmegaConf.to_container(OmegaConf.load(Path(config_folder()) / "model" / "hf.yaml"), resolve=False)
    assert {*READERS, "name"} == known
    assert {*asked} - {"defaults", "path"} == known
