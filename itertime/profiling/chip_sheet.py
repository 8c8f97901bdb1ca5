"""The data sheet of a chip that no table of kernels measures, and what is assumed of chips of its class."""

from __future__ import annotations

import math
import re
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic.dataclasses import dataclass

from itertime.errors import UnknownName, UserError
from itertime.io import (
    CONFIG,
    Fraction,
    GpuPower,
    Name,
    Positive,
    construct,
    described,
    optional,
    read_mapping,
)
from itertime.spec import Profile, System, list_profiles, load_profile
from itertime.spec.references import in_field_units

ChipClass = Literal["gpu", "tpu", "systolic"]
CLASSES_FILE = Path(__file__).parents[1] / "residuals" / "chips_by_sheet.json"
SOFTWARE = {"tpu": "jax", "systolic": "jax"}
"""Frameworks of the compilers that place the operands of such chips."""
MOST_RATIO, LEAST_RATIO = 10.0, 0.01
"""Of a sheet's figures over those of the nearest measured chip: beyond these a unit is wrong."""
MOST_FP8_RATIO = 4.0
"""Of the peak in 8 bit over that in 16: data sheets have 1 to 2, with sparsity 4."""
NODE_KEYS = frozenset(System.__dataclass_fields__) - {
    *("name", "profile", "site", "source", "nvlink_bytes_per_s"),
    *("power_w", "hbm_bytes_per_s", "memory_bytes", "multiprocessors"),
}
"""Keys of a system that a sheet may state beside those of its chip."""


@dataclass(frozen=True, config=CONFIG)
class ChipSheet:
    """The keys of a sheet that describe one chip, as plans count chips: a plan of Trainium counts cores.

    Rates are dense, without sparsity. The other keys of a sheet are those of a `System`, and describe its
    nodes.
    """

    gpu: Annotated[Name, described("the chip, as its maker names it")]
    chip_class: Annotated[
        ChipClass, described("what it is built as; other accelerators with matrix units are systolic")
    ]
    peak_flops_per_s: Annotated[Positive, described("dense peak in 16 bit", "FLOP/s")]
    hbm_bytes_per_s: Annotated[Positive, described("memory bandwidth", "bytes/s")]
    memory_bytes: Annotated[Positive, described("memory", "bytes")]
    nvlink_bytes_per_s: Annotated[
        Positive, described("links to the other chips of a node or pod, one direction", "bytes/s")
    ]
    source: Annotated[Name, described("where the figures come from")]
    fp8_flops_per_s: Positive | None = optional(
        None, "dense peak in 8-bit floating point; by default it has no plans of precision fp8", "FLOP/s"
    )
    power_w: GpuPower | None = optional(None, "power limit; by default not known", "W")
    kernels: Name | None = optional(
        None, "measured profile whose kernels are scaled; by default that of the nearest chip"
    )
    die: Name | None = optional(
        None, "measured profile of a chip with the same die: its kernels reach the same shares of the peak"
    )
    efficiency: Fraction | None = optional(
        None, "share of the peak that large matrix products reach in training; by default its class's", "1"
    )
    expert_efficiency: Fraction | None = optional(
        None,
        "time of a large product over that of experts' products of its size; by default its class's",
        "1",
    )


@dataclass(frozen=True, config=CONFIG)
class ClassFigures:
    """The two efficiencies of `ChipSheet`, as fitted to iterations; `rows`: how many."""

    efficiency: Fraction
    expert_efficiency: Fraction
    rows: int


def read_sheet(path: str | Path) -> tuple[ChipSheet, dict[str, Any]]:
    """The chip of a sheet, and its keys about nodes, in the units of the file.

    Raises UserError, naming file, key and value: a key that is missing or unknown, a value out of range, and
    a figure whose unit is wrong by a factor.
    """
    content = read_mapping(path)
    of_chip = {key: value for key, value in content.items() if _field(key) in ChipSheet.__dataclass_fields__}
    nodes = {key: value for key, value in content.items() if key not in of_chip}
    sheet_keys = {*ChipSheet.__dataclass_fields__, *NODE_KEYS}
    for key in nodes:
        if key not in NODE_KEYS and _field(key) not in NODE_KEYS:
            raise UserError(f"{path}: {UnknownName('key', key, sheet_keys)}; remove it or correct its name")
    sheet = construct(ChipSheet, in_field_units(ChipSheet, of_chip, str(path)), path)
    if sheet.die is not None and (sheet.efficiency or sheet.expert_efficiency or sheet.kernels):
        raise UserError(
            f"{path}: die={sheet.die}: says what efficiency, expert_efficiency and kernels say; keep one"
        )
    _check_units(sheet, base_of(sheet, path), path)
    return sheet, nodes


def _field(key: str) -> str:
    """The field that a key states: bandwidths may stand in Gb/s, times in microseconds."""
    return re.sub(r"_us$", "_s", re.sub(r"_gbps$", "_bytes_per_s", key))


def base_of(sheet: ChipSheet, where: str | Path) -> Profile:
    """The profile whose kernels stand for a sheet's chip: the stated one, or that of the nearest chip.

    Raises UserError for a profile that is not shipped, or not itself measured.
    """
    key = "die" if sheet.die is not None else "kernels"
    profile_name = sheet.die or sheet.kernels
    if profile_name is None:
        return nearest_profile(sheet)
    if profile_name not in measured_profiles():
        raise UserError(
            f"{where}: {key}: {UnknownName('measured profile', profile_name, measured_profiles())}"
        )
    return load_profile(profile_name)


@cache
def measured_profiles() -> tuple[str, ...]:
    """The shipped profiles whose matrix products were measured."""
    return tuple(
        name
        for name in list_profiles()
        if any(item.part.startswith("gemm") and item.rows for item in load_profile(name).evidence)
    )


def nearest_profile(sheet: ChipSheet) -> Profile:
    """The measured profile nearest to a sheet in peak and memory bandwidth, as ratios, that has its
    precisions; of equally near ones the first by name.
    """

    def distance(profile: Profile) -> float:
        peak = math.log(sheet.peak_flops_per_s / profile.peak_flops_per_s)
        return math.hypot(peak, math.log(sheet.hbm_bytes_per_s / profile.hbm_bytes_per_s))

    profiles = [load_profile(name) for name in measured_profiles()]
    in_8_bit = [profile for profile in profiles if "fp8" in profile.precisions]
    return min(in_8_bit if sheet.fp8_flops_per_s else profiles, key=distance)


def _check_units(sheet: ChipSheet, base: Profile, path: str | Path) -> None:
    """UserError for a figure that is many times that of the measured chip, or a small part of it."""
    for key, unit in (
        ("peak_flops_per_s", "FLOP/s"),
        ("hbm_bytes_per_s", "bytes/s"),
        ("memory_bytes", "bytes"),
        ("nvlink_bytes_per_s", "bytes/s"),
    ):
        value, measured = getattr(sheet, key), getattr(base, key)
        if measured is not None and not LEAST_RATIO <= value / measured <= MOST_RATIO:
            raise UserError(
                f"{path}: {key}={value:g}: is {value / measured:.3g} times the {measured:g} of {base.name}, "
                f"the measured chip whose kernels are scaled; state it in {unit}"
            )
    for key in ("efficiency", "expert_efficiency"):
        if (share := getattr(sheet, key)) is not None and share < LEAST_RATIO:
            raise UserError(f"{path}: {key}={share:g}: must be a share from {LEAST_RATIO:g} to 1")
    if sheet.fp8_flops_per_s is not None:
        ratio = sheet.fp8_flops_per_s / sheet.peak_flops_per_s
        if not 1 <= ratio <= MOST_FP8_RATIO:
            raise UserError(
                f"{path}: fp8_flops_per_s={sheet.fp8_flops_per_s:g}: is {ratio:.3g} times peak_flops_per_s; "
                f"state both dense and in FLOP/s, or leave it out"
            )


def class_figures(chip_class: str) -> ClassFigures:
    """What chips of a class reach, as `python -m experiments.evidence.fit_chips` fits it."""
    return _figures("classes")[chip_class]


def chip_figures(name: str) -> ClassFigures | None:
    """What one of the shipped chips reaches, fitted to its own iterations; None for another one."""
    return _figures("chips").get(name)


@cache
def _figures(kind: str) -> dict[str, ClassFigures]:
    return {
        name: ClassFigures(entry["efficiency"], entry["expert_efficiency"], entry["rows"])
        for name, entry in read_mapping(CLASSES_FILE)[kind].items()
    }


def reached_share(profile: Profile) -> float:
    """The share of the peak that large products of a profile reach in training."""
    return max(tile.peak_fraction for tile in profile.gemm.tiles) / profile.gemm_in_training
