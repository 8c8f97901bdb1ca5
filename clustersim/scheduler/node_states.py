"""Why jobs cannot have the GPUs of some nodes, although no job of the policy holds them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, Protocol, TypeVar

from clustersim.cluster import NodeSet, Placement

from .internal import AnyView

__all__ = ["NO_CLOSED_NODES", "ClosedNodes", "NodeStates", "Plans"]

View = TypeVar("View", contravariant=True)


class ClosedNodes(NamedTuple):
    """The nodes on which a job may get no GPUs now, and those that are reserved for it, to be used first."""

    closed: NodeSet
    reserved: NodeSet


NO_CLOSED_NODES = ClosedNodes(0, 0)


class Plans(Protocol[View]):
    """What is planned of the nodes: reservations, and what a calendar announces. The one place to ask."""

    def closed_during(self, job: View | None, from_s: float, until_s: float) -> ClosedNodes:
        """The nodes that are closed at `from_s`, or at any time from then to `until_s`, to a job which may
        run until then. Without a job: those that are closed to every job.
        """

    def back_by(self, time_s: float) -> NodeSet:
        """The nodes that are out of service now as announced, and no longer at `time_s`."""

    def openings_s(self) -> Iterable[float]:
        """The times after now at which nodes open, ascending."""

    def changes(self, job: View | None) -> Iterable[tuple[float, int, int]]:
        """(time, node, sign) of the nodes that jobs can use from then on (1), or not any more (-1), from now
        on: as the calendar announces. With a job: by the reservations that are not for it.
        """


class NodeStates(Generic[AnyView]):
    """The nodes that are out of service, are about to leave, or are closed to some jobs. Before the first
    event of that kind each field says that there are none, so no reader has to ask whether a run has them.

    | field | |
    |---|---|
    | `gpus_down` | the number of GPUs of nodes out of service |
    | `removed_by` | a function of a time: the nodes that never return after it |
    | `leaving` | the time of its reclaim, by each node that has a notice |
    | `gpus_serving` | by node, the GPUs that instances of services hold; `serving`: all of them |
    | `closed_to` | the nodes closed to a job, or to every job (no job), and those reserved for it |
    | `may_close` | whether `closed_to` may ever name any |
    | `plans` | what is planned of the nodes; None if nothing |
    | `unequal` | whether nodes of one GPU type differ in the number of their GPUs |
    | `limit_hosts` | whether a job has stated cores, memory or nodes, so that GPUs alone tell it no place |
    """

    __slots__ = (
        "closed_to",
        "gpus_down",
        "gpus_serving",
        "leaving",
        "limit_hosts",
        "may_close",
        "plans",
        "removed_by",
        "serving",
        "unequal",
    )

    def __init__(self) -> None:
        self.gpus_down = 0
        self.removed_by: Callable[[float], frozenset[int]] = _no_removed_nodes
        self.leaving: dict[int, float] = {}
        self.serving = 0
        self.gpus_serving: dict[int, int] = {}
        self.closed_to: Callable[[AnyView | None], ClosedNodes] = _no_closed_nodes
        self.may_close = False
        self.plans: Plans[AnyView] | None = None
        self.limit_hosts = False
        self.unequal = False

    @property
    def may_refuse_jobs(self) -> bool:
        """Whether free GPUs may be such that some jobs cannot have them."""
        return self.limit_hosts or self.may_close or self.unequal

    def close(self, closed_to: Callable[[AnyView | None], ClosedNodes]) -> None:
        """From now on, nodes are closed to jobs, and reserved for jobs, as `closed_to` says."""
        self.closed_to = closed_to
        self.may_close = True

    def serve(self, placement: Placement, sign: int) -> None:
        """An instance of a service takes the GPUs of `placement` (`sign` 1), or releases them (-1)."""
        for node, count in placement:
            self.gpus_serving[node] = self.gpus_serving.get(node, 0) + sign * count
            self.serving += sign * count


def _no_closed_nodes(job: object) -> ClosedNodes:
    return NO_CLOSED_NODES


def _no_removed_nodes(time_s: float) -> frozenset[int]:
    return frozenset()
