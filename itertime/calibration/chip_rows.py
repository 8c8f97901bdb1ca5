"""Rows of tables of chips: benchmarks of accelerators, which state a model by name and a rate.

A row names a chip, a model and how many chips train it, states seconds, TFLOP/s a chip or tokens/s a chip,
and has what its source says of the plan in words. What it leaves open is assumed, and listed as such:

- a plan without degrees shards weights over all chips (FSDP), within the chips that links join; a batch of
  fewer sequences than chips splits these. Stated degrees are those of Megatron, with a sharded optimizer;
- a batch that neither the row nor its rates state is two micro-batches a stage, or 8,192 tokens a chip;
- what is recomputed is the fastest that fits in memory.
"""

from __future__ import annotations

import re
from dataclasses import replace

from itertime.errors import UserError
from itertime.io import shown
from itertime.spec import ModelSpec, System, load_model, load_system, profile_of

from .conventions import CONVENTIONS, accelerator_of, published_names, scaled_model, unknown_layers
from .named_rows import Cells, cells_of

RATES = ("iteration_s", "tokens_per_s", "tflops")
_DEGREES = ("tp", "pp", "cp", "dp")
_TOKENS = 8192
"""Of a chip, where neither the row nor its rates state a batch."""
_WAVES = 2
"""Micro-batches a stage, likewise."""
_FAR, _NEAR = 0.2, 0.03
"""Differences between the work of a token that two rates state and that of the named model: from the first
on the run had another number of layers, which agrees within the second.
"""
_SCHEDULES = {
    "zbb": ("zb-h1", None),
    "zero-bubble": ("zb-h1", None),
    "zbv": ("zb-v", 2),
    "v-half": ("1f1b", 2),
    "v-min": ("1f1b", None),
}
"""Words of a plan for schedules that let gradients of weights wait: the schedule that is nearest here, and
its chunks a stage. V-Half and V-Min (Qi et al. 2024) hold less than `zb-v`, and leave bubbles.
"""


def chip_cells(row: Cells, row_cells: Cells) -> Cells:
    """The cells of an iteration table that a row of a table of chips fills; `row_cells` has them all, empty.

    A row that cannot be expressed has the reason in "unknown", as `complete` leaves it.
    """
    cells = row_cells | {key: row[key] for key in ("line", "source", "precision", "iteration_s")}
    cells |= {
        "id": row["id"] or f"{row['chip']}, {row['model']} on {row['chips']} chips, line {row['line']}",
        "site": row["source"],
        "gpu": row["chip"],
        "spec": None,
        "node": None,
        "unknown": "",
    }
    try:
        if not any(row[rate] for rate in RATES):
            raise UserError(f"the source does not say {' or '.join(RATES)}")
        for column in ("chip", "model", "chips"):
            if not row[column]:
                raise UserError(f"the source does not say {column}")
        cells |= _run_cells(row)
    except UserError as error:
        cells["unknown"] = str(error)
        cells["iteration_s"] = cells["iteration_s"] or 1.0
    return cells


def _run_cells(row: Cells) -> Cells:
    """The cells that say what ran. Raises UserError, with the reason, for a run that cannot be expressed."""
    chip = accelerator_of(row["chip"])
    node = load_system(chip.system)
    devices = row["chips"] * chip.devices
    assumed: list[str] = []
    model = _model_of(row["model"]).with_seq_len(row["seq_len"])
    if model.attention == "core":
        model = replace(model, attention="flash", dropout=False)
    plan = {
        name: int(count) for name, count in re.findall(r"\b(tp|pp|dp|cp|ep|mb|vpp)(\d+)\b", row["plan"] or "")
    }
    if 0 in plan.values():
        raise UserError(f"plan={shown(row['plan'])}: degrees, chunks and micro-batches are at least 1")
    model = _with_layers(row, model, plan.get("pp", 1), assumed)
    degrees = _degrees(row, model, node, devices, plan, assumed)
    seconds = row["iteration_s"] or _seconds(row, model, degrees["global_batch"])
    return {
        **cells_of(model),
        **degrees,
        "spec": model,
        "node": node,
        "gpus": devices,
        "gpus_per_node": node.gpus_per_node,
        "node_nic_gbps": node.nic_bytes_per_s * 8 / 1e9,
        "gpu": profile_of(node).gpu,
        "recompute": "none",
        "missing": None if model.lora_rank else "recompute",
        "grad_overlap": True,
        "iteration_s": seconds,
        "assumptions": tuple(assumed),
    }


def _model_of(name: str) -> ModelSpec:
    """The model that a table names, whatever its software adds to the name. UserError for an unknown one."""
    plain = re.sub(r"(?i)[-_ ](maxtext|pretrain|sft)$", "", name)
    scaled = scaled_model(plain)
    if scaled is not None:
        return scaled
    plain = CONVENTIONS.benchmark_names.get(plain.lower(), plain)
    names = () if unknown_layers(plain) else published_names(plain)
    shipped = [shipped for shipped in names if len(names) == 1 or len(shipped) <= len(plain)]
    if not shipped:
        raise UserError(f"model={shown(name)}: is no shipped model; see `itertime models`")
    return load_model(shipped[0])


def _with_layers(row: Cells, model: ModelSpec, stages: int, assumed: list[str]) -> ModelSpec:
    """The model with as many layers as TFLOP/s and tokens/s say together, if these are not its own:
    benchmarks of pipelines train a few layers of a known model.
    """
    if not row["tflops"] or not row["tokens_per_s"] or model.lora_rank or model.experts > 1:
        return model
    token_flops = row["tflops"] * 1e12 / row["tokens_per_s"]

    def error(layers: int) -> float:
        counts = _token_counts(replace(model, layers=layers))
        return min(abs(count / token_flops - 1) for count in counts)

    if error(model.layers) < _FAR:
        return model
    layers = min(range(stages, model.layers, stages), key=error, default=model.layers)
    if error(layers) > _NEAR:
        return model
    assumed.append(f"layers={layers}: TFLOP/s and tokens/s say so together, of {model.layers}")
    return replace(model, layers=layers)


def _token_counts(model: ModelSpec) -> tuple[float, float]:
    """FLOPs of a token, forward and backward, with masked scores and without."""
    passed = model.forward_flops()
    work = 3 * (passed.layers + passed.head)
    return work + 3 * passed.scores, work + 3 * (passed.scores + passed.masked)


def _degrees(
    row: Cells, model: ModelSpec, node: System, devices: int, plan: dict[str, int], assumed: list[str]
) -> Cells:
    """The cells of the plan: as its words say, or FSDP. UserError for degrees with another product."""
    has_degrees = any(name in plan for name in _DEGREES)
    tp, pp, cp = (plan.get(name, 1) for name in ("tp", "pp", "cp"))
    dp, remainder = divmod(devices, tp * pp * cp)
    if remainder or plan.get("dp", dp) != dp:
        raise UserError(
            f"plan={shown(row['plan'])}: {devices} chips or cores are not the product of its degrees"
        )
    batch = _batch(row, model, dp, pp, assumed)
    if not has_degrees and batch < dp:
        cp, dp = dp // batch, batch
    schedule, chunks = "1f1b", plan.get("vpp")
    word = next((word for word in _SCHEDULES if word in (row["plan"] or "")), None)
    if word is not None:
        schedule, chunks = _SCHEDULES[word]
        if schedule == "zb-v" and model.layers % (2 * pp):
            schedule, chunks = "zb-h1", None
        assumed.append(f"plan: schedule {word} is taken as {schedule} with {chunks or 1} chunks a stage")
    if not has_degrees:
        assumed.append("plan: states no degrees; taken as FSDP over all chips")
    return {
        "tp": tp,
        "pp": pp,
        "cp": cp,
        "dp": dp,
        "ep": plan.get("ep"),
        "interleave": chunks,
        "schedule": schedule,
        "global_batch": batch,
        "micro_batch": plan.get("mb") or (1 if has_degrees else max(batch // dp, 1)),
        "zero_stage": 1 if has_degrees else 3,
        "zero_group": node.domain_gpus if not has_degrees and devices > node.domain_gpus else None,
        "sequence_parallel": tp > 1,
    }


def _batch(row: Cells, model: ModelSpec, dp: int, pp: int, assumed: list[str]) -> int:
    """Sequences of an iteration: as stated, as seconds and tokens/s say together, or assumed."""
    if row["global_batch"]:
        return int(row["global_batch"])
    if row["iteration_s"] and row["tokens_per_s"]:
        batch = row["iteration_s"] * row["tokens_per_s"] * row["chips"] / model.seq_len
        step = dp if batch >= dp else 1  # rates are rounded, and replicas get equal shares
        return max(round(batch / step), 1) * step
    if pp > 1:
        assumed.append(f"global_batch: {_WAVES} micro-batches a stage")
        return dp * _WAVES * pp
    assumed.append(f"global_batch: {_TOKENS:,} tokens a chip")
    return dp * max(_TOKENS // model.seq_len, 1)


def _seconds(row: Cells, model: ModelSpec, batch: int) -> float:
    """Seconds of an iteration by the rates of a chip. Of FLOPs all scores count, masked ones too."""
    if row["tokens_per_s"]:
        return float(batch * model.seq_len / (row["tokens_per_s"] * row["chips"]))
    return float(model.flops_per_iteration(batch) / (row["tflops"] * 1e12 * row["chips"]))
