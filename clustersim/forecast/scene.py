"""The jobs of a state as a simulation begins with them, and simulations of them with drawn run times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import ceil, inf
from typing import Any

import numpy as np

from clustersim.backtest.logged import Floats, LoggedRun
from clustersim.backtest.pools import SiteFacts, SitePool, pools_of
from clustersim.cluster import Cluster, Placement
from clustersim.engine import RunSetup, Simulation
from clustersim.records import MemoryRecorder
from clustersim.runs import NO_BOUND, RunConfig, epoch_of, params_with_site, setup_of
from clustersim.sites import missing_names, site_of
from itertime.errors import UnknownName, UserError
from itertime.io import shown
from traces.job import Job, submission_key
from traces.logs.log import LoggedJob

from .arrivals import LaterArrivals
from .placing import RunningJobs
from .resumed import Resumed
from .run_times import RunTimes
from .site import LiveSite
from .state import LiveState

__all__ = ["ORDERS", "PoolScene", "Scene", "SitePolicy"]

ORDERS = ("auto", "submission", "priority")
"""How the waiting jobs are queued."""

_OWN_ORDER = ("multifactor", "slurm")  # policies that compute Slurm's priority themselves
_QUEUED_BY_PRIORITY = ("squeue", "scontrol", "slurm-json", "kueue")  # formats of live queues
_LEAST_S = 1.0  # for which a running job has run, so that it starts before now
_LEAST_LEFT_S = 1e-3  # for which a running job still runs
_ON_ANY_NODES: Mapping[str, Any] = {"nodes": None, "gpus_per_node": None}  # fields of a job
_MARGIN_S = 120.0  # for which running jobs count as running after now, where the capacity is inferred


@dataclass(frozen=True)
class SitePolicy:
    """The policy of a site, its settings as of `--set`, and how waiting jobs are queued (`ORDERS`)."""

    name: str = "easy"
    settings: Sequence[str] = ()
    order: str = "auto"

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise UnknownName("order of the queue", self.order, ORDERS)

    def config(self, since_1970_s: float | None, seed: int) -> RunConfig:
        """The settings of the simulations, whose clock shows 0 at this time."""
        params = epoch_of(self.name, since_1970_s)
        settings = list(self.settings)
        return RunConfig.make(
            settings, policy=self.name, params=params, overheads=None, bound=NO_BOUND, seed=seed
        )

    def queues_by_priority(self, state: LiveState) -> bool:
        """Whether the waiting jobs of a state are queued by their stated priorities."""
        return self.order == "priority" or (
            self.order == "auto"
            and self.name not in _OWN_ORDER
            and state.source["format"] in _QUEUED_BY_PRIORITY
            and len({job.priority for job in state.waiting}) > 1
        )


@dataclass(frozen=True)
class Scene:
    """A state with all that a simulation of it needs.

    `pools`: by name. `pool_of`: the pool of each job that runs or waits. `setups`: of each pool, without its
    policy. `places`: the GPUs of each running job, by pool. `running`: these jobs, and
    the site. `arrivals`: jobs that come later, by pool.
    `draws`: seconds that each job runs in all, one for each draw. `by_priority`: whether the queue is in the
    order of stated priorities. `division`: the field of jobs that tells pools apart. `zero_s`: the zero of
    the simulations, on the log's clock.
    """

    state: LiveState
    policy: SitePolicy
    pools: Mapping[str, SitePool]
    pool_of: Mapping[str, str]
    config: RunConfig
    setups: Mapping[str, RunSetup]
    places: Mapping[str, Mapping[str, Placement]]
    running: RunningJobs
    arrivals: Mapping[str, LaterArrivals]
    run_times: RunTimes
    draws: Mapping[str, Floats]
    by_priority: bool
    division: str
    zero_s: float
    assumptions: Sequence[str] = field(repr=False)

    @classmethod
    def of(
        cls,
        state: LiveState,
        history: Sequence[LoggedJob],
        run_times: RunTimes,
        site_facts: SiteFacts,
        policy: SitePolicy,
        draws: int,
        seed: int,
        with_arrivals: bool,
    ) -> Scene:
        """The scene of a state, with `draws` run times of every job, and with later jobs if asked for.

        `history`: jobs that had ended, which may show the capacity. Every job has its own numbers from the
        seed, which depend on its place in the order of submission alone. Raises what `pools_of`,
        `RunConfig.make` and `RunTimes.drawn` raise.
        """
        present = [*state.running, *state.waiting]
        log = _as_log(history, present, state, run_times)
        pools, assumptions = pools_of(log, replace(site_facts, look_for_reduced=False))
        first_present = len(log.jobs) - len(present)
        pool_of = {log.jobs[i].job_id: pool.name for pool in pools for i in pool.rows if i >= first_present}
        zero_s = _zero_s(state)
        config = policy.config(zero_s if state.is_dated else None, seed)
        site = None if config.site is None else LiveSite.of(site_of(config.site), state)
        if site is not None and (sentence := missing_names(site.site, log.jobs[first_present:])):
            assumptions.append(f"WARNING: {sentence}")
        running = RunningJobs.of(state.running, pools, pool_of, site)
        if site is not None:
            entries = site.calendar(config.calendar, running.draining, state.now_s - zero_s)
            config = config.model_copy(update={"calendar": entries})
        setups = {pool.name: _setup(config, pool) for pool in pools}
        places = {pool.name: running.places(pool, history, setups[pool.name].placer) for pool in pools}
        drawn = _drawn_run_times(present, state.now_s, run_times, draws, seed)
        begins = np.random.default_rng([seed, *b"arrivals"]).random(draws)
        arrivals = {
            pool.name: later_arrivals
            for pool in pools
            if with_arrivals
            and (later_arrivals := _arrivals(log, pool, first_present, state.now_s, begins, drawn))
        }
        return cls(
            state,
            policy,
            {pool.name: pool for pool in pools},
            pool_of,
            config,
            setups,
            places,
            running,
            arrivals,
            run_times,
            drawn,
            policy.queues_by_priority(state),
            _division(site_facts, log, pools),
            zero_s,
            assumptions,
        )

    @property
    def now_s(self) -> float:
        """Now, on the clock of the simulations."""
        return self.state.now_s - self.zero_s

    def pool_name(self, job: LoggedJob) -> str:
        """The pool that a job belongs to by its fields. UnknownName if there is none."""
        if job.job_id in self.pool_of:
            return self.pool_of[job.job_id]
        if len(self.pools) == 1:
            return next(iter(self.pools))
        name = getattr(job, self.division) or ""
        if name not in self.pools:
            raise UnknownName(self.division.replace("_", " "), name, self.pools)
        return str(name)

    def queue(self, pool: str, job: LoggedJob | None = None) -> list[LoggedJob]:
        """The jobs that wait in a pool, in order, with `job` in its place instead of one of its id. A job
        that does not wait yet is the last.
        """
        waiting_jobs = [
            waiting_job
            for waiting_job in self.state.waiting
            if self.pool_of[waiting_job.job_id] == pool and (job is None or waiting_job.job_id != job.job_id)
        ]
        queued = waiting_jobs if job is None else [*waiting_jobs, job]
        if not self.by_priority:
            return sorted(queued, key=lambda job: submission_key(job.submit_s, job.job_id))
        is_new = {job.job_id: job.line == 0 and not job.priority for job in queued}
        return sorted(
            queued,
            key=lambda job: (is_new[job.job_id], -job.priority, submission_key(job.submit_s, job.job_id)),
        )

    def part(self, job: LoggedJob, pool: str) -> PoolScene:
        """The jobs of a pool in which `job` waits, whether it is one of them or not. UserError if the site
        starts no job of its partitions.
        """
        if self.running.site is not None:
            self.running.site.check_job(job)
        now_s, cluster = self.now_s, self.pools[pool].cluster
        if (
            job.line == 0
            and job.nodes is not None
            and _on(cluster, _present_job(job, self.run_times)).nodes is None
        ):
            problem = f"{cluster.shape} has no {job.nodes} nodes with {job.gpus_per_node} GPUs each"
            raise UserError(f"--nodes {job.nodes}: {problem}; state other nodes, or leave it out")
        jobs = []
        for other_job in self.running.jobs[pool]:
            start_s = min((other_job.logged_start_s or 0.0) - self.zero_s, now_s - _LEAST_S)
            running_job = _present_job(other_job, self.run_times)
            jobs.append(replace(running_job, submit_s=start_s, **_ON_ANY_NODES))
        for other_job in self.queue(pool, job):
            submit_s = now_s if self.by_priority else other_job.submit_s - self.zero_s
            waiting_job = _on(cluster, _present_job(other_job, self.run_times))
            jobs.append(replace(waiting_job, submit_s=submit_s))
        jobs.sort(key=lambda job: job.submit_s)  # stable: the queue keeps its order
        return PoolScene(self, pool, job.job_id, jobs, self.places[pool])


@dataclass(frozen=True)
class PoolScene:
    """A pool of a scene in which the job `target` waits: its jobs in order of submission, without run times,
    and the places of those that run.
    """

    scene: Scene
    pool: str
    target: str
    jobs: Sequence[Job]
    places: Mapping[str, Placement]

    def simulate(self, draw: int, own_s: float, recorder: MemoryRecorder | None = None) -> Resumed:
        """Simulate one draw, in which the target runs for `own_s` seconds, until it starts.

        Raises PolicyError if the policy breaks a rule, UserError if the running jobs find no room.
        """
        scene, now_s = self.scene, self.scene.now_s
        jobs = []
        for job in self.jobs:
            run_s = own_s if job.job_id == self.target else float(scene.draws[job.job_id][draw])
            if job.job_id in self.places:
                run_s = max(run_s, now_s - job.submit_s + _LEAST_LEFT_S)
            jobs.append(replace(job, duration_s=run_s))
        config, setup = scene.config, scene.setups[self.pool]
        kind = type(setup.scheduler)
        site = kind(**params_with_site(kind, config.params, config.site))  # a new one: policies keep notes
        policy = Resumed(site, now_s, self.places, self.target)
        coming: Iterable[Job] = ()
        if (arrivals := scene.arrivals.get(self.pool)) is not None:
            coming = arrivals.after(now_s, draw, lambda: policy.started_s == inf)
        Simulation(chain(jobs, coming), replace(setup, scheduler=policy), recorder).run()
        if policy.unplaced:
            problem = f"running job {shown(policy.unplaced[0])} has no room on {setup.cluster.shape}"
            raise UserError(f"--cluster: {problem}; state the cluster as it is")
        return policy


def _zero_s(state: LiveState) -> float:
    """The zero of the simulations, on the log's clock: the first start or submission."""
    starts_s = [job.logged_start_s or 0.0 for job in state.running]
    return min([state.now_s - _LEAST_S, *starts_s, *(job.submit_s for job in state.waiting)])


def _drawn_run_times(
    jobs: Sequence[LoggedJob], now_s: float, run_times: RunTimes, draws: int, seed: int
) -> dict[str, Floats]:
    """Seconds that each job runs in all, one for each draw."""
    generator = np.random.default_rng([seed, *b"run times"])
    return {job.job_id: run_times.drawn(job, _elapsed_s(job, now_s), generator.random(draws)) for job in jobs}


def _elapsed_s(job: LoggedJob, now_s: float) -> float:
    started = job.logged_start_s is not None and job.logged_start_s <= now_s
    return now_s - job.logged_start_s if started and job.logged_start_s is not None else 0.0


def _job_of(job: LoggedJob, run_s: float, times: RunTimes) -> Job:
    return Job(
        job_id=job.job_id,
        submit_s=job.submit_s,
        tenant=job.tenant,
        gpus=job.gpus,
        duration_s=run_s,
        priority=job.priority,
        estimate_s=times.limit_s(job),
        user=job.user,
        gpu_type=job.gpu_type,
        partition=job.partition,
        qos=job.qos,
        account=job.account,
        partitions=job.partitions,
        nice=job.nice,
        nodes=job.nodes,
        gpus_per_node=job.gpus_per_node,
    )


def _present_job(job: LoggedJob, times: RunTimes) -> Job:
    """A job of the state, without its run time, with the limit of its array and its reservation."""
    array_id = None if job.array_limit is None else job.array_id
    return replace(
        _job_of(job, 1.0, times),
        reservation=job.reservation,
        array_id=array_id,
        array_limit=job.array_limit,
    )


def _on(cluster: Cluster, job: Job) -> Job:
    """The job, without the number of its nodes if the cluster has no such nodes: its own may not be known."""
    if job.nodes is None:
        return job
    gpus_of_node = job.gpus_per_node or ceil((job.gpus or 1) / job.nodes)
    nodes = sum(size >= gpus_of_node for size in cluster.sizes)
    return job if nodes >= job.nodes else replace(job, **_ON_ANY_NODES)


def _as_log(
    history: Sequence[LoggedJob], present: Sequence[LoggedJob], state: LiveState, times: RunTimes
) -> LoggedRun:
    """The jobs of the past and those present as a log; those that run hold their GPUs beyond now. Jobs that
    have started show what nodes have.
    """
    waiting = {job.job_id for job in state.waiting}
    jobs = [_job_of(job, job.duration_s or _MARGIN_S, times) for job in history]
    for job in present:
        present_job = _job_of(job, _elapsed_s(job, state.now_s) + _MARGIN_S, times)
        jobs.append(replace(present_job, **_ON_ANY_NODES) if job.job_id in waiting else present_job)
    starts = [job.logged_start_s for job in history]
    starts += [None if job.job_id in waiting else job.logged_start_s for job in present]
    starts_s = np.array([np.nan if start_s is None else start_s for start_s in starts])
    return LoggedRun(tuple(jobs), starts_s, np.full(len(jobs), np.nan), 0.0, state.source)


def _setup(config: RunConfig, pool: SitePool) -> RunSetup:
    quotas = dict(pool.quotas) if sum(pool.quotas.values()) <= pool.cluster.gpus else {}
    return replace(setup_of(config, cluster=pool.cluster), quotas=quotas or config.quotas)


def _arrivals(
    log: LoggedRun, pool: SitePool, present: int, now_s: float, begins: Floats, drawn: Mapping[str, Floats]
) -> LaterArrivals | None:
    """What comes later in a pool; the jobs of the log from place `present` on are there now."""
    past = [_on(pool.cluster, log.jobs[i]) for i in pool.rows if i < present]
    pool_jobs = [_on(pool.cluster, log.jobs[i]) for i in pool.rows if i >= present]
    return LaterArrivals.of(past, pool_jobs, now_s, begins, drawn)


def _division(site_facts: SiteFacts, log: LoggedRun, pools: Sequence[SitePool]) -> str:
    """The field by which the pools were told apart."""
    if site_facts.division != "auto":
        return site_facts.division
    by_type = {job.gpu_type for job in log.jobs} == {pool.name for pool in pools}
    return "gpu_type" if by_type else "tenant"
