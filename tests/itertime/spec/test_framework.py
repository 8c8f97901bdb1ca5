"""Frameworks: files, and what each of their values does to a prediction."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from itertime import Plan, load_model, load_system, predict
from itertime.spec import Framework, list_frameworks, load_framework

SYSTEM = load_system("dgx-h100")
MODEL = load_model("llama3-8b")
SHARDED = Plan(tp=1, pp=1, dp=16, micro_batch=1, global_batch=64, zero_stage=3, recompute="none")
TENSOR = Plan(tp=8, pp=1, dp=1, micro_batch=1, global_batch=8, sequence_parallel=True, recompute="none")
PIPELINE = Plan(tp=2, pp=4, dp=1, micro_batch=1, global_batch=8, recompute="none")
NEUTRAL = Framework(name="neutral", source="a test")


def seconds(plan: Plan, **changes: object) -> float:
    framework = replace(NEUTRAL, **changes)  # type: ignore[arg-type]
    return predict(MODEL, plan, SYSTEM, framework=framework).iteration_s


def test_every_shipped_framework_loads_and_names_its_source() -> None:
    assert {"te", "compile", "eager", "megatron", "megatron-deepspeed"} <= set(list_frameworks())
    for name in list_frameworks():
        framework = load_framework(name)
        assert framework.name == name
        assert len(framework.source) > 20


def test_the_neutral_framework_changes_nothing() -> None:
    shipped = load_framework("megatron")
    assert replace(shipped, name="neutral", source="a test") == NEUTRAL


def test_a_file_extends_a_shipped_framework(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("extends: te\nname: mine\ncontention: 0.5\n")
    mine = load_framework(str(file))
    assert mine == replace(load_framework("te"), name="mine", contention=0.5)
    system = replace(SYSTEM, framework=str(file))
    assert predict(MODEL, SHARDED, system) == predict(MODEL, SHARDED, SYSTEM, framework=mine)


def test_hidden_communication_slows_computation_by_the_stated_share() -> None:
    none, half, whole = (seconds(SHARDED, contention=share) for share in (0.0, 0.5, 1.0))
    assert none < half < whole
    assert whole - half == pytest.approx(half - none)
    parts = predict(MODEL, SHARDED, SYSTEM, framework=replace(NEUTRAL, contention=1.0)).breakdown
    assert parts["contention"] == pytest.approx(whole - none)


def test_only_the_stated_share_of_overlapped_tensor_parallel_communication_is_exposed() -> None:
    def exposed(plan: Plan, **changes: object) -> float:
        framework = replace(NEUTRAL, **changes)  # type: ignore[arg-type]
        return predict(MODEL, plan, SYSTEM, framework=framework).breakdown["tp_comm"]

    full = exposed(TENSOR)
    assert exposed(TENSOR, tp_exposed=0.25) == full  # a framework that hides nothing by default
    assert exposed(TENSOR, tp_exposed=0.25, tp_overlap=True) == pytest.approx(full / 4)
    assert exposed(replace(TENSOR, tp_overlap=True), tp_exposed=0.25) == pytest.approx(full / 4)
    assert exposed(replace(TENSOR, tp_overlap=False), tp_exposed=0.25, tp_overlap=True) == full
    whole = replace(TENSOR, sequence_parallel=False)
    assert exposed(whole, tp_exposed=0.25, tp_overlap=True) == exposed(whole) > 0


def test_overheads_add_up_by_layer_micro_batch_and_stage() -> None:
    layers, batches = MODEL.layers, PIPELINE.microbatches
    assert seconds(TENSOR, layer_s=1e-3) - seconds(TENSOR) == pytest.approx(layers * 8 * 1e-3)
    assert seconds(TENSOR, iteration_s=0.5) - seconds(TENSOR) == pytest.approx(0.5)
    assert seconds(TENSOR, pipeline_layer_s=1.0, micro_batch_s=1.0) == seconds(TENSOR)
    # A pipeline of equal stages is as long as its micro-batches and the bubble of the others.
    more = seconds(PIPELINE, pipeline_layer_s=1e-3) - seconds(PIPELINE)
    assert more == pytest.approx((batches + 3) * layers / 4 * 1e-3, rel=1e-6)
    more = seconds(PIPELINE, micro_batch_s=1e-3) - seconds(PIPELINE)
    assert more == pytest.approx((batches + 3) * 1e-3, rel=1e-6)


def test_a_framework_with_a_fused_loss_saves_time_and_memory_as_a_model_does() -> None:
    by_model = predict(replace(MODEL, fused_loss=True), SHARDED, SYSTEM, framework=NEUTRAL)
    by_framework = predict(MODEL, SHARDED, SYSTEM, framework=replace(NEUTRAL, fused_loss=True))
    plain = predict(MODEL, SHARDED, SYSTEM, framework=NEUTRAL)
    assert by_framework.iteration_s == by_model.iteration_s < plain.iteration_s
    assert by_framework.memory_bytes == by_model.memory_bytes < plain.memory_bytes
