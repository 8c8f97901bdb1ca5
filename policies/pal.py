"""PAL: places jobs on GPUs of one type that are not equally fast."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf
from reprlib import repr as brief

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from policies.fifo import Fifo
from policies.las import Las
from policies.srtf import Srtf
from policies.toolkit.parameters import number
from policies.toolkit.places import Places, places_for

__all__ = ["Pal"]

_ORDERS = {"fifo": Fifo, "las": Las, "srtf": Srtf}
_INSTANT_S = 1e-6  # the end of a round that is this close is reached


class Pal(Scheduler):
    """The jobs that another policy runs (`order`: fifo, las or srtf), on nodes that are fast for their class:
    jobs that notice differences most choose first, and each takes the places with the least slowdown x
    locality penalty.

    Jain, Tran, Chen, Sinclair and Venkataraman, "PAL: A Variability-Aware Policy for Scheduling ML Workloads
    in GPU Clusters", SC 2024. The penalty is 1 on the fewest nodes that can hold a job, and `locality` on any
    others; `locality=1` is the paper's PM-First. With `round_s` all jobs choose anew every `round_s` seconds,
    and a job moves where that saves more time within the round than it costs. Otherwise jobs stay where they
    are. The paper's bins of GPUs are left out: every node counts with its own factor, which is that of its
    slowest GPU.
    """

    one_gpu_type = True
    leaves_idle = False

    def __init__(self, order: str = "fifo", locality: float = 1.5, round_s: float = 0.0):
        if not isinstance(order, str) or order not in _ORDERS:
            raise ValueError(f"order={brief(order)}: must be one of {', '.join(_ORDERS)}")
        self.order = order
        self.locality = number("locality", locality, minimum=1)
        self.round_s = number("round_s", round_s, minimum=0)
        self._base: Scheduler = _ORDERS[order]()
        self._round_end_s = -inf
        self._factors: dict[str | None, list[float]] = {}  # by model, of each node

    def schedule(self, state: State) -> Proposal:
        proposal = self._base.schedule(state)
        choose_anew = bool(self.round_s) and state.now >= self._round_end_s - _INSTANT_S
        if choose_anew:
            self._round_end_s = state.now + self.round_s
        self._place(proposal, state, proposal.running() if choose_anew else _placed_now(proposal))
        if self.round_s and proposal.running():
            proposal.wake_at = min(self._round_end_s, proposal.wake_at or inf)
        return proposal

    def _place(self, proposal: Proposal, state: State, jobs: Iterable[JobView]) -> None:
        """Place these jobs, which hold GPUs in the draft, again: the most sensitive first."""
        counts = {job: proposal.gpus(job) for job in jobs}
        old_placements = {job: proposal.placement(job) for job in counts}
        for job in counts:
            proposal.stop(job)
        for job in sorted(counts, key=lambda job: (-self._sensitivity(job, state), job.order)):
            best = self._best(proposal, state, job, counts[job])
            old_placement = old_placements[job] if job.running else None
            if old_placement is not None and proposal.has_room(job, old_placement):
                saved_s = (
                    (1 - best[0] / self._cost(state, job, old_placement)) * self.round_s if best else 0.0
                )
                if best is None or saved_s <= job.restart_s(counts[job]):
                    best = 0.0, old_placement
            if best is not None:
                proposal.start(job, counts[job], on=best[1])

    def _best(self, proposal: Proposal, state: State, job: JobView, gpus: int) -> tuple[float, Places] | None:
        """The places with the least slowdown x penalty, and that product; None without room."""
        factors = self._of(job, state)
        nodes = proposal.free_nodes(job).items()
        free = sorted(nodes, key=lambda spot: (factors[spot[0]], spot[1], spot[0]))
        placements = [places_for(job, free, gpus, state.cluster.sizes)]
        if sum(job.node_counts) != gpus:
            placements.append(_anywhere(free, gpus))
        return min(
            ((self._cost(state, job, placement), placement) for placement in placements if placement),
            default=None,
        )

    def _cost(self, state: State, job: JobView, placement: Places) -> float:
        """The slowdown of a job at these places, times the penalty for more nodes than it needs."""
        factors, gpus = self._of(job, state), sum(count for _, count in placement)
        slowdown = max(factors[node] for node, _ in placement)
        fewest = -(-gpus // state.cluster.gpus_per_node)
        return slowdown * (self.locality if len(placement) > fewest else 1.0)

    def _sensitivity(self, job: JobView, state: State) -> float:
        """How many times longer a job takes on its slowest node than on its fastest."""
        factors = self._of(job, state)
        return max(factors) / min(factors)

    def _of(self, job: JobView, state: State) -> list[float]:
        """The factor of each node for a job."""
        factors = self._factors.get(job.model)
        if factors is None:
            nodes = range(state.cluster.nodes)
            factors = self._factors[job.model] = [job.slowdown_on(node) for node in nodes]
        return factors


def _placed_now(proposal: Proposal) -> list[JobView]:
    """The jobs that get GPUs by the draft."""
    return [job for job, placement in proposal.changes.items() if placement]


def _anywhere(free: list[tuple[int, int]], gpus: int) -> Places | None:
    """GPUs on the first nodes of (node, free GPUs) pairs."""
    spots = dict(_taken(free, gpus))
    return tuple(sorted(spots.items())) if sum(spots.values()) == gpus else None


def _taken(free: list[tuple[int, int]], gpus: int) -> Iterator[tuple[int, int]]:
    for node, n in free:
        if gpus <= 0:
            return
        yield node, min(n, gpus)
        gpus -= n
