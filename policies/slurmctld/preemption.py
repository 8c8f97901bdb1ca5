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
            mode = self._rules.qos_of(job.qos).PreemptMode
        else:
            mode = self._rules.partitions[job.partition].PreemptMode
        return _plain_mode(mode or self._rules.settings.PreemptMode)

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
            candidate
            for candidate in running_jobs
            if candidate.mask & usable
            and self._may_preempt(job, partition, candidate)
            and self.mode(candidate) in MODES
            and now - candidate.start_s >= self._exempt_s(candidate)
        ]
        if self._youngest_first:
            return sorted(eligible_jobs, key=lambda candidate: (-candidate.start_s, candidate.order))
        return sorted(
            eligible_jobs,
            key=lambda candidate: (self._rank(candidate), candidate.mask.bit_count(), candidate.order),
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
            place_in_order, placement = _first_room(job, order, free, usable, weights)
            if placement is None:
                return None
            place_mask = sum(1 << node for node, _ in placement)
            passes += 1
            if passes > self._reorders + 1 or len(order) <= passes:
                return Victims(
                    placement,
                    tuple(
                        candidate for candidate in order[: place_in_order + 1] if candidate.mask & place_mask
                    ),
                )
            last_job = order[place_in_order]
            if self._strict:
                order.insert(0, order.pop(place_in_order))
                continue
            overlap = {
                candidate: (candidate.mask & place_mask).bit_count() for candidate in order[:place_in_order]
            }
            overlap[last_job] = len(order) + self._rules.all_nodes
            order.sort(key=lambda candidate: -overlap.get(candidate, 0))

    def _may_preempt(self, job: JobRecord, partition: str, candidate: JobRecord) -> bool:
        if self._by_qos:
            return candidate.qos in self._rules.qos_of(job.qos).Preempt
        partitions = self._rules.partitions
        return partitions[candidate.partition].PriorityTier < partitions[partition].PriorityTier

    def _rank(self, candidate: JobRecord) -> int:
        if self._by_qos:
            return self._rules.qos_of(candidate.qos).Priority
        return self._rules.partitions[candidate.partition].PriorityTier

    def _exempt_s(self, candidate: JobRecord) -> float:
        exempt_s = self._rules.qos_of(candidate.qos).PreemptExemptTime
        return self._rules.settings.PreemptExemptTime if exempt_s is None else exempt_s


def _plain_mode(modes: str) -> str:
    """A mode without GANG, which may stand beside it."""
    words = [word.strip().upper() for word in modes.split(",")]
    return next((word for word in words if word != "GANG"), "OFF")


def _first_room(
    job: JobRecord, order: Sequence[JobRecord], free: FreeNodes, usable: int, weights: Sequence[int]
) -> tuple[int, Placement | None]:
    """How far down the order jobs have to be left out until `job` has a place, and that place."""
    free_without = free.copy()
    for place_in_order, candidate in enumerate(order):
        free_without.release(candidate)
        placement = place(job, free_without, usable, weights)
        if placement is not None:
            return place_in_order, placement
    return len(order), None
