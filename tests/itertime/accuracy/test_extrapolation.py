"""A prediction says which parts of the profile it asked for more than was measured."""

from __future__ import annotations

import dataclasses
import logging

import numpy as np
import pytest

from itertime.accuracy import WatchedProfile, extrapolation
from itertime.prediction import evaluate, predict
from itertime.spec import Collective, Elementwise, Plan, PlanBatch, load_model, load_profile, load_system
from itertime.spec.profile import COLLECTIVES

PROFILE = load_profile("a100-80gb")
SYSTEM = load_system("dgx-a100-80gb")
MODEL = load_model("megatron-39.1b")
PLAN = Plan(tp=8, pp=4, dp=4, micro_batch=2, global_batch=128)


@pytest.fixture(autouse=True)
def _a_process_that_has_not_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extrapolation, "_warned", set())


@pytest.mark.parametrize("name", ["a100-80gb", "h100-80gb"])
def test_ranges_cover_what_the_evidence_says(name: str) -> None:
    profile = load_profile(name)
    least = 1 if name == "a100-80gb" else 256
    assert profile.ranges["gemm"] == {"m": (least, 32768), "n": (64, 65536), "k": (64, 65536)}
    assert profile.ranges["attention"]["head_dim"] == (64, 128)
    for collective in COLLECTIVES:
        assert profile.ranges[collective]["bytes"][1] >= 2**26
    for part in profile.evidence:
        without = part.kind == "assumed" or "launch" in part.part or "in training" in part.part
        assert bool(part.measured) != without


def test_within_the_ranges_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    assert predict(MODEL, PLAN, SYSTEM).extrapolated == ()
    assert not caplog.records


def test_an_exchange_that_a_plan_does_not_have_is_not_asked_for() -> None:
    """All gradients of one all-reduce would be 39 GB; ZeRO-3 has no such exchange."""
    plan = Plan(tp=2, pp=1, dp=64, micro_batch=1, global_batch=64)
    assert "all_reduce" in predict(MODEL, plan, SYSTEM).extrapolated
    sharded = predict(MODEL, dataclasses.replace(plan, zero_stage=3), SYSTEM)
    assert "reduce_scatter" in sharded.extrapolated  # a layer's: more than was measured
    assert "all_reduce" not in sharded.extrapolated


def test_beyond_them_the_part_is_named_and_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    long = dataclasses.replace(MODEL, attention="flash", seq_len=65536)
    with caplog.at_level(logging.WARNING):
        first, second = (predict(long, PLAN, SYSTEM) for _ in range(2))
    assert "attention" in first.extrapolated
    assert "gemm" in first.extrapolated
    assert first == second
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith("warning: profile a100-80gb is extrapolated beyond what was measured: ")
    assert "attention (seq=65536, measured 256 to 16384)" in message
    assert all(f"{part} (" in message for part in first.extrapolated)


def test_watching_changes_no_digit() -> None:
    plain = evaluate(MODEL, PlanBatch.of([PLAN]), SYSTEM, PROFILE).prediction(0)
    watched = predict(MODEL, PLAN, SYSTEM, PROFILE)
    assert watched.breakdown == plain.breakdown
    assert watched.memory_parts == plain.memory_parts


def test_groups_of_one_and_empty_kernels_ask_for_nothing() -> None:
    watched = WatchedProfile(PROFILE)
    watched.seconds(Collective("all_reduce", np.array([1e12]), np.array([1])))
    watched.seconds(Elementwise(np.array([0.0, 1e6]), "gelu"))
    assert watched.extrapolated() == ()
    watched.seconds(Collective("all_reduce", np.array([1e12]), np.array([2])))
    watched.seconds(Elementwise(np.array([0.0, 1e15]), "gelu"))
    watched.seconds(Elementwise(1e15, "adam"))  # assumed: there is nothing to go beyond
    assert watched.extrapolated() == ("all_reduce", "gelu")
