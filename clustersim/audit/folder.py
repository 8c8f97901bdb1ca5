"""The audit of a run folder: its event log keeps the rules, and its other files agree with the log.

Work is counted in the units of the log: the work of a job is its run time on the requested GPUs, divided by
the seconds per unit there, which its `submit` event states. Sizes of checkpoints follow from the models,
those that the manifest states or that `itertime` ships. The tables are read side by side, row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from math import ulp
from pathlib import Path
from typing import Any

from clustersim.gctuning import collect_less_often
from clustersim.records import SUBMIT, Columns, EventRecord, JobRecord, Run, Snapshot
from clustersim.rundir import StreamedRun, changes, read_streamed
from clustersim.runs import Trace, trace_of_manifest
from itertime.errors import UserError
from itertime.spec import Models

from .evidence import RESOLUTION_S, Evidence, Finding, JobFacts, Violation, stated_number, stated_price
from .expected import Recomputed, recorded_models
from .history import ClusterHistory, Rule
from .log_pass import prove
from .rules import (
    RULES,
    HostNotExceeded,
    ManifestConsistent,
    NoIdleStops,
    NotBelowBound,
    OutagesAsDrawn,
    PartitionsKept,
    PlansAsPredicted,
    PlansOnNetwork,
    RecordsMatchLog,
    ReservationsKept,
    RunsAsStated,
    ServicesLeave,
    ShapesKept,
    SharersAsSlow,
    SummaryMatchesRecords,
    Tally,
    TraceMatches,
    UsageMatchesLog,
    counted,
    follows_site,
    states_nodes,
    states_runs,
)
from .settings import (
    has_reclaims,
    stated_failures,
    stated_idle_stops,
    stated_overheads,
    stated_packs,
    stated_reservations,
    stated_slowdown,
)

__all__ = ["check_run", "check_run_folder"]


def check_run_folder(directory: str | Path, trace: str | Path | None = None) -> list[Finding]:
    """Check the folder of a run: its files, then its records. UserError or TableError, naming the folder, for
    an unreadable file.

    `trace`: the trace, if it is no longer where the run read it.
    """
    with collect_less_often(), _naming(Path(directory)):
        run = read_streamed(directory)
        text = "the files are those that manifest.json was written for"
        changed = tuple(Violation(str(change)) for change in changes(directory, run))
        return [Finding("files", text, changed), *check_run(run, trace)]


@contextmanager
def _naming(folder: Path) -> Iterator[None]:
    """Add the folder to errors that name none: a check may be of many folders."""
    try:
        yield
    except UserError as error:
        if str(folder) in str(error):
            raise
        error.args = (f"{folder}: {error}",)
        raise


def check_run(run: Run | StreamedRun, trace: str | Path | None = None) -> list[Finding]:
    """Check the records of a run: one `Finding` per rule."""
    tally, usage, manifest = Tally(run.jobs), Columns(Snapshot), run.manifest
    end_s, until_s = (
        None if manifest.get(name) is None else stated_number(manifest, name) for name in ("end_s", "until_s")
    )
    evidence = Evidence(
        cluster=run.cluster,
        overheads=stated_overheads(manifest),
        events=run.events,
        records=tally,
        facts_of=partial(_facts, parameters_of=_parameters(recorded_models(manifest))),
        end_s=end_s,
        resolution_s=max(RESOLUTION_S, 2 * ulp(end_s or 0.0)),
        failures=stated_failures(manifest),
        reservations=stated_reservations(manifest, run.cluster),
        reclaims=has_reclaims(manifest),
        price_usd_per_gpu_h=stated_price(manifest),
        slowdown=stated_slowdown(manifest, run.cluster),
        packs=stated_packs(manifest),
        idle_stops=stated_idle_stops(manifest),
    )
    complete = manifest.get("complete") is True
    speeds = Recomputed(run.cluster, manifest)
    most_jobs = run.jobs.most if isinstance(run, StreamedRun) else len(run.jobs)
    jobs = trace_of_manifest(manifest, trace, most_jobs)
    plans = PlansOnNetwork if run.cluster.network_model.by_placement else PlansAsPredicted
    rules: list[Callable[[ClusterHistory], Rule]] = [
        *RULES,
        *([ReservationsKept] if evidence.reservations else []),
        *([HostNotExceeded] if run.cluster.states_host else []),
        *([] if evidence.idle_stops is None or run.cluster.states_host else [NoIdleStops]),
        partial(OutagesAsDrawn, manifest=manifest),
        partial(plans, expected=speeds, rows=run.plans, complete=complete),
        ServicesLeave,
        partial(SharersAsSlow, expected=speeds, manifest=manifest, complete=complete),
        *([] if isinstance(jobs, str) else _rules_of_trace(jobs, manifest)),
        partial(TraceMatches, tally=tally, manifest=manifest, trace=jobs, speeds=speeds),
        partial(ManifestConsistent, manifest=manifest, until_s=until_s, speeds=speeds),
        partial(RecordsMatchLog, tally=tally, submitted=_submitted(manifest)),
        partial(UsageMatchesLog, snapshots=counted(run.snapshots, usage), complete=complete),
        partial(NotBelowBound, tally=tally, manifest=manifest, trace=jobs, speeds=speeds),
        partial(SummaryMatchesRecords, run=run, jobs=tally.columns, usage=usage),
    ]
    return prove(evidence, rules)


def _rules_of_trace(trace: Trace, manifest: Mapping[str, Any]) -> Iterator[Callable[[ClusterHistory], Rule]]:
    """The rules of what jobs state of when, where and how often they run."""
    if states_runs(trace):
        yield partial(RunsAsStated, trace=trace)
    if states_nodes(trace):
        yield partial(ShapesKept, trace=trace)
    if follows_site(manifest):
        yield partial(PartitionsKept, trace=trace, site=manifest["site"])


def _facts(
    record: JobRecord | None, submission: EventRecord | None, planned: bool,
    *, parameters_of: Callable[[str], float | None],
) -> JobFacts:  # fmt: skip
    if record is None:
        return JobFacts()
    # A job without a plan runs at a speed from a table, with checkpoints of no stated size.
    parameters = parameters_of(record.model) if planned else 0.0
    unit_s = submission.unit_s if submission is not None and submission.event == SUBMIT else 0.0
    rigid = not record.model  # the job has a duration: a second of work takes a second
    speeds = {record.gpus: 1.0} if rigid and record.gpus is not None else {}
    if record.isolated_s is None or unit_s <= 0:
        return JobFacts(unit_s=speeds, only_known_sizes=rigid, parameters=parameters)
    return JobFacts(
        work=record.isolated_s / unit_s,
        work_error=RESOLUTION_S / unit_s,
        unit_s=speeds,
        only_known_sizes=rigid,
        parameters=parameters,
    )


def _parameters(models: Models) -> Callable[[str], float | None]:
    """The number of parameters by the name of a model; None if it is unknown."""
    names = set(models.names())

    @lru_cache(1000)
    def of(name: str) -> float | None:
        model = models.find(name) if name in names else None
        return None if model is None else float(model.parameters)

    return of


def _submitted(manifest: Mapping[str, Any]) -> object:
    trace = manifest.get("trace")
    return trace.get("jobs") if isinstance(trace, dict) else None
