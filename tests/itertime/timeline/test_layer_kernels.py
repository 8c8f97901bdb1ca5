"""The kernels of a layer: they sum to what a prediction charges, whatever the plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from itertime.prediction import predict
from itertime.spec import Plan, load_model, load_system, profile_of
from itertime.timeline import LayerKernel, layer_kernels

A100 = load_system("dgx-a100-80gb")
PARTS = ("gemm", "attention", "elementwise", "tp_comm", "recompute", "overhead", "cp_comm", "ep_comm")


def listed(
    model: str, system: Any = A100, **changes: Any
) -> tuple[Plan, list[LayerKernel], dict[str, float]]:
    values: dict[str, Any] = {"tp": 1, "pp": 1, "dp": 1, "micro_batch": 1, "global_batch": 4}
    plan = Plan(**values | {"recompute": "none"} | changes)
    return plan, *layer_kernels(load_model(model), plan, system, profile_of(system))


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        ("llama2-7b", {}),
        ("llama2-7b", {"tp": 4, "sequence_parallel": True, "recompute": "full", "micro_batch": 2}),
        ("llama2-7b", {"cp": 4, "recompute": "selective"}),
        ("llama2-7b", {"tp": 16, "recompute": "early-stop"}),
        ("gpt3-175b", {"tp": 8, "recompute": "selective"}),
        ("mixtral-8x7b", {"dp": 4, "ep": 4, "tp": 2, "sequence_parallel": True}),
        ("gpt2-small", {}),
    ],
)
def test_the_rows_sum_to_what_predict_charges(model: str, changes: dict[str, Any]) -> None:
    plan, rows, parts = listed(model, **changes)
    assert sum(row.seconds for row in rows) == pytest.approx(sum(parts.values()), rel=1e-8)
    for part, seconds in parts.items():
        own = sum(row.seconds for row in rows if row.part == part)
        assert own == pytest.approx(seconds, rel=1e-7, abs=1e-9 * sum(parts.values())), part
    charged = predict(load_model(model), plan, A100).breakdown
    layers = load_model(model).layers * plan.microbatches
    for part in PARTS:
        if part in charged:
            assert charged[part] / layers == pytest.approx(parts.get(part, 0.0), rel=1e-9, abs=1e-15), part


def test_a_dense_layer_on_one_gpu_is_all_kernels() -> None:
    _, rows, _ = listed("llama2-7b")
    assert not [row for row in rows if row.limit == "not a kernel"]
    gemms = [row for row in rows if row.kernel == "gemm bf16"]
    # QKV, projection, two up, down; forward once, backward twice.
    for pass_, count in (("forward", 5), ("backward", 10)):
        runs = sum(row.runs for row in gemms if row.pass_ == pass_)
        assert runs == pytest.approx(count, rel=1e-6)
    assert all(0 < row.rate * 1e12 < profile_of(A100).peak_flops for row in gemms)
    assert {row.limit for row in gemms} == {"arithmetic"}
    norms = [row for row in rows if row.kernel == "rmsnorm" and row.pass_ == "forward"]
    assert [round(row.runs, 6) for row in norms] == [2]
    assert norms[0].limit == "memory"


def test_recomputation_repeats_the_forward_pass() -> None:
    _, rows, parts = listed("llama2-7b", recompute="full")
    forward, again = (
        sorted((row.kernel, row.shape, row.seconds) for row in rows if row.pass_ == pass_)
        for pass_ in ("forward", "recompute")
    )
    assert [one[:2] for one in again] == [one[:2] for one in forward]
    assert sum(one[2] for one in again) == pytest.approx(parts["recompute"], rel=1e-8)


def test_what_is_no_kernel_is_a_row_of_its_own() -> None:
    system = replace(A100, site=replace(A100.site, layer_overhead_s=3e-4))
    _, rows, _ = listed("llama2-7b", system)
    others = {(row.kernel, row.pass_): row.seconds for row in rows if row.limit == "not a kernel"}
    assert others == {
        ("framework and site", "forward"): pytest.approx(1e-4),
        ("framework and site", "backward"): pytest.approx(2e-4),
    }
    _, rows, _ = listed("llama2-7b", tp=16)  # beyond a node of 8
    assert {row.kernel for row in rows if row.limit == "not a kernel"} >= {"between nodes, latency"}
    _, rows, _ = listed("gpt2-small")  # so small that the GPU waits for the CPU
    assert "wait for launches" in {row.kernel for row in rows}
