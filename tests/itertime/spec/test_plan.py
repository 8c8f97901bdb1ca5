"""Plans: every broken rule is named, and a batch returns exactly its plans."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from itertime import Plan, PlanBatch, load_model
from itertime.spec import RECOMPUTE

MODEL = load_model("megatron-39.1b")  # 48 layers, 64 heads, s 2048


@pytest.mark.parametrize("field", ["tp", "recompute", "zero_stage", "bucket_bytes"])
def test_of_a_long_value_the_beginning_is_shown(field):
    plan = replace(Plan(tp=1, pp=1, dp=1, micro_batch=1, global_batch=1), **{field: "x" * 100_000})
    (rule,) = plan.broken_rules(MODEL)
    assert rule.startswith(f"{field}='xxx")
    assert len(rule) < 200


def test_keys_and_values_may_be_shared_by_tensor_parallel_ranks():
    llama = load_model("llama2-70b")  # 8 key/value heads
    assert Plan(16, 1, 1, 1, 1).broken_rules(llama) == []
    assert Plan(1, 1, 1, 1, 1).broken_rules(llama) == []


def test_a_balanced_split_needs_no_divisor():
    assert Plan(8, 5, 1, 1, 8, split="balanced").broken_rules(MODEL) == []


plans = st.builds(
    Plan,
    tp=st.sampled_from([1, 2, 8]),
    pp=st.sampled_from([1, 2, 4]),
    dp=st.sampled_from([1, 2, 4]),
    micro_batch=st.sampled_from([1, 2]),
    global_batch=st.sampled_from([8, 64]),
    interleave=st.sampled_from([1, 2]),
    recompute=st.sampled_from(RECOMPUTE),
    zero_stage=st.sampled_from([0, 1, 3]),
    zero_group=st.none(),
    sequence_parallel=st.booleans(),
    grad_overlap=st.booleans(),
    schedule=st.sampled_from(["1f1b", "gpipe"]),
    split=st.sampled_from(["even", "balanced", "compute"]),
    cp=st.sampled_from([1, 2]),
    cp_exchange=st.sampled_from(["ring", "gather"]),
    ep=st.sampled_from([1, 2]),
    rank_order=st.sampled_from(["tp-cp-dp-pp", "tp-cp-pp-dp"]),
    prefetch=st.booleans(),
    bucket_bytes=st.sampled_from([None, 25_000_000]),
)


@given(st.lists(plans, min_size=1, max_size=5))
def test_a_batch_returns_its_plans(several):
    batch = PlanBatch.of(several)
    assert [batch.plan(row) for row in range(len(batch))] == several
    assert list(batch.gpus) == [plan.gpus for plan in several]
    assert list(batch.microbatches) == [plan.microbatches for plan in several]
