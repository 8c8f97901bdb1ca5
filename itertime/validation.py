"""Predicted against measured: the rows of iteration tables through `predict`, and the errors of the whole.

Every row makes its own model, plan and system. Where a cell is empty: multi-head attention, an MLP of 4 h,
one chunk, no ZeRO, no sequence parallelism, no overlap; an empty micro-batch becomes the power of two that is
predicted fastest among those that fit. What the columns do not say follows from them: a gated MLP comes with
RMS norm, rotary positions, an output layer of its own and no biases (LLaMA), unfused attention with dropout
(GPT-3), layers that pp does not divide with a balanced split.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from itertime.atomic import write_text
from itertime.errors import UserError
from itertime.model import ModelSpec
from itertime.plan import Plan
from itertime.prediction import Prediction, predict
from itertime.profile import Profile, list_profiles, load_profile
from itertime.system import Site, System, load_system
from itertime.table import Cells, read_table

__all__ = ["FileErrors", "RowError", "Skipped", "statistics", "summary", "validate", "write_rows"]

_PROFILES = {"A100-SXM-80GB": "a100-80gb", "A100-SXM-40GB": "a100-80gb", "H100-SXM-80GB": "h100-80gb"}
# The same die with other memory: bytes/s and bytes (NVIDIA A100 data sheet, 2021; the driver keeps some for
# itself).
_MEMORY = {"A100-SXM-40GB": (1555e9, 42.5e9)}
# What sites ran, by their documentation, where the columns have no word for it: llm-foundry its Triton
# attention (`attn_impl: triton`) and its fused cross-entropy, InternLM flash-attention 1.0.5.
_SOFTWARE: dict[str, dict[str, Any]] = {
    "mosaicml": {"attention": "flash1", "fused_loss": True},
    "internevo-cluster": {"attention": "flash1"},
}
_FP32_GRADIENTS = "fp32 gradient accumulation"
_BASE_SYSTEM = "dgx-a100-80gb"
_MICRO_BATCHES = tuple(2**i for i in range(8))


@dataclass(frozen=True)
class RowError:
    """One row that was predicted; bytes of memory are None where nothing was measured."""

    id: str
    measured_s: float
    prediction: Prediction
    memory_measured_gb: float | None

    @property
    def error_pct(self) -> float:
        """Predicted over measured, less one, in percent."""
        return (self.prediction.iteration_s / self.measured_s - 1) * 100


@dataclass(frozen=True)
class Skipped:
    """A row that cannot be expressed, and why."""

    id: str
    why: str


@dataclass(frozen=True)
class FileErrors:
    """All rows of one file, in its order: those predicted and those that could not be."""

    file: str
    predicted: tuple[RowError, ...]
    skipped: tuple[Skipped, ...]

    @property
    def rows(self) -> int:
        return len(self.predicted) + len(self.skipped)


def validate(path: str | Path, site: Site | None = None) -> FileErrors:
    """Predicts every row of a table; `site` adds a site's constants. Raises TableError for a malformed
    file.
    """
    predicted, skipped = [], []
    for row in read_table(path):
        try:
            run = _predict_row(row, site or Site())
            predicted.append(RowError(row["id"], row["iteration_s"], run, row["memory_gb"]))
        except UserError as error:
            skipped.append(Skipped(row["id"], str(error)))
    return FileErrors(str(path), tuple(predicted), tuple(skipped))


def statistics(rows: Sequence[RowError]) -> dict[str, float | None]:
    """Errors in percent over rows: mean, median and 95th percentile of the absolute error, mean signed error;
    R^2 of seconds.

    `memory_mape` covers the rows with measured memory. None where there is nothing to average.
    """
    if not rows:
        return dict.fromkeys(("mape", "median_ape", "p95_ape", "bias", "r2", "memory_mape"))
    errors = np.array([row.error_pct for row in rows])
    measured = np.array([row.measured_s for row in rows])
    predicted = np.array([row.prediction.iteration_s for row in rows])
    spread = float(((measured - measured.mean()) ** 2).sum())
    memory = [
        abs(row.prediction.memory_bytes / 1e9 / row.memory_measured_gb - 1) * 100
        for row in rows
        if row.memory_measured_gb
    ]
    return {
        "mape": float(np.abs(errors).mean()),
        "median_ape": float(np.median(np.abs(errors))),
        "p95_ape": float(np.percentile(np.abs(errors), 95)),
        "bias": float(errors.mean()),
        "r2": 1 - float(((measured - predicted) ** 2).sum()) / spread if spread > 0 else None,
        "memory_mape": float(np.mean(memory)) if memory else None,
    }


def write_rows(files: Sequence[FileErrors], path: str | Path) -> None:
    """Writes one line per predicted row of all files: measured and predicted seconds and memory."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["id", "measured_s", "predicted_s", "error_pct", "memory_measured_gb", "memory_predicted_gb"]
    )
    for file in files:
        for row in file.predicted:
            memory = "" if row.memory_measured_gb is None else repr(row.memory_measured_gb)
            run = row.prediction
            numbers = [repr(value) for value in (row.measured_s, run.iteration_s, row.error_pct)]
            writer.writerow([row.id, *numbers, memory, repr(run.memory_bytes / 1e9)])
    write_text(path, text.getvalue())


def _predict_row(row: Cells, site: Site) -> Prediction:
    """Raises UserError, saying why, for a row that cannot be expressed."""
    for column in (
        "gpu",
        "gpus",
        "gpus_per_node",
        "node_nic_gbps",
        "layers",
        "hidden",
        "heads",
        "vocab",
        "seq_len",
    ):
        _require(row, column)
    for column in ("attention", "tp", "pp", "dp", "global_batch", "recompute", "iteration_s"):
        _require(row, column)
    if row["gpus"] != row["tp"] * row["pp"] * row["dp"]:
        raise UserError(f"gpus={row['gpus']} is not tp x pp x dp = {row['tp'] * row['pp'] * row['dp']}")
    profile = _profile(row["gpu"])
    model = _model(row)
    system = replace(
        load_system(_BASE_SYSTEM), name=row["id"], gpus_per_node=row["gpus_per_node"], site=site
    ).with_nic(row["node_nic_gbps"])
    if row["micro_batch"]:
        return predict(model, _plan(row, row["micro_batch"]), system, profile)
    return _fastest(model, row, system, profile)


def _require(row: Cells, column: str) -> None:
    if row[column] is None:
        raise UserError(f"the source does not say {column}")


def _profile(gpu: str) -> Profile:
    name = _PROFILES.get(gpu)
    if name not in list_profiles():
        raise UserError(f"no profile for GPU {gpu}")
    profile = load_profile(str(name))
    if gpu not in _MEMORY:
        return profile
    bytes_per_s, capacity = _MEMORY[gpu]
    ratio = bytes_per_s / profile.hbm_bytes_per_s
    return replace(
        profile,
        gpu=gpu,
        hbm_bytes_per_s=bytes_per_s,
        memory_bytes=capacity,
        gemm=replace(profile.gemm, bytes_per_s=profile.gemm.bytes_per_s * ratio),
        elementwise={
            kind: replace(model, bytes_per_s=model.bytes_per_s * ratio)
            for kind, model in profile.elementwise.items()
        },
    )


def _model(row: Cells) -> ModelSpec:
    gated = bool(row["gated_mlp"])
    model = ModelSpec(
        name=row["id"],
        layers=row["layers"],
        hidden=row["hidden"],
        heads=row["heads"],
        vocab=row["vocab"],
        seq_len=row["seq_len"],
        kv_heads=row["kv_heads"] or 0,
        ffn_hidden=row["ffn_hidden"] or 0,
        gated_mlp=gated,
        attention=row["attention"],
        norm="rmsnorm" if gated else "layernorm",
        positions="rotary" if gated else "learned",
        tied_embeddings=not gated,
        biases=not gated,
        dropout=row["attention"] == "core",
    )
    return replace(model, **_SOFTWARE.get(row["site"] or "", {}))


def _plan(row: Cells, micro_batch: int) -> Plan:
    return Plan(
        tp=row["tp"],
        pp=row["pp"],
        dp=row["dp"],
        micro_batch=micro_batch,
        global_batch=row["global_batch"],
        interleave=row["interleave"] or 1,
        recompute=row["recompute"],
        zero_stage=row["zero_stage"] or 0,
        zero_group=row["zero_group"],
        sequence_parallel=bool(row["sequence_parallel"]),
        grad_overlap=bool(row["grad_overlap"]),
        split="even" if row["layers"] % row["pp"] == 0 else "balanced",
        fp32_gradients=_FP32_GRADIENTS in (row["note"] or ""),
    )


def _fastest(model: ModelSpec, row: Cells, system: System, profile: Profile) -> Prediction:
    """The run with the micro-batch that is predicted fastest among the powers of two that fit; with 1 if
    none fits.
    """
    plans = [_plan(row, size) for size in _MICRO_BATCHES]
    runs = [predict(model, plan, system, profile) for plan in plans if not plan.broken_rules(model)]
    if not runs:
        return predict(model, plans[0], system, profile)
    return min([run for run in runs if run.fits] or runs[:1], key=lambda run: run.iteration_s)


def summary(files: Sequence[FileErrors]) -> dict[str, Any]:
    """The JSON document of `itertime validate`."""
    documents = []
    for file in files:
        skipped = [{"id": row.id, "why": row.why} for row in file.skipped]
        too_large = [row.id for row in file.predicted if not row.prediction.fits]
        documents.append(
            {
                "file": file.file,
                "rows": file.rows,
                "skipped": skipped,
                "does_not_fit": too_large,
                **statistics(file.predicted),
            }
        )
    everything = [row for file in files for row in file.predicted]
    total = {"rows": sum(file.rows for file in files), "skipped": sum(len(file.skipped) for file in files)}
    return {"files": documents, "all": {**total, **statistics(everything)}}
