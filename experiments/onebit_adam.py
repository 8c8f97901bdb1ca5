"""1-bit Adam (Tang et al., ICML 2021): measured throughputs beside predicted ones, and where it pays.

    python -m experiments.onebit_adam --data ../shared/data/mlperf --out FOLDER

reads `communication_methods.csv` in the folder `--data` (throughputs read off DeepSpeed's charts), prints the
measured throughputs beside the predicted ones, and writes `measured.md` (errors by group and by row) and
`assumptions.md` (errors under other descriptions of the clusters). It also writes `published.md` (speed-ups
of whole runs), `bandwidth.md` (speed-ups over bandwidth and GPUs) and `speedup.png` (with the extra `docs`),
which need no data. experiments/ONEBIT_ADAM.md has the results.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.output import draw_if_possible, make_folder
from itertime import Plan, load_model, load_system, predict
from itertime.errors import UserError
from itertime.io import write_text
from itertime.spec import PlanOptions, System

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FILE, MODEL = "communication_methods.csv", "bert-large"
ETHERNET, INFINIBAND = "v100-pcie-40gbe", "v100-pcie-qdr"
WARM_UP = PlanOptions(compression="onebit-adam", warmup_share=1.0)
ONE_BIT = PlanOptions(compression="onebit-adam")
PLAIN = PlanOptions()
GPUS, GBPS = (8, 32, 64, 256), (1, 4, 10, 32, 100, 200, 400, 800)
NODES = {"v100-pcie-40gbe": 16, "dgx-v100": 16, "dgx-a100-80gb": 16}
"""Systems of the study over bandwidth, and samples per GPU."""
GPUS_A_NODE = 4
TABLE_LINK = 300.0  # GB/s between two GPUs where the profile's collectives were measured, on A100
OTHERS: dict[str, dict[str, Any]] = {
    "none: as described": {},
    "collectives reach 0.8 of the benchmarked bandwidth": {"network_efficiency": 0.8},
    "5 GB/s between the GPUs of a node": {"nvlink_slowdown": TABLE_LINK / 5},
    "8 GB/s": {"nvlink_slowdown": TABLE_LINK / 8},
    "15.75 GB/s, all of PCIe 3.0 x16": {"nvlink_slowdown": TABLE_LINK / 15.75},
    "fused kernels of the model": {"framework": "megatron"},
}
"""Changes of the systems that other descriptions of the clusters make."""
LAMB_VOLUME, SHARE_AFTER = 4.6, 1 / 16
LAMB_WARM_UP = (1 / LAMB_VOLUME - SHARE_AFTER) / (1 - SHARE_AFTER)
"""The share w of 1-bit LAMB's warm-up, from its published volume 1 / (w + (1-w)/16) of 1/4.6."""


@dataclass(frozen=True)
class Task:
    """What a GPU computes in an iteration: `samples` of `seq_len` tokens."""

    name: str
    seq_len: int
    samples: int


PRETRAINING, SQUAD = Task("pre-training", 128, 16), Task("SQuAD", 384, 3)


@dataclass(frozen=True)
class Row:
    """A measured throughput, in samples/s, with the options that its optimizer stands for."""

    method: str
    task: Task
    system: str
    gpus: int
    measured: float

    @property
    def group(self) -> str:
        return f"{self.method}, {self.task.name}, {_network(self.system)}"

    def predicted(self, adam: PlanOptions = WARM_UP, **changes: Any) -> float:
        """Samples/s. `adam`: the options of the rows of Adam; `changes`: of the system."""
        options = ONE_BIT if self.method == "1-bit Adam" else adam
        system = replace(load_system(self.system), **changes)
        return self.task.samples * self.gpus / iteration_s(self.task, self.gpus, system, options)

    def error(self, adam: PlanOptions = WARM_UP, **changes: Any) -> float:
        return self.predicted(adam, **changes) / self.measured - 1


@cache
def iteration_s(task: Task, gpus: int, system: System, options: PlanOptions, overlap: bool = False) -> float:
    """Seconds of one iteration of BERT-Large under data parallelism alone, without recomputation."""
    model = replace(load_model(MODEL), seq_len=task.seq_len, attention="core")
    plan = Plan(
        tp=1,
        pp=1,
        dp=gpus,
        micro_batch=task.samples,
        global_batch=task.samples * gpus,
        recompute="none",
        grad_overlap=overlap,
        options=options,
    )
    return predict(model, plan, system).iteration_s


def _network(system: str) -> str:
    return "Ethernet" if system == ETHERNET else "InfiniBand"


def read_rows(folder: Path) -> list[Row]:
    """The measured throughputs of the table in `folder`. Raises UserError where it lacks a column."""
    path, rows, task = folder / FILE, [], PRETRAINING
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for line, record in enumerate(csv.DictReader(file), start=2):
                if record["workload"] != "same":
                    task = SQUAD if "SQuAD" in record["workload"] else PRETRAINING
                if record["throughput_samples_per_s"]:
                    rows.append(_row(record, task, f"{path}:{line}"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; name the folder of {FILE} with --data") from None
    except KeyError as error:
        raise UserError(f"{path}: has no column {error}; take the table with it") from None
    return rows


def _row(record: dict[str, str], task: Task, where: str) -> Row:
    system = ETHERNET if record["network"].startswith("40 GbE") else INFINIBAND
    try:
        return Row(
            record["method"], task, system, int(record["gpus"]), float(record["throughput_samples_per_s"])
        )
    except ValueError as error:
        raise UserError(f"{where}: {error}; correct the number of GPUs or the throughput") from None


def mape(rows: Iterable[Row], adam: PlanOptions = WARM_UP, **changes: Any) -> float:
    """The mean of the absolute relative errors of throughputs, on systems with `changes`."""
    errors = [abs(row.error(adam, **changes)) for row in rows]
    return sum(errors) / len(errors)


def measured_md(rows: Sequence[Row]) -> str:
    """Errors by group, and by row, as Markdown."""
    groups = {row.group: [each for each in rows if each.group == row.group] for row in rows}
    lines = ["| rows | number | MAPE | with Adam's step fused |", "|---|---|---|---|"]
    one, several = ([row for row in rows if (row.gpus > GPUS_A_NODE) is more] for more in (False, True))
    sums = [("one node", one), ("several nodes", several), ("all", list(rows))]
    for name, each in [*groups.items(), *sums]:
        lines.append(f"| {name} | {len(each)} | {mape(each):.1%} | {mape(each, PLAIN):.1%} |")
    lines += ["", "Errors of throughputs:", ""]
    counts = sorted({row.gpus for row in rows})
    lines += ["| rows, by GPUs | " + " | ".join(map(str, counts)) + " |"]
    lines += ["|---" * (len(counts) + 1) + "|"]
    for name, each in groups.items():
        errors = {row.gpus: f"{row.error():+.0%}" for row in each}
        lines.append(f"| {name} | " + " | ".join(errors.get(count, "") for count in counts) + " |")
    return "\n".join(lines) + "\n"


def assumptions_md(rows: Sequence[Row]) -> str:
    """The error of all rows under other descriptions of the clusters, as Markdown."""
    lines = ["| other assumption | MAPE, Adam | 1-bit Adam | all |", "|---|---|---|---|"]
    for name, changes in OTHERS.items():
        each = (
            mape([row for row in rows if row.method == method], **changes)
            for method in ("Adam", "1-bit Adam")
        )
        lines.append(f"| {name} | " + " | ".join(f"{e:.1%}" for e in (*each, mape(rows, **changes))) + " |")
    return "\n".join(lines) + "\n"


def side_by_side(rows: Sequence[Row]) -> str:
    """Every measured throughput beside the predicted one, for the terminal."""
    lines = [f"{'rows':40} {'GPUs':>5} {'measured':>9} {'predicted':>9}  error"]
    lines += [
        f"{row.group:40} {row.gpus:5} {row.measured:9.1f} {row.predicted():9.1f}  {row.error():+.1%}"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def whole_run(task: Task, gpus: int, system: System, share: float) -> float:
    """The speed-up of a run, a `share` of whose iterations are the warm-up, over one of nothing else."""
    mixed = replace(ONE_BIT, warmup_share=share)
    return iteration_s(task, gpus, system, WARM_UP) / iteration_s(task, gpus, system, mixed)


def published_md() -> str:
    """Published speed-ups of whole runs beside predicted ones."""
    ethernet, infiniband = load_system(ETHERNET), load_system(INFINIBAND)
    lamb = PlanOptions(compression="onebit-lamb", optimizer="lamb", warmup_share=LAMB_WARM_UP)
    plain_lamb = replace(lamb, warmup_share=1.0)
    of_lamb = iteration_s(PRETRAINING, 256, ethernet, plain_lamb) / iteration_s(
        PRETRAINING, 256, ethernet, lamb
    )
    of_adam = [
        (PRETRAINING, 32, ethernet, 0.15, "3.5"),
        (PRETRAINING, 32, infiniband, 0.15, "2.7"),
        (SQUAD, 32, ethernet, 0.25, "2.7"),
        (PRETRAINING, 256, ethernet, 0.15, "up to 3.3"),
    ]
    table = [
        (
            f"1-bit Adam, {task.name}, {gpus} GPUs, {_network(system.name)}",
            share,
            said,
            whole_run(task, gpus, system, share),
        )
        for task, gpus, system, share, said in of_adam
    ]
    table.append(("1-bit LAMB, pre-training, 256 GPUs, Ethernet", LAMB_WARM_UP, "up to 2.8", of_lamb))
    lines = ["| run | warm-up | published | here |", "|---|---|---|---|"]
    lines += [f"| {name} | {share:.0%} | {said} | {found:.1f} |" for name, share, said, found in table]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Gain:
    """Speed-ups of an iteration after the warm-up.

    `same`: over Adam of the same program, which exchanges after the backward pass. `best`: over the faster of
    two plain plans, a fused Adam with and without overlap.
    """

    same: float
    best: float


def gain(system: System, task: Task, gpus: int) -> Gain:
    one_bit = iteration_s(task, gpus, system, ONE_BIT)
    best = min(iteration_s(task, gpus, system, PLAIN, overlap) for overlap in (False, True))
    return Gain(iteration_s(task, gpus, system, WARM_UP) / one_bit, best / one_bit)


def _systems(name: str) -> dict[int, System]:
    return {gbps: _with_gbps(load_system(name), gbps) for gbps in GBPS}


def _with_gbps(system: System, gbps: int) -> System:
    """The nodes behind `gbps` Gb/s in all, over NICs that the GPUs' own links do not limit."""
    fast = gbps * 1e9 / 8
    return replace(
        system, nic_bytes_per_s=fast, gpu_nic_bytes_per_s=max(fast / system.gpus_per_node, fast / 4)
    )


def bandwidth_md() -> str:
    """Speed-ups over bandwidth, GPUs and nodes."""
    parts = []
    for name, samples in NODES.items():
        task = replace(PRETRAINING, samples=samples)
        lines = [f"Nodes of `{name}`:", "", "| GPUs | " + " | ".join(f"{gbps} Gb/s" for gbps in GBPS) + " |"]
        lines.append("|---" * (len(GBPS) + 1) + "|")
        systems = _systems(name)
        for gpus in GPUS:
            found = [gain(systems[gbps], task, gpus) for gbps in GBPS]
            lines.append(f"| {gpus} | " + " | ".join(f"{g.same:.2f}, {g.best:.2f}" for g in found) + " |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def draw(path: Path) -> None:
    """Speed-ups over bandwidth as a picture, a panel for each kind of node."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, len(NODES), figsize=(11, 3.6), sharey=True, layout="constrained")
    for axes, (name, samples) in zip(panels, NODES.items(), strict=True):
        _panel(axes, name, replace(PRETRAINING, samples=samples))
    panels[0].set_ylabel("speed-up of an iteration after the warm-up")
    panels[0].legend(title="GPUs; dashed: over the best plain plan", fontsize=8, title_fontsize=8)
    figure.savefig(path, format="png", dpi=110)
    plt.close(figure)


def _panel(axes: Axes, name: str, task: Task) -> None:
    systems = _systems(name)
    for colour, gpus in enumerate(GPUS):
        gains = [gain(systems[gbps], task, gpus) for gbps in GBPS]
        axes.plot(GBPS, [each.same for each in gains], color=f"C{colour}", label=str(gpus))
        axes.plot(GBPS, [each.best for each in gains], color=f"C{colour}", linestyle="--")
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="Gb/s a node", title=name)
    axes.set_xticks(GBPS, [str(gbps) for gbps in GBPS], fontsize=8)
    axes.set_yticks([0.5, 1, 2, 4, 8], ["0.5", "1", "2", "4", "8"])
    axes.minorticks_off()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help=f"the folder of {FILE}")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the results")
    options = parser.parse_args(arguments)
    try:
        rows = read_rows(options.data) if options.data else []
        make_folder(options.out)
        if rows:
            write_text(options.out / "measured.md", measured_md(rows))
            write_text(options.out / "assumptions.md", assumptions_md(rows))
        write_text(options.out / "published.md", published_md())
        write_text(options.out / "bandwidth.md", bandwidth_md())
        draw_if_possible(options.out / "speedup.png", draw)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    if rows:
        print(side_by_side(rows), measured_md(rows), assumptions_md(rows), sep="\n")
    print(published_md() + "\n" + bandwidth_md(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
