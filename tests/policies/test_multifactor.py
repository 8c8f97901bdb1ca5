"""Slurm's multifactor priority: by hand, and what becomes of it with one tenant."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import clustersim
from clustersim.testing import simulate
from itertime.errors import UserError
from policies.easy import Easy
from policies.multifactor import Multifactor
from tests.builders import rigid, starts
from tests.clustersim.backtest.logs import jobs_of

DAY_S = 86400.0


def of(tenant: str, *job: Any) -> Any:
    return replace(rigid(*job), tenant=tenant)


def test_the_tenant_that_used_less_comes_first() -> None:
    """Both wait for the 8 GPUs that a job of `much` holds. A large weight of age puts the older first."""
    jobs = [of("much", "a", 0, 8, 1000), of("much", "b", 10, 8, 100), of("little", "c", 20, 8, 100)]
    assert starts(simulate(jobs, Multifactor(), "n1g8")) == {"a": 0, "b": 1100, "c": 1000}
    by_age = Multifactor(age_weight=1e9, fair_share_weight=1)
    assert starts(simulate(jobs, by_age, "n1g8")) == {"a": 0, "b": 1000, "c": 1100}


def test_usage_decays() -> None:
    """`late` used as much as `early` did ten half-lives before, so `early` comes first, although submitted
    later.
    """
    jobs = [
        of("early", "a", 0, 8, 1000),
        of("late", "b", 10 * DAY_S, 8, 1000),
        of("late", "c", 10 * DAY_S + 10, 8, 100),
        of("early", "d", 10 * DAY_S + 20, 8, 100),
    ]
    found = starts(simulate(jobs, Multifactor(half_life_s=DAY_S), "n1g8"))
    assert found["d"] == 10 * DAY_S + 1000 < found["c"]
    equal = starts(simulate(jobs, Multifactor(half_life_s=1e12), "n1g8"))
    assert equal["c"] == 10 * DAY_S + 1000 < equal["d"]


def test_large_jobs_may_come_first() -> None:
    jobs = [of("t", "a", 0, 8, 100), of("t", "small", 1, 6, 100), of("t", "large", 2, 8, 100)]
    assert starts(simulate(jobs, Multifactor(), "n1g8"))["small"] == 100
    assert starts(simulate(jobs, Multifactor(size_weight=1000), "n1g8"))["large"] == 100


def test_a_tenant_at_its_limit_blocks_no_other() -> None:
    jobs = [of("t", "a", 0, 4, 100), of("t", "b", 1, 4, 100), of("u", "c", 2, 4, 100)]
    assert starts(simulate(jobs, Multifactor(tenant_limit=4), "n1g8")) == {"a": 0, "b": 100, "c": 2}
    assert starts(simulate(jobs, Multifactor(), "n1g8")) == {"a": 0, "b": 1, "c": 100}
    for limits in ({"t": 4}, {"t": 4, "u": 8}, {"t": 7}):
        assert starts(simulate(jobs, Multifactor(tenant_limits=limits), "n1g8"))["b"] == 100
    others = Multifactor(tenant_limit=2, tenant_limits={"t": 8, "u": 4})
    assert starts(simulate(jobs, others, "n1g8")) == {"a": 0, "b": 1, "c": 100}


def test_limits_by_tenant_are_numbers() -> None:
    with pytest.raises(UserError, match="tenant_limits: t=0: must be a finite number, at least 1"):
        clustersim.run(jobs_of(2), "multifactor", cluster="n16g1", params={"tenant_limits": {"t": 0}})


@pytest.mark.parametrize("seed", [1, 2])
def test_with_one_tenant_it_is_easy(seed: int) -> None:
    jobs = jobs_of(seed=seed)
    runs = [clustersim.run(jobs, policy, cluster="n16g1", overheads=None) for policy in (Multifactor, Easy)]
    assert runs[0].events == runs[1].events


@pytest.mark.parametrize("name", ["age_weight", "half_life_s", "tenant_limit", "estimate_factor"])
def test_a_parameter_out_of_range_is_named(name: str) -> None:
    with pytest.raises(UserError, match=f"{name}=-1"):
        clustersim.run(jobs_of(2), "multifactor", cluster="n16g1", params={name: -1})
