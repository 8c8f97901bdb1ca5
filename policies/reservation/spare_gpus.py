"""Spare GPUs: those that no job has reserved for now. A rule shares them out.

A move costs a restart, and spare GPUs may be gone at the next event. So a job with a reservation may have
them only where that does not endanger its promise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

from clustersim.scheduler import JobView, State

from .agenda import Agenda
from .calendar import Slot
from .demand import Demand
from .filling import yield_of
from .gpu_types import Share, held_on
from .reservations import Reservations

__all__ = ["SpareGpus", "SpareRule", "may_stay"]

_ROUNDING_S = 1e-3  # far more than the rounding of times


class SpareGpus:
    """The spare GPUs of one decision. `in_service`: free and held GPUs by type. `held`: the GPUs that each
    running job holds.

    `target`: GPUs by job, at first the reserved ones that are due. `spare`: the other GPUs, by type. A rule
    adds to `target` through `give`, and only what `may_have` and `limit` allow.

    Reservations that begin soon come before any rule: they begin early if enough GPUs are free, else GPUs are
    held back for them (`held_back`, by type). GPUs are also held back for jobs that grow soon. To start
    another job on them would only do harm: they would be taken away before its restart has paid off.
    """

    def __init__(
        self, state: State, reservations: Reservations, agenda: Agenda, in_service: Mapping[str, int]
    ):
        self.state, self.reservations, self.agenda = state, reservations, agenda
        self.now = state.now
        self.held = {job: job.gpus for job in state.running}
        self.target = dict(agenda.shares)
        self.spare = {}
        for name, gpus in in_service.items():
            taken = [share.gpus for share in self.target.values() if share.gpu_type == name]
            self.spare[name] = max(0, gpus - sum(taken))
        lacking = self._begin_early(in_service)
        self.held_back = {name: lacking[name] + agenda.growing[name] for name in in_service}

    def give(self, demand: Demand, size: int) -> None:
        """Let a job have `size` GPUs of the type of `demand`, instead of what it has in `target`."""
        held = self.target.get(demand.job)
        if held:
            self.spare[held.gpu_type] += held.gpus
        self.spare[demand.gpu_type] -= size
        self.target[demand.job] = Share(size, demand.gpu_type)

    def keep(self, shares: Mapping[JobView, Share]) -> None:
        """As `give`, to several jobs that have nothing in `target`. Only on a cluster of one GPU type."""
        self.target.update(shares)
        self.spare[""] -= sum([share.gpus for share in shares.values()])

    def limit(self, demand: Demand, size: int) -> int:
        """The spare GPUs for a size. Those held back may serve sizes up to the one that the job runs on."""
        name = demand.gpu_type
        return self.spare[name] if size <= demand.gpus else self.spare[name] - self.held_back[name]

    def may_have(self, option: Demand, size: int) -> bool:
        """Whether a job may stay on, or move to, a `size` that it need not have reserved for now."""
        job = option.job
        home, due = self.reservations.demands[job], self.agenda.due.get(job)
        reserved = due.gpus if due else 0
        if option is home and size == reserved:
            return True
        if home.counts_on_launch:
            return False  # its reservation would then begin with a restart
        if reserved and option is not home and option.rates[size] < home.rates[reserved]:
            return False  # it would fall behind its reservation
        slots = self.reservations.slots(job)
        if size == option.gpus:
            return may_stay(home, reserved, slots, self.now)
        return self._gains(option, size) and _may_move(option, size, home, reserved, slots, self.now)

    def is_tied(self, job: JobView) -> bool:
        """Whether a job runs as it has reserved and may have no other GPUs, so that a rule can pass it over.

        It has less slack than the work of a restart on its reserved GPUs, which every move has to set aside.
        To follow its reservation leaves the slack as it is. So the answer holds until the next slot, and is
        kept (`Reservations.tied` and `loose`). A job so close to the limit that rounding could decide is not
        tied, nor is a job in phases: it may work faster than its rate, and gain slack.
        """
        due, reservations = self.agenda.due.get(job), self.reservations
        if due is None or not reservations.demands[job].in_place:
            return False
        if reservations.tied.get(job) is due:
            return True
        if reservations.loose.get(job) is due:
            return False
        home, options = reservations.demands[job], reservations.options[job]
        if job.phases:
            return False
        home.refresh()
        if home.paying_s or min(option.kind.least_restart_s for option in options) < _ROUNDING_S:
            return False  # what it still pays may change; a move that costs nothing needs no slack
        slack = yield_of(reservations.slots(job), home, self.now) - home.work
        if slack >= home.rates[due.gpus] * (home.restarts[due.gpus] - _ROUNDING_S):
            reservations.loose[job] = due
            return False
        reservations.tied[job] = due
        return True

    def _begin_early(self, in_service: Mapping[str, int]) -> Mapping[str, int]:
        """Add to `target` the reservations that begin soon and for which GPUs are free. Returns the GPUs by
        type that the other ones lack.
        """
        lacking: dict[str, int] = defaultdict(int)
        target, spare, idle = self.target, self.spare, None
        for _, _, job, gpus in self.agenda.soon:
            demand = self.reservations.demands[job]
            name = demand.gpu_type
            extra = gpus - held_on(job, name)
            if demand.counts_on_launch:
                demand.refresh()  # it may have started since, and lost its GPUs again
            has_room = gpus <= spare[name] and not demand.counts_on_launch
            if has_room and idle is None:
                idle = self._idle(in_service)
            if not has_room or idle is None or extra > idle[name]:
                lacking[name] += max(0, extra)
                continue
            target[job] = Share(gpus, name)
            spare[name] -= gpus
            idle[name] -= max(0, extra)
        return lacking

    def _idle(self, in_service: Mapping[str, int]) -> dict[str, int]:
        """GPUs by type that no job holds, less those that due jobs lack."""
        demands = self.reservations.demands
        idle = dict(in_service)
        if self.state.cluster.mixed:
            for job, gpus in self.held.items():
                idle[job.gpu_type or ""] -= gpus
        else:
            idle[""] -= sum(self.held.values())
        for job, share in self.agenda.shares.items():
            if not demands[job].in_place:
                idle[share.gpu_type] -= max(0, share.gpus - held_on(job, share.gpu_type))
        return idle

    def _gains(self, option: Demand, size: int) -> bool:
        """Whether a running job finishes earlier on a larger size, or on another type than the one it could
        stay on.
        """
        for at in self.reservations.options[option.job]:
            if at.gpus:
                break
        else:
            return True
        if at is option and size < at.gpus:
            return True
        if at is not option:
            held = self.target.get(option.job)
            kept = held.gpus if held and held.gpu_type == at.gpu_type else 0
            if at.gpus - kept > self.spare[at.gpu_type]:
                return True
        return (
            option.restarts[size] + option.work / option.rates[size]
            < at.paying_s + at.work / at.rates[at.gpus]
        )


SpareRule = Callable[[SpareGpus], None]
"""Shares out spare GPUs."""


def may_stay(demand: Demand, reserved: int, slots: list[Slot], now: float) -> bool:
    """Whether a job may stay on more GPUs than it has reserved for now, or on as many elsewhere.

    While it works there, it gains on its reservation. While it still pays for its restart there, it falls
    behind, and the GPUs may be gone at the next event. So it needs slack for the work that the reservation
    would do meanwhile.
    """
    if not reserved or not demand.paying_s:
        return True
    return yield_of(slots, demand, now) - demand.work >= demand.paying_s * demand.rates[reserved]


def _may_move(option: Demand, size: int, home: Demand, reserved: int, slots: list[Slot], now: float) -> bool:
    """Whether a job with `slots` on the type of `home` may move to a `size` that it neither holds nor has
    reserved for now.

    It does no work while it pays for the move, and the spare GPUs may be gone at any event. So it needs slack
    for the work that its reservation would do meanwhile, and for the restart back unless the reservation is
    charged for that already.
    """
    if not slots or (option is home and not reserved and size <= slots[0].gpus):
        return True
    ready = now + option.restarts[size]
    if ready <= now or slots[0].start >= ready:
        return True  # no reserved work is missed meanwhile
    rates, restarts = home.rates, home.restarts
    missed = sum(
        rates[gpus] * (min(end, ready) - max(start, now)) for start, end, gpus, _ in slots if start < ready
    )
    if home.in_place:
        missed += rates[reserved] * restarts[reserved]
    return yield_of(slots, home, now) - home.work >= missed
