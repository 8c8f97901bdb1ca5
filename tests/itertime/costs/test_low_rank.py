"""Low-rank matrices beside frozen weights, and training in 32 bit with TF32."""

from dataclasses import replace

import numpy as np
import pytest

from itertime import Plan, PlanBatch, load_model, load_system, predict
from itertime.costs.layer import kernel_counts
from itertime.spec import Elementwise, Gemm, PlanOptions, load_profile

SYSTEM = load_system("dgx-h100,framework=te")
WHOLE = load_model("llama2-7b")
LOW = replace(WHOLE, lora_rank=16)
PLAN = Plan(1, 1, 8, 1, 8, recompute="none")


def test_mlperf_trains_44_564_480_parameters_of_llama_2_70b():
    """Rank 16 beside the matrices of attention: 80 x 16 x (8192 + 10240 + 8192 + 8192)."""
    model = load_model("llama2-70b-lora")
    assert model.trained_parameters == 44_564_480
    assert model.parameters == load_model("llama2-70b").parameters


def test_a_rank_of_the_width_on_every_layer_has_weights_of_the_same_order():
    h, f = WHOLE.hidden, WHOLE.ffn_hidden
    model = replace(WHOLE, lora_rank=1, lora_targets="linear")
    assert model.lora_parameters == (h + 3 * h) + (h + h) + (h + 2 * f) + (f + h)


def test_model_flops_are_two_thirds_but_for_attention():
    assert LOW.flops_per_iteration(8) / WHOLE.flops_per_iteration(8) == pytest.approx(0.7, abs=0.04)
    assert replace(LOW, lora_rank=1).flops_per_iteration(8) < LOW.flops_per_iteration(8)


@pytest.mark.parametrize("tp", [1, 4, 8])
def test_states_of_the_optimizer_and_gradients_are_those_of_the_low_rank_matrices(tp):
    found, whole = (predict(model, replace(PLAN, tp=tp), SYSTEM) for model in (LOW, WHOLE))
    owned = LOW.trained_parameters / tp
    assert found.memory_parts["optimizer"] == pytest.approx(12 * owned)
    assert found.memory_parts["gradients"] == pytest.approx(2 * owned)
    assert found.memory_parts["weights"] == pytest.approx(whole.memory_parts["weights"] + 2 * owned)
    assert found.breakdown["dp_comm"] < whole.breakdown["dp_comm"] / 20


def test_frozen_weights_of_four_bit_are_widened_for_every_product():
    """QLoRA keeps 4.127 bits a weight of a layer; each pass reads them and writes 16 bit."""
    narrow, plan = replace(LOW, frozen_bits=4), replace(PLAN, recompute="full")
    usual, found = (predict(model, plan, SYSTEM) for model in (LOW, narrow))
    layers = WHOLE.layers * WHOLE.layer_parameters
    spared = layers * (2 - 4.127 / 8)
    assert usual.memory_parts["weights"] - found.memory_parts["weights"] == pytest.approx(spared, rel=1e-4)
    more = (found.iteration_s - usual.iteration_s) * 3.35e12  # bytes at the peak of the memory
    assert 3 * layers * (2 + 4.127 / 8) < more < 4.5 * layers * (2 + 4.127 / 8)
    sharded = [
        predict(model, replace(plan, dp=64, global_batch=64, zero_stage=3), SYSTEM) for model in (LOW, narrow)
    ]
    assert sharded[1].breakdown["fsdp_comm"] < sharded[0].breakdown["fsdp_comm"]


def test_inputs_of_frozen_products_are_not_kept():
    """Beside attention alone: neither the MLP's input nor its activation's result, h + f elements."""
    every = replace(LOW, lora_targets="linear")
    kept = [predict(model, PLAN, SYSTEM).memory_parts["activations"] for model in (every, LOW)]
    dropped = 2 * WHOLE.layers * WHOLE.seq_len * (WHOLE.hidden + WHOLE.ffn_hidden)
    assert kept[0] - kept[1] == pytest.approx(dropped)


def test_kernels_are_counted():
    plans = PlanBatch.of([PLAN])
    more, back = np.subtract(kernel_counts(LOW, plans), kernel_counts(WHOLE, plans)).ravel()
    assert (more, back) == (4 * 2, 8 * 2 - 2 * 5)


def test_mlperfs_plan_fits_eight_gpus_in_fp8():
    """NVIDIA ran the benchmark on one DGX H100; with every weight trained no plan of 8 GPUs holds it."""
    plan = Plan(4, 1, 2, 1, 8, sequence_parallel=True, precision="fp8", recompute="none", cp=1)
    model = load_model("llama2-70b-lora")
    assert predict(model, plan, SYSTEM, memory_headroom=0).fits
    assert not predict(replace(model, lora_rank=0), plan, SYSTEM, memory_headroom=0).fits


def test_frozen_weights_and_what_attention_and_activation_keep_take_a_byte_each_in_fp8():
    """The benchmark ran on B200 of 192 GB with a whole copy on each GPU, attention and activations in FP8."""
    model, plan = load_model("llama2-70b-lora"), replace(PLAN, precision="fp8", zero_stage=1)
    inputs = PlanOptions(activation_inputs="fp8")
    b200 = replace(load_system("dgx-b200"), framework="te")
    in_16_bit, kept, both = (
        predict(model, replace(plan, options=options), b200)
        for options in (PlanOptions(), inputs, replace(inputs, attention_precision="fp8"))
    )
    frozen = both.memory_parts["weights"] - 2 * model.trained_parameters
    assert frozen == pytest.approx(model.parameters, rel=0.02)  # tables are in 16 bit
    tokens = model.layers * model.seq_len
    dropped = [
        a.memory_parts["activations"] - b.memory_parts["activations"]
        for a, b in ((in_16_bit, kept), (kept, both))
    ]
    assert dropped[0] == pytest.approx(tokens * 2 * model.ffn_hidden)
    # Queries, keys, values and output; the low-rank product reads the output in 16 bit.
    assert dropped[1] == pytest.approx(
        tokens * (2 * model.q_hidden + 2 * model.kv_hidden - 2 * model.v_hidden)
    )
    assert both.fits
    assert not in_16_bit.fits
    assert both.breakdown["attention"] < 0.9 * kept.breakdown["attention"]


MIXTURE = load_model("mixtral-8x7b")
EXPERTS = replace(MIXTURE, lora_rank=16, lora_targets="linear")
SPREAD = Plan(2, 1, 4, 1, 32, ep=4, sequence_parallel=True, recompute="none", zero_stage=1)


def test_experts_have_low_rank_matrices_of_their_own():
    """Rank 16 beside attention (h to 6144, 4096 to h) and beside two matrices of each of 8 experts (h to
    2 x 14336, 14336 to h); a token passes those of 2. A rank has the experts' of 2 in 8, attention's by tp.
    """
    h, f, rank, layers = 4096, 14336, 16, 32
    attention, expert = rank * (h + 6144 + 4096 + h), rank * (h + 2 * f + f + h)
    narrow = replace(EXPERTS, lora_targets="attention")
    assert EXPERTS.trained_parameters == layers * (attention + 8 * expert)
    assert narrow.trained_parameters == layers * attention
    assert EXPERTS.adapter_flops == 2 * layers * (attention + 2 * expert)
    whole, found, beside_attention = (predict(each, SPREAD, SYSTEM) for each in (MIXTURE, EXPERTS, narrow))
    owned = layers * (attention / 2 + 8 * expert / (4 * 2))  # etp = tp
    assert found.memory_parts["gradients"] == pytest.approx(2 * owned)
    assert found.memory_parts["weights"] == pytest.approx(whole.memory_parts["weights"] + 2 * owned)
    # Beside attention alone, two copies of a token keep neither h nor f elements.
    copies = layers * MIXTURE.seq_len / 2 * 2
    kept = found.memory_parts["activations"] - beside_attention.memory_parts["activations"]
    assert kept == pytest.approx(2 * copies * (h + f) + 2 * layers * MIXTURE.seq_len / 2 * h, rel=0.02)
    assert beside_attention.breakdown["gemm"] < found.breakdown["gemm"] < whole.breakdown["gemm"]
    in_four_bit = predict(replace(EXPERTS, frozen_bits=4), SPREAD, SYSTEM)
    of_experts = 8 * MIXTURE.expert_parameters
    spared = (2 - 4.127 / 8) * layers * ((MIXTURE.layer_parameters - of_experts) / 2 + of_experts / 8)
    lacking = found.memory_parts["weights"] - in_four_bit.memory_parts["weights"]
    assert lacking == pytest.approx(spared, rel=1e-4)
    assert in_four_bit.breakdown["elementwise"] > found.breakdown["elementwise"]


HALVES = replace(WHOLE, kinds={"front": {}, "later": {}}, stack=("16 front", "16 later"))


@pytest.mark.parametrize(
    ("frozen", "trained", "passes"),
    [
        (("layers",), 0, 2),  # gradients of inputs go to the embedding
        (("front",), 16, 2.5),
        (("front", "embedding"), 16, 2),  # nothing before the later half is trained
        (("later",), 16, 2.5),
    ],
)
def test_frozen_layers_have_no_gradients_and_what_is_before_all_trained_no_backward_pass(
    frozen, trained, passes
):
    """Products of a layer: one forward, one for inputs, one for weights; `passes` of three on average."""
    model = replace(HALVES, frozen=frozen)
    whole, found = predict(HALVES, PLAN, SYSTEM), predict(model, PLAN, SYSTEM)
    assert found.breakdown["gemm"] == pytest.approx(whole.breakdown["gemm"] * passes / 3, rel=0.03)
    tables = (1 if "embedding" in frozen else 2) * WHOLE.vocab * WHOLE.hidden
    assert found.memory_parts["gradients"] == pytest.approx(
        2 * (tables + trained * WHOLE.layer_parameters), rel=1e-3
    )
    assert model.trained_parameters == pytest.approx(tables + trained * WHOLE.layer_parameters, rel=1e-4)
    share = 0.5 if "embedding" in frozen else 1.0
    assert found.breakdown["attention"] == pytest.approx(
        whole.breakdown["attention"] * (share + (1 - share) * 1 / 3.5), rel=0.1
    )
    forward = WHOLE.forward_flops()
    flops = 3 * forward.head + passes * forward.layers + (1 + 2 * share) * forward.counted_scores
    assert found.model_flops == pytest.approx(flops * found.tokens)
    assert found.memory_parts["activations"] < whole.memory_parts["activations"]
    again = replace(PLAN, recompute="full")
    repeated = [predict(each, again, SYSTEM).breakdown["recompute"] for each in (HALVES, model)]
    assert repeated[1] == pytest.approx(share * repeated[0])


GPT = replace(load_model("gpt3-1.3b"), attention="core")
DGX_A100 = load_system("dgx-a100-80gb")
A100 = load_profile("a100-80gb")
HALF = Plan(1, 1, 8, 4, 32, recompute="none")
WIDE = replace(HALF, precision="tf32")


def test_a_product_takes_twice_the_time_beside_its_launch() -> None:
    """Half the rate, twice the bytes of every matrix: both limits double, and so does any blend of them."""
    m, n, k = np.array([64.0, 4096.0, 8192.0]), 4096.0, 1024.0
    launch = A100.gemm.launch_s
    half, whole = (A100.seconds(Gemm(m, n, k, precision=each)) - launch for each in ("bf16", "tf32"))
    assert whole == pytest.approx(2 * half, rel=1e-12)
    assert A100.peak_flops_of("tf32") == 156e12


def test_a_layer_takes_about_twice_as_long() -> None:
    """Every kernel doubles but for its launch; adding a gradient to its sum moves 12 bytes instead of 6."""
    half, whole = (predict(GPT, each, DGX_A100).breakdown for each in (HALF, WIDE))
    for part in ("gemm", "attention", "elementwise"):
        assert whole[part] == pytest.approx(2 * half[part], rel=0.03)
        assert whole[part] < 2 * half[part]


@pytest.mark.parametrize("stage", [0, 1, 3])
def test_gradients_and_weights_travel_in_32_bit(stage: int) -> None:
    """On 64 GPUs the NICs decide: twice the bytes, twice the time, beside the delays of hops."""
    system = replace(DGX_A100, network_latency_s=0.0)
    plans = [
        replace(each, dp=64, global_batch=256, zero_stage=stage, prefetch=False) for each in (HALF, WIDE)
    ]
    half, whole = (predict(GPT, each, system).breakdown for each in plans)
    names = ("dp_comm",) if stage < 3 else ("fsdp_comm", "fsdp_last")
    for name in names:
        assert whole[name] == pytest.approx(2 * half[name], rel=1e-6)


def test_activations_travel_in_32_bit() -> None:
    plans = [replace(each, tp=8, pp=2, dp=1, micro_batch=8) for each in (HALF, WIDE)]
    half, whole = (predict(GPT, each, DGX_A100).breakdown for each in plans)
    assert whole["tp_comm"] == pytest.approx(2 * half["tp_comm"], rel=0.1)
    assert whole["p2p"] == pytest.approx(2 * half["p2p"], rel=0.1)
    assert whole["embedding_sync"] == pytest.approx(2 * half["embedding_sync"], rel=0.1)


def test_memory_has_sixteen_bytes_a_parameter_and_none_beside_them() -> None:
    """Weights, gradients and two moments of 4 bytes; in 16 bit 2, 2 and 12, and gradients in 32 bit in the
    step.
    """
    half, whole = (predict(GPT, each, DGX_A100).memory_parts for each in (HALF, WIDE))
    parameters = half["weights"] / 2
    assert whole["weights"] == whole["gradients"] == 4 * parameters
    assert whole["optimizer"] == 8 * parameters
    assert whole["optimizer_step"] == 0
    assert whole["activations"] == pytest.approx(2 * half["activations"], rel=1e-12)


@pytest.mark.parametrize(("optimizer", "nbytes"), [("adam", 38), ("fused-adam", 28), ("torch-adamw", 92)])
def test_a_step_neither_unscales_nor_copies(optimizer: str, nbytes: float) -> None:
    """Adam has 50 bytes less 6 of unscaling and 6 of the copy, the others neither; launches add a little."""
    options = PlanOptions(optimizer=optimizer, clipping="after")  # type: ignore[arg-type]
    plan = replace(WIDE, options=options, dp=1, micro_batch=1, global_batch=1)
    found = predict(GPT, plan, DGX_A100)
    owned = found.memory_parts["optimizer"] / 8
    bandwidth = 1e12 / float(A100.seconds(Elementwise(1e12, "adam")))
    assert found.breakdown["optimizer"] == pytest.approx(nbytes * owned / bandwidth, rel=0.02)


def test_an_offloaded_step_moves_32_bit_both_ways() -> None:
    plan = replace(WIDE, offload_optimizer=True)
    slow = replace(DGX_A100, gpu_cpu_bytes_per_s=1e9)
    found = predict(GPT, plan, slow)
    owned = predict(GPT, WIDE, slow).memory_parts["optimizer"] / 8
    assert found.breakdown["optimizer_copies"] == pytest.approx(4 * owned / 0.8e9, rel=1e-9)
    assert found.breakdown["optimizer"] == pytest.approx(4 * owned / 0.8e9, rel=1e-9)
