"""Predicted iteration times of best plans beside those that Arena measured on A100s and V100s.

    python -m experiments.arena_plans [--data FILE]

writes `experiments/ARENA_PLANS.md`. FILE is the database of Arena's simulator (sjtu-epcc/arena, branch
ae-eurosys) as a table: the measured seconds of an iteration under the best plan that Alpa found, by model,
global batch, GPU type, nodes and GPUs per node; -1 where no plan ran.

Shapes are those of Alpa's benchmarks, whose sizes have these names (Zheng et al., OSDI 2022). They, the
precision and the memory of a GPU are assumptions, and no constant is fitted to these rows.
"""

from __future__ import annotations

import argparse
import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from scipy import stats

from itertime import ModelSpec, Space, System, load_system, search
from itertime.errors import UserError
from itertime.io import write_text
from itertime.planning import VTRAIN

__all__ = [
    "CASES",
    "DATA",
    "Case",
    "Compared",
    "Errors",
    "Row",
    "compared",
    "errors",
    "main",
    "page",
    "shape",
]

HERE = Path(__file__).parent
PAGE, TEMPLATE = HERE / "ARENA_PLANS.md", HERE / "arena" / "page.template.md"
DATA = HERE.parents[1] / "shared" / "reference" / "peers" / "arena_optimal_iteration_s.csv"

BERT = {  # width, layers, heads
    "760M": (1536, 24, 16),
    "1.3B": (2048, 24, 32),
    "2.6B": (2560, 32, 32),
    "6.7B": (4096, 32, 32),
    "15B": (5120, 48, 40),
}
MOE = {  # width, layers, experts
    "690M": (768, 8, 16),
    "1.3B": (768, 16, 16),
    "2.4B": (1024, 16, 16),
    "10B": (1536, 16, 32),
    "27B": (2048, 16, 48),
}


class Nodes(NamedTuple):
    """The GPUs of a type: the system with their kernels and links, and GPUs and bytes/s of a NIC."""

    system: str
    gpus_per_nic: int
    nic_bytes_per_s: float


NODES = {"a100": Nodes("dgx-a100-40gb", 1, 25e9), "v100": Nodes("dgx-v100", 2, 12.5e9)}
"""The types with a profile. Networks are those of the DGX nodes: assumed."""


class Row(NamedTuple):
    """A line of the table. `iteration_s`: None where no plan ran."""

    model: str
    size: str
    global_batch: int
    gpu_type: str
    nodes: int
    gpus_per_node: int
    iteration_s: float | None


class Case(NamedTuple):
    """What a search may choose from, and the framework whose kernels run."""

    name: str
    framework: str
    space: Space


FREE = replace(VTRAIN, zero_stage=(0, 1, 2, 3))
RECOMPUTED = replace(VTRAIN, recompute=("full",), zero_stage=(0, 1, 2))
CASES = (
    Case("any plan", "compile", FREE),
    Case("full recompute", "compile", RECOMPUTED),
    Case("full recompute", "megatron", RECOMPUTED),
)


class Compared(NamedTuple):
    """A row and the best predicted time there, None where no plan fits."""

    row: Row
    predicted_s: float | None

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        assert self.predicted_s is not None
        assert self.row.iteration_s is not None
        return self.predicted_s / self.row.iteration_s - 1

    @property
    def both(self) -> bool:
        """Whether a plan ran, and one is predicted to fit."""
        return self.predicted_s is not None and self.row.iteration_s is not None


class Errors(NamedTuple):
    """How far predictions are from measurements, as shares.

    | field | |
    |---|---|
    | `rows` | rows in which a plan ran, and one is predicted to fit |
    | `mape`, `bias`, `median` | mean absolute error, mean error, median error |
    | `spearman` | rank correlation of the times of a model and batch over counts, mean of all with two |
    | `groups` | their number |
    | `speed_up` | median absolute error of the speed-up over the fewest GPUs of a model and batch |
    """

    rows: int
    mape: float
    bias: float
    median: float
    spearman: float
    groups: int
    speed_up: float


def read(path: Path) -> list[Row]:
    """The rows of the table. UserError if it cannot be read."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
    except OSError as error:
        raise UserError(f"--data={path}: {error.strerror}") from None
    return [
        Row(
            line["model"], line["parameters"], int(line["global_batch"]), line["gpu_type"],
            int(line["nodes"]), int(line["gpus_per_node"]),
            float(line["iteration_s"]) if float(line["iteration_s"]) > 0 else None,
        )
        for line in lines
    ]  # fmt: skip


def shape(model: str, size: str) -> ModelSpec | None:
    """The model, None where `ModelSpec` has no such layers (convolutions)."""
    name = f"{model}-{size.lower()}"
    if model == "bert":
        hidden, layers, heads = BERT[size]
        return ModelSpec(
            name, layers=layers, hidden=hidden, heads=heads, vocab=51_200, seq_len=1024, encoder=True,
            dropout=False,
        )  # fmt: skip
    if model == "moe":
        hidden, layers, experts = MOE[size]
        return ModelSpec(
            name, layers=layers, hidden=hidden, heads=16, vocab=32_000, seq_len=1024, dropout=False,
            ffn_hidden=8 * hidden, experts=experts, experts_per_token=2, dense_layers=layers // 2,
            dense_ffn_hidden=8 * hidden,
        )  # fmt: skip
    return None


def system_of(row: Row, framework: str) -> System:
    """The row's nodes: GPUs and links of a DGX, as many to a node as the row says."""
    nodes, gpus = NODES[row.gpu_type], row.gpus_per_node
    nics = -(-gpus // nodes.gpus_per_nic)
    return replace(
        load_system(nodes.system),
        gpus_per_node=gpus,
        nics_per_node=nics,
        nic_bytes_per_s=nodes.nic_bytes_per_s * nics,
        framework=framework,
    )


def compared(rows: Sequence[Row], case: Case) -> list[Compared]:
    """The rows of types with a profile whose model can be stated, with the time of the case's best plan."""
    found = []
    for row in rows:
        model = shape(row.model, row.size)
        if row.gpu_type in NODES and model is not None:
            gpus = row.nodes * row.gpus_per_node
            result = search(
                model, row.global_batch, system_of(row, case.framework), gpus, space=case.space, top=1
            )
            best_s = result.plans[0].prediction.iteration_s if result.plans else None
            found.append(Compared(row, best_s))
    return found


def errors(found: Sequence[Compared]) -> Errors:
    """The errors over all rows that can be compared."""
    both = sorted((one for one in found if one.both), key=lambda one: one.row[:6])
    far = [one.error for one in both]
    ranks, speed_ups = [], []
    for _, grouped in groupby(both, key=lambda one: one.row[:4]):
        group = sorted(grouped, key=lambda one: one.row.nodes * one.row.gpus_per_node)
        times = [(one.predicted_s or 0.0, one.row.iteration_s or 0.0) for one in group]
        if len(group) > 1:
            ranks.append(float(stats.spearmanr(times).statistic))
            first = 1 + group[0].error
            speed_ups += [abs(first / (1 + one.error) - 1) for one in group[1:]]
    return Errors(
        len(far), fmean(map(abs, far)), fmean(far), median(far), fmean(ranks), len(ranks), median(speed_ups)
    )


def page(rows: Sequence[Row], found: Sequence[tuple[Case, Sequence[Compared]]]) -> str:
    """The page, from its template and the tables. `found`: the rows compared, by case."""
    stated = [one.row for one in found[0][1]]
    known = [row for row in rows if row.gpu_type in NODES]
    others = Counter(row.gpu_type for row in rows if row.gpu_type not in NODES)
    return TEMPLATE.read_text(encoding="utf-8").format(
        rows=len(rows),
        known=len(known),
        convolutions=len(known) - len(stated),
        stated=len(stated),
        others=" and ".join(f"{number} of {name.upper()}" for name, number in sorted(others.items())),
        errors=_table(
            ("GPU", "plans", "kernels", "model", "rows", "MAPE", "bias", "median", "Spearman", "speed-up"),
            [
                _line(gpu_type, case, model, part)
                for gpu_type in NODES
                for case, part in found
                for model in ("bert", "moe")
            ],
        ),
        sizes=_table(
            ("GPU", "model", "rows", *(f"{case.name}, {case.framework}" for case in CASES)),
            _sizes([part for _, part in found]),
        ),
        memory=_table(("GPU", "model", "nodes x GPUs", "measured", "predicted"), _memory(found[0][1])),
    )


def _line(gpu_type: str, case: Case, model: str, found: Sequence[Compared]) -> tuple[str, ...]:
    e = errors([one for one in found if one.row.gpu_type == gpu_type and one.row.model == model])
    percents = (f"{100 * e.mape:.1f} %", f"{100 * e.bias:+.1f} %", f"{100 * e.median:+.1f} %")
    ranks = f"{e.spearman:.2f} ({e.groups})"
    head = (gpu_type.upper(), case.name, case.framework, model, str(e.rows))
    return (*head, *percents, ranks, f"{100 * e.speed_up:.1f} %")


def _sizes(found: Sequence[Sequence[Compared]]) -> list[tuple[str, ...]]:
    """The mean error of each model by case."""
    lines = []
    for kind in sorted({(one.row.gpu_type, *one.row[:2]) for one in found[0] if one.both}, key=_by_size):
        parts = [
            [one.error for one in part if one.both and (one.row.gpu_type, *one.row[:2]) == kind]
            for part in found
        ]
        gpu_type, model, size = kind
        means = (f"{100 * fmean(part):+.1f} %" if part else "" for part in parts)
        lines.append((gpu_type.upper(), f"{model} {size}", str(len(parts[0])), *means))
    return lines


def _by_size(kind: tuple[str, str, str]) -> tuple[str, str, int]:
    gpu_type, model, size = kind
    return gpu_type, model, list(BERT if model == "bert" else MOE).index(size)


def _memory(found: Sequence[Compared]) -> list[tuple[str, ...]]:
    """The rows in which no plan ran, or none is predicted to fit."""
    return [
        (
            one.row.gpu_type.upper(), f"{one.row.model} {one.row.size}, batch {one.row.global_batch}",
            f"{one.row.nodes} x {one.row.gpus_per_node}",
            "no plan ran" if one.row.iteration_s is None else "runs",
            "none fits" if one.predicted_s is None else "fits",
        )
        for one in found
        if not one.both
    ]  # fmt: skip


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA, help="the table of measured times")
    given = parser.parse_args(arguments)
    rows = read(given.data)
    write_text(PAGE, page(rows, [(case, compared(rows, case)) for case in CASES]))


if __name__ == "__main__":
    main()
