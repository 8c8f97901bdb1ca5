"""One row of an iteration table as a run: its model, plan, system and profile.

Empty cells mean multi-head attention, an MLP of 4 h, one chunk, micro-batch 1, no ZeRO, no sequence
parallelism, no overlap, a dense model and no context parallelism (where stated, keys and values go around a
ring). What has no column is inferred: a gated MLP implies RMS norm, rotary positions, a separate output layer
and no biases (LLaMA); unfused attention implies dropout (GPT-3); layers that pp does not divide imply a
balanced split.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from itertime.errors import UserError
from itertime.io import shown
from itertime.spec import ModelSpec, Plan, Profile, Site, System, list_profiles, load_profile, load_system

from .features import check_features, fp32_gradients, mlp_of
from .table import Cells

__all__ = ["MeasuredRun", "candidate_plans", "measured_run"]

_PROFILES = {"A100-SXM-80GB": "a100-80gb", "A100-SXM-40GB": "a100-80gb", "H100-SXM-80GB": "h100-80gb"}
# The same die with other memory: bytes/s and bytes (NVIDIA A100 data sheet, 2021, less the driver's share).
_MEMORY = {"A100-SXM-40GB": (1555e9, 42.5e9)}
# Software that sites document and the columns cannot express: llm-foundry's Triton attention
# (`attn_impl: triton`) and fused cross-entropy, InternLM's flash-attention 1.0.5.
_SOFTWARE: dict[str, dict[str, Any]] = {
    "mosaicml": {"attention": "triton", "fused_loss": True},
    "internevo-cluster": {"attention": "flash1"},
}
# nanotron's benchmarks train models of Llama 3's shapes with as many heads of keys and values as of queries;
# the two small ones have tied embeddings. Only these shapes give the sizes in the rows' notes, 1B, 3B, 8B and
# 80B: 1.34, 3.57, 8.86 and 80.0 billion parameters. MLPs of 4 h would give 1.6, 5.0, 9.7 and 88. By hidden
# size:
_NANOTRON = "hf-h100"
_NANOTRON_MODELS: dict[int, dict[str, Any]] = {
    2048: {"ffn_hidden": 8192, "tied_embeddings": True},
    3072: {"ffn_hidden": 8192, "tied_embeddings": True},
    4096: {"ffn_hidden": 14336},
    8192: {"ffn_hidden": 28672},
}
_MICRO_BATCHES = tuple(2**i for i in range(8))
_NEWER_MOSAICML = "precision=amp_bf16"
_FP32_GRADIENTS = "fp32 gradient accumulation"
_SYSTEMS = {"a100-80gb": "dgx-a100-80gb", "h100-80gb": "dgx-h100"}
_SITE_SYSTEMS = {_NANOTRON: "p5-48xlarge"}
_STATED = (
    *("gpu", "gpus", "gpus_per_node", "node_nic_gbps", "layers", "hidden", "heads", "vocab", "seq_len"),
    *("attention", "tp", "pp", "dp", "global_batch", "recompute", "iteration_s"),
)


@dataclass(frozen=True)
class MeasuredRun:
    """A measured run: the arguments that predict it."""

    model: ModelSpec
    plan: Plan
    system: System
    profile: Profile


def measured_run(row: Cells, site: Site) -> MeasuredRun:
    """The run of a row, at a site. Raises UserError, with the reason, if the run cannot be expressed."""
    for column in _STATED:
        if row[column] is None:
            raise UserError(f"the source does not say {column}")
    profile = _profile(row["gpu"])
    check_features(row)
    degrees = ("tp", "pp", "cp", "dp") if row["cp"] else ("tp", "pp", "dp")
    used = math.prod(row[name] for name in degrees)
    if row["gpus"] != used:
        raise UserError(f"gpus={row['gpus']} is not {' x '.join(degrees)} = {used}")
    node = load_system(_SITE_SYSTEMS.get(row["site"] or "", _SYSTEMS[profile.name]))
    system = replace(node, name=row["id"], gpus_per_node=row["gpus_per_node"], site=site)
    return MeasuredRun(_model(row), _plan(row), system.with_nic(row["node_nic_gbps"]), profile)


def candidate_plans(row: Cells, run: MeasuredRun) -> list[Plan]:
    """The plan of the row, or one plan for every power of two that an unstated micro-batch can be.

    Raises UserError, naming the broken rules, if no plan can train the model.
    """
    if row["micro_batch"]:
        return [run.plan.check(run.model)]
    plans = [replace(run.plan, micro_batch=size) for size in _MICRO_BATCHES]
    return [plan for plan in plans if not plan.broken_rules(run.model)] or [plans[0].check(run.model)]


def _profile(gpu: str) -> Profile:
    name = _PROFILES.get(gpu)
    if name not in list_profiles():
        raise UserError(f"no profile for GPU {shown(gpu)}")
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
        elementwise={kind: model.scaled(ratio) for kind, model in profile.elementwise.items()},
    )


def _model(row: Cells) -> ModelSpec:
    gated = bool(row["gated_mlp"])
    experts, experts_per_token, ffn_hidden = mlp_of(row)
    model = ModelSpec(
        name=row["id"],
        layers=row["layers"],
        hidden=row["hidden"],
        heads=row["heads"],
        vocab=row["vocab"],
        seq_len=row["seq_len"],
        kv_heads=row["kv_heads"] or 0,
        ffn_hidden=ffn_hidden,
        gated_mlp=gated,
        attention=row["attention"],
        norm="rmsnorm" if gated else "layernorm",
        positions="rotary" if gated else "learned",
        tied_embeddings=not gated,
        biases=not gated,
        dropout=row["attention"] == "core",
        experts=experts,
        experts_per_token=experts_per_token,
    )
    if row["site"] == _NANOTRON and not row["ffn_hidden"]:
        return replace(model, **_NANOTRON_MODELS.get(row["hidden"], {}))
    return replace(model, **_SOFTWARE.get(row["site"] or "", {}))


def _plan(row: Cells) -> Plan:
    """The plan of a row. By default nanotron sums gradients in 32 bit, splits a pipeline by arithmetic and,
    without ZeRO, overlaps gradients with the backward pass.
    """
    nanotron = row["site"] == _NANOTRON
    overlap = row["grad_overlap"]
    if overlap is None:
        overlap = nanotron and not row["zero_stage"]
    default, stated = nanotron or _FP32_GRADIENTS in (row["note"] or ""), fp32_gradients(row)
    split = "even" if row["layers"] % row["pp"] == 0 else "balanced"
    return Plan(
        tp=row["tp"],
        pp=row["pp"],
        dp=row["dp"],
        micro_batch=row["micro_batch"] or 1,
        global_batch=row["global_batch"],
        interleave=row["interleave"] or 1,
        recompute=_recompute(row),
        zero_stage=row["zero_stage"] or 0,
        zero_group=row["zero_group"],
        sequence_parallel=bool(row["sequence_parallel"]),
        grad_overlap=bool(overlap),
        split="compute" if nanotron else split,
        fp32_gradients=default if stated is None else stated,
        cp=row["cp"] or 1,
        ep=row["ep"] or 1,
    )


def _recompute(row: Cells) -> str:
    """The recomputation of a row, which for some of llm-foundry's runs is "early-stop" instead of "full".

    llm-foundry checkpoints without reentrance (`activation_checkpointing_reentrant: false` in its files),
    which stops early since PyTorch 2.1; the version is not documented. Speed shows that the newer benchmarks
    on the A100, those with precision amp_bf16, stop early: with every GEMM repeated, the layers' GEMMs and
    attention alone would take 98 to 105 % of the measured time (older runs: at most 97 %). On the H100 the
    share is 70 to 90 %, which is inconclusive. Full recomputation is assumed there, since it predicts those
    runs better, before and after calibration.
    """
    newer = row["site"] == "mosaicml" and _NEWER_MOSAICML in (row["note"] or "")
    early = newer and row["recompute"] == "full" and row["gpu"].startswith("A100")
    return "early-stop" if early else row["recompute"]
