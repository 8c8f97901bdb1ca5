"""Morphling's measured iterations on A800 beside predicted ones: plans and placements of one model.

    python experiments/morphling.py ../shared/data/clusters/morphling --out FOLDER

reads `placements_MODEL.csv` and writes `rows.csv` (every measured row with its prediction), `summary.md` (the
tables of experiments/MORPHLING.md) and `table.csv` (measured seconds as a throughput table for `clustersim
--table`). What it writes holds measurements of others and stays where it is.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from experiments.output import make_folder
from itertime import Plan, System, load_model, load_system, predict
from itertime.errors import UserError
from itertime.io import write_text
from itertime.spec import ModelSpec, PlanOptions

Array = NDArray[np.float64]
HERE = Path(__file__).parent / "morphling"
SYSTEM = "a800"
TUNED = ("bert", "gpt2")
"""Models to whose rows the two times of an offloaded step are fitted; every other figure is held out."""
KINDS = ("ga", "gc", "zero-dp", "zero-offload")
DEGREES = "PTD"
DDP_BUCKET = 25 * 2**20
"""Bytes of a bucket of PyTorch's DistributedDataParallel."""
COLUMNS = ("model", "plan", "placement", "gpus", "measured_s", "predicted_s", "memory_gb", "even", "half")


@dataclass(frozen=True)
class Workload:
    """A model of the measurements: samples of an iteration, as its repository's code has them.

    `degrees_seq_len`: tokens of a sample in degree plans, None as in the model's file. `overlaps`: the exchange of
    `ga` and `gc` runs beside the backward pass. `fused`: its degree plans use a fused optimizer, as Megatron-LM does.
    """

    name: str
    batch: int
    degrees_seq_len: int | None = None
    overlaps: bool = False
    fused: bool = False

    def spec(self, plan: str) -> ModelSpec:
        """The model that a plan trains."""
        model = load_model(str(HERE / f"{self.name}.yaml"))
        tokens = self.degrees_seq_len if plan.isdigit() else None
        return model.with_seq_len(tokens) if tokens else model


WORKLOADS = {
    each.name: each
    for each in (
        Workload("bert", 32),
        Workload("gpt2", 16),
        Workload("llama7", 8, fused=True),
        Workload("llama30", 4, fused=True),
        Workload("roberta", 64, overlaps=True),
        Workload("t5", 16, degrees_seq_len=1024),
        Workload("vit", 64, overlaps=True),
    )
}


@dataclass(frozen=True)
class Row:
    """One measured iteration and its prediction. `forward`: the column of that name, in the unit of its file.
    `even`: every node has an even number of the job's GPUs. `half`: measured with half of the samples, as the
    ratio to two GPUs shows.
    """

    model: str
    plan: str
    placement: str
    measured_s: float
    predicted_s: float
    memory_bytes: float
    forward: float = 0.0
    half: bool = False

    @property
    def gpus(self) -> int:
        return sum(map(int, self.placement))

    @property
    def even(self) -> bool:
        return all(int(digit) % 2 == 0 for digit in self.placement)

    @property
    def kind(self) -> str:
        return DEGREES if self.plan.isdigit() else self.plan


def plan_of(plan: str, gpus: int, workload: Workload) -> Plan:
    """The plan as `itertime` states it: one micro-batch, 32 bit with TF32, the exchange after the backward
    pass unless the workload overlaps them. Digits are pipeline, tensor and data degree.
    """
    model = workload.spec(plan)
    if plan.isdigit():
        pp, tp, dp = (int(digit) for digit in plan)
        each = -(-workload.batch // dp)
        split = "even" if model.layers % pp == 0 else "balanced"
        options = PlanOptions(optimizer="fused-adam" if workload.fused else "torch-adamw")
        return Plan(
            tp, pp, dp, each, dp * each, recompute="none", precision="tf32", split=split, options=options
        )
    if plan not in KINDS:
        raise UserError(f"plan {plan}: must be three digits or one of {', '.join(KINDS)}")
    each = -(-workload.batch // gpus)
    overlaps = workload.overlaps and plan in ("ga", "gc")
    return Plan(
        *(1, 1, gpus, each, gpus * each),
        recompute="full" if plan == "gc" else "none",
        zero_stage=1 if plan.startswith("zero") else 0,
        offload_optimizer=plan == "zero-offload",
        grad_overlap=overlaps,
        bucket_bytes=DDP_BUCKET if overlaps else None,
        precision="tf32",
        options=PlanOptions(optimizer="torch-adamw"),
    )


def system_of(system: System, placement: str) -> System:
    """The nodes that a placement makes: those with the fewest GPUs decide on what crosses the network, as in
    `clustersim.speed`, with the NICs beside these GPUs; the fullest node decides on the CPU's memory.

    A plan with one micro-batch hides no send behind another one's work.
    """
    counts = [int(digit) for digit in placement]
    fewest, most = min(counts), max(counts)
    whole = system.nics_per_node or system.gpus_per_node
    nics = -(-fewest * whole // system.gpus_per_node)
    return replace(
        system,
        gpus_per_node=fewest,
        nics_per_node=nics,
        nic_bytes_per_s=system.nic_bytes_per_s * nics / whole,
        cpu_memory_bytes_per_s=system.cpu_memory_bytes_per_s * fewest / most,
        site=replace(system.site, p2p_exposure=1.0),
    )


def read_rows(folder: Path, name: str, system: System, overlap: bool = True) -> tuple[list[Row], list[str]]:
    """The rows of a model with their predictions, and why others are left out. Without `overlap` no exchange
    runs beside a backward pass.
    """
    workload = WORKLOADS[name] if overlap else replace(WORKLOADS[name], overlaps=False)
    path = folder / f"placements_{name}.csv"
    try:
        lines = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig"))))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; give the folder of Morphling's placements") from None
    rows, left_out = [], []
    for number, line in enumerate(lines, start=2):
        plan, placement, seconds = line["exec_plan"], line["placement"], float(line["iter_time"])
        if seconds <= 0:
            left_out.append(f"{name}: line {number}: did not run")
            continue
        try:
            rows.append(predicted(workload, plan, placement, system, seconds, float(line["forward"])))
        except UserError as error:
            left_out.append(f"{name}: line {number}: {error}")
    return _halves(rows), left_out


def predicted(
    workload: Workload,
    plan: str,
    placement: str,
    system: System,
    seconds: float = float("nan"),
    forward: float = 0.0,
) -> Row:
    """The row of a plan and placement, measured at `seconds`. Raises UserError for a plan that cannot train."""
    gpus = sum(map(int, placement))
    found = predict(workload.spec(plan), plan_of(plan, gpus, workload), system_of(system, placement))
    return Row(workload.name, plan, placement, seconds, found.iteration_s, found.memory_bytes, forward)


def _halves(rows: Sequence[Row]) -> list[Row]:
    """The rows with `half` set: one GPU that takes at most 1.2 times as long as two on one node with the same
    plan, where the prediction says that its samples do not fit.
    """
    seconds = {(row.plan, row.placement): row for row in rows}
    capacity = 80e9
    found = []
    for row in rows:
        two = seconds.get((row.plan, "2")) if row.placement == "1" else None
        half = bool(two and row.measured_s <= 1.2 * two.measured_s and row.memory_bytes > capacity)
        found.append(replace(row, half=half))
    return found


def ratios(rows: Sequence[Row]) -> Array:
    """Predicted over measured seconds, in units of their median."""
    found = np.array([row.predicted_s / row.measured_s for row in rows])
    return np.asarray(found / np.median(found))


def spearman(rows: Sequence[Row]) -> float:
    """Rank correlation of predicted and measured seconds; nan for fewer than three rows."""
    if len(rows) < 3:
        return float("nan")
    ranks = [rankdata([getattr(row, name) for row in rows]) for name in ("measured_s", "predicted_s")]
    return float(np.corrcoef(*ranks)[0, 1])


def mape(found: Array) -> float:
    """Mean absolute difference from 1, percent."""
    return float(100 * np.abs(found - 1).mean())


def pairwise(rows: Sequence[Row]) -> float:
    """MAPE of the ratios of all ordered pairs of rows, percent."""
    found = ratios(rows)
    pairs = found[:, None] / found[None, :]
    return mape(pairs[~np.eye(len(found), dtype=bool)]) if len(found) > 1 else float("nan")


def same(rows: Iterable[Row], key: Callable[[Row], object]) -> list[list[Row]]:
    """Rows in groups of equal `key`, in the order of their first row."""
    groups = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return list(groups.values())


def plan_ratios(rows: Sequence[Row]) -> Array:
    """Predicted over measured ratio of each plan to the first one of the same placement."""
    return _to_first(same(rows, lambda row: row.placement))


def placement_ratios(rows: Sequence[Row]) -> Array:
    """Predicted over measured ratio of each placement to the fullest nodes with the same plan and GPUs."""
    groups = same(rows, lambda row: (row.plan, row.gpus))
    return _to_first([sorted(group, key=lambda row: len(row.placement)) for group in groups])


def _to_first(groups: Sequence[Sequence[Row]]) -> Array:
    found = [
        (row.predicted_s / group[0].predicted_s) / (row.measured_s / group[0].measured_s)
        for group in groups
        for row in group[1:]
    ]
    return np.array(found)


def at_one_placement(rows: Sequence[Row]) -> float:
    """Mean rank correlation of the plans of a placement, over placements with at least four."""
    each = [spearman(group) for group in same(rows, lambda row: row.placement) if len(group) > 3]
    return float(np.mean(each)) if each else float("nan")


def fitted(rows: Sequence[Row], system: System) -> tuple[float, float]:
    """`Site.cpu_adam_s` and `Site.cpu_gradient_s`, least squares of the relative error of ZeRO-Offload less
    ZeRO-DP at the same placement; `rows` are predicted with a `system` that has neither.
    """
    by_key = {(row.model, row.plan, row.placement): row for row in rows}
    terms, wanted = [], []
    for (name, plan, placement), row in by_key.items():
        base = by_key.get((name, "zero-dp", placement))
        if plan != "zero-offload" or base is None:
            continue
        more = (row.measured_s - base.measured_s) - (row.predicted_s - base.predicted_s)
        held = WORKLOADS[name].spec(plan).parameters
        terms.append([held / row.gpus / row.measured_s, held / row.measured_s])
        wanted.append(more / row.measured_s)
    found = np.linalg.lstsq(np.array(terms), np.array(wanted), rcond=None)[0]
    return float(found[0]), float(found[1])


Line = tuple[str, Sequence[Row]]


def accuracy_table(lines: Sequence[Line]) -> str:
    """Errors of groups of rows, as a Markdown table."""
    text = [
        "| | rows | plans | placements | Spearman, all rows | at one placement | ratio to the median, MAPE % "
        "| pairs, MAPE % | plans at one placement, MAPE % | placements of one plan, MAPE % | predicted / measured |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, rows in lines:
        level = np.median([row.predicted_s / row.measured_s for row in rows])
        cells = [len(rows), len({row.plan for row in rows}), len({row.placement for row in rows})]
        numbers = [
            _shown(spearman(rows), 3),
            _shown(at_one_placement(rows), 2),
            _shown(mape(ratios(rows)), 1),
        ]
        numbers += [_shown(pairwise(rows), 1)]
        numbers += [
            _shown(mape(each), 1) if len(each) else "" for each in (plan_ratios(rows), placement_ratios(rows))
        ]
        text.append(f"| {name} | {' | '.join(map(str, cells))} | {' | '.join(numbers)} | {level:.2f} |")
    return "\n".join(text) + "\n"


def _shown(number: float, digits: int) -> str:
    return "" if np.isnan(number) else f"{number:.{digits}f}"


def kinds_table(models: Sequence[Line]) -> str:
    """Median of predicted over measured seconds by model and kind of plan, as a Markdown table."""
    names = (*KINDS, DEGREES)
    text = [f"| | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for model, rows in models:
        cells = []
        for name in names:
            found = [row.predicted_s / row.measured_s for row in rows if row.kind == name]
            cells.append(f"{np.median(found):.2f}" if found else "")
        text.append(f"| {model} | {' | '.join(cells)} |")
    return "\n".join(text) + "\n"


def hosts_table(models: Sequence[Line]) -> str:
    """How much longer the forward pass takes than under ZeRO-Offload, whose forward pass is the same, at the
    same placement of eight GPUs: medians over the plans that run on the GPU alone, as a Markdown table.
    """
    text = ["| | even GPUs on every node | an odd number on some | most |", "|---|---|---|---|"]
    for model, rows in models:
        base = {row.placement: row.forward for row in rows if row.kind == "zero-offload" and row.gpus == 8}
        both: dict[bool, list[float]] = {True: [], False: []}
        for row in rows:
            if row.kind in KINDS[:3] and base.get(row.placement):
                both[row.even].append(row.forward / base[row.placement])
        if both[True] and both[False]:
            medians = [f"{np.median(both[even]):.2f}" for even in (True, False)]
            text.append(f"| {model} | {' | '.join(medians)} | {max(both[False]):.1f} |")
    return "\n".join(text) + "\n"


def rows_csv(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        head = (row.model, row.plan, row.placement, row.gpus)
        numbers = (f"{value:.6g}" for value in (row.measured_s, row.predicted_s, row.memory_bytes / 1e9))
        writer.writerow([*head, *numbers, int(row.even), int(row.half)])
    return text.getvalue()


def summary(models: dict[str, list[Row]], apart: dict[str, list[Row]]) -> str:
    """The tables of the page. `apart`: the models whose exchange overlaps, without overlap."""
    parts: list[Line] = list(models.items())
    clean: list[Line] = []
    for name, rows in parts:
        whole = [row for row in rows if not row.half]
        if len(whole) < len(rows):
            clean.append((f"{name}, full samples", whole))
        if name in ("vit", "t5"):
            clean.append((f"{name}, hosts not slow", _fast_hosts(rows)))
        if name == "llama7":
            clean.append((f"{name}, degrees", [row for row in rows if row.kind == DEGREES]))
        if name in apart:
            clean.append((f"{name}, no overlap", apart[name]))
            if name == "vit":
                clean.append((f"{name}, no overlap, hosts not slow", _fast_hosts(apart[name])))
    tables = [accuracy_table(parts), accuracy_table(clean), kinds_table(parts), hosts_table(parts)]
    return "\n".join(tables)


def _fast_hosts(rows: Sequence[Row]) -> list[Row]:
    """The rows with an even number of GPUs on every node, and those of ZeRO-Offload."""
    return [row for row in rows if row.even or row.plan == "zero-offload"]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder of placements_MODEL.csv")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    options = parser.parse_args(arguments)
    try:
        make_folder(options.out)
        system = load_system(SYSTEM)
        models, apart, left_out = {}, {}, []
        for name, workload in WORKLOADS.items():
            if (options.folder / f"placements_{name}.csv").is_file():
                models[name], without = read_rows(options.folder, name, system)
                left_out += without
                if workload.overlaps:
                    apart[name], _ = read_rows(options.folder, name, system, overlap=False)
        if not models:
            raise UserError(f"{options.folder}: has no placements_MODEL.csv of {', '.join(WORKLOADS)}")
        bare = replace(system, site=replace(system.site, cpu_adam_s=0.0, cpu_gradient_s=0.0))
        tuning = [row for name in TUNED if name in models for row in read_rows(options.folder, name, bare)[0]]
        if tuning:
            print("cpu_adam_s %.3g, cpu_gradient_s %.3g" % fitted(tuning, bare))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for why in left_out:
        print(why, file=sys.stderr)
    text = summary(models, apart)
    write_text(options.out / "rows.csv", rows_csv([row for rows in models.values() for row in rows]))
    write_text(options.out / "summary.md", text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
