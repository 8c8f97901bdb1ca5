"""All-reduces between sites over one link each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from itertime import load_system
from itertime.costs.network import all_reduce_between_sites_s

H100 = load_system("dgx-h100")
LINK = replace(H100, site_link_bytes_per_s=1.25e9, site_link_latency_s=0.03)


def test_two_sites_exchange_the_buffer_once_each_way() -> None:
    """A ring of two: half of the buffer there, half of the sum back, over a link of 1.25 GB/s."""
    assert all_reduce_between_sites_s(12.5e9, 2, 64, LINK) == pytest.approx(10.0 + 2 * 0.03)


def test_a_ring_of_more_sites_moves_up_to_twice_the_buffer() -> None:
    sites = np.array([2, 4, 8, 16])
    seconds = all_reduce_between_sites_s(12.5e9, sites, 64, replace(LINK, site_link_latency_s=0.0))
    assert seconds == pytest.approx(20.0 * (sites - 1) / sites)


def test_few_bytes_between_many_sites_take_a_tree() -> None:
    """Of 16 sites 30 ms apart: 8 messages one after the other, not 30."""
    assert all_reduce_between_sites_s(1.0, 16, 64, LINK) == pytest.approx(8 * 0.03, rel=1e-6)


def test_one_site_or_no_bytes_take_no_time() -> None:
    assert all_reduce_between_sites_s(np.array([1e9, 0.0]), np.array([1, 4]), 64, LINK).tolist() == [0, 0]


def test_a_link_faster_than_the_nics_of_a_site_is_limited_by_them() -> None:
    """Eight GPUs have 400 GB/s of NICs, of which collectives reach a fraction."""
    wide = replace(LINK, site_link_bytes_per_s=1e13, site_link_latency_s=0.0)
    one_node = float(all_reduce_between_sites_s(1e12, 2, 8, wide))
    assert one_node == pytest.approx(1e12 / (H100.achieved_network * H100.nic_bytes_per_s))
    assert float(all_reduce_between_sites_s(1e12, 2, 16, wide)) == pytest.approx(one_node / 2)
