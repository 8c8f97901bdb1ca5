"""The shipped profiles: properties of their formulas, published rates, precisions, variants of a chip."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.profiles.by_sheet import SHEETS
from itertime.spec import (
    Attention,
    AttentionKernel,
    Cast,
    Collective,
    Elementwise,
    Gemm,
    GroupedGemm,
    Profile,
    list_profiles,
    load_profile,
)
from itertime.spec.kernels import FLASH
from itertime.spec.kernels.attention import BACKWARD_FLOPS
from itertime.spec.operators import PowerTerm
from itertime.spec.profile import COLLECTIVES, ELEMENTWISE_KINDS, FOLDER
from tests.tables import table_rows

PROFILE = load_profile("a100-80gb")

extents = st.integers(1, 70_000)
batches = st.integers(1, 512)
sequences = st.integers(1, 65_536)
head_dims = st.sampled_from([32, 64, 80, 96, 128, 256])


def test_the_same_profile_is_loaded_once() -> None:
    blackwell = ["b200-180gb", "b300-270gb", "gb200-186gb", "gb300-280gb"]
    hopper, volta = ["h100-80gb", "h200-141gb"], ["v100-32gb", "v100-pcie-32gb"]
    sheets = [path.stem for path in SHEETS.glob("*.yaml")]
    assert list_profiles() == sorted(["a100-80gb", *blackwell, *hopper, *volta, *sheets])
    assert load_profile("a100-80gb") is load_profile("a100-80gb")  # other tests may have emptied the cache
    assert PROFILE.peak_flops == 312e12


def test_every_part_states_its_source() -> None:
    parts = PROFILE.evidence
    named = " ".join(part.part for part in parts)
    for name in (*ELEMENTWISE_KINDS, *COLLECTIVES, "gemm", "attention", "backward"):
        if name != "elementwise":
            assert name in named
    for part in parts:
        assert part.source
        assert part.note
        assert (part.kind == "assumed") == (part.rows == 0)
        assert (part.kind == "assumed") == (part.error_held_out_pct is None)


def test_held_out_errors_of_the_most_important_parts() -> None:
    """Errors on rows that were not fitted, as the profile states them (see `test_build`)."""
    error = {part.part: part.error_held_out_pct for part in PROFILE.evidence}
    assert error["gemm (layers, m >= 512)"] <= 5.2
    assert error["gemm (layers, m >= 2048)"] <= 4.5
    assert error["attention forward (head dim 128, causal, seq >= 1024)"] <= 3.5
    assert error["attention forward + backward (head dim 128, causal)"] <= 1.5
    assert error["all_reduce (8-128 MB)"] <= 3
    assert error["all_reduce (128 MB-1 GB)"] <= 1.5
    assert error["elementwise"] <= 3


@pytest.mark.parametrize("mnk", [(8192, 8192, 8192), (16384, 12288, 12288), (4096, 49152, 8192)])
def test_published_large_gemms_reach_70_to_82_percent_of_peak(mnk: tuple[int, int, int]) -> None:
    """cuBLAS on A100 in bf16: microsoft/vidur's layers 72-79 %, aiconfigurator's grid 78-82 %."""
    m, n, k = mnk
    assert 0.70 <= 2 * m * n * k / PROFILE.seconds(Gemm(m, n, k)) / PROFILE.peak_flops <= 0.82


@pytest.mark.parametrize(("head_dim", "causal", "seq", "tera_flops_per_s"), table_rows("flash-attention-2"))
def test_published_flash_attention_2(head_dim: int, causal: bool, seq: int, tera_flops_per_s: float) -> None:
    """Forward + backward on A100 in the chart of Dao-AILab/flash-attention: 16k tokens, 2048 hidden."""
    batch, heads = 16384 // seq, 2048 // head_dim
    shape = (batch, heads, heads, head_dim, seq, seq, causal)
    seconds = PROFILE.seconds(Attention(*shape)) + PROFILE.seconds(Attention(*shape, backward=True))
    flops = 4 * batch * heads * seq**2 * head_dim * (0.5 if causal else 1) * (1 + BACKWARD_FLOPS)
    assert flops / seconds / 1e12 == pytest.approx(tera_flops_per_s, rel=0.015)


@pytest.mark.parametrize(("megabytes", "bus_gb_per_s"), [(64, 203), (256, 217), (1024, 229)])
def test_published_all_reduce_bus_bandwidth(megabytes: int, bus_gb_per_s: float) -> None:
    """8 GPUs of one node in VIA-Research/vTrain's table, which the profile was not computed from."""
    size = megabytes * 2**20
    seconds = PROFILE.seconds(Collective("all_reduce", size, 8))
    assert 2 * 7 / 8 * size / seconds / 1e9 == pytest.approx(bus_gb_per_s, rel=0.04)


@given(batches, extents, extents, extents)
def test_gemm_is_bounded_by_physics_and_grows(batch: int, m: int, n: int, k: int) -> None:
    seconds = PROFILE.seconds(Gemm(m, n, k, batch))
    assert np.isfinite(seconds)
    assert seconds > 2 * m * n * k * batch / PROFILE.peak_flops
    assert seconds > 2 * (m * k + k * n + m * n) * batch / PROFILE.hbm_bytes_per_s
    assert seconds > PROFILE.gemm.launch_s
    for larger in ((m + 1, n, k, batch), (m, n + 1, k, batch), (m, n, k + 1, batch), (m, n, k, batch + 1)):
        assert PROFILE.seconds(Gemm(*larger)) >= seconds * (1 - 1e-12)


@given(st.integers(1, 64), st.integers(1, 128), head_dims, sequences, st.booleans(), st.booleans())
def test_attention_is_bounded_by_physics_and_grows(
    batch: int, heads: int, head_dim: int, seq: int, causal: bool, backward: bool
) -> None:
    def seconds(batch: int, heads: int, seq: int) -> Any:
        return PROFILE.seconds(Attention(batch, heads, heads, head_dim, seq, seq, causal, backward))

    least = 4 * batch * heads * seq**2 * head_dim * (0.5 if causal else 1)
    assert seconds(batch, heads, seq) > least / PROFILE.peak_flops
    assert seconds(batch + 1, heads, seq) >= seconds(batch, heads, seq)
    assert seconds(batch, heads + 1, seq) >= seconds(batch, heads, seq)
    assert seconds(batch, heads, seq + 1) >= seconds(batch, heads, seq)


def test_attention_depends_on_mask_and_heads_as_it_should() -> None:
    shape = (4, 32, 32, 128, 4096, 4096)
    forward, masked = (
        PROFILE.seconds(Attention(*shape, causal=False)),
        PROFILE.seconds(Attention(*shape, causal=True)),
    )
    assert 0.45 * forward < masked < 0.65 * forward
    backward = PROFILE.seconds(Attention(*shape, causal=True, backward=True))
    assert 2 * masked < backward < 4 * masked
    fewer_keys = PROFILE.seconds(Attention(4, 32, 8, 128, 4096, 4096))
    assert fewer_keys <= masked
    assert PROFILE.seconds(Attention(64, 32, 4, 128, 1, 8192)) < PROFILE.seconds(
        Attention(64, 32, 32, 128, 1, 8192)
    )


@pytest.mark.parametrize(("head_dim", "seq", "causal", "second", "first"), table_rows("flash-attention-1"))
def test_published_flash_attention_1(
    head_dim: int, seq: int, causal: bool, second: float, first: float
) -> None:
    """FlashAttention-2's TFLOP/s over FlashAttention's in the chart of Dao-AILab/flash-attention (A100)."""
    assert PROFILE.attention_factor("flash1", head_dim, seq, causal) == pytest.approx(
        second / first, rel=0.015
    )


def test_other_attention_kernels() -> None:
    assert PROFILE.attention_factor("flash", 128, 2048) == 1
    assert PROFILE.attention_factor("triton", 96, 4096) == 2  # "around 2x" (Dao 2023, abstract)
    between = PROFILE.attention_factor("flash1", 96, 3000)
    corners = [PROFILE.attention_factor("flash1", d, s) for d in (64, 128) for s in (2048, 4096)]
    assert min(corners) < between < max(corners)
    assert PROFILE.attention_factor("flash1", 256, 1e6) == PROFILE.attention_factor("flash1", 128, 16384)


@pytest.mark.parametrize("kind", ["layernorm", "softmax"])
def test_norms_and_softmax_depend_on_their_width(kind: str) -> None:
    narrow, wide = (PROFILE.seconds(Elementwise(1e9, kind, width)) for width in (2048, 16384))
    assert narrow < PROFILE.seconds(Elementwise(1e9, kind, 4096)) < wide
    assert PROFILE.seconds(Elementwise(1e9, kind, 10**6)) == wide
    assert PROFILE.seconds(Elementwise(1e9, "gelu", 2048)) == PROFILE.seconds(Elementwise(1e9, "gelu"))


@pytest.mark.parametrize("kind", ELEMENTWISE_KINDS)
def test_elementwise_stays_below_the_memory_bandwidth(kind: str) -> None:
    assert PROFILE.seconds(Elementwise(0, kind)) == 0
    size = np.array([1.0, 1e6, 1e9])
    seconds = PROFILE.seconds(Elementwise(size, kind))
    assert (seconds > size / PROFILE.hbm_bytes_per_s).all()
    assert (seconds >= 1e-6).all()
    assert seconds[2] - seconds[1] == pytest.approx((1e9 - 1e6) / PROFILE.elementwise[kind].bytes_per_s)


@given(st.lists(st.tuples(extents, extents, extents, batches), min_size=1, max_size=30))
def test_batches_equal_single_calls(shapes: list[tuple[int, int, int, int]]) -> None:
    m, n, k, batch = (np.array(column) for column in zip(*shapes, strict=True))
    np.testing.assert_allclose(
        PROFILE.seconds(Gemm(m, n, k, batch)), [PROFILE.seconds(Gemm(*shape)) for shape in shapes], rtol=1e-12
    )
    seconds = PROFILE.seconds(Attention(batch, 8, 8, 96, m, n, m % 2 == 0, backward=True))
    single = [
        PROFILE.seconds(Attention(b, 8, 8, 96, m, n, m % 2 == 0, backward=True)) for m, n, _, b in shapes
    ]
    np.testing.assert_allclose(seconds, single, rtol=1e-12)
    np.testing.assert_allclose(
        PROFILE.seconds(Collective("all_gather", m, batch)),
        [PROFILE.seconds(Collective("all_gather", s[0], s[3])) for s in shapes],
    )


def load_edited(keys: Sequence[str | int], value: Any = ...) -> Profile:
    """A copy of the shipped profile in the current folder, with one value changed, or removed (`...`)."""
    content = json.loads((FOLDER / "a100-80gb.json").read_text())
    place = content
    for key in keys[:-1]:
        place = place[key]
    if value is ...:
        del place[keys[-1]]
    else:
        place[keys[-1]] = value
    Path("mine.json").write_text(json.dumps(content))
    return load_profile(Path("mine.json").resolve())


def test_a_copy_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong ones: `refusals/profiles.yaml`."""
    monkeypatch.chdir(tmp_path)
    assert load_edited(["name"], "mine").name == "mine"


H100, H200 = load_profile("h100-80gb"), load_profile("h200-141gb")
NEWER = ("h100-80gb", "h200-141gb", "b200-180gb", "gb200-186gb", "b300-270gb", "gb300-280gb")
SIZES = np.array([1024.0, 2048.0, 4096.0, 8192.0, 16384.0])


@pytest.mark.parametrize("name", NEWER)
def test_no_product_is_faster_than_the_peak_of_its_precision(name: str) -> None:
    """And fewer bits take less time."""
    profile = load_profile(name)
    half = profile.seconds(Gemm(8192, 8192, 8192))
    for precision in profile.precisions[1:]:
        assert 0.25 < profile.seconds(Gemm(8192, 8192, 8192, precision=precision)) / half < 0.75
    for precision in profile.precisions:
        times = profile.seconds(Gemm(SIZES, 8192.0, 8192.0, precision=precision))
        assert np.all(np.diff(times) > 0)
        assert np.all(2 * SIZES * 8192.0**2 / times < profile.peak_flops_of(precision))


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
    for profile in (PROFILE, H100):
        plain = profile.seconds(Attention(*SHAPE, 4096, 4096))
        assert profile.seconds(Attention(*SHAPE, 4096, 4096, kernel=FLASH)) == plain
        earlier = profile.seconds(Attention(*SHAPE, 4096, 4096, kernel=AttentionKernel("flash1")))
        assert earlier == pytest.approx(profile.attention_factor("flash1", 128, 4096) * plain)
    assert PROFILE.seconds(Attention(*SHAPE, 4096, 4096, kernel=CUDNN)) == PROFILE.seconds(
        Attention(*SHAPE, 4096, 4096)
    )


def test_a_style_picks_the_rate_of_each_pass() -> None:
    nbytes = np.array([[4e9, 4e9], [6e9, 6e9]])
    passes = np.array([[False], [True]])
    for profile in (PROFILE, H100):
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
