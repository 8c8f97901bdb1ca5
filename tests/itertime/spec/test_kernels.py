"""Attention kernels, styles of memory-bound kernels and casts of the shipped profiles."""

from __future__ import annotations

import numpy as np
import pytest

from itertime.spec import Attention, AttentionKernel, Cast, Elementwise, load_profile
from itertime.spec.kernels import FLASH

A100, H100 = load_profile("a100-80gb"), load_profile("h100-80gb")
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
