"""Slurm: its main scheduler, backfill, priorities, limits, preemption and reservations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clustersim.scheduler import Cluster, JobView, PolicyError, Proposal, Scheduler, State
from clustersim.sites import Partition, SiteNode, SlurmSite, node_numbers, site_of
from policies.slurmctld import (
    DEFAULT_QOS,
    UNLIMITED_S,
    Controller,
    FreeNodes,
    Host,
    JobRecord,
    Limits,
    Phases,
    Placement,
    Rules,
    Shape,
    nodes_in,
    phases_of_start,
)
from policies.toolkit.parameters import number

__all__ = ["Slurm"]

LEAD_S = 10
"""How long before its first job a controller starts, at most. Measured: 2 to 10 s in 28 of 32 runs. A log
that begins with an empty cluster begins with its controller.
"""

_LONGEST_PHASE_S = 86400.0

EVERY_NODE = "all"
"""The partition of a site that none is stated for."""


class Slurm(Scheduler):
    """What a controller of Slurm 22.05 does with the jobs, by the rules of a site.

    slurm.conf(5), sched_config and the pages on priorities, limits, preemption and reservations of Slurm's
    documentation; the modules of `policies.slurmctld` cite them rule by rule. `site` is a site as in
    site.yaml (`clustersim.sites`): nodes, partitions, QOS, associations, reservations, settings. Without one,
    Slurm's defaults hold on one partition of all nodes: order of submission, and backfill.

    The controller acts at ticks of its timers, not at once: `main_phase_s`, `backfill_phase_s`,
    `priority_phase_s` and `limits_phase_s` say when they first go off, in seconds on the trace's clock (less
    whole periods). `epoch_s` is the time at which that clock shows 0, in seconds since 1970: reservations
    state such times, and planned starts depend on it.

    A job's limit is its time limit, else its user's estimate, else that of its partition; at most MaxTime. A
    job for a part of a GPU gets a whole one.
    """

    def __init__(
        self,
        site: SlurmSite | Mapping[str, Any] | None = None,
        main_phase_s: float = 0.0,
        backfill_phase_s: float = 0.5,
        priority_phase_s: float = 0.0,
        limits_phase_s: float = 0.0,
        epoch_s: float = 0.0,
    ):
        if site is not None and not isinstance(site, SlurmSite | Mapping):
            raise ValueError(f"site={site!r:.80}: must be a site as in site.yaml, a mapping")
        self.site = site
        self.main_phase_s = number("main_phase_s", main_phase_s, minimum=0)
        self.backfill_phase_s = number("backfill_phase_s", backfill_phase_s, minimum=0)
        self.priority_phase_s = number("priority_phase_s", priority_phase_s, minimum=-_LONGEST_PHASE_S)
        self.limits_phase_s = number("limits_phase_s", limits_phase_s, minimum=0)
        self.epoch_s = number("epoch_s", epoch_s, minimum=0)
        self._rules: Rules | None = None
        if site is not None:
            known_site = site if isinstance(site, SlurmSite) else site_of(site)
            self._rules = Rules(known_site, node_numbers(known_site), self.epoch_s)
        preempts = self._rules is not None and self._rules.settings.PreemptType != "preempt/none"
        self.replays_preemptions = not preempts
        self._controller: Controller | None = None
        self._records: dict[JobView, JobRecord] = {}
        self._pools: dict[str, int] = {}  # the nodes of each GPU type
        self._proposal: Proposal | None = None
        self._noted: dict[JobView, str] = {}
        self._submitted: list[JobRecord] = []  # since the last decision

    @classmethod
    def timer_phases(cls, count: int) -> list[dict[str, float]]:
        return [cls.phases_from(-(number / count + number * 7 % LEAD_S)) for number in range(count)]

    @staticmethod
    def phases_from(start_s: float) -> dict[str, float]:
        """The phases of a controller that starts at `start_s` on the trace's clock, as parameters."""
        phases = phases_of_start(start_s)
        return {
            "main_phase_s": phases.main_s,
            "backfill_phase_s": phases.backfill_s,
            "priority_phase_s": phases.priority_s,
            "limits_phase_s": phases.limits_s,
        }

    def refusal(self, job: JobView) -> str:
        if self._rules is None:
            return ""
        unknown = [name for name in job.partitions if name not in self._rules.partitions]
        if unknown:
            return f"the site has no partition {unknown[0]}"
        record = self._record(job, self._rules, {"": -1})
        limits, rules = Limits(self._rules), self._rules
        jobs = self._jobs() if limits.of_submissions else ()
        reasons = [
            rules.barred(name, record.account, record.qos, record.nodes)
            or limits.never(record, name)
            or limits.refused(record, name, jobs)
            for name in record.partitions
        ]
        if all(reasons):
            return reasons[0]
        self._submitted.append(record)
        return ""

    def _jobs(self) -> list[JobRecord]:
        """The jobs that wait or run, and those that were submitted since the last decision."""
        controller = self._controller
        return [*self._submitted, *(() if controller is None else (*controller.waiting, *controller.running))]

    def admit(self, job: JobView, state: State) -> bool:
        controller = self._controller_for(state)
        record = self._record(job, controller.rules, self._pools)
        nodes = [controller.rules.nodes_of[name] for name in record.partitions]
        return any(_ever_fits(shape, state.cluster, mask) for shape in record.shapes for mask in nodes)

    def schedule(self, state: State) -> Proposal:
        controller = self._controller_for(state)
        self._proposal = proposal = state.proposal()
        self._hear(state, controller)
        controller.advance(state.now)
        wake_s = controller.wake_s(state.now)
        if wake_s < float("inf"):
            proposal.wake_at = max(wake_s, state.now)
        for record in controller.waiting:
            job = record.key
            assert isinstance(job, JobView)
            if record.over_limit and self._noted.get(job) != record.reason:
                self._noted[job] = record.reason
                proposal.note(job, f"limited by the site: {record.reason}")
            if record.over_limit and controller.never_starts(record):
                proposal.cancel(job, f"{record.reason} is used up, and nothing gives it back")
        return proposal

    # The controller and the engine.

    def _controller_for(self, state: State) -> Controller:
        """The controller, made at the first call."""
        if self._controller is not None:
            return self._controller
        cluster = state.cluster
        if self._rules is None:
            site = _plain_site(cluster)
            self._rules = Rules(site, {node.name: i for i, node in enumerate(site.nodes)}, self.epoch_s)
        elif len(self._rules.numbers) != cluster.nodes:
            raise PolicyError(
                f"site {self._rules.name}: {len(self._rules.numbers)} nodes have GPUs, the cluster has "
                f"{cluster.nodes}; run on the cluster of the site"
            )
        for node in range(cluster.nodes):
            gpu_type = cluster.type_of(node)
            self._pools[gpu_type] = self._pools.get(gpu_type, 0) | 1 << node
        phases = Phases(self.main_phase_s, self.backfill_phase_s, self.priority_phase_s, self.limits_phase_s)
        free = FreeNodes(cluster.size_of(node) for node in range(cluster.nodes))
        host = Host(self._start, self._preempt, _tasks_held_back)
        totals = _totals(self._rules, cluster)
        self._controller = Controller(self._rules, free, host, totals, phases)
        return self._controller

    def _hear(self, state: State, controller: Controller) -> None:
        """Tell the controller what happened."""
        now = state.now
        self._submitted.clear()
        for event in state.events:
            job = event.job
            if event.kind == "submitted" and job is not None:
                self._enter(job, controller, now)
            elif event.kind == "finished" and job is not None:
                self._leave(job, controller, now)
            elif event.kind in ("interrupted", "stopped") and job is not None:
                self._lose(job, controller, now)
            elif event.kind in ("node_down", "node_up") and event.node is not None:
                bit = 1 << event.node
                controller.down_nodes = (
                    controller.down_nodes | bit if event.kind == "node_down" else controller.down_nodes & ~bit
                )
                controller.change_nodes()
            elif event.kind in ("reserved", "released", "services"):
                controller.change_nodes()
        if len(state.running) != controller.holding or len(state.pending) != len(controller.waiting):
            self._reconcile(state, controller)

    def _enter(self, job: JobView, controller: Controller, now: float) -> None:
        record = self._records.get(job)
        if record is None:
            record = self._records[job] = self._record(job, controller.rules, self._pools)
        if record.requeued or (record not in controller.waiting and record not in controller.running):
            record.requeued = False
            record.eligible_s = job.eligible_s
            controller.submit(record, now)

    def _leave(self, job: JobView, controller: Controller, now: float) -> None:
        record = self._records.get(job)
        if record is None:
            return
        if record in controller.running:
            controller.end(record, now)
        else:
            controller.leave(record)
        if not record.requeued:
            del self._records[job]
            self._noted.pop(job, None)
        record.requeued = False

    def _lose(self, job: JobView, controller: Controller, now: float) -> None:
        """A job lost its GPUs, and waits again."""
        record = self._records.get(job)
        if record is not None and record in controller.running and not record.requeued:
            controller.lose(record, now)
            controller.submit(record, now)

    def _reconcile(self, state: State, controller: Controller) -> None:
        """Take over the jobs that started, stopped or came without an event: before the first decision, or by
        another hand.
        """
        assert self._proposal is not None
        for job in state.running:
            self._enter(job, controller, state.now)
            record = self._records[job]
            if record in controller.waiting:
                placement = tuple((node, count) for node, count in self._proposal.placement(job) or ())
                controller.adopt(record, placement, state.now - job.productive_s)
        for job in state.pending:
            self._lose(job, controller, state.now)
            self._enter(job, controller, state.now)
        known_jobs = {*state.running, *state.pending}
        for job in [job for job in self._records if job not in known_jobs]:
            if not self._records[job].requeued:
                self._leave(job, controller, state.now)

    def _start(self, record: JobRecord, placement: Placement) -> int:
        """Start a job in the draft. Returns the nodes on which it cannot start, 0 if it has."""
        job, proposal = record.key, self._proposal
        assert isinstance(job, JobView)
        assert proposal is not None
        if not proposal.has_room(job, placement):
            refused = sum(1 << pair[0] for pair in placement if not proposal.has_room(job, (pair,)))
            return refused or sum(1 << node for node, _ in placement)
        gpus = None if job.needs < 1 else sum(count for _, count in placement)
        started = proposal.start(job, gpus, on=placement)
        return 0 if started is not None else sum(1 << node for node, _ in placement)

    def _preempt(self, record: JobRecord, mode: str) -> None:
        job, proposal = record.key, self._proposal
        assert isinstance(job, JobView)
        assert proposal is not None
        assert self._rules is not None
        if mode == "CANCEL":
            proposal.cancel(job, "preempted (PreemptMode=CANCEL)")
        else:
            record.requeued = True
            proposal.requeue(job, self._rules.settings.requeue_delay)

    def _record(self, job: JobView, rules: Rules, pools: Mapping[str, int]) -> JobRecord:
        """A job by Slurm's names. `pools`: the nodes of each GPU type."""
        partitions = tuple(name for name in job.partitions if name in rules.partitions)
        if self.site is None or not partitions:
            partitions = (rules.default_partition,)
        qos = job.qos or rules.default_qos(job.account, job.user) or DEFAULT_QOS
        types = [gpu_type for gpu_type in job.start_types if gpu_type in pools] or list(pools)
        shapes = tuple(
            _shape(job, job.requested_on(name) if name else job.requested, pools[name], self._sizes(name))
            for name in types
        )
        return JobRecord(
            job,
            (job.order,),
            shapes,
            job.submit_s,
            job.eligible_s,
            _limit_s(job, [rules.partitions[name] for name in partitions]),
            partitions,
            job.account,
            job.user,
            qos,
            job.cpus or 0.0,
            job.host_memory_gb or 0.0,
            job.nice,
            job.array_id,
            job.reservation,
            types[0],
        )

    def _sizes(self, gpu_type: str) -> list[int]:
        """The different numbers of GPUs of the nodes of a type, the largest first."""
        assert self._rules is not None
        nodes = [node.gpus for node in self._rules.site.nodes if node.gpus]
        if gpu_type and self._controller is not None:
            start = self._controller.sizes
            nodes = [start[node] for node in nodes_in(self._pools[gpu_type])]
        return sorted(set(nodes), reverse=True)


def _tasks_held_back(record: JobRecord) -> int:
    job = record.key
    assert isinstance(job, JobView)
    return job.tasks_held_back


def _plain_site(cluster: Cluster) -> SlurmSite:
    """Slurm's defaults with one partition of all nodes of a cluster."""
    nodes = tuple(
        SiteNode(f"n{number}", cluster.size_of(number), cluster.type_of(number) or "", 1)
        for number in range(cluster.nodes)
    )
    partition = Partition(tuple(node.name for node in nodes), Default=True)
    return SlurmSite("slurm", nodes, {EVERY_NODE: partition})


def _totals(rules: Rules, cluster: Cluster) -> dict[str, dict[str, float]]:
    """The resources of each partition."""
    cores = {node.name: node.cpus for node in rules.site.nodes}
    names = {number: name for name, number in rules.numbers.items()}
    totals: dict[str, dict[str, float]] = {}
    for partition, mask in rules.nodes_of.items():
        amounts = {"cpu": 0.0, "node": 0.0, "gres/gpu": 0.0}
        for node in nodes_in(mask):
            size = cluster.size_of(node)
            amounts["cpu"] += cores[names[node]]
            amounts["node"] += 1
            amounts["gres/gpu"] += size
            typed = f"gres/gpu:{cluster.type_of(node)}"
            amounts[typed] = amounts.get(typed, 0.0) + size
        totals[partition] = amounts
    return totals


def _limit_s(job: JobView, partitions: list[Partition]) -> float:
    """The time limit with which a job is planned."""
    defaults = [partition.DefaultTime or partition.MaxTime or UNLIMITED_S for partition in partitions]
    stated_s = job.time_limit_s or job.estimate_s or max(defaults)
    longest_s = max(UNLIMITED_S if p.MaxTime is None else p.MaxTime for p in partitions)
    return min(stated_s, longest_s, UNLIMITED_S)


def _shape(job: JobView, gpus: int, pool: int, sizes: list[int]) -> Shape:
    """What a job asks for on the nodes of a type: as it states, or on as few nodes as can hold its GPUs. Of
    GPUs that do not divide by the nodes, one node has more or fewer than the others.
    """
    counts = job.node_counts
    if counts and sum(counts) == gpus:
        nodes, least, most = len(counts), counts[-1], counts[0]
        is_one_larger = counts.count(most) == 1 or gpus <= most * (nodes - 1)
        each = least if is_one_larger else most
        return Shape(pool, nodes, each, gpus - each * (nodes - 1))
    each = min(gpus, sizes[0]) if sizes else gpus
    nodes = -(-gpus // each)
    return Shape(pool, nodes, each, gpus - each * (nodes - 1))


def _ever_fits(shape: Shape, cluster: Cluster, mask: int) -> bool:
    """Whether a job has a place on these nodes, were all of them free."""
    sizes = [cluster.size_of(node) for node in nodes_in(mask & shape.pool)]
    large_nodes = sum(size >= shape.gpus for size in sizes)
    if shape.last_gpus == shape.gpus:
        return large_nodes >= shape.nodes
    return large_nodes >= shape.nodes - 1 and sum(size >= shape.last_gpus for size in sizes) >= shape.nodes
