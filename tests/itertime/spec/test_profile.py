"""The shipped profile: properties of its formulas, published rates, and refused files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from itertime.spec import Attention, Collective, Elementwise, Gemm, Profile, list_profiles, load_profile
from itertime.spec.kernels.attention import BACKWARD_FLOPS
from itertime.spec.profile import COLLECTIVES, ELEMENTWISE_KINDS, FOLDER

PROFILE = load_profile("a100-80gb")

extents = st.integers(1, 70_000)
batches = st.integers(1, 512)
sequences = st.integers(1, 65_536)
head_dims = st.sampled_from([32, 64, 80, 96, 128, 256])


def test_the_same_profile_is_loaded_once() -> None:
    blackwell = ["b200-180gb", "b300-270gb", "gb200-186gb", "gb300-280gb"]
    assert list_profiles() == ["a100-80gb", *blackwell, "h100-80gb", "h200-141gb", "v100-32gb"]
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


@pytest.mark.parametrize(
    ("head_dim", "causal", "seq", "tera_flops_per_s"),
    [
        (64, False, 2048, 162),
        (64, False, 16384, 176),
        (64, True, 2048, 140),
        (64, True, 16384, 171),
        (128, False, 2048, 187),
        (128, False, 16384, 203),
        (128, True, 2048, 155),
        (128, True, 16384, 189),
    ],
)
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


@pytest.mark.parametrize(
    ("head_dim", "seq", "causal", "factor"),
    [
        (128, 2048, True, 155 / 69),
        (128, 16384, False, 203 / 83),
        (64, 2048, True, 140 / 77),
        (64, 16384, False, 176 / 110),
    ],
)
def test_published_flash_attention_1(head_dim: int, seq: int, causal: bool, factor: float) -> None:
    """FlashAttention-2's TFLOP/s over FlashAttention's in the chart of Dao-AILab/flash-attention (A100)."""
    assert PROFILE.attention_factor("flash1", head_dim, seq, causal) == pytest.approx(factor, rel=0.015)


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
