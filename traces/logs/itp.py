"""Microsoft ITP logs, published with ElasticFlow (Gu et al., ASPLOS 2023): GPU counts and run times only."""

from __future__ import annotations

from pathlib import Path

from .log import Fields, Log, column
from .log import read_log as _read

__all__ = ["matches", "read_log"]

_FIELDS: Fields = {
    "job_id": column("job_id", "job_id"),
    "submit_s": column("submission_time", "submit_s"),
    "duration_s": column("duration", "duration_s"),
    "gpus": column("num_gpu", "gpus"),
}
_ASSUMPTIONS = (
    "the log's duration is the run time on num_gpu GPUs, without queueing and without restarts",
    "every job is taken to want all of its logged run time; the log does not say how jobs ended",
    "the log names no tenants: all jobs belong to the tenant 'default'",
)


def matches(columns: list[str]) -> bool:
    """Whether a header is of this format: job_id, submission_time, duration, num_gpu and no model."""
    return {name for name, _ in _FIELDS.values()} <= set(columns) and "model_name" not in columns


def read_log(path: str | Path) -> Log:
    """Read an ITP log (CSV, optionally gzip). Raises TableError if it has no usable row."""
    return _read(path, "itp", lambda columns: _FIELDS, _ASSUMPTIONS)
