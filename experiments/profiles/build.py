"""Computes a GPU's profile from tables of measured operators; run it with `--help` for its usage.

Equal tables give equal bytes. The file holds coefficients and small tables of medians, never the measured
rows.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from itertime.commandline import run_task
from itertime.io import write_text
from itertime.profiling import plain_values, render
from itertime.spec import Evidence, Profile, load_profile
from itertime.spec.kernels import AttentionSlowdown
from itertime.spec.operators import GemmModel, PowerTerm
from itertime.spec.size_table import SizeTable

from .attention_slowdown import measure_slowdown
from .chips import IN_TRAINING_ROWS, Chip, chip_named
from .collected import core_profile, fit_table, is_of_core
from .fit_attention import fit_attention
from .fit_collectives import by_reductions, fit_collectives
from .fit_elementwise import fit_elementwise
from .fit_gemm import fit_gemm
from .sustained import SOURCES, fit_grouped, fit_precisions
from .training import with_training

__all__ = ["build", "main"]

PROGRAM = "python -m experiments.profiles.build"
EXAMPLES = f"""\
From a folder of published tables:

    {PROGRAM} ../shared/data/operators --gpu h100-80gb -o profiles/h100-80gb.json

From measurements on one GPU of that type; what they lack, such as collectives, comes from the base
profile:

    itertime profile collect -o mine.csv.gz
    {PROGRAM} mine.csv.gz --gpu h100-80gb --base h100-80gb -o mine.json

A table of a CPU needs neither; what it lacks, predictions refuse:

    itertime profile collect --device cpu --for MODEL --ranks 2 -o core.csv
    {PROGRAM} core.csv -o core.json

A YAML file with the fields of a `Chip` describes a GPU of another type.
"""
FITTED_ON = "h100-80gb"
# Measured on B200 and GB200: see `power limit` in their evidence.
ASSUMED_EXPONENT = 0.57
POWER_ASSUMED = [
    Evidence(
        part="power limit",
        kind="assumed",
        source="that of the profile b200-180gb",
        rows=0,
        note=f"exponent {ASSUMED_EXPONENT}; these GEMMs are short ones, which a limit hardly slows",
    )
]
ASSUMED = (
    ("gemm, backward layouts", "the forward formula", "dx = dy w^T and dw = x^T dy: no table measures them"),
    (
        "gemm, batched",
        "the forward formula over all batches' tiles",
        "no table measures strided-batched GEMMs",
    ),
    ("element-wise kernels, backward", "the forward bandwidth of each kind", "no table measures them"),
    ("collectives among more than 8 ranks of a node", "the bus bandwidth among 8", "no table measures them"),
)


def build(folder: Path, gpu: str = "a100-80gb", base: str | None = None) -> dict[str, Any]:
    """The profile as plain values, as they are written. Raises `UserError` for unusable tables.

    `folder` holds the tables. It may also be a file of `itertime profile collect`; what that lacks then comes
    from the profile `base`.
    """
    chip = chip_named(gpu)
    if folder.is_file():
        return _collected(folder, chip, base)
    profile = _operators(folder, chip, base) if chip.like is None else _like(folder, chip)
    return _in_training(with_training(folder, chip, profile), chip)


def _in_training(profile: dict[str, Any], chip: Chip) -> dict[str, Any]:
    """The profile with what GEMMs take longer in training than alone, if that is known."""
    if chip.gemm_in_training == 1:
        return profile
    stated = Evidence(
        part="gemm in training",
        kind="fitted" if chip.name == FITTED_ON else "assumed",
        source="measured iterations on H100" if chip.name == FITTED_ON else f"that of {FITTED_ON}",
        rows=IN_TRAINING_ROWS if chip.name == FITTED_ON else 0,
        note=f"times {chip.gemm_in_training:g}; errors with each source left out are in docs/accuracy.md",
    )
    evidence = [*profile["evidence"], dataclasses.asdict(stated)]
    return profile | {"gemm_in_training": chip.gemm_in_training, "evidence": evidence}


def _collected(path: Path, chip: Chip, base: str | None) -> dict[str, Any]:
    """The profile of one's own GPU, or of a core of one's own CPU."""
    if is_of_core(path):
        return plain_values(core_profile(path))
    profile, evidence = fit_table(path, chip, base)
    return dataclasses.asdict(profile) | {
        "collectives": {name: _plain(table) for name, table in profile.collectives.items()},
        "evidence": [dataclasses.asdict(item) for item in _with_assumptions(evidence)],
    }


def _operators(folder: Path, chip: Chip, base: str | None) -> dict[str, Any]:
    """The profile without the kernels of newer training software."""
    gemm, gemm_evidence = _gemm(folder, chip)
    elementwise, elementwise_evidence = fit_elementwise(folder, chip)
    launch_s = elementwise["elementwise"].launch_s
    attention, attention_evidence = fit_attention(folder, chip, launch_s)
    slowdown, slowdown_evidence = _slowdown(folder, chip, base)
    collectives, collective_evidence = _collectives(folder, chip, base)
    evidence = _with_assumptions(
        [
            *gemm_evidence,
            *attention_evidence,
            *slowdown_evidence,
            *elementwise_evidence,
            *collective_evidence,
        ]
    )
    return {
        "name": chip.name,
        "gpu": chip.gpu,
        "source": chip.source,
        "peak_flops_per_s": chip.peak_flops_per_s,
        "hbm_bytes_per_s": chip.hbm_bytes_per_s,
        "memory_bytes": chip.memory_bytes,
        "nvlink_bytes_per_s": _links(chip, base),
        "launch_s": launch_s,
        "gemm": gemm["gemm"],
        "attention": dataclasses.asdict(attention),
        "attention_slowdown": {name: dataclasses.asdict(one) for name, one in slowdown.items()},
        "elementwise": {kind: dataclasses.asdict(model) for kind, model in elementwise.items()},
        "collectives": {name: _plain(table) for name, table in collectives.items()},
        "evidence": [dataclasses.asdict(item) for item in evidence],
        **{name: gemm[name] for name in ("gemm_precisions", "grouped_gemm", "power")},
    }


def _gemm(folder: Path, chip: Chip) -> tuple[dict[str, Any], list[Evidence]]:
    """The fields of a profile that hold GEMMs and what a power limit changes, and their evidence."""
    power = None if chip.power_w is None else PowerTerm(chip.power_w, ASSUMED_EXPONENT)
    models: dict[str, GemmModel] = {}
    grouped: dict[str, GemmModel] = {}
    if chip.name in SOURCES:
        models, power, evidence = fit_precisions(folder, chip)
        grouped, more = fit_grouped(folder, chip, models)
        gemm = models.pop("bf16")
        evidence += more
    elif chip.like is None:
        gemm, evidence = fit_gemm(folder, chip)
        evidence += POWER_ASSUMED if power is not None else []
    else:
        gemm, evidence = _gemm_like(load_profile(chip.like), chip)
        evidence += POWER_ASSUMED
    return {
        "gemm": dataclasses.asdict(gemm),
        "gemm_precisions": {name: dataclasses.asdict(model) for name, model in models.items()},
        "grouped_gemm": {name: dataclasses.asdict(model) for name, model in grouped.items()},
        "power": None if power is None else dataclasses.asdict(power),
    }, evidence


def _gemm_like(base: Profile, chip: Chip) -> tuple[GemmModel, list[Evidence]]:
    """The GEMMs of another chip, at the ratios of data sheets."""
    gemm = dataclasses.replace(
        base.gemm,
        multiprocessors=chip.multiprocessors,
        peak_flops_per_s=chip.peak_flops_per_s,
        bytes_per_s=base.gemm.bytes_per_s * chip.hbm_bytes_per_s / base.hbm_bytes_per_s,
    )
    note = "equal fractions of peak and of memory bandwidth"
    return gemm, [Evidence("gemm", "assumed", f"profile {base.name}, by data sheets", rows=0, note=note)]


def _like(folder: Path, chip: Chip) -> dict[str, Any]:
    """The profile of a chip with measured GEMMs and collectives; the rest is another's, by data sheets."""
    base = load_profile(chip.like or "")
    gemm, evidence = _gemm(folder, chip)
    memory = chip.hbm_bytes_per_s / base.hbm_bytes_per_s
    peak = chip.peak_flops_per_s / base.peak_flops_per_s
    rate = peak * base.attention.multiprocessors / chip.multiprocessors
    attention = base.attention.scaled(rate, memory, chip.multiprocessors)
    slowdown = {name: dataclasses.asdict(one) for name, one in base.attention_slowdown.items()}
    if chip.serving_tables:
        collectives, collective_evidence = fit_collectives(folder, chip)
    elif chip.reductions:
        collectives, collective_evidence = by_reductions(folder, chip.reductions, base)
    else:
        collectives, collective_evidence = base.collectives, [_collectives_of(base.name)]
    assumed = [
        Evidence(part, "assumed", f"profile {base.name}, at the ratio of {what}", rows=0)
        for part, what in (
            ("attention", f"bf16 peaks, {peak:.4g}"),
            ("element-wise kernels", f"memory bandwidths, {memory:.4g}"),
        )
    ]
    return {
        "name": chip.name,
        "gpu": chip.gpu,
        "source": chip.source,
        "peak_flops_per_s": chip.peak_flops_per_s,
        "hbm_bytes_per_s": chip.hbm_bytes_per_s,
        "memory_bytes": chip.memory_bytes,
        "nvlink_bytes_per_s": _links(chip, chip.like),
        "launch_s": base.launch_s,
        "gemm": gemm["gemm"],
        "attention": dataclasses.asdict(attention),
        "attention_slowdown": slowdown,
        "elementwise": {
            kind: dataclasses.asdict(model.scaled(memory)) for kind, model in base.elementwise.items()
        },
        "collectives": {name: _plain(table) for name, table in collectives.items()},
        "evidence": [
            dataclasses.asdict(item)
            for item in _with_assumptions([*evidence, *assumed, *collective_evidence])
        ],
        **{name: gemm[name] for name in ("gemm_precisions", "grouped_gemm", "power")},
    }


def _slowdown(
    folder: Path, chip: Chip, base: str | None
) -> tuple[dict[str, AttentionSlowdown], list[Evidence]]:
    if base is None:
        return measure_slowdown(folder, chip)
    return load_profile(base).attention_slowdown, []


def _links(chip: Chip, base: str | None) -> float | None:
    """Bytes/s of the links of the GPUs whose collectives a profile has: the chip's, or those of its base."""
    if chip.nvlink_bytes_per_s is None and base is not None:
        return load_profile(base).nvlink_bytes_per_s
    return chip.nvlink_bytes_per_s


def _collectives_of(name: str) -> Evidence:
    return Evidence(
        "collectives", "assumed", f"those of the profile {name}", 0, note="no table measures them"
    )


def _collectives(folder: Path, chip: Chip, base: str | None) -> tuple[dict[str, SizeTable], list[Evidence]]:
    if base is None:
        return fit_collectives(folder, chip)
    collectives = load_profile(base).collectives
    evidence = [
        Evidence(
            part=name,
            kind="assumed",
            source=f"those of the profile {base}",
            rows=0,
            note="no table of this chip has collectives",
        )
        for name in collectives
    ]
    return collectives, evidence


def _with_assumptions(evidence: list[Evidence]) -> list[Evidence]:
    """The evidence, and a row for each of `ASSUMED` that it does not cover."""
    covered = {item.part for item in evidence}
    if any(part.endswith("(backward)") for part in covered):
        covered.add("element-wise kernels, backward")
    assumed = [
        Evidence(part=part, kind="assumed", source=source, rows=0, note=note)
        for part, source, note in ASSUMED
        if part not in covered
    ]
    return [*evidence, *assumed]


def _plain(table: SizeTable) -> dict[str, Any]:
    return {"ranks": table.ranks, "first_bytes": table.first_bytes, "time_s": table.time_s}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns its exit code."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Compute a GPU's profile from tables of measured operators.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "folder",
        type=Path,
        help="folder of operator tables (a100_gemm.csv.gz, ...), or a file of `itertime profile collect`",
    )
    parser.add_argument(
        "--gpu",
        default="a100-80gb",
        help="a100-80gb (the default), h100-80gb, or a YAML file that describes a GPU",
    )
    parser.add_argument("--base", help="profile that stands in for what is not measured")
    parser.add_argument("-o", "--output", type=Path, required=True, help="profile to write (.json)")
    options = parser.parse_args(arguments)
    return run_task(
        lambda: write_text(options.output, render(build(options.folder, options.gpu, options.base)))
    )


if __name__ == "__main__":
    sys.exit(main())
