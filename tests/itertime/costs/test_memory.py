"""Memory: formulas of the papers, what each feature and offloading frees, and runs that did fit."""

from dataclasses import replace

import numpy as np
import pytest

from itertime import ModelSpec, Plan, PlanBatch, System, load_model, load_profile, load_system, predict
from itertime.costs import Memory, Workload, memory
from itertime.costs.activation_copies import activation_copies_s
from itertime.costs.memory import activations_of
from itertime.costs.offload import offloaded_step
from itertime.spec import PlanOptions, Site
from tests.tables import table_rows

SYSTEM = load_system("dgx-a100-80gb")
PROFILE = load_profile(SYSTEM.profile)
GPT = load_model("gpt3-175b")
FOUR_LAYERS = replace(load_model("llama2-7b"), layers=4)


def needed(model: ModelSpec, plans: PlanBatch, system: System = SYSTEM) -> Memory:
    return memory(Workload.of(model, plans, system, PROFILE))


def parts(model, plan):
    result = needed(model, PlanBatch.of([plan]))
    assert result.total[0] == pytest.approx(sum(values[0] for values in result.parts.values()))
    return {name: values[0] for name, values in result.parts.items()}


def test_mixed_precision_adam_takes_16_bytes_a_parameter():
    """Rajbhandari et al., ZeRO (SC'20), section 3.1."""
    model = replace(load_model("gpt3-1.3b"), vocab=50304)
    state = parts(model, Plan(1, 1, 1, 1, 1))
    states = state["weights"] + state["gradients"] + state["optimizer"]
    assert states == pytest.approx(16 * model.parameters, rel=0.005)


@pytest.mark.parametrize(("stage", "part"), [(1, "optimizer"), (2, "gradients"), (3, "weights")])
def test_each_zero_stage_shards_one_more_part(stage, part):
    model = load_model("llama2-7b")
    before = parts(model, Plan(1, 1, 16, 1, 16, zero_stage=stage - 1))
    after = parts(model, Plan(1, 1, 16, 1, 16, zero_stage=stage))
    # Two layers and the projection in 16 bit.
    gathered = 4 * model.layer_parameters + 2 * 32000 * 4096 if stage == 3 else 0
    assert after[part] - gathered == pytest.approx(before[part] / 16)
    assert parts(model, Plan(1, 1, 16, 1, 16, zero_stage=stage, zero_group=4))[
        part
    ] - gathered == pytest.approx(before[part] / 4)


def test_beyond_the_tensors_are_the_context_communicators_and_gaps_between_blocks():
    model = load_model("llama2-7b")
    alone, many = (parts(model, plan) for plan in (Plan(1, 1, 1, 1, 1), Plan(2, 2, 2, 1, 8)))
    assert (alone["buffers"], many["buffers"]) == (0.6e9, pytest.approx(0.6e9 + 4 * 0.7e9))
    passing = alone["activations"] + alone["logits"] + alone["optimizer_step"]
    assert alone["fragmentation"] == pytest.approx(0.11 * passing)
    deepspeed = replace(SYSTEM, framework="deepspeed")  # it updates a billion parameters at a time
    plans = PlanBatch.of([Plan(1, 1, 2, 1, 2, recompute=each, zero_stage=3) for each in ("full", "none")])
    usual, other = (needed(model, plans, system).parts for system in (SYSTEM, deepspeed))
    assert usual["optimizer_step"][0] > 4e9 > other["optimizer_step"][0] > 0
    assert other["logits"][1] == 1.4 * usual["logits"][1]  # and PyTorch the gradient of a log-softmax


def test_activations_of_a_layer_are_those_of_korthikanti_et_al():
    """2022, table 2: s b h (10 + 24/t + 5 a s / h t) with tensor parallelism, sbh(34/t + 5as/ht) with
    sequence parallelism too.
    """
    s, b, h, a, t = GPT.seq_len, 1, GPT.hidden, GPT.heads, 8
    two = replace(GPT, layers=2)

    def per_layer(**change):
        plan = Plan(t, 1, 1, b, b, recompute="none", **change)
        one, other = parts(replace(two, layers=1), plan), parts(two, plan)
        return other["activations"] - one["activations"]

    assert per_layer() == pytest.approx(s * b * h * (10 + 24 / t + 5 * a * s / (h * t)))
    with_dropout, two = per_layer(), replace(two, dropout=False)
    masks = 2 * s * b * h + 3 * s * b * a * s / t  # of the residuals, and of the scores with their results
    assert with_dropout - per_layer() == pytest.approx(masks)
    two = replace(two, dropout=True)
    assert per_layer(sequence_parallel=True) == pytest.approx(s * b * h * (34 / t + 5 * a * s / (h * t)))


MODULES = [
    ("llama2-7b", "layernorm", lambda m: 4 * m.hidden, lambda m: 0),
    ("llama2-7b", "mlp", lambda m: 6 * m.ffn_hidden, lambda m: 3 * m.hidden * m.ffn_hidden),
    (
        "deepseek-v2-lite",
        "mla_up_proj",
        lambda m: 2 * 16 * (192 + 192 + 128),
        lambda m: 16 * (2048 * 192 + 512 * 256),
    ),
    ("mixtral-8x7b", "moe_act", lambda m: 2 * 2 * m.ffn_hidden, lambda m: 0),
    (
        "mixtral-8x7b",
        "moe",
        lambda m: 2 * (2 * m.hidden + 6 * m.ffn_hidden),
        lambda m: m.hidden * (8 + 6 * m.ffn_hidden),
    ),
    ("deepseek-v2-lite", "shared_experts", lambda m: 6 * 2816, lambda m: 3 * 2048 * 2816),
    (
        "llama3-8b",
        "op",
        lambda m: 4 * m.hidden + 2 * m.kv_hidden + 4 * m.ffn_hidden,
        lambda m: m.hidden * (m.kv_hidden + m.hidden + m.ffn_hidden),
    ),
]


def _passing_bytes(prediction):
    """Bytes of activations and logits: a layer that is repeated needs what the logits have left."""
    return prediction.memory_parts["activations"] + prediction.memory_parts["logits"]


@pytest.mark.parametrize(("name", "module", "nbytes", "weights"), MODULES)
def test_a_module_that_is_recomputed_keeps_its_input_alone(name, module, nbytes, weights):
    """Bytes and weights a token of one layer of the first form; seconds and FLOPs come back with them."""
    model = replace(load_model(name), layers=4)
    if model.dense_layers:
        model = replace(model, dense_layers=0, dense_ffn_hidden=0)
    plan, h100 = Plan(1, 1, 1, 1, 1, recompute="none"), load_system("dgx-h100")
    whole, again = (predict(model, each, h100) for each in (plan, replace(plan, recompute=module)))
    of_layer, logits = model.seq_len * nbytes(model), again.memory_parts["logits"]
    # Of one layer it is there while the layer is recomputed, where the logits were.
    freed = model.layers * of_layer - max(of_layer - logits, 0)
    assert _passing_bytes(whole) - _passing_bytes(again) == pytest.approx(freed, rel=1e-9)
    flops = 2 * model.layers * model.seq_len * weights(model)
    assert again.hardware_flops - again.model_flops == pytest.approx(flops, rel=1e-9)
    assert again.breakdown["recompute"] > max(flops / 989e12, 1e-5)


def test_modules_add_up_and_core_attention_alone_is_selective():
    plan, h100 = Plan(1, 1, 8, 1, 8, recompute="none", ep=8), load_system("dgx-h100")
    model = load_model("deepseek-v2-lite")

    def repeated_s(text):
        return predict(model, replace(plan, recompute=text), h100).breakdown["recompute"]

    both = repeated_s("moe_act, layernorm")
    assert both == pytest.approx(repeated_s("moe_act") + repeated_s("layernorm"), rel=1e-12)
    assert repeated_s("moe,moe_act,shared_experts") == repeated_s("moe") > repeated_s("shared_experts")
    assert repeated_s("mlp,moe,mla_up_proj,layernorm") < repeated_s("full")
    core = replace(load_model("gpt3-13b"), attention="core")
    alike = [predict(core, Plan(1, 1, 8, 1, 8, recompute=each), h100) for each in ("selective", "core_attn")]
    assert alike[0] == alike[1]


def test_a_chunked_loss_keeps_one_chunk_and_the_gradients_of_its_inputs():
    """Of 65,536 tokens and 128,256 words Liger Kernel takes chunks of 2,048 tokens."""
    model = load_model("llama3-8b").with_seq_len(65536)
    plan, h100 = Plan(1, 1, 4, 1, 4, recompute="none", zero_stage=3), load_system("dgx-h100")
    gradients, words = 2 * 4096 * (65536 + 128256), 128256

    def of_logits(model, framework, **options):
        found = predict(
            model, replace(plan, options=PlanOptions(**options)), replace(h100, framework=framework)
        )
        return found.memory_parts["logits"], found.breakdown["head"]

    fused = replace(model, fused_loss=True)
    assert of_logits(fused, "megatron")[0] == 2 * 65536 * words
    assert of_logits(fused, "eager")[0] == 2 * 2048 * words + gradients
    whole_s, (nbytes, chunked_s) = (
        of_logits(model, "megatron")[1],
        of_logits(model, "megatron", loss_chunks=8),
    )
    assert nbytes == 10 * 65536 / 8 * words + gradients
    assert whole_s < chunked_s < 1.2 * whole_s


def test_eager_modules_of_transformers_keep_32_bit_of_softmax_and_norms():
    """45.61 GiB measured of Llama-7B with 8 samples of 512 tokens (OpenLMLab/LOMO); logits are among them."""
    model = replace(load_model("llama-7b").with_seq_len(512), attention="core")
    plan = Plan(1, 1, 1, 8, 8, recompute="none")
    kept = [of_framework(name, model, plan)["activations"] for name in ("eager", "megatron")]
    more = 32 * 8 * 512 * (4 * 32 * 512 + 8 * 4096)
    assert kept[0] - kept[1] == pytest.approx(more, rel=1e-9)


def test_full_recompute_keeps_one_input_per_layer_and_micro_batch_in_flight():
    plan = Plan(8, 12, 1, 1, 96)
    token_bytes = 2 * GPT.seq_len * GPT.hidden
    kept = parts(GPT, plan)["activations"] - parts(GPT, replace(plan, global_batch=1))["activations"]
    assert kept == pytest.approx(11 * token_bytes * (GPT.layers / 12 + 1))


def test_1f1b_holds_as_many_micro_batches_as_stages_and_gpipe_all():
    plan = Plan(8, 8, 1, 1, 64)
    assert parts(GPT, replace(plan, schedule="gpipe"))["activations"] > 6 * parts(GPT, plan)["activations"]
    kept = [
        parts(replace(GPT, layers=n), replace(plan, pp=4, interleave=v))["activations"]
        for n in (48, 96)
        for v in (1, 3)
    ]  # what is recomputed does not grow with the layers
    assert (kept[3] - kept[1]) / (kept[2] - kept[0]) == pytest.approx(1 + (4 - 1) / (4 * 3), rel=1e-12)
    few = replace(plan, pp=4, global_batch=4)  # no more in flight than there are
    interleaved, gpipe = replace(few, interleave=2), replace(few, schedule="gpipe")
    assert parts(GPT, interleaved)["activations"] == parts(GPT, gpipe)["activations"]


def framework(name: str) -> System:
    return replace(SYSTEM, framework=name)


def of_framework(name, model, plan):
    found = needed(model, PlanBatch.of([plan]), framework(name)).parts
    return {part: values[0] for part, values in found.items()}


def test_where_products_add_to_32_bit_gradients_no_16_bit_ones_stay():
    """Megatron Core, docs of the distributed optimizer: 6 + 12/d bytes a parameter with bf16 parameters and
    fp32 gradients.
    """
    model, d = load_model("llama2-7b"), 16
    found = of_framework("te", model, Plan(1, 1, d, 1, d, fp32_gradients=True, zero_stage=1))
    states = found["weights"] + found["gradients"] + found["optimizer"]
    assert states == pytest.approx((6 + 12 / d) * model.parameters, rel=1e-3)


def test_fused_activations_keep_a_quarter_less_of_a_gated_mlp():
    """silu(gate) is an output of its own in eager PyTorch only: 8 f bytes a token, else 6 f."""
    model, plan = replace(load_model("llama2-7b"), layers=1), Plan(1, 1, 1, 1, 1, recompute="none")
    eager, fused = (of_framework(name, model, plan)["activations"] for name in ("eager", "te"))
    assert eager - fused == 2 * model.seq_len * model.ffn_hidden


def test_below_16_bit_inputs_of_products_are_kept_as_cast():
    """Inputs of QKV, MLP up and MLP down lose a byte each; the projection's is a second copy."""
    plan = Plan(1, 1, 1, 1, 1, recompute="none")
    bf16, fp8 = (
        of_framework("te", FOUR_LAYERS, replace(plan, precision=precision))["activations"]
        for precision in ("bf16", "fp8")
    )
    saved = 2 * FOUR_LAYERS.hidden + FOUR_LAYERS.ffn_hidden - FOUR_LAYERS.v_hidden
    assert bf16 - fp8 == pytest.approx(FOUR_LAYERS.layers * FOUR_LAYERS.seq_len * saved)


def test_a_framework_that_casts_again_keeps_16_bit():
    plan = Plan(1, 1, 1, 1, 1, recompute="none")
    assert of_framework("compile", FOUR_LAYERS, plan) == of_framework(
        "compile", FOUR_LAYERS, replace(plan, precision="fp8")
    )


@pytest.mark.parametrize(
    ("precision", "zero_stage", "per_weight"),
    [("fp8", 0, 2.0), ("fp8", 1, 0.0), ("mxfp8", 1, 1 / 16), ("nvfp4", 1, 1.125), ("fp8", 3, 0.0)],
)
def test_casts_of_weights(precision, zero_stage, per_weight):
    """Row-wise and transposed copies; with the distributed optimizer they replace 16 bit."""
    plan = Plan(1, 1, 8, 1, 8, zero_stage=zero_stage)
    found, usual = (
        of_framework("te", FOUR_LAYERS, replace(plan, precision=each))["weights"]
        for each in (precision, "bf16")
    )
    weights = FOUR_LAYERS.layers * FOUR_LAYERS.layer_parameters
    assert found - usual == pytest.approx(per_weight * weights, abs=1)


def test_the_optimizer_step_counts_only_beyond_the_activations_it_replaces():
    small = parts(load_model("gpt3-1.3b"), Plan(1, 1, 1, 1, 1))
    assert small["optimizer_step"] > 0
    large = parts(load_model("gpt3-1.3b"), Plan(1, 1, 1, 32, 32))
    assert large["optimizer_step"] == 0


@pytest.mark.parametrize(("name", "tp", "pp", "dp", "batch"), table_rows("runs of SC'21"))
def test_published_runs_fit(name, tp, pp, dp, batch):
    assert needed(load_model(name), PlanBatch.of([Plan(tp, pp, dp, 1, batch)])).fits[0]


def test_what_cannot_fit_does_not():
    plans = PlanBatch.of([Plan(8, 1, 1, 1, 8), Plan(8, 2, 1, 1, 8), Plan(8, 16, 1, 1, 32)])
    assert needed(GPT, plans).fits.tolist() == [False, False, True]


def test_what_the_allocator_loses_multiplies_the_whole():
    site = replace(SYSTEM, site=replace(SYSTEM.site, memory_multiplier=1.1, memory_overhead_bytes=1e9))
    plans = PlanBatch.of([Plan(8, 8, 1, 1, 8)])
    lossy = needed(GPT, plans, site).total
    assert lossy == pytest.approx(1.1 * needed(GPT, plans).total + 1e9)


@pytest.mark.parametrize("headroom", [0.0, 0.1, 0.5])
def test_a_plan_fits_if_it_leaves_the_headroom(headroom):
    """By hand: the same plan on a GPU whose memory makes it fill exactly 1 - headroom, and one byte less."""
    plans = PlanBatch.of([Plan(8, 8, 8, 1, 64)])
    total = needed(GPT, plans).total[0]
    for more, fits in ((1.0, True), (-1.0, False)):
        profile = replace(PROFILE, memory_bytes=(total + more) / (1 - headroom))
        found = memory(Workload.of(GPT, plans, SYSTEM, profile), headroom)
        assert found.fits.tolist() == [fits]
        assert found.total[0] == total  # the headroom is no part of what the plan needs


MODEL = load_model("llama2-7b")
PIPELINE = Plan(1, 4, 2, 1, 16, recompute="none")
PLAN = Plan(1, 1, 8, 1, 8, recompute="none", zero_stage=1)


def workload(plan, model=MODEL, system=SYSTEM):
    return Workload.of(model, PlanBatch.of([plan]), system, PROFILE)


def link(system, gb_per_s):
    return replace(system, gpu_cpu_bytes_per_s=gb_per_s * 1e9)


@pytest.mark.parametrize("recompute", ["none", "elementwise", "full"])
def test_a_last_stage_without_layers_holds_its_input_and_the_logits(recompute):
    model = load_model("bloom-560m").with_seq_len(131_072)
    plan = Plan(8, 4, 1, 1, 64, recompute=recompute, sequence_parallel=True, split="compute")
    parts = predict(model, plan, load_system("dgx-h200")).memory_parts
    assert parts["activations"] == pytest.approx(2 * 131_072 * model.hidden / 8)


def test_copies_take_as_long_as_their_bytes():
    plan = replace(PLAN, offload_layers=4)
    kept = activations_of(workload(plan)).kept[0]
    assert activation_copies_s(workload(plan))[-1, 0] == pytest.approx(4 * kept / (0.8 * 31.5e9))


def test_a_link_that_is_fast_enough_costs_nothing_and_a_slow_one_its_excess():
    plan = replace(PLAN, offload_layers=32)
    usual, hidden, slow = (
        predict(MODEL, each, system)
        for each, system in ((PLAN, SYSTEM), (plan, link(SYSTEM, 1e4)), (plan, link(SYSTEM, 1)))
    )
    assert hidden.iteration_s == pytest.approx(usual.iteration_s, rel=1e-12)
    assert slow.breakdown["offload_comm"] == pytest.approx(slow.iteration_s - usual.iteration_s, rel=1e-9)
    copied = 2 * activation_copies_s(workload(plan, system=link(SYSTEM, 1)))[-1, 0]
    layers = sum(usual.breakdown[part] for part in ("gemm", "attention", "elementwise"))
    assert slow.breakdown["offload_comm"] == pytest.approx(copied - layers, rel=1e-6)
    # Beside slow copies, waits for launches cost nothing; those that embedding and head fill hide no copies.
    waiting = replace(link(SYSTEM, 1), site=Site(launch_s=1e-3))
    assert predict(MODEL, plan, waiting).iteration_s == pytest.approx(slow.iteration_s, rel=1e-9)


@pytest.mark.parametrize(("plan", "count", "in_flight"), [(PLAN, 1, 1), (PLAN, 32, 1), (PIPELINE, 8, 4)])
def test_memory_loses_what_travels_but_one_layer(plan, count, in_flight):
    """Of every micro-batch in flight."""
    before, after = (predict(MODEL, each, SYSTEM) for each in (plan, replace(plan, offload_layers=count)))
    kept = activations_of(workload(plan)).kept[0]
    copied = max(kept - after.memory_parts["logits"], 0)
    freed = _passing_bytes(before) - _passing_bytes(after)
    assert freed == pytest.approx(in_flight * count * kept - copied, rel=1e-9, abs=1)


def test_the_optimizer_leaves_the_gpu_and_runs_at_the_speed_of_the_cpus_memory():
    """28 bytes a parameter at half of 409.6 GB/s for 8 GPUs, gradients down at 0.8 of PCIe 4.0."""
    on_gpu, on_cpu = (predict(MODEL, each, SYSTEM) for each in (PLAN, replace(PLAN, offload_optimizer=True)))
    owned = on_gpu.memory_parts["optimizer"] / 12
    assert on_cpu.memory_parts["optimizer"] == on_cpu.memory_parts["optimizer_step"] == 0
    assert on_cpu.breakdown["optimizer"] == pytest.approx(28 * owned / (0.5 * 409.6e9 / 8), rel=1e-9)
    assert on_cpu.breakdown["optimizer_copies"] == pytest.approx(2 * owned / (0.8 * 31.5e9), rel=1e-9)
    assert on_cpu.iteration_s > on_gpu.iteration_s


def test_slow_links_hold_up_the_step_itself():
    owned = np.array([1e9])
    found = offloaded_step(workload(PLAN, system=link(SYSTEM, 1)), owned, owned)
    assert found.step[0] == pytest.approx(2e9 / 0.8e9)


def test_offloading_everything_lets_a_model_train_on_one_gpu():
    """ZeRO-Offload (Ren et al. 2021), section 6: 13 billion parameters on one V100 of 32 GB; 80 GB hold as
    many with gradients and all.
    """
    plan = Plan(1, 1, 1, 1, 1)
    model = load_model("gpt3-13b")
    assert not predict(model, plan, SYSTEM).fits
    assert predict(model, replace(plan, offload_optimizer=True), SYSTEM).fits


def test_cores_and_gradients_of_a_site_add_to_the_memory_of_its_cpus():
    """A GPU's own cores work on what it owns; all gradients of the stage cost."""
    site = replace(SYSTEM.site, cpu_adam_s=0.5e-9, cpu_gradient_s=0.2e-9)
    for dp in (1, 8):
        plan = replace(PLAN, dp=dp, global_batch=PLAN.micro_batch * dp, zero_stage=1, offload_optimizer=True)
        usual, stated = (
            predict(MODEL, plan, each).breakdown for each in (SYSTEM, replace(SYSTEM, site=site))
        )
        held = predict(MODEL, plan, SYSTEM).memory_parts["weights"] / 2
        assert stated["optimizer"] - usual["optimizer"] == pytest.approx(0.5e-9 * held / dp, rel=1e-6)
        more = stated["optimizer_copies"] - usual["optimizer_copies"]
        assert more == pytest.approx(0.2e-9 * held, rel=1e-6)


def test_what_is_offloaded_must_fit_in_the_share_of_a_gpu():
    """13 billion parameters leave 14 bytes each on the CPU of one GPU: states of 12, gradients of 2."""
    model, plan = load_model("gpt3-13b"), Plan(1, 1, 1, 1, 1, offload_optimizer=True)
    needed = 14 * predict(model, plan, SYSTEM).memory_parts["weights"] / 2
    enough, short = (
        predict(model, plan, replace(SYSTEM, cpu_memory_bytes=8 * needed * share)) for share in (1.001, 0.999)
    )
    assert enough.fits
    assert not short.fits
    share = f"a GPU's share of its node's memory is {needed * 0.999 / 1e9:.1f} GB"
    assert short.reason == f"offloads {needed / 1e9:.1f} GB, and {share}"
    assert enough.iteration_s == short.iteration_s
    plan = Plan(8, 1, 1, 1, 1)
    assert predict(MODEL, plan, SYSTEM).fits
    assert predict(MODEL, plan, replace(SYSTEM, cpu_memory_bytes=1.0)).fits


def test_ranks_that_share_states_share_what_they_offload():
    plan = Plan(1, 1, 8, 1, 8, zero_stage=1, offload_optimizer=True)
    needed = 14 * predict(MODEL, plan, SYSTEM).memory_parts["weights"] / 2 / 8
    for share, fits in ((1.001, True), (0.999, False)):
        assert predict(MODEL, plan, replace(SYSTEM, cpu_memory_bytes=8 * needed * share)).fits == fits


def test_layers_that_wait_in_the_cpus_memory_count_there():
    plan = replace(PLAN, offload_layers=2)
    kept = 2 * activations_of(workload(plan)).kept[0]
    for share, fits in ((1.001, True), (0.999, False)):
        assert predict(MODEL, plan, replace(SYSTEM, cpu_memory_bytes=8 * kept * share)).fits == fits
