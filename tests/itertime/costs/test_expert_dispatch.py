"""Tokens on their way to experts: how many parts they reach, and DeepEP's measured kernels."""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools

import numpy as np
import pytest

from itertime.costs.network import (
    Fabric,
    Group,
    RoutedTokens,
    all_to_all_s,
    combine_s,
    dispatch_s,
    distinct_parts,
)
from itertime.costs.network.expert_dispatch import NOTIFY_S
from itertime.spec import load_system, profile_of
from tests.places import ROOT

H100, RACK = load_system("dgx-h100"), load_system("gb200-nvl72")
ROUTED = RoutedTokens(4096, 7168 * (1 + 4 / 128), 8, 256)


def times(routed, ranks, local, system, dispatcher, **more):
    group, fabric = Group.side_by_side(ranks, local, system), Fabric(system, profile_of(system))
    return float(dispatch_s(routed, group, fabric, dispatcher, **more))


@pytest.mark.parametrize(("experts", "copies", "parts"), [(8, 2, 4), (8, 3, 2), (6, 6, 3), (4, 1, 4)])
def test_parts_that_a_token_reaches(experts: int, copies: int, parts: int) -> None:
    """The mean over all choices of experts."""
    choices = list(itertools.combinations(range(experts), copies))
    reached = [len({expert * parts // experts for expert in choice}) for choice in choices]
    assert distinct_parts(experts, copies, parts) == pytest.approx(np.mean(reached), rel=1e-12)


def test_an_all_to_all_moves_a_copy_for_every_expert() -> None:
    expected = all_to_all_s(8 * 4096 * ROUTED.row_bytes, Group(16, 8), Fabric(H100, profile_of(H100)))
    assert times(ROUTED, 16, 8, H100, "alltoall") == expected
    assert times(ROUTED, 16, 8, H100, "deepep") < expected


def test_a_single_rank_sends_nothing() -> None:
    for dispatcher in ("alltoall", "deepep", "hybridep"):
        assert times(ROUTED, 1, 1, H100, dispatcher) == 0
        assert times(dataclasses.replace(ROUTED, tokens=0), 8, 8, H100, dispatcher) == 0


def test_nodes_get_a_token_once() -> None:
    """With slow NICs, the time between nodes is that of one copy for each other node a token reaches."""
    slow = dataclasses.replace(H100, nic_bytes_per_s=8e9)
    share = slow.achieved_network * 1e9
    for most, reached in ((None, distinct_parts(256, 8, 8)), (4, distinct_parts(128, 8, 4))):
        routed = dataclasses.replace(ROUTED, most_nodes=most)
        expected = 4096 * ROUTED.row_bytes * reached * 7 / 8 / share
        assert times(routed, 64, 8, slow, "deepep") - NOTIFY_S == pytest.approx(expected, rel=1e-3)


def test_a_rack_needs_no_network() -> None:
    """64 ranks in an NVLink domain, and the same over 8 nodes."""
    inside = times(ROUTED, 64, 64, RACK, "hybridep")
    assert inside < times(ROUTED, 64, 64, RACK, "deepep") < times(ROUTED, 64, 8, H100, "deepep")
    bus = 4096 * ROUTED.row_bytes * distinct_parts(256, 8, 64) / inside
    assert 0.8 * RACK.nvlink_bytes_per_s < bus < RACK.nvlink_bytes_per_s


def test_more_multiprocessors_take_less_time_until_the_link_is_full() -> None:
    seconds = [times(ROUTED, 8, 8, H100, "deepep", multiprocessors=count) for count in (4, 8, 16, 132, 10**6)]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[0] / seconds[1] == pytest.approx(2, rel=0.1)
    assert seconds[3] == pytest.approx(seconds[4], rel=0.01)
    back = combine_s(ROUTED, Group.side_by_side(8, 8, H100), Fabric(H100, profile_of(H100)), "deepep")
    assert back == pytest.approx(times(ROUTED, 8, 8, H100, "deepep"), rel=0.2)


def test_the_kernels_of_deepep_are_those_measured(shared_dir) -> None:
    """Rows that nothing was fitted to; 8 nodes of the measured cluster are 1.5 to 3 times slower than 4."""
    spec = importlib.util.spec_from_file_location(
        "expert_dispatch", ROOT / "benchmarks" / "expert_dispatch.py"
    )
    measured = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(measured)
    rows = measured.measured(shared_dir / "data" / "modern_gpus" / "operators" / measured.NAME)
    large = ~measured.fitted_to(rows) & (rows.tokens >= 1024) & (rows.sms >= 16)
    for direction in ("dispatch", "combine"):
        ratios = measured.ratios(rows, direction)
        errors = {n: np.abs(ratios - 1)[large & (rows.nodes == n)].mean() for n in (1, 2, 4, 8)}
        assert max(errors[1], errors[2], errors[4]) < 0.17
        assert np.abs(ratios - 1)[~measured.fitted_to(rows) & (rows.nodes == 1)].mean() < 0.125
        assert 0.3 < np.median(ratios[large & (rows.nodes == 8)]) < 0.75
