"""`Proposal`: the draft that a policy returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from numbers import Real
from operator import itemgetter
from reprlib import repr as brief
from types import MappingProxyType
from typing import Any, Self

from clustersim.cluster import Placement, SharedPlacement, millionths_of, nodes_of
from clustersim.errors import PolicyError

from .draft import Draft
from .internal import active_of
from .job_view import JobView
from .ranking import Key
from .searches import Wanted, compact, fulfil, hand_back, run_by, unmet, unsettled

__all__ = ["Proposal"]

_LONGEST_NOTE = 200


class Proposal(Draft):
    """The draft that a policy returns: which job runs where from now on, and when to wake the policy up.

    It adds to a `Draft` calls for all jobs at once (`run`, `run_by`, `compact`). Every call checks the rules,
    so a proposal is always possible: no GPU twice, all GPUs of a job at once, only counts that the job can
    run on.
    """

    wake_at: float | None = None
    """Ask to be called at this time even if nothing happens; replaces an earlier request."""

    notes: tuple[tuple[JobView, str], ...] = ()
    """What `note` was given, in order."""

    batches: Mapping[JobView, int] = MappingProxyType({})
    """The global batches that `train_with` was given."""

    withdrawals: Mapping[JobView, float | str] = MappingProxyType({})
    """The jobs that `requeue` and `cancel` were given: in how many seconds a job is eligible again, or why it
    leaves the system.
    """

    order: tuple[JobView, ...] = ()
    """The jobs of the last call of `run`, most important first; one for each of its entries."""

    def free_nodes(self, job: JobView) -> dict[int, int]:
        """The free GPUs of each node that has any in this draft and is open to `job`, by node."""
        nodes = self._room_for(job, None).open(self._capacity)
        free = range(1, nodes.gpus_per_node + 1)
        return dict(sorted((node, n) for n in free for node in nodes_of(nodes.nodes_with(n))))

    def has_room(self, job: JobView, placement: Placement) -> bool:
        """Whether `job` could start there: the GPUs of `placement` are free in this draft and `in_shape`, on
        nodes that are open to it and have the cores and the memory that it needs beside them.
        """
        if not self.in_shape(job, placement):
            return False
        room = self._room_for(job, None)
        is_open = not room.closed or not any(room.closed >> node & 1 for node, _ in placement)
        return is_open and self._capacity.has_room(placement, room.demand)

    def start_shared(
        self,
        job: JobView,
        fraction: float,
        beside: JobView | None = None,
        on: Placement | None = None,
        gpu_type: str | None = None,
    ) -> Placement | None:
        """Give a job without GPUs `fraction` of each GPU of its request, so that other jobs can run beside it
        on the same ones. Returns where, or None if there is no room, or a node is closed to the job.

        `beside`: a job of as many GPUs that holds such a part in this draft; `job` runs on its GPUs. If None,
        the GPUs are free ones; `on` names them, or `gpu_type` their type. A job is charged for its part until
        it stops, also while no other job holds the rest. How much jobs slow each other down is the setting
        `sharing` of the run.

        PolicyError for a fraction below 1 / `Scheduler.packs`, for jobs whose trace states a part, and for
        GPUs that do not match.
        """
        where, sharing = f"start_shared(job {job.id}, {fraction!r})", self._facts.sharing
        millionths = millionths_of(fraction) if 0 < fraction < 1 else 0
        if active_of(job).millionths:
            raise PolicyError(f"{where}: its trace states a part of a GPU; use start")
        if not sharing.allows(millionths):
            raise PolicyError(f"{where}: must be below 1 and at least 1 / packs; packs={sharing.packs} here")
        if beside is None:
            held = active_of(job).placement
            if on is None and isinstance(held, SharedPlacement) and not self._capacity.unshared(held):
                on = self._elsewhere(job, gpu_type)  # other jobs hold shares of its own GPUs
                if on is None:
                    return None
            free = self.start(job, on=on, gpu_type=gpu_type)
            if free is None or (isinstance(free, SharedPlacement) and free.millionths == millionths):
                return free
            self.stop(job)
            return self.start(job, on=self._capacity.first_share(millionths, tuple(free)))
        host_placement = self.placement(beside)
        if not isinstance(host_placement, SharedPlacement):
            raise PolicyError(f"{where}: job {beside.id} holds no part of GPUs in this proposal")
        place = SharedPlacement(tuple(host_placement), host_placement.number, millionths)
        return self.start(job, on=place) if self.has_room(job, place) else None

    def _elsewhere(self, job: JobView, gpu_type: str | None) -> Placement | None:
        """Free GPUs for the request of a job, of the first of its types with room."""
        active, facts = active_of(job), self._facts
        if gpu_type is None and active.offers:
            offers = facts.default_offers(active)
            places = (
                self._room_for(job, offer.gpu_type).place(self._capacity, offer.requested) for offer in offers
            )
            return next((placement for placement in places if placement is not None), None)
        return self._room_for(job, gpu_type).place(self._capacity, active.requested)

    def groups(self) -> list[list[JobView]]:
        """The jobs that hold shares of GPUs by `start_shared`, those of the same GPUs together."""
        jobs_by_gpus: dict[object, list[JobView]] = {}
        for job in self.running():
            placement = self.placement(job)
            if isinstance(placement, SharedPlacement) and not active_of(job).millionths:
                jobs_by_gpus.setdefault(placement.key, []).append(job)
        return list(jobs_by_gpus.values())

    def train_with(self, job: JobView, batch: int) -> None:
        """Let a job train with another global batch, one of its `batches`, from now on; a waiting job from
        its next start on. On the GPUs that it keeps a job changes its batch at once and pays nothing.

        The choice holds until the next one. In a phase in which it is none, the job has the batch of its
        trace. PolicyError for a batch that is no choice.
        """
        where = f"train_with(job {job.id}, {brief(batch)})"
        if job not in self._facts.waiting.jobs and job not in self._facts.running:
            raise PolicyError(f"{where}: it is no longer in the system")
        if batch not in job.batches:
            choices = ", ".join(map(str, job.batches)) or "no other than that of its trace"
            raise PolicyError(f"{where}: it can train with {choices}")
        self.batches = {**self.batches, job: batch}

    def requeue(self, job: JobView, eligible_in_s: float = 0.0) -> None:
        """Take the GPUs from a running job, which loses all of its work, saved or not, and begins anew. It is
        eligible again in `eligible_in_s` seconds; until then it neither waits nor runs. Its next start is a
        restart. The policy is told that the job was `interrupted`, and after a hold that it is `eligible`.

        PolicyError for a job that does not run, and for a time that is none.
        """
        where = f"requeue(job {job.id}, {brief(eligible_in_s)})"
        if not job.running:
            raise PolicyError(f"{where}: it does not run; only a job that holds GPUs can lose its work")
        if not isinstance(eligible_in_s, Real) or not 0 <= eligible_in_s < inf:
            raise PolicyError(f"{where}: must be seconds from now, at least 0")
        self._withdraw(job, float(eligible_in_s))

    def cancel(self, job: JobView, reason: str) -> None:
        """Let a running or waiting job leave the system for good. Its state is then `failed`, and its reason
        "cancelled by the policy: ...".

        PolicyError for a job that is not in the system, and for a reason that is not one line of 1 to 200
        characters.
        """
        self._check_note("cancel", job, reason)
        self._withdraw(job, reason)

    def _withdraw(self, job: JobView, withdrawal: float | str) -> None:
        if self.placement(job) is not None:
            self.stop(job)
        self.withdrawals = {**self.withdrawals, job: withdrawal}

    def note(self, job: JobView, text: str) -> None:
        """Say something about a job: why the policy treats it as it does.

        `text` becomes an event of the log (`note`), and the last note of a job the end of the `reason` in its
        record. It begins with a phrase that is the same for all jobs in that situation, then a colon and what
        is particular about this one. PolicyError for a job that is not in the system, and for a text that is
        not one line of 1 to 200 characters.
        """
        self._check_note("note", job, text)
        self.notes = (*self.notes, (job, text))

    def _check_note(self, call: str, job: JobView, text: object) -> None:
        """PolicyError for a job that is not in the system, and for a text that cannot be said about it."""
        if job not in self._facts.waiting.jobs and job not in self._facts.running:
            raise PolicyError(f"{call}(job {job.id}): it is no longer in the system")
        where = f"{call}(job {job.id}, {brief(text)})"
        if not isinstance(text, str) or not 1 <= len(text.strip()) <= len(text) <= _LONGEST_NOTE:
            raise PolicyError(f"{where}: must have 1 to {_LONGEST_NOTE} characters")
        if not text.isprintable():
            raise PolicyError(f"{where}: must be one line of printable characters")

    def run(
        self,
        wanted: Mapping[JobView, int | tuple[int, str | None] | None] | Iterable[Wanted],
        *,
        smaller: bool = True,
        let_settle: bool = False,
    ) -> dict[JobView, int]:
        """Run the jobs of `wanted`, most important first, on these numbers of GPUs, and stop others as far as
        that needs. Returns the jobs that did not get theirs, with what they hold now (0 if nothing).

        `wanted`: {job: GPUs} or {job: (GPUs, type)}; or entries (job, GPUs, type or None), of which a job
        listed more than once gets the first that fits. None stands for the GPUs that the job requests; a job
        with 0 GPUs stops.

        | job | what becomes of it |
        |---|---|
        | wants the GPUs that it holds | keeps its placement, unless small jobs move together |
        | wants others, and has a place beside all more important jobs | starts there, near its old GPUs |
        | runs, and has no such place | keeps what it holds, as a wish of the same importance |
        | has to leave its GPUs to more important jobs | gets them back if none of them is taken in the end |
        | waits, and has no such place | starts on what remains: its count, or else a smaller size |
        | runs, and is not listed | as if it came last: it loses its GPUs to jobs of `wanted` alone |

        So no job is stopped or moved for one without a place, none loses GPUs to a less important one, and
        none loses GPUs that then stay free. Places are found for all jobs together, the largest first. Small
        jobs move together where that gives every job its place (on clusters of one GPU type whose nodes are
        open to all jobs). Jobs are never placed on nodes that are closed to them, but keep GPUs there. With
        `smaller` off a job without a place on its count waits. Several GPU types are counted apart. If no job
        of `wanted` has a place, waiting jobs start where they fit.

        `let_settle`: jobs that are settling (`State.unsettled`) keep their counts, ahead of all others: where
        restarts take longer than the time between two decisions, jobs would otherwise resize each other
        endlessly without progress. They move only where small jobs move together. If the first of the other
        jobs has to wait for them, no new job starts on what remains, and `wake_at` is set to the time when
        the first of them has settled.

        PolicyError for a count that a job cannot run on.
        """
        entries = [
            (job, 0 if gpus == 0 else self._count(job, active_of(job), "run", gpus, gpu_type), gpu_type)
            for job, gpus, gpu_type in _entries(wanted)
        ]
        to_run = [entry for entry in entries if entry[1]]
        settling = unsettled(self._facts) if let_settle else {}
        if settling and self.changes:
            settling = {job: at_s for job, at_s in settling.items() if job not in self.changes}
        self.order = (*settling, *map(itemgetter(0), to_run))
        if len(to_run) < len(entries):
            spared_jobs = {*self.order, *settling}
            for job, gpus, _ in entries:
                if not gpus and job not in spared_jobs and self.placement(job):
                    self.stop(job)
        fulfil(self, self._facts, to_run, settling, smaller)
        if settling and any(self.gpus(job) != gpus for job, gpus, _ in to_run):
            self.wake_at = min(settling.values())
        return unmet(self, entries)

    def run_by(self, key: Key[JobView], falling: bool = False, changing: bool = False) -> None:
        """Make the draft what a preemptive scheduler runs that serves jobs strictly by `key` and skips
        those without room.

        All active jobs are walked in the order of (key, submission). A job runs if its request fits into
        what earlier jobs of the walk leave. GPUs of later jobs count as free; they are taken from the last
        of these jobs first. A job whose GPUs are all left by earlier jobs keeps them; another may move. So
        no job waits for a later one or for GPUs that stay free, and none loses GPUs to a later one or to
        none. Jobs that the policy stopped in this draft stay stopped.

        `falling` promises that the key of a job never grows while the job runs (remaining time, a deadline,
        a size). A decision then looks up only some of the running jobs' keys; otherwise it looks up all.

        `changing`: the key of a job may change while the job waits, as for jobs that age. A decision then
        looks up the keys of all waiting jobs that may fit. Without it a key is looked up when a job begins to
        wait, and must stay the same until the job runs (see `Ranking.rerank`).

        A change of order between two events is a reason to decide, which the engine cannot know: set
        `wake_at` to the time of the next one.
        """
        run_by(self, self._facts, key, non_increasing=falling, changing=changing)

    def compact(self, wanted: Mapping[JobView, int]) -> None:
        """Move jobs smaller than a node closer together, as far as needed to give the jobs of `wanted` that
        many GPUs.

        If the blocks of `wanted` (`compaction.block`) add up to no more than the cluster, each of its jobs is
        placed. The other jobs are placed too if the blocks of all jobs fit, as for counts that are powers of
        two; otherwise other jobs may lose their GPUs. Among equal blocks jobs of `wanted` choose first, in
        its order, and a job stays on its node if possible. Jobs of whole nodes come last, on the freed nodes.
        In a run with reservations or reclaims, or with jobs that need cores or memory of their nodes, nothing
        moves: jobs of `wanted` start where they fit.
        """
        if self._facts.cluster.mixed:
            raise PolicyError("compact: works on clusters of one GPU type only")
        counts = {
            job: self._count(job, active_of(job), "compact", gpus, None) for job, gpus in wanted.items()
        }
        if self._facts.nodes.may_refuse_jobs:  # blocks are places for any job
            for job, gpus in counts.items():
                if not self.placement(job):
                    self.start(job, gpus)
            return
        held_jobs = self.running()
        compact(self, self._facts, counts)
        hand_back(self, held_jobs)

    @property
    def stamp(self) -> int:
        """What `State.stamp` will be if the proposal stays as it is now, and nothing else happens."""
        return self._facts.stamp + bool(self.changes or self.batches or self.withdrawals)

    def copy(self) -> Self:
        """An independent draft that starts as this one, for looking ahead."""
        twin = super().copy()
        twin.wake_at, twin.notes, twin.batches = self.wake_at, self.notes, self.batches
        twin.order, twin.withdrawals = self.order, self.withdrawals
        return twin


def _entries(
    wanted: Mapping[JobView, int | tuple[int, str | None] | None] | Iterable[Wanted],
) -> Iterable[tuple[JobView, int | None, str | None]]:
    """What `Proposal.run` was given, as entries. PolicyError for anything else."""
    if isinstance(wanted, Mapping):
        entries: list[Any] = [
            (job, *count) if isinstance(count, tuple) else (job, count, None) for job, count in wanted.items()
        ]
    else:
        entries = list(wanted) if isinstance(wanted, Iterable) else [wanted]
    for entry in entries:
        if not (isinstance(entry, tuple) and len(entry) == 3 and isinstance(entry[0], JobView)):
            forms = "wants {job: GPUs}, {job: (GPUs, type)} or entries (job, GPUs, type or None)"
            raise PolicyError(f"run: {forms}, not {brief(entry)}")
    return entries
