"""A policy's view of a job inside the system."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf, isfinite

from clustersim.errors import PolicyError
from clustersim.jobs import ActiveJob
from clustersim.records import MIGRATE, RESIZE, RESTART
from itertime.errors import UnknownName

from .cluster_state import ClusterState
from .job_curve import NO_COUNTS, JobCurve, PhaseView, batch_curves, in_all_phases_s, phase_views

__all__ = ["JobView"]


class JobView:
    """What a policy sees of a job: what a real scheduler could know, always as of now. Read-only.

    GPU counts are numbers of GPUs, times seconds, rates units per second. A job keeps one view object while
    it is in the system, so views can be compared, hashed and used as keys.
    """

    __slots__ = ("_facts", "_job")

    def __init__(self, job: ActiveJob, facts: ClusterState[JobView]):
        self._job, self._facts = job, facts

    def __repr__(self) -> str:
        return f"<job {self.id}: {self.gpus or 'no'} GPUs>"

    # What the user stated.

    @property
    def id(self) -> str:
        return self._job.job.job_id

    @property
    def order(self) -> int:
        """Position in the order of submission, the final tie-break."""
        return self._job.order

    @property
    def tenant(self) -> str:
        return self._job.job.tenant

    @property
    def model(self) -> str | None:
        return self._job.job.model

    @property
    def priority(self) -> int:
        return self._job.job.priority

    @property
    def weight(self) -> float:
        """How much the job counts beside others, above 0; 1 if the trace states none."""
        return self._job.job.weight

    @property
    def extra(self) -> Mapping[str, float | str]:
        """The cells of the trace's own columns, such as `x_loss`, by the name of the column: numbers as
        floats, other text as it is. A column in which the job's cell is empty is absent.
        """
        return {name: _number_or_text(cell) for name, cell in self._job.job.extra}

    @property
    def submit_s(self) -> float:
        return self._job.job.submit_s

    @property
    def deadline_s(self) -> float | None:
        """Absolute, on the trace's clock; None if the job has none."""
        return self._job.job.deadline_s

    @property
    def estimate_s(self) -> float | None:
        """The user's estimate of the run time on the requested GPUs, in seconds, without overheads; None if
        the trace states none. It is a statement of its own: stated iterations do not change it.
        """
        return self._job.job.estimate_s

    @property
    def requested(self) -> int:
        """The GPUs that the user asked for (raised to what the model needs)."""
        return self._job.requested

    @property
    def needs(self) -> float:
        """What must be free for the request, for `Proposal.fits`: `requested`, or the part of a GPU that the
        job shares with others. It counts as a job of 1 GPU elsewhere.
        """
        return self._job.needs

    # What the rules of a site may ask about.

    @property
    def user(self) -> str:
        """The submitting user; the tenant if the trace states none."""
        return self._job.job.user or self._job.job.tenant

    @property
    def account(self) -> str:
        """The account that is charged; the tenant if the trace states none."""
        return self._job.job.account or self._job.job.tenant

    @property
    def qos(self) -> str | None:
        """The quality of service."""
        return self._job.job.qos

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions in which the job may run; the one of the trace's `partition` if it states no others,
        none without either.
        """
        job = self._job.job
        if job.partitions is not None:
            return tuple(job.partitions.split("|"))
        return () if job.partition is None else (job.partition,)

    @property
    def nodes(self) -> int | None:
        """The number of nodes that the job asks for; None if any will do."""
        return self._job.job.nodes

    @property
    def gpus_per_node(self) -> int | None:
        """The GPUs that it asks for on each of its `nodes`; None if it does not say."""
        return self._job.job.gpus_per_node

    @property
    def node_counts(self) -> tuple[int, ...]:
        """The GPUs on each of the nodes that it asks for, descending; empty if any nodes will do."""
        shape = self._job.shape
        return () if shape is None else tuple(shape.counts)

    @property
    def cpus(self) -> float | None:
        """The cores that it needs on all its nodes together; None if it states none."""
        return self._job.job.cpus

    @property
    def host_memory_gb(self) -> float | None:
        """The memory of hosts that it needs, likewise."""
        return self._job.job.host_memory_gb

    @property
    def time_limit_s(self) -> float | None:
        """The run time after which the site stops the job; None if nothing limits it."""
        return self._job.job.time_limit_s

    @property
    def nice(self) -> int:
        """What its user takes off its priority."""
        return self._job.job.nice or 0

    @property
    def name(self) -> str | None:
        """Its name, which other jobs may share."""
        return self._job.job.name

    @property
    def array_id(self) -> str | None:
        """The array of which it is a task; None if of none."""
        return self._job.job.array_id

    @property
    def array_limit(self) -> int | None:
        """The most tasks of its array that run at once. The engine holds the others back."""
        return self._job.job.array_limit

    @property
    def tasks_held_back(self) -> int:
        """How many further tasks of its array the engine holds back for the limit of the array alone."""
        array_id = self._job.job.array_id
        return 0 if array_id is None else self._facts.tasks_held_back(array_id)

    @property
    def reservation(self) -> str | None:
        """The reservation of the site in which it asks to run."""
        return self._job.job.reservation

    @property
    def eligible_s(self) -> float:
        """When nothing but the queue began to keep the job waiting: its submission, the end of a hold (its
        begin time, its dependencies, the limit of its array), or its last requeue.
        """
        job = self._job
        since_s = None if job.eligibility is None else job.eligibility.since_s
        return job.job.submit_s if since_s is None else since_s

    @property
    def restarts(self) -> int:
        """How often the job has started again after it lost its GPUs."""
        return self._job.restarts

    @property
    def requeues(self) -> int:
        """How often it lost its GPUs and all of its work (`Proposal.requeue`)."""
        return 0 if self._job.eligibility is None else self._job.eligibility.requeues

    # The GPUs that the job can run on, and its speed on them.

    @property
    def sizes(self) -> tuple[int, ...]:
        """The useful GPU counts, ascending, each strictly faster than the one before. On a cluster of
        several GPU types, those of the best type; see `sizes_on`.
        """
        return self._job.curve.sizes

    def sizes_on(self, gpu_type: str) -> tuple[int, ...]:
        """The useful GPU counts on GPUs of one type; empty if the job cannot run there."""
        self._check_type(gpu_type)
        if not self._job.offers:
            return self._job.curve.sizes
        return next((offer.curve.sizes for offer in self._job.offers_of(gpu_type)), ())

    @property
    def gpu_types(self) -> tuple[str, ...]:
        """The GPU types that can run the job: those that need the fewest GPUs for its request first, then
        the fastest.
        """
        if not self._job.offers:
            return self._facts.cluster.gpu_types
        return tuple(offer.gpu_type for offer in self._job.offers)

    @property
    def start_types(self) -> tuple[str, ...]:
        """Those of `gpu_types` on which `Proposal.start` starts the job if no type is named, in this order.
        The others are slower than the run's `type_slowdown` allows.
        """
        if not self._job.offers:
            return self._facts.cluster.gpu_types
        return tuple(offer.gpu_type for offer in self._facts.default_offers(self._job))

    def requested_on(self, gpu_type: str) -> int:
        """The GPUs of the request on one type: more than `requested` where the model needs more of them."""
        self._check_type(gpu_type)
        return next((offer.requested for offer in self._job.offers_of(gpu_type)), self._job.requested)

    def can_run_on(self, gpus: int, gpu_type: str | None = None) -> bool:
        """Whether the job can run on `gpus` GPUs of that type (of some type if None)."""
        if gpu_type is not None:
            self._check_type(gpu_type)
        return self._job.unit_s_on(gpus, gpu_type) is not None

    @property
    def curve(self) -> JobCurve:
        """Speeds and costs at the counts of `sizes`; one object for all jobs of a kind."""
        job = self._job
        gpu_type = job.offers[0].gpu_type if job.offers else None
        return self._facts.curves.of(job.curve, job.curve.parameters, gpu_type)

    def curve_on(self, gpu_type: str) -> JobCurve:
        """Speeds and costs on GPUs of one type; without counts if the job cannot run there."""
        self._check_type(gpu_type)
        job = self._job
        if not job.offers:
            return self._facts.curves.of(job.curve, job.curve.parameters)
        if not job.offers_of(gpu_type):
            return NO_COUNTS
        return self._facts.curves.of(job.curve_at(gpu_type), job.curve.parameters, gpu_type)

    def rate(self, gpus: int, gpu_type: str | None = None) -> float:
        """Units of work per second on `gpus` GPUs of that type (of the fastest if None), 0 where the job
        cannot run. For a packed job alone in the network: the effects of placement and of other jobs'
        traffic are not known in advance.

        Comparable between counts and types of one job, not between jobs.
        """
        if gpu_type is not None:
            self._check_type(gpu_type)
        unit_s = self._job.unit_s_on(gpus, gpu_type)
        return 1.0 / unit_s if unit_s else 0.0

    def slowdown_on(self, node: int) -> float:
        """How many times as long as predicted a unit of work of the job takes on a node, at least 1: 1 where
        GPUs of one type are equally fast. A job on several nodes is as slow as on the slowest of them. `rate`
        and the times that follow from it are predictions, which know nothing of this.
        """
        return self._facts.node_factor(self._job.job.model, ((node, 1),))

    def slowdown_beside(self, others: Iterable[JobView]) -> float:
        """How many times as long as alone a unit of work of the job takes on the same GPUs as these others,
        by the `sharing` that the run states.
        """
        models = [other.model or "" for other in others]
        return self._facts.sharing.interference.factor(self.model or "", models)

    # Phases and batches.

    @property
    def phases(self) -> tuple[PhaseView, ...]:
        """The phases of a job whose speed changes with its progress; none of any other job. A scheduler can
        know the batches of all of them, which follow from the user's rule, and how long past ones were.
        """
        return phase_views(self._job)

    @property
    def phase(self) -> int:
        """The present phase, from 0; 0 of a job without phases."""
        phases = self._job.phases
        return 0 if phases is None else phases.present

    @property
    def batch(self) -> int | None:
        """The global batch with which the job trains now; None if it states none."""
        job = self._job
        return job.job.global_batch if job.phases is None else job.phases.batch

    @property
    def batches(self) -> Mapping[int, JobCurve]:
        """The global batches that `Proposal.train_with` can choose in the present phase, that of the trace
        first, each with its `curve`; none where the batch is no choice.

        A unit of work is the progress of an iteration with the batch that the job states. So rates are
        goodput: statistical efficiency is in them.
        """
        return batch_curves(self._job, self._facts.curves)

    # What the job holds now.

    @property
    def in_system(self) -> bool:
        """Whether the job runs or waits: not before it is admitted, while it is held, and after it left."""
        return self in self._facts.running or self in self._facts.waiting.jobs

    @property
    def running(self) -> bool:
        return self._job.placement is not None

    @property
    def gpus(self) -> int:
        """The GPUs that the job holds now; 0 while it waits."""
        return self._job.gpus

    @property
    def gpu_type(self) -> str | None:
        """The type of the GPUs that the job holds now; None while it waits."""
        placement = self._job.placement
        return None if placement is None else self._facts.cluster.type_of(placement[0][0])

    @property
    def speed(self) -> float:
        """Units of work per second on the GPUs that the job holds, once its overhead is paid; 0 while it
        waits. As measured: `rate` predicts it, and its placement, its nodes, traffic of other jobs and jobs
        on the same GPUs slow it down. While the job saves it makes no progress.
        """
        return 0.0 if self._job.placement is None else 1.0 / self._job.unit_s

    @property
    def leaves_at_s(self) -> float:
        """When the first of its nodes with a notice is reclaimed; infinite without one."""
        leaving, placement = self._facts.nodes.leaving, self._job.placement
        if not leaving or placement is None:
            return inf
        return min((leaving.get(node, inf) for node, _ in placement), default=inf)

    @property
    def paying_s(self) -> float:
        """Seconds of overhead still to pay on the present allocation."""
        job = self._job
        return 0.0 if job.placement is None else job.paying_s(self._facts.now_s)

    @property
    def productive_s(self) -> float:
        """Seconds since the overhead of the present allocation was paid; 0 before that and while waiting."""
        job = self._job
        if job.placement is None:
            return 0.0
        productive_s = self._facts.now_s - job.ready_s
        return productive_s if productive_s > 0.0 else 0.0

    # What the job has had so far.

    @property
    def started(self) -> bool:
        """Whether the job has ever held GPUs: its next start is then a restart."""
        return self._job.start_s is not None

    @property
    def attained(self) -> float:
        """GPU-seconds held so far; a part of a GPU counts as that part."""
        job = self._job
        return job.gpu_seconds + (self._facts.now_s - job.since_s) * job.held

    @property
    def productive_gpu_s(self) -> float:
        """GPU-seconds held so far, without those in which starts, resizes and migrations were paid for."""
        job = self._job
        since_s = self._facts.now_s - max(job.since_s, job.ready_s)
        return job.gpu_seconds - job.paid_gpu_s + (since_s * job.held if since_s > 0.0 else 0.0)

    @property
    def waited_s(self) -> float:
        """Seconds without GPUs so far: before the first start, and after each preemption or interruption."""
        job = self._job
        return job.wait_s if job.placement is not None else job.wait_s + self._facts.now_s - job.since_s

    @property
    def work_done(self) -> float:
        """Units of work done so far and not lost."""
        return self._job.work - self._job.work_left_at(self._facts.now_s)

    # Work and time left.

    @property
    def work_left(self) -> float:
        """Units of work left by what the job states, so that `work_left / rate(n)` is `remaining(n)`.
        Infinite for a job that does not state its work.
        """
        return self._work_left() if self._job.states_work else inf

    @property
    def oracle_work_left(self) -> float:
        """Like `work_left`, but falls back to the logged duration of a job that does not state its work. Such
        use is noted in the records (`oracle_used`).
        """
        if not self._job.states_work:
            self._facts.oracle_used = True
        return self._work_left()

    @property
    def outlived(self) -> bool:
        """Whether the job has done all the work that it states, and is not done."""
        job = self._job
        return job.misstated < 0.0 and job.work_left_at(self._facts.now_s) <= -job.misstated

    def remaining(self, gpus: int | None = None, gpu_type: str | None = None) -> float:
        """Seconds of work left on `gpus` GPUs (the request if None) of that type (of the fastest if None),
        without overheads, at the speed of the present phase; infinite where the job cannot run.

        Known because the user stated the iterations, and as wrong as that statement: a job that does more
        than it states has a tenth of its stated work left until it is done. A job known only by its logged
        duration raises PolicyError: no real scheduler knows that.
        """
        if not self._job.states_work:
            raise PolicyError(
                f"job {self.id} does not state its work; a policy may ask job.oracle_remaining() instead"
            )
        return self._remaining(gpus, gpu_type)

    def oracle_remaining(self, gpus: int | None = None, gpu_type: str | None = None) -> float:
        """Like `remaining`, but falls back to the logged duration of jobs that state no work. For a job in
        phases it is the time through all of them, on the fastest type.

        Such use is noted in the records (`oracle_used`).
        """
        job = self._job
        if not job.states_work or job.job.phases is not None:
            self._facts.oracle_used = True
        if job.job.phases is not None:
            return in_all_phases_s(job, job.requested if gpus is None else gpus, self._facts.now_s)
        if gpus is None or job.offers or (unit_s := job.curve.unit_s.get(gpus)) is None:
            return self._remaining(gpus, gpu_type)
        units = job.work_left_at(self._facts.now_s)
        return (job.as_stated(units) if job.misstated else units) * unit_s

    def estimated_remaining(self) -> float:
        """Seconds left of `estimate_s`: the estimate less the work done so far, at the speed of the request.
        Negative once the job has done more than its user expected. Infinite without an estimate.
        """
        job = self._job
        left_s = job.seconds_left(job.requested, job.work_left_at(self._facts.now_s))
        return (inf if left_s is None else left_s) + self._excess_s()

    def estimated_end_s(self) -> float:
        """When `estimate_s` runs out if the job stays on its GPUs at its present speed; of a waiting job, if
        it starts now as requested. Infinite without an estimate.

        If the estimate is the true run time, this is the time of the finish to the last bit.
        """
        job, now = self._job, self._facts.now_s
        if job.placement is None:
            return now + self.start_cost_s(job.requested) + self.estimated_remaining()
        if job.ready_s == inf:  # it loads its checkpoint from a shared storage
            return now + self.paying_s + self.estimated_remaining()
        return job.expected_end_s(now) + self._excess_s()

    # What a change costs.

    def restart_s(self, gpus: int) -> float:
        """The most seconds that the engine would charge for a restart, a resize or a migration onto `gpus`
        GPUs, packed: those of a job that has worked since its last save. No start costs more.
        """
        return self._facts.restart_s[self._job.curve.parameters, gpus]

    def start_cost_s(self, gpus: int, saved: bool = False) -> float:
        """Seconds that the engine would charge now for a start on `gpus` GPUs, packed, of the waiting job, or
        of the running job if it lost its GPUs: a launch, the load of its checkpoint if it has done any work,
        and what it owes of a save. `saved`: without the save.
        """
        return self._charge_s(gpus, self._facts.cluster.gpus_per_node, RESTART, saved)

    def change_cost_s(self, gpus: int, gpu_type: str | None = None) -> float:
        """Seconds without progress if the job holds `gpus` GPUs of that type from now on, packed.

        That is what is still to pay where it stays; else what the engine would charge for a start, a restart,
        a resize or a migration there. A load from storage that jobs share counts as if no other job loaded.
        `gpu_type`: if None, that of the GPUs that the job holds, else the first of its `gpu_types`.
        """
        job, held_type, cluster = self._job, self.gpu_type, self._facts.cluster
        if held_type is not None and gpus == job.gpus and gpu_type in (None, held_type):
            return job.paying_s(self._facts.now_s)
        if gpu_type is not None:
            self._check_type(gpu_type)
        node = cluster.gpus_per_node
        if cluster.mixed:
            node = cluster.pool(gpu_type or held_type or self.gpu_types[0]).gpus_per_node
        kind = RESTART if held_type is None else MIGRATE if gpus == job.gpus else RESIZE
        return self._charge_s(gpus, node, kind)

    def _check_type(self, gpu_type: str) -> None:
        if gpu_type not in self._facts.cluster.gpu_types:
            raise PolicyError(str(UnknownName("GPU type", gpu_type, self._facts.cluster.gpu_types)))

    def _work_left(self) -> float:
        units = self._job.work_left_at(self._facts.now_s)
        return self._job.as_stated(units) if self._job.misstated else units

    def _remaining(self, gpus: int | None, gpu_type: str | None) -> float:
        job = self._job
        count = job.requested if gpus is None else gpus
        unit_s = (job.unit_s_on(count, gpu_type) if job.offers else job.curve.unit_s.get(count)) or inf
        return self._work_left() * unit_s

    def _excess_s(self) -> float:
        """Seconds by which the user's estimate exceeds the true run time on the request."""
        estimate_s, job = self._job.job.estimate_s, self._job
        if estimate_s is None:
            return inf
        run_s = job.seconds_left(job.requested, job.work)
        return inf if run_s is None else estimate_s - run_s

    def _charge_s(self, gpus: int, node: int, kind: str, saved: bool = False) -> float:
        """Seconds that the engine would charge now for a change to `gpus` GPUs on nodes of `node` GPUs."""
        job, facts = self._job, self._facts
        if job.start_s is None:
            return facts.overheads.start_s(gpus)
        return facts.overheads.restart_s(
            job.curve.parameters,
            -(-gpus // node),
            gpus,
            kind,
            saves=0.0 if saved else job.save_owed_at(facts.now_s),
            loads=job.work_left_at(facts.now_s) < job.work,
        )


def _number_or_text(cell: str) -> float | str:
    """A finite number as a float; other text, such as `nan` and the task `17_2` of an array, as it is."""
    try:
        number = float(cell)
    except ValueError:
        return cell
    return number if isfinite(number) and "_" not in cell else cell
