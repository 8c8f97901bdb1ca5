"""`clustersim check` reads a folder once, with few jobs in memory, and finds every contradiction. Falsified
runs are in `forgeries/`, with the first violation of every rule that notices.
"""

import json
import tracemalloc
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from clustersim.audit import Finding, check_run_folder, history, prove
from clustersim.audit.folder import check_run
from clustersim.audit.history import JobHistory, Rule
from clustersim.audit.rules import RULES
from clustersim.audit.rules import records as record_rules
from clustersim.cli import main
from clustersim.records import EventRecord, Run
from clustersim.rundir import csv_in, read_streamed, read_unverified, write_run
from clustersim.runs import run
from clustersim.testing import simulate
from clustersim.testing.outcome import evidence_of
from itertime.errors import TableError
from policies.srtf import Srtf
from tests.clustersim.audit.forged import Forgery, audited, forge, sound_run
from traces.job import Job

JOBS = [Job(str(i), 30.0 * (i // 2), gpus=1 + i % 8, duration_s=20.0 + 7 * (i % 11)) for i in range(60)]


@pytest.fixture(scope="module")
def sound() -> Run:
    made = run(JOBS, "srtf", cluster="n2g8")
    assert sum(event.event == "preempt" for event in made.events) > 5
    return made


def texts(findings: list[Finding]) -> dict[str, list[str]]:
    return {f.rule: [v.text for v in f.violations] for f in findings if f.violations}


@pytest.mark.parametrize("parquet", [False, True], ids=["csv", "parquet"])
def test_a_sound_run_in_small_blocks_with_hashes_that_say_nothing(
    small_blocks: None, equal_hashes: None, sound: Run, tmp_path: Path, parquet: bool
) -> None:
    write_run(tmp_path, sound, parquet=parquet)
    assert texts(check_run_folder(tmp_path)) == {}
    streamed, whole = read_streamed(tmp_path), read_unverified(tmp_path)
    for _ in range(2):
        assert list(streamed.jobs) == whole.jobs
        assert list(streamed.events) == whole.events
        assert list(streamed.snapshots) == whole.snapshots


@pytest.mark.parametrize("row", [0, 6, 7, 20])
def test_a_cell_that_cannot_be_used_is_named_wherever_it_is(
    small_blocks: None, sound: Run, tmp_path: Path, row: int
) -> None:
    write_run(tmp_path, sound)
    path = tmp_path / "events.csv"
    lines = path.read_text().splitlines()
    for i, cells in ((row, "inf"), (row + 1, "soon")):
        lines[1 + i] = ",".join([cells, *lines[1 + i].split(",")[1:]])
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(TableError, match=rf"events.csv:{row + 2}: time_s=inf: must be a finite number"):
        check_run_folder(tmp_path)


def test_memory_holds_the_jobs_in_the_system() -> None:
    jobs = [Job(str(i), 60.0 * i, gpus=4, duration_s=100.0) for i in range(300)]
    outcome = simulate(jobs, Srtf(), "n2g4")
    most = 0

    class Watching(Rule):
        name = "watching"

        def on_event(self, i: int, event: EventRecord, job: JobHistory | None) -> None:
            nonlocal most
            most = max(most, len(self.history.jobs))

    assert not prove(evidence_of(outcome), [*RULES, Watching])[0].violations
    assert 2 <= most <= 4


def test_memory_of_a_check_is_a_few_numbers_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_in, "_BLOCK", 100)
    monkeypatch.setattr(record_rules, "_BLOCK", 100)
    count = 2000
    jobs = [Job(str(i), 60.0 * i, gpus=4, duration_s=100.0) for i in range(count)]
    run(jobs, "fifo", cluster="n2g4", out=tmp_path)
    check_run_folder(tmp_path)
    tracemalloc.start()
    whole: Any = read_unverified(tmp_path)
    listed = tracemalloc.get_traced_memory()[1] / count
    del whole
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    check_run_folder(tmp_path)
    peak = (tracemalloc.get_traced_memory()[1] - before) / count
    tracemalloc.stop()
    assert peak < 800  # 22 numbers of a record, 6 of each change of usage, and what the metrics make of them
    assert listed > 2 * peak


@pytest.mark.usefixtures("small_blocks", "equal_hashes")
def test_a_second_life_of_a_job_is_found(sound: Run) -> None:
    """Job 0 is submitted once more after it has left, and runs."""
    events = [event for event in sound.events if event.job_id == "0"]
    assert (events[0].event, events[-1].event) == ("submit", "finish")
    later = [event._replace(time_s=sound.events[-1].time_s + event.time_s) for event in events]
    broken = texts(check_run(replace(sound, events=[*sound.events, *later])))
    assert any("submit of job 0, which was submitted before" in text for text in broken["causality"])


def test_of_many_violations_the_first_are_kept_and_the_rest_counted(
    sound: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(history, "MOST_KEPT", 10)
    events = [e._replace(overhead_s=e.overhead_s + 1) if e.event == "start" else e for e in sound.events]
    write_run(tmp_path, replace(sound, events=events))
    found = {finding.rule: finding for finding in check_run_folder(tmp_path)}["overheads"]
    assert (len(found.violations), found.more) == (10, 50)
    assert main(["check", str(tmp_path)]) == 4
    assert "          and 55 more" in capsys.readouterr().out
    assert main(["check", str(tmp_path), "--json"]) == 4
    rules = {rule["rule"]: rule for rule in json.loads(capsys.readouterr().out)["runs"][0]["rules"]}
    assert (len(rules["overheads"]["violations"]), rules["overheads"]["more"]) == (10, 50)


# Falsified runs


FILES = {
    file.stem: yaml.safe_load(file.read_text(encoding="utf-8"))
    for file in sorted(Path(__file__).parent.glob("forgeries/*.yaml"))
}
CASES = [(name, number) for name, document in FILES.items() for number in range(len(document["forgeries"]))]


@pytest.fixture(scope="module")
def sound_runs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Each file's run and its folder, by the name of the file."""

    @cache
    def made(name: str) -> tuple[Run, Path]:
        folder = tmp_path_factory.mktemp(name)
        run = sound_run(FILES[name]["run"], folder)
        assert all("not proved" in rule for rule in audited(run, folder))
        return run, folder

    return made


@pytest.mark.usefixtures("small_blocks", "equal_hashes")
@pytest.mark.parametrize(("name", "number"), CASES)
def test_a_forgery_is_noticed_by_these_rules(sound_runs: Any, name: str, number: int) -> None:
    run, folder = sound_runs(name)
    forgery: Forgery = FILES[name]["forgeries"][number]
    assert audited(forge(run, forgery), folder) == (forgery["finds"] or {})
