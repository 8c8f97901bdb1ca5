"""Measures what choosing a plan by prediction costs; run it with `--help` for its usage.

A *choice* is a group of measured plans for the same work: the same source, model, sequence length, precision,
framework, kind of node, number of GPUs and global batch. Its *regret* is the measured time of the plan
predicted best over that of the plan measured best, less one. A plan that was measured several times (in
releases of its software) has the mean of its times. Plans that the model does not reproduce at one site
(`NOT_REPRODUCED`; docs/accuracy.md says why) count in the line of their table and in "all", and are left
out of the last line.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from itertime.calibration import MeasuredRun, RunSet, read_table
from itertime.commandline import run_task
from itertime.spec import Framework, Plan, Site

from .arguments import tables_parser

__all__ = [
    "CAUSES",
    "Choice",
    "Regret",
    "causes",
    "choices_of",
    "main",
    "regret_of",
    "regrets",
    "report",
    "reproduced",
    "summary",
    "work_of",
]

PROGRAM = "python -m experiments.evidence.choose_plans"
EXAMPLE = f"""\
Example:

    cd ../shared/data; {PROGRAM} iterations/*.csv modern_gpus/iterations/*.csv
"""
NOT_REPRODUCED = {"hf-h100": 256}
"""Sites where pipelines and more GPUs than this follow no law of the model: docs/accuracy.md."""
LEAST_REGRET = 0.01
"""Of the choices that `causes` shows."""
CAUSES = ["choice", "predicted best", "measured best", "regret %", "error of the first %", "of the second %"]
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Choice:
    """Plans for the same work with their measured and predicted seconds; `label` names the work."""

    label: str
    source: str
    profile: str
    framework: str
    plans: tuple[Plan, ...]
    measured_s: Array
    predicted_s: Array

    @property
    def chosen(self) -> int:
        """The plan predicted best."""
        return int(self.predicted_s.argmin())

    @property
    def regret(self) -> float:
        """How much longer the plan predicted best took than the best one, as a share."""
        return float(self.measured_s[self.chosen] / self.measured_s.min() - 1)

    def only(self, rows: Sequence[int]) -> Choice | None:
        """The choice among some of the plans; None among fewer than two."""
        if len(rows) < 2:
            return None
        plans = tuple(self.plans[row] for row in rows)
        return replace(
            self, plans=plans, measured_s=self.measured_s[rows], predicted_s=self.predicted_s[rows]
        )


@dataclass(frozen=True)
class Regret:
    """Regret over groups, in percent: the mean, the 95th percentile and the largest."""

    groups: int
    plans: int
    mean: float
    p95: float
    most: float


def work_of(run: MeasuredRun) -> tuple[Any, ...]:
    """What the runs of one choice have in common: all but their plan."""
    system = replace(run.system, name="any")
    return replace(run.model, name="any"), system, run.plan.precision, run.plan.gpus, run.plan.global_batch


def choices_of(runs: RunSet, predicted_s: Array) -> list[Choice]:
    """The choices of at least two different plans among runs, with their predicted seconds."""
    groups: dict[tuple[Any, ...], dict[Plan, list[int]]] = {}
    for row, (cells, run) in enumerate(zip(runs.cells, runs.runs, strict=True)):
        groups.setdefault((cells["site"], *work_of(run)), {}).setdefault(run.plan, []).append(row)
    found = []
    for key, plans in groups.items():
        if len(plans) < 2:
            continue
        run = runs.runs[next(iter(plans.values()))[0]]
        label = f"{run.model.layers} layers, h {run.model.hidden}, {run.plan.gpus} GPUs"
        found.append(
            Choice(
                label=label if run.plan.precision == "bf16" else f"{label}, {run.plan.precision}",
                source=key[0] or "",
                profile=run.profile.name,
                framework=run.system.framework,
                plans=tuple(plans),
                measured_s=np.array([runs.measured_s[rows].mean() for rows in plans.values()]),
                predicted_s=np.array([predicted_s[rows].mean() for rows in plans.values()]),
            )
        )
    return found


def regret_of(choices: Iterable[Choice]) -> Regret | None:
    """The regret over choices; None without any."""
    members = list(choices)
    if not members:
        return None
    found = 100 * np.array([each.regret for each in members])
    plans = sum(len(each.plans) for each in members)
    p95 = float(np.percentile(found, 95))
    return Regret(len(members), plans, float(found.mean()), p95, float(found.max()))


def reproduced(choice: Choice) -> Choice | None:
    """The choice among the plans that the model reproduces; None among fewer than two."""
    most = NOT_REPRODUCED.get(choice.source)
    if most is None:
        return choice
    return choice.only([row for row, plan in enumerate(choice.plans) if plan.pp == 1 and plan.gpus <= most])


def regrets(
    files: Sequence[str | Path], frameworks: Mapping[str, Framework] | None = None
) -> dict[str, list[Choice]]:
    """The choices of every table that has one, with neutral constants of the site; `frameworks` replace those
    shipped, by name. Raises TableError for a malformed file.
    """
    found = {}
    for path in map(Path, files):
        runs = RunSet.of(read_table(path)).on_measured_chips()
        choices = choices_of(runs, runs.evaluate(Site(), frameworks)[0])
        if choices:
            found[path.stem] = choices
    return found


def summary(found: Mapping[str, Sequence[Choice]]) -> dict[str, Regret]:
    """The regret of every table, of all, and of all that the model reproduces."""
    everything = [choice for choices in found.values() for choice in choices]
    kept = [each for each in map(reproduced, everything) if each is not None]
    groups = {**found, "all": everything, "all reproduced": kept}
    return {name: each for name, each in ((name, regret_of(group)) for name, group in groups.items()) if each}


def report(found: Mapping[str, Sequence[Choice]], largest: int = 0) -> str:
    """The regret of every table and of all together, with the `largest` single ones below."""
    lines = [f"{'':32}{'groups':>8}{'plans':>8}{'mean %':>9}{'p95 %':>9}{'most %':>9}"]
    for name, each in summary(found).items():
        lines.append(f"{name:32}{each.groups:8}{each.plans:8}{each.mean:9.1f}{each.p95:9.1f}{each.most:9.1f}")
    everything = [choice for choices in found.values() for choice in choices]
    worst = sorted(everything, key=lambda choice: -choice.regret)[:largest]
    for choice in worst:
        chosen, best = choice.plans[choice.chosen], choice.plans[int(choice.measured_s.argmin())]
        lines.append(
            f"{choice.source}, {choice.label}: {chosen.label} +{100 * choice.regret:.0f} % over {best.label}"
        )
    return "\n".join(lines)


def causes(found: Mapping[str, Sequence[Choice]]) -> list[list[str]]:
    """The cells of every choice whose regret is at least `LEAST_REGRET`, by table, the largest first: what
    was chosen and what was best, and by how many percent either was predicted too short or too long.
    """
    rows = []
    for name, choices in found.items():
        for choice in sorted(choices, key=lambda choice: -choice.regret):
            if choice.regret < LEAST_REGRET:
                break
            errors = 100 * (choice.predicted_s / choice.measured_s - 1)
            chosen, best = choice.chosen, int(choice.measured_s.argmin())
            labels = [_label(choice.plans[place]) for place in (chosen, best)]
            figures = [f"{100 * choice.regret:.1f}", f"{errors[chosen]:+.1f}", f"{errors[best]:+.1f}"]
            rows.append([f"{name}: {choice.label}", *labels, *figures])
    return rows


def _label(plan: Plan) -> str:
    return plan.label if plan.zero_group is None else f"{plan.label} groups of {plan.zero_group}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns its exit code."""
    parser = tables_parser(
        PROGRAM,
        "Measure by how much the plan predicted best is slower than the one measured best.",
        EXAMPLE,
    )
    parser.add_argument("--largest", type=int, default=10, help="single regrets to show; default: 10")
    options = parser.parse_args(arguments)
    return run_task(lambda: _print(regrets(options.files), options.largest))


def _print(found: Mapping[str, Sequence[Choice]], largest: int) -> None:
    print(report(found, largest))
    for cells in [CAUSES, *causes(found)]:
        print(" | ".join(cells))


if __name__ == "__main__":
    sys.exit(main())
