"""Plans: every broken rule is named, and a batch returns exactly its plans."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from itertime import Plan, PlanBatch, load_model
from itertime.costs.passes import MICRO_BATCH_COLUMNS
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


VALUES = {
    "tp": [1, 2, 8], "pp": [1, 2, 4], "dp": [1, 2, 4], "micro_batch": [1, 2], "global_batch": [8, 64],
    "interleave": [1, 2], "recompute": RECOMPUTE, "zero_stage": [0, 1, 3], "zero_group": [None],
    "sequence_parallel": [False, True], "grad_overlap": [False, True], "schedule": ["1f1b", "gpipe"],
    "split": ["even", "balanced", "compute"], "cp": [1, 2], "cp_exchange": ["ring", "gather"], "ep": [1, 2],
    "rank_order": ["tp-cp-dp-pp", "tp-cp-pp-dp"], "prefetch": [False, True],
    "bucket_bytes": [None, 25_000_000],
}  # fmt: skip
PLANS = st.builds(Plan, **{name: st.sampled_from(values) for name, values in VALUES.items()})


@given(st.lists(PLANS, min_size=1, max_size=5))
def test_a_batch_returns_its_plans(several):
    batch = PlanBatch.of(several)
    assert [batch.plan(row) for row in range(len(batch))] == several
    assert list(batch.gpus) == [plan.gpus for plan in several]
    assert list(batch.microbatches) == [plan.microbatches for plan in several]


TWO_RANKS = PlanBatch.of([Plan(tp=2, pp=1, dp=4, micro_batch=1, global_batch=64)])
SWITCHES = {name for name in MICRO_BATCH_COLUMNS if getattr(TWO_RANKS, name).dtype == bool}
# Small numbers so that values repeat, large ones so that the keys exceed 64 bits.
NUMBERS = st.one_of(st.integers(0, 9), st.integers(0, 10**15))


def batch(rows: list[dict[str, int]]) -> PlanBatch:
    """Plans with any values in the named columns, including values that no `Plan` allows."""
    columns = {
        name: np.array([row[name] for row in rows], dtype=bool if name in SWITCHES else np.int64)
        for name in MICRO_BATCH_COLUMNS
    }
    return replace(TWO_RANKS.take(np.zeros(len(rows), dtype=np.int64)), **columns)


ROW = st.fixed_dictionaries(
    {name: st.integers(0, 1) if name in SWITCHES else NUMBERS for name in MICRO_BATCH_COLUMNS}
)
BASE = dict.fromkeys(MICRO_BATCH_COLUMNS, 0) | {"tp": 1, "micro_batch": 1, "recompute": 5, "cp": 1, "ep": 1}


@given(st.lists(ROW, min_size=1, max_size=30))
# A sixth recompute mode with micro-batch 1 is not the first mode with micro-batch 2.
@example([BASE, BASE | {"micro_batch": 2, "recompute": 0}])
def test_plans_are_the_same_work_only_if_they_agree_in_every_named_column(rows):
    first, where = batch(rows).distinct(MICRO_BATCH_COLUMNS)
    keys = [tuple(row[name] for name in MICRO_BATCH_COLUMNS) for row in rows]
    assert [keys[first[place]] for place in where] == keys
    assert [keys[row] for row in first] == sorted(set(keys))
    assert first.tolist() == [keys.index(key) for key in sorted(set(keys))]


@given(ROW, st.sampled_from(MICRO_BATCH_COLUMNS), NUMBERS)
def test_two_plans_that_differ_in_one_column_are_different_work(row, name, value):
    value = 1 - row[name] if name in SWITCHES else value + (value == row[name])
    assert len(batch([row, row | {name: value}]).distinct(MICRO_BATCH_COLUMNS)[0]) == 2


def test_no_plan_and_no_column_are_no_error():
    assert [len(found) for found in batch([]).distinct(MICRO_BATCH_COLUMNS)] == [0, 0]
    first, where = batch([BASE] * 3).distinct(())
    assert (first.tolist(), where.tolist()) == ([0], [0, 0, 0])
