"""One step at a time: the controller's log of a recorded run against the rules of the policy `slurm`.

    python -m experiments.slurm.steps FOLDER...

Before each step, the state is what the log says that it was. So an error of one step does not become an error
of the next ones.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import floor, inf
from pathlib import Path

from policies.slurmctld import (
    Controller,
    FreeNodes,
    Host,
    JobRecord,
    Phases,
    Placement,
    Rules,
    Shape,
    place,
    queue_of,
    run_backfill,
)

from .recorded import (
    RecordedJob,
    RecordedRun,
    fair_share_factors,
    limit_reasons,
    log_lines,
    nodes_of_text,
    read_run,
    seconds,
)

__all__ = ["LogTimes", "StepCheck", "controller_of", "log_times", "record_of", "step_check"]

ALL_NODES = (1 << 16) - 1
JOB = r"JobId=(\d+)(?:_(\d+|\*|\[[^\]]*\]))?(?:\(\d+\))?"
_SUBMIT = re.compile(rf"_slurm_rpc_submit_batch_job: {JOB} InitPrio=(\d+)")
_ALLOCATE = re.compile(rf"sched: Allocate {JOB} NodeList=(\S+)")
_STARTED = re.compile(rf"Started {JOB} in \S+ on (\S+)")
_ENDED = re.compile(rf"(?:_job_complete: {JOB} done|Requeuing {JOB})")
_PREEMPTED = re.compile(rf"preempted {JOB} has been requeued to reclaim resources for JobId=(\d+)")
_OVERDUE = re.compile(rf"Time limit exhausted for {JOB}")
_TEST = re.compile(rf"test for {JOB} Prio=(\d+) Partition=")
_PLAN = re.compile(rf"_dump_job_sched: {JOB} to start at (\S+), end at \S+ on nodes (\S+) in")


@dataclass
class LogTimes:
    """What the log states in thousandths of a second, on the clock of the run: when the controller started,
    and of each job, by its id, when it was submitted (of an array as a whole), its first start and the
    length of its last run.
    """

    controller_s: float = 0.0
    submit_s: dict[str, float] = field(default_factory=dict)
    first_start_s: dict[str, float] = field(default_factory=dict)
    run_s: dict[str, float] = field(default_factory=dict)


def log_times(run: RecordedRun) -> LogTimes:
    """The times of a recorded run that no other export states as exactly."""
    times, starts_s = LogTimes(), dict[str, float]()
    for time_s, message in log_lines(run.folder):
        now = time_s - run.epoch_s
        if "Running as primary controller" in message:
            times.controller_s = now
        elif match := _SUBMIT.search(message):
            times.submit_s[_job_id(match.groups()[:2])] = now
        elif match := (_ALLOCATE.search(message) or _STARTED.search(message)):
            job_id = _job_id(match.groups()[:2])
            starts_s[job_id] = now
            times.first_start_s.setdefault(job_id, now)
        elif match := _ENDED.search(message):
            job_id = _job_id(group for group in match.groups() if group is not None)
            times.run_s[job_id] = now - starts_s.get(job_id, now)
    return times


def record_of(job: RecordedJob) -> JobRecord:
    """A recorded job as the controller sees it."""
    return JobRecord(
        job.job_id,
        job.order,
        (Shape(ALL_NODES, job.nodes, job.gpus_per_node, job.gpus_per_node),),
        job.submit_s,
        job.submit_s,
        job.limit_s,
        (job.partition,),
        job.account,
        job.user,
        job.qos,
        cpus=float(job.nodes),
        array=job.array,
        gpu_type="a100",
    )


def controller_of(run: RecordedRun, host: Host) -> Controller:
    """The controller of a recorded run, all nodes free."""
    rules = Rules(run.site, {node.name: number for number, node in enumerate(run.site.nodes)}, run.epoch_s)
    free = FreeNodes([node.gpus for node in run.site.nodes], [float(node.cpus) for node in run.site.nodes])
    return Controller(rules, free, host, {name: {} for name in run.site.partitions}, Phases())


@dataclass
class StepCheck:
    """What the log says, and what the rules say: `places` and `plans` as (job, of the log, of the rules).

    `plans`: planned starts, seconds since 1970; None where the rules plan none. `starts`: of each job that
    either starts in a cycle of backfill, whether both do. `victims`: of each preemption, by preemptor; of a
    cycle of backfill, all together.
    `reasons` and `factors`: what squeue and sshare printed while the run went on: limits that keep jobs
    waiting, and fair-share factors of users.
    """

    places: list[tuple[str, set[int], set[int]]] = field(default_factory=list)
    plans: list[tuple[str, float, float | None]] = field(default_factory=list)
    starts: list[bool] = field(default_factory=list)
    victims: list[tuple[str, set[str], set[str]]] = field(default_factory=list)
    priorities: list[tuple[str, int, int]] = field(default_factory=list)
    reasons: list[tuple[str, str, str]] = field(default_factory=list)
    factors: list[tuple[str, float, float]] = field(default_factory=list)

    def shares(self, span_s: float = 2.0) -> dict[str, tuple[float, int]]:
        """The share of steps on which both agree and the number of steps, by kind."""
        agreements: dict[str, list[bool]] = {
            "places": [logged == simulated for _, logged, simulated in self.places],
            "plans": [
                simulated is not None and abs(logged - simulated) <= span_s
                for _, logged, simulated in self.plans
            ],
            "starts": self.starts,
            "victims": [logged == simulated for _, logged, simulated in self.victims],
            "priorities": [logged == simulated for _, logged, simulated in self.priorities],
            "reasons": [logged == simulated for _, logged, simulated in self.reasons],
            "factors": [abs(logged - simulated) < 1e-6 for _, logged, simulated in self.factors],
        }
        return {kind: (sum(hits) / max(1, len(hits)), len(hits)) for kind, hits in agreements.items()}


@dataclass
class _Cycle:
    """A cycle of backfill in the log. `waiting_tasks`: of each array, those that have not started by then;
    the log calls all of them by one name, in this order.
    """

    now: float
    waiting_tasks: dict[str, list[str]] = field(default_factory=dict)
    mentions: Counter[str] = field(default_factory=Counter)
    tests: list[tuple[str, int]] = field(default_factory=list)
    plans: list[tuple[str, float]] = field(default_factory=list)
    starts: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    victims: list[tuple[str, str]] = field(default_factory=list)  # and by which job they were preempted


class _Walk:
    """The state of the controller as its log goes on."""

    def __init__(self, run: RecordedRun):
        self.run = run
        self.records = {job.job_id: record_of(job) for job in run.jobs}
        self.controller = controller_of(run, Host(lambda job, placement: 0, lambda job, mode: None))
        self.check = StepCheck()
        self.submitted: dict[str, JobRecord] = {}
        self.calculation_s = inf
        self.started_jobs = set[str]()
        self.preemptors: dict[str, JobRecord] = {}  # of the jobs that are preempted and not gone yet
        self.samples = sorted(run.folder.glob("live-*"), key=lambda folder: -int(folder.name[5:]))

    def look(self, now: float) -> None:
        """Compare the reasons and the factors with the samples that were taken by now."""
        while self.samples and now >= int(self.samples[-1].name[5:]) + self.run.began_s:
            folder = self.samples.pop()
            for job_id, reason in limit_reasons(folder).items():
                job = self.records[job_id]
                own_reason = self.controller.limits.reason(job, job.partitions[0], now)
                self.check.reasons.append((job_id, reason, own_reason))
            if self.run.site.settings.PriorityWeightFairshare:
                factors = self.controller.priorities.factors
                self.check.factors += [
                    (user, factor, factors.get((account, user), -1.0))
                    for (account, user), factor in fair_share_factors(folder).items()
                ]

    def advance(self, now: float) -> None:
        """Calculate priorities as often as it was due."""
        controller = self.controller
        while self.calculation_s <= now:
            waiting_jobs = [job for job in self.submitted.values() if job not in controller.running]
            controller.priorities.recalculate(waiting_jobs, controller.running, floor(self.calculation_s))
            self.calculation_s += self.run.site.settings.PriorityCalcPeriod

    def submit(self, job_id: str, priority: int, now: float) -> None:
        job = self.records.get(job_id)
        if job is not None:
            job.submit_s = job.eligible_s = now
            self.controller.priorities.submit(job, now)
            self.submitted[job_id] = job
            self.compare_priority(job_id, priority)

    def compare_priority(self, job_id: str, priority: int) -> None:
        job = self.submitted.get(job_id)
        if job is not None:
            self.check.priorities.append((job_id, priority, job.priorities[job.partitions[0]]))

    def start(self, job_id: str, nodes: tuple[int, ...], now: float, in_cycle: bool = False) -> None:
        """The log starts a job. In a cycle the place was compared with the others of the cycle."""
        job, controller = self.records.get(job_id), self.controller
        if job is None:
            return
        if not in_cycle:
            usable = controller.usable_nodes(job.partitions[0])
            usable, _ = controller.reservations.open_nodes(job, usable, floor(now), now)
            self.compare_place(job_id, nodes, place(job, controller.free, usable))
        self.started_jobs.add(job_id)
        controller.waiting[job] = None
        controller.adopt(job, tuple((node, job.shapes[0].gpus) for node in nodes), now)

    def compare_place(self, job_id: str, nodes: tuple[int, ...], placement: Placement | None) -> None:
        self.check.places.append((job_id, set(nodes), {node for node, _ in placement or ()}))

    def stop(self, job_id: str, now: float) -> None:
        job = self.records.get(job_id)
        if job is not None and job in self.controller.running:
            self.controller.lose(job, now)
        preemptor = self.preemptors.pop(job_id, None)
        if preemptor is not None and preemptor not in self.preemptors.values():
            preemptor.preempts_until_s = -inf

    def preempt(self, job_id: str, preemptor_id: str, now: float) -> None:
        """The log preempts a job for another one, and perhaps more for the same one."""
        victims = self.check.victims
        if victims and victims[-1][0] == preemptor_id:
            victims[-1][1].add(job_id)
        else:
            victims.append((preemptor_id, {job_id}, self._victims_of(self.records[preemptor_id], now)))
        self.leave(job_id, preemptor_id)

    def leave(self, job_id: str, preemptor_id: str) -> None:
        """A job that is preempted leaves its nodes; the preemptor waits for that."""
        self.preemptors[job_id] = self.records[preemptor_id]
        self.records[preemptor_id].preempts_until_s = inf
        self.records[job_id].completing = True

    def _victims_of(self, job: JobRecord, now: float) -> set[str]:
        """The jobs that the rules preempt for a job that the main scheduler comes to."""
        controller = self.controller
        controller.now = now
        usable = controller.usable_nodes(job.partitions[0])
        candidates = controller.preemptable(job, job.partitions[0], usable)
        victims = controller.preemption.victims(job, candidates, controller.free, usable)
        return set() if victims is None else {str(victim.key) for victim in victims.jobs}

    def compare(self, cycle: _Cycle) -> None:
        """Run one cycle of the rules from the same state, and compare plans and starts."""
        twin, copies = self._twin(cycle)
        started: dict[str, Placement] = {}

        def start(job: JobRecord, placement: Placement) -> int:
            started[str(job.key)] = placement
            return 0

        victims = set[str]()
        twin.host = Host(start, lambda job, mode: victims.add(str(job.key)))
        twin.now = cycle.now
        plans = run_backfill(queue_of(twin.waiting, twin.rules), twin, floor(cycle.now))
        planned = {str(plan.job.key): plan.start_s + self.run.epoch_s for plan in plans}
        self.check.plans += [
            (job, start_s, planned.get(job)) for job, start_s in cycle.plans if job in copies
        ]
        if cycle.victims or victims:
            preemptors = "+".join(sorted({preemptor for _, preemptor in cycle.victims}))
            self.check.victims.append((preemptors, {job for job, _ in cycle.victims}, victims))
        for job_id, preemptor_id in cycle.victims:
            self.leave(job_id, preemptor_id)
        logged_starts = dict(cycle.starts)
        self.check.starts += [
            job in started and job in logged_starts for job in sorted(logged_starts.keys() | started.keys())
        ]
        for job_id, nodes in cycle.starts:
            if job_id in copies:
                self.compare_place(job_id, nodes, started.get(job_id))

    def _twin(self, cycle: _Cycle) -> tuple[Controller, dict[str, JobRecord]]:
        """A controller in the same state, and its waiting jobs: those that the log tests in the cycle."""
        twin = controller_of(self.run, self.controller.host)
        for job in self.controller.running:
            copy = replace(job)
            twin.waiting[copy] = None
            twin.adopt(copy, job.placement, job.start_s)
            copy.completing = job.completing
        copies: dict[str, JobRecord] = {}
        for job_id, priority in cycle.tests:
            waiting_job = self.records.get(job_id)
            if waiting_job is None or job_id in copies or waiting_job in self.controller.running:
                continue
            copies[job_id] = copy = replace(waiting_job, priorities={waiting_job.partitions[0]: priority})
            twin.waiting[copy] = None
        return twin, copies

    def tasks_of(self, cycle: _Cycle) -> _Cycle:
        """The cycle with the tasks of arrays that wait."""
        for job in self.run.jobs:
            if job.array is not None and job.job_id not in self.started_jobs:
                cycle.waiting_tasks.setdefault(job.array, []).append(job.job_id)
        return cycle


def _job_id(groups: Iterable[str | None], cycle: _Cycle | None = None) -> str:
    """The id of a job or a task, from the groups of `JOB`; of `array_*` that of the task last mentioned."""
    number, task, *_ = [*groups, None, None]
    if task is None:
        return str(number)
    if cycle is not None and not task.isdigit():
        tasks, place = cycle.waiting_tasks.get(str(number), []), cycle.mentions[str(number)] - 1
        return tasks[place] if 0 <= place < len(tasks) else str(number)
    return f"{number}_{task}"


def step_check(run: RecordedRun) -> StepCheck:
    """Follow the log of a run, and compare each step."""
    walk = _Walk(run)
    cycle: _Cycle | None = None
    for time_s, message in log_lines(run.folder):
        now = time_s - run.epoch_s
        walk.advance(now)
        walk.look(now)
        if "_attempt_backfill: beginning" in message:
            cycle = walk.tasks_of(_Cycle(now))
        elif "completed testing" in message and cycle is not None:
            walk.compare(cycle)
            tested_jobs = {job_id for job_id, _ in cycle.tests}
            for job_id, nodes in cycle.starts:
                walk.start(job_id, nodes, now, in_cycle=job_id in tested_jobs)
            cycle = None
        elif "no jobs to backfill" in message:
            cycle = None
        elif cycle is None or not _note_in_cycle(walk, cycle, message):
            _follow(walk, message, now)
    return walk.check


def _note_in_cycle(walk: _Walk, cycle: _Cycle, message: str) -> bool:
    """Note what a line says of the present cycle. Returns whether it says anything."""
    if match := _TEST.search(message):
        cycle.mentions[match[1]] += 1
        job_id = _job_id(match.groups()[:2], cycle)
        cycle.tests.append((job_id, int(match[3])))
        walk.compare_priority(job_id, int(match[3]))
    elif match := _PLAN.search(message):
        cycle.plans.append((_job_id(match.groups()[:2], cycle), seconds(match[3])))
    elif match := _STARTED.search(message):
        cycle.starts.append((_job_id(match.groups()[:2]), nodes_of_text(match[3])))
    elif match := _PREEMPTED.search(message):
        cycle.victims.append((_job_id(match.groups()[:2]), match[3]))
    else:
        return False
    return True


def _follow(walk: _Walk, message: str, now: float) -> None:
    """What a line outside of cycles changes."""
    if "_read_last_decay_ran" in message:
        walk.calculation_s = now
    elif match := _SUBMIT.search(message):
        walk.submit(_job_id(match.groups()[:2]), int(match[3]), now)
    elif match := (_ALLOCATE.search(message) or _STARTED.search(message)):
        walk.start(_job_id(match.groups()[:2]), nodes_of_text(match[3]), now)
    elif match := _PREEMPTED.search(message):
        walk.preempt(_job_id(match.groups()[:2]), match[3], now)
    elif match := _OVERDUE.search(message):
        walk.records[_job_id(match.groups()[:2])].completing = True
    elif match := _ENDED.search(message):
        walk.stop(_job_id(group for group in match.groups() if group is not None), now)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    folders = parser.parse_args().folders
    print(
        "| run | places | plans within 2 s | starts in a cycle | victims | priorities | reasons | factors |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for folder in folders:
        shares = step_check(read_run(folder)).shares()
        cells = [f"{share:.0%} of {count:,}" if count else "" for share, count in shares.values()]
        print(f"| {folder.name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
