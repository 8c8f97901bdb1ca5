"""Models whose layers are of several kinds: a list of layers costs what its layers cost."""

from dataclasses import replace

import pytest

from itertime import Plan, load_model, load_system, predict
from itertime.errors import UserError

SYSTEM = load_system("dgx-h100")
PLAN = Plan(tp=4, pp=4, dp=4, micro_batch=1, global_batch=64)
MIXED = Plan(tp=8, pp=1, dp=32, micro_batch=1, global_batch=256, ep=32, sequence_parallel=True)
DENSE_FIRST = load_model("deepseek-v2-lite")
LISTED = replace(
    DENSE_FIRST,
    dense_layers=0,
    dense_ffn_hidden=0,
    kinds={"mixture": {}, "dense": {"experts": 1, "ffn_hidden": DENSE_FIRST.dense_ffn_hidden}},
    stack=("dense", "26 mixture"),
)


def test_kinds_without_a_difference_cost_what_equal_layers_cost():
    model = load_model("qwen3-8b")
    listed = replace(model, kinds={"one": {}, "two": {}}, stack=("one", "2 two"))
    for plan in (PLAN, replace(PLAN, pp=6, interleave=2, recompute="full", global_batch=96)):
        assert predict(listed, plan, SYSTEM).breakdown == pytest.approx(
            predict(model, plan, SYSTEM).breakdown, rel=1e-12
        )


@pytest.mark.parametrize("changes", [{}, {"zero_stage": 3, "prefetch": True}, {"precision": "fp8"}])
def test_dense_layers_can_be_stated_as_a_list(changes):
    plan = replace(MIXED, tp=1, dp=64, sequence_parallel=False, **changes)
    expected, listed = predict(DENSE_FIRST, plan, SYSTEM), predict(LISTED, plan, SYSTEM)
    assert listed.iteration_s == pytest.approx(expected.iteration_s, rel=1e-12)
    if "zero_stage" not in changes:  # which gathers the largest layer of a list, the mixture's otherwise
        assert listed.memory_parts == pytest.approx(expected.memory_parts)
    assert (listed.mfu, LISTED.active_parameters) == pytest.approx(
        (expected.mfu, DENSE_FIRST.active_parameters)
    )


def test_mixtures_in_every_second_layer_are_cut_between_pairs():
    """Llama 4 Maverick: the first of each two layers is dense. Twelve layers a stage are six of each."""
    model = load_model("llama4-maverick")
    assert model.form_order[:4] == (0, 1, 0, 1)
    assert not replace(MIXED, pp=4).broken_rules(model)
    (reason,) = replace(MIXED, pp=16).broken_rules(model)
    assert "the layers between the first and the last stage must be of the same kinds" in reason


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"stack": ()}, "stack=(): goes with kinds; give both or none"),
        ({"stack": ("dense", "27 mixture")}, "its entries sum to more than 27 layers"),
        (
            {"stack": ("dense", "mixture")},
            "its entries sum to 2 layers, which must be layers=27 or divide it",
        ),
        ({"stack": ("dense", "26 moe")}, "'26 moe': unknown kind 'moe'"),
        ({"stack": ("x dense", "26 mixture")}, "a number of layers goes from 1 to layers=27"),
        ({"stack": ("27 dense",)}, "kinds: mixture is in no entry of stack; leave it out"),
        ({"kinds": {"dense": {"hidden": 5}}}, "dense: unknown key of a layer 'hidden'"),
        ({"kinds": {"dense": {"kv_heads": 3}}, "stack": ("dense",)}, "kv_heads=3: must divide heads=16"),
    ],
)
def test_lists_that_are_no_layers_are_refused(changes, text):
    with pytest.raises(UserError) as refused:
        replace(LISTED, **changes)
    assert text in str(refused.value)
