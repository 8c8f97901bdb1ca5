"""What the server answers, and to whose questions: nothing without the cookie, and no file outside."""

import fcntl
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from clustersim.report import render_report
from clustersim.runs import compare
from itertime.errors import UserError
from traces import Job

pytest.importorskip("starlette", reason="starlette is not installed (extra: serve)")
pytest.importorskip("httpx", reason="httpx is not installed (extra: test)")

from starlette.testclient import TestClient

from clustersim.cli import main
from clustersim.serve import ServedFolder, Starter, Watched, command_of, make_app, serve

TOKEN, PORT = "a-token-of-a-test", 8123
HOST = f"http://127.0.0.1:{PORT}"
REQUESTS = yaml.safe_load(Path(__file__).with_name("requests.yaml").read_text())
PATHS, GOOD = REQUESTS["closed"], REQUESTS["good"]
WHAT_IF = {**GOOD, "kind": "what-if", "policies": ["fifo"]}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("serve")
    folder = base / "results"
    jobs = [Job(f"job-{i}", 60.0 * i, gpus=4 + 4 * (i % 3), duration_s=500.0) for i in range(30)]
    jobs.append(Job("a/b ?#", 5.0, gpus=8, duration_s=50.0))
    runs = compare(jobs, ["fifo", "srtf"], cluster="n2g8", workers=1,
                   out=[folder / "both" / "fifo", folder / "both" / "srtf"])  # fmt: skip
    (folder / "both" / "report.html").write_text(render_report(runs), encoding="utf-8")
    (folder / "jobs.csv").write_text("job_id,submit_s,gpus,duration_s\na,0,8,60\nb,5,8,60\n")
    (base / "secret.csv").write_text("job_id,submit_s\nsecret,0\n")
    (folder / "link.csv").symlink_to(base / "secret.csv")
    (folder / "out").symlink_to(base)
    (base / "report.html").write_text("secret")
    leaking = folder / "leaking"
    leaking.mkdir()
    for name in ("manifest.json", "jobs.csv", "usage.csv", "plans.csv", "summary.json"):
        (leaking / name).write_bytes((folder / "both" / "fifo" / name).read_bytes())
    (leaking / "events.csv").symlink_to(base / "secret.csv")
    (leaking / "report.html").symlink_to(base / "report.html")
    return folder


@pytest.fixture(scope="module")
def client(home: Path) -> Iterator[TestClient]:
    """A browser that has entered."""
    with TestClient(make_app(home, TOKEN, PORT), base_url=HOST) as made:
        entered = made.get(f"/enter?token={TOKEN}", follow_redirects=False)
        assert entered.status_code == 303
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(entered.headers["set-cookie"].split("; "))
        yield made


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_served_without_the_token(home: Path, path: str) -> None:
    stranger = TestClient(make_app(home, TOKEN, PORT), base_url=HOST)
    for cookie in ("", "clustersim=", "clustersim=wrong", "clustersim=ü", f"clustersim={TOKEN}", "=;;"):
        answer = stranger.get(path, headers={"cookie": cookie.encode()})
        assert answer.status_code == 403
        assert answer.text.startswith("forbidden")
    for path in ("/start", "/stop"):
        assert stranger.post(path, json={}, headers={"origin": HOST}).status_code == 403


@pytest.mark.parametrize("host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:80", ""])
def test_another_host_is_refused(client: TestClient, host: str) -> None:
    for path in ("/state", f"/enter?token={TOKEN}"):
        assert client.get(path, headers={"host": host}).status_code == 403


@pytest.mark.parametrize("origin", [None, "null", "http://evil.example", f"https://127.0.0.1:{PORT}"])
def test_another_site_starts_nothing(client: TestClient, origin: str | None) -> None:
    headers = {} if origin is None else {"origin": origin}
    assert client.post("/start", json={}, headers=headers).status_code == 403


def test_every_answer_forbids_foreign_content(client: TestClient) -> None:
    for path in PATHS:
        headers = client.get(path).headers
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
    assert "default-src 'self'" in client.get("/").headers["content-security-policy"]
    report = client.get("/reports/both")
    assert "sandbox allow-scripts" in report.headers["content-security-policy"]
    assert "allow-same-origin" not in report.headers["content-security-policy"]
    assert "<html" in report.text


LONG = [f"/runs/{'a/' * 3000}at?t=0", f"/reports/{'a' * 3000}", f"/runs/x/cells/{'a' * 3000}/at?t=0"]


@pytest.mark.parametrize("path", [*REQUESTS["outside"], *LONG])
def test_no_other_file_is_read(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert "secret" not in answer.text


def test_paths_of_the_folder_stay_inside(home: Path) -> None:
    folder = ServedFolder(home)
    assert folder.traces() == ["jobs.csv"]
    paths = ("", ".", "..", "both/../..", "/etc", "~", "both//fifo", "a\0b", "both\\fifo", "out", "nothing")
    for path in paths:
        with pytest.raises(UserError):
            folder.inside(path)


def events_in(text: str) -> list[tuple[str, Any]]:
    found = re.findall(r"event: (\w+)\ndata: (.*)\n\n", text)
    return [(name, json.loads(data)) for name, data in found]


def test_a_stream_begins_with_the_whole_picture(client: TestClient, home: Path) -> None:
    answer = client.get("/runs/both/fifo/stream")
    assert answer.headers["content-type"].startswith("text/event-stream")
    (first, cluster), (second, frame), (third, _) = events_in(answer.text)
    assert (first, second, third) == ("cluster", "frame", "over")
    assert cluster == {"nodes": [8, 8], "zero_s": None, "policy": "fifo", "look": 0}
    assert frame["status"] == "complete"
    assert frame["ended"]["finish"] == 31


def test_time_goes_by_events(client: TestClient) -> None:
    at, seen = -1.0, []
    while True:
        picture = client.get(f"/runs/both/fifo/at?t={at}").json()
        seen.append(picture["events"])
        if picture["next_s"] is None:
            break
        at = picture["next_s"]
    assert seen == sorted(set(seen))
    assert seen[0] == 0
    assert picture["time_s"] == picture["end_s"]
    for wrong in ("", "x", "nan", "inf"):
        assert client.get(f"/runs/both/fifo/at?t={wrong}").status_code == 404


def test_a_job_has_a_story(client: TestClient) -> None:
    story = client.get("/runs/both/fifo/job", params={"id": "a/b ?#"}).json()
    assert [event[1] for event in story["events"]] == ["submit", "start", "finish"]
    assert story["record"]["state"] == "finished"
    assert not story["waits"]
    late = client.get("/runs/both/fifo/job", params={"id": "job-9"}).json()
    assert late["waits"][0]["needed"] == 4
    assert client.get("/runs/both/fifo/job?id=nothing").status_code == 404


@pytest.mark.parametrize("changes", REQUESTS["bad"], ids=repr)
def test_settings_that_could_do_harm_are_refused(client: TestClient, changes: dict[str, Any]) -> None:
    answer = client.post("/start", json={**GOOD, **changes}, headers={"origin": HOST})
    assert answer.status_code == 400
    assert answer.json()["error"]
    assert client.get("/state").json()["commands"] == []


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"[" * 9000, b" " * 30_000])
def test_a_body_that_is_no_object_is_refused(client: TestClient, body: bytes) -> None:
    assert client.post("/start", content=body, headers={"origin": HOST}).status_code == 400


def test_settings_become_the_ordinary_command(home: Path) -> None:
    folder = ServedFolder(home)
    out = str(home / "mine")
    assert command_of({**GOOD, "set": ["overheads.launch_s = 10"]}, folder) == [
        "compare", str(home / "jobs.csv"), "--cluster", "n2g8", "--seed", "0", "--policies", "fifo,srtf",
        "--set", "overheads.launch_s=10", "--out", out,
    ]  # fmt: skip
    varied = command_of({**WHAT_IF, "vary": ["nodes=2,4"], "seed": 3}, folder)
    assert varied[-4:] == ["--vary", "nodes=2,4", "--out", out]
    demo = {"kind": "demo", "name": "mine", "policies": ["fifo"], "cluster": "n2g8", "jobs": 5}
    assert command_of(demo, folder)[:1] == ["demo"]


def test_a_comparison_starts_runs_and_is_listed(client: TestClient, home: Path) -> None:
    """The real command in a real process."""
    from time import monotonic, sleep

    answer = client.post("/start", json={**GOOD, "name": "fresh"}, headers={"origin": HOST})
    assert answer.json() == {"name": "fresh"}
    end = monotonic() + 120
    while (state := client.get("/state").json())["commands"][0]["status"] == "running":
        assert monotonic() < end
        sleep(0.1)
    assert state["commands"] == [{"name": "fresh", "status": "done", "printed": ""}]
    assert "fresh" in state["reports"]
    assert events_in(client.get("/runs/fresh/fifo/stream").text)[1][1]["ended"]["finish"] == 2
    assert client.post("/stop", json={"name": "fresh"}, headers={"origin": HOST}).status_code == 200
    assert client.post("/stop", json={"name": "both"}, headers={"origin": HOST}).status_code == 400


def test_a_log_that_is_damaged_while_it_is_watched_ends_the_stream(client: TestClient, home: Path) -> None:
    folder = growing(home, "growing")
    assert client.get("/runs/growing/at?t=0").json()["status"] == "running"
    with (folder / f".events.csv.{os.getpid()}.abc.tmp").open("a") as file:
        file.write("x,y\n")
    (name, told) = events_in(client.get("/runs/growing/stream").text)[-1]
    assert name == "over"
    assert "events.csv" in told["error"]
    shutil.rmtree(folder)


def test_the_command_names_the_extra_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve", str(tmp_path)]) == 2
    assert "clustersim[serve]" in capsys.readouterr().err


def test_a_port_that_is_taken_is_a_mistake_of_use(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="uvicorn is not installed (extra: serve)")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UserError, match="choose another"):
            serve(tmp_path, taken.getsockname()[1])


def growing(home: Path, name: str, rows: int = 9) -> Path:
    """A folder with the beginning of a run that this process writes, and what it states."""
    folder, both = home / name, home / "both" / "fifo"
    folder.mkdir(parents=True)
    log = both / "events.csv"
    (folder / f".events.csv.{os.getpid()}.abc.tmp").write_bytes(
        b"".join(log.read_bytes().splitlines(True)[:rows])
    )
    stated = {"policy": "srtf", "cluster": json.loads((both / "manifest.json").read_text())["cluster"]}
    stated["trace"] = {"since_1970_s": 1.6e9}
    (folder / f".manifest.json.{os.getpid()}.abc.tmp").write_text(json.dumps(stated))
    (folder / f".requests.csv.{os.getpid()}.abc.tmp").write_text('job-0,4\n"job-1",8\njob-2,12\njob-')
    return folder


def test_a_run_in_progress_states_nodes_requests_and_date(client: TestClient, home: Path) -> None:
    folder = growing(home, "mine/srtf")
    picture = client.get("/runs/mine/srtf/at?t=1e9").json()
    asked = {job: gpus for job, gpus, _, _ in picture["waiting"]}
    assert asked
    assert all(asked[job] == {"job-0": 4, "job-1": 8, "job-2": 12}.get(job) for job in asked)
    listed = next(run for run in client.get("/state").json()["runs"] if run["path"] == "mine/srtf")
    assert (listed["policy"], listed["look"], listed["status"]) == ("srtf", 1, "in progress")
    watched = Watched(folder)
    assert watched.cluster_document() == {"nodes": [8, 8], "zero_s": 1.6e9, "policy": "srtf", "look": 1}
    for path in folder.iterdir():  # as if its process, of a number that no process has, was killed
        path.rename(path.with_name(path.name.replace(f".{os.getpid()}.", ".999999999.")))
    listed = next(run for run in client.get("/state").json()["runs"] if run["path"] == "mine/srtf")
    assert (listed["policy"], listed["status"]) == ("srtf", "stopped")
    shutil.rmtree(folder.parent)


def test_waiting_jobs_of_a_complete_run_show_what_they_ask_for(client: TestClient) -> None:
    found = [client.get(f"/runs/both/fifo/at?t={t}").json()["waiting"] for t in (300, 600, 900)]
    waiting = [row for rows in found for row in rows]
    assert waiting
    assert all(gpus in (4, 8, 12) for _, gpus, _, _ in waiting)


def test_a_cell_that_is_being_made_has_the_name_of_its_values(client: TestClient, home: Path) -> None:
    key = "0123456789abcdef01234567"
    folder = growing(home, f"study/cells/.{key}.00ff.tmp")
    cells = [{"cell": key, "seed": 0, "axes": {"nodes": 2, "policy": "srtf"}}]
    cells.append({"cell": "f" * 24, "seed": 0, "axes": {"nodes": 4, "policy": "srtf"}})
    (home / "study" / "grid.json").write_text(json.dumps({"cells": [*cells, 7, {"axes": 1}]}))
    path = f"study/cells/{key}"
    listed = next(run for run in client.get("/state").json()["runs"] if run["path"] == path)
    assert listed["cell"] == "nodes 2"
    assert client.get(f"/runs/{path}/at?t=0").json()["status"] == "running"
    folder.rename(home / path)
    assert client.get(f"/runs/{path}/at?t=0").status_code == 200
    shutil.rmtree(home / "study")


def test_what_an_earlier_server_started_is_listed_and_stopped(home: Path) -> None:
    """But no other process: number, time of start and command must agree."""
    target = str(home / "older")
    sleeping = [sys.executable, "-c", "import time; time.sleep(600)", "--out", target]
    with subprocess.Popen(sleeping, start_new_session=True) as process:
        known = {"pid": process.pid, "began_s": psutil.Process(process.pid).create_time()}
        (home / ".serve").mkdir(exist_ok=True)
        forged = {"other": known, "reused": {**known, "began_s": 1.0}, "wrong": {"pid": "x"}, "none": []}
        for name, noted in {"older": known, **forged}.items():
            (home / ".serve" / f"{name}.process").write_text(json.dumps(noted))
        while target not in psutil.Process(process.pid).cmdline():  # empty for a moment after the start
            time.sleep(0.001)
        starter = Starter(ServedFolder(home))
        assert starter.commands() == [{"name": "older", "status": "running", "printed": ""}]
        for name in forged:
            with pytest.raises(UserError, match="has ended"):
                starter.stop(name)
        with pytest.raises(UserError, match="name='older': runs already; choose another name"):
            starter.start({**GOOD, "name": "older"})  # it has not made its folder yet
        with (home / ".serve" / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with pytest.raises(UserError, match="another comparison is being started; try again"):
                starter.start({**GOOD, "name": "newer"})
        assert process.poll() is None
        starter.stop("older")
        assert process.wait(30) != 0
    assert starter.commands() == []


def test_what_others_put_in_the_folder_of_commands_is_not_followed(client: TestClient, home: Path) -> None:
    """Links are replaced, pipes refused before anything starts."""
    (victim := home.parent / "victim").write_text("precious")
    (notes := home / ".serve").mkdir(exist_ok=True)
    for ending in ("json", "log", "process"):
        (notes / f"linked.{ending}").symlink_to(victim)
    (notes / "secret.process").symlink_to(victim)
    os.mkfifo(notes / "piped.log")
    os.mkfifo(notes / "blocking.process")
    (home / "gone").symlink_to(home.parent / "made later")
    assert client.get("/state").status_code == 200
    answers = {
        name: client.post("/start", json={**GOOD, "name": name}, headers={"origin": HOST})
        for name in ("linked", "piped", "blocking", "gone")
    }
    assert {name: answer.status_code for name, answer in answers.items()} == {
        "linked": 200, "piped": 400, "blocking": 400, "gone": 400,
    }  # fmt: skip
    assert "not a regular file" in answers["piped"].json()["error"]
    client.post("/stop", json={"name": "linked"}, headers={"origin": HOST})
    assert victim.read_text() == "precious"
    assert not any((notes / f"linked.{ending}").is_symlink() for ending in ("json", "log", "process"))
    (home / "gone").unlink()
    shutil.rmtree(notes)
    notes.write_text("no folder")
    answer = client.post("/start", json={**GOOD, "name": "more"}, headers={"origin": HOST})
    assert answer.json()["error"] == ".serve: cannot be used as a folder: File exists"
    notes.unlink()


def test_servers_side_by_side_do_not_share_a_cookie(home: Path) -> None:
    names = set()
    for port in (PORT, PORT + 1):
        browser = TestClient(make_app(home, TOKEN, port), base_url=f"http://127.0.0.1:{port}")
        answer = browser.get(f"/enter?token={TOKEN}", follow_redirects=False)
        names.add(answer.headers["set-cookie"].partition("=")[0])
    assert len(names) == 2


DAMAGED: dict[str, dict[str, bytes]] = {
    "empty": {"events.csv": b""},
    "binary": {"events.csv": bytes(range(256)) * 9},
    "manifest": {"events.csv": b"time_s,event\n", "manifest.json": b"{" * 900},
    "deep": {"manifest.json": b'{"cluster":' + b"[" * 5000, "events.csv": b"\n"},
    "list": {"manifest.json": b"[]", "events.csv": b"x"},
    "no-utf8": {"manifest.json": b'{"policy": "\xff"}', "events.csv": b"\xff\xfe"},
    "policy": {"manifest.json": b'{"policy": {"<b>": 1}, "cluster": 7, "trace": 7}', "events.csv": b"time_s"},
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_run_is_an_error_of_its_own(client: TestClient, home: Path, name: str) -> None:
    folder = home / f"damaged-{name}"
    folder.mkdir()
    for file, content in DAMAGED[name].items():
        (folder / file).write_bytes(content)
    assert client.get("/state").status_code == 200
    for what in ("at?t=0", "job?id=a", "stream"):
        answer = client.get(f"/runs/damaged-{name}/{what}")
        assert answer.status_code in (200, 404)
        assert "Traceback" not in answer.text
    shutil.rmtree(folder)


def test_a_pipe_in_the_place_of_a_file_blocks_nothing(client: TestClient, home: Path) -> None:
    folder = home / "pipes"
    folder.mkdir()
    for name in ("events.csv", "manifest.json", "report.html", f".requests.csv.{os.getpid()}.a.tmp"):
        os.mkfifo(folder / name)
    os.mkfifo(home / "pipe.csv")
    (folder / "usage.csv").symlink_to(folder / "usage.csv")  # a circle
    (home / "circle.csv").symlink_to(home / "circle.csv")
    state = client.get("/state").json()
    assert "pipe.csv" not in state["traces"]
    assert "pipes" not in state["reports"]
    assert "circle.csv" not in state["traces"]
    assert client.get("/runs/pipes/at?t=0").status_code == 404
    (folder / "usage.csv").unlink()
    assert client.get("/runs/pipes/at?t=0").status_code == 404
    shutil.rmtree(folder)
    for name in ("pipe.csv", "circle.csv"):
        (home / name).unlink()


def test_names_that_could_be_markup_are_not_listed(client: TestClient, home: Path) -> None:
    for name in ("<img src=x onerror=alert(1)>", "a'b", 'a"b', "a&b", "a\nb"):
        shutil.copytree(home / "both" / "fifo", home / "odd" / name)
    assert not [run for run in client.get("/state").json()["runs"] if run["path"].startswith("odd")]
    shutil.rmtree(home / "odd")
