"""Each check of a profile finds the damage that it is for, and nothing in the shipped profiles."""

from dataclasses import replace

import pytest

from itertime.profiling import ProfileFinding, check_profile, compare_profiles, mean_ratios
from itertime.spec import Profile, list_profiles, load_profile
from itertime.spec.kernels import ElementwiseModel
from itertime.spec.size_table import SizeTable
from tests.tables import table_rows

SOUND = load_profile("a100-80gb")
ALL_REDUCE = SOUND.collectives["all_reduce"]


@pytest.mark.parametrize("name", list_profiles())
def test_shipped_profiles_have_no_error(name: str) -> None:
    assert [one for one in check_profile(load_profile(name)) if one.level == "error"] == []


def other_gemm(factor: float) -> Profile:
    """Whose products have a peak of so many times the chip's."""
    return replace(SOUND, gemm=replace(SOUND.gemm, peak_flops_per_s=factor * SOUND.peak_flops_per_s))


def other_attention(forward: float, backward: float) -> Profile:
    """Whose attention is so many times as fast."""
    factors = {"forward": forward, "backward": backward}
    curves = [
        replace(one, flops_per_s=factors[one.direction] * one.flops_per_s) for one in SOUND.attention.curves
    ]
    return replace(SOUND, attention=replace(SOUND.attention, curves=curves))


FALLING = SizeTable(
    ALL_REDUCE.ranks, ALL_REDUCE.first_bytes, [[*row[:-1], row[-2] / 2] for row in ALL_REDUCE.time_s]
)
DAMAGED = {
    "faster gemm": other_gemm(2.0),
    "slower gemm": other_gemm(0.2),
    "slower fp8": replace(
        SOUND,
        gemm_precisions={"fp8": replace(SOUND.gemm, peak_flops_per_s=0.8 * SOUND.gemm.peak_flops_per_s)},
    ),
    "faster experts": replace(SOUND, grouped_gemm={"bf16": other_gemm(2.0).gemm}),
    "faster attention": other_attention(4.0, 4.0),
    "slow backward": other_attention(1.0, 0.2),
    "faster norm": replace(
        SOUND,
        elementwise=SOUND.elementwise | {"rmsnorm": ElementwiseModel(1.2 * SOUND.hbm_bytes_per_s, 2e-6)},
    ),
    "falling all-reduce": replace(SOUND, collectives=SOUND.collectives | {"all_reduce": FALLING}),
    "without evidence": replace(
        SOUND, evidence=[one for one in SOUND.evidence if not one.part.startswith("gelu")]
    ),
    "fitted to nothing": replace(SOUND, evidence=[replace(SOUND.evidence[0], rows=0), *SOUND.evidence[1:]]),
    "another unit": replace(SOUND, launch_s=5e-3),
}


@pytest.mark.parametrize(("damage", "level", "part", "text"), table_rows("damaged profiles"))
def test_damage_is_found(damage: str, level: str, part: str, text: str) -> None:
    before, after = set(check_profile(SOUND)), check_profile(DAMAGED[damage])
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
