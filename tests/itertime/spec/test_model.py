"""Shapes: published parameter counts, FLOPs, and files that are not models."""

from __future__ import annotations

import pytest

from itertime import ModelSpec, list_models, load_model

PUBLISHED = {  # billions of parameters as their papers state them
    "bert-large": (0.340, 0.02),  # Devlin et al. 2019; the pooler is left out here
    "gpt3-1.3b": (1.3, 0.02),
    "gpt3-6.7b": (6.7, 0.01),
    "gpt3-13b": (13.0, 0.02),
    "gpt3-175b": (175.0, 0.005),
    "llama2-7b": (6.738, 0.001),
    "llama2-13b": (13.016, 0.001),
    "llama2-70b": (68.977, 0.001),
    "mt-nlg-530b": (530.0, 0.001),
}
SC21 = ("1.7", "3.6", "7.5", "18.4", "39.1", "76.1", "145.6", "310.1", "529.6", "1008")


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_published_parameter_counts(name):
    billions, tolerance = PUBLISHED[name]
    assert load_model(name).parameters / 1e9 == pytest.approx(billions, rel=tolerance)


@pytest.mark.parametrize("billions", SC21)
def test_the_models_of_sc21_table_1_have_the_sizes_in_their_names(billions):
    assert load_model(f"megatron-{billions}b").parameters / 1e9 == pytest.approx(float(billions), rel=0.03)


def test_flops_are_those_of_sc21_equation_3_without_recomputation():
    model, batch = load_model("megatron-145.6b"), 2304
    s, layers, h, vocab = model.seq_len, model.layers, model.hidden, model.vocab
    expected = 72 * batch * s * layers * h**2 * (1 + s / (6 * h) + vocab / (12 * layers * h))
    assert model.flops_per_iteration(batch) == pytest.approx(expected, rel=1e-12)


def test_every_shipped_model_names_its_source():
    assert len(list_models()) >= 19
    assert all(load_model(name).source for name in list_models())


def test_grouped_heads_and_gated_mlp_count_their_weights():
    model = load_model("llama2-70b")
    assert model.kv_hidden == 1024
    assert model.layer_matmul_parameters == 2 * 8192 * (8192 + 1024) + 3 * 8192 * 28672


def test_a_mixture_counts_all_experts_and_computes_with_the_chosen_ones():
    """Mixtral 8x7B (Jiang et al. 2024, section 2.1): 47 billion parameters, of which a token uses 13."""
    mixtral = load_model("mixtral-8x7b")
    assert mixtral.parameters / 1e9 == pytest.approx(46.7, abs=0.1)
    active = mixtral.layers * mixtral.layer_matmul_parameters + 2 * mixtral.vocab * mixtral.hidden
    assert active / 1e9 == pytest.approx(12.9, abs=0.1)


GOOD = "layers: 2\nhidden: 64\nheads: 4\nvocab: 100\nseq_len: 16\n"


def test_a_model_file_is_named_after_itself(tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(GOOD)
    assert load_model(str(path)) == ModelSpec("tiny", 2, 64, 4, 100, 16)
