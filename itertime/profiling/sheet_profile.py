"""A chip's profile from its data sheet: the kernels of a measured chip, at the ratios of the sheets.

Kernels that arithmetic bounds follow the peak of their precision, those that memory bounds the bandwidth.
How much of the peak large products reach in training is the chip's `efficiency`, or its class's: it replaces
the share that the measured chip reaches. Attention follows it too, up to that share of the peak.
"""

from __future__ import annotations

import dataclasses

from itertime.spec import Evidence, Profile
from itertime.spec.kernels import AttentionModel
from itertime.spec.operators import GemmModel, GemmTile, PowerTerm

from .chip_sheet import ChipSheet, base_of, class_figures, reached_share

_NOTE = "no table measures this chip"


def profile_by_sheet(name: str, sheet: ChipSheet) -> Profile:
    """The profile `name` of the chip of a sheet. Raises UserError as `base_of` does."""
    base = base_of(sheet, name)
    ratios = _Ratios.of(sheet, base)
    peaks = {"bf16": sheet.peak_flops_per_s}
    if sheet.fp8_flops_per_s is not None:
        peaks["fp8"] = sheet.fp8_flops_per_s
    singles = {"bf16": base.gemm, **base.gemm_precisions}
    grouped = {precision: base.grouped_gemm.get(precision, singles[precision]) for precision in peaks}
    gemms = {kind: ratios.products(singles[kind], peak, 1.0) for kind, peak in peaks.items()}
    experts = {kind: ratios.products(grouped[kind], peak, ratios.experts) for kind, peak in peaks.items()}
    memory = ratios.memory
    return dataclasses.replace(
        base,
        name=name,
        gpu=sheet.gpu,
        source=sheet.source,
        chip_class="" if sheet.die else sheet.chip_class,
        peak_flops_per_s=sheet.peak_flops_per_s,
        hbm_bytes_per_s=sheet.hbm_bytes_per_s,
        memory_bytes=sheet.memory_bytes,
        gemm=gemms.pop("bf16"),
        gemm_precisions=gemms,
        grouped_gemm=experts,
        gemm_in_training=ratios.in_training,
        power=PowerTerm(sheet.power_w, base.power.exponent) if sheet.power_w and base.power else None,
        attention=ratios.attention(base.attention, sheet.peak_flops_per_s),
        attention_kernels={
            kernel: ratios.attention(model, peaks["fp8" if kernel == "cudnn_fp8" else "bf16"])
            for kernel, model in base.attention_kernels.items()
            if kernel != "cudnn_mxfp8" and ("fp8" in peaks or kernel != "cudnn_fp8")
        },
        elementwise={kind: model.scaled(memory) for kind, model in base.elementwise.items()},
        elementwise_styles={
            style: {kind: model.scaled(memory) for kind, model in kinds.items()}
            for style, kinds in base.elementwise_styles.items()
        },
        casts={kind: model.scaled(memory) for kind, model in base.casts.items() if kind in gemms},
        evidence=_evidence(sheet, base, ratios),
    )


@dataclasses.dataclass(frozen=True)
class _Ratios:
    """Rates of a sheet's chip over those of the measured one. `share`: of its share of the peak that large
    products reach alone. `in_training` is that of the new profile.
    """

    peak: float
    memory: float
    share: float
    experts: float
    in_training: float
    efficiency: float

    @classmethod
    def of(cls, sheet: ChipSheet, base: Profile) -> _Ratios:
        reached = reached_share(base)
        efficiency, experts = _efficiencies(sheet, reached)
        # A GPU's products wait for caches and for power between a layer's other kernels; a compiler places
        # the operands of a systolic array, whose efficiency holds in training as it holds alone.
        in_training = base.gemm_in_training if sheet.chip_class == "gpu" else 1.0
        return cls(
            peak=sheet.peak_flops_per_s / base.peak_flops_per_s,
            memory=sheet.hbm_bytes_per_s / base.hbm_bytes_per_s,
            share=efficiency / reached * in_training / base.gemm_in_training,
            experts=experts,
            in_training=in_training,
            efficiency=efficiency,
        )

    def products(self, model: GemmModel, peak_flops_per_s: float, factor: float) -> GemmModel:
        """A model of matrix products at another peak; `factor` on the share of it that they reach."""
        share = self.share * factor
        return dataclasses.replace(
            model,
            tiles=[
                GemmTile(tile.rows, tile.columns, min(tile.peak_fraction * share, 1.0))
                for tile in model.tiles
            ],
            peak_flops_per_s=peak_flops_per_s,
            bytes_per_s=model.bytes_per_s * self.memory,
        )

    def attention(self, model: AttentionModel, peak_flops_per_s: float) -> AttentionModel:
        """A model of an attention kernel, at most at the share of the peak that products reach."""
        scaled = model.scaled(self.peak * self.share, self.memory)
        limit = self.efficiency * peak_flops_per_s
        curves = [
            dataclasses.replace(curve, flops_per_s=min(curve.flops_per_s, limit)) for curve in scaled.curves
        ]
        return dataclasses.replace(scaled, curves=curves)


def _efficiencies(sheet: ChipSheet, reached: float) -> tuple[float, float]:
    """Those of the sheet, else of its class; of the same die those of the measured chip, `reached`."""
    if sheet.die:
        return reached, 1.0
    if sheet.efficiency and sheet.expert_efficiency:
        return sheet.efficiency, sheet.expert_efficiency
    figures = class_figures(sheet.chip_class)
    return sheet.efficiency or figures.efficiency, sheet.expert_efficiency or figures.expert_efficiency


def _evidence(sheet: ChipSheet, base: Profile, ratios: _Ratios) -> list[Evidence]:
    """What each part of the profile stands on."""
    origin = f"profile {base.name}, by data sheets"
    if sheet.die:
        share = f"the same die: {ratios.efficiency:.3g} of the peak, as there"
    elif sheet.efficiency:
        share = f"large products reach {ratios.efficiency:.3g} of the peak in training, as its sheet says"
    else:
        share = f"large products reach {ratios.efficiency:.3g} of the peak in training, as chips of class "
        share += sheet.chip_class
    parts: tuple[tuple[str, str], ...] = (
        ("gemm", f"peaks in the ratio {ratios.peak:.4g}; {share}"),
        ("attention", f"peaks in the ratio {ratios.peak:.4g}; {share}"),
        ("element-wise kernels", f"memory bandwidths in the ratio {ratios.memory:.4g}"),
        ("casts", f"memory bandwidths in the ratio {ratios.memory:.4g}"),
        ("collectives", "at the ratio of the links of a node"),
    )
    if sheet.fp8_flops_per_s is None:
        parts = tuple(part for part in parts if part[0] != "casts")
    return [Evidence(part, "assumed", origin, rows=0, note=f"{note}; {_NOTE}") for part, note in parts]
