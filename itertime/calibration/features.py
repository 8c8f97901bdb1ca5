"""Columns of newer tables that change the work of a run: which of them a run can express.

Older tables, like those of `../shared/data/iterations`, lack these columns: their runs are dense models in 16
bit without context parallelism. A cell that says otherwise is used (`cp`, `ep`, `experts`, `grad_dtype`), or
its row cannot be expressed, with the reason. No column that changes the work is ignored.
"""

from __future__ import annotations

from collections.abc import Iterator

from itertime.errors import UserError

from .table import Cells

__all__ = ["check_features", "fp32_gradients", "mlp_of"]

_SIXTEEN_BIT = ("bf16", "fp16")
_POWER_W = {"A100": 400.0, "H100": 700.0}  # limits of the SXM parts, by NVIDIA's data sheets
_WITHOUT_EXPERTS = {"experts_per_token": 1, "moe_ffn_hidden": None, "shared_ffn_hidden": None}
"""Columns that only a mixture has, and their values in a dense model."""
_EXACT_FRACTION = {"none": 0.0, "full": 1.0}


def check_features(row: Cells) -> None:
    """Raises UserError, naming column and value, for the first feature of the row that no run can have."""
    for column, why in (*_of_kernels(row), *_of_the_model(row), *_of_recomputation(row), *_of_experts(row)):
        raise UserError(f"{column}={row[column]}: {why}")


def mlp_of(row: Cells) -> tuple[int, int, int]:
    """Experts, experts per token and width of the MLP or of one expert; width 0 if the row does not say.

    Raises UserError for a mixture whose columns leave its layers open.
    """
    experts, width = row["experts"] or 1, row["ffn_hidden"] or 0
    if experts == 1:
        return 1, 1, width
    if row["experts_per_token"] is None:
        raise UserError("the source does not say experts_per_token")
    if row["moe_ffn_hidden"] is None:
        raise UserError("the source does not say moe_ffn_hidden")
    if width not in (0, row["moe_ffn_hidden"]):
        what = f"ffn_hidden={width} beside moe_ffn_hidden={row['moe_ffn_hidden']}"
        raise UserError(f"{what}: some layers may be dense, and no column says which")
    return experts, row["experts_per_token"], row["moe_ffn_hidden"]


def fp32_gradients(row: Cells) -> bool | None:
    """Whether gradients are summed and exchanged in 32 bit; None if the row does not say."""
    return None if row["grad_dtype"] is None else row["grad_dtype"] == "fp32"


def _of_kernels(row: Cells) -> Iterator[tuple[str, str]]:
    if row["precision"] not in (None, *_SIXTEEN_BIT):
        yield "precision", "profiles have matrices in 16 bit only"
    power = next((watt for gpu, watt in _POWER_W.items() if row["gpu"].startswith(gpu)), None)
    if power and row["power_w"] not in (None, power):
        yield "power_w", f"the profile is of a GPU limited to {power:g} W"
    if row["cuda_graphs"] not in (None, "none"):
        yield "cuda_graphs", "launches from graphs are not modelled"
    if row["tp_comm_overlap"] and row["tp"] != 1:
        yield "tp_comm_overlap", "tensor-parallel communication behind GEMMs is not modelled"
    if row["cpu_offload_layers"]:
        yield "cpu_offload_layers", "layers in the memory of the CPU are not modelled"
    if row["grad_dtype"] not in (None, "fp32", *_SIXTEEN_BIT):
        yield "grad_dtype", "must be fp32, bf16 or fp16"


def _of_the_model(row: Cells) -> Iterator[tuple[str, str]]:
    for column in ("head_dim", "head_dim_v"):
        if row[column] is not None and row[column] * row["heads"] != row["hidden"]:
            yield column, "only heads of hidden / heads are modelled"


def _of_recomputation(row: Cells) -> Iterator[tuple[str, str]]:
    core = row["recompute"] == "selective" and row["recompute_modules"] == "core_attn"
    if row["recompute_modules"] is not None and not core:
        yield "recompute_modules", "only all of a layer or its attention core is repeated in the model"
    exact = _EXACT_FRACTION.get(row["recompute"])
    if row["recompute_fraction"] not in (None, exact):
        yield "recompute_fraction", f"is not the share that recompute={row['recompute']} repeats"


def _of_experts(row: Cells) -> Iterator[tuple[str, str]]:
    if (row["experts"] or 1) == 1:
        for column, dense in _WITHOUT_EXPERTS.items():
            if row[column] not in (None, dense):
                yield column, "is of a mixture, and the row states no experts; add the column experts"
        return
    if row["shared_ffn_hidden"]:
        yield "shared_ffn_hidden", "shared experts are not modelled"
    if row["etp"] not in (None, row["tp"]):
        yield "etp", f"experts are split over all tp={row['tp']} ranks in the model"
    if row["moe_dispatcher"] not in (None, "alltoall"):
        yield "moe_dispatcher", "tokens travel by all-to-all in the model"
    if row["moe_a2a_overlap"]:
        yield "moe_a2a_overlap", "all-to-alls behind computation are not modelled"
