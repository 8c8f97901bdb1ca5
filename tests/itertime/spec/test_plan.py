"""Plans: every broken rule is named, and a batch returns exactly its plans."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from itertime import Plan, PlanBatch, load_model
from itertime.errors import UserError
from itertime.spec import RECOMPUTE

MODEL = load_model("megatron-39.1b")  # 48 layers, 64 heads, s 2048
GOOD = {"tp": 8, "pp": 4, "dp": 2, "micro_batch": 2, "global_batch": 64}


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"tp": 3}, "tp=3: must divide heads=64"),
        ({"pp": 49}, "pp=49: has more stages than the model has layers"),
        ({"pp": 5}, "pp=5: must divide layers=48"),
        ({"global_batch": 63}, "must be a multiple of dp x micro_batch = 4"),
        ({"interleave": 5}, "pp x interleave = 20 must divide layers=48"),
        ({"interleave": 2, "pp": 1}, "interleave=2: needs pp > 1"),
        ({"interleave": 2, "global_batch": 40}, "pp=4 must divide the 10 micro-batches"),
        ({"interleave": 2, "schedule": "gpipe"}, "interleave=2: needs schedule=1f1b"),
        ({"zero_stage": 1, "zero_group": 3}, "zero_group=3: must divide dp=2"),
        ({"zero_stage": 3}, "zero_stage=3: needs pp=1"),
        ({"dp": 0}, "dp=0"),
        ({"dp": 2.0}, "dp=2.0"),
        ({"tp": True}, "tp=True"),
        ({"recompute": "some"}, "recompute='some'"),
        ({"schedule": "zigzag"}, "schedule='zigzag'"),
        ({"zero_stage": 4}, "zero_stage=4"),
        ({"cp": 2}, "cp=2: needs flash attention"),
        ({"ep": 2}, "ep=2: needs a model with experts"),
        ({"rank_order": "dp-tp"}, "rank_order='dp-tp'"),
        ({"cp_exchange": "mail"}, "cp_exchange='mail'"),
        ({"bucket_bytes": 0}, "bucket_bytes=0"),
    ],
)
def test_a_broken_rule_is_named(change, rule):
    with pytest.raises(UserError) as error:
        Plan(**{**GOOD, **change}).check(MODEL)
    assert rule in str(error.value)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"ep": 3}, "ep=3: must divide experts=8"),
        ({"ep": 8}, "ep=8: must divide dp x cp = 4"),
        ({"sequence_parallel": False}, "tp=8: needs sequence_parallel"),
        ({"cp": 3, "zero_group": 4}, "zero_group=4: must divide dp=2 x cp=3"),
        ({"cp": 3}, "cp=3: two pieces a rank must divide seq_len=2048 on tp=8 ranks"),
    ],
)
def test_rules_of_experts_and_context_are_named(change, rule):
    mixture = replace(MODEL, experts=8, experts_per_token=2, attention="flash")
    good = Plan(**{**GOOD, "cp": 2, "sequence_parallel": True})
    assert good.broken_rules(mixture) == []
    with pytest.raises(UserError) as error:
        replace(good, **change).check(mixture)
    assert rule in str(error.value)


def test_all_broken_rules_are_named_at_once():
    broken = Plan(tp=3, pp=5, dp=7, micro_batch=1, global_batch=64).broken_rules(MODEL)
    assert [rule.split("=")[0] for rule in broken] == ["tp", "tp", "pp", "global_batch"]


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
