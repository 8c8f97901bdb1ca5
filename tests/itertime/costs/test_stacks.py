"""Models whose layers are of several kinds: a list of layers costs what its layers cost."""

from dataclasses import replace

import numpy as np
import pytest

from itertime import ModelSpec, Plan, PlanBatch, load_model, load_system, predict
from itertime.costs import Workload
from itertime.costs.embedding_head import head_s
from itertime.costs.memory.activations import activations_of
from itertime.costs.mixers import indexer_s, recurrence_s
from itertime.errors import UserError
from itertime.schedule import LAST
from itertime.spec import Elementwise, Gemm, profile_of

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


@pytest.mark.parametrize("changes", [{}, {"zero_stage": 3}, {"precision": "fp8"}, {"split": "ends"}])
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


HYBRID = ModelSpec(
    name="hybrid",
    layers=4,
    hidden=4096,
    heads=32,
    kv_heads=8,
    vocab=131072,
    seq_len=8192,
    attention="flash",
    norm="rmsnorm",
    positions="rotary",
    biases=False,
    dropout=False,
    norms_per_layer=1,
    head_dim=128,
    ffn_hidden=21504,
    kinds={
        "mamba": {"mixer": "mamba2", "mlp": False, "state_heads": 128, "state_head_dim": 64}
        | {"state_groups": 8, "state_size": 128, "conv_width": 4},
        "mlp": {"mixer": "none"},
        "attention": {"mlp": False},
    },
    stack=("mamba", "mlp", "attention", "mlp"),
)
"""Kinds of layers of Nemotron-H 8B."""


def test_a_hybrid_by_hand():
    """Nemotron-H: 8,192 values of 128 heads, 8 groups of keys of 128; FLOPs of Megatron-LM's count."""
    mamba, mlp, attention = HYBRID.forms
    matrices = 4096 * (2 * 8192 + 2 * 8 * 128 + 128) + 8192 * 4096
    assert mamba.layer_parameters == matrices + 4 * (8192 + 2 * 8 * 128) + 4096
    assert mlp.layer_parameters == 2 * 4096 * 21504 + 4096
    assert attention.layer_parameters == 2 * 4096 * (4096 + 1024) + 4096
    scan, convolution = 7 * 8192 * 128, 2 * 4 * (8192 + 2 * 8 * 128)
    assert mamba.forward_flops().layers == 4 * (2 * matrices + scan + convolution)
    assert mlp.forward_flops().scores == mamba.forward_flops().scores == 0
    of_kinds = [form.forward_flops().layers / 4 for form in HYBRID.forms]
    assert HYBRID.forward_flops().layers == pytest.approx(of_kinds[0] + 2 * of_kinds[1] + of_kinds[2])


def test_a_recurrence_computes_its_chunks():
    """32 chunks of 256 tokens: scores within each for 8 groups, three products more for 128 heads."""
    plan = Plan(tp=1, pp=1, dp=1, micro_batch=1, global_batch=1)
    profile = profile_of(SYSTEM)
    work = Workload.of(HYBRID, PlanBatch.of([plan]), SYSTEM, profile)
    sizes = np.array([(256, 256, 128, 8), (256, 64, 256, 128), (128, 64, 256, 128), (256, 64, 128, 128)])
    m, n, k, heads = sizes.T
    products = work.gemm_factor * profile.seconds(Gemm(m, n, k, 32 * heads)).sum()
    moved = 8192 * (4 * 8192 + 4 * 1024 + 4 * 10240 + 6 * 8192) + 16 * 32 * 128 * 128 * 64
    forward, backward = recurrence_s(work.forms[0])
    seconds = profile.seconds(Elementwise(np.array([float(moved)])))[0] / SYSTEM.site.hbm_fraction
    assert forward[0] == pytest.approx(products + work.framework.elementwise_multiplier * seconds)
    assert backward == pytest.approx(2.5 * forward)
    assert not any(recurrence_s(work.forms[1]))


def test_a_scan_and_an_indexer_by_hand():
    """A scan of 16 states a channel waits for its exponentials, one of a single state for its bytes. An
    indexer scores all keys of a causal mask; it runs only where sequences are longer than what it picks.
    """
    plan = PlanBatch.of([Plan(tp=2, pp=1, dp=1, micro_batch=1, global_batch=1)])
    profile, tokens = profile_of(SYSTEM), 8192
    for states, seconds in ((16, 16 * 16 * 4096 / (profile.peak_flops / 16)), (1, 0.0)):
        keys = {"mixer": "mamba", "mlp": False, "state_heads": 1, "state_head_dim": 8192, "state_groups": 1}
        keys |= {"state_size": states, "conv_width": 4, "step_rank": 256}
        work = Workload.of(replace(HYBRID, kinds={"scan": keys}, stack=("scan",)), plan, SYSTEM, profile)
        moved = tokens * (10 * 4096 + 4 * states + 8 * 4096 * states / 2048)
        moved_s, convolved_s = (
            profile.seconds(Elementwise(np.array([size]))) / SYSTEM.site.hbm_fraction
            for size in (moved, 4.0 * tokens * 4096)
        )
        scan = np.maximum(moved_s, tokens * seconds) + work.framework.elementwise_multiplier * convolved_s
        assert recurrence_s(work.forms[0])[0] == pytest.approx(scan)
    keys = {"mixer": "conv", "state_heads": 1, "state_head_dim": 4096, "state_size": 1, "conv_width": 3}
    short = Workload.of(replace(HYBRID, kinds={"conv": keys}, stack=("conv",)), plan, SYSTEM, profile)
    gated_s = profile.seconds(Elementwise(np.array([16.0 * tokens * 2048]))) / SYSTEM.site.hbm_fraction
    assert recurrence_s(short.forms[0])[1] == pytest.approx(
        1.75 * work.framework.elementwise_multiplier * gated_s
    )
    model = replace(load_model("deepseek-v2"), index_heads=64, index_head_dim=128, index_keys=2048)
    dense, sparse = model.with_seq_len(2048), model.with_seq_len(tokens)
    assert dense.forward_flops() == replace(dense, **NO_INDEXER).forward_flops()
    weights = 1536 * 64 * 128 + 5120 * (128 + 64)
    assert sparse.parameters == replace(sparse, **NO_INDEXER).parameters + 60 * weights
    picked, keys = 2048 - 2048 * 2047 / (2 * tokens), (tokens + 1) / 2
    scores = 2 * 128 * (192 + 128) * picked + 2 * 64 * 128 * keys
    assert sparse.forward_flops().scores == pytest.approx(60 * scores)
    work = Workload.of(sparse, plan, SYSTEM, profile)
    scored = work.gemm_factor * work.gemm_s(work.tokens, np.array([keys]), np.array([128.0]), 64)
    written = profile.seconds(Elementwise(np.array([8 * tokens * keys]))) / SYSTEM.site.hbm_fraction
    forward, backward = indexer_s(work, np.ones(1))
    assert forward == pytest.approx(scored + work.framework.elementwise_multiplier * written)
    chosen = work.gemm_factor * work.gemm_s(work.tokens, np.array([2048.0]), np.array([128.0]), 64)
    assert backward == pytest.approx(2 * chosen + 0.5)


NO_INDEXER = {"index_heads": 0, "index_head_dim": 0, "index_keys": 0}


def test_kinds_keep_what_they_compute():
    """Bytes of a layer and token without recomputation, 16 bit, one GPU: the norm's input and output, then
    queries, keys, values and output (Nemotron-H's attention); what a scan's first product and its output
    have; an MLP's input and result.
    """
    plan = PlanBatch.of([Plan(tp=1, pp=1, dp=1, micro_batch=1, global_batch=1, recompute="none")])
    work = Workload.of(HYBRID, plan, SYSTEM, profile_of(SYSTEM))
    kept = [activations_of(form).kept[0] / 8192 for form in work.forms]
    assert kept[0] == 4 * 4096 + 2 * (18560 + 8192)
    assert kept[1] == 4 * 4096 + (2 + 2) * 21504
    assert kept[2] == 4 * 4096 + 2 * (2 * 4096 + 2 * 1024) + 4 * 32


def test_rules_of_a_state():
    plan = replace(PLAN, pp=1, tp=1, dp=1, cp=2)
    assert any("cp=2: is not modelled for mixer=mamba2" in text for text in plan.broken_rules(HYBRID))
    odd = dict(HYBRID.kinds[0][1]) | {"state_heads": 127, "state_groups": 127}
    wide = replace(HYBRID, kinds={"mamba": odd}, stack=("mamba",))
    assert "tp=2: must divide state_heads=127" in replace(plan, cp=1, tp=2).broken_rules(wide)
    assert predict(HYBRID, replace(PLAN, pp=2, tp=2, dp=8, sequence_parallel=True), SYSTEM).fits


def test_a_head_for_further_tokens_is_a_layer_a_projection_and_a_loss():
    """DeepSeek-V3 (2024), section 2.2: the head of another token has a layer as the last one has, a matrix of
    2 h x h, and the loss again; "14B" of its page counts embedding and projection, which are shared.
    """
    model = load_model("deepseek-v3")
    heads = replace(model, mtp_layers=1)
    assert heads.parameters == model.parameters
    layer = model.layer_parameters + 2 * 7168**2 + 3 * 7168
    assert heads.mtp_parameters == layer == pytest.approx(14e9 - 2 * 129280 * 7168, rel=0.05)
    plain, more = model.forward_flops(), heads.forward_flops()
    added = 2 * (model.layer_matmul_parameters + 2 * 7168**2) + 2 * 129280 * 7168
    assert more.layers + more.head - plain.layers - plain.head == pytest.approx(added)
    assert more.scores == pytest.approx(plain.scores * 62 / 61)
    plan = PlanBatch.of([replace(MIXED, tp=1, dp=64, ep=64, sequence_parallel=False)])
    counts = [Workload.of(each, plan, SYSTEM, profile_of(SYSTEM)).partition.counts for each in (model, heads)]
    assert (counts[1] - counts[0])[:, LAST, 0].tolist() == [1, 0]
    work = Workload.of(heads, plan, SYSTEM, profile_of(SYSTEM))
    projected = work.gemm_s(work.tokens, np.array([7168.0]), np.array([2 * 7168.0])) * work.gemm_factor
    losses = [head_s(each, np.zeros(1))[0] for each in (replace(work, model=model), work)]
    assert losses[1] == pytest.approx(2 * losses[0] + projected)


ALBERT = ModelSpec(
    name="albert-base",
    layers=12,
    hidden=768,
    heads=12,
    vocab=30000,
    seq_len=512,
    attention="flash",
    encoder=True,
    embedding_width=128,
    shared_weights=True,
)


def test_weights_that_layers_share_count_once_and_work_in_every_layer():
    """ALBERT (Lan et al. 2020), table 1: 12M parameters of base, of which a pooler has 0.6M. Gradients,
    states, exchange and step are those of one layer.
    """
    assert ALBERT.parameters + 768 * 769 == pytest.approx(12e6, rel=0.03)
    plan = replace(PLAN, tp=1, pp=1, dp=16, recompute="none", grad_overlap=True)
    layers = replace(ALBERT, shared_weights=False)
    shared, own = (predict(model, plan, SYSTEM) for model in (ALBERT, layers))
    padding = (30080 - 30000) * 128  # of the table
    assert shared.memory_parts["optimizer"] == pytest.approx(12 * (ALBERT.parameters + padding), rel=0.01)
    spared = own.memory_parts["gradients"] - shared.memory_parts["gradients"]
    assert spared == pytest.approx(2 * 11 * ALBERT.layer_parameters)
    for part in ("gemm", "attention", "elementwise", "head"):
        assert shared.breakdown[part] == own.breakdown[part]
    assert shared.breakdown["optimizer"] < own.breakdown["optimizer"]
    assert (shared.model_flops, shared.memory_parts["activations"]) == (
        own.model_flops,
        own.memory_parts["activations"],
    )
    for changes, text in (({"pp": 2}, "take pp=1"), ({"zero_stage": 2}, "take zero_stage=0 or 1")):
        assert any(text in reason for reason in replace(plan, **changes).broken_rules(ALBERT))
    zamba = replace(
        HYBRID, kinds=(*HYBRID.kinds[:2], ("attention", {"mlp": False, "shared_weights": True})), layers=8
    )
    once = replace(HYBRID, layers=8).parameters - HYBRID.forms[2].layer_parameters
    assert zamba.parameters == once


T5 = ModelSpec(
    name="t5-large",
    layers=48,
    hidden=1024,
    heads=16,
    vocab=32128,
    seq_len=128,
    encoder_seq_len=512,
    attention="flash",
    norm="rmsnorm",
    positions="none",
    biases=False,
    kinds={"encoder": {"encoder": True}, "decoder": {"cross_attention": True, "norms_per_layer": 3}},
    stack=("24 encoder", "24 decoder"),
)
"""T5 large (Raffel et al. 2020, table 14), without the biases of positions: 2 x 32 x 16 and a norm."""


def test_an_encoder_beside_a_decoder_by_hand():
    """Parameters are those of Transformers' T5ForConditionalGeneration. FLOPs of a sample, one by one: layers
    of an encoder of 512 tokens, of a decoder of 128, whose second attention has keys and values of 512. With
    equal lengths a token of the decoder passes all layers (Raffel et al., section 3.2.2).
    """
    h, f, s, e = 1024, 4096, 128, 512
    assert T5.parameters + 2 * 32 * 16 + h == 737_668_096
    encoder = 2 * e * (4 * h * h + 2 * h * f) + 4 * e * e * h
    decoder = 2 * s * (4 * h * h + 2 * h * h + 2 * h * f) + 2 * e * 2 * h * h + 4 * s * e * h
    passed = T5.forward_flops()
    assert s * (passed.layers + passed.scores) == pytest.approx(
        24 * (encoder + decoder + 4 * s * (s + 1) / 2 * h)
    )
    assert passed.head == 2 * 32128 * h
    equal = replace(T5, encoder_seq_len=128).forward_flops().layers
    of_layers = sum(count * form.layer_parameters for count, form in zip((24, 24), T5.forms, strict=True))
    assert equal == pytest.approx(2 * of_layers, rel=1e-3)
    # Of a micro-batch: norms' inputs and outputs with masks, then what each product reads and leaves.
    plan = Plan(tp=1, pp=1, dp=1, micro_batch=1, global_batch=1, recompute="none")
    work = Workload.of(T5, PlanBatch.of([plan]), SYSTEM, profile_of(SYSTEM))
    kept = [activations_of(form).kept[0] for form in work.forms]
    assert kept[0] == e * ((4 + 4 + 2) * h + 2 * 4 * h + (2 + 2) * f + 4 * 16)
    assert kept[1] == s * ((6 + 6 + 3) * h + 2 * 4 * h + 2 * 2 * h + (2 + 2) * f + 8 * 16) + e * 2 * 2 * h
    held = predict(T5, plan, SYSTEM).memory_parts["activations"]
    assert held == pytest.approx(24 * sum(kept) + 2 * s * h + 2 * e * h)  # the outputs of both stacks


def test_low_rank_matrices_of_an_encoder_and_a_decoder():
    """Rank 8 beside attention: queries to values (h to 3 h) and projection (h to h); the decoder's second
    attention has queries, keys with values of the encoder's tokens, and a projection.
    """
    model, h, share = replace(T5, lora_rank=8), 1024, 512 / 128
    first, crossed = 8 * (4 * h + 2 * h), (8 * 2 * h, 8 * 3 * h, 8 * 2 * h)
    assert model.trained_parameters == 24 * (2 * first + sum(crossed))
    flops = 2 * 24 * (share * first + first + crossed[0] + share * crossed[1] + crossed[2])
    assert model.adapter_flops == flops
    plan = replace(PLAN, tp=1, pp=1, dp=4, micro_batch=16, recompute="none")
    whole, found = predict(T5, plan, SYSTEM), predict(model, plan, SYSTEM)
    assert found.memory_parts["optimizer"] == pytest.approx(12 * model.trained_parameters)
    assert found.breakdown["gemm"] < whole.breakdown["gemm"]


def test_stages_have_layers_of_the_encoder_or_of_the_decoder():
    plan = replace(PLAN, tp=2, pp=4, split="12,12,8,16")
    assert predict(T5, plan, SYSTEM).fits
    for changes, text in (
        ({"split": "12,13,7,16"}, "a stage must have layers of the encoder or of the decoder alone"),
        ({"pp": 2, "split": "24,24", "schedule": "zb-h1"}, "needs interleave=1 and schedule=1f1b or gpipe"),
        ({"pp": 1, "split": "even", "cp": 2}, "cp: is not modelled for an encoder beside a decoder"),
    ):
        assert any(text in reason for reason in replace(plan, **changes).broken_rules(T5))
    for changes, text in (
        ({"stack": ("24 decoder", "24 encoder")}, "stack=('24 decoder', '24 encoder'): has a layer of the"),
        ({"kinds": (), "stack": ()}, "encoder_seq_len=512: needs kinds of layers, one of them with encoder"),
        ({"attention": "core"}, "cross_attention=True: is modelled with attention=flash"),
    ):
        with pytest.raises(UserError) as refused:
            replace(T5, **changes)
        assert text in str(refused.value)


TOWER = {"layers": 24, "hidden": 1024, "heads": 16, "tokens": 577, "patch_width": 588}
TOWER["projector"] = (4096, 4096)
LLAVA = replace(load_model("llama2-7b"), seq_len=2048, towers={"vision": TOWER}, images=2)
"""CLIP ViT-L/14 at 336 pixels with LLaVA 1.5's projector, two images a sequence."""


def test_a_tower_by_hand():
    """24 n h^2 + 4 n^2 h FLOPs of a layer on n patches (Narayanan et al. 2021, appendix, without a mask), two
    for each weight of patches and projector; three passes of each, two of patches, one if frozen.
    """
    h, t, n = 1024, 4096, 577
    layers, patches, projector = 24 * (12 * h * h + 13 * h), 588 * h, h * t + t * t
    assert LLAVA.tower_parameters() == layers + patches + projector
    text = replace(LLAVA, towers=(), images=1)
    assert LLAVA.parameters - text.parameters == LLAVA.tower_parameters()
    work, ends = 24 * (24 * n * h * h + 4 * n * n * h), (2 * n * patches, 2 * n * projector)
    expected = {
        (): 3 * work + 2 * ends[0] + 3 * ends[1],
        ("vision",): work + ends[0] + 2 * ends[1],
        ("vision", "projector"): work + sum(ends),
    }
    plan = Plan(tp=1, pp=1, dp=8, micro_batch=1, global_batch=8, recompute="none")
    alone = predict(text, plan, SYSTEM)
    states = {(): layers + patches + projector, ("vision",): projector, ("vision", "projector"): 0}
    for frozen, flops in expected.items():
        model = replace(LLAVA, frozen=frozen)
        added = model.flops_per_iteration(1) - text.flops_per_iteration(1)
        assert added == pytest.approx(2 * flops)
        found = predict(model, plan, SYSTEM)
        parts = {name: found.memory_parts[name] - alone.memory_parts[name] for name in alone.memory_parts}
        assert parts["weights"] == pytest.approx(2 * LLAVA.tower_parameters())
        assert parts["optimizer"] == pytest.approx(12 * states[frozen], rel=1e-6)
        # Norms' inputs and outputs, queries to output, the MLP's two sides, row sums; patches and projector.
        layer = 2 * n * (8 * h + 8 * h + 4 * 4 * h + 4 * 16)
        ends_kept = 2 * 2 * n * (588 * (not frozen) + (h + 2 * t) * ("projector" not in frozen))
        assert parts["activations"] == pytest.approx(24 * layer * (not frozen) + ends_kept)
        assert found.breakdown["towers"] > 0
    times = [predict(replace(LLAVA, frozen=frozen), plan, SYSTEM).breakdown["towers"] for frozen in expected]
    assert times[1] == pytest.approx(times[0] / 3, rel=0.15)
    assert times[2] < times[1] < times[0]
    assert replace(LLAVA, frozen="vision, projector") == model
    lora = replace(LLAVA, lora_rank=16)
    assert predict(lora, plan, SYSTEM).breakdown["towers"] == times[2]
    assert lora.trained_parameters == replace(text, lora_rank=16).trained_parameters


def test_a_projector_alone_is_trained():
    """Gradients of inputs pass all layers, whose weights have none."""
    model = replace(LLAVA, frozen=("layers", "embedding", "head", "vision"))
    assert model.trained_parameters == 1024 * 4096 + 4096**2
    plan = Plan(tp=1, pp=1, dp=8, micro_batch=1, global_batch=8, recompute="none")
    whole, found = (predict(each, plan, SYSTEM) for each in (LLAVA, model))
    assert found.breakdown["gemm"] == pytest.approx(2 / 3 * whole.breakdown["gemm"], rel=0.02)
    assert found.memory_parts["optimizer"] == 12 * model.trained_parameters
    listed = replace(model, kinds={"a": {}, "b": {}}, stack=("16 a", "16 b"))
    front = replace(listed, frozen=("a", "embedding", "vision"))
    assert front.forms[0].passes_back
    assert not replace(front, frozen=(*front.frozen, "projector")).forms[0].passes_back


def test_a_tower_lies_on_the_first_stage():
    plan = replace(PLAN, tp=2, dp=2, pp=4, global_batch=32, recompute="full")
    text = replace(LLAVA, towers=(), images=1)
    both = [predict(model, plan, SYSTEM) for model in (text, LLAVA)]
    spread = [predict(model, replace(plan, zero_stage=3), SYSTEM) for model in (text, LLAVA)]
    for alone, found in (both, spread):
        assert found.iteration_s > alone.iteration_s
    whole = replace(plan, tp=4, dp=1)
    for changes, text_of_reason in (
        ({"tp": 32}, "tp: must divide towers.vision: heads=16"),
        ({"schedule": "zb-h1"}, "towers need whole backward passes"),
    ):
        reasons = replace(whole, **changes).broken_rules(LLAVA)
        assert any(text_of_reason in reason for reason in reasons)
    for changes, text_of_error in (
        ({"towers": {"vision": {**TOWER, "projector": [5]}}}, "projector=[5]: must end with hidden=4096"),
        ({"towers": {"layers": TOWER}}, "towers.layers: is the name of another part"),
        ({"towers": {"vision": {**TOWER, "projector": []}}}, "projector=[]: must end with hidden=4096"),
        ({"towers": {"vision": {**TOWER, "extra_parameters": -(10**9)}}}, "leaves nothing beside the layers"),
        ({"towers": {"vision": {**TOWER, "merged": 4}}}, "towers.vision: merged=4: must divide tokens=577"),
        ({"towers": {"vision": {**TOWER, "width": 4}}}, "vision: unknown key of a tower 'width'"),
        ({"towers": {"vision": {"layers": 4}}}, "vision: key 'hidden' is missing"),
        (
            {"towers": {"vision": {**TOWER, "full_attention_every": 2}}},
            "full_attention_every=2: needs",
        ),
        ({"towers": {"vision": {**TOWER, "heads": 3}}}, "towers.vision: heads=3: must divide hidden=1024"),
        ({"images": 4}, "images=4: become 2308 tokens, more than seq_len=2048"),
        ({"towers": ()}, "images=2: needs towers"),
        ({"frozen": ["tower"]}, "frozen: unknown part of the model 'tower'"),
    ):
        with pytest.raises(UserError) as refused:
            replace(LLAVA, **changes)
        assert text_of_error in str(refused.value)
