"""A job inside the system as the engine keeps it: its progress, its GPUs, and what they cost."""

from __future__ import annotations

from dataclasses import replace

from clustersim.cluster import MILLION, Cluster, HostDemand, Placement, SharedPlacement, gpus_held, parts_of
from clustersim.overheads import Overheads
from clustersim.records import START
from clustersim.speed import Curve, Offer
from traces.job import Job

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

    `misstated`: units by which the work that the user states exceeds the true `work`; 0 if they are equal.
    `predicted`: the units predicted in place of that statement; 0 if none are.

    A job that shares a GPU counts as one of 1 GPU (`requested`, `gpus`). `parts`: the millionths of it that
    the job holds, 0 for whole GPUs. `needs`: the GPUs that must be free, a fraction for such a job. `held`:
    the GPUs that it is charged for. `demand`: what it needs on a node for each of its GPUs; None: nothing
    that the cluster limits.
    """

    __slots__ = (
        "cost_usd", "curve", "demand", "finish_s", "generation", "gpu_seconds", "gpus", "held", "job",
        "least_left", "lost_s", "migrations", "misstated", "needs", "note", "noted", "offers", "order",
        "overhead_gpu_s", "paid_gpu_s", "parts", "placement", "predicted", "preemptions", "ready_s",
        "requested", "resizes", "restarts", "save_due", "save_s", "saved_left", "since_s", "start_s",
        "states_work", "unit_s", "usd_per_gpu_h", "wait_s", "work", "work_left",
    )  # fmt: skip

    # Changed by failures only (see `CheckpointedJob`).
    interruptions: int = 0
    lost_work_s: float = 0.0
    lost_work_gpu_s: float = 0.0
    failure: str = ""

    # Of jobs in phases only (see `PhasedJob`).
    phase: int = 0
    batch: int | None = None

    def __init__(self, job: Job, order: int, curve: Curve, requested: int, note: str):
        """`order`: position in the order of submission. `requested`: GPUs, a count that `curve` has."""
        self.job, self.order, self.curve, self.requested, self.note = job, order, curve, requested, note
        self.noted = ""  # by the policy, last
        self.offers: tuple[Offer, ...] = ()  # by GPU type, the best first; empty on a cluster of one type
        self.states_work = job.kind == "iterations"  # else the logged duration, which policies do not know
        work = job.iterations if self.states_work else job.duration_s
        assert work is not None
        self.work = self.work_left = self.saved_left = float(work)  # `saved_left`: as of the last save
        self.misstated = self.least_left = self.predicted = 0.0
        if self.states_work and job.stated_iterations is not None:
            self.misstated = job.stated_iterations - self.work
            self.least_left = LEAST_LEFT * job.stated_iterations
        self.placement: Placement | None = None
        self.gpus = 0
        self.demand: HostDemand | None = None
        self.parts = 0 if job.gpu_fraction is None else parts_of(job.gpu_fraction)
        self.needs: float = self.parts / MILLION if self.parts else requested
        self.held: float = 0
        self.unit_s = 0.0
        self.since_s = job.submit_s  # when the present allocation, or the present wait, began
        self.ready_s = 0.0
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
        remaining = self.work_left - (now - began_s) / self.unit_s
        return remaining if remaining > 0.0 else 0.0

    def as_stated(self, left: float) -> float:
        """Units still to do by the work that the user states, where `left` are still to do in truth."""
        if not self.misstated:
            return left
        if self.predicted and left == self.work:
            return self.predicted  # to the last bit, so that jobs of equal predictions tie
        stated = left + self.misstated
        return stated if stated > self.least_left else self.least_left

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
        spent = now - self.since_s
        if self.placement is None:
            self.wait_s += spent
        else:
            self.work_left = self.work_left_at(now)
            self.gpu_seconds += spent * self.held
            if self.cost_usd is not None:
                self.cost_usd += spent * self.held * self.usd_per_gpu_h / 3600
            if self.ready_s > self.since_s:
                overhead = min(self.ready_s - self.since_s, spent)
                self.overhead_gpu_s += overhead * self.held
                self.paid_gpu_s += overhead * self.held
                self.lost_s += overhead
                if self.save_due:
                    self.save_due = max(0.0, self.save_due - overhead / self.save_s)
        self.since_s = now

    def pay(self, usd_per_gpu_h: float) -> None:
        """From now on a GPU-hour of the job, just settled, costs this."""
        self.usd_per_gpu_h, self.cost_usd = usd_per_gpu_h, self.cost_usd or 0.0

    def hold(self, placement: Placement, gpus: int, unit_s: float, now: float, overhead_s: float) -> float:
        """Take `placement` at `now`, paying `overhead_s` first. Returns the time at which the job will be
        done.
        """
        self.placement, self.gpus, self.unit_s = placement, gpus, unit_s
        self.held = gpus_held(placement) if placement.__class__ is SharedPlacement else gpus
        self.since_s, self.ready_s = now, now + overhead_s
        self.generation += 1
        return self.ready_s + self.work_left * unit_s

    def change_speed(self, unit_s: float, now: float) -> float:
        """Continue with `unit_s` seconds per unit of work from `now` on, on the same GPUs; the rest of an
        overhead is still to be paid. Returns the time at which the job will be done.
        """
        self.settle(now)
        self.unit_s = unit_s
        self.generation += 1
        return max(now, self.ready_s) + self.work_left * unit_s

    def charge_s(self, overheads: Overheads, kind: str, gpus: int, nodes: int) -> float:
        """Seconds of overhead for `gpus` GPUs on `nodes` nodes, which the job, just settled, gets by a start,
        restart, resize or migration (`kind`). The job's present state counts as saved from then on.
        """
        if kind == START:
            return overheads.start_s(gpus)
        parameters, owed = self.curve.parameters, self.save_owed_at(self.since_s)
        self.saved_left, self.save_s = self.work_left, overheads.save_s(parameters, nodes)
        self.save_due = owed if self.save_s else 0.0
        return overheads.restart_s(
            parameters, nodes, gpus, kind, saves=self.save_due, loads=self.work_left < self.work
        )

    def save_owed_at(self, now: float) -> float:
        """The share of a save that the job is charged if it gets other GPUs at `now`: 1 if it has worked
        since its last save, else the unpaid rest of that save. Every payment begins with the save.
        """
        if self.work_left_at(now) < self.saved_left:
            return 1.0
        if not self.save_due or self.placement is None:
            return self.save_due
        return max(0.0, self.save_due - (now - self.since_s) / self.save_s)

    def paying_s(self, now: float) -> float:
        """Seconds of overhead still to pay on the present GPUs."""
        left_s = self.ready_s - now
        return left_s if left_s > 0.0 else 0.0

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
        found = (offer.curve.unit_s.get(gpus) for offer in self.offers_of(gpu_type))
        return min((unit_s for unit_s in found if unit_s is not None), default=None)

    @property
    def ends_phase(self) -> bool:
        """Whether the job reaches the end of a phase next, and not its own end."""
        return False

    @property
    def isolated_s(self) -> float:
        """Seconds of work on the requested GPUs."""
        return self.work * self.curve.unit_s[self.requested]

    def seconds_left(self, gpus: int, left: float) -> float | None:
        """Seconds for the last `left` units of work on `gpus` GPUs of the fastest type; None if the job
        cannot run there.
        """
        unit_s = self.unit_s_on(gpus, None)
        return None if unit_s is None else left * unit_s

    def expected_end_s(self, now: float) -> float:
        """When the running job is done if its speed does not change but for its phases."""
        return max(self.since_s, self.ready_s) + self.work_left * self.unit_s

    def let_go(self) -> None:
        """Release the GPUs."""
        self.placement, self.gpus, self.held = None, 0, 0
        self.generation += 1
