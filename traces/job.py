"""Submitted jobs: one frozen record per job, and the one order in which jobs count as submitted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, make_dataclass
from typing import Any, Literal, TypeVar, cast

__all__ = ["MAX_GPUS", "Job", "job_of", "maker_of", "submission_key", "submission_order"]

MAX_GPUS = 10_000_000
"""The most GPUs of a job."""

JobType = TypeVar("JobType", bound="Job")

SubmissionKey = tuple[float, int, int, str, int, str, str]

_NO_CHANGES: Mapping[str, Any] = {}
_NUMBERED = re.compile(r"(?:[^/]*/)?([0-9]+)(?:_([0-9]+))?(?:@.*)?", re.DOTALL)
"""An id that is a number: of an array with a task, of a cluster, of one of several submissions."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job as its user submitted it. Times are in seconds on the trace's clock; None means "not stated".

    A job states its work in one of two ways, which `kind` distinguishes: by `model`, `global_batch`
    (sequences per iteration) and `iterations`, or by `gpus` and `duration_s` (its run time on exactly those
    GPUs). If both are stated, the iterations are the work and `duration_s` is the logged run time.

    | field | unit | meaning |
    |---|---|---|
    | job_id | text | unique in its trace; arbitrary text, never a path |
    | submit_s | s | time of submission |
    | tenant | text | the account that submitted it |
    | model | name | the model that it trains |
    | global_batch | sequences | per iteration |
    | seq_len | tokens | per sequence; None = the model's own |
    | gpus | GPUs | the request; rigid policies allocate exactly this many |
    | min_gpus, max_gpus | GPUs | bounds for policies that choose the number |
    | iterations | iterations | work; need not be whole |
    | stated_iterations | iterations | the work that its user states, which policies see; None = iterations |
    | duration_s | s | run time on `gpus` GPUs |
    | deadline_s | s | absolute, on the same clock as `submit_s` |
    | priority | | larger is more urgent |
    | weight | | how much it counts beside other jobs, for policies that weigh jobs; 1 = as any other |
    | state | text | how the job ended in the log; informational |
    | estimate_s | s | the user's estimate of the run time on the requested GPUs |
    | user | text | the submitting user, where the tenant is an account or a team, for the rules of a site |
    | gpu_type | name | the GPU type that it asks for; binding on a cluster of several types |
    | logged_start_s | s | when it started in the log, on the same clock; informational |
    | partition, qos | text | where it was submitted, and its quality of service, for the rules of a site |
    | framework | name | the software that it trains with; None = that of the nodes' system |
    | precision | name | of its matrix products; None = bf16 |
    | plan_options | text | options of its plans (`itertime.spec.PlanOptions`); None = defaults |
    | service | name | the inference service of which it is an instance; None = not one |
    | gpu_fraction | GPUs | the part of one GPU that it holds, beside other such jobs; None = whole GPUs |
    | phases | text | parts of its work with another global batch or speed (`traces.phases`); None = one |
    | cpus | cores | on all nodes together, for the GPUs of the request; None = no limit |
    | host_memory_gb | GB | 1e9 bytes, likewise |
    | begin_s | s | the user's earliest start, on the same clock as `submit_s` |
    | eligible_s | s | when the log says that nothing but the queue kept it waiting, on the same clock |
    | cancel_s | s | when its user cancels it if it still waits then, on the same clock |
    | time_limit_s | s | its run time after which the site stops it |
    | account | text | where the tenant is not the account: the account, of which sites limit and share use |
    | partitions | text | the partitions that it may run in, with a bar between them; None = `partition` |
    | nodes | nodes | the number of nodes that it asks for; None = any |
    | gpus_per_node | GPUs | on each of these nodes; None = `gpus` over `nodes` |
    | depends | text | the jobs that it waits for (`traces.dependencies`) |
    | name | text | its name; jobs of one name and user can wait for each other |
    | array_id | text | the array of which it is a task |
    | array_limit | jobs | the most tasks of its array that run at once |
    | attempts | text | its logged runs (`traces.attempts`), of which `duration_s` is the last; None = one |
    | suspended_s | s | how long it was suspended in the log, beside its run time |
    | nice | | what its user takes off its priority |
    | reservation | name | the reservation of the site in which it runs |
    | extra | (name, text) | cells of the trace's own columns (x_...), in order of their names, for policies |
    """

    job_id: str
    submit_s: float
    tenant: str = "default"
    model: str | None = None
    gpus: int | None = None
    min_gpus: int | None = None
    max_gpus: int | None = None
    global_batch: int | None = None
    seq_len: int | None = None
    iterations: float | None = None
    duration_s: float | None = None
    deadline_s: float | None = None
    priority: int = 0
    state: str | None = None
    estimate_s: float | None = None
    user: str | None = None
    gpu_type: str | None = None
    logged_start_s: float | None = None
    partition: str | None = None
    qos: str | None = None
    framework: str | None = None
    precision: str | None = None
    plan_options: str | None = None
    stated_iterations: float | None = None
    gpu_fraction: float | None = None
    service: str | None = None
    weight: float = 1.0
    phases: str | None = None
    cpus: float | None = None
    host_memory_gb: float | None = None
    begin_s: float | None = None
    eligible_s: float | None = None
    cancel_s: float | None = None
    time_limit_s: float | None = None
    account: str | None = None
    partitions: str | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None
    depends: str | None = None
    name: str | None = None
    array_id: str | None = None
    array_limit: int | None = None
    attempts: str | None = None
    suspended_s: float | None = None
    nice: int | None = None
    reservation: str | None = None
    extra: tuple[tuple[str, str], ...] = ()

    @property
    def kind(self) -> Literal["iterations", "duration"]:
        """ "iterations" if model, global batch and iterations are all stated, else "duration"."""
        states_model_work = (
            self.model is not None and self.global_batch is not None and self.iterations is not None
        )
        return "iterations" if states_model_work else "duration"


def maker_of(kind: type[JobType]) -> Callable[..., JobType]:
    """What makes a `kind` of job of the values of all fields, in their order, and of other values of some. It
    takes a seventh of the time of `kind(...)`: a frozen dataclass sets each of its fields by a call.
    """
    values_of_fields: Any = make_dataclass("_Values", [field.name for field in fields(kind)])
    members = {
        "__slots__": kind.__slots__,
        "__init__": values_of_fields.__init__,
        "__setattr__": object.__setattr__,
        "__delattr__": object.__delattr__,  # Python assigns at C speed only if it inherits neither
    }
    unfrozen: Any = type("_Unfrozen", kind.__bases__, members)

    def job_of_kind(values: Iterable[Any], changes: Mapping[str, Any] = _NO_CHANGES) -> JobType:
        job = unfrozen(*values)
        for name, value in changes.items():
            setattr(job, name, value)
        job.__class__ = kind  # both classes have the same slots
        return cast("JobType", job)

    return job_of_kind


job_of = maker_of(Job)


def submission_order(jobs: Iterable[Job]) -> list[Job]:
    """The jobs by submission time, ties by job id: whole numbers and tasks of arrays by value and first, then
    other ids as text.

    The order depends on the jobs alone, so shuffling the rows of a trace does not change a simulation.

    >>> jobs = [Job(name, 0.0, gpus=1, duration_s=1.0) for name in ("10", "b", "9_10", "9_2", "9")]
    >>> [job.job_id for job in submission_order(jobs)]
    ['9', '9_2', '9_10', '10', 'b']
    """
    return sorted(jobs, key=lambda job: submission_key(job.submit_s, job.job_id))


def submission_key(submit_s: float, job_id: str) -> SubmissionKey:
    """The sort key of `submission_order`."""
    if job_id.isascii() and job_id.isdigit():
        # Digits compare by length, then as text: an id may have more digits than int() accepts.
        digits = job_id.lstrip("0")
        return (submit_s, 0, len(digits), digits, 0, "", job_id)
    match = _NUMBERED.fullmatch(job_id)
    if match is None:
        return (submit_s, 1, 0, job_id, 0, "", "")
    digits, task = match[1].lstrip("0"), match[2]
    task_digits = "" if task is None else task.lstrip("0")
    return (
        submit_s,
        0,
        len(digits),
        digits,
        0 if task is None else 1 + len(task_digits),
        task_digits,
        job_id,
    )
