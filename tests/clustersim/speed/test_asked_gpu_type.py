"""The GPU type that a job asks for: binding on a cluster of several types, else informational."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustersim.cluster import Cluster
from clustersim.cluster.topology import NodeGroup
from clustersim.speed import CannotRun, speed_for
from tests.builders import gpt3

GROUPS = (NodeGroup("old", 2, 8, "a100", "dgx-a100-80gb"), NodeGroup("new", 1, 8, "h100", "dgx-h100"))
CLUSTER = Cluster.of(GROUPS)


def test_offers_of_equal_jobs_that_ask_for_different_types_are_not_confused() -> None:
    speed = speed_for(CLUSTER, "3d")
    job = gpt3("a", 0, 8, 100)
    old, new = replace(job, gpu_type="a100"), replace(job, gpu_type="h100")
    for _ in range(2):
        assert [offer.gpu_type for offer in speed.offers(job)] == ["h100", "a100"]
        assert [offer.gpu_type for offer in speed.offers(old)] == ["a100"]
        assert [offer.gpu_type for offer in speed.offers(new)] == ["h100"]
    assert speed.curve_on(old, "a100") == speed.curve_on(job, "a100")
    with pytest.raises(CannotRun, match="asks for GPU type a100, not h100"):
        speed.curve_on(old, "h100")
    with pytest.raises(CannotRun, match="h100: asks for 16 GPUs, the cluster has 8"):
        speed.offers(replace(new, gpus=16))
