"""Slurm's multifactor priority: by hand, and what becomes of it with one tenant."""

from __future__ import annotations

import pytest

import clustersim
from itertime.errors import UserError
from policies.easy import Easy
from policies.multifactor import Multifactor
from tests.clustersim.backtest.logs import jobs_of


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
