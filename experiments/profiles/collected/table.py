"""All parts of a profile from one table of measurements, and from a base profile where it has none."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.profiles.chips import CHIPS, Chip
from experiments.profiles.fit_gemm import fit_gemm
from experiments.profiles.measurements import missed_pct, read_table
from itertime.errors import UserError
from itertime.spec import Evidence, Profile, load_profile
from itertime.spec.kernels import AttentionModel
from itertime.spec.operators import GemmModel, PowerTerm
from itertime.spec.profile import UNUSABLE_PCT

from .collectives import collective_tables
from .elementwise import fit_collected
from .newer import STYLED, fit_attention_kernel, fit_casts, fit_style
from .products import check_accumulation, fit_fp8, fit_grouped

__all__ = ["fit_table"]

STYLES = {"eager": "elementwise", "compiled": "elementwise-compiled"}
KERNELS = ("cudnn", "flash3")
SAME_PEAK = 0.01


@dataclass
class _Parts:
    """The fields of a profile as they are found, and their evidence."""

    profile: Profile
    name: str
    note_of_arithmetic: str
    """Of matrix products and attention that the base lends: how they were brought to the chip."""
    evidence: list[Evidence] = field(default_factory=list)

    def put(self, evidence: list[Evidence], **fields: Any) -> None:
        """Take these fields and their evidence."""
        self.profile = dataclasses.replace(self.profile, **fields)
        self.evidence += evidence

    def lend(self, part: str) -> None:
        """State that matrix products or an attention kernel are the base's."""
        self.keep(part, self.note_of_arithmetic)

    def take(self, part: str, evidence: list[Evidence], **fields: Any) -> None:
        """As `put`, unless the fit misses its rows by too much to be used: then the base's stays."""
        missed = missed_pct(evidence)
        if missed > UNUSABLE_PCT:
            self.stand_in(part, f"its fit misses its rows by {missed:.0f} %")
        else:
            self.put(evidence, **fields)

    def stand_in(self, part: str, reason: str) -> None:
        """State that a part cannot be used, for a reason, and that the base's stands in."""
        source = f"that of the profile {self.name} stands in"
        self.evidence.append(Evidence(part, "unusable", source, rows=0, note=reason))

    def keep(self, part: str, note: str = "not collected") -> None:
        """State that a part is the base's."""
        source = f"those of the profile {self.name}"
        self.evidence.append(Evidence(part=part, kind="assumed", source=source, rows=0, note=note))


def fit_table(path: Path, chip: Chip, base: str | None) -> tuple[Profile, list[Evidence]]:
    """The profile, whose own evidence is that of the base, and its evidence.

    Raises `UserError` without a base, and for a file that is no table of `itertime profile collect`.
    """
    if base is None:
        raise UserError(
            f"{path}: one GPU measures no collective, and few have every kernel; name the profile that "
            "stands in for what is missing: --base h100-80gb"
        )
    have = _tables(path)
    if not have:
        read_table(path, "gemm", ("m", "n", "k"))  # raises
    lender = load_profile(base)
    ratio = _peak_ratio(lender, chip)
    note = "not collected" if ratio == 1 else f"not collected; at the ratio of bf16 peaks, {ratio:.4g}"
    parts = _Parts(_adapted(lender, path, chip, have), base, note)
    parts.put(
        _in_training(parts, chip),
        name=chip.name,
        gpu=chip.gpu,
        source=chip.source,
        peak_flops_per_s=chip.peak_flops_per_s,
        hbm_bytes_per_s=chip.hbm_bytes_per_s,
        memory_bytes=chip.memory_bytes,
        gemm_in_training=_gemm_in_training(lender, chip),
    )
    _products(parts, path, chip, have)
    _memory_bound(parts, path, chip, have)
    _attention(parts, path, chip, have)
    _collectives(parts, path, have, chip.nvlink_bytes_per_s)
    return parts.profile, parts.evidence


def _tables(path: Path) -> dict[str, int]:
    """Rows with a time, by table; empty for another file."""
    try:
        rows = pd.read_csv(path)
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{path}: cannot be read as gzip CSV: {error}") from error
    if not {"table", "time_us"} <= set(rows.columns):
        return {}
    return {str(name): int(count) for name, count in rows.loc[rows.time_us > 0].table.value_counts().items()}


def _rows(path: Path, table: str) -> pd.DataFrame:
    return read_table(path, f"own_{table}", ())


def _adapted(base: Profile, path: Path, chip: Chip, have: dict[str, int]) -> Profile:
    """The base with the memory of the chip, at the power limit that the table states, as far as both are
    known: what it lends holds there. Arithmetic of a chip with another peak follows the ratio of the peaks,
    at no larger a fraction of the peak than the base reaches.
    """
    limit_w = _limit_w(path) if "gemm" in have and base.power is not None else None
    ratio = _peak_ratio(base, chip)
    if ratio == 1:
        return base.variant(
            power_w=limit_w, hbm_bytes_per_s=chip.hbm_bytes_per_s, memory_bytes=chip.memory_bytes
        )
    rate, power = 1.0, base.power
    if power is not None and limit_w is not None:
        rate = min(power.at(limit_w, ratio)[1], 1.0)
        power = PowerTerm(limit_w, power.exponent, power.headroom / rate)
    lent = base.variant(hbm_bytes_per_s=chip.hbm_bytes_per_s, memory_bytes=chip.memory_bytes)

    def gemm(model: GemmModel) -> GemmModel:
        return dataclasses.replace(
            model.scaled(rate),
            multiprocessors=chip.multiprocessors,
            peak_flops_per_s=model.peak_flops_per_s * ratio,
        )

    def attention(model: AttentionModel) -> AttentionModel:
        each = rate * ratio * model.multiprocessors / chip.multiprocessors
        return model.scaled(each, multiprocessors=chip.multiprocessors)

    return dataclasses.replace(
        lent,
        power=power,
        gemm=gemm(lent.gemm),
        gemm_precisions={name: gemm(model) for name, model in lent.gemm_precisions.items()},
        grouped_gemm={name: gemm(model) for name, model in lent.grouped_gemm.items()},
        attention=attention(lent.attention),
        attention_kernels={name: attention(model) for name, model in lent.attention_kernels.items()},
    )


def _peak_ratio(base: Profile, chip: Chip) -> float:
    """The 16-bit peak of the chip over that of the base; 1 for the same silicon, whose sheets round."""
    ratio = chip.peak_flops_per_s / base.peak_flops_per_s
    return 1.0 if abs(ratio - 1) < SAME_PEAK else ratio


def _gemm_in_training(base: Profile, chip: Chip) -> float:
    """That of the chip if the package knows it or the user states it, else the base's."""
    known = chip.gemm_in_training != 1 or chip in CHIPS
    return chip.gemm_in_training if known else base.gemm_in_training


def _in_training(parts: _Parts, chip: Chip) -> list[Evidence]:
    """What is assumed of products between a layer's other kernels; nothing where they take no longer."""
    factor = _gemm_in_training(parts.profile, chip)
    if factor == 1:
        return []
    own = factor == chip.gemm_in_training
    source = f"that of {chip.name}" if own else f"that of the profile {parts.name}"
    note = f"times {factor:g}; operators alone do not tell"
    return [Evidence("gemm in training", "assumed", source, rows=0, note=note)]


def _limit_w(path: Path) -> float | None:
    """The power limit of the GPU, watts; None where no meter read it."""
    rows = _rows(path, "gemm")
    if "power_limit_w" not in rows.columns or rows.power_limit_w.isna().all():
        return None
    return float(rows.power_limit_w.median())


def _products(parts: _Parts, path: Path, chip: Chip, have: dict[str, int]) -> None:
    if "gemm" in have:
        gemm, evidence = fit_gemm(path, chip)
        parts.take("gemm, bf16", [*evidence, *check_accumulation(_rows(path, "gemm"), gemm)], gemm=gemm)
        _state_power(parts, path)
    else:
        parts.lend("gemm")
    own = parts.profile.gemm
    precisions = dict(parts.profile.gemm_precisions)
    if have.get("gemm-fp8", 0) >= 4:
        precisions["fp8"], evidence = fit_fp8(_rows(path, "gemm-fp8"), own)
        parts.take("gemm, fp8", evidence, gemm_precisions=precisions)
    for name in precisions:
        if name != "fp8" or "gemm-fp8" not in have:
            parts.lend(f"gemm, {name}")
    grouped = dict(parts.profile.grouped_gemm)
    rows = _rows(path, "grouped") if "grouped" in have else pd.DataFrame({"impl": []})
    rows = rows.loc[rows.impl == "grouped"]
    if len(rows) >= 4:
        grouped["bf16"], evidence = fit_grouped(rows, own)
        parts.take("grouped_gemm, bf16", evidence, grouped_gemm=grouped)
    for name in grouped:
        if name != "bf16" or len(rows) < 4:
            parts.lend(f"grouped_gemm, {name}")


def _state_power(parts: _Parts, path: Path) -> None:
    """The limit that the products ran at; how they follow another is the base's."""
    limit_w, before = _limit_w(path), parts.profile.power
    if limit_w is None:
        parts.put([], power=None)
        return
    exponent, headroom = (before.exponent, before.headroom) if before else (0.0, 1.0)
    mean_w = float(_rows(path, "gemm").power_w.median())
    found = Evidence(
        part="power limit",
        kind="assumed",
        source=f"exponent {exponent:g}: that of the profile {parts.name}"
        if before
        else "no exponent is known",
        rows=0,
        note=f"the GPU's limit was {limit_w:g} W; half of the products drew {mean_w:g} W or more",
    )
    parts.put([found], power=PowerTerm(limit_w, exponent, headroom))


def _memory_bound(parts: _Parts, path: Path, chip: Chip, have: dict[str, int]) -> None:
    if "elementwise" in have:
        models, evidence = fit_collected(path, chip, parts.profile.elementwise, parts.name)
        parts.put(evidence, elementwise=models, launch_s=models["elementwise"].launch_s)
    else:
        parts.keep("element-wise kernels")
    styles = {name: dict(kinds) for name, kinds in parts.profile.elementwise_styles.items()}
    style_evidence: list[Evidence] = []
    for style, table in STYLES.items():
        rows = _rows(path, table) if table in have else pd.DataFrame()
        for kind in STYLED if len(rows) else ():
            model, evidence = fit_style(style, kind, rows, chip)
            if model is not None:
                styles.setdefault(style, {})[kind] = model
                style_evidence += evidence
    parts.put(style_evidence, elementwise_styles=styles)
    parts.keep("styles of other memory-bound kernels")
    casts = dict(parts.profile.casts)
    cast, evidence = fit_casts(_rows(path, "cast"), chip) if "cast" in have else (None, [])
    if cast is not None:
        casts["fp8"] = cast
        parts.take("cast_fp8", evidence, casts=casts)
    for name in casts:
        if name != "fp8" or cast is None:
            parts.keep(f"cast_{name}")


def _attention(parts: _Parts, path: Path, chip: Chip, have: dict[str, int]) -> None:
    like = dataclasses.replace(
        parts.profile.attention, multiprocessors=chip.multiprocessors, bytes_per_s=chip.hbm_bytes_per_s
    )
    flash = None
    if "attention" in have:
        flash, evidence = fit_attention_kernel("flash", _rows(path, "attention"), like)
    if flash is None:
        parts.lend("attention")
    else:
        parts.take("attention", evidence, attention=flash)
    parts.keep("attention, earlier kernels over FlashAttention-2")
    kernels = dict(parts.profile.attention_kernels)
    base_kernels = set(kernels)
    for name in KERNELS:
        if f"attention-{name}" not in have:
            continue
        kernel_model, evidence = fit_attention_kernel(name, _rows(path, f"attention-{name}"), like)
        if kernel_model is not None:
            kernels = parts.profile.attention_kernels | {name: kernel_model}
            base_kernels.discard(name)
            parts.take(f"attention_{name}", evidence, attention_kernels=dict(kernels))
    for name in sorted(base_kernels):
        parts.lend(f"attention, {name}")


def _collectives(parts: _Parts, path: Path, have: dict[str, int], nvlink_bytes_per_s: float | None) -> None:
    tables, evidence = collective_tables(path) if "collective" in have else ({}, [])
    links = nvlink_bytes_per_s or parts.profile.nvlink_bytes_per_s
    if tables:
        parts.put(evidence, collectives=parts.profile.collectives | tables, nvlink_bytes_per_s=links)
    for name in parts.profile.collectives:
        if name not in tables:
            parts.stand_in(name, "no collective of several GPUs was timed")
