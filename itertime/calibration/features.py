"""Columns that change the work of a run, as fields of its plan and the name of its framework.

Older tables, like those of `../shared/data/iterations`, lack most of these columns: their runs are dense
models in 16 bit without context parallelism. A cell that says otherwise is used, or its row cannot be
expressed, with the reason. No column that changes the work is ignored. What a row leaves open, or what a plan
can state only roughly, is assumed and listed in `Features.assumed`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from itertime.errors import UserError
from itertime.io import names_file
from itertime.spec import DISPATCHERS, IN_32_BIT, PlanOptions, list_frameworks, load_framework

from .conventions import conventions_of, graphs_of, precision_of, software_of, trained_by_megatron_deepspeed
from .table import Cells

Recomputation = tuple[str, float]
"""`recompute` and `recompute_fraction` of a plan."""

_GRADIENTS = {
    "fp32": True,
    "float32": True,
    **dict.fromkeys(("bf16", "fp16", "bfloat16", "float16"), False),
}
"""Types of summed gradients, and whether they have 32 bit."""
_WITHOUT_EXPERTS = {"experts_per_token": 1, "moe_ffn_hidden": None, "shared_ffn_hidden": None}
"""Columns that only a mixture has, and their values in a dense model."""
_CHEAP = frozenset({"layernorm", "moe_act", "mlp_act"})
"""Modules that Megatron Core repeats (`recompute_modules`) without a matrix product."""
_WHOLE = frozenset({"core_attn", "mlp", "moe", "shared_experts"})
"""Modules that it repeats with their matrix products."""
_ROUGH = {
    "mla_up_proj": "recompute_modules: the repeated up-projections (MLA) are not charged",
    "mlp": "recompute_modules: the repeated MLPs of the few dense layers are not charged",
}
_IN_8_BIT = ("attention_precision", "activation_inputs")
_NEUTRAL = "megatron"
_MICRO_BATCHES = tuple(2**i for i in range(8))
_SHARES = (1.0, 3 / 4, 2 / 3, 1 / 2, 1 / 3, 1 / 4, 0.0)
"""Shares of checkpointed blocks to choose from where the source states none."""


@dataclass(frozen=True)
class Features:
    """`plan`: fields of `Plan`. `framework`: its name. `assumed`: what the row does not say, or what the plan
    states only roughly, one sentence each. `repeated`: modules that are computed again with their matrices,
    which no value of `recompute` names; the plan depends on the model's share of work in them.
    """

    plan: dict[str, Any]
    framework: str
    assumed: tuple[str, ...]
    repeated: frozenset[str] = frozenset()


def features_of(row: Cells) -> Features:
    """The features of a row. Raises UserError, naming column and value, for one that no run can have."""
    if _is_low_rank(row) and not row["lora_rank"]:
        raise UserError("low-rank matrices (LoRA) beside frozen weights: add the column lora_rank")
    for column, reason in _contradictions(row):
        raise UserError(f"{column}={row[column]}: {reason}")
    assumed = [f"the source does not say {row['missing']}"] if row["missing"] else []
    assumed += row.get("assumptions", ())
    if row["lora_rank"] and row["lora_targets"] is None:
        assumed.append("lora_rank: low-rank matrices beside queries, keys, values and projection only")
    recompute, fraction, repeated = _recomputation(row, assumed)
    plan: dict[str, Any] = {
        "precision": precision_of(row["precision"]),
        "cp": row["cp"] or 1,
        "cp_exchange": _cp_exchange(row, assumed),
        "tp_overlap": row["tp_comm_overlap"],
        "cuda_graphs": graphs_of(row["cuda_graphs"], assumed),
        "recompute": recompute,
        "recompute_fraction": fraction,
        "offload_layers": row["cpu_offload_layers"] or 0,
        "zero_stage": _zero_stage(row, assumed),
        "options": _options(row, assumed),
    }
    if is_mixture(row):
        plan |= {
            "ep": row["ep"] or 1,
            "etp": row["etp"],
            "dispatcher": _dispatcher(row, assumed),
            "ep_overlap": bool(row["moe_a2a_overlap"]),
        }
    elif (row["ep"] or 1) > 1:
        raise UserError(f"ep={row['ep']}: the row states no experts; add the column experts")
    if row["grad_dtype"] is not None:
        plan["fp32_gradients"] = _GRADIENTS[row["grad_dtype"].lower()]
    elif _shards_with_fsdp2(row):  # the default of torchtitan (`mixed_precision_reduce`) and of AutoModel
        plan["fp32_gradients"] = True
    return Features(plan, _framework(row, assumed), tuple(assumed), repeated)


def _options(row: Cells, assumed: list[str]) -> PlanOptions:
    """What a plan below 16 bit has in 8 bit beside its matrix products: as stated, else as NVIDIA's
    submissions to MLPerf, and attention also where the source says that it may be.
    """
    stated = {name: row[name] for name in _IN_8_BIT if row[name] is not None}
    if precision_of(row["precision"]) in ("bf16", *IN_32_BIT):
        return PlanOptions(**stated)
    tuned = "mlperf" in (row["framework"] or "").lower()
    maybe = re.search(r"(?i)attention.*fp8", row["missing"] or "") is not None
    if _is_blackwell(row) and (tuned or maybe) and "attention_precision" not in stated:
        stated["attention_precision"] = "fp8"
        assumed.append(
            "attention_precision: taken as fp8, as in NVIDIA's submissions on Blackwell (FP8_DPA=1)"
        )
    if tuned and row["lora_rank"] and "activation_inputs" not in stated:
        stated["activation_inputs"] = "fp8"
        assumed.append("activation_inputs: taken as fp8, as in NVIDIA's submissions (FP8_ACTIVATION=True)")
    return PlanOptions(**stated)


def _is_blackwell(row: Cells) -> bool:
    return row["gpu"].upper().startswith(("B200", "B300", "GB"))


def _cp_exchange(row: Cells, assumed: list[str]) -> str:
    """How keys and values are exchanged: by the framework's default, and that of NVIDIA's submissions to
    MLPerf (mlcommons/training_results_v5.1, `megatron_gpt_peft_tuning_config.yaml`: `cp_comm_type`).
    """
    if _shards_with_fsdp2(row):
        return "gather"
    if (row["cp"] or 1) == 1 or not row["lora_rank"] or "mlperf" not in (row["framework"] or "").lower():
        return "ring"
    assumed.append("cp_exchange: taken as ulysses, as in NVIDIA's submissions (cp_comm_type a2a)")
    return "ulysses"


def is_mixture(row: Cells) -> bool:
    return (row["experts"] or 1) > 1


def _is_low_rank(row: Cells) -> bool:
    """Whether the run trains low-rank matrices (LoRA) beside frozen weights, by column, model or note."""
    text = f"{row['model'] or ''} {row['note'] or ''}"
    return bool(row["lora_rank"]) or re.search(r"(?i)\b(q?lora|peft)\b", text) is not None


def micro_batches(row: Cells) -> tuple[int, ...]:
    """What the micro-batch may have been: as stated, or else any power of two. torchtitan splits a batch into
    as many micro-batches as the pipeline has stages (`pipeline_parallel_microbatches`).
    """
    if row["micro_batch"]:
        return (int(row["micro_batch"]),)
    if _is_torchtitan(row) and row["pp"] > 1:
        return (max(row["global_batch"] // (row["dp"] * row["pp"]), 1),)
    return _MICRO_BATCHES


def recompute_alternatives(row: Cells) -> tuple[Recomputation, ...]:
    """What the run may have recomputed if the source does not say, the least memory first; else nothing.

    AutoModel's mixtures are left as their rows have it: they are predicted not to fit whatever they repeat,
    so memory cannot tell.
    """
    missing = row["missing"] or ""
    if "share of checkpointed blocks" in missing and row["recompute_fraction"] is None:
        return tuple(("full", share) for share in _SHARES)
    unstated = "recompute" in missing or "recompute not stated" in (row["note"] or "")
    if unstated and row["recompute"] == "none" and not (is_mixture(row) and _shards_with_fsdp2(row)):
        elementwise = () if _shards_with_fsdp2(row) else (("elementwise", 1.0),)
        return ("full", 1.0), *elementwise, ("none", 1.0)
    return ()


def _contradictions(row: Cells) -> Iterator[tuple[str, str]]:
    if (row["grad_dtype"] or "bf16").lower() not in _GRADIENTS:
        yield "grad_dtype", "must be fp32, bf16 or fp16"
    if not is_mixture(row):
        for column, dense in _WITHOUT_EXPERTS.items():
            if row[column] not in (None, dense):
                yield column, "is of a mixture, and the row states no experts; add the column experts"


def _dispatcher(row: Cells, assumed: list[str]) -> str:
    dispatcher = row["moe_dispatcher"]
    name = re.sub(r"[^a-z]", "", (dispatcher or "none").lower())
    if name == "none" and "automodel" in (row["framework"] or "").lower():
        assumed.append("moe_dispatcher: taken as deepep, which AutoModel's recipes of mixtures use")
        return "deepep"
    if name == "none":
        return DISPATCHERS[0]
    if name == "flex":  # Megatron Core's name for DeepEP or HybridEP
        assumed.append("moe_dispatcher=flex: taken as deepep")
        return "deepep"
    if name.removeprefix("flex") not in DISPATCHERS:
        raise UserError(f"moe_dispatcher={dispatcher}: must be {', '.join(DISPATCHERS)}")
    return name.removeprefix("flex")


def _recomputation(row: Cells, assumed: list[str]) -> tuple[str, float, frozenset[str]]:
    """`recompute`, `recompute_fraction`, and the modules that these do not cover. A stated share of the
    forward pass says more than the names of modules: it is that share of layers.
    """
    recompute, share = row["recompute"], row["recompute_fraction"]
    modules = frozenset(re.split(r"[;,+ ]+", (row["recompute_modules"] or "").lower())) - {"", "none"}
    if unknown := modules - _CHEAP - _WHOLE - set(_ROUGH):
        raise UserError(
            f"recompute_modules={row['recompute_modules']}: {min(unknown)} is not known; "
            f"known are {', '.join(sorted(_CHEAP | _WHOLE | set(_ROUGH)))}"
        )
    if share is not None and (recompute == "none") != (share == 0) and recompute != "selective":
        raise UserError(f"recompute_fraction={share}: contradicts recompute={recompute}")
    if recompute == "selective" and share is not None:
        return *(("full", share) if share else ("none", 1.0)), frozenset()
    if recompute == "selective" and modules:
        recompute, repeated = _of_modules(row, modules, assumed)
        return recompute, 1.0, repeated
    return recompute, share or 1.0, frozenset()


def _of_modules(row: Cells, names: frozenset[str], assumed: list[str]) -> tuple[str, frozenset[str]]:
    rough = names & set(_ROUGH)
    if names - _CHEAP - {"core_attn"} - (rough if is_mixture(row) else set()):
        assumed.append(
            f"recompute_modules={row['recompute_modules']}: taken as the share of layers that holds as many "
            "operations"
        )
        return "full", names - _CHEAP
    assumed.extend(_ROUGH[name] for name in sorted(rough))
    if "core_attn" not in names:
        return "elementwise", frozenset()
    if names & _CHEAP:
        assumed.append("recompute_modules: norms and activations repeated beside attention are not charged")
    return "selective", frozenset()


def _is_torchtitan(row: Cells) -> bool:
    return "torchtitan" in (row["framework"] or "").lower()


def _shards_with_fsdp2(row: Cells) -> bool:
    """torchtitan and AutoModel: PyTorch's fully_shard and context_parallel, which gathers keys and values."""
    text = (row["framework"] or "").lower()
    return any(name in text for name in ("fsdp2", "torchtitan", "automodel"))


def _zero_stage(row: Cells, assumed: list[str]) -> int:
    """With a pipeline, fully_shard keeps the weights of a stage after their first use in an iteration, and
    reduces gradients once (`reshard_after_forward` of torchtitan): the traffic of ZeRO-1. Other software that
    shards gradients or weights of a pipeline's stages is taken to do the same.
    """
    stage = row["zero_stage"] or 0
    if stage >= 2 and row["pp"] > 1:
        traffic = "weights are gathered" if stage == 3 else "gradients are reduced"
        assumed.append(f"zero_stage={stage} with a pipeline: {traffic} once an iteration, as in ZeRO-1")
        return 1
    return int(stage)


def _framework(row: Cells, assumed: list[str]) -> str:
    """The framework that the row, its site, or the text on its source names. torchtitan compiles only if its
    note says so. UserError for a file that is no framework.
    """
    framework = row["framework"]
    if framework is None:
        name = conventions_of(row).framework or _by_source(row)
        return name if name in list_frameworks() else _NEUTRAL
    if framework in list_frameworks() or names_file(framework):
        load_framework(framework)
        return str(framework)
    text, note = framework.lower(), (row["note"] or "").lower()
    if _is_torchtitan(row):
        if "torch.compile" in note or precision_of(row["precision"]) != "bf16":
            return "compile"
        if "eager" not in note:
            assumed.append("framework: whether torchtitan compiled the model")
        return "eager"
    software = software_of(f"{text} {row['release'] or ''}".lower())
    if software == "te-ops" and not _is_blackwell(row):  # whose settings in the same round lack the fuser
        return "te"
    if software is None:
        assumed.append(f"framework={framework}: taken as eager PyTorch")
        return "eager"
    if software == "megatron-core" and row["gpu"].startswith("A100"):
        return _NEUTRAL
    return software if software in list_frameworks() else _NEUTRAL


def _by_source(row: Cells) -> str | None:
    """The framework that site, source and note name. On the A100 only Megatron-DeepSpeed's own pipeline
    engine differs from the neutral framework by evidence (docs/accuracy.md).
    """
    text = " ".join((row["site"] or "", row["source"] or "", row["note"] or ""))
    if trained_by_megatron_deepspeed(text, row):
        return "megatron-deepspeed"
    return None if row["gpu"].upper().startswith("A100") else software_of(text)
