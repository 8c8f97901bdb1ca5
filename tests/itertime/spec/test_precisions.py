"""GEMMs by precision, grouped GEMMs, and variants of a chip: limits, order, and what refuses."""

from __future__ import annotations

import numpy as np
import pytest

from itertime.spec import Attention, Elementwise, Gemm, GroupedGemm, load_profile
from itertime.spec.operators import PowerTerm

H100, H200 = load_profile("h100-80gb"), load_profile("h200-141gb")
NEWER = ("h100-80gb", "h200-141gb", "b200-180gb", "gb200-186gb", "b300-270gb", "gb300-280gb")
SIZES = np.array([1024.0, 2048.0, 4096.0, 8192.0, 16384.0])


@pytest.mark.parametrize("name", NEWER)
def test_no_product_is_faster_than_the_peak_of_its_precision(name: str) -> None:
    profile = load_profile(name)
    for precision in profile.precisions:
        times = profile.seconds(Gemm(SIZES, 8192.0, 8192.0, precision=precision))
        assert np.all(np.diff(times) > 0)
        assert np.all(2 * SIZES * 8192.0**2 / times < profile.peak_flops_of(precision))


@pytest.mark.parametrize("name", NEWER)
def test_fewer_bits_take_less_time(name: str) -> None:
    profile = load_profile(name)
    half = profile.seconds(Gemm(8192, 8192, 8192))
    for precision in profile.precisions[1:]:
        assert 0.25 < profile.seconds(Gemm(8192, 8192, 8192, precision=precision)) / half < 0.75


def test_h100_computes_as_h200_and_reads_more_slowly() -> None:
    """The same chip: equal arithmetic, memory at 3.35 against 4.8 TB/s."""
    assert H100.seconds(Gemm(16384, 16384, 16384)) == pytest.approx(
        H200.seconds(Gemm(16384, 16384, 16384)), rel=0.01
    )
    assert H100.seconds(Gemm(64, 16384, 16384)) > 1.2 * H200.seconds(Gemm(64, 16384, 16384))


@pytest.mark.parametrize("name", NEWER)
def test_grouped_products_rise_with_groups_and_rows_and_stay_below_the_peak(name: str) -> None:
    profile = load_profile(name)
    groups = np.array([1.0, 4.0, 16.0, 64.0, 256.0])
    for precision in profile.precisions:
        times = profile.seconds(GroupedGemm(512, 4096, 4096, groups, precision))
        assert np.all(np.diff(times) > 0)
        assert np.all(2 * 512 * 4096**2 * groups / times < profile.peak_flops_of(precision))
        rows = profile.seconds(GroupedGemm(np.array([0.5, 64.5, 512.0, 4096.0]), 4096, 4096, 16, precision))
        assert np.all(np.diff(rows) >= 0)


def test_a_lower_limit_slows_arithmetic_by_its_power() -> None:
    assert H100.power is not None
    slower = H100.variant(power_w=500.0)
    ratio = slower.seconds(Gemm(16384, 16384, 16384)) / H100.seconds(Gemm(16384, 16384, 16384))
    assert ratio == pytest.approx((700 / 500) ** H100.power.exponent, rel=0.01)
    assert slower.power_w == 500
    assert slower.seconds(Elementwise(1e9)) == H100.seconds(Elementwise(1e9))
    attention = [each.seconds(Attention(1, 32, 32, 128, 8192, 8192)) for each in (slower, H100)]
    assert attention[0] / attention[1] == pytest.approx((700 / 500) ** H100.power.exponent, rel=0.01)


def test_limits_compose_until_no_limit_slows() -> None:
    term = PowerTerm(700.0, 0.5, 1.2)
    low, down = term.at(350.0)
    _, up = low.at(700.0)
    assert down * up == pytest.approx(1)
    assert term.at(10_000.0)[1] == 1.2
    assert term.at(700.0, share=0.5)[1] == 1.2  # half of the multiprocessors share the power of all
    assert term.at(700.0) == (term, 1.0)


def test_a_variant_with_other_memory() -> None:
    """Memory-bound times follow the bandwidth, arithmetic does not."""
    other = H100.variant(hbm_bytes_per_s=2e12, memory_bytes=68e9)
    assert other.memory_bytes == 68e9
    assert other.seconds(Elementwise(1e10)) == pytest.approx(
        H100.seconds(Elementwise(1e10)) * 3.352 / 2, rel=0.01
    )
    assert other.seconds(Gemm(16384, 16384, 16384)) < 1.02 * H100.seconds(Gemm(16384, 16384, 16384))


def test_fewer_multiprocessors() -> None:
    """H100 PCIe: 114 of 132 multiprocessors at 350 W run at the power of a share, not of the chip."""
    assert H100.power is not None
    pcie = H100.variant(power_w=350.0, multiprocessors=114)
    ratio = pcie.seconds(Gemm(16384, 16384, 16384)) / H100.seconds(Gemm(16384, 16384, 16384))
    expected = 132 / 114 * (700 * 114 / 132 / 350) ** H100.power.exponent
    assert ratio == pytest.approx(expected, rel=0.02)
    assert pcie.peak_flops_of() == pytest.approx(989.4e12 * 114 / 132)


def test_an_unchanged_variant_gives_the_same_times() -> None:
    same = H100.variant()
    assert np.array_equal(same.seconds(Gemm(SIZES, SIZES, SIZES)), H100.seconds(Gemm(SIZES, SIZES, SIZES)))
