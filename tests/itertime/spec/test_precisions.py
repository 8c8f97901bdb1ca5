"""Kernels of the shipped profiles: GEMMs by precision, variants of a chip, attention, styles, casts."""

from __future__ import annotations

import numpy as np
import pytest

from itertime.spec import Attention, AttentionKernel, Cast, Elementwise, Gemm, GroupedGemm, load_profile
from itertime.spec.kernels import FLASH
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


A100 = load_profile("a100-80gb")
CUDNN = AttentionKernel("cudnn")
SHAPE = (1, 64, 8, 128)

# NVIDIA/cudnn-frontend, benchmark/sdpa_benchmark_training/results, H200 (the die of the H100): TFLOP/s of
# Llama 3.1's attention, causal, batch 1, by tokens.
PUBLISHED = {2048: (484, 370), 4096: (591, 474), 8192: (644, 541), 16384: (673, 579)}


def teraflops(seq: int, backward: bool, kernel: AttentionKernel) -> float:
    flops = (2.5 if backward else 1.0) * 4 * 64 * 128 * seq**2 / 2
    return flops / float(H100.seconds(Attention(*SHAPE, seq, seq, True, backward, kernel))) / 1e12


@pytest.mark.parametrize("seq", PUBLISHED)
def test_cudnn_attention_runs_at_the_published_rates(seq: int) -> None:
    forward, backward = PUBLISHED[seq]
    assert teraflops(seq, False, CUDNN) == pytest.approx(forward, rel=0.02)
    assert teraflops(seq, True, CUDNN) == pytest.approx(backward, rel=0.04)


def test_heads_of_unequal_dims_cost_their_mean() -> None:
    latent = AttentionKernel("cudnn", value_dim=128)
    seconds = H100.seconds(Attention(1, 128, 128, 192, 8192, 8192, kernel=latent))
    assert seconds == pytest.approx(4278e-6, rel=0.03)  # the same source, DeepSeek-V3
    padded = H100.seconds(Attention(1, 128, 128, 192, 8192, 8192, kernel=AttentionKernel(value_dim=128)))
    assert padded == H100.seconds(Attention(1, 128, 128, 192, 8192, 8192))  # FlashAttention-2 pads the values
    assert seconds < padded


def test_a_window_costs_the_scores_it_keeps() -> None:
    shape = (2, 64, 8, 64)
    limited = AttentionKernel("cudnn", window=1024)
    for seq, published_us in ((2048, 166), (8192, 738), (32768, 3021)):  # the same source, gpt-oss
        assert H100.seconds(Attention(*shape, seq, seq, kernel=limited)) == pytest.approx(
            published_us * 1e-6, rel=0.04
        )
    full = H100.seconds(Attention(*shape, 4096, 4096, kernel=CUDNN))
    assert H100.seconds(Attention(*shape, 4096, 4096, kernel=CUDNN._replace(window=4096))) == pytest.approx(
        full
    )
    assert H100.seconds(Attention(*shape, 4096, 4096, kernel=limited)) < 0.6 * full
    unmasked = H100.seconds(Attention(*shape, 4096, 4096, False, kernel=CUDNN))
    assert (
        H100.seconds(Attention(*shape, 4096, 4096, False, kernel=limited)) == unmasked
    )  # windows are of causal masks


def test_the_default_kernel_is_flash_attention_2() -> None:
    for profile in (A100, H100):
        plain = profile.seconds(Attention(*SHAPE, 4096, 4096))
        assert profile.seconds(Attention(*SHAPE, 4096, 4096, kernel=FLASH)) == plain
        earlier = profile.seconds(Attention(*SHAPE, 4096, 4096, kernel=AttentionKernel("flash1")))
        assert earlier == pytest.approx(profile.attention_factor("flash1", 128, 4096) * plain)
    assert A100.seconds(Attention(*SHAPE, 4096, 4096, kernel=CUDNN)) == A100.seconds(
        Attention(*SHAPE, 4096, 4096)
    )


def test_newer_attention_is_faster_and_8_bit_forward_faster_still() -> None:
    def seconds(name: str) -> float:
        return float(H100.seconds(Attention(*SHAPE, 8192, 8192, kernel=AttentionKernel(name))))

    assert seconds("cudnn_fp8") < seconds("cudnn") < seconds("flash")
    assert seconds("flash3") == pytest.approx(seconds("cudnn"), rel=0.05)


def test_a_style_picks_the_rate_of_each_pass() -> None:
    nbytes = np.array([[4e9, 4e9], [6e9, 6e9]])
    passes = np.array([[False], [True]])
    for profile in (A100, H100):
        norms = {
            style: profile.seconds(Elementwise(nbytes, "rmsnorm", 8192, style, passes))
            for style in ("fused", "compiled", "eager")
        }
        assert (norms["fused"][1] < norms["compiled"][1]).all()
        assert (norms["compiled"][0] < norms["eager"][0]).all()
        forward, backward = (
            profile.seconds(Elementwise(nbytes[i, 0], "rmsnorm", 8192, "eager", bool(i))) for i in (0, 1)
        )
        assert norms["eager"][:, 1].tolist() == [forward, backward]
        single = profile.seconds(Elementwise(nbytes[:, :1], "rmsnorm", 8192, "eager", passes))
        assert single.tolist() == [[forward], [backward]]
        plain = profile.seconds(Elementwise(nbytes, "rmsnorm", 8192))
        assert (profile.seconds(Elementwise(nbytes, "rmsnorm", 8192, None, passes)) == plain).all()


def test_fused_swiglu_moves_less_and_eager_positions_more() -> None:
    def seconds(kind: str, style: str) -> float:
        return float(H100.seconds(Elementwise(1e9, kind, style=style)))

    assert seconds("swiglu", "fused") == pytest.approx(0.6 * seconds("swiglu", "eager"), rel=0.01)
    assert seconds("rotary", "eager") == pytest.approx(4.5 * seconds("rotary", "fused"), rel=0.02)


def test_casts_cost_the_bytes_of_their_recipe() -> None:
    elements = np.array([0.0, 1e6, 1e9])
    one_scale, blocks = H100.seconds(Cast(elements, "fp8")), H100.seconds(Cast(elements, "fp8_block"))
    assert one_scale[0] == 0
    assert (blocks[1:] < one_scale[1:]).all()
    assert one_scale[2] > 6e9 / H100.hbm_bytes_per_s  # no faster than its 6 bytes an element
    assert (H100.seconds(Cast(elements, "bf16")) == 0).all()
