"""Jobs as the commands other than `sacct` state them: text under names, read into rows.

Sources: squeue(1), scontrol(1), "Job Completion Logging" (jobcomp/filetxt) and the REST API's schema of jobs,
slurm.schedmd.com.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from itertime.errors import TableError, UnknownName
from itertime.io import shown
from traces.host_lists import host_list
from traces.logs.cells import MixedColumnError, Moments, of_dates, text, time_zone
from traces.logs.log import Log, ReadOptions
from traces.logs.source import LogSource
from traces.logs.units import StatedUnits
from traces.native import whole

from .rows import (
    GOING,
    WAITING,
    SlurmRow,
    SlurmRows,
    array_of,
    begin_moment,
    count_of,
    limit_of,
    plain_text,
    signed_of,
    state_of,
    tasks_of,
    throttle_of,
)
from .submit_line import NO_OPTIONS, submit_options
from .times import row_times
from .tres import Request, Tres

__all__ = ["SlurmExport", "StatedJob", "UnknownGpusError", "read_export"]

TENANTS = ("account", "user", "partition", "qos")

_ASSUMPTIONS = (
    "the GPUs are those allocated, or requested before the start: of gres/gpu in the trackable resources, "
    "else those of the job, or of a node, task or socket times their number",
    "the estimate is the time limit; a pending job has no start, whatever Slurm expects",
    "each task of a pending array is a job",
    "a job that is not pending and has ended ran from its start to its end; the run times of the others are "
    "not known",
)


class UnknownGpusError(ValueError):
    """A job holds GPUs of which the export does not say how many."""


@dataclass(frozen=True)
class StatedJob:
    """What a command states of a job, as text, "" where it states nothing. Limits and run times are written
    as Slurm does (`1-00:00:00`, or minutes). `tres`: a list of trackable resources; `gres`: the GPUs by what
    they are counted: detail (of each node, as held), job, node, task, socket. `says_all_gpus`: whether a job
    without GPUs in these is one without GPUs.
    """

    job_id: str
    state: str
    submit: str
    eligible: str = ""
    start: str = ""
    end: str = ""
    limit: str = ""
    elapsed: str = ""
    suspended: str = ""
    tres: str = ""
    gres: dict[str, str] = field(default_factory=dict)
    nodes: str = ""
    tasks: str = ""
    node_names: str = ""
    account: str = ""
    user: str = ""
    partition: str = ""
    qos: str = ""
    priority: str = ""
    reason: str = ""
    name: str = ""
    cluster: str = ""
    raw_id: str = ""
    array_limit: str = ""
    depends: str = ""
    nice: str = ""
    reservation: str = ""
    restarts: str = ""
    submit_line: str = ""
    says_all_gpus: bool = True

    def rows(
        self, line: int, tenant: str, moment: Moments, tres: Tres, rows: SlurmRows
    ) -> Iterator[SlurmRow]:
        """The rows: one, or those of the tasks of a pending array. ValueError (reason, kind) for none."""
        state = state_of(self.state)
        request = self._request(tres, state)
        elapsed_s = limit_of(self.elapsed) if self.elapsed and state not in WAITING else None
        suspended_s = _seconds(self.suspended)
        span_s = None if elapsed_s is None else elapsed_s + (suspended_s or 0.0)
        start = "" if state in WAITING else self.start
        ends = state not in WAITING and state not in GOING
        times = row_times(
            moment, rows.leave_out, self.submit, self.eligible, start, self.end if ends else "", span_s
        )
        partition = plain_text(self.partition)
        names = {name: plain_text(getattr(self, name)) for name in TENANTS}
        reason = plain_text(self.reason.strip("()"))
        options = submit_options(self.submit_line) if self.submit_line else NO_OPTIONS
        held_until_s = times.eligible_s if state in WAITING and reason == "BeginTime" else None
        row = SlurmRow(
            line=line,
            job_id=self.job_id,
            state=state,
            submit_s=times.submit_s,
            request=request,
            raw_id=self.raw_id or None,
            cluster=plain_text(self.cluster),
            eligible_s=None if held_until_s is not None else times.eligible_s,
            start_s=times.start_s,
            end_s=times.end_s,
            elapsed_s=elapsed_s if ends or self.elapsed else None,
            suspended_s=suspended_s,
            limit_s=_limit_s(self.limit),
            tenant=names[tenant],
            user=names["user"],
            account=names["account"] if tenant != "account" else None,
            partition=None if partition is None else partition.partition(",")[0],
            partitions=partition.replace(",", "|") if partition is not None and "," in partition else None,
            qos=names["qos"],
            name=plain_text(self.name),
            reservation=plain_text(self.reservation),
            reason=reason,
            priority=count_of(self.priority) or 0,
            nodes=None if self._may_spread(state) else count_of(self.nodes.partition("-")[0]),
            node_names=_hosts(self.node_names),
            array_id=array_of(self.job_id),
            array_limit=count_of(self.array_limit) or options.array_limit or throttle_of(self.job_id),
            begin_s=held_until_s or begin_moment(options, times.submit_s, moment.zone),
            nice=signed_of(self.nice or options.nice),
            depends=plain_text(self.depends) or options.dependency,
            restarts=count_of(self.restarts) or 0,
        )
        if "[" not in self.job_id:
            yield row
            return
        for task in tasks_of(self.job_id):
            yield row._replace(job_id=task, raw_id=None, array_id=array_of(task))

    def _may_spread(self, state: str) -> bool:
        """Whether the nodes of a waiting job are the least that it may get: it asks for GPUs in all, or for
        each task.
        """
        units = {unit for unit, amount in self.gres.items() if plain_text(amount) is not None}
        return state in WAITING and "node" not in units and not units.isdisjoint(("job", "task"))

    def _request(self, tres: Tres, state: str) -> Request:
        """The GPUs of the whole job. Raises UnknownGpusError for one that may hold GPUs."""
        total = tres.request(self.tres)
        if total is not None and total.gpus:
            return total
        nodes, tasks = self.nodes.partition("-")[0] or "1", self.tasks or self.nodes.partition("-")[0] or "1"
        for name, units in (
            ("detail", "1"),
            ("job", "1"),
            ("node", nodes),
            ("task", tasks),
            ("socket", nodes),
        ):
            request = tres.units(self.gres.get(name, ""))
            if request.gpus:
                return request._replace(gpus=request.gpus * max(1, whole(units)))
        if state in GOING and not self.says_all_gpus:
            raise UnknownGpusError
        raise ValueError("names no GPU: a job without GPUs")


@dataclass(frozen=True)
class SlurmExport:
    """What a command prints: its entries, each with the line on which it begins, and how one states a job.

    `command`: what prints the GPUs of all jobs.
    """

    format: str
    entries: Callable[[LogSource], Iterable[tuple[int, Any]]]
    job: Callable[[Any], StatedJob]
    name: Callable[[Any], str]
    columns: tuple[str, ...]
    times: tuple[str, ...]
    command: str = ""
    assumptions: tuple[str, ...] = _ASSUMPTIONS


def read_export(source: LogSource, form: SlurmExport, options: ReadOptions) -> Log:
    """Read what a command printed. Raises UnknownName for a tenant that it does not state, TableError if no
    job is usable, if a running job holds GPUs that are not stated, or if moments are numbers in one entry and
    dates in another.
    """
    tenant = options.tenant or TENANTS[0]
    if tenant not in TENANTS:
        raise UnknownName(f"tenant of a {form.format} log", shown(tenant), TENANTS)
    zone = time_zone(options.time_zone)
    moment = Moments(StatedUnits.parse(options.time_unit).every or "s", zone)
    rows, tres = SlurmRows(source.path, zone, options.cluster), Tres(("gpu", *options.gpu_resources))
    for line, entry in form.entries(source):
        try:
            for row in form.job(entry).rows(line, tenant, moment, tres, rows):
                if not options.host:
                    row = row._replace(request=row.request._replace(cpus=None, memory_gb=None))
                rows.add_row(row)
        except UnknownGpusError:
            problem = f"job {shown(_name(form, entry))} runs, and its GPUs are not stated (N/A)"
            raise TableError(f"{source.path}:{line}: {problem}; {form.command}") from None
        except ValueError as error:
            rows.drop(line, _name(form, entry), str(error.args[0]), str(error.args[-1]))
        except MixedColumnError as error:
            raise TableError(f"{source.path}:{line}: {error}") from None
    notes = (f"the tenant is {tenant}", *of_dates([moment], options.time_zone))
    return rows.finish(
        Log(
            format=form.format,
            columns=form.columns,
            states_deadlines=False,
            assumptions=(*form.assumptions, *notes),
            times=form.times,
        )
    )


def _name(form: SlurmExport, entry: Any) -> str:
    try:
        return text(form.name(entry))
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""


def _hosts(names: str) -> tuple[str, ...]:
    if plain_text(names) is None:
        return ()
    try:
        return host_list(names)
    except ValueError:
        return ()


def _limit_s(limit: str) -> float | None:
    try:
        return limit_of(limit) or None
    except ValueError as error:
        raise ValueError(f"time limit {shown(limit)}: {error}", f"time limit: {error}") from None


def _seconds(number: str) -> float | None:
    return float(count_of(number) or 0) or None
