"""A job inside the system as the engine keeps it: its progress, its GPUs, and what they cost."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from clustersim.cluster import (
    MILLION,
    Cluster,
    HostDemand,
    NodeShape,
    Placement,
    SharedPlacement,
    gpus_held,
    millionths_of,
)
from clustersim.overheads import Overheads
from clustersim.records import START
from clustersim.speed import Curve, Offer
from traces.job import Job

from .checkpoints import Checkpoints
from .eligibility import EarlierRun, Eligibility
from .phases import Phases

__all__ = ["LEAST_LEFT", "ActiveJob"]

LEAST_LEFT = 0.1
"""The share of its stated work that a job states to be left, at least, until it is done.

Without it, a job that has done more than it stated would have nothing left. Policies that serve the shortest
job first could then never take its GPUs back, however long it runs (Dell'Amico et al., MASCOTS 2014), and
others divide by the work left. With a tenth it counts as a job of a tenth of its size. The share is reached
without a jump, so the work left never grows while a job runs, on which sorted queues rely.
"""


class ActiveJob:
    """One submitted job and its progress, which is integrated only when its speed changes.

    Work is counted in units: iterations, or seconds of logged duration. Between two changes the job holds
    `placement`, pays overhead until `ready_s`, then does one unit every `unit_s` seconds.

    It ends when its work is done, or by a `failure` with `left_at_end` units left, which policies do not
    know. It stops with `left_at_stop` units left: at its end, or before that at the end of its present phase,
    where `left_at_phase_end` units are left.

    `checkpoints`: how it saves, None if it never does and cannot fail. `phases`: None if it has one speed
    throughout. `eligibility`: None if it was eligible from its submission on and never began anew.
    `done_s`: when it stops if nothing changes.

    `misstated`: units by which the work that the user states exceeds the true `work`; 0 if they are equal.
    `predicted`: the units predicted in place of that statement; 0 if none are.

    A job that shares a GPU counts as one of 1 GPU (`requested`, `gpus`). `millionths`: the share of it that
    the job holds, 0 for whole GPUs. `needs`: the GPUs that must be free, a fraction for such a job. `held`:
    the GPUs that it is charged for. `demand`: what it needs on a node for each of its GPUs; None: nothing
    that the cluster limits. `shape`: how its request is to lie on nodes; None: in any way.
    """

    __slots__ = (
        "checkpoints",
        "cost_usd",
        "curve",
        "demand",
        "done_s",
        "eligibility",
        "failure",
        "finish_s",
        "generation",
        "gpu_seconds",
        "gpus",
        "held",
        "job",
        "least_left",
        "left_at_end",
        "left_at_phase_end",
        "left_at_stop",
        "lost_s",
        "migrations",
        "millionths",
        "misstated",
        "needs",
        "offers",
        "order",
        "overhead_gpu_s",
        "paid_gpu_s",
        "phases",
        "placement",
        "policy_note",
        "predicted",
        "preemptions",
        "ready_s",
        "request_note",
        "requested",
        "resizes",
        "restarts",
        "save_due",
        "save_s",
        "saved_left",
        "shape",
        "since_s",
        "start_s",
        "states_work",
        "unit_s",
        "usd_per_gpu_h",
        "wait_s",
        "work",
        "work_left",
    )

    def __init__(self, job: Job, order: int, curve: Curve, requested: int, note: str):
        """`order`: position in the order of submission. `requested`: GPUs, a count that `curve` has."""
        self.job, self.order, self.curve, self.requested = job, order, curve, requested
        self.request_note = note  # why the job requests another number of GPUs than its trace states
        self.policy_note = ""  # the last one
        self.offers: tuple[Offer, ...] = ()  # by GPU type, the best first; empty on a cluster of one type
        self.states_work = job.kind == "iterations"  # else the logged duration, which policies do not know
        work = job.iterations if self.states_work else job.duration_s
        assert work is not None
        self.work = self.work_left = self.saved_left = float(work)  # `saved_left`: as of the last save
        self.misstated = self.least_left = self.predicted = 0.0
        if self.states_work and job.stated_iterations is not None:
            self.misstated = job.stated_iterations - self.work
            self.least_left = LEAST_LEFT * job.stated_iterations
        self.checkpoints: Checkpoints | None = None
        self.phases: Phases | None = None
        self.eligibility: Eligibility | None = None
        self.failure = ""
        self.left_at_end = self.left_at_phase_end = self.left_at_stop = 0.0
        self.placement: Placement | None = None
        self.gpus = 0
        self.demand: HostDemand | None = None
        self.shape: NodeShape | None = None
        self.millionths = 0 if job.gpu_fraction is None else millionths_of(job.gpu_fraction)
        self.needs: float = self.millionths / MILLION if self.millionths else requested
        self.held: float = 0
        self.unit_s = 0.0
        self.since_s = job.submit_s  # when the present allocation, or the present wait, began
        self.ready_s = self.done_s = 0.0
        self.start_s: float | None = None
        self.finish_s: float | None = None
        self.generation = 0  # counts allocations: a completion of an earlier one is stale
        self.gpu_seconds = self.overhead_gpu_s = self.lost_s = self.wait_s = 0.0
        self.cost_usd: float | None = None  # None where GPU types have no prices
        self.usd_per_gpu_h = 0.0
        self.paid_gpu_s = 0.0  # the part of `overhead_gpu_s` that was paid for starts, resizes and migrations
        self.save_due = self.save_s = 0.0  # share of a save still to be paid; seconds of a whole save here
        self.preemptions = self.resizes = self.restarts = self.migrations = 0

    def work_left_at(self, now: float) -> float:
        """Units still to do at `now`."""
        began_s = self.ready_s
        if self.placement is None or now <= began_s:
            return self.work_left
        if began_s < self.since_s:
            began_s = self.since_s
        ran_s = now - began_s
        if self.checkpoints is not None:
            ran_s = self.checkpoints.worked_s(ran_s)
        remaining = self.work_left - ran_s / self.unit_s
        return remaining if remaining > self.left_at_phase_end else self.left_at_phase_end

    def as_stated(self, work_left: float) -> float:
        """Units still to do by the work that the user states, where `work_left` are still to do in truth."""
        if not self.misstated:
            return work_left
        if self.predicted and work_left == self.work:
            return self.predicted  # to the last bit, so that jobs of equal predictions tie
        stated_left = work_left + self.misstated
        return stated_left if stated_left > self.least_left else self.least_left

    def predict(self, run_s: float) -> None:
        """The job, which has not begun to work, counts as one that states to run for `run_s` seconds on its
        request.
        """
        run_at_once_s = self.seconds_left(self.requested, self.work)
        assert run_at_once_s is not None
        self.predicted = run_s / (run_at_once_s / self.work)
        self.states_work = True
        self.misstated, self.least_left = self.predicted - self.work, LEAST_LEFT * self.predicted
        self.job = replace(self.job, estimate_s=run_s)

    def settle(self, now: float) -> None:
        """Close the present allocation or wait at `now`: book its progress, GPU-seconds and overhead."""
        elapsed_s = now - self.since_s
        if self.placement is None:
            self.wait_s += elapsed_s
        else:
            self.work_left = self.work_left_at(now)
            self.gpu_seconds += elapsed_s * self.held
            if self.cost_usd is not None:
                self.cost_usd += elapsed_s * self.held * self.usd_per_gpu_h / 3600
            if self.ready_s > self.since_s:
                overhead_s = min(self.ready_s - self.since_s, elapsed_s)
                self.overhead_gpu_s += overhead_s * self.held
                self.paid_gpu_s += overhead_s * self.held
                self.lost_s += overhead_s
                if self.save_due:
                    self.save_due = max(0.0, self.save_due - overhead_s / self.save_s)
            if self.checkpoints is not None:
                self._book_saves(self.checkpoints, now)
        self.since_s = now

    def _book_saves(self, checkpoints: Checkpoints, now: float) -> None:
        """The seconds of periodic saves since the last change count as overhead."""
        ran_s = now - max(self.ready_s, self.since_s)
        if ran_s <= 0.0:
            return
        saving_s, saved = checkpoints.advance(ran_s)
        self.lost_s += saving_s
        self.overhead_gpu_s += saving_s * self.held
        if saved:
            self.saved_left = self.work_left + checkpoints.unsaved_s / self.unit_s

    def set_price(self, usd_per_gpu_h: float) -> None:
        """From now on a GPU-hour of the job, just settled, costs this."""
        self.usd_per_gpu_h, self.cost_usd = usd_per_gpu_h, self.cost_usd or 0.0

    def hold(self, placement: Placement, gpus: int, unit_s: float, now: float, overhead_s: float) -> float:
        """Take `placement` at `now`, paying `overhead_s` first. Returns the time at which the job stops."""
        checkpoints = self.checkpoints
        if checkpoints is not None:
            checkpoints.end_hold(self)
        self.placement, self.gpus, self.unit_s = placement, gpus, unit_s
        self.held = gpus_held(placement) if placement.__class__ is SharedPlacement else gpus
        self.since_s, self.ready_s = now, now + overhead_s
        self.generation += 1
        if checkpoints is not None:
            checkpoints.begin_hold(placement)
            if checkpoints.must_load and checkpoints.loads is not None:
                checkpoints.loads.expect(self, overhead_s)  # `ready_s` is infinite until the load ends
            return self._stop_s()
        self.done_s = done_s = self.ready_s + (self.work_left - self.left_at_stop) * unit_s
        return done_s

    def change_speed(self, unit_s: float, now: float) -> float:
        """Continue with `unit_s` seconds per unit of work from `now` on, on the same GPUs; the rest of an
        overhead is still to be paid. Returns the time at which the job stops.
        """
        self.settle(now)
        self.unit_s = unit_s
        self.generation += 1
        return self._stop_s()

    def become_ready(self, now: float) -> float:
        """The checkpoint is loaded. Returns the time at which the job stops."""
        self.settle(now)
        self.ready_s = now
        return self._stop_s()

    def _stop_s(self) -> float:
        """When the job, just settled, is done, fails, or reaches the end of a phase."""
        began_s, work_ahead = self.ready_s, self.work_left - self.left_at_stop
        if began_s < self.since_s:
            began_s = self.since_s
        ran_s = work_ahead * self.unit_s if work_ahead > 0.0 else 0.0
        if self.checkpoints is not None:
            ran_s = self.checkpoints.elapsed_s(ran_s)
        self.done_s = began_s + ran_s
        return self.done_s

    def charge(self, overheads: Overheads, kind: str, gpus: int, nodes: int) -> float:
        """Charge the job, just settled, for `gpus` GPUs on `nodes` nodes, which it gets by a start, restart,
        resize or migration (`kind`); returns the seconds. The job's present state counts as saved from then
        on. A load from shared storage is left out, since its duration depends on other loads.
        """
        if kind == START:
            return overheads.start_s(gpus)
        parameters, owed_share = self.curve.parameters, self.save_owed_at(self.since_s)
        self.saved_left, self.save_s = self.work_left, overheads.save_s(parameters, nodes)
        self.save_due = owed_share if self.save_s else 0.0
        loads = self.work_left < self.work
        paid_s = overheads.restart_s(parameters, nodes, gpus, kind, saves=self.save_due, loads=loads)
        if self.checkpoints is not None:
            self.checkpoints.must_load = loads and overheads.shares_load(parameters)
            if self.checkpoints.must_load:
                paid_s -= overheads.load_s(parameters, nodes)
        return paid_s

    def save_owed_at(self, now: float) -> float:
        """The share of a save that the job is charged if it gets other GPUs at `now`: 1 if it has worked
        since its last save, else the unpaid rest of that save. Every payment begins with the save. What
        periodic saves hold by then is not owed.
        """
        if self.checkpoints is not None and self.placement is not None:
            unsaved_s = self.checkpoints.unsaved_after_s(now - max(self.ready_s, self.since_s))
            if unsaved_s is not None:
                work_left = self.work_left_at(now)
                return 1.0 if work_left < work_left + unsaved_s / self.unit_s else 0.0
        if self.work_left_at(now) < self.saved_left:
            return 1.0
        if not self.save_due or self.placement is None:
            return self.save_due
        return max(0.0, self.save_due - (now - self.since_s) / self.save_s)

    def paying_s(self, now: float) -> float:
        """Seconds of overhead still to pay on the present GPUs."""
        if self.ready_s == inf and self.checkpoints is not None and self.checkpoints.loads is not None:
            return self.checkpoints.loads.remaining_s(self, now)
        left_s = self.ready_s - now
        return left_s if left_s > 0.0 else 0.0

    @property
    def terms(self) -> tuple[HostDemand | None, NodeShape | None] | None:
        """What decides beside GPUs whether the job has a place; None if nothing does."""
        return None if self.demand is None and self.shape is None else (self.demand, self.shape)

    def offers_of(self, gpu_type: str | None) -> tuple[Offer, ...]:
        """The offers of one GPU type; of all types, the best first, if None."""
        return tuple(offer for offer in self.offers if gpu_type in (None, offer.gpu_type))

    def curve_at(self, gpu_type: str) -> Curve:
        """The job's curve on GPUs of one type."""
        return self.offers_of(gpu_type)[0].curve if self.offers else self.curve

    def curve_on(self, cluster: Cluster, node: int) -> Curve:
        """The job's curve on GPUs of the type of a node."""
        return self.curve if not self.offers else self.curve_at(cluster.type_of(node))

    def unit_s_on(self, gpus: int, gpu_type: str | None) -> float | None:
        """Seconds per unit of work on `gpus` GPUs of a type, of the fastest type if None; None if the job
        cannot run there.
        """
        if not self.offers:
            return self.curve.unit_s.get(gpus)
        unit_times_s = (offer.curve.unit_s.get(gpus) for offer in self.offers_of(gpu_type))
        return min((unit_s for unit_s in unit_times_s if unit_s is not None), default=None)

    @property
    def ends_phase(self) -> bool:
        """Whether the job stops next at the end of a phase, and not at its own end."""
        return self.left_at_stop > self.left_at_end

    @property
    def isolated_s(self) -> float:
        """Seconds of work on the requested GPUs, in the last of its runs."""
        if self.eligibility is not None and self.eligibility.earlier_runs:
            return self.eligibility.last_work * self.curve.unit_s[self.requested]
        if self.phases is not None:
            return self.work * self.phases.in_all.work_s(self.requested)
        return self.work * self.curve.unit_s[self.requested]

    def seconds_left(self, gpus: int, work_left: float) -> float | None:
        """Seconds for the last `work_left` units of work on `gpus` GPUs of the fastest type; None if the job
        cannot run there. Of a job in phases, in all those that are left.
        """
        if self.phases is not None:
            return self.phases.seconds_left(gpus, work_left)
        unit_s = self.unit_s_on(gpus, None)
        return None if unit_s is None else work_left * unit_s

    def expected_end_s(self, now: float) -> float:
        """When the running job is done if its speed does not change but for its phases."""
        ahead_s, began_s = self.work_left * self.unit_s, max(self.since_s, self.ready_s)
        if self.phases is None:
            return began_s + ahead_s
        as_predicted_s = self.phases.seconds_left(self.gpus, self.work_left)
        assert as_predicted_s is not None
        return began_s + as_predicted_s * (self.unit_s / self.curve.unit_s[self.gpus])

    def let_go(self) -> None:
        """Release the GPUs. A crash may have taken a job in phases back to an earlier one."""
        if self.checkpoints is not None:
            self.checkpoints.end_hold(self)
        self.placement, self.gpus, self.held = None, 0, 0
        self.generation += 1
        if self.phases is not None:
            phase = self.phases.reached(self.work_left)
            if phase != self.phases.present:
                self.phases.enter(phase)
                self._follow_phases()

    # Ends other than that of all work

    def fail_after(self, share: float, failure: str) -> None:
        """The job will fail when this share of its work is done."""
        self.failure, self.left_at_end = failure, self.work * (1 - share)
        self.left_at_stop = max(self.left_at_end, self.left_at_phase_end)

    def crash(self) -> float:
        """Lose all unsaved work. Returns the seconds that it took."""
        assert self.checkpoints is not None
        lost_s = self.checkpoints.lose(self.held)
        self.work_left = self.saved_left
        self.lost_s += lost_s
        return lost_s

    # Waits that are no queueing, and beginnings anew

    @property
    def eligible_s(self) -> float | None:
        """When the job first became eligible; None if it never did."""
        return self.job.submit_s if self.eligibility is None else self.eligibility.first_s

    def hold_back(self) -> None:
        """The job, which has no GPUs, is not eligible from `since_s` on."""
        if self.eligibility is None:
            self.eligibility = Eligibility(None)
        self.eligibility.since_s = None
        if self.start_s is None:
            self.eligibility.first_s = None

    def take_over(self, eligibility: Eligibility) -> None:
        """The job, which has not run, was held and became eligible as a job of another cluster."""
        self.eligibility = eligibility
        self.since_s = eligibility.first_s or self.since_s

    def settle_held(self, now: float) -> None:
        """Book the seconds up to `now` in which the job is held."""
        assert self.eligibility is not None
        self.eligibility.held_s += now - self.since_s
        self.since_s = now

    def become_eligible(self, now: float) -> None:
        """The job is held no longer."""
        self.settle_held(now)
        assert self.eligibility is not None
        self.eligibility.begin(now)

    def begin_anew(self) -> float:
        """The job, just settled, loses all of its work, saved or not. Returns the seconds that it took."""
        eligibility = self.eligibility
        if eligibility is None:
            eligibility = self.eligibility = Eligibility(self.job.submit_s)
        elapsed_s = self.since_s - self.job.submit_s
        lost_s = max(0.0, elapsed_s - eligibility.held_s - self.wait_s - self.lost_s)
        lost_gpu_s = self.gpu_seconds - self.overhead_gpu_s - eligibility.lost_work_gpu_s
        if self.checkpoints is not None:
            lost_gpu_s -= self.checkpoints.lost_work_gpu_s
        eligibility.lose(lost_s, max(0.0, lost_gpu_s), self.since_s)
        self.lost_s += lost_s
        self.work_left = self.saved_left = self.work
        self.save_due = 0.0
        return lost_s

    def add_work(self, units: float) -> None:
        """The job, which has not begun to work and has no phases, has so much more to do."""
        self._begin_with(self.work + units)

    def run_first(self, runs: list[EarlierRun]) -> None:
        """The job, which has not begun to work, begins anew after each of these runs; its own is the last."""
        if self.eligibility is None:
            self.eligibility = Eligibility(self.job.submit_s)
        eligibility = self.eligibility
        eligibility.earlier_runs, eligibility.last_work = runs, self.work
        eligibility.failure, eligibility.left_at_end = self.failure, self.left_at_end
        self.failure, self.left_at_end, self.left_at_stop = "", 0.0, 0.0
        self._begin_with(runs[0].run_s)

    def end_run(self) -> EarlierRun:
        """The present run, which is not the last, is over. Returns it; the job is then to begin anew."""
        eligibility = self.eligibility
        assert eligibility is not None
        run = eligibility.earlier_runs.pop(0)
        if eligibility.earlier_runs:
            self.work = eligibility.earlier_runs[0].run_s
        else:
            self.work = eligibility.last_work
            self.failure, self.left_at_end = eligibility.failure, eligibility.left_at_end
            self.left_at_stop = self.left_at_end
        if self.predicted:
            self.misstated = self.predicted - self.work
        return run

    def _begin_with(self, work: float) -> None:
        self.work = self.work_left = self.saved_left = work
        if self.predicted:
            self.misstated = self.predicted - work

    def work_at(self, run_s: float) -> float:
        """Units of work done after `run_s` seconds of work on the requested GPUs, at most all of them."""
        if self.phases is None:
            return min(self.work, run_s / self.curve.unit_s[self.requested])
        return self.phases.work_at(self.requested, run_s)

    def divide_into(self, phases: Phases) -> None:
        """The job, which has not begun to work, has phases."""
        self.phases = phases
        self._follow_phases()

    def next_phase(self, now: float) -> None:
        """The present phase ends at `now`, and the next one begins, at a speed that is still to be set."""
        assert self.phases is not None
        self.settle(now)
        self.work_left = self.left_at_phase_end
        self.phases.enter(self.phases.present + 1)
        self._follow_phases()

    def train_with(self, batch: int) -> None:
        """From now on the job trains with `batch`, at a speed that is still to be set."""
        assert self.phases is not None
        self.phases.train_with(batch)
        self._follow_phases()

    def _follow_phases(self) -> None:
        """Take over the speeds and the end of the present phase."""
        phases = self.phases
        assert phases is not None
        self.curve, self.offers = phases.curve, phases.offers
        self.left_at_phase_end = phases.left_after[phases.present]
        self.left_at_stop = max(self.left_at_end, self.left_at_phase_end)
