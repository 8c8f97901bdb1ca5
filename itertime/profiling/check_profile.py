"""Whether a profile is plausible: no kernel beats its GPU, times rise with sizes, evidence covers every part.

`check_profile` runs every check of `CHECKS`. An error means that predictions on the profile are wrong; a
warning means that they may be. What the file's schema forbids is refused when it is read.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from itertime.arrays import Array
from itertime.spec import (
    Attention,
    AttentionKernel,
    Cast,
    Collective,
    Elementwise,
    Gemm,
    GroupedGemm,
    Profile,
)

SLACK = 1.001  # of rounding
SIZES = 2.0 ** np.arange(9, 16)  # 512 to 32,768: extents of products in training
SEQUENCES = 2.0 ** np.arange(9, 16)
WIDTHS = (512.0, 2048.0, 4096.0, 8192.0, 16384.0)
LARGE_BYTES = 2.0**30  # out of any cache
DROP = 0.97  # waves of tiles make a larger product a little faster at times; more is a broken fit
LOW_GEMM, LOW_ATTENTION, LOW_MEMORY = 0.25, 0.1, 0.1  # shares of the peak below which something is odd
LARGE_ERROR_PCT = 25.0
# Of GPUs of the last ten years, with room: least, most.
RANGES = {
    "peak_flops_per_s": (1e13, 2e16),
    "hbm_bytes_per_s": (2e11, 4e13),
    "memory_bytes": (4e9, 2e12),
    "launch_s": (2e-7, 1e-4),
}
# The cost model counts the bytes of eager code; code that fuses them moves fewer: 6 of 10 for each element.
SPARED = {"swiglu": 10 / 6}
FASTEST_LINK = 4e12  # bytes/s of one GPU; the NVLink of 2026 has 1.8e12 in both directions together
BACKWARD = (1.0, 8.0)  # times the forward pass of attention


class ProfileFinding(NamedTuple):
    """One doubt: how bad, about which part, and what is wrong with the value."""

    level: Literal["error", "warning"]
    part: str
    text: str


def check_profile(profile: Profile) -> list[ProfileFinding]:
    """All findings, errors first; empty for a plausible profile."""
    findings = [finding for check in CHECKS for finding in check(profile)]
    return sorted(findings, key=lambda finding: finding.level != "error")


def ranges(profile: Profile) -> Iterator[ProfileFinding]:
    """Figures of the data sheet that no GPU has; those of a core are its own kernels'."""
    if profile.is_core:
        return
    for name, (low, high) in RANGES.items():
        value = float(getattr(profile, name))
        if not low <= value <= high:
            yield ProfileFinding("error", name, f"{value:g} is outside {low:g} to {high:g}; check the unit")


def products(profile: Profile) -> Iterator[ProfileFinding]:
    """Matrix products above the peak, far below it, or that take less time when they are larger."""
    m, n, k = (axis.ravel() for axis in np.meshgrid(SIZES, SIZES, SIZES, indexing="ij"))
    for precision in profile.precisions:
        part, peak = f"gemm {precision}", profile.peak_flops_of(precision)
        seconds = profile.seconds(Gemm(m, n, k, precision=precision))
        rate = 2 * m * n * k / seconds
        yield from _above(part, rate, peak, "the peak", "FLOP/s")
        if rate.max() < LOW_GEMM * peak:
            yield ProfileFinding("warning", part, f"reaches {rate.max() / peak:.0%} of its peak at most")
        for name, longer in (("m", (2 * m, n, k)), ("n", (m, 2 * n, k)), ("k", (m, n, 2 * k))):
            later = profile.seconds(Gemm(*longer, precision=precision))
            yield from _falls(part, later / seconds, name, np.stack([m, n, k], axis=1))
        if profile.is_core:  # which has no products in 16 bit
            continue
        largest = np.full(1, SIZES[-2])
        mine, plain = (
            float(profile.seconds(Gemm(largest, largest, largest, precision=kind))[0])
            for kind in (precision, "bf16")
        )
        if mine > plain * SLACK:
            yield ProfileFinding(
                "warning", part, f"takes {mine / plain:.2f} times bf16's time at 16,384 cubed"
            )


def experts(profile: Profile) -> Iterator[ProfileFinding]:
    """Grouped products above the peak."""
    for precision in profile.grouped_gemm:
        m, n, k = 4096.0, 4096.0, 4096.0
        seconds = profile.seconds(GroupedGemm(m, n, k, 8, precision))
        rate = np.atleast_1d(2 * m * n * k * 8 / seconds)
        yield from _above(
            f"grouped gemm {precision}", rate, profile.peak_flops_of(precision), "the peak", "FLOP/s"
        )


def attention(profile: Profile) -> Iterator[ProfileFinding]:
    """Attention above the peak, faster for longer sequences, or with a backward pass out of proportion; a
    core has no fused kernel of it.
    """
    if profile.is_core:
        return
    peak = max(profile.peak_flops_of(precision) for precision in profile.precisions)
    for name, dim, causal in itertools.product(
        ("flash", *profile.attention_kernels), (64, 128), (False, True)
    ):
        part, kernel = f"attention {name}", AttentionKernel(name)
        shape = (4, 32, 32, dim, SEQUENCES, SEQUENCES, causal)
        forward = profile.seconds(Attention(*shape, kernel=kernel))
        backward = profile.seconds(Attention(*shape, backward=True, kernel=kernel))
        flops = 4 * 4 * 32 * SEQUENCES**2 * dim * (0.5 if causal else 1.0)
        yield from _above(part, flops / forward, peak, "the peak", "FLOP/s")
        yield from _above(f"{part}, backward", 2.5 * flops / backward, peak, "the peak", "FLOP/s")
        if (flops / forward).max() < LOW_ATTENTION * profile.peak_flops:
            yield ProfileFinding("warning", part, f"head dim {dim}: below {LOW_ATTENTION:.0%} of the peak")
        yield from _falls(part, forward[1:] / forward[:-1], "seq", SEQUENCES[:-1, None])
        ratio = float((backward / forward)[-1])
        if not BACKWARD[0] <= ratio <= BACKWARD[1]:
            yield ProfileFinding(
                "warning", part, f"head dim {dim}: backward takes {ratio:.2f} times the forward pass"
            )


def memory_bound(profile: Profile) -> Iterator[ProfileFinding]:
    """Kernels that move memory faster than the HBM can, or far slower."""
    peak, size = profile.hbm_bytes_per_s, np.array([LARGE_BYTES])
    for kind, style in itertools.product(profile.elementwise, (None, *profile.elementwise_styles)):
        part = kind if style is None else f"{kind} {style}"
        ways = itertools.product((None, *WIDTHS), (False, True))
        rates = size / np.concatenate(
            [profile.seconds(Elementwise(size, kind, way[0], style, way[1])) for way in ways]
        )
        spared = SPARED.get(kind, 1.0) if style in ("fused", "compiled") else 1.0
        yield from _above(part, rates, spared * peak, "the HBM bandwidth", "B/s")
        if rates.min() < LOW_MEMORY * peak:
            yield ProfileFinding(
                "warning", part, f"{rates.min() / peak:.0%} of the HBM bandwidth at some width"
            )
    for precision, model in profile.casts.items():
        rate = size * model.bytes_per_element / profile.seconds(Cast(size, precision))
        yield from _above(f"cast {precision}", rate, peak, "the HBM bandwidth", "B/s")


def collectives(profile: Profile) -> Iterator[ProfileFinding]:
    """Collectives that take less time for more bytes, or that are faster than any link."""
    sizes = 2.0 ** np.arange(12, 31)
    for operation in profile.collectives:
        for ranks in profile.collectives[operation].ranks:
            seconds = profile.seconds(Collective(operation, sizes, ranks))
            part = f"{operation} among {ranks}"
            yield from _falls(part, seconds[1:] / seconds[:-1], "bytes", sizes[:-1, None])
            yield from _above(part, (sizes / seconds)[-1:], FASTEST_LINK, "any NVLink", "B/s")


def evidence(profile: Profile) -> Iterator[ProfileFinding]:
    """Parts without evidence, fits without rows or errors, fits that miss their rows by far."""
    explained = {
        word for item in profile.evidence for word in (item.part, item.part.split(" ")[0].rstrip(","))
    }
    groups = {
        "gemm": ("gemm",),
        "attention": ("attention",),
        "element-wise kernels": tuple(profile.elementwise),
        "collectives": tuple(profile.collectives),
    }
    for group, part in ((group, part) for group, parts in groups.items() for part in parts):
        if part not in explained and group not in explained:
            yield ProfileFinding("error", part, "no evidence says where its times come from")
    for item in profile.evidence:
        if item.kind == "fitted" and not item.rows:
            yield ProfileFinding("error", item.part, "fitted to no rows")
        if item.kind != "assumed" and item.error_in_sample_pct is None and item.error_held_out_pct is None:
            yield ProfileFinding("warning", item.part, f"{item.kind}, but without an error")
        error = max(item.error_in_sample_pct or 0.0, item.error_held_out_pct or 0.0)
        if error > LARGE_ERROR_PCT:
            yield ProfileFinding("warning", item.part, f"is off by {error:.0f} % on its {item.rows} rows")


CHECKS: tuple[Callable[[Profile], Iterable[ProfileFinding]], ...] = (
    ranges,
    products,
    experts,
    attention,
    memory_bound,
    collectives,
    evidence,
)


def _above(part: str, rate: Array, limit: float, limit_name: str, unit: str) -> Iterator[ProfileFinding]:
    """An error if the highest rate is above a limit."""
    highest = float(rate.max())
    if highest > limit * SLACK:
        yield ProfileFinding("error", part, f"{highest:.4g} {unit} is above {limit_name}, {limit:.4g}")


def _falls(part: str, ratio: Array, name: str, sizes: NDArray[np.floating]) -> Iterator[ProfileFinding]:
    """An error if the time falls from one size to the double."""
    worst = int(ratio.argmin())
    if ratio[worst] < DROP:
        extent = " ".join(f"{size:g}" for size in np.atleast_1d(sizes[worst]))
        text = f"takes {ratio[worst]:.2f} times as long with twice the {name}, from {extent}"
        yield ProfileFinding("error", part, text)
