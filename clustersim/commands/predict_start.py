"""`clustersim predict-start`: when a waiting job starts, from a live state of the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from itertime.commandline import option_groups

from .backtest import (
    Clusters,
    Division,
    GpusPerNode,
    TenantColumn,
    TimeZone,
    named_clusters,
    with_site,
)
from .help.options import POLICY_OF_SITES, Json, Seed, Settings, SiteFile, SystemName
from .trace import Columns, GpuResources, LogCluster, LogFormatName, TimeUnit

if TYPE_CHECKING:
    from clustersim.forecast import Forecast, Options, Request
    from traces.logs import ReadOptions

__all__ = ["predict_start"]

_SHOWN = 8
_INSTANT_S = 1e-3  # shorter times are errors of rounding

Summary = Mapping[str, Any]

State = Annotated[
    Path,
    typer.Argument(help="Live jobs: squeue, scontrol show job, Kueue's workloads, ...; or a log with --now."),
]
JobId = Annotated[str | None, typer.Option("--job", help="Id of a waiting job; without it, of a new one:")]
Gpus = Annotated[int | None, typer.Option(help="GPUs of the new job.")]
Nodes = Annotated[int | None, typer.Option(help="Its nodes, each with as many of the GPUs; else any.")]
TimeLimit = Annotated[str | None, typer.Option(help="Its time limit: 30m, 4h, 2d or 1-12:00:00.")]
Partition = Annotated[str | None, typer.Option(help="Its partition.")]
Account = Annotated[str | None, typer.Option(help="Its account.")]
User = Annotated[str | None, typer.Option(help="Its user.")]
Tenant = Annotated[str | None, typer.Option(help="Its tenant.")]
Qos = Annotated[str | None, typer.Option(help="Its QOS.")]
GpuType = Annotated[str | None, typer.Option(help="Its GPU type.")]
Priority = Annotated[int | None, typer.Option(help="Its priority; without one it is last.")]
History = Annotated[
    Path | None, typer.Option(help="Log of past jobs (sacct, ...): run times over time limits, capacity.")
]
Policy = Annotated[str | None, typer.Option(help="Policy of the site; by default easy, with --site slurm.")]
Queue = Annotated[
    str, typer.Option(help="Order of the queue: priority, submission, or auto: priorities of a live queue.")
]
Ratio = Annotated[
    float | None, typer.Option(help="Without --history: run time of all jobs over their time limit; else 1.")
]
DefaultLimit = Annotated[str | None, typer.Option(help="Time limit of jobs that state none.")]
Now = Annotated[str | None, typer.Option(help="Moment of the state; by default the latest that it states.")]
By = Annotated[str | None, typer.Option(help="Show the chance of a start by this moment.")]
Draws = Annotated[int, typer.Option(help="Simulations, which differ in the drawn run times.")]
NoArrivals = Annotated[
    bool, typer.Option("--no-arrivals", help="No job is submitted later; else as often as in the history.")
]
NoChanges = Annotated[
    bool, typer.Option("--no-changes", help="Do not simulate what might bring the start forward.")
]


@dataclass(frozen=True, kw_only=True)
class _JobOptions:
    """The options that name a waiting job, or describe a new one."""

    job: JobId = None
    gpus: Gpus = None
    nodes: Nodes = None
    time_limit: TimeLimit = None
    partition: Partition = None
    account: Account = None
    user: User = None
    tenant: Tenant = None
    qos: Qos = None
    gpu_type: GpuType = None
    priority: Priority = None

    def request(self) -> Request:
        """The job whose start is asked for. UserError for a time limit that is no span of time."""
        from clustersim.forecast import Request

        limit_s = _span("--time-limit", self.time_limit)
        fields = ("nodes", "partition", "account", "user", "tenant", "qos", "gpu_type", "priority")
        return Request(self.job, self.gpus, limit_s, {name: getattr(self, name) for name in fields})


@dataclass(frozen=True, kw_only=True)
class _SiteOptions:
    """The options that say how the site schedules, how long its jobs run, and what its nodes are."""

    history: History = None
    policy: Policy = None
    queue: Queue = "auto"
    ratio: Ratio = None
    default_limit: DefaultLimit = None
    cluster: Clusters = None
    site: SiteFile = None
    pools: Division = "auto"
    gpus_per_node: GpusPerNode = None


@dataclass(frozen=True, kw_only=True)
class _DrawOptions:
    """The options of the simulations that are drawn."""

    now: Now = None
    by: By = None
    draws: Draws = 200
    seed: Seed = 0
    no_arrivals: NoArrivals = False
    no_changes: NoChanges = False
    system: SystemName = "dgx-a100-80gb"
    settings: Settings = None


@dataclass(frozen=True, kw_only=True)
class _LogOptions:
    """The options that say how the file of live jobs is read."""

    log_format: LogFormatName = None
    columns: Columns = None
    time_unit: TimeUnit = None
    time_zone: TimeZone = None
    tenant_column: TenantColumn = None
    gpu_resource: GpuResources = None
    log_cluster: LogCluster = None

    def reading(self) -> ReadOptions:
        from traces.logs import ReadOptions

        return ReadOptions(
            log_format=self.log_format,
            columns=self.columns,
            time_unit=self.time_unit,
            tenant=self.tenant_column,
            time_zone=self.time_zone,
            gpu_resources=tuple(self.gpu_resource or ()),
            cluster=self.log_cluster,
        )


@option_groups
def predict_start(
    state: State,
    job: _JobOptions,
    site: _SiteOptions,
    draws: _DrawOptions,
    log: _LogOptions,
    json: Json = False,
) -> None:
    """Predict when a job starts, from the jobs that run and wait now.

    Shows the distribution of the start, what the job waits for, and what would bring the start forward. How
    long jobs run is drawn from a history of run times and time limits.
    """
    from clustersim import forecast as library
    from clustersim.backtest.logged import read_rows
    from itertime.commandline import print_json
    from traces.logs import ReadOptions

    from .output.terminal import progress_of

    reading = log.reading()
    live = library.read_state(state, reading, draws.now)
    history = None
    if site.history is not None:
        history = read_rows(site.history, ReadOptions(time_zone=log.time_zone))[0].jobs
    options = _options(site, draws, reading)
    with progress_of("simulating", 100) as advance:
        forecast = library.predict_start(
            live, job.request(), history, options, lambda done, total: advance(100 * done // total)
        )
    if json:
        print_json(forecast.summary)
        return
    _print(forecast)


def _options(site: _SiteOptions, draws: _DrawOptions, reading: ReadOptions) -> Options:
    from clustersim.backtest import SiteFacts
    from clustersim.forecast import Options, SitePolicy, moment_of

    clusters, settings = named_clusters(site.cluster or [], draws.system), draws.settings or []
    if site.site is not None:
        clusters, settings = with_site(site.site, clusters, settings, all_nodes_up=False)
    policy = site.policy or ("easy" if site.site is None else POLICY_OF_SITES)
    return Options(
        policy=SitePolicy(policy, settings, site.queue),
        site_facts=SiteFacts(site.pools, clusters, site.gpus_per_node, look_for_reduced=False),
        ratio=site.ratio,
        default_limit_s=_span("--default-limit", site.default_limit),
        draws=draws.draws,
        seed=draws.seed,
        by_s=None if draws.by is None else moment_of("--by", draws.by, reading),
        arrivals=not draws.no_arrivals,
        with_changes=not draws.no_changes,
    )


def _span(option: str, text: str | None) -> float | None:
    """A span of time as a user writes it: 90s, 30m, 4h, 2d, or as Slurm does. UserError if it is none."""
    from itertime.errors import UserError
    from itertime.io import shown
    from traces.logs.cells import span

    if text is None:
        return None
    units = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
    number, unit = text.strip().removesuffix("in")[:-1], text.strip().removesuffix("in")[-1:]
    try:
        return span(number) * units[unit] if unit in units else span(text)
    except ValueError as error:
        raise UserError(f"{option} {shown(text)}: {error}; write it as 30m, 4h, 2d or 1-12:00:00") from None


def _print(forecast: Forecast) -> None:
    from .output.terminal import plain, say, say_item

    summary = forecast.summary
    state, job, start = summary["state"], summary["job"], summary["start"]
    held = f", {state['held']:,} held back" if state["held"] else ""
    jobs = f"jobs: {state['running']:,} running, {state['waiting']:,} waiting{held}"
    say(f"{state['file']} ({state['format']}), {state['now']}, {jobs}")
    for reason, count in list(state["dropped_by_reason"].items())[:5]:
        say(f"  dropped {count:,}: {reason}", indent=4)
    for text in summary["assumptions"]:
        say_item(text)
    limit = "no time limit" if job["limit_s"] is None else f"limit {_time(job['limit_s'])}"
    since = "new" if job["new"] else f"waiting for {_time(job['waited_s'])}"
    reason = f" ({job['reason']})" if job["reason"] else ""
    print()
    say(f"Job {job['job_id']}: {job['gpus']} GPUs, {limit}, {since}{reason}")
    if summary["caveat"]:
        say(f"Note: {summary['caveat']}.")
    draws = f"{summary['draws']:,} draws" if summary["history"] else "one simulation"
    print(f"Start, by {draws} of policy {plain(summary['policy']['name'])}:")
    _print_start(start)
    _print_reasons(forecast)
    if summary["changes"]:
        _print_changes(summary)


def _print_start(start: Summary) -> None:
    from .output.terminal import print_table, say

    names = {"p10": "p10", "p50": "median", "p90": "p90"}
    rows = [[text, _time(start[f"{name}_s"]), start[f"{name}_at"] or "–"] for name, text in names.items()]
    print_table(["start", "from now", "at"], rows)
    chances = [f"within an hour {_percent(start['within_1h'])}"]
    if "by" in start:
        chances.append(f"by {start['by']} {_percent(start['by_then'])}")
    if start["never"]:
        chances.append(f"not at all {_percent(start['never'])}")
    say(f"Chance of a start: {', '.join(chances)}")


def _print_reasons(forecast: Forecast) -> None:
    from .output.terminal import plain, print_table, say
    from .output.waits import wait_lines

    waits = forecast.summary["waits_for"]
    place = f"place {waits['place_in_queue']} of {waits['queued']} in the queue"
    print()
    say(f"It needs {waits['needed']} GPUs; {waits['free']} of {waits['gpus']:,} are free; {place}")
    if forecast.wait is not None:
        held_s = forecast.wait.from_s - forecast.summary["state"]["now_s"]
        held = f"is held back for {_time(held_s)}, then " if held_s > _INSTANT_S else ""
        wait = f"waits {_time(forecast.wait.to_s - forecast.wait.from_s)}"
        print(f"  in the draw of the median: {held}{wait}")
        for line in wait_lines(replace(forecast.wait, ahead=()), waits["gpus"]):
            say(line, indent=8)
    if waits["others"]:
        print(f"\nWaiting jobs that stand ahead or may start first{_omission(waits, 'others')}")
        rows = [
            [
                plain(rival["job_id"]), str(rival["gpus"]), _time(rival["limit_s"]),
                "yes" if rival["ahead"] else "no", _percent(rival["before_it"]),
            ]
            for rival in waits["others"][:_SHOWN]
        ]  # fmt: skip
        print_table(["job", "GPUs", "limit", "ahead", "starts first"], rows)
    if waits["holders"]:
        print(f"\nJobs that hold GPUs, the largest first{_omission(waits, 'holders')}")
        rows = [
            [
                plain(holder["job_id"]), str(holder["gpus"]), _time(holder["running_s"]),
                _time(holder["left_p50_s"]), _time(holder["left_p90_s"]), _time(holder["limit_left_s"]),
            ]
            for holder in waits["holders"][:_SHOWN]
        ]  # fmt: skip
        print_table(["job", "GPUs", "runs for", "left, median", "left, p90", "to its limit"], rows)


def _omission(waits: Summary, jobs: str) -> str:
    """How many of the jobs under a name the table leaves out, in words."""
    count = waits[f"{jobs}_left_out"] + max(0, len(waits[jobs]) - _SHOWN)
    return f" ({count:,} more left out)" if count else ""


def _print_changes(summary: Summary) -> None:
    from .output.terminal import plain, print_table, say

    start = summary["start"]
    rows = [["as it is", *(_time(start[f"{name}_s"]) for name in ("p10", "p50", "p90")), "", "", ""]]
    for change in summary["changes"]:
        times = [_time(change[f"{name}_s"]) for name in ("p10", "p50", "p90")]
        chances = [_percent(change["earlier"]), _percent(change["later"])]
        rows.append([plain(change["change"]), *times, _time(change["gain_s"]), *chances])
    print()
    say("What might bring it forward, in the same draws (a smaller job takes longer: its limit is kept)")
    print_table(["change", "p10", "median", "p90", "median gain", "earlier", "later"], rows)


def _time(seconds: float | None) -> str:
    from clustersim.report.numbers import duration

    if seconds is not None and seconds < 0:
        return f"−{duration(-seconds)}"
    return duration(seconds)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
