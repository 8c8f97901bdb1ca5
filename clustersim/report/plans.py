"""The training plans that jobs used, their GPU time, and the accuracy of their iteration times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from clustersim.analysis import GpuTime
from clustersim.records import PlanKey, PlanRecord, spread_words

from .numbers import duration
from .runs import Named

__all__ = ["PlanRow", "accuracy", "plan_rows"]


@dataclass(frozen=True)
class PlanRow:
    """One plan: the runs that used it, with GPU-hours, and the cells of its row.

    Cells: model, global batch, GPUs, tp, pp, dp, micro-batch, the rest of the plan, time per iteration, the
    range that holds nine in ten measured times, MFU, memory, shares of bubble and of communication.
    `spread`: the times between which nine in ten iterations of one job lie, as its samples differ in length;
    empty where all take equally long. `options`: those of the plan, as a trace states them.
    """

    used: tuple[tuple[Named, str], ...]
    gpu_h: float
    cells: tuple[str, ...]
    spread: str
    options: str


def plan_rows(times: Sequence[tuple[Named, GpuTime | None]]) -> list[PlanRow]:
    """Every plan of any run, in order of model, batch and GPUs."""
    records: dict[PlanKey, PlanRecord] = {}
    uses_of_plan: dict[PlanKey, list[tuple[Named, float]]] = {}
    for named_run, time in times:
        for record in named_run.run.plans:
            records.setdefault(record.key, record)
            held = 0.0 if time is None else time.by_plan.get(record.key, 0.0)
            uses_of_plan.setdefault(record.key, []).append((named_run, held / 3600))
    return [
        PlanRow(
            tuple((named_run, f"{gpu_h:,.0f}") for named_run, gpu_h in uses_of_plan[key]),
            fsum(gpu_h for _, gpu_h in uses_of_plan[key]),
            _cells(records[key]),
            spread_words(records[key]),
            key.plan_options,
        )
        for key in sorted(records, key=lambda key: (key.model, key.global_batch, key.seq_len or 0, *key[3:]))
    ]


def _cells(record: PlanRecord) -> tuple[str, ...]:
    words = record.plan.split()
    numbers = [_number(words, name) for name in ("tp", "pp", "dp", "mb")]
    other_words = [word for word in words if not any(_is(word, name) for name in ("tp", "pp", "dp", "mb"))]
    batch = f"{record.global_batch:,}" + (f" × {record.seq_len:,} tokens" if record.seq_len else "")
    comm = record.tp_comm_s + record.pp_comm_s + record.dp_comm_s
    gpus = f"{record.gpus:,}"
    if record.plan_gpus < record.gpus:
        gpus = f"{record.plan_gpus:,} of {gpus}"
    if record.gpu_type:
        gpus += f" {record.gpu_type}"
    other_words += [word for word in (record.framework,) if word]
    return (
        record.model, batch, gpus, *numbers, " ".join(other_words),
        duration(record.iteration_s), _range(record),
        f"{100 * record.mfu:.1f} %", f"{record.memory_gb:.0f} GB", _share(record.bubble_s, record),
        _share(comm, record),
    )  # fmt: skip


def _number(words: Sequence[str], name: str) -> str:
    return next((word.removeprefix(name) for word in words if _is(word, name)), "–")


def _is(word: str, name: str) -> bool:
    return word.startswith(name) and word.removeprefix(name).isdigit()


def _range(record: PlanRecord) -> str:
    if record.low_s is None or record.high_s is None:
        return "–"
    return f"{duration(record.low_s)} to {duration(record.high_s)}"


def _share(part_s: float, record: PlanRecord) -> str:
    return f"{100 * part_s / record.iteration_s:.1f} %"


def accuracy(time: GpuTime | None, plans: Sequence[PlanRecord]) -> str:
    """The range of the ratio of measured to predicted iteration times, averaged over plans by GPU time."""
    weights: Mapping[PlanKey, float] = time.by_plan if time is not None else {}
    known_errors, unknown = [], []
    for plan in plans:
        weight = weights.get(plan.key, 0.0)
        if plan.low_s is not None and plan.high_s is not None and weight > 0:
            known_errors.append((weight, plan.low_s / plan.iteration_s, plan.high_s / plan.iteration_s))
        elif weight > 0:
            unknown.append((weight, plan.gpu_type))
    known_gpu_h = fsum(weight for weight, _, _ in known_errors)
    if not known_gpu_h:
        return "no prediction with a known accuracy was used"
    low, high = (fsum(row[0] * row[i] for row in known_errors) / known_gpu_h for i in (1, 2))
    text = (
        f"nine in ten measured iterations of such plans take {low:.2f} to {high:.2f} times the predicted time"
    )
    if unknown:
        unknown_gpu_h = fsum(weight for weight, _ in unknown)
        types = ", ".join(dict.fromkeys(name for _, name in unknown if name))
        where = f", on {types}" if types else ""
        share = unknown_gpu_h / (known_gpu_h + unknown_gpu_h)
        text += f"; of {100 * share:.0f} % of the time{where}, no accuracy is known"
    return text
