"""Slurm's multifactor priority: by hand, and what becomes of it with one tenant."""

from __future__ import annotations

import pytest

import clustersim
from policies.easy import Easy
from policies.multifactor import Multifactor
from tests.clustersim.backtest.logs import jobs_of


@pytest.mark.parametrize("seed", [1, 2])
def test_with_one_tenant_it_is_easy(seed: int) -> None:
    jobs = jobs_of(seed=seed)
    runs = [clustersim.run(jobs, policy, cluster="n16g1", overheads=None) for policy in (Multifactor, Easy)]
    assert runs[0].events == runs[1].events
