"""What the engine, and the searches on drafts, may reach behind the views and drafts that policies hold.

A `JobView` hides the job of the engine, and a `Draft` the free GPUs that it counts with. The two protocols
say what is hidden, and the functions reach it. Policies never import this module
(tests/house/test_layers.py).
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Protocol, TypeVar

from clustersim.cluster import Capacity, Placement
from clustersim.jobs import ActiveJob

from .ranking import Rankable

__all__ = ["AnyView", "DraftOfJobs", "ViewOfJob", "active_of", "adopt", "facts_of", "take_over"]


class ViewOfJob(Rankable, Protocol):
    """A `JobView`: what a policy sees of a job."""

    _job: ActiveJob


AnyView = TypeVar("AnyView", bound=ViewOfJob)


class DraftOfJobs(Protocol):
    """A `Draft`: its free GPUs, and the jobs whose GPUs differ from reality, with what they hold in it. The
    free GPUs are shared with reality and other drafts until the draft owns a copy.
    """

    _capacity: Capacity
    _owns_capacity: bool
    _changes: dict[Any, Placement | None]

    @property
    def _facts(self) -> object:
        """The state of the cluster that the draft was made from."""


active_of: Callable[[ViewOfJob], ActiveJob] = attrgetter("_job")
"""The job behind a view."""

facts_of: Callable[[DraftOfJobs], object] = attrgetter("_facts")
"""The state of the cluster that a draft was made from."""


def take_over(draft: DraftOfJobs, copy: DraftOfJobs) -> None:
    """Change `draft` into `copy`, a copy of it that is not used any more."""
    draft._capacity, draft._owns_capacity = copy._capacity, copy._owns_capacity
    draft._changes = copy._changes


def adopt(draft: DraftOfJobs, real: Capacity) -> Capacity:
    """The free GPUs that there are once the changes of a draft are reality, where `real` are free before. The
    draft can then change without an effect on them.

    ValueError if the changes of the draft do not match the GPUs that it took and released: they were changed
    from outside.
    """
    changes = draft._changes
    if not changes:
        return real
    drafted = draft._capacity
    gpus_taken = sum([count for placement in changes.values() for _, count in placement or ()])
    gpus_released = sum([active_of(job).gpus for job in changes])
    exact = not drafted.closed and drafted.shared is None  # a job that shares a GPU may take none
    if exact and drafted.free != real.free + gpus_released - gpus_taken:
        raise ValueError(f"of {gpus_taken} GPUs in the changes of a proposal some are not free there")
    draft._owns_capacity = False
    return drafted
