"""Everything of a profile that the newer tables hold, for one chip."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.profiles.chips import Chip
from experiments.profiles.sustained.tables import serving_folder
from itertime.spec import Evidence, load_profile
from itertime.spec.kernels import AttentionModel, CastModel, ElementwiseModel, ElementwiseStyle

from .attention import CUDNN, fit_cudnn, flash_elsewhere
from .casts import fit_casts
from .serving import fit_flash3, fit_tail
from .styles import fit_styles
from .tables import family, like

__all__ = ["TrainingKernels", "fit_training", "with_training"]

BEFORE_HOPPER = ("a100", "v100", "a800")


@dataclass(frozen=True)
class TrainingKernels:
    """The fields of a `Profile` that the newer tables fill, and their evidence."""

    attention_kernels: dict[str, AttentionModel]
    elementwise_styles: dict[str, dict[str, ElementwiseStyle]]
    casts: dict[str, CastModel]
    evidence: list[Evidence]

    def plain(self) -> dict[str, Any]:
        """The three fields as they are written."""
        return {
            "attention_kernels": {
                name: dataclasses.asdict(model) for name, model in self.attention_kernels.items()
            },
            "elementwise_styles": {
                style: {kind: dataclasses.asdict(one) for kind, one in kinds.items()}
                for style, kinds in self.elementwise_styles.items()
            },
            "casts": {name: dataclasses.asdict(cast) for name, cast in self.casts.items()},
        }


def fit_training(tables: Path, chip: Chip, plain: dict[str, ElementwiseModel]) -> TrainingKernels:
    """The parts of a chip's profile from the newer tables in the folder `tables`.

    `plain` are the chip's element-wise models. A chip before Hopper has FlashAttention-2 and no cast; it
    takes the styles by their fractions of HBM bandwidth. Raises `UserError` for a missing or unusable table.
    """
    styles, evidence = fit_styles(tables, chip, plain)
    casts, cast_evidence = fit_casts(tables, chip)
    kernels: dict[str, AttentionModel] = {}
    attention_evidence: list[Evidence] = []
    if family(chip) not in BEFORE_HOPPER:
        launch_s = plain["elementwise"].launch_s
        tail, attention_evidence = fit_tail(tables, chip, launch_s)
        for name in CUDNN:
            model, found = fit_cudnn(tables, chip, name, tail)
            if model is not None:
                kernels[name] = model
                attention_evidence += found
        flash3, found = fit_flash3(tables, chip, kernels["cudnn"], launch_s)
        if flash3 is not None:
            kernels["flash3"] = flash3
        attention_evidence += found
    attention_evidence.append(_without(kernels, chip))
    return TrainingKernels(kernels, styles, casts, [*attention_evidence, *evidence, *cast_evidence])


def _without(kernels: dict[str, AttentionModel], chip: Chip) -> Evidence:
    lacking = [name for name in ("flash3", *CUDNN) if name not in kernels]
    return Evidence(
        part=f"attention, {', '.join(lacking) or 'no other kernel'}",
        kind="assumed",
        source="FlashAttention-2",
        rows=0,
        note=f"no table of {like('attention', chip).upper()} measures these kernels",
    )


def with_training(folder: Path, chip: Chip, profile: dict[str, Any]) -> dict[str, Any]:
    """A profile as it is written, from the older tables in `folder`, with the parts of the newer ones.

    A chip that takes its kernels from another gets FlashAttention-2 by `flash_elsewhere`. One before Hopper
    keeps what it has of the other.
    """
    plain = {kind: ElementwiseModel(**model) for kind, model in profile["elementwise"].items()}
    tables = serving_folder(folder)
    evidence = profile["evidence"]
    if chip.like is not None and family(chip) not in BEFORE_HOPPER:
        flash, found = flash_elsewhere(tables, chip, load_profile(chip.like).attention)
        profile = profile | {"attention": dataclasses.asdict(flash)}
        evidence = [item for item in evidence if item["part"] != "attention"]
        evidence = evidence + [dataclasses.asdict(item) for item in found]
    kernels = fit_training(tables, chip, plain)
    evidence = evidence + [dataclasses.asdict(item) for item in kernels.evidence]
    return profile | kernels.plain() | {"evidence": evidence}
