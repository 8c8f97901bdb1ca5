"""Outages of nodes: failures, repairs, spare nodes, reclaims, and planned changes.

Nothing here depends on jobs or policies, so every policy meets the same outages. Changes are generated on
demand, in order of time; where nodes fail, they never end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple

from itertime.errors import UserError

from .failures import Failures, Machine, lemons
from .maintenance import Maintenance
from .spot import Spot, SpotNode

__all__ = ["NodeChange", "Notice", "Outages"]

RECLAIM = "reclaim"
_Due = tuple[float, int, int, int, str, float]
"""(time, rank, node, machine, kind, seconds of notice or time of the reclaim)"""


_MOST_NODES = 100_000  # a second or four of draws before anything is simulated


class NodeChange(NamedTuple):
    """`node` goes out of service (`up` is False) or comes back. `kind`: the kind of fault, "maintenance" or
    "capacity". `planned`: the change was known in advance, so that jobs can save checkpoints. `notice_s`: how
    long in advance, for "reclaim".
    """

    time_s: float
    node: int
    up: bool
    kind: str
    planned: bool
    notice_s: float = inf


class Notice(NamedTuple):
    """At `time_s` it becomes known that `node` is reclaimed at `leaves_s`."""

    time_s: float
    node: int
    leaves_s: float


class Outages:
    """The changes of service, from `start_s` on, of the nodes of a cluster. `gpus`: the GPUs of each node.

    A place in the cluster (a node, for all other modules) holds a machine. A machine that fails is removed
    and repaired. A spare machine, if there is one, takes the place `spare_swap_s` later. A repaired machine
    returns to its own place at once if that is still empty. Otherwise it goes to the place that has been
    empty for longest, after the swap, or to the spares. A machine ages only while it serves a place, even if
    the place is under maintenance.
    """

    def __init__(
        self,
        gpus: Sequence[int],
        start_s: float,
        *,
        failures: Failures | None = None,
        maintenance: Maintenance | None = None,
        spot: Spot | None = None,
        seed: int = 0,
    ):
        self._reasons: dict[int, int] = {}  # node -> number of reasons why it is out of service
        self._gone_from_s: dict[int, float] = {}  # node -> when it is removed and not added again; or inf
        self._due: list[_Due] = []  # a heap
        self._empty: dict[int, None] = {}  # places without a machine, in the order in which they lost theirs
        self._spares: deque[int] = deque()
        self._machines: dict[int, Machine] = {}  # those that have served
        self._seed = seed
        self._lemons: frozenset[int] = frozenset()
        self._mean_s: list[float] = []  # time in service of an ordinary machine, by place
        self.failures = failures
        self._plan(maintenance or Maintenance(), start_s)
        self._all_gone_s = max(self._gone_from_s.values()) if len(self._gone_from_s) == len(gpus) else inf
        if failures is not None and failures.mtbf_gpu_h is not None:
            self._install_all(failures, gpus, start_s)
        self._spot = spot
        self._spot_nodes = {} if spot is None else {node: SpotNode(spot, seed, node) for node in spot.nodes}
        heapify(self._due)
        for node in self._spot_nodes:
            self._expect_reclaim(start_s, node)

    def next_until(self, time_s: float) -> NodeChange | None:
        """The next change of service, without notices; None if there is none at or before that time. Draws
        only what is due by then: a node may be out for other reasons as long as its machines fail.
        """
        while isinstance(change := self._next(time_s), Notice):
            pass
        return change

    def next_or_notice(self) -> NodeChange | Notice | None:
        """The next change of service or notice of one; None after the last."""
        return self._next(inf)

    def _next(self, latest_s: float) -> NodeChange | Notice | None:
        while self._due and self._due[0][0] <= latest_s:
            time_s, rank, node, machine, kind, details = heappop(self._due)
            if time_s > self._all_gone_s:
                return None  # machines still fail, but no node is left in the cluster
            change: NodeChange | None
            if rank == _NOTICE:
                return Notice(time_s, node, details)
            if rank in (_PLANNED_UP, _PLANNED_DOWN):
                delta = 1 if rank == _PLANNED_DOWN else -1
                change = self._count(time_s, node, delta, kind, planned=True)
                if rank == _PLANNED_DOWN and change is not None:
                    change = change._replace(notice_s=details)
            elif rank == _RECLAIMED:
                back_s = time_s + self._spot_nodes[node].down_s()
                heappush(self._due, (back_s, _RETURNED, node, -1, kind, 0.0))
                change = self._count(time_s, node, 1, kind, planned=True)
                change = None if change is None else change._replace(notice_s=details)
            elif rank == _RETURNED:
                self._expect_reclaim(time_s, node)
                change = self._count(time_s, node, -1, kind, planned=True)
            elif rank == _FAILS:
                change = self._fail(time_s, node, machine)
            elif rank == _REPAIRED:
                change = self._repaired(time_s, node, machine, kind)
            else:
                change = self._install(time_s, node, machine, kind)
            if change is not None:
                return change
        return None

    def _expect_reclaim(self, now: float, node: int) -> None:
        """Draw the next reclaim of a spot node that is there from `now` on, and its notice. A node that is
        removed for good before has none.
        """
        assert self._spot is not None
        leaves_s = now + self._spot_nodes[node].up_s()
        if leaves_s >= self._gone_from_s.get(node, inf):
            return
        self._push_notice(now, node, leaves_s, self._spot.notice_s)
        heappush(
            self._due, (leaves_s, _RECLAIMED, node, -1, RECLAIM, min(self._spot.notice_s, leaves_s - now))
        )

    def _push_notice(self, now: float, node: int, leaves_s: float, notice_s: float) -> None:
        """A notice comes at `now` at the earliest."""
        heappush(self._due, (max(now, leaves_s - notice_s), _NOTICE, node, -1, RECLAIM, leaves_s))

    def gone(self, now: float) -> frozenset[int]:
        """The nodes that are removed permanently at or before `now`."""
        return frozenset(node for node, time_s in self._gone_from_s.items() if time_s <= now)

    def last_removals_s(self) -> list[float]:
        """The times at which nodes are removed permanently, ascending and distinct."""
        return sorted({time_s for time_s in self._gone_from_s.values() if time_s < inf})

    def _plan(self, maintenance: Maintenance, start_s: float) -> None:
        """Queue the planned changes. The net effect of those before the start is queued at the start."""
        at_start = dict.fromkeys(sorted(maintenance.absent), 1)
        kinds = dict.fromkeys(at_start, "capacity")
        for time_s, node, delta, kind, notice_s, _ in maintenance.changes:
            if kind == "capacity":
                self._gone_from_s[node] = max(time_s, start_s) if delta > 0 else inf
            if time_s <= start_s:
                at_start[node] = at_start.get(node, 0) + delta
                if at_start[node]:
                    kinds.setdefault(node, kind)
                else:
                    kinds.pop(node, None)
            else:
                rank = _PLANNED_DOWN if delta > 0 else _PLANNED_UP
                self._due.append((time_s, rank, node, -1, kind, notice_s))
                if delta > 0 and notice_s < inf:
                    self._push_notice(start_s, node, time_s, notice_s)
        for node, reasons in at_start.items():
            self._due += [(start_s, _PLANNED_DOWN, node, -1, kinds.get(node, ""), inf)] * reasons

    def _install_all(self, failures: Failures, gpus: Sequence[int], start_s: float) -> None:
        nodes, count = len(gpus), len(gpus) + failures.spare_nodes
        if nodes > _MOST_NODES:
            problem = f"the cluster has {nodes:,} nodes; failures are drawn for at most {_MOST_NODES:,}"
            raise UserError(f"failures: {problem}; choose a smaller cluster, or mtbf_gpu_h=null")
        self._lemons = lemons(failures, count, self._seed)
        self._mean_s = [failures.ordinary_mtbf_s(size) for size in gpus]
        self._spares.extend(range(nodes, count))
        for node in range(nodes):
            fails_s = start_s + self._machine(node).first_life_s(self._mean_at(node, node))
            self._due.append((fails_s, _FAILS, node, node, "", 0.0))

    def _machine(self, number: int) -> Machine:
        """The draws of a machine, which do not depend on when they begin."""
        assert self.failures is not None
        if number not in self._machines:
            self._machines[number] = Machine(self.failures, self._seed, number)
        return self._machines[number]

    def _mean_at(self, node: int, machine: int) -> float:
        assert self.failures is not None
        return self._mean_s[node] / (self.failures.lemon_factor if machine in self._lemons else 1.0)

    def _fail(self, time_s: float, node: int, machine: int) -> NodeChange | None:
        assert self.failures is not None
        kind, repair_s = self._machine(machine).fault()
        heappush(self._due, (time_s + repair_s, _REPAIRED, node, machine, kind, 0.0))
        self._empty[node] = None
        if self._spares:
            self._send(time_s, node, self._spares.popleft(), kind)
        return self._count(time_s, node, 1, kind, planned=False)

    def _repaired(self, time_s: float, node: int, machine: int, kind: str) -> NodeChange | None:
        if node in self._empty:
            return self._install(time_s, node, machine, kind)
        if self._empty:
            self._send(time_s, next(iter(self._empty)), machine, kind)
        else:
            self._spares.append(machine)
        return None

    def _send(self, time_s: float, node: int, machine: int, kind: str) -> None:
        """Send a machine to an empty place. No other machine is sent to that place meanwhile."""
        assert self.failures is not None
        del self._empty[node]
        heappush(self._due, (time_s + self.failures.spare_swap_s, _INSTALLED, node, machine, kind, 0.0))

    def _install(self, time_s: float, node: int, machine: int, kind: str) -> NodeChange | None:
        self._empty.pop(node, None)
        life_s = self._machine(machine).life_s(self._mean_at(node, machine))
        heappush(self._due, (time_s + life_s, _FAILS, node, machine, "", 0.0))
        return self._count(time_s, node, -1, kind, planned=False)

    def _count(self, time_s: float, node: int, delta: int, kind: str, *, planned: bool) -> NodeChange | None:
        """Add or remove a reason for which the node is out of service. Returns a change only if the node
        thereby goes out of service or comes back.
        """
        count_before = self._reasons.get(node, 0)
        count_after = count_before + delta
        self._reasons[node] = count_after
        if bool(count_before) == bool(count_after):
            return None
        return NodeChange(time_s, node, not count_after, kind, planned)


# At equal times, changes that return nodes come before changes that take them.
_PLANNED_UP, _REPAIRED, _INSTALLED, _RETURNED, _NOTICE, _PLANNED_DOWN, _RECLAIMED, _FAILS = range(8)
