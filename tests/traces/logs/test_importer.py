"""Logs become jobs: what selections and rules change; elements of JSON lists from any window."""

import csv
import gzip
import json
import random
import re
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from itertime.errors import TableError, UserError
from tests.damage import ODD, damaged
from tests.effort import examples
from tests.tables import TABLES, table_rows
from tests.traces.importing import import_log, imported
from tests.traces.logs.test_formats import SAMPLES
from tests.traces.planner import FakePlanner
from traces import Job, read_trace, write_trace
from traces.logs import FORMATS, Selection
from traces.logs import json_entries as module
from traces.logs.importer import convert
from traces.logs.json_entries import json_entries
from traces.logs.log import Log, LoggedJob
from traces.logs.source import open_log
from traces.native import PackedJobs
from traces.workload import WorkMaker
from traces.workload.rules import load_rules

pytestmark = pytest.mark.usefixtures("wide_terminal")

ITP = "job_id,submission_time,duration,num_gpu\n"
RULES = load_rules("llm-mix")


def write(folder: Path, text: str, name: str = "log.csv") -> Path:
    (folder / name).write_text(text)
    return folder / name


def a_log(count: int, seed: int = 0, deadline_s: float | None = None) -> Log:
    """Jobs every 50 s, in any order."""
    rng = random.Random(seed)
    rows = [
        LoggedJob(
            f"job-{i}",
            1000.0 + 50 * i,
            gpus=rng.choice([1, 2, 4, 8, 16, 32, 64]),
            line=i + 2,
            duration_s=rng.uniform(600, 9e4),
        )
        for i in range(count)
    ]
    rng.shuffle(rows)
    if deadline_s is not None:
        rows = [replace(row, deadline_s=row.submit_s + deadline_s) for row in rows]
    return Log("itp", (), deadline_s is not None, PackedJobs(LoggedJob, rows))


@given(
    limit=st.none() | st.integers(1, 60),
    window=st.tuples(st.integers(0, 49), st.integers(1, 60)),
    seed=st.integers(0, 2**70),
    scale=st.sampled_from((1.0, 2.5)),
    order=st.integers(0, 3),
)
@settings(deadline=None, max_examples=examples(60))
def test_counts_add_up_and_the_selection_changes_no_job(
    limit: int | None, window: tuple[int, int], seed: int, scale: float, order: int
) -> None:
    """Nor does the order of rows; a stretched clock moves submissions alone. The window is of some 50 s."""
    log = a_log(50)
    jobs, _ = convert(log, WorkMaker(RULES, FakePlanner()), seed, Selection())
    full_jobs = {job.job_id: job for job in jobs}
    rows = list(log.jobs)
    random.Random(order).shuffle(rows)
    first_row, last_row = window[0], window[0] + window[1]
    selection = Selection(50.0 * first_row, 50.0 * last_row, limit, scale)
    window_rows = [i for i in range(50) if first_row <= i < last_row]
    selected_ids = {f"job-{i}" for i in window_rows[:limit]}
    maker = WorkMaker(RULES, FakePlanner(limit=256))
    try:
        jobs, report = convert(replace(log, jobs=PackedJobs(LoggedJob, rows)), maker, seed, selection)
    except UserError:
        reject()  # only jobs for 512 GPUs are submitted in the window
    counts = report["counts"]
    assert counts["left_out"] == {
        "window": 50 - len(window_rows),
        "limit": len(window_rows) - len(selected_ids),
    }
    assert counts["rows"] == 50 == counts["jobs"] + counts["dropped"] + sum(counts["left_out"].values())
    assert counts["jobs"] == len(jobs) == sum(choice["jobs"] for choice in report["choices"])
    assert counts["dropped"] == len(report["dropped"])
    assert jobs[0].submit_s == 0.0
    zero_s = full_jobs[jobs[0].job_id].submit_s
    assert report["clock"] == {"shift_s": 1000.0 + zero_s, "time_scale": scale}
    for job in jobs:
        full_job = full_jobs[job.job_id]
        assert job.job_id in selected_ids
        assert job.submit_s == pytest.approx(scale * (full_job.submit_s - zero_s))
        assert (job.model, job.gpus, job.iterations) == (full_job.model, full_job.gpus, full_job.iterations)
        assert job.duration_s == full_job.duration_s
        assert 0.5 * job.duration_s <= full_job.deadline_s - full_job.submit_s <= 1.5 * job.duration_s
        assert job.deadline_s - job.submit_s == pytest.approx(
            full_job.deadline_s - full_job.submit_s, abs=1e-6
        )
        assert job.iterations * job.global_batch / job.gpus == pytest.approx(job.duration_s, rel=1e-12)


def test_rules_keep_the_deadlines_of_the_log() -> None:
    jobs, report = convert(
        a_log(9, deadline_s=60.0), WorkMaker(RULES, FakePlanner()), 0, Selection(time_scale=3)
    )
    assert [job.deadline_s - job.submit_s for job in jobs] == pytest.approx([60.0] * 9)
    assert jobs[1].submit_s == 150.0
    assert "deadlines are the log's, at their logged distance from the submission" in report["assumptions"]


def test_a_share_of_jobs_without_deadline() -> None:
    half_rules = replace(RULES, deadlines=replace(RULES.deadlines, share=0.5))
    jobs, _ = convert(a_log(1000), WorkMaker(half_rules, FakePlanner()), 0, Selection())
    missing_deadlines = sum(job.deadline_s is None for job in jobs)
    assert abs(missing_deadlines - 500) < 4 * (1000 * 0.25) ** 0.5  # binomial, 4 standard deviations
    rules_without_deadlines = replace(RULES, deadlines=None)
    jobs, report = convert(a_log(9), WorkMaker(rules_without_deadlines, FakePlanner()), 0, Selection())
    assert all(job.deadline_s is None for job in jobs)
    assert "no deadlines: the log and the rules state none" in report["assumptions"]


def test_the_clock_starts_with_the_first_job_that_rules_cover(tmp_path: Path) -> None:
    rows = "too-large,100,60,128\na,150,60,1\nb,170,60,1\n"
    jobs, report = imported(tmp_path, ITP + rows, rules="llm-mix")
    assert [job.submit_s for job in jobs] == [0.0, 20.0]
    assert report["clock"]["shift_s"] == 150.0
    assert report["dropped"] == [{"line": 2, "job_id": "too-large", "reason": "no rule covers 128 GPUs"}]


def test_rules_that_give_a_job_other_gpus_give_it_as_much_of_a_host_beside_each(tmp_path: Path) -> None:
    rows = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
    rows += "1,u,v,4,32,1,COMPLETED,2020-05-01 10:00:00,2020-05-01 10:00:10,2020-05-01 10:10:10,600,10\n"
    ((job,), _) = imported(tmp_path, rows, host=True, rules="llm-mix", planner="data-parallel")
    assert job.gpus != 4
    assert job.cpus == 8 * job.gpus


def test_the_planner_reproduces_the_logged_run_time(tmp_path: Path) -> None:
    from itertime import load_model, load_system, make_planner

    path = write(tmp_path, ITP + "".join(f"{n},{n},7200,{n}\n" for n in (1, 2, 4, 8, 16, 32, 64)))
    for name in ("data-parallel", "vtrain"):
        planner = make_planner(name, load_system("dgx-a100-80gb"))
        jobs, report = import_log(path, rules="llm-mix", planner=name, seed=4)
        assert report["planner"] == name
        for job in jobs:
            run = planner.curve(load_model(str(job.model)), int(job.global_batch or 0), [int(job.gpus or 0)])
            assert run[int(job.gpus or 0)].iteration_s * job.iterations == pytest.approx(7200.0, rel=1e-12)


@pytest.mark.long
def test_cluster04_loads_1024_gpus_fully(shared_traces: Path, tmp_path: Path) -> None:
    """FORMATS.md and the log itself: 15,802 jobs over 59.45 days."""
    log = shared_traces / "itp_raw" / "cluster04.csv.gz"
    jobs, report = import_log(log, rules="llm-mix", planner="data-parallel")
    assert report["counts"] == {
        "rows": 15802,
        "jobs": 15802,
        "dropped": 0,
        "left_out": {"window": 0, "limit": 0},
    }
    assert 0.9 < report["demand"]["mean_gpus"] / 1024 < 1.1
    assert report["demand"]["span_s"] == pytest.approx(59.454 * 86400, rel=1e-4)
    assert {job.gpus for job in jobs} == {8, 16, 32, 64, 512}
    write_trace(jobs, tmp_path / "trace.csv")
    assert read_trace(tmp_path / "trace.csv") == jobs


@pytest.mark.long
def test_every_published_elasticflow_trace_is_read_whole(shared_traces: Path) -> None:
    expected = TABLES["jobs of published elasticflow traces"]
    for name, count in expected.items():
        path = shared_traces / "itp_elasticflow" / name
        for rules in ("none", "llm-mix"):
            jobs, report = import_log(path, rules=rules, planner="data-parallel")
            assert (len(jobs), report["counts"]["dropped"]) == (count, 0), name
            assert all(job.deadline_s is not None for job in jobs)
            assert jobs[0].submit_s == 0.0


@pytest.mark.parametrize(("name", "columns", "count"), table_rows("published logs by their columns"))
def test_published_logs_by_their_columns(shared_traces: Path, name: str, columns: str, count: int) -> None:
    jobs, report = import_log(shared_traces / name, columns=columns, rules="none")
    assert (len(jobs) + report["counts"]["dropped"], report["counts"]["rows"]) == (count, count)
    assert jobs[0].submit_s == 0.0
    assert "default" not in {job.tenant for job in jobs}


def test_a_strange_header_is_shown_short_and_printable(tmp_path: Path) -> None:
    header = ",".join(["a\x1b[2J", *(f"column{i}" for i in range(20_000))])
    log = write(tmp_path, f"{header}\n1\n")
    with pytest.raises(TableError, match=r"unknown column 'when'.* and 19951 more") as caught:
        import_log(log, columns="submit_s=when,gpus=n,duration_s=took")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000


def test_shares_of_a_gpu_count_as_gpus_and_the_report_says_so(shared_traces: Path) -> None:
    named = "job_id=name,submit_s=creation_time,gpus=num_gpu,start_s=scheduled_time,end_s=deletion_time"
    pods = shared_traces / "alibaba" / "openb_pod_list_default.csv.gz"
    report = import_log(pods, columns=named, rules="none")[1]
    with gzip.open(pods, "rt") as file:
        shares = {
            i for i, row in enumerate(csv.DictReader(file), 2) if 0 < float(row["gpu_milli"] or 0) < 1000
        }
    assert report["parts_of_gpus"] == len(shares - {row["line"] for row in report["dropped"]}) > 1000
    first = import_log(pods, columns=named, rules="none", selection=Selection(limit=10))
    assert first[1]["parts_of_gpus"] <= len(first[0]) == 10


def test_a_job_whose_deadline_no_trace_can_hold_is_dropped(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("job_id,submission_time,duration,num_gpu\na,0,4000000000,8\nb,5,600,8\n")
    jobs, report = import_log(log, rules="llm-mix")
    assert [job.job_id for job in jobs] == ["b"]
    (dropped,) = report["dropped"]
    assert (dropped["line"], dropped["job_id"]) == (2, "a")
    assert re.fullmatch(r"deadline_s=\S+: is above 4e\+09 seconds", dropped["reason"])
    write_trace(jobs, tmp_path / "trace.csv")
    assert read_trace(tmp_path / "trace.csv") == jobs


TEXT = 'a"b\\c\n\u2028 \U0001f600'
ENTRIES: list[Any] = [
    {"name": "é" * i, "n": i, "list": [1.5e-3, True, None, -7], "text": TEXT} for i in range(9)
]
ENTRIES += [12345678901234567890, "text", [], None, 1.25, 1e-30, {}]


def read(path: Path, key: str = "") -> list[tuple[int, Any]]:
    with open_log(path) as source:
        return list(json_entries(source, key))


@pytest.mark.parametrize("window", [1, 2, 3, 7, 64, 1 << 20])
@pytest.mark.parametrize("indent", [None, 2])
def test_elements_and_lines_do_not_depend_on_the_window(
    window: int, indent: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WINDOW_BYTES", window)
    path = tmp_path / "log.json"
    for ascii_only in (True, False):
        text = json.dumps(ENTRIES, indent=indent, ensure_ascii=ascii_only)
        path.write_text("\ufeff \n" + text + "\n", encoding="utf-8")
        found = read(path)
        assert [entry for _, entry in found] == ENTRIES
        if indent:
            lines = path.read_text(encoding="utf-8-sig").split("\n")
            starts = [
                i for i, line in enumerate(lines, 1) if line[:2] == "  " and line[2:3] not in (" ", "}")
            ]
            assert [line for line, _ in found] == starts
    path.write_text(json.dumps({"a": [1, {"b": 2}], "items": ENTRIES, "z": 0}, indent=indent))
    assert [entry for _, entry in read(path, "items")] == ENTRIES


@pytest.mark.parametrize("window", [1, 5, 1 << 20])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        *table_rows("what is no json is an error with its line"),
        ('[1,\n\n{"a": nope' + " " * 40 + "}]", ":3: is not JSON: Expecting value"),
        ("[" * 100_000, ":1: is not JSON that can be read: nested too deeply"),
        ("[" + "9" * 5000 + "]", ":1: is not JSON that can be read: Exceeds the limit"),
    ],
)
def test_what_is_no_json_is_an_error_with_its_line(
    window: int, text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WINDOW_BYTES", window)
    path = tmp_path / "log.json"
    path.write_text(text)
    with pytest.raises(TableError) as error:
        read(path)
    assert message in str(error.value)


def test_damage_after_the_list_is_found(tmp_path: Path) -> None:
    path = tmp_path / "log.json.gz"
    content = bytearray(gzip.compress(json.dumps(ENTRIES).encode()))
    content[-6] ^= 1  # of the checksum
    path.write_bytes(content)
    with pytest.raises(TableError, match="damaged gzip file"):
        read(path)
    plain = tmp_path / "log.json"
    plain.write_bytes(b"[1,\n2,\n3]\n\n\xff")
    with pytest.raises(TableError, match=r":5: byte 0xff is not UTF-8"):
        read(plain)


def test_one_entry_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WINDOW_BYTES", 100)
    monkeypatch.setattr(module, "_MOST_CHARACTERS", 1000)
    path = tmp_path / "log.json"
    path.write_text('["short",\n"' + "x" * 5000 + '"]')
    with pytest.raises(TableError, match=r":2: one entry has more than 1,000 characters"):
        read(path)


def test_memory_holds_a_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WINDOW_BYTES", 1 << 16)
    path = tmp_path / "log.json"
    with path.open("w") as file:
        file.write("[")
        file.write(",".join([json.dumps({"text": "x" * 500})] * 20_000))
        file.write("]")
    with open_log(path) as source:
        tracemalloc.start()
        count = sum(1 for _ in json_entries(source))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert count == 20_000
    assert peak < path.stat().st_size / 5


# Damaged logs


FEW, MANY = 12, 2000  # damaged logs of each format
CELLS = [
    *ODD, "5e-324", "1e18", "4000000001", "-5", "0.5", "8", "1970-01-01 00:00:00", "0001-01-01", "2017-10-07",
    "9999-12-31 23:59:59+00:00", "2024-05-01T12:00:00-23:59", "3-04:05:06", "99999999-00:00:00", "Unknown",
    "None", "|", ";", "1" * 4400, "\ufeff", "\u0661", "gres/gpu=1", "gres/gpu:1g.5gb=2", "1_0", "inf",
]  # fmt: skip
CELL = re.compile(rb"[^,;|\t\n ]+")


def longer(text: str) -> str:
    """A sample with its last row three more times: ids that repeat, and rows that differ in one digit."""
    lines = text.rstrip("\n").split("\n")
    if text.lstrip()[:1] in ("[", "{") or "=" in lines[0]:
        return text
    rows = [re.sub(r"^(\W*)\w", rf"\g<1>{i}", lines[-1]) for i in range(3)]
    return "\n".join([*lines, *rows]) + "\n"


def damaged_log(content: bytes, rng: random.Random) -> bytes:
    """Half of the logs have one to three cells of a row replaced, the others any damage."""
    if rng.random() < 0.5:
        return damaged(content, rng)
    for _ in range(rng.randint(1, 3)):
        cells = list(CELL.finditer(content))
        if cells:
            one = rng.choice(cells)
            odd = rng.choice(CELLS).encode("utf-8", "surrogatepass")
            content = content[: one.start()] + odd + content[one.end() :]
    return content


def wrong_with(jobs: list[Job], report: dict[str, Any], folder: Path) -> str:
    """What is wrong with an import; "" if nothing is."""
    counts = report["counts"]
    if counts["jobs"] != len(jobs) or counts["rows"] != counts["jobs"] + counts["dropped"]:
        return f"{counts} do not add up"
    if any(not row["reason"] for row in report["dropped"]):
        return "a row is dropped without a reason"
    for job in jobs:
        times = (job.submit_s, job.duration_s, job.deadline_s, job.estimate_s, job.logged_start_s)
        if any(time is not None and time < 0 for time in times):
            return f"{job} has a negative time"
    json.dumps(report, allow_nan=False).encode()
    write_trace(jobs, folder / "out.csv")
    known = sorted({job.model for job in jobs if job.model})
    return "" if read_trace(folder / "out.csv", known_models=known) == jobs else "does not read back"


def failures(name: str, seeds: range, folder: Path) -> list[tuple[int, str]]:
    """The seeds whose damaged log of a format is neither read in full nor refused in words."""
    sample = SAMPLES[name]
    files = {"": sample} if isinstance(sample, str) else sample
    found = []
    for seed in seeds:
        rng = random.Random(f"{name} {seed}")
        victim = rng.choice(sorted(files))
        for file, text in files.items():
            path = folder / "log" / file if file else folder / "log"
            path.parent.mkdir(exist_ok=True)
            content = longer(text).encode()
            path.write_bytes(damaged_log(content, rng) if file == victim else content)
        log_format = name if rng.random() < 0.5 else None
        try:
            jobs, report = import_log(folder / "log", log_format=log_format)
            wrong = wrong_with(jobs, report, folder)
        except UserError as refused:
            wrong = "" if str(refused) and len(str(refused)) < 5000 else "is refused without a message"
        except Exception as error:  # any other error is what this test looks for
            wrong = repr(error)
        if wrong:
            found.append((seed, wrong))
    return found


@pytest.mark.parametrize("name", list(FORMATS))
def test_a_damaged_log_is_read_in_full_or_refused(name: str, tmp_path: Path) -> None:
    assert not failures(name, range(FEW), tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", list(FORMATS))
def test_many_damaged_logs(name: str, tmp_path: Path) -> None:
    assert not failures(name, range(10_000, 10_000 + MANY), tmp_path)
