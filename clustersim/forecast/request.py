"""The job that a forecast is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from itertime.errors import UnknownName, UserError
from itertime.io import shown
from traces.job import MAX_GPUS
from traces.logs.log import LoggedJob

from .state import LiveState

__all__ = ["NEW", "Request"]

NEW = "(new)"
"""The id of a job that is not in the state."""
_MOST_NAMED = 5


@dataclass(frozen=True)
class Request:
    """The id of a job that waits; or without one, what a new job would ask for.

    `limit_s`: its time limit. `fields`: further fields of a new job by name: nodes, partition, user, account,
    tenant, qos, gpu_type, priority.
    """

    job_id: str | None = None
    gpus: int | None = None
    limit_s: float | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)

    def of(self, state: LiveState) -> LoggedJob:
        """The job as a row of the state. UserError if it cannot be asked about."""
        fields = {name: value for name, value in self.fields.items() if value is not None}
        if self.job_id is not None:
            if self.gpus is not None or self.limit_s is not None or fields:
                problem = "is described by the state"
                raise UserError(f"--job {shown(self.job_id)}: {problem}; leave --gpus and the like out")
            return _found(self.job_id, state)
        if self.gpus is None:
            raise UserError("--job: name a job that waits, or ask about a new one: --gpus 8 --time-limit 4h")
        if not 1 <= self.gpus <= MAX_GPUS:
            raise UserError(f"--gpus {self.gpus}: must be between 1 and {MAX_GPUS:,}")
        if (nodes := fields.get("nodes")) is not None:
            if nodes < 1 or self.gpus % nodes:
                raise UserError(f"--nodes {nodes}: must be a number of nodes that divides --gpus {self.gpus}")
            fields["gpus_per_node"] = self.gpus // nodes
        return LoggedJob(NEW, state.now_s, gpus=self.gpus, estimate_s=self.limit_s, **fields)


def _found(job_id: str, state: LiveState) -> LoggedJob:
    jobs = (*state.waiting, *state.running, *state.held, *state.ended)
    job = next((job for job in jobs if job.job_id == job_id), None)
    if job is None:
        job_ids = [job.job_id for job in state.waiting]
        close = get_close_matches(job_id[:60], job_ids, n=3, cutoff=0.5)
        raise UnknownName("waiting job", shown(job_id), close or [*job_ids[:_MOST_NAMED], "..."])
    if job in state.waiting:
        return job
    where = f"{state.source['file']}:{job.line}: job {shown(job_id)}"
    if job in state.held:
        reason = shown(job.reason or job.state or "held")
        raise UserError(f"{where}: is held back ({reason}), so it waits for no GPUs; release it first")
    if job in state.running:
        raise UserError(f"{where}: runs already, since {state.moment(job.logged_start_s or 0.0)}")
    raise UserError(f"{where}: had ended at {state.moment(state.now_s)}; --now names an earlier moment")
