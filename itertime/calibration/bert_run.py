"""One row of a BERT table as a run: MLPerf's BERT-Large under data parallelism alone.

The columns say what was measured. What they leave open follows from the submitters' code, whose files
`../shared/data/mlperf/README.md` names. There are two codes:

| | NVIDIA's | Samsung's |
|---|---|---|
| rows | all with LAMB | those with Adam |
| optimizer | distributed LAMB: each node shards it | FusedAdam, whole on every rank |
| gradients | reduced at once after the backward pass; on H100 from 512 GPUs on in 5 blocks beside it | in \
buckets of 25 MB beside it |
| clipping | by the norm of the reduced gradients | bucket by bucket before the all-reduce |
| switches | sum gradients (SHARP) on NVIDIA's own clusters from 1,024 A100, or 512 H100, on | do not |

A row is skipped, with the reason, if its batching is unknown or if it repeats another row's measurement.
"""

from __future__ import annotations

import re
from dataclasses import replace

from itertime.errors import UserError
from itertime.io import GPU_W, shown
from itertime.spec import (
    ModelSpec,
    Plan,
    PlanOptions,
    Site,
    System,
    load_model,
    load_system,
    mlperf_evaluations,
    parse_options,
    profile_of,
)

from .conventions import CONVENTIONS, system_of
from .measured_run import MeasuredRun, check_precision
from .table import Cells

_STATED = (
    *("gpu", "gpus", "gpus_per_node", "layers", "hidden", "heads", "vocab", "samples_per_gpu_step"),
    *("grad_accumulation", "global_batch", "precision", "optimizer", "iteration_s"),
)
_BALANCES = {
    ("sorted",): "sorted",
    ("stratified", "exchanged"): "stratified-exchanged",
    ("stratified",): "stratified",
    ("exchanged",): "exchanged",
    (): "drawn",
}
_EITHER = "fp16 or fp8"
_LONGEST_NETWORK = 500  # characters of the column network that are read
_BERT = CONVENTIONS.bert


def bert_run(row: Cells, site: Site | None) -> MeasuredRun:
    """The run of a row of a BERT table, at a site; None: a neutral one. Raises UserError, with the reason, if
    the row is to be skipped or cannot be expressed.
    """
    if row["duplicate_of"]:
        raise UserError(f"the measurement of {shown(row['duplicate_of'])} submitted again; that row counts")
    for column in _STATED:
        if row[column] is None:
            raise UserError(f"the source does not say {'step_s' if column == 'iteration_s' else column}")
    assumed: list[str] = []
    batching = _batching(row)
    system = _system(row, site or Site(), assumed)
    model = _model(row)
    plan = _plan(row, batching, model, assumed)
    run = MeasuredRun(
        model,
        plan,
        system,
        profile_of(system),
        tuple(assumed),
        evaluation=_evaluation(row["global_batch"]),
    )
    for precision in _precisions(row):
        check_precision(precision, run.profile)
    return run


def bert_plans(row: Cells, run: MeasuredRun) -> list[Plan]:
    """The plan of a row; both precisions if the source leaves open which it was. Raises UserError, naming the
    broken rules, for a plan that cannot train the model.
    """
    plans = [replace(run.plan, precision=precision) for precision in _precisions(row)]
    return [plan.check(run.model) for plan in plans]


def stated_precision(row: Cells) -> str:
    """The precision by which a row is grouped: that of its plan, or "fp16 or fp8"."""
    return _EITHER if row["precision"].lower().startswith(_EITHER) else _precisions(row)[0]


def _batching(row: Cells) -> PlanOptions:
    """The batching and the balance of a row, as options of a plan. Raises UserError for an unknown one."""
    work = (row["work"] or "unknown").lower()
    if work == "unknown":
        raise UserError("the way of batching is not known: what a GPU computes depends on it")
    kind = re.match(r"(unpadded|packed|padded to the longest|padded to (\d+))\b", work)
    if kind is None:
        raise UserError(
            f"work={shown(row['work'])}: this way of batching is not known; known are unpadded, packed, and "
            "padded to the longest or to a number of tokens"
        )
    seq_len = load_model(_BERT.model).seq_len
    if kind[2] and int(kind[2]) != seq_len:
        raise UserError(f"work={shown(row['work'])}: the samples have up to {seq_len} tokens; pad to as many")
    batching = "longest" if "longest" in kind[1] else kind[1].partition(" ")[0]
    if batching in ("padded", "packed"):
        return parse_options(f"batching={batching}")
    words = tuple(word for word in ("sorted", "stratified", "exchanged") if word in work)
    if words not in _BALANCES:
        raise UserError(
            f"work={shown(row['work'])}: this combination of balances is not known; name sorted alone, or "
            "stratified, exchanged, or both"
        )
    return parse_options(f"batching={batching},balance={_BALANCES[words]}")


def _precisions(row: Cells) -> tuple[str, ...]:
    """The precisions that a row's matrices of the layers may have had; of several the run is the fastest that
    fits. NVIDIA's files state 8 bit for one node, and none for the largest runs.
    """
    recipe = row["precision"].lower()
    if recipe.startswith(_EITHER):
        return ("bf16",) if _overlaps(row) else ("bf16", "fp8")
    if recipe in ("fp16", "bf16"):
        return ("bf16",)
    if recipe == "fp8":
        return ("fp8",)
    raise UserError(f"precision={shown(row['precision'])}: must be fp16, bf16, fp8, or {_EITHER}")


def _model(row: Cells) -> ModelSpec:
    """BERT-Large as NVIDIA's code computes it, in the shape that the row states."""
    bert_large = load_model(_BERT.model)
    ffn = bert_large.ffn_hidden // bert_large.hidden * row["hidden"]
    shape = {name: row[name] for name in ("layers", "hidden", "heads", "vocab")}
    return replace(
        bert_large,
        name=row["id"],
        kv_heads=0,
        ffn_hidden=ffn,
        attention="core" if _before_fmha(row) else "flash",
        lengths=_BERT.lengths,
        **shape,
    )


def _plan(row: Cells, options: PlanOptions, model: ModelSpec, assumed: list[str]) -> Plan:
    gpus, samples, steps = row["gpus"], row["samples_per_gpu_step"], row["grad_accumulation"]
    if samples != int(samples):
        raise UserError(f"samples_per_gpu_step={samples:g}: is no whole number of samples")
    samples = int(samples)
    node = min(row["gpus_per_node"], gpus)
    if gpus % node:
        raise UserError(f"gpus={gpus}: is no multiple of gpus_per_node={node}")
    if gpus * samples != row["global_batch"]:
        mismatch = f"is not gpus x samples_per_gpu_step = {gpus * samples}"
        raise UserError(f"global_batch={row['global_batch']}: {mismatch}")
    if samples % steps:
        raise UserError(f"grad_accumulation={steps}: does not divide samples_per_gpu_step={samples}")
    plan = Plan(
        tp=1,
        pp=1,
        dp=gpus,
        micro_batch=samples // steps,
        global_batch=row["global_batch"],
        recompute="none",
        precision=_precisions(row)[0],
        cuda_graphs="full" if row["cuda_graph"] else "none",
    )
    if stated_precision(row) == _EITHER:
        taken_as = "fp16, as from 512 GPUs on" if _overlaps(row) else "the faster of the two"
        assumed.append(f"precision={row['precision']}: taken as {taken_as}")
    if "adam" in row["optimizer"].lower():
        return replace(
            plan,
            grad_overlap=True,
            bucket_bytes=_BERT.adam_bucket_bytes,
            options=replace(options, optimizer="fused-adam", clipping="bucket"),
        )
    if "lamb" not in row["optimizer"].lower():
        raise UserError(f"optimizer={shown(row['optimizer'])}: must be LAMB or Adam")
    blocks = _overlaps(row)
    scattered = {} if steps > 1 else {"gradient_shards": node}
    return replace(
        plan,
        zero_stage=1,
        zero_group=node,
        prefetch=blocks,
        grad_overlap=blocks,
        bucket_bytes=-(-2 * model.parameters // _BERT.lamb_blocks) if blocks else None,
        options=replace(options, optimizer="lamb", **scattered),
    )


def _overlaps(row: Cells) -> bool:
    """Whether NVIDIA's code overlaps reductions with the backward pass (`dwu-overlap-reductions`)."""
    return "A100" not in row["gpu"].upper() and row["gpus"] >= 512


def _system(row: Cells, site: Site, assumed: list[str]) -> System:
    """The system of a row: nodes and NICs as stated, GPUs limited to the stated power."""
    gpu, power = _gpu(row["gpu"])
    node = _server(row["id"], load_system(system_of(gpu)))
    usual_power_w = profile_of(node).power_w
    several = row["gpus"] > row["gpus_per_node"]
    nic = _nic_gbps(row, assumed) if several else row["node_nic_gbps"]
    if several and nic is None:
        assumed.append(f"node_nic_gbps: taken as {node.nic_bytes_per_s * 8 / 1e9:g}, as in {node.name}")
    system = replace(
        node,
        name=row["id"],
        gpus_per_node=row["gpus_per_node"],
        nvlink_domain=_joined(node, row["gpus_per_node"]),
        framework=_framework(row),
        site=site,
        power_w=node.power_w if power in (None, usual_power_w) else power,
    )
    if _sums_in_switches(row):
        system = replace(system, collective_algorithms=(*system.collective_algorithms, "sharp"))
    return system if nic is None else system.with_nic(nic)


def _joined(node: System, gpus_per_node: int) -> int | None:
    """GPUs joined by NVLink over nodes; None: those of a node."""
    domain = node.nvlink_domain
    return domain if domain and domain % gpus_per_node == 0 else None


def _server(name: str, gpu_node: System) -> System:
    """The usual node of a GPU, or the server that the name of a row names, with these GPUs."""
    server = next((system for id_part, system in _BERT.servers.items() if id_part in name.upper()), None)
    if server is None:
        return gpu_node
    return replace(
        load_system(server),
        hbm_bytes_per_s=gpu_node.hbm_bytes_per_s,
        memory_bytes=gpu_node.memory_bytes,
        power_w=gpu_node.power_w,
    )


def _sums_in_switches(row: Cells) -> bool:
    """Whether switches sum: NVIDIA's runs on its largest clusters (`SBATCH_NETWORK=sharp`)."""
    nvidias = "lamb" in row["optimizer"].lower() and "NVIDIA/" in (row["source"] or "")
    return nvidias and row["gpus"] >= (1024 if "A100" in row["gpu"].upper() else 512)


def _framework(row: Cells) -> str:
    """NVIDIA's files name Transformer Engine for one node; without it the layers are Apex's."""
    if "adam" in row["optimizer"].lower():
        return "apex-ddp-bert"
    if _before_fmha(row):
        return "megatron"
    of_apex = _overlaps(row) or re.search(r"\bA(100|30)\b", row["gpu"].upper())
    return "apex-bert" if of_apex else "te-bert"


def _before_fmha(row: Cells) -> bool:
    """Whether the GPU is older than Apex's attention kernel, which needs an A100."""
    return "V100" in row["gpu"].upper()


def _evaluation(global_batch: int) -> float:
    """Seconds of evaluation in a measured step over those of an iteration, by MLPerf's rule. A forward pass
    counts as a third of an iteration.

    >>> round(100 * _evaluation(448), 1)
    2.2
    """
    rule = mlperf_evaluations(global_batch)
    return rule.samples / 3 / rule.every


def _gpu(gpu: str) -> tuple[str, float | None]:
    """The GPU as `system_of` reads it, and its power limit in watts, None if the row does not say. Raises
    UserError for a limit that no GPU has, and for one that is not known.

    >>> _gpu("NVIDIA A100-SXM4-40GB(400W)"), _gpu("NVIDIA Blackwell GPU (B200-SXM-180GB)")
    (('NVIDIA A100-SXM4-40GB', 400.0), ('B200-SXM-180GB', None))
    >>> _gpu("NVIDIA A100 80GB PCIe")
    ('NVIDIA A100 PCIe-80GB', None)
    """
    text = re.sub(r"(?i)\btesla ", "", gpu.strip())
    text = re.sub(r"(?i)\b(\d+ ?GB)[- ](SXM\d*|PCIE)\b", r"\2-\1", text)
    power = re.search(r"\((\d{1,9}) ?W\)$", text)
    if power:
        watts, (lowest, highest) = float(power[1]), GPU_W
        if not lowest <= watts <= highest:
            raise UserError(
                f"gpu={shown(gpu)}: its power must be {lowest} to {highest:,} W; correct the name"
            )
        return text[: power.start()].strip(), watts
    if cooling := re.fullmatch(r"(?i)(.{1,80})[ -]CTS", text):
        for chip, watts in _BERT.custom_cooling_w.items():
            if chip in text.upper():
                return cooling[1].strip(), watts
        raise UserError(f"gpu={shown(gpu)}: the power limit of this cooling is not known")
    brackets = re.search(r"\(([^()]+)\)$", text)
    return (brackets[1] if brackets else text), None


def _nic_gbps(row: Cells, assumed: list[str]) -> float | None:
    """Gb/s of a node's NICs in one direction: of those that the column `network` assigns to computation,
    otherwise as `node_nic_gbps` states; None if neither does.
    """
    node_gbps: float | None = row["node_nic_gbps"]
    compute_gbps = _compute_gbps(row["network"] or "")
    if compute_gbps is None:
        return node_gbps
    if node_gbps not in (None, compute_gbps):
        assumed.append(
            f"node_nic_gbps={node_gbps:g}: taken as {compute_gbps:g}, which network gives to computation"
        )
    return compute_gbps


def _compute_gbps(network: str) -> float | None:
    """Gb/s of the NICs that a description of the network assigns to computation; without such a purpose, of
    the fastest group.

    >>> _compute_gbps("Storage: 2x ConnectX-6 IB HDR 200Gb/sec, Compute: 8x ConnectX-6 IB HDR 200Gb/sec")
    1600.0
    """
    groups = re.split(r"[,;+]", network[:_LONGEST_NETWORK])
    compute_groups = [group for group in groups if group.strip().lower().startswith("compute")]
    data_groups = [group for group in groups if not re.match(r"\s*(storage|management)\s*:", group.lower())]
    sums = []
    for group in compute_groups or data_groups:
        cards = re.search(r"(?<!\d)(\d{1,2}) ?x .*?(\d{1,4}) ?(?:gb|$)", group.strip().lower())
        if cards:
            sums.append(float(cards[1]) * float(cards[2]))
    return max(sums, default=None) or None
