"""Plans that agree in some columns of a batch are found exactly, for all values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from itertime import Plan, PlanBatch
from itertime.costs.passes import MICRO_BATCH_COLUMNS

PLAN = PlanBatch.of([Plan(tp=2, pp=1, dp=4, micro_batch=1, global_batch=64)])
SWITCHES = {name for name in MICRO_BATCH_COLUMNS if getattr(PLAN, name).dtype == bool}
# Small numbers so that values repeat, large ones so that the keys exceed 64 bits.
NUMBERS = st.one_of(st.integers(0, 9), st.integers(0, 10**15))


def batch(rows: list[dict[str, int]]) -> PlanBatch:
    """Plans with any values in the named columns, including values that no `Plan` allows."""
    columns = {
        name: np.array([row[name] for row in rows], dtype=bool if name in SWITCHES else np.int64)
        for name in MICRO_BATCH_COLUMNS
    }
    return replace(PLAN.take(np.zeros(len(rows), dtype=np.int64)), **columns)


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
