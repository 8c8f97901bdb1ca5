"""What starts and restarts cost: closed forms and limits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.overheads import Overheads
from itertime.errors import UnknownName, UserError


def test_first_start_and_plain_restart() -> None:
    overheads = Overheads(launch_s=7.0, plain_restart_s=11.0)
    assert overheads.start_s() == 7.0
    assert overheads.restart_s(0, 3) == 18.0


@pytest.mark.parametrize(("nodes", "bytes_per_s"), [(1, 2e9), (10, 20e9), (50, 100e9), (128, 100e9)])
def test_checkpoints_share_the_storage(nodes: int, bytes_per_s: float) -> None:
    """39.1e9 parameters x 14 bytes, saved and loaded at 2 GB/s per node, at most 100 GB/s in all."""
    assert Overheads().restart_s(39.1e9, nodes) == pytest.approx(30 + 2 * 39.1e9 * 14 / bytes_per_s)


@given(st.floats(0, 100), st.floats(1, 1e12), st.integers(1, 1000))
def test_scale_multiplies_everything(scale: float, parameters: float, nodes: int) -> None:
    one, scaled = Overheads(), Overheads(scale=scale)
    assert scaled.start_s() == pytest.approx(scale * one.start_s())
    assert scaled.restart_s(parameters, nodes) == pytest.approx(scale * one.restart_s(parameters, nodes))
    assert scaled.restart_s(0, nodes) == pytest.approx(scale * one.restart_s(0, nodes))


@given(st.floats(1, 1e12), st.integers(1, 1000))
def test_more_nodes_never_cost_more_and_a_start_never_more_than_a_restart(
    parameters: float, nodes: int
) -> None:
    overheads = Overheads()
    assert overheads.restart_s(parameters, nodes + 1) <= overheads.restart_s(parameters, nodes)
    assert overheads.start_s() <= overheads.restart_s(parameters, nodes)


def test_none_is_free() -> None:
    assert (
        Overheads.none().start_s()
        == Overheads.none().restart_s(1e12, 1)
        == Overheads.none().restart_s(0, 1)
        == 0
    )


def test_replaced_values() -> None:
    assert Overheads().with_values(launch_s=3, scale=2.0).start_s() == 6.0
    with pytest.raises(UnknownName, match="unknown overhead 'launch'; did you mean launch_s"):
        Overheads().with_values(launch=3.0)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), "30", None, True, [1.0]])
@pytest.mark.parametrize("name", ["launch_s", "plain_restart_s", "checkpoint_bytes_per_parameter", "scale"])
def test_impossible_values_are_named(name: str, value: Any) -> None:
    with pytest.raises(UserError, match=rf"overheads\.{name}=.*must be between 0 and 1e\+15"):
        Overheads(**{name: value})


@pytest.mark.parametrize("name", ["storage_node_bytes_per_s", "storage_bytes_per_s"])
def test_storage_must_have_some_bandwidth(name: str) -> None:
    with pytest.raises(UserError, match=rf"overheads\.{name}=0: must be between 1 and 1e\+15"):
        Overheads(**{name: 0})
