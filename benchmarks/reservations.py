"""What decisions with reservations look at, and their CPU time over that of `srtf`.

python benchmarks/reservations.py --jobs 1500 --load 1
python benchmarks/reservations.py --trace cluster04.csv --memory-headroom 0
python benchmarks/reservations.py --jobs 300 --load 1 --plain

Generated LLM jobs with deadlines (`clustersim trace generate`) on 1,024 GPUs, or the jobs of a trace. Per
decision: jobs that run, reservations, reservations looked at anew, and steps to other GPUs computed. Times
are process time inside the policy, with the share of admission. With `--plain` a second run has no shortcut:
each decision looks at every reservation and computes every step. Its schedule has to be the same.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import process_time
from typing import Any
from unittest.mock import patch

from clustersim.runs import Trace, find_policy, run
from clustersim.scheduler import Scheduler
from policies.reservation import SpareGpus, demand, marginal_return
from policies.reservation.agenda import Timetable
from policies.reservation.following import _Following
from policies.reservation.refilling import _Attempt
from traces.synthetic import Recipe, generate

Counts = defaultdict[str, float]
POLICIES = ("elasticflow", "vtrain-aware")


def timed(policy: str, counts: Counts) -> type[Scheduler]:
    """The policy, with its process time and the jobs at its decisions added to `counts`."""
    base = find_policy(policy)

    def counted(name: str) -> Callable[..., Any]:
        real = getattr(base, name)

        def call(self: Scheduler, *arguments: Any) -> Any:
            began = process_time()
            answer = real(self, *arguments)
            spent = process_time() - began
            counts["seconds"] += spent
            if name == "admit":
                counts["admission"] += spent
            if name == "schedule":
                counts["decisions"] += 1
                counts["running"] += len(arguments[-1].running)
            return answer

        return call

    methods = {name: counted(name) for name in ("admit", "schedule")}
    return type(base.__name__, (base,), {**methods, "__doc__": base.__doc__})


@contextmanager
def counting(counts: Counts) -> Iterator[None]:
    """Count the reservations at decisions, and what is looked at."""
    enter, agenda = Timetable._enter, Timetable.agenda
    next_step = marginal_return._StepsOnOneType._next_step

    def entering(self: Timetable, *arguments: Any) -> bool:
        counts["looked at"] += 1
        return enter(self, *arguments)

    def agenda_of(self: Timetable, now: float) -> Any:
        counts["reservations"] += len(self.order)
        return agenda(self, now)

    def step(self: Any, job: Any) -> Any:
        counts["steps"] += 1
        return next_step(self, job)

    with (
        patch.object(Timetable, "_enter", entering),
        patch.object(Timetable, "agenda", agenda_of),
        patch.object(marginal_return._StepsOnOneType, "_next_step", step),
    ):
        yield


@contextmanager
def plain() -> Iterator[None]:
    """Without shortcuts."""
    agenda = Timetable.agenda

    def of_all(self: Timetable, now: float) -> Any:
        for job in self.order:
            self.note_change(job)
        return agenda(self, now)

    with (
        patch.object(Timetable, "agenda", of_all),
        patch.object(marginal_return, "_StepsOnOneType", marginal_return._Steps),
        patch.object(_Following, "stands", lambda self: False),
        patch.object(SpareGpus, "is_tied", lambda self, job: False),
        patch.object(demand, "_AHEAD", 0.0),
        patch.object(_Attempt, "_differs", lambda self, demand, known: True),
        patch.object(_Attempt, "_full_before", lambda self, demand: 0.0),
    ):
        yield


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--jobs", type=int, default=1500)
    parser.add_argument("--load", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trace", type=Path, help="a trace to run in place of a generated one")
    parser.add_argument("--memory-headroom", type=float, default=0.1)
    parser.add_argument("--plain", action="store_true", help="a second run without shortcuts")
    options = parser.parse_args(arguments)
    if options.trace is None:
        recipe = Recipe(jobs=options.jobs, load=options.load, planner="data-parallel", seed=options.seed)
        trace = Trace.of(generate(recipe)[0])
    else:
        trace = Trace.read(options.trace)

    def simulate(policy: str) -> tuple[Any, Counts]:
        counts: Counts = defaultdict(float)
        with counting(counts):
            result = run(trace, timed(policy, counts), bound="none", memory_headroom=options.memory_headroom)
        return result, counts

    simulate("srtf")  # predictions of iteration times are cached from then on
    _, srtf = simulate("srtf")
    print(f"{'':<14}{'decisions':>10}{'running':>9}{'reserved':>10}{'looked at':>11}{'steps':>7}{'CPU s':>8}"
          f"{'admission':>11}{'x srtf':>8}{'x plain':>9}")  # fmt: skip
    for policy in POLICIES:
        result, counts = simulate(policy)
        share = ""
        if options.plain:
            with plain():
                other, slow = simulate(policy)
            assert other.jobs == result.jobs, f"{policy}: the schedule is another one without shortcuts"
            share = f"{counts['seconds'] / slow['seconds']:.2f}"
        n = counts["decisions"]
        each = [counts[key] / n for key in ("running", "reservations", "looked at", "steps")]
        cpu_s, admission = counts["seconds"], counts["admission"] / counts["seconds"]
        print(f"{policy:<14}{n:>10,.0f}{each[0]:>9.1f}{each[1]:>10.1f}{each[2]:>11.1f}{each[3]:>7.1f}"
              f"{cpu_s:>8.1f}{admission:>11.0%}{cpu_s / srtf['seconds']:>8.1f}{share:>9}",
              flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
