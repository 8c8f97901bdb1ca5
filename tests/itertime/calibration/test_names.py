"""Rows of other sources and models than any table here are read as meant, or skipped with a reason.

The runs are invented; their times are rough and not compared.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from itertime import Site, load_model
from itertime.calibration import validate
from itertime.calibration.conventions import graphs_of, precision_of, published_names, system_of
from itertime.calibration.measured_run import MeasuredRun, measured_run
from itertime.calibration.table import read_table
from tests.effort import examples

NODE = {"gpu": "H100-SXM-80GB", "gpus_per_node": 8, "node_nic_gbps": 3200}
TRAY = {"gpu": "GB200-NVL72", "gpus_per_node": 4, "node_nic_gbps": 1600}
RUN = {
    "id": "run", "attention": "flash", "recompute": "none", "grad_overlap": True, "zero_stage": 1,
    "global_batch": 1024, "micro_batch": 1, "seq_len": 4096, "iteration_s": 10.0,
}  # fmt: skip
DENSE = {
    "layers": 80, "hidden": 8192, "heads": 64, "kv_heads": 8, "ffn_hidden": 28672, "gated_mlp": True,
    "vocab": 128256, "model": "llama3-70b",
}  # fmt: skip
QWEN3 = {
    "layers": 94, "hidden": 4096, "heads": 64, "kv_heads": 4, "head_dim": 128, "gated_mlp": True,
    "vocab": 151936, "experts": 128, "experts_per_token": 8, "moe_ffn_hidden": 1536, "model": "qwen3-235b",
}  # fmt: skip
DEEPSEEK = {
    "layers": 61, "hidden": 7168, "heads": 128, "head_dim": 192, "head_dim_v": 128, "gated_mlp": True,
    "vocab": 129280, "experts": 256, "experts_per_token": 8, "moe_ffn_hidden": 2048,
    "shared_ffn_hidden": 2048, "ffn_hidden": 18432, "model": "deepseek-v3-671b",
}  # fmt: skip
GPT = {"layers": 105, "hidden": 20480, "heads": 128, "vocab": 51200, "seq_len": 2048, "attention": "core"}
BRIDGE = {"framework": "Megatron-Bridge (Megatron Core, Transformer Engine)"}


def plan(tp: int, pp: int, dp: int, cp: int = 1, **others: Any) -> dict[str, Any]:
    degrees = {"tp": tp, "pp": pp, "dp": dp, "cp": cp, "gpus": tp * pp * dp * cp}
    return {**degrees, "sequence_parallel": tp > 1, **others}


def written(folder: Path, row: Mapping[str, Any]) -> Path:
    path = folder / "runs.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        writer.writeheader()
        writer.writerow(row)
    return path


def run_of(folder: Path, *parts: Mapping[str, Any]) -> MeasuredRun:
    row = {name: value for part in (RUN, *parts) for name, value in part.items()}
    (cells,) = read_table(written(folder, row))
    run = measured_run(cells, Site())
    run.plan.check(run.model)
    return run


@pytest.mark.parametrize(
    ("names", "system"),
    [
        ("H100 H100-SXM H100-SXM5-80GB h100-sxm-80gb H100-80GB", "dgx-h100"),
        ("H100-PCIe H100-PCIe-80GB", "h100-pcie"),
        ("H100-SXM-64GB", "marenostrum5"),
        ("H200 H200-SXM-141GB", "dgx-h200"),
        ("B200 B200-180GB B200-SXM-192GB", "dgx-b200"),
        ("B300-SXM-270GB B300-SXM-288GB", "dgx-b300"),
        ("GB200 GB200-186GB GB200-NVL72-186GB", "gb200-nvl72"),
        ("GB300-NVL72 GB300-SXM-288GB", "gb300-nvl72"),
        ("A100-SXM4-40GB", "dgx-a100-40gb"),
        ("A100-PCIe A100-PCIe-80GB NVIDIA-A100-PCIE-80GB", "a100-pcie"),
        ("A100-PCIE-40GB", "a100-pcie-40gb"),
        ("A30 A30-24GB", "a30"),
        ("V100-SXM2-32GB", "dgx-v100"),
    ],
)
def test_names_of_gpus(names: str, system: str) -> None:
    assert {system_of(name) for name in names.split()} == {system}


@pytest.mark.parametrize(
    ("names", "precision"),
    [
        ("bf16 BF16 fp16 bf16-mixed bfloat16 amp_bf16", "bf16"),
        ("fp8 FP8 fp8_cs fp8-ds fp8_hybrid fp8_per_tensor fp8_tensorwise", "fp8"),
        ("fp8_block fp8_sc fp8-sc fp8_blockwise", "fp8_block"),
        ("mxfp8 MXFP8 fp8_mx fp8-mx", "mxfp8"),
        ("nvfp4 NVFP4", "nvfp4"),
        ("tf32 TF32", "tf32"),
    ],
)
def test_names_of_precisions(names: str, precision: str) -> None:
    assert {precision_of(name) for name in names.split()} == {precision}


@pytest.mark.parametrize(
    ("names", "graphs"),
    [
        ("none None False", "none"),
        ("full_iteration local:full_iteration", "full"),
        ("local transformer_engine True full transformer_engine:attn", "layers"),
        ("transformer_engine:attn,moe_router,moe_preprocess transformer_engine:mlp", "layers"),
        ("transformer_engine:moe_router,moe_preprocess", "none"),
    ],
)
def test_names_of_cuda_graphs(names: str, graphs: str) -> None:
    assert {graphs_of(name, []) for name in names.split()} == {graphs}


def test_names_of_models() -> None:
    assert published_names("Qwen3-235B-A22B") == published_names("qwen3-235b") == ("qwen3-235b-a22b",)
    assert published_names("deepseek-v3-671b") == ("deepseek-v3",)
    assert published_names("Meta-Llama-3-8B") == ("llama3-8b",)
    assert published_names("") == published_names("an unpublished model") == ()


def test_modules_with_matrices_are_a_share_of_the_layers(tmp_path: Path) -> None:
    """By hand, the operations of a token in one layer, forward: attention's matrices, scores, MLP."""
    modules = {"recompute": "selective", "recompute_modules": "mlp"}
    run = run_of(tmp_path, NODE, DENSE, BRIDGE, plan(4, 4, 4), modules)
    attention = 2 * 8192 * 8192 + 2 * 8192 * 1024
    scores, mlp = 4096 * 8192, 3 * 8192 * 28672
    assert run.plan.recompute == "full"
    assert run.plan.recompute_fraction == pytest.approx(mlp / (attention + scores + mlp), rel=1e-12)
    both = run_of(
        tmp_path, NODE, QWEN3, BRIDGE, plan(1, 2, 32, ep=32), modules | {"recompute_modules": "moe"}
    )
    attention, experts = 2 * 4096 * (64 + 4) * 128, 8 * 3 * 4096 * 1536
    scores = 4096 * 64 * 128
    assert both.plan.recompute_fraction == pytest.approx(experts / (attention + scores + experts), rel=1e-12)
    assert any("share of layers" in text for text in both.assumed)


CELLS: dict[str, st.SearchStrategy[Any]] = {
    "gpu": st.sampled_from(
        ["H100-SXM-80GB", "H200", "B200", "B300", "GB200-NVL72", "GB300", "A100-SXM-80GB"]
    ),
    "gpus_per_node": st.sampled_from([4, 8, 72]),
    "node_nic_gbps": st.sampled_from([200, 1600, 3200, 28800]),
    "layers": st.integers(1, 130),
    "hidden": st.sampled_from([512, 2048, 4096, 5120]),
    "heads": st.sampled_from([8, 16, 32, 40]),
    "kv_heads": st.sampled_from(["", 1, 2, 8]),
    "ffn_hidden": st.sampled_from(["", 2048, 14336]),
    "head_dim": st.sampled_from(["", 64, 128, 192]),
    "head_dim_v": st.sampled_from(["", "", 128]),
    "gated_mlp": st.sampled_from(["", True, False]),
    "vocab": st.sampled_from([32000, 50257, 128256]),
    "seq_len": st.sampled_from([512, 4096, 131072]),
    "attention": st.sampled_from(["flash", "flash", "core"]),
    "degrees": st.tuples(
        *(st.sampled_from(each) for each in ([1, 2, 3, 8], [1, 2, 5, 8], [1, 4, 32], [1, 2, 8]))
    ),
    "interleave": st.sampled_from(["", 1, 2, 5]),
    "micro_batch": st.sampled_from(["", 1, 4]),
    "global_batch": st.sampled_from([1, 64, 512, 1023]),
    "zero_stage": st.sampled_from(["", 0, 1, 2, 3]),
    "zero_group": st.sampled_from(["", "", 4]),
    "recompute": st.sampled_from(["none", "selective", "full", "elementwise"]),
    "recompute_modules": st.sampled_from(["", "core_attn", "moe;layernorm", "mla_up_proj;mlp", "unheard-of"]),
    "recompute_fraction": st.sampled_from(["", "", 0, 0.5, 1]),
    "sequence_parallel": st.sampled_from(["", True, False]),
    "precision": st.sampled_from(["", "bf16", "fp8", "fp8_cs", "fp8_sc", "mxfp8", "nvfp4", "fp3"]),
    "ep": st.sampled_from(["", 1, 2, 8, 64]),
    "etp": st.sampled_from(["", "", 1, 2]),
    "experts": st.sampled_from(["", "", 8, 60, 128]),
    "experts_per_token": st.sampled_from(["", 1, 2, 8]),
    "moe_ffn_hidden": st.sampled_from(["", 2048]),
    "shared_ffn_hidden": st.sampled_from(["", "", 2048]),
    "framework": st.sampled_from(["", "NeMo", "torchtitan", "NeMo AutoModel", "Megatron-DeepSpeed", "new"]),
    "model": st.sampled_from(["", "llama3-8b", "deepseek-v3", "kimi-k2-1t", "unpublished"]),
    "cuda_graphs": st.sampled_from(["", "local", "transformer_engine:attn", "full_iteration"]),
    "moe_dispatcher": st.sampled_from(["", "alltoall", "hybridep", "flex"]),
    "tp_comm_overlap": st.sampled_from(["", True, False]),
    "cpu_offload_layers": st.sampled_from(["", 0, 2]),
    "power_w": st.sampled_from(["", 500, 1000]),
    "missing": st.sampled_from(["", "recompute", "micro-batch"]),
}


SOUND = st.tuples(
    st.sampled_from([NODE, TRAY, {**NODE, "gpu": "B200"}]),
    st.sampled_from(
        [
            {**DENSE, **plan(8, 4, 4, 2)},
            {**DENSE, **plan(4, 5, 8, interleave=4, global_batch=320)},
            {**QWEN3, **plan(2, 8, 16, ep=32, etp=1, interleave=3)},
            {**QWEN3, **plan(1, 1, 64, ep=64)},
            {**DEEPSEEK, **plan(1, 4, 64, ep=64, etp=1, interleave=4)},
            {**GPT, **plan(8, 35, 8, global_batch=1920)},
        ]
    ),
)
CHANGES = st.lists(st.sampled_from(sorted(set(CELLS) - {"degrees"})), max_size=4).flatmap(
    lambda names: st.fixed_dictionaries({name: CELLS[name] for name in names})
)


def check_answer(folder: Path, row: Mapping[str, Any]) -> None:
    result = validate(written(folder, row))
    if result.skipped:
        assert len(result.skipped[0].why) > 10
        return
    prediction = result.predicted[0].prediction
    assert math.isfinite(prediction.iteration_s)
    assert prediction.iteration_s > 0
    assert prediction.memory_bytes > 0
    for name, value in prediction.breakdown.items():
        assert math.isfinite(value), name
        assert value >= 0, name


@settings(
    max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cells=st.fixed_dictionaries(CELLS))
def test_any_row_is_predicted_or_skipped_with_a_reason(tmp_path: Path, cells: dict[str, Any]) -> None:
    tp, pp, dp, cp = cells.pop("degrees")
    check_answer(tmp_path, {**RUN, **cells, **plan(tp, pp, dp, cp), **cells})


@settings(
    max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(sound=SOUND, changes=CHANGES)
def test_a_sound_row_with_other_cells_is_predicted_or_skipped_with_a_reason(
    tmp_path: Path, sound: tuple[dict[str, Any], dict[str, Any]], changes: dict[str, Any]
) -> None:
    node, run = sound
    check_answer(tmp_path, {**RUN, **node, **run, **BRIDGE, **changes})


def test_a_published_shape_without_its_name_is_said(tmp_path: Path) -> None:
    run = run_of(tmp_path, NODE, DEEPSEEK, {"model": ""}, plan(2, 8, 64, interleave=4, ep=64))
    assert run.model.dense_ffn_hidden == load_model("deepseek-v3").dense_ffn_hidden
    assert run.assumed == ("model: taken as deepseek-v3, whose shape it has",)
