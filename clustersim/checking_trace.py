"""That the records of a run are those of the jobs of its trace: none left out, none changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from math import isclose
from pathlib import Path
from typing import Any

from itertime.errors import UserError
from traces.files import sha256, shown
from traces.job import Job

from .checking import Life, Log, Rule
from .checking_records import RESOLUTION_S, Tally
from .checking_speeds import LARGEST_FILE, Recomputed
from .checking_sums import GIVES
from .hashes import recipe_hash
from .interruptions import GIVEN_UP
from .manifest import is_of_this_code
from .outcomes import Fate, fate_of
from .records import EventRecord, JobRecord
from .simulation import DECLINED
from .speed import CannotRun
from .trace_source import Trace

__all__ = ["Submitted", "find_trace", "stated_hash"]

_SAME = 1e-9


def find_trace(manifest: Mapping[str, Any], given: str | Path | None = None) -> Trace | str:
    """The trace that a run states, from where it says, or from the file that is `given`; or why there is none
    to hold the run against. UserError, TableError for a given file that cannot be read.
    """
    stated = manifest.get("trace")
    source: Mapping[str, Any] = stated if isinstance(stated, dict) else {}
    table = manifest.get("table")
    table = table if isinstance(table, str) else None
    if given is not None:
        if Path(given).is_fifo():
            raise UserError(f"{given}: is a pipe, and may be needed more than once; save it to a file first")
        return Trace.read(given, table)
    if "recipe" in source:
        return _generated(source["recipe"], source.get("recipe_sha256"), manifest)
    path = source.get("path")
    if not isinstance(path, str) or not path:
        return "the trace was made in memory, and is in no file"
    try:
        if sha256(path, LARGEST_FILE) != source.get("sha256"):
            return f"{path:.300} is not the trace of the run any more"
        return Trace.read(path, table)
    except (OSError, ValueError) as error:
        return f"{path:.300}: cannot be read: {getattr(error, 'strerror', None) or error}"
    except UserError as error:
        return str(error)[:300]


def _generated(recipe: object, digest: object, manifest: Mapping[str, Any]) -> Trace | str:
    from traces.generate import Recipe

    if not is_of_this_code(manifest):
        return "another version generated the trace"
    known = {field.name for field in fields(Recipe)}
    if not isinstance(recipe, dict) or not set(recipe) <= known:
        return f"recipe={shown(recipe)}: is none"
    try:
        if recipe_hash(recipe) != digest:
            return "the files that its recipe names are not those of the run any more"
        return Trace.generated(Recipe(**recipe))
    except (UserError, OSError, TypeError, ValueError, ArithmeticError) as error:
        return f"recipe={shown(recipe)}: {error}"


class Submitted(Rule):
    """Jobs and records beside each other, both in order of submission; what has no counterpart there waits
    for it.
    """

    name = "trace"
    text = "the records are those of the jobs of the trace, as these were submitted, one each"

    def __init__(
        self, log: Log, tally: Tally, manifest: Mapping[str, Any], trace: Trace | str, speeds: Recomputed
    ):
        super().__init__(log)
        self.sees = () if isinstance(trace, str) else GIVES
        self._bounds: dict[str, Job] = {}  # those in the system that state the GPUs that they may have
        self._fates: dict[str, Fate] = {}  # of those in the system whose record says that it came true
        self._speeds, self._why_not = speeds, trace if isinstance(trace, str) else ""
        self._jobs: Iterator[Job] = iter(() if isinstance(trace, str) else trace.jobs)
        self._records: dict[str, JobRecord] = {}  # whose job has not come yet
        self._without: dict[str, Job] = {}  # whose record has not come yet
        self._unknown = self._other = 0
        seed = manifest.get("seed")
        self._seed = seed if isinstance(seed, int) else 0
        digest = stated_hash(manifest)
        if isinstance(trace, Trace) and digest and trace.sha256 != digest:
            self.say(f"{trace.path} is not the trace whose hash manifest.json states")
        if not self._why_not:
            tally.watch = self._take

    def _take(self, record: JobRecord) -> None:
        job = next(self._jobs, None)
        if job is not None and job.job_id == record.job_id:
            self._compare(job, record)
            return
        if job is not None:
            self._without[job.job_id] = job
        self._records.setdefault(record.job_id, record)
        for job_id in (record.job_id, *(() if job is None else (job.job_id,))):
            if job_id in self._without and job_id in self._records:
                self._compare(self._without.pop(job_id), self._records.pop(job_id))

    def end(self, unrecorded: Sequence[Life]) -> None:
        if self._why_not:
            return
        for job in (*self._without.values(), *self._jobs):
            record = self._records.pop(job.job_id, None)
            if record is not None:
                self._compare(job, record)
            else:
                self.say(f"job {job.job_id} of the trace has no record", job_id=job.job_id)
        for job_id in self._records:
            self.say(f"job {job_id} is not in the trace", job_id=job_id)

    def event(self, i: int, event: EventRecord, life: Life | None) -> None:
        """Nobody is given a number of GPUs that its user ruled out."""
        job = self._bounds.get(event.job_id)
        if job is None or event.gpus == job.gpus:
            return
        low, high = job.min_gpus or 1, job.max_gpus or self.log.cluster.gpus
        if not low <= event.gpus <= high:
            text = f"on {event.gpus} GPUs; its user allows {low} to {high}"
            self.at(i, event, f"{event.event} of job {event.job_id} {text}")

    def left(self, life: Life) -> None:
        self._bounds.pop(life.job_id, None)
        fate = self._fates.pop(life.job_id, None)
        work, done = life.known.work, life.sums.work
        if fate is None or life.last != "fail" or work is None or done is None:
            return
        due, error = fate.share * work, life.sums.work_error + life.known.work_error
        if not isclose(done, due, rel_tol=_SAME, abs_tol=_SAME + error):
            what = f"{fate.reason} after {done:g} of {work:g} units of work; it was to be after {due:g}"
            self.say(f"job {life.job_id}: {what}", job_id=life.job_id)

    def _compare(self, job: Job, record: JobRecord) -> None:
        if job.kind == "iterations" and (job.min_gpus is not None or job.max_gpus is not None):
            self._bounds[job.job_id] = job
        for name, submitted, recorded in (
            ("submit_s", job.submit_s, record.submit_s),
            ("tenant", job.tenant, record.tenant),
            ("model", job.model or "", record.model),
            ("deadline_s", job.deadline_s, record.deadline_s),
            ("global_batch", job.global_batch, record.global_batch),
            ("seq_len", job.seq_len, record.seq_len),
        ):
            if submitted != recorded and not _near(submitted, recorded):
                what = f"job {job.job_id}: {name} is {recorded} in its record"
                self.say(f"{what}, {submitted} in the trace", job_id=job.job_id)
        for wrong in (self._wrong_request(job, record), self._wrong_end(job, record)):
            if wrong:
                self.say(f"job {job.job_id}: {wrong}", job_id=job.job_id)

    def _wrong_request(self, job: Job, record: JobRecord) -> str:
        """On how many GPUs it would run for how long, alone; or why it cannot run."""
        if record.isolated_s is None and record.gpus != job.gpus:
            return f"asks for {record.gpus} GPUs in its record, {job.gpus} in the trace"
        if record.isolated_s is None and self._never_came(record):
            return ""
        offers = self._speeds.offers(job)
        if offers is None:
            self._unknown += 1
            return ""
        if isinstance(offers, CannotRun):
            if record.isolated_s is None and record.reason == str(offers):
                return ""
            wrong = f"it cannot run ({offers}); its record says {record.state}, {shown(record.reason)}"
        else:
            requested, curve = offers[0].requested, offers[0].curve
            work = job.iterations if job.kind == "iterations" else job.duration_s
            assert work is not None
            due_s = work * curve.unit_s[requested]
            if record.gpus == requested and _near(due_s, record.isolated_s):
                return ""
            stated = f"isolated_s is {record.isolated_s} on {record.gpus} GPUs in its record"
            wrong = f"{stated}, {due_s} on {requested} by the trace"
        if job.kind == "iterations" and not self._speeds.same_code:
            self._other += 1
            return ""
        return wrong

    def _never_came(self, record: JobRecord) -> bool:
        """Whether the run ended before its submission."""
        end_s = self.evidence.end_s
        return record.state == "unfinished" and (end_s is None or record.submit_s >= end_s - RESOLUTION_S)

    def _wrong_end(self, job: Job, record: JobRecord) -> str:
        failures = self.evidence.failures
        if record.state == "rejected" and record.isolated_s is not None:
            declined = record.reason.partition("; ")[0] == DECLINED
            return "" if declined else f"it can run, and is rejected: {shown(record.reason)}"
        if record.state == "finished" and not self._is_note(job, record.reason):
            return f"it finished, and its record says {shown(record.reason)}"
        if failures is None:
            return ""
        fate = fate_of(job, failures, self._seed)
        if record.state == "finished" and fate is not None:
            return f"it finished, and was to end before: {fate.reason}"
        if record.state != "failed" or record.reason.startswith(GIVEN_UP):
            return ""
        if fate is None or not record.reason.startswith(fate.reason):
            return f"nothing says that it fails: {shown(record.reason)}"
        self._fates[job.job_id] = fate
        return ""

    def _is_note(self, job: Job, text: str) -> bool:
        """Whether it is what a record says of a request that was not met as it was made."""
        offers = self._speeds.offers(job)
        if not isinstance(offers, tuple) or not (job.kind == "duration" or self._speeds.same_code):
            return True
        return text in [offer.note for offer in offers]

    def unproved(self) -> str:
        whys = [self._why_not] if self._why_not else []
        if self._unknown:
            whys.append(f"the speeds of {self._unknown:,} jobs are not known here")
        if self._other:
            whys.append(f"another version made the run, and gave {self._other:,} jobs another speed")
        return "; ".join(whys)


def stated_hash(manifest: Mapping[str, Any]) -> object:
    """The hash of the trace of a run; empty if it was in no file."""
    stated = manifest.get("trace")
    return stated.get("sha256") if isinstance(stated, dict) else None


def _near(a: Any, b: Any) -> bool:
    """As a table states times."""
    numbers = isinstance(a, float) and isinstance(b, float)
    return numbers and isclose(a, b, rel_tol=_SAME, abs_tol=RESOLUTION_S)
