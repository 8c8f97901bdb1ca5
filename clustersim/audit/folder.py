"""The audit of a run folder: its event log keeps the rules, and its other files agree with the log.

Work is counted in the units of the log: the work of a job is its run time on the requested GPUs, divided by
the seconds per unit there, which its `submit` event states. Sizes of checkpoints follow from the models,
those that the manifest states or that `itertime` ships. The tables are read side by side, row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from functools import lru_cache, partial
from math import ulp
from pathlib import Path
from typing import Any, TypeVar

from clustersim.cluster import Cluster
from clustersim.failures import Failures, Reservation, reservations_of
from clustersim.gctuning import collect_less_often
from clustersim.overheads import Overheads
from clustersim.records import SUBMIT, Columns, EventRecord, JobRecord, Run, Snapshot
from clustersim.rundir import StreamedRun, changes, read_streamed
from clustersim.runs import trace_of_manifest
from clustersim.speed import NodeSpeeds, StepTimes, Variability
from itertime.errors import UserError, quoted
from itertime.spec import Models

from .evidence import RESOLUTION_S, Evidence, Finding, JobFacts, Violation, stated_number, stated_price
from .expected import Recomputed, recorded_models
from .history import ClusterHistory, Rule
from .log_pass import prove
from .rules import (
    RULES,
    HostNotExceeded,
    ManifestConsistent,
    NotBelowBound,
    OutagesAsDrawn,
    PlansAsPredicted,
    PlansOnNetwork,
    RecordsMatchLog,
    ReservationsKept,
    ServicesLeave,
    SharersAsSlow,
    SummaryMatchesRecords,
    Tally,
    TraceMatches,
    UsageMatchesLog,
    counted,
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
        raise type(error)(f"{folder}: {error}") from None


def check_run(run: Run | StreamedRun, trace: str | Path | None = None) -> list[Finding]:
    """Check the records of a run: one `Finding` per rule."""
    tally, usage, manifest = Tally(run.jobs), Columns(Snapshot), run.manifest
    end_s, until_s = (
        None if manifest.get(name) is None else stated_number(manifest, name) for name in ("end_s", "until_s")
    )
    evidence = Evidence(
        cluster=run.cluster,
        overheads=_constants(Overheads, manifest, "overheads") or Overheads.none(),
        events=run.events,
        records=tally,
        facts_of=partial(_facts, parameters_of=_parameters(recorded_models(manifest))),
        end_s=end_s,
        resolution_s=max(RESOLUTION_S, 2 * ulp(end_s or 0.0)),
        failures=_constants(Failures, manifest, "failures"),
        reservations=_reservations(manifest, run.cluster),
        reclaims=_reclaims(manifest),
        price_usd_per_gpu_h=stated_price(manifest),
        **_step_times(manifest),
        nodes=_node_speeds(manifest, run.cluster),
        packs=_packs(manifest),
    )
    complete = manifest.get("complete") is True
    speeds = Recomputed(run.cluster, manifest)
    most = run.jobs.most if isinstance(run, StreamedRun) else len(run.jobs)
    jobs = trace_of_manifest(manifest, trace, most)
    plans = PlansOnNetwork if run.cluster.network_model.by_placement else PlansAsPredicted
    rules: list[Callable[[ClusterHistory], Rule]] = [
        *RULES,
        *([ReservationsKept] if evidence.reservations else []),
        *([HostNotExceeded] if run.cluster.states_host else []),
        partial(OutagesAsDrawn, manifest=manifest),
        partial(plans, due=speeds, rows=run.plans, complete=complete),
        ServicesLeave,
        partial(SharersAsSlow, due=speeds, manifest=manifest, complete=complete),
        partial(TraceMatches, tally=tally, manifest=manifest, trace=jobs, speeds=speeds),
        partial(ManifestConsistent, manifest=manifest, until_s=until_s, speeds=speeds),
        partial(RecordsMatchLog, tally=tally, submitted=_submitted(manifest)),
        partial(UsageMatchesLog, snapshots=counted(run.snapshots, usage), complete=complete),
        partial(NotBelowBound, tally=tally, manifest=manifest, trace=jobs, speeds=speeds),
        partial(SummaryMatchesRecords, run=run, jobs=tally.columns, usage=usage),
    ]
    return prove(evidence, rules)


def _reservations(manifest: Mapping[str, Any], cluster: Cluster) -> tuple[Reservation, ...]:
    """The reservations that a manifest states."""
    pools = {pool.gpu_type: range(pool.first, pool.first + pool.nodes) for pool in cluster.pools}
    try:
        return reservations_of(manifest.get("reservations", []), cluster.sizes, pools)
    except UserError as error:
        raise UserError(f"manifest.json: {error}") from None


def _reclaims(manifest: Mapping[str, Any]) -> bool:
    """Whether a manifest states spot nodes, or a calendar with reclaims."""
    calendar = manifest.get("calendar")
    entries = calendar if isinstance(calendar, list) else []
    return bool(manifest.get("spot")) or any(isinstance(one, dict) and "reclaim" in one for one in entries)


def _facts(
    record: JobRecord | None, first: EventRecord | None, planned: bool,
    *, parameters_of: Callable[[str], float | None],
) -> JobFacts:  # fmt: skip
    if record is None:
        return JobFacts()
    # A job without a plan runs at a speed from a table, with checkpoints of no stated size.
    parameters = parameters_of(record.model) if planned else 0.0
    unit_s = first.unit_s if first is not None and first.event == SUBMIT else 0.0
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
    def of(model: str) -> float | None:
        found = models.find(model) if model in names else None
        return None if found is None else float(found.parameters)

    return of


Constants = TypeVar("Constants", Overheads, Failures, StepTimes)


def _constants(kind: type[Constants], manifest: Mapping[str, Any], name: str) -> Constants | None:
    stated = manifest.get(name)
    if stated is None:
        return None
    if not isinstance(stated, dict) or set(stated) != {f.name for f in fields(kind)}:
        raise UserError(f"manifest.json: {name}={quoted(stated)}: must state every constant; run again")
    return kind(**stated)


def _step_times(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """How much slower than predicted jobs ran; folders of earlier versions state nothing."""
    times, seed = _constants(StepTimes, manifest, "step_time"), manifest.get("seed")
    if times is not None and (type(seed) is not int or seed < 0):
        raise UserError(f"manifest.json: seed={quoted(seed)}: step_time depends on it; run again")
    return {} if times is None else {"step_times": times, "seed": seed}


def _node_speeds(manifest: Mapping[str, Any], cluster: Cluster) -> NodeSpeeds | None:
    """How much slower than predicted the nodes were; None if the manifest states nothing."""
    stated, seed = manifest.get("variability"), manifest.get("seed")
    if stated is None:
        return None
    if not isinstance(stated, dict) or isinstance(stated.get("factors"), str):
        raise UserError(f"manifest.json: variability={quoted(stated)}: must state every parameter; run again")
    if type(seed) is not int or seed < 0:
        raise UserError(f"manifest.json: seed={quoted(seed)}: variability depends on it; run again")
    try:
        return NodeSpeeds(Variability.of(stated), cluster, seed)
    except UserError as error:
        raise UserError(f"manifest.json: {error}") from None


def _packs(manifest: Mapping[str, Any]) -> int:
    """The most jobs that the policy ran on the same GPUs, by the manifest."""
    packs = manifest.get("packs", 1)
    if type(packs) is not int or not 1 <= packs <= 1000:
        raise UserError(f"manifest.json: packs={quoted(packs)}: must be a whole number; run again")
    return packs


def _submitted(manifest: Mapping[str, Any]) -> object:
    trace = manifest.get("trace")
    return trace.get("jobs") if isinstance(trace, dict) else None
