"""Models of Hugging Face's config.json: parameters are those of Transformers, or a key is refused."""

import csv
import json
import re
from pathlib import Path

import pytest
import yaml

from itertime import ModelSpec, load_model
from itertime.cli import main
from itertime.errors import UserError
from itertime.spec import refusal_of
from itertime.spec.hub import imported_model
from tests.places import SHARED

CONFIGS = yaml.safe_load((Path(__file__).parent / "hub_configs.yaml").read_text(encoding="utf-8"))
LLAMA = {"model_type": "llama", **CONFIGS["llama"]}
del LLAMA["parameters"]


@pytest.mark.parametrize("architecture", CONFIGS)
def test_parameters_are_those_that_transformers_builds(architecture):
    config = dict(CONFIGS[architecture])
    expected = config.pop("parameters")
    model = imported_model({"model_type": architecture, **config}, "config.json")
    assert ModelSpec(**model.keys).parameters == model.parameters == expected


def test_published_configs_have_their_parameters(tmp_path):
    """Those of `cases/train`, to 0.01 %, as `models show` and a written file state them."""
    folder = SHARED / "cases" / "train" / "hf_configs"
    if not folder.exists():
        pytest.skip("needs shared/cases/train")
    with (folder / "expected.csv").open(encoding="utf-8") as table:
        for row in csv.DictReader(table):
            output = tmp_path / f"{row['config']}.yaml"
            assert (
                main(["models", "import", str(folder / row["config"] / "config.json"), "-o", str(output)])
                == 0
            )
            model = load_model(str(output))
            assert model.parameters == pytest.approx(int(row["parameters"]), rel=1e-4), row["config"]
            if row["active_parameters"]:
                assert model.active_parameters == pytest.approx(int(row["active_parameters"]), rel=1e-4)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"model_type": "rwkv"}, "model_type='rwkv': unknown architecture 'rwkv'"),
        ({"num_memory_slots": 64}, "num_memory_slots=64: is not understood, and may change the work"),
        ({"hidden_size": None}, "key 'hidden_size' is missing; add it"),
        ({"head_dim": 0}, "head_dim=0: must be a whole number from 1"),
        ({"num_key_value_heads": 3}, "num_key_value_heads=3: must divide the 32 heads"),
        ({"vocab_size": "many"}, "vocab_size='many': must be a whole number"),
        ({"num_hidden_layers": 10**7}, "num_hidden_layers=10000000: must be a whole number from 0 to 10,000"),
        ({"tie_word_embeddings": "false"}, "tie_word_embeddings='false': must be true or false"),
        ({"max_position_embeddings": "32"}, "max_position_embeddings='32': must be a whole number"),
        ({"architectures": 3.5}, "architectures=3.5: must be a list of names"),
        ({"layer_types": ["full_attention"]}, "has 1 entries for 32 layers"),
        ({"layer_types": ["conv"] * 32}, "has a layer 'conv', which no key of a model describes"),
        ({"layer_types": "full"}, "layer_types='full': must be a list"),
        ({"num_hidden_layers": 0}, "num_hidden_layers=0: leaves no layer"),
        ({"sliding_window_pattern": -3}, "sliding_window_pattern=-3: must be a whole number"),
        ({"attention_types": [["global", 3]]}, "must be pairs of kinds and a number"),
        ({"hybrid_override_pattern": "M*"}, "hybrid_override_pattern='M*': has 2 entries for 32 layers"),
        (
            {"model_type": "jamba", "attn_layer_period": 0},
            "attn_layer_period=0: must be a whole number from 1",
        ),
        (
            {"model_type": "bamba", "attn_layer_indices": [32]},
            "must be a list of layers' numbers, from 0 to 31",
        ),
        ({"model_type": "mamba", "expand": "2"}, "expand='2': must be a number above 0 and at most 1000"),
        ({"use_qk_norm": True}, "use_qk_norm=True: is not understood for this architecture"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(changes, text):
    with pytest.raises(UserError) as refused:
        imported_model({**LLAMA, **changes}, "folder/config.json")
    assert str(refused.value).startswith("folder/config.json: ")
    assert text in str(refused.value)


GEMMA_TOWER = {
    "model_type": "gemma3",
    "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240}
    | {"num_hidden_layers": 34, "sliding_window": 1024},
    "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152, "image_size": 896}
    | {"intermediate_size": 4304, "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": False},
}
QWEN_TOWER = {
    "model_type": "qwen2_5_vl",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vision_token_id": 151654,
    "tie_word_embeddings": False,
    "vision_config": {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "in_chans": 3}
    | {"patch_size": 14, "out_hidden_size": 3584, "spatial_patch_size": 14},
}


@pytest.mark.parametrize(
    ("config", "parameters"), [(GEMMA_TOWER, 4_300_079_472), (QWEN_TOWER, 8_292_166_656)]
)
def test_towers_are_counted_and_stated(config, parameters, tmp_path):
    """Gemma 3 4B and Qwen2.5-VL 7B, as their pages on Hugging Face count them."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    model = load_model(str(path))
    assert model.parameters == parameters
    assert refusal_of(model) == ""
    ((name, tower),) = model.towers
    assert (name, tower.hidden, tower.projector[-1]) == (
        "vision",
        config["vision_config"]["hidden_size"],
        model.hidden,
    )
    if tower.window:  # 28 of 32 layers in blocks of 8 x 8 patches
        assert [(stack.model.layers, stack.model.seq_len) for stack in model.tower_stacks] == [
            (28, 64),
            (4, 1024),
        ]
    path.write_text(json.dumps({**config, "vision_config": None}), encoding="utf-8")
    assert not load_model(str(path)).towers
    path.write_text(json.dumps({**config, "model_type": "mllama"}), encoding="utf-8")
    with pytest.raises(UserError, match=r"vision_config=.* remove it to import the text model alone|mllama"):
        load_model(str(path))


@pytest.mark.parametrize(
    ("config", "inner", "outer", "text"),
    [
        (GEMMA_TOWER, {"patch_size": "x"}, {}, "vision_config: patch_size='x': must be a whole number"),
        (QWEN_TOWER, {"fullatt_block_indexes": 7}, {}, "fullatt_block_indexes=7: must be a list of layers"),
        (GEMMA_TOWER, {}, {"mm_tokens_per_image": []}, "mm_tokens_per_image=[]: must be a number above 0"),
    ],
)
def test_wrong_values_of_a_tower_are_refused(config, inner, outer, text):
    broken = {**config, **outer, "vision_config": config["vision_config"] | inner}
    with pytest.raises(UserError, match=re.escape(text)):
        imported_model(broken, "config.json")


def test_layers_become_the_shortest_keys():
    """Windows at an interval, first dense layers, a list: Gemma 3, DeepSeek-V3, Jamba."""
    models = {
        name: load_keys(name) for name in ("gemma3_text", "deepseek_v3", "jamba", "llama4_text", "nemotron_h")
    }
    assert (models["gemma3_text"]["full_attention_every"], models["deepseek_v3"]["dense_layers"]) == (6, 3)
    assert models["jamba"]["stack"][:3] == ["mamba-mlp", "mamba-experts", "mamba-mlp"]
    assert len(models["jamba"]["stack"]) == 8
    assert models["nemotron_h"]["stack"] == ["mamba2", "experts", "attention", "mlp"]


def load_keys(architecture):
    config = {key: value for key, value in CONFIGS[architecture].items() if key != "parameters"}
    return imported_model({"model_type": architecture, **config}, "config.json").keys
