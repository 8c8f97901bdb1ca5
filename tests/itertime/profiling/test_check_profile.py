"""Each check of a profile finds the damage that it is for, and nothing in the shipped profiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from itertime.profiling import ProfileFinding, check_profile, compare_profiles, mean_ratios
from itertime.spec import Profile, list_profiles, load_profile
from itertime.spec.kernels import ElementwiseModel
from itertime.spec.size_table import SizeTable

SOUND = load_profile("a100-80gb")


@pytest.mark.parametrize("name", list_profiles())
def test_shipped_profiles_have_no_error(name: str) -> None:
    assert [one for one in check_profile(load_profile(name)) if one.level == "error"] == []


def faster_gemm(profile: Profile) -> Profile:
    return replace(profile, gemm=replace(profile.gemm, peak_flops_per_s=2 * profile.peak_flops_per_s))


def slower_gemm(profile: Profile) -> Profile:
    return replace(profile, gemm=replace(profile.gemm, peak_flops_per_s=0.2 * profile.peak_flops_per_s))


def slower_fp8(profile: Profile) -> Profile:
    model = replace(profile.gemm, peak_flops_per_s=profile.gemm.peak_flops_per_s * 0.8)
    return replace(profile, gemm_precisions={"fp8": model})


def faster_experts(profile: Profile) -> Profile:
    model = replace(profile.gemm, peak_flops_per_s=2 * profile.peak_flops_per_s)
    return replace(profile, grouped_gemm={"bf16": model})


def faster_attention(profile: Profile) -> Profile:
    curves = [replace(curve, flops_per_s=4 * curve.flops_per_s) for curve in profile.attention.curves]
    return replace(profile, attention=replace(profile.attention, curves=curves))


def slow_backward(profile: Profile) -> Profile:
    curves = [
        replace(one, flops_per_s=one.flops_per_s / (5 if one.direction == "backward" else 1))
        for one in profile.attention.curves
    ]
    return replace(profile, attention=replace(profile.attention, curves=curves))


def faster_norm(profile: Profile) -> Profile:
    model = ElementwiseModel(1.2 * profile.hbm_bytes_per_s, 2e-6)
    return replace(profile, elementwise=profile.elementwise | {"rmsnorm": model})


def falling_all_reduce(profile: Profile) -> Profile:
    table = profile.collectives["all_reduce"]
    times = [[*row[:-1], row[-2] / 2] for row in table.time_s]
    broken = SizeTable(table.ranks, table.first_bytes, times)
    return replace(profile, collectives=profile.collectives | {"all_reduce": broken})


def without_evidence(profile: Profile) -> Profile:
    return replace(profile, evidence=[one for one in profile.evidence if not one.part.startswith("gelu")])


def fitted_to_nothing(profile: Profile) -> Profile:
    first, *rest = profile.evidence
    return replace(profile, evidence=[replace(first, rows=0), *rest])


@pytest.mark.parametrize(
    ("damage", "level", "part", "text"),
    [
        (faster_gemm, "error", "gemm bf16", "FLOP/s is above the peak, 3.12e+14"),
        (slower_gemm, "warning", "gemm bf16", "of its peak at most"),
        (slower_fp8, "warning", "gemm fp8", "times bf16's time at 16,384 cubed"),
        (faster_experts, "error", "grouped gemm bf16", "is above the peak"),
        (faster_attention, "error", "attention flash", "is above the peak"),
        (slow_backward, "warning", "attention flash", "times the forward pass"),
        (faster_norm, "error", "rmsnorm", "is above the HBM bandwidth, 2.039e+12"),
        (falling_all_reduce, "error", "all_reduce among 8", "with twice the bytes"),
        (without_evidence, "error", "gelu", "no evidence says where its times come from"),
        (fitted_to_nothing, "error", SOUND.evidence[0].part, "fitted to no rows"),
        (lambda one: replace(one, launch_s=5e-3), "error", "launch_s", "check the unit"),
    ],
)
def test_damage_is_found(damage: Callable[[Profile], Profile], level: str, part: str, text: str) -> None:
    before, after = set(check_profile(SOUND)), check_profile(damage(SOUND))
    found = [one for one in after if one not in before and (one.level, one.part) == (level, part)]
    assert any(text in one.text for one in found), after
    assert after == sorted(after, key=lambda one: one.level != "error")


def test_a_finding_is_a_line() -> None:
    assert ProfileFinding("error", "gemm", "x")._asdict() == {"level": "error", "part": "gemm", "text": "x"}


def test_a_profile_against_itself_and_against_a_slower_one() -> None:
    same = compare_profiles(SOUND, SOUND)
    assert {one.ratio for one in same} == {1.0}
    slower = replace(SOUND, gemm=replace(SOUND.gemm, launch_s=0.0, peak_flops_per_s=156e12, bytes_per_s=1e15))
    means = mean_ratios(compare_profiles(SOUND, slower))
    assert means["gemm bf16"] == pytest.approx(2, rel=0.05)
    assert means["attention flash"] == 1.0


def test_what_one_profile_lacks_has_no_ratio() -> None:
    with_fp8 = replace(SOUND, gemm_precisions={"fp8": SOUND.gemm})
    found = [one for one in compare_profiles(SOUND, with_fp8) if one.group == "gemm fp8"]
    assert found
    assert {one.first_s for one in found} == {None}
    assert {one.ratio for one in found} == {None}
    assert "gemm fp8" not in mean_ratios(found)
