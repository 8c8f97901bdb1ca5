"""One row of an iteration table as a run: its model, plan, system, profile and framework.

Empty cells mean multi-head attention, an MLP of 4 h, one chunk, micro-batch 1, no ZeRO, no sequence
parallelism, no overlap, a dense model and no context parallelism. What has no column is inferred: a gated MLP
implies RMS norm, rotary positions, a separate output layer and no biases (LLaMA); unfused attention implies
dropout (GPT-3); layers that pp does not divide imply a balanced split. A row that names a published model,
and has its shape, gets from that model's file what no column states: windows of attention, compressed keys
and values, dense layers of a mixture, kind of norms, biases.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

from itertime.errors import UserError
from itertime.spec import (
    ModelSpec,
    Plan,
    Profile,
    Site,
    System,
    check_predictable,
    list_models,
    load_model,
    load_system,
    profile_of,
)

from .conventions import CONVENTIONS, conventions_of, nodes_of, published_names, unknown_layers
from .features import Features, features_of, is_mixture, micro_batches, recompute_alternatives
from .table import Cells

_FP32_GRADIENTS = "fp32 gradient accumulation"
_SPLITS = ("balanced", "ends", "remainder")  # to choose from where the usual one cannot divide the layers
_STATED = (
    *("gpu", "gpus", "gpus_per_node", "node_nic_gbps", "layers", "hidden", "heads", "vocab", "seq_len"),
    *("attention", "tp", "pp", "dp", "global_batch", "recompute", "iteration_s"),
)


@dataclass(frozen=True)
class MeasuredRun:
    """A measured run: the arguments that predict it, its framework in the system.

    `assumed`: what the row does not say, or what these arguments state only roughly, one sentence each.
    `allocated`: whether the row's memory is that of tensors alone. `evaluation`: seconds of evaluating the
    model that the measured time holds, over those of an iteration.
    """

    model: ModelSpec
    plan: Plan
    system: System
    profile: Profile
    assumed: tuple[str, ...] = ()
    allocated: bool = False
    evaluation: float = 0.0


def measured_run(row: Cells, site: Site | None) -> MeasuredRun:
    """The run of a row, at a site; None: that of the system that it names, or a neutral one.

    Raises UserError, with the reason, if the run cannot be expressed.
    """
    if row["unknown"]:
        raise UserError(row["unknown"])
    for column in _STATED:
        if row[column] is None:
            raise UserError(f"the source does not say {column}")
    node = row["node"] or _node(conventions_of(row).system or nodes_of(row["gpu"]))
    features = features_of(row)
    degrees = ("tp", "pp", "cp", "dp") if row["cp"] else ("tp", "pp", "dp")
    ranks = math.prod(row[name] for name in degrees)
    if row["gpus"] != ranks:
        raise UserError(f"gpus={row['gpus']} is not {' x '.join(degrees)} = {ranks}")
    system = _system(row, node, features.framework, node.site if site is None else site)
    assumed = list(features.assumed)
    model = _model(row, assumed)
    run = MeasuredRun(
        model=model,
        plan=_fitting(_plan(row, features, model), model, assumed),
        system=system,
        profile=profile_of(system),
        assumed=tuple(assumed),
        allocated=conventions_of(row).allocated,
    )
    check_predictable(run.model)
    check_precision(run.plan.precision, run.profile)
    return run


def candidate_plans(row: Cells, run: MeasuredRun) -> list[Plan]:
    """The plan of the row; if the source leaves open the micro-batch or what is recomputed, all that it can
    be: `micro_batches`, and `recompute_alternatives`. The plan that needs the least memory comes first.

    Raises UserError, naming the broken rules, if no plan can train the model.
    """
    plans = [replace(run.plan, micro_batch=size) for size in micro_batches(row)]
    choices = recompute_alternatives(row)
    if choices:
        plans = [
            replace(plan, recompute=recompute, recompute_fraction=share)
            for plan in plans
            for recompute, share in choices
        ]
    return [plan for plan in plans if not plan.broken_rules(run.model)] or [plans[0].check(run.model)]


_node = functools.cache(load_system)


def check_precision(precision: str, profile: Profile) -> None:
    """Raises UserError if a profile has no matrix products or casts in a precision."""
    precisions = profile.trained_precisions
    if precision not in precisions:
        raise UserError(f"precision={precision}: the profile {profile.name} has {', '.join(precisions)} only")


def _system(row: Cells, node: System, framework: str, site: Site) -> System:
    """The system of a row: nodes and NICs as named or stated, GPUs limited to the stated power."""
    if row["node"] is not None:
        software = node.framework if row["framework"] is None else framework
        power_w = row["power_w"] or node.power_w
        return replace(node, name=row["id"], framework=software, site=site, power_w=power_w)
    usual_power_w = CONVENTIONS.usual_power_w.get(row["gpu"].partition("-SXM")[0])
    memory = conventions_of(row).memory or row["gpu"].rpartition("-")[2]
    system = replace(
        node,
        name=row["id"],
        gpus_per_node=row["gpus_per_node"],
        framework=framework,
        site=site,
        power_w=node.power_w if row["power_w"] in (None, usual_power_w) else row["power_w"],
        **CONVENTIONS.memories.get(memory, {}),
    )
    return system.with_nic(row["node_nic_gbps"])


def _model(row: Cells, assumed: list[str]) -> ModelSpec:
    """The model of a row: the published one that it names, cut or extended as the row says; or else the shape
    in its columns. Raises UserError for one that neither describes.
    """
    if row["spec"] is not None:
        targets = row["lora_targets"] or row["spec"].lora_targets
        return replace(row["spec"], name=row["id"], lora_rank=row["lora_rank"] or 0, lora_targets=targets)
    name, site = row["model"] or "", conventions_of(row)
    if unknown_layers(name):
        raise UserError(
            f"model={name}: has layers of state spaces or linear attention, which no column states; "
            "such runs cannot be predicted"
        )
    published = _published(row, assumed)
    if published is not None:
        model = replace(
            published,
            name=row["id"],
            layers=row["layers"],
            vocab=row["vocab"],
            lora_rank=row["lora_rank"] or published.lora_rank,
            lora_targets=row["lora_targets"] or published.lora_targets,
            seq_len=row["seq_len"],
            attention=row["attention"],
            dropout=row["attention"] == "core",
        )
        return replace(model, **site.model)
    shape = {} if row["ffn_hidden"] else site.shapes.get(row["hidden"], {})
    return replace(_shape(row), **site.model, **shape)


def _published(row: Cells, assumed: list[str]) -> ModelSpec | None:
    """The shipped model that a row names, if the row has its shape; of a row whose columns do not describe
    the layers (`_needs_a_name`), also one of its shape and number of layers. None if there is none. Raises
    UserError for a mixture that contradicts the model whose name it bears.
    """
    names = published_names(row["model"] or "")
    for shipped_name in names:
        if _difference(row, load_model(shipped_name)) is None:
            return load_model(shipped_name)
    if len(names) == 1 and is_mixture(row):
        raise UserError(f"model={row['model']}: {_difference(row, load_model(names[0]))}")
    if not names and _needs_a_name(row):
        for shipped_name in list_models():
            model = load_model(shipped_name)
            special = bool(model.latent_kv or model.dense_layers) and model.layers == row["layers"]
            if special and _difference(row, model) is None:
                assumed.append(f"model: taken as {shipped_name}, whose shape it has")
                return model
    return None


def _needs_a_name(row: Cells) -> bool:
    """Whether no column describes all layers: compressed keys and values, or dense layers of a mixture."""
    width = row["head_dim"] or row["hidden"] // row["heads"]
    dense = is_mixture(row) and row["ffn_hidden"] not in (None, row["moe_ffn_hidden"])
    return row["head_dim_v"] not in (None, width) or dense


def _difference(row: Cells, model: ModelSpec) -> str | None:
    """The first column that contradicts a published model, in words; None if the row has its shape."""
    mixture = is_mixture(row)
    shape = {
        "hidden": model.hidden,
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "gated_mlp": model.gated_mlp,
        "experts": model.experts,
        "experts_per_token": model.experts_per_token,
        "head_dim": model.head_width + model.rope_head_dim,
        "head_dim_v": model.value_head_dim or model.head_width,
        "shared_ffn_hidden": model.shared_ffn_hidden,
        "moe_ffn_hidden" if mixture else "ffn_hidden": model.ffn_hidden,
    }
    if model.dense_layers:
        shape["ffn_hidden"] = model.dense_ffn_hidden
    for column, published in shape.items():
        if row[column] not in (None, published):
            return f"{column}={row[column]}, but the published model has {published}"
    if model.layers != row["layers"] and model.dense_layers:
        return f"layers={row['layers']}, but the published model has {model.layers}, some of them dense"
    return None


def _shape(row: Cells) -> ModelSpec:
    """The model that the columns alone describe. Raises UserError if they leave its layers open."""
    gated = bool(row["gated_mlp"])
    width = row["head_dim"] or 0
    latent = _latent_widths(row)
    if not latent and row["head_dim_v"] not in (None, width or row["hidden"] // row["heads"]):
        raise UserError(
            f"head_dim_v={row['head_dim_v']}: the widths of compressed keys and values are not stated; "
            "add the columns latent_kv and rope_head_dim, or name a published model in the column model"
        )
    width -= latent.get("rope_head_dim", 0)
    experts, experts_per_token, ffn_hidden = _mlp(row)
    dense = row["dense_layers"] or 0
    return ModelSpec(
        name=row["id"],
        layers=row["layers"],
        hidden=row["hidden"],
        heads=row["heads"],
        vocab=row["vocab"],
        lora_rank=row["lora_rank"] or 0,
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
        shared_ffn_hidden=row["shared_ffn_hidden"] or 0,
        head_dim=0 if width * row["heads"] == row["hidden"] else width,
        lora_targets=row["lora_targets"] or "attention",
        dense_layers=dense,
        dense_ffn_hidden=row["ffn_hidden"] or 0 if dense else 0,
        **latent,
    )


def _latent_widths(row: Cells) -> dict[str, Any]:
    """Fields of a model that compresses keys and values (MLA); {} for another. Raises UserError for a row
    that leaves them open: `head_dim` counts what rotary positions add.
    """
    if not row["latent_kv"]:
        return {}
    for column in ("rope_head_dim", "head_dim"):
        if row[column] is None:
            raise UserError(f"the source does not say {column}, which latent_kv needs")
    return {
        "latent_q": row["latent_q"] or 0,
        "latent_kv": row["latent_kv"],
        "rope_head_dim": row["rope_head_dim"],
        "value_head_dim": row["head_dim_v"] or 0,
    }


def _mlp(row: Cells) -> tuple[int, int, int]:
    """Experts, experts per token and width of the MLP or of one expert; width 0 if the row does not say.

    Raises UserError for a mixture whose columns leave its layers open.
    """
    width = row["ffn_hidden"] or 0
    if not is_mixture(row):
        return 1, 1, width
    for column in ("experts_per_token", "moe_ffn_hidden"):
        if row[column] is None:
            raise UserError(f"the source does not say {column}")
    if width not in (0, row["moe_ffn_hidden"]) and row["dense_layers"] is None:
        widths = f"ffn_hidden={width} beside moe_ffn_hidden={row['moe_ffn_hidden']}"
        raise UserError(
            f"{widths}: some layers may be dense, and the source does not say which; "
            "add the column dense_layers, or name a published model in the column model"
        )
    return row["experts"], row["experts_per_token"], row["moe_ffn_hidden"]


def _plan(row: Cells, features: Features, model: ModelSpec) -> Plan:
    site = conventions_of(row)
    overlap = row["grad_overlap"]
    if overlap is None:
        overlap = site.overlaps_without_zero and not row["zero_stage"]
    fields = {
        "split": _split(row),
        "fp32_gradients": _FP32_GRADIENTS in (row["note"] or ""),
        **site.plan,
        **features.plan,
    }
    if site.early_stop and site.early_stop in (row["note"] or "") and row["recompute"] == "full":
        fields["recompute"] = "early-stop"
    if features.repeated:
        fields["recompute_fraction"] = _share_of_work(model, features.repeated)
    together = row["sequence_parallel"]
    if together is None:  # Megatron Core has no other form of experts beside tp
        together = is_mixture(row) and row["tp"] > 1
    return Plan(
        tp=row["tp"],
        pp=row["pp"],
        dp=row["dp"],
        micro_batch=micro_batches(row)[0],
        global_batch=row["global_batch"],
        interleave=row["interleave"] or 1,
        schedule=row["schedule"] or "1f1b",
        zero_group=row["zero_group"],
        sequence_parallel=bool(together),
        grad_overlap=bool(overlap),
        **fields,
    )


def _share_of_work(model: ModelSpec, modules: frozenset[str]) -> float:
    """The share of a forward pass's operations in the layers that is in `modules`. Causal attention counts
    half of all scores.
    """
    mixture = model.experts > 1
    dense = model.dense_form() if model.dense_layers else model
    mlp = dense.mlp_matmul_parameters if model.dense_layers or not mixture else 0
    shared = (3 if model.gated_mlp else 2) * model.hidden * model.shared_ffn_hidden
    experts = model.experts_per_token * model.mlp_matmul_parameters if mixture else 0
    reached = model.heads * (model.head_width + model.rope_head_dim)
    module_work = {
        "core_attn": model.seq_len * (model.query_width + model.v_hidden) / 2,
        "mla_up_proj": model.latent_q * reached + model.latent_kv * (model.q_hidden + model.v_hidden),
    }
    with_experts = {"moe": experts + shared, "shared_experts": 0 if "moe" in modules else shared}
    common = module_work["core_attn"] + model.attention_matmul_parameters
    mixture_share = (model.layers - model.dense_layers) / model.layers if mixture else 0.0
    total = common + mixture_share * (experts + shared) + (1 - mixture_share) * mlp
    repeated = sum(module_work.get(name, 0) + mixture_share * with_experts.get(name, 0) for name in modules)
    repeated += (1 - mixture_share) * mlp if "mlp" in modules else 0
    return min(repeated / total, 1.0)


def _fitting(plan: Plan, model: ModelSpec, assumed: list[str]) -> Plan:
    """The plan, or if its split cannot divide the layers, one with the first split that can."""
    if not plan.broken_rules(model):
        return plan
    for split in _SPLITS:
        candidate = replace(plan, split=split)
        if plan.pp > 1 and not candidate.broken_rules(model):
            assumed.append(f"layers={model.layers}: taken as divided among {plan.pp} stages by split={split}")
            return candidate
    return plan


def _split(row: Cells) -> str:
    """How a pipeline divides its layers. Megatron Core may count embedding and projection as a layer each;
    of other chunks that cannot be equal, the last one holds fewer.
    """
    chunks = row["pp"] * (row["interleave"] or 1)
    if row["layers"] % chunks and chunks > row["pp"]:
        return "remainder" if (row["layers"] + 2) % chunks else "ends"
    return "even" if row["layers"] % row["pp"] == 0 else "balanced"
