"""Conservative backfilling."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from math import inf

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from policies.toolkit.backfill import RunTimeEstimates, Shadow, start_types
from policies.toolkit.gpu_calendar import FreeGpus, calendars_as_planned

__all__ = ["Conservative"]

_INSTANT_S = 1e-6  # times this close are one: sums of times differ by rounding


class Conservative(Scheduler):
    """First come, first served, not preemptive; a later job may start earlier if it delays no job submitted
    before it, by estimated run times: every job has a reservation from its submission on.

    Mu'alem and Feitelson, "Utilization, predictability, workloads, and user runtime estimates in scheduling
    the IBM SP2 with backfilling", IEEE TPDS 2001. The estimate is the user's (`estimate_s`) where the trace
    has one. Other jobs that state no work are estimated at `estimate_factor` times their logged duration.
    """

    def __init__(self, estimate_factor: float = 1.0):
        self._estimates = RunTimeEstimates(estimate_factor)
        self.estimate_factor = self._estimates.factor
        self.reserved: dict[JobView, float] = {}  # the latest start of each waiting job
        self._types: dict[JobView, str | None] = {}  # the GPU type of each reservation; None for the only one
        self._ends: dict[JobView, float] = {}  # the expected end of each running job
        self._calendars: dict[str, _Calendar] = {}  # by GPU type
        self._valid = False

    def schedule(self, state: State) -> Proposal:
        self._update(state)
        proposal, blocked = state.proposal(), None
        until_s = state.now + _INSTANT_S
        due_jobs = [(at_s, job.order, job) for job, at_s in self.reserved.items() if at_s <= until_s]
        for start_s, _, job in sorted(due_jobs, key=lambda entry: entry[:2]):
            if blocked is not None:
                started = blocked.backfill(job)
            else:
                started = self._estimates.start(job, proposal, state.now, self._types[job])
                if not started:  # enough GPUs, but not in the right places
                    blocked = Shadow(job, proposal, self._estimates, state.now)
            if started:
                self._note_start(job, start_s, proposal, state.now)
        if not state.running and not proposal.running() and not self._await_nodes(proposal, state.now):
            self._start_any(proposal, state.now)
        expiry_s = self._estimates.watch(proposal, state.now)
        if self.reserved and expiry_s < inf:
            proposal.wake_at = expiry_s
        return proposal

    def _note_start(self, job: JobView, reserved_s: float, proposal: Proposal, now: float) -> None:
        gpu_type = self._types.pop(job)
        self._valid &= gpu_type in (None, proposal.gpu_type(job)) and reserved_s > now - _INSTANT_S
        self._ends[job] = self._estimates.end_s(job, now, proposal)
        del self.reserved[job]

    def _await_nodes(self, proposal: Proposal, now: float) -> bool:
        """Whether a job is to start on nodes that are planned to be back by then."""
        return bool(proposal.openings_s()) and any(now < start_s < inf for start_s in self.reserved.values())

    def _start_any(self, proposal: Proposal, now: float) -> None:
        """On an idle cluster, start every job that has a place. A reservation that cannot be followed,
        because nodes were removed, then keeps no other job waiting.
        """
        for job, start_s in sorted(self.reserved.items(), key=lambda entry: (entry[1], entry[0].order)):
            if self._estimates.start(job, proposal, now):
                self._note_start(job, start_s, proposal, now)
                self._valid = False

    def _update(self, state: State) -> None:
        """Give new jobs a reservation. Plan anew if a job did not end when it was expected to."""
        self._estimates.update(state)
        for calendar in self._calendars.values():
            calendar.free.advance(state.now)
        self._valid &= not self._estimates.expired
        for event in state.events:
            if event.kind == "finished" and event.job is not None:
                self._valid &= self._ends.pop(event.job, inf) <= state.now + _INSTANT_S
            elif event.kind == "submitted" and event.job is not None and self._valid:
                self._reserve(event.job, state)
            elif event.kind in ("node_down", "node_up", "services", "reserved", "released"):
                self._valid = False
        overdue = any(end_s < state.now - _INSTANT_S for end_s in self._ends.values())
        if not self._valid or overdue or len(self.reserved) != len(state.pending):
            self._plan(state)

    def _plan(self, state: State) -> None:
        """Reserve anew for every waiting job, in the order of the previous reservations.

        In this order no start is postponed: at any later time, the jobs ahead need no more GPUs than before.
        """
        old_reservations, self.reserved, self._types = self.reserved, {}, {}
        self._ends = {job: self._estimates.end_s(job, state.now) for job in state.running}
        calendars = calendars_as_planned(state)
        self._calendars = {gpu_type: _Calendar(free) for gpu_type, free in calendars.items()}
        for job, end_s in self._ends.items():
            self._calendars[job.gpu_type or ""].free.take(state.now, end_s, job.gpus)
        for job in sorted(state.pending, key=lambda job: (old_reservations.get(job, inf), job.order)):
            self._reserve(job, state)
        self._valid = True

    def _reserve(self, job: JobView, state: State) -> None:
        """Reserve GPUs of the type on which `job` can start first; of its first choice among equals."""
        closures = state.planned_changes(job)
        best: tuple[float, float, int, str | None] = inf, inf, 0, None
        for gpu_type in start_types(job):
            run_s = self._estimates.run_s(job, gpu_type)
            gpus = job.requested if gpu_type is None else job.requested_on(gpu_type)
            name = gpu_type or job.gpu_types[0]
            changes = [(time_s, change) for time_s, changed_type, change in closures if changed_type == name]
            start_s = self._calendars[name].earliest(gpus, run_s, changes)
            if start_s < best[0]:
                best = start_s, run_s, gpus, gpu_type
        start_s, run_s, gpus, gpu_type = best
        self.reserved[job], self._types[job] = start_s, gpu_type
        if start_s < inf:
            self._calendars[gpu_type or job.gpu_types[0]].free.take(start_s, start_s + run_s, gpus)


class _Calendar:
    """The free GPUs of one type over time, with the jobs planned so far."""

    def __init__(self, free: FreeGpus):
        self.free, self._tried = free, _Tried()

    def earliest(self, gpus: int, span_s: float, changes: Sequence[tuple[float, int]] = ()) -> float:
        """The first time at which `gpus` are free for `span_s` seconds; infinite if never. `changes`: (time,
        GPUs more or less) for this job alone.
        """
        if changes:
            free = self.free.copy()
            for time_s, change in changes:
                free.give_back(time_s, inf, change)
            return free.earliest(gpus, span_s)
        start_s = self.free.earliest(gpus, span_s, self._tried.not_before(gpus, span_s))
        self._tried.note(gpus, span_s, start_s)
        return start_s


class _Tried:
    """Lower bounds of starts, from the jobs planned so far. A schedule only fills up, so a job that is at
    least as large and as long as a planned one cannot start before it. Without the bounds, planning a long
    queue takes quadratic time.
    """

    def __init__(self) -> None:
        self._by_gpus: dict[int, tuple[list[float], list[float]]] = {}  # spans and starts, both ascending

    def not_before(self, gpus: int, span_s: float) -> float:
        """The time before which a job of this size and length cannot start."""
        bound = 0.0
        for size, (spans, starts) in self._by_gpus.items():
            i = bisect_right(spans, span_s) if size <= gpus else 0
            if i and starts[i - 1] > bound:
                bound = starts[i - 1]
        return bound

    def note(self, gpus: int, span_s: float, start_s: float) -> None:
        """Enter a job that is planned to start at `start_s`."""
        spans, starts = self._by_gpus.setdefault(gpus, ([], []))
        i = bisect_left(spans, span_s)
        beaten = bisect_right(starts, start_s, lo=i)  # bounds of longer jobs that are no tighter
        spans[i:beaten], starts[i:beaten] = [span_s], [start_s]
