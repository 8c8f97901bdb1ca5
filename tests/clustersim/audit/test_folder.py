"""`clustersim check`: sound folders pass, and every rule notices a falsified folder."""

import csv
import json
import re
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.audit import Finding, check_run_folder
from clustersim.audit.folder import check_run
from clustersim.audit.totals import JobTotals
from clustersim.cli import main
from clustersim.errors import PolicyError
from clustersim.failures import Failures
from clustersim.overheads import Overheads
from clustersim.records import EventRecord, Exact, Run
from clustersim.rundir import read_run, write_run
from clustersim.runs import RunConfig, Trace, run
from clustersim.scheduler import Proposal, State
from clustersim.testing import check_outcome, simulate
from policies.srtf import Srtf
from tests.builders import acting
from tests.effort import examples
from tests.tables import TABLES
from traces.job import Job

pytestmark = pytest.mark.usefixtures("wide_terminal")

RULES = (
    "files", "causality", "capacity", "gang", "progress", "phases", "conservation", "overheads", "service",
    "loads", "idle", "outages", "plans", "services", "sharing", "trace", "manifest", "records", "usage",
    "bound", "summary",
)  # fmt: skip
RIGID = (
    Job("long", 0.0, gpus=16, duration_s=300.0, deadline_s=350.0),
    Job("short\nand odd", 10.0, gpus=8, duration_s=20.0),
    Job("last", 15.0, gpus=8, duration_s=20.5, deadline_s=1000.0),
    Job("wide", 15.0, gpus=99, duration_s=20.0),
)


def simulated(jobs: tuple[Job, ...], policy: str, **settings: Any) -> Run:
    return run(Trace.of(jobs), config=RunConfig(policy=policy, cluster="n2g8", **settings))


@pytest.fixture(scope="module")
def sound() -> Run:
    """`long` is preempted by the shorter ones and restarts; `wide` is rejected."""
    made = simulated(RIGID, "srtf", overheads={"launch_gpu_s": 0.0})
    assert [e.event for e in made.events].count("preempt") == 1
    return made


def broken(findings: list[Finding]) -> list[str]:
    return [finding.rule for finding in findings if finding.violations]


# Sound runs


def test_a_change_of_speed_counts_from_its_instant_on() -> None:
    """20 s of overhead, 30 s at 1 s a unit, 90 s at 2 s a unit: 75 units. A change leaves the overhead."""
    job = ("a", 8, ((0, 8),), "", 20.0, "")
    log = [
        EventRecord(0.0, "submit", "a", 0, (), "", 0.0, "", Exact(1.0)),
        EventRecord(0.0, "start", *job, Exact(4.0)),
        EventRecord(10.0, "rate", "a", 0, (), "", 0.0, "", Exact(1.0)),
        EventRecord(50.0, "rate", "a", 0, (), "", 0.0, "", Exact(2.0)),
        EventRecord(140.0, "finish", "a", 0, (), "", 0.0, ""),
    ]
    totals = JobTotals()
    for entry in log:
        totals.advance(entry.time_s, 0.0)
        totals.add(entry)
    assert (totals.work, totals.lost_s, totals.overhead_gpu_s) == (75.0, 20.0, 160.0)
    assert (totals.gpu_seconds, totals.wait_s) == (1120.0, 0.0)
    assert (totals.start_s, totals.finish_s, totals.closed) == (0.0, 140.0, True)


@settings(max_examples=examples(25), deadline=None)
@given(
    rows=st.lists(st.tuples(st.floats(0, 500), st.integers(1, 16), st.floats(1e-5, 300)), max_size=12),
    late_s=st.sampled_from([1e9, 3.9e9]),
    scale=st.sampled_from([0.0, 0.01, 1.0]),
    interval=st.sampled_from(["none", 7.0]),
)
def test_late_times_have_few_digits_after_the_point(
    rows: list[Any], late_s: float, scale: float, interval: Any
) -> None:
    """In memory as in a folder: times closer than the resolution of the numbers cannot be told apart."""
    jobs = tuple(Job(str(i), late_s + s, gpus=g, duration_s=d) for i, (s, g, d) in enumerate(rows))
    overheads = {"scale": scale, "checkpoint_interval_s": interval}
    assert broken(check_run(simulated(jobs, "srtf", overheads=overheads))) == []
    outcome = simulate(
        jobs, Srtf(), "n2g8", overheads=Overheads.of(overheads), failures=Failures(mtbf_gpu_h=0.5)
    )
    check_outcome(outcome)


# Falsified runs. `write_run` hashes what it writes, so that the hashes give nothing away.

NUMBERS = TABLES["numbers that are changed"]


@settings(max_examples=examples(150), deadline=None)
@given(data=st.data(), by=st.integers(-500, 500).filter(bool))
def test_no_changed_number_goes_unnoticed(sound: Run, data: st.DataObject, by: int) -> None:
    table = data.draw(st.sampled_from(sorted(NUMBERS)))
    rows = list(getattr(sound, table))
    i = data.draw(st.integers(0, len(rows) - 1))
    name = data.draw(st.sampled_from(NUMBERS[table]))
    value = (getattr(rows[i], name) or 0) + by
    rows[i] = rows[i]._replace(**{name: value}) if table != "jobs" else replace(rows[i], **{name: value})
    assert broken(check_run(replace(sound, **{table: rows})))


# The command


def test_the_command_on_sound_runs(sound: Run, tmp_path: Path, check: Any) -> None:
    for name in ("a", "b"):
        write_run(tmp_path / name, sound)
    code, out, _ = check(tmp_path / "a")
    lines = out.splitlines()
    assert (code, lines[0]) == (0, f"{tmp_path / 'a'}: every rule kept")
    assert [tuple(line.split()[:2]) for line in lines[1:-1]] == [("ok", rule) for rule in RULES]
    proved = "  Proved: every rule above, trace, bound in part (see there). Not proved: what the policy"
    assert lines[-1].startswith(proved)
    code, out, _ = check(tmp_path, "--json")
    runs = [(run["folder"], run["ok"]) for run in json.loads(out)["runs"]]
    assert (code, runs) == (0, [(str(tmp_path / name), True) for name in ("a", "b")])


def test_the_command_on_a_broken_run_names_lines(sound: Run, tmp_path: Path, check: Any) -> None:
    """The line of the file, although the text of an earlier event spans two."""
    events = [
        event._replace(overhead_s=60.0) if event.event == "restart" else event for event in sound.events
    ]
    write_run(tmp_path / "sound", sound)
    write_run(tmp_path / "false", replace(sound, events=events))
    code, out, _ = check(tmp_path)
    file = (tmp_path / "false" / "events.csv").read_text().splitlines()
    line = next(i for i, text in enumerate(file, 1) if ",restart,long" in text)
    with (tmp_path / "false" / "events.csv").open(newline="") as rows:
        assert line > 1 + next(i for i, row in enumerate(csv.reader(rows)) if row[1] == "restart")
    assert f"events.csv:{line}: t=65.5: restart of job long paid 60 s, due 30 s" in out
    assert (code, "BROKEN  overheads" in out) == (4, True)
    code, out, _ = check(tmp_path / "false", "--json")
    rules = {rule["rule"]: rule for rule in json.loads(out)["runs"][0]["rules"]}
    violation = rules["overheads"]["violations"][0]
    assert code == 4
    assert (violation["line"], violation["time_s"], violation["job_id"]) == (line, 65.5, "long")


def test_files_changed_by_hand(sound: Run, tmp_path: Path, check: Any) -> None:
    write_run(tmp_path, sound)
    path = tmp_path / "summary.json"
    path.write_text(path.read_text().replace('"finished": 3', '"finished": 4'))
    code, out, _ = check(tmp_path)
    assert code == 4
    for text in (
        "2 of 21 rules broken",
        "Proved: the other rules, trace, bound in part (see there). Not proved: what the policy decided",
        "summary.json: is not what manifest.json was written for",
        "finished is 4 in summary.json, 3 by the records",
    ):
        assert text in out


def test_hostile_text_does_not_reach_the_terminal(sound: Run, tmp_path: Path, check: Any) -> None:
    jobs = [replace(job, job_id="\x1b[2J") if job.job_id == "last" else job for job in sound.jobs]
    write_run(tmp_path, replace(sound, jobs=jobs))
    code, out, _ = check(tmp_path)
    assert (code, "\x1b" in out) == (4, False)


def test_what_a_policy_left_when_it_broke_a_rule(tmp_path: Path) -> None:
    def fail(state: State, proposal: Proposal) -> None:
        if state.now >= 15:
            raise LookupError
        for job in state.pending:
            proposal.start(job)

    trace, out = tmp_path / "trace.csv", tmp_path / "out"
    trace.write_text("job_id,submit_s,gpus,duration_s\na,0,8,60\nb,15,8,30\n")
    with pytest.raises(PolicyError):
        run(trace, acting(fail), cluster="n2g8", out=out)
    left = read_run(out)
    assert not left.manifest["complete"]
    findings = check_run_folder(out)
    assert broken(findings) == []
    assert not [finding.unproved for finding in findings if finding.unproved]
    older = replace(left, manifest={name: v for name, v in left.manifest.items() if name != "end_s"})
    unproved = {finding.rule: finding.unproved for finding in check_run(older)}
    assert unproved["conservation"] == "2 jobs were in the system when the run ended, at an unknown time"


@pytest.mark.parametrize("second_s", [1e-6, 1e-3, 4e8])
def test_a_run_is_sound_in_whatever_unit_its_jobs_are_short(second_s: float, tmp_path: Path) -> None:
    """Tables round to a microsecond, and clocks far from 0 have fewer digits: ratios of what is left of such
    times are not compared as closely as those of hours.
    """
    jobs = [
        Job(f"j{i}", i // 2 * second_s, gpus=1 + i % 4, duration_s=(1, 2.5, 7)[i % 3] * second_s)
        for i in range(9)
    ]
    config = RunConfig.make(
        policy="srtf", cluster="n2g4", overheads=None, variability={"sigma": 0.1}, warmup_s=second_s
    )
    write_run(tmp_path / "run", run(Trace.of(jobs), config=config))
    assert [v.text for finding in check_run_folder(tmp_path / "run") for v in finding.violations] == []


def test_a_plan_may_leave_gpus_idle(tmp_path: Path) -> None:
    """76.1B takes 24 GPUs a copy under the planner data-parallel: on 64 GPUs its plan uses 48."""
    jobs = [Job("a", 0.0, model="megatron-76.1b", global_batch=1792, iterations=5.0, gpus=64)]
    result = run(jobs, "fifo", cluster="n8g8", planner="data-parallel")
    plan = next(event.plan for event in result.events if event.event == "start")
    assert prod(int(degree) for degree in re.findall(r"(?:tp|pp|dp)(\d+)", plan)) < 64
    write_run(tmp_path / "run", result)
    assert main(["check", str(tmp_path / "run")]) == 0
