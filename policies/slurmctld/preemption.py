"""Which running jobs a waiting job may preempt, and which ones it does preempt.

Sources: Slurm's page "Preemption"; slurm.conf(5), `PreemptType`, `PreemptMode`, `PreemptParameters`,
`PreemptExemptTime`; sacctmgr(1), `Preempt`, `GraceTime`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .placement import FreeNodes, place
from .records import JobRecord, Placement
from .rules import Rules

__all__ = ["Preemption", "Victims"]

MODES = ("REQUEUE", "CANCEL")
"""The modes that free the nodes of a preempted job. SUSPEND and GANG do not, and preempt nothing here."""


class Victims(NamedTuple):
    """Where a job starts, and the running jobs that make room for it there."""

    placement: Placement
    jobs: tuple[JobRecord, ...]


class Preemption:
    """The rules of preemption of a site: by QOS, by the tier of the partition, or none."""

    def __init__(self, rules: Rules):
        self._rules = rules
        settings = rules.settings
        kind = settings.PreemptType.rpartition("/")[2]
        self._by_qos, self._by_partition = kind == "qos", kind == "partition_prio"
        parameters = {**settings.PreemptParameters, **settings.SchedulerParameters}
        self._reorders = int(parameters.get("preempt_reorder_count", parameters.get("reorder_count", 1)))
        self._youngest_first = bool(
            parameters.get("preempt_youngest_first") or parameters.get("youngest_first")
        )
        self._strict = bool(parameters.get("preempt_strict_order") or parameters.get("strict_order"))

    @property
    def enabled(self) -> bool:
        return self._by_qos or self._by_partition

    def mode(self, job: JobRecord) -> str:
        """What becomes of a preempted job: REQUEUE, CANCEL, or a mode that preempts nothing here."""
        if self._by_qos:
            stated = self._rules.qos_of(job.qos).PreemptMode
        else:
            stated = self._rules.partitions[job.partition].PreemptMode
        mode = _plain_mode(stated or self._rules.settings.PreemptMode)
        return "CANCEL" if mode == "REQUEUE" and not job.requeues else mode

    def grace_s(self, job: JobRecord) -> float:
        if self._by_qos:
            return self._rules.qos_of(job.qos).GraceTime
        return self._rules.partitions[job.partition].GraceTime

    def candidates(
        self, job: JobRecord, partition: str, running_jobs: Iterable[JobRecord], usable: int, now: float
    ) -> list[JobRecord]:
        """The running jobs on `usable` nodes that a job may preempt, those with the lowest priority (of their
        QOS, or the tier of their partition) first, then those with the fewest nodes, then by id.
        """
        if not self.enabled:
            return []
        eligible_jobs = [
            other
            for other in running_jobs
            if other.mask & usable
            and self._may_preempt(job, partition, other)
            and self.mode(other) in MODES
            and now - other.start_s >= self._exempt_s(other)
        ]
        if self._youngest_first:
            return sorted(eligible_jobs, key=lambda other: (-other.start_s, other.order))
        return sorted(
            eligible_jobs, key=lambda other: (self._rank(other), other.mask.bit_count(), other.order)
        )

    def victims(
        self,
        job: JobRecord,
        candidates: Sequence[JobRecord],
        free: FreeNodes,
        usable: int,
        weights: Sequence[int] = (-1,),
    ) -> Victims | None:
        """The jobs to preempt so that `job` starts, and its place. None if all of them are not enough.

        One more candidate at a time is left out until the job has a place. That is done again, up to
        `preempt_reorder_count` + 1 times, with the last of these first and the others by how many of the
        place's nodes they hold. Preempted are, of those left out, the ones on the place's nodes.
        """
        order = list(candidates)
        passes = 0
        while True:
            last, placement = _first_room(job, order, free, usable, weights)
            if placement is None:
                return None
            place_mask = sum(1 << node for node, _ in placement)
            passes += 1
            if passes > self._reorders + 1 or len(order) <= passes:
                return Victims(
                    placement, tuple(other for other in order[: last + 1] if other.mask & place_mask)
                )
            last_job = order[last]
            if self._strict:
                order.insert(0, order.pop(last))
                continue
            overlap = {other: (other.mask & place_mask).bit_count() for other in order[:last]}
            overlap[last_job] = len(order) + self._rules.all_nodes
            order.sort(key=lambda other: -overlap.get(other, 0))

    def _may_preempt(self, job: JobRecord, partition: str, other: JobRecord) -> bool:
        if self._by_qos:
            return other.qos in self._rules.qos_of(job.qos).Preempt
        partitions = self._rules.partitions
        return partitions[other.partition].PriorityTier < partitions[partition].PriorityTier

    def _rank(self, other: JobRecord) -> int:
        if self._by_qos:
            return self._rules.qos_of(other.qos).Priority
        return self._rules.partitions[other.partition].PriorityTier

    def _exempt_s(self, other: JobRecord) -> float:
        stated = self._rules.qos_of(other.qos).PreemptExemptTime
        return self._rules.settings.PreemptExemptTime if stated is None else stated


def _plain_mode(stated: str) -> str:
    """A mode without GANG, which may stand beside it."""
    words = [word.strip().upper() for word in stated.split(",")]
    return next((word for word in words if word != "GANG"), "OFF")


def _first_room(
    job: JobRecord, order: Sequence[JobRecord], free: FreeNodes, usable: int, weights: Sequence[int]
) -> tuple[int, Placement | None]:
    """How far down the order jobs have to be left out until `job` has a place, and that place."""
    left = free.copy()
    for last, other in enumerate(order):
        left.release(other)
        placement = place(job, left, usable, weights)
        if placement is not None:
            return last, placement
    return len(order), None
