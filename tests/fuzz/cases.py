"""Cases: a trace, a cluster, a policy and settings, in memory or in a folder; what holds for the run of one,
and how one that fails becomes small.

    python -m tests.fuzz.cases FOLDER    # run the case in a folder, and print what is wrong
"""

from __future__ import annotations

import hashlib
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from time import process_time
from typing import Any

import yaml

import clustersim
from clustersim.audit import check_run_folder, replay
from clustersim.records import STATED_ENDS, Run
from clustersim.rundir.csv_out import EVENTS, csv_text
from clustersim.runs import Trace
from traces.job import Job
from traces.native import write_trace

from .features import TABLE, Scene
from .laws import broken_laws
from .relations import RELATIONS, first_difference, shuffled

__all__ = ["Case", "Fault", "check", "keep", "shrunk"]

MOST_CPU_S = 60.0
"""Of a run, of its check, and of each relation."""
SHRINKING_CPU_S = 120.0
FAILED = Path(tempfile.gettempdir()) / "clustersim-fuzz"
"""The folder with a folder for each case that fails."""


class Fault(AssertionError):
    """What is wrong with a case. `kind`: the rule, law or relation that is broken, or the exception; a case
    that becomes smaller keeps it.
    """

    def __init__(self, kind: str, text: str):
        super().__init__(f"{kind}: {text}")
        self.kind, self.text = kind, text


@dataclass(frozen=True)
class Case:
    """`clusters`: the cluster file. `table`: whether speeds come from a table, and not from plans."""

    policy: str
    jobs: tuple[Job, ...]
    clusters: dict[str, Any]
    settings: dict[str, Any]
    table: bool

    @classmethod
    def of(cls, scene: Scene) -> Case:
        clusters = [{"name": name, "groups": groups} for name, groups in scene.groups.items()]
        groups = {"clusters": clusters} if len(clusters) > 1 else {"groups": clusters[0]["groups"]}
        jobs = tuple(Job(**columns) for columns in scene.jobs)
        return cls(
            scene.policy, jobs, {"network": scene.network, **groups}, scene.settings, not scene.planned
        )

    def write(self, folder: Path) -> dict[str, Any]:
        """Write all files. Returns the settings with the paths of cluster and table."""
        write_trace(list(self.jobs), folder / "jobs.csv")
        (folder / "cluster.yaml").write_text(yaml.safe_dump(self.clusters))
        files = {"cluster": str(folder / "cluster.yaml")}
        if self.table:
            rows = [
                f"{model},{batch},{gpus},{rate * factor!r},{gpu_type}"
                for (model, batch), rates in TABLE.items()
                for gpus, rate in rates.items()
                for gpu_type, factor in (("a100", 1.0), ("h100", 1.7))
            ]
            head = "model,global_batch,gpus,iterations_per_s,gpu_type"
            (folder / "table.csv").write_text("\n".join([head, *rows, ""]))
            files["table"] = str(folder / "table.csv")
        document = {"policy": self.policy, "settings": self.settings}
        (folder / "settings.yaml").write_text(yaml.safe_dump(document))
        return {**self.settings, **files}

    @classmethod
    def read(cls, folder: Path) -> Case:
        document = yaml.safe_load((folder / "settings.yaml").read_text())
        clusters = yaml.safe_load((folder / "cluster.yaml").read_text())
        table = folder / "table.csv"
        has_table = table.exists()
        jobs = tuple(Trace.read(folder / "jobs.csv", str(table) if has_table else None).jobs)
        return cls(document["policy"], jobs, clusters, document["settings"], has_table)


def check(
    case: Case, folder: Path, relations: Sequence[str] = tuple(RELATIONS), *, replays: bool = True
) -> str:
    """Run a case and hold it to the audit, to the laws and to these relations; and to a replay, if `replays`.
    Files go to `folder`. Returns a hash of its log and its job records. Fault names what is wrong.
    """
    settings = case.write(folder)
    with _faults("run"):
        run = clustersim.run(folder / "jobs.csv", case.policy, out=folder / "run", **settings)
    with _faults("check"):
        for finding in check_run_folder(folder / "run"):
            for violation in finding.violations:
                raise Fault(finding.rule, violation.text)
    with _faults("laws"):
        _check_ends(run, settings)
        for law, text in broken_laws(folder / "run"):
            raise Fault(law, text)
    with _faults("order of rows"):
        base = shuffled(case.jobs, case.policy, settings)
        _compare_text(folder / "run" / "events.csv", csv_text(EVENTS, base.events))
    for name in relations:
        with _faults(name):
            logs = RELATIONS[name](base)
            if logs is not None and (difference := first_difference(*logs)):
                raise Fault(name, difference)
    if replays:
        with _faults("replay"):
            for violation in replay(folder / "run").violations:
                raise Fault("replay", violation.text)
    digest = hashlib.sha256()
    for name in ("events.csv", "jobs.csv"):
        digest.update((folder / "run" / name).read_bytes())
    return digest.hexdigest()[:12]


@contextmanager
def _faults(step: str) -> Iterator[None]:
    """Turn exceptions into faults, and so many CPU seconds into one."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"no end after {MOST_CPU_S:g} CPU seconds")

    handler = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_CPU_S)
    try:
        yield
    except Fault:
        raise
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        kind = f"{step}: {type(error).__name__} in {place.name}"
        raise Fault(kind, str(error)) from error
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, handler)


def _check_ends(run: Run, settings: Mapping[str, Any]) -> None:
    """No job waits for ever, unless the run is cut short or nodes are gone for good."""
    allowed = {"finished", "rejected", "served"}
    if settings.get("failures"):
        allowed.add("failed")
    entries = settings.get("calendar", ())
    removed = {entry["remove"] for entry in entries if "remove" in entry}
    if "until_s" in settings or removed - {entry["add"] for entry in entries if "add" in entry}:
        allowed.add("unfinished")
    endless = [
        (record.job_id, record.state)
        for record in run.jobs
        if record.state not in allowed and not record.reason.startswith(STATED_ENDS)
    ]
    if endless:
        raise Fault("jobs that should have ended", str(endless))


def _compare_text(path: Path, text: str) -> None:
    """The log of shuffled rows is that of the folder."""
    for recorded, line in zip_longest(path.read_text().splitlines(), text.splitlines()):
        if recorded != line:
            raise Fault("order of rows", f"{line}, not {recorded}")


# Cases that fail


def keep(case: Case, fault: Fault, name: str, relations: Sequence[str]) -> Fault:
    """Make a case that fails small, and write it to a folder. Returns the fault, with the command that runs
    the case there.
    """

    def fails(candidate: Case) -> bool:
        with tempfile.TemporaryDirectory() as temporary:
            try:
                check(candidate, Path(temporary), relations)
            except Fault as its_fault:
                return its_fault.kind == fault.kind
        return False

    folder = FAILED / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    small_case = shrunk(case, fails)
    small_case.write(folder)
    words = f"{len(small_case.jobs)} of {len(case.jobs)} jobs are left, under {case.policy}"
    return Fault(fault.kind, f"{fault.text}\n{words}\npython -m tests.fuzz.cases {folder}")


def shrunk(case: Case, fails: Callable[[Case], bool]) -> Case:
    """A smaller case that fails, too: with fewer jobs, settings and columns. Steps are tried until none
    leaves a case that fails, or for `SHRINKING_CPU_S`.
    """
    begin_s, last_case = process_time(), None
    while case != last_case:
        last_case = case
        for step in _steps(case):
            candidate = step(case)
            if candidate is None or candidate == case:
                continue
            if process_time() > begin_s + SHRINKING_CPU_S:
                return case
            if fails(candidate):
                case = candidate
    return case


Step = Callable[[Case], Case | None]


def _steps(case: Case) -> Iterator[Step]:
    """Changes that make a case smaller, the largest first. Each is applied to a case that earlier ones may
    have changed.
    """
    ids = [job.job_id for job in case.jobs]
    size = max(1, len(ids) // 2)
    while size:
        for start in range(0, len(ids), size):
            yield partial(_without_jobs, job_ids=ids[start : start + size])
        size //= 2
    for name, value in case.settings.items():
        yield partial(_without_setting, name=name)
        for place in range(len(value)) if isinstance(value, list) else ():
            yield partial(_without_entry, name=name, entry=value[place])
    for column in fields(Job):
        if column.name not in ("job_id", "submit_s"):
            yield partial(_without_column, column=column.name, value=column.default)
    yield lambda smaller: replace(smaller, clusters={**smaller.clusters, "network": "ideal"})
    yield lambda smaller: replace(smaller, table=False)


def _without_jobs(case: Case, job_ids: Collection[str]) -> Case | None:
    jobs = tuple(job for job in case.jobs if job.job_id not in job_ids)
    return replace(case, jobs=jobs) if jobs else None


def _without_column(case: Case, column: str, value: Any) -> Case:
    return replace(case, jobs=tuple(replace(job, **{column: value}) for job in case.jobs))


def _without_setting(case: Case, name: str) -> Case:
    return replace(case, settings={key: value for key, value in case.settings.items() if key != name})


def _without_entry(case: Case, name: str, entry: Any) -> Case | None:
    entries = case.settings.get(name)
    if not isinstance(entries, list) or len(entries) < 2:
        return None
    return replace(case, settings={**case.settings, name: [kept for kept in entries if kept != entry]})


if __name__ == "__main__":
    for place in map(Path, sys.argv[1:]):
        try:
            print(place, check(Case.read(place), place))
        except Fault as wrong:
            sys.exit(f"{place}: {wrong}")
