"""Arena's decisions in whole runs against a plain rule that looks at every job, as `docs/policies/arena.md`
words it.
"""

import math
from random import Random
from typing import Any

import pytest

from clustersim.overheads import Overheads
from clustersim.scheduler import JobView, Proposal, State
from policies.arena import Arena
from tests.builders import MixedBench
from tests.effort import rotated
from traces.job import Job

Cell = tuple[str, int]
TYPES = ("new", "old")


class PlainArena:
    """One decision. `held`: the cells that jobs are to have, at first those of the running jobs."""

    def __init__(self, policy: Arena, state: State):
        self.policy, self.state = policy, state
        self.held = {job: (str(job.gpu_type), job.gpus) for job in state.running}
        self.settling = state.unsettled()

    def value(self, job: JobView, cell: Cell) -> float:
        return job.requested * job.rate(cell[1], cell[0]) / job.rate(job.requested)

    def cells(self, job: JobView) -> list[Cell]:
        factor = 2**self.policy.spread
        sizes = [(name, n) for name in TYPES for n in job.sizes_on(name)]
        return [(name, n) for name, n in sizes if job.requested <= n * factor and n <= job.requested * factor]

    def free(self, name: str) -> int:
        return self.state.in_service_by_type()[name] - sum(n for at, n in self.held.values() if at == name)

    def first_cells(self, job: JobView) -> list[Cell]:
        return [
            (name, n)
            for name, n in self.cells(job)
            if n <= job.requested or n == min(m for at, m in self.cells(job) if at == name)
        ]

    def decide(self) -> dict[JobView, Cell]:
        waiting = sorted(self.state.pending, key=lambda job: job.order)
        for job in waiting[: self.policy.waiting]:
            if not self.start(job):
                self.make_room(job)
        for job in waiting:
            if job not in self.held:
                self.start(job)
        while self.grow():
            pass
        return {job: cell for job, cell in self.held.items() if job not in self.settling}

    def start(self, job: JobView) -> bool:
        free = [cell for cell in self.first_cells(job) if cell[1] <= self.free(cell[0])]
        if free:
            self.held[job] = max(free, key=lambda cell: (self.value(job, cell), -cell[1]))
        return bool(free)

    def make_room(self, job: JobView) -> None:
        found: list[tuple[float, Cell, dict[JobView, Cell]]] = []
        for cell in self.first_cells(job):
            changes = self.room(cell)
            if changes is None:
                continue
            loss = sum(self.value(j, self.held[j]) - self.value(j, c) for j, c in changes.items())
            gain = self.value(job, cell) - loss
            pause = sum(self.value(j, self.held[j]) * j.change_cost_s(c[1], c[0]) for j, c in changes.items())
            if gain > 0 and gain * job.remaining(cell[1], cell[0]) > pause:
                found.append((gain, cell, changes))
        if found:
            _, cell, changes = max(found, key=lambda entry: entry[0])
            self.held |= changes
            self.held[job] = cell

    def room(self, cell: Cell) -> dict[JobView, Cell] | None:
        before, changed = dict(self.held), {}
        try:
            while (missing := cell[1] - self.free(cell[0])) > 0:
                steps = []
                for job, (name, n) in before.items():
                    if name != cell[0] or job in changed or not job.running or job in self.settling:
                        continue
                    for to, m in self.cells(job):
                        freed = n - m if to == name else n
                        if freed > 0 and (to == name or m <= self.free(to)):
                            loss = self.value(job, (name, n)) - self.value(job, (to, m))
                            steps.append((loss / min(freed, missing), job.order, -m, to, job))
                if not steps or len(changed) == self.policy.depth:
                    return None
                _, _, m, to, job = min(steps, key=lambda step: step[:4])
                self.held[job] = changed[job] = (to, -m)
            return changed
        finally:
            self.held = before

    def grow(self) -> bool:
        steps = []
        for job, (name, n) in self.held.items():
            for cell in self.cells(job):
                taken = cell[1] - (n if cell[0] == name else 0)
                more = self.value(job, cell) - self.value(job, (name, n))
                sooner = self.end_s(job, cell) <= self.end_s(job, (name, n))
                if more > 0 and 0 < taken <= self.free(cell[0]) and sooner and job not in self.settling:
                    steps.append((-more / taken, job.order, len(steps), job, cell))
        if steps:
            *_, job, cell = min(steps)
            self.held[job] = cell
        return bool(steps)

    def end_s(self, job: JobView, cell: Cell) -> float:
        left_s = job.work_left / job.rate(cell[1], cell[0])
        return left_s + (job.change_cost_s(cell[1], cell[0]) if job.running else 0.0)


class WatchedArena(Arena):
    """Holds every decision against the plain rule, and counts decisions and jobs that make way."""

    compared = shrunk = 0

    def schedule(self, state: State) -> Proposal:
        expected = PlainArena(self, state).decide()
        before = {job: cell_value(job, str(job.gpu_type), job.gpus) for job in state.running}
        asked: list[Any] = []
        run = Proposal.run

        def noted(proposal: Proposal, wanted: Any, **options: bool) -> Any:
            asked.append(wanted)
            return run(proposal, wanted, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Proposal, "run", noted)
            proposal = super().schedule(state)
        if asked:
            assert {job: (gpu_type, n) for job, n, gpu_type in asked[0]} == expected
            after = {job: cell_value(job, gpu_type, n) for job, n, gpu_type in asked[0]}
            settling = state.unsettled()
            assert {job for job in before if job not in settling} <= set(after)
            assert sum(after.values()) >= sum(v for j, v in before.items() if j not in settling) - 1e-9
            self.compared += 1
            self.shrunk += any(after.get(job, math.inf) < value for job, value in before.items())
        return proposal


def cell_value(job: JobView, gpu_type: str, gpus: int) -> float:
    return job.requested * job.rate(gpus, gpu_type) / job.rate(job.requested)


def tables(random: Random) -> dict[str, Any]:
    """Speeds of three models on two types; `z` needs more GPUs on the old one."""
    found: dict[str, Any] = {name: {} for name in TYPES}
    for model in "xyz":
        rate = random.uniform(0.5, 3)
        for name, factor in (("new", 1.0), ("old", random.uniform(0.3, 0.9))):
            curve, speed = {}, rate * factor
            for n in (1, 2, 4, 8):
                if n > 1 or model != "z":
                    curve[n] = speed
                speed *= random.uniform(1.3, 1.95)
            found[name][model, 8] = curve
    return found


@pytest.mark.parametrize(("seed", "restart_s"), rotated(range(5), [0.0, 20.0]))
def test_every_decision_is_that_of_the_plain_rule(seed: int, restart_s: float) -> None:
    random, now, jobs = Random(seed), 0.0, []
    speeds = tables(random)
    for i in range(50):
        now += random.choice((0.0, random.expovariate(1 / 60)))
        model = random.choice("xyz")
        asked, work = random.choice((2, 4, 8)), random.uniform(50, 1500)
        jobs.append(Job(str(i), now, model=model, global_batch=8, gpus=asked, iterations=work))
    policy = WatchedArena(
        spread=random.choice((1, 2)), depth=random.choice((1, 2, 3)), waiting=random.choice((1, 8))
    )
    charged = Overheads(launch_s=restart_s, plain_restart_s=restart_s)
    bench = MixedBench([("new", 2, 4), ("old", 3, 4)], speeds, overheads=charged, placement="any")
    outcome = bench.run(jobs, policy)
    assert {record.state for record in outcome.records} == {"finished"}
    assert sum(record.preemptions for record in outcome.records) == 0
    assert policy.compared > 40
    assert policy.shrunk > 0
