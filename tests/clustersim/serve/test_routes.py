"""What the server answers, and to whose questions: nothing without the cookie, and no file outside."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clustersim.report import render_report
from clustersim.runs import compare
from itertime.errors import UserError
from traces import Job

pytest.importorskip("starlette", reason="starlette is not installed (extra: serve)")
pytest.importorskip("httpx", reason="httpx is not installed (extra: test)")

from starlette.testclient import TestClient

from clustersim.cli import main
from clustersim.serve import ServedFolder, command_of, make_app, serve

TOKEN, PORT = "a-token-of-a-test", 8123
HOST = f"http://127.0.0.1:{PORT}"


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


PATHS = (
    "/", "/page/serve.js", "/state", "/policies", "/runs/both/fifo/stream", "/runs/both/fifo/at?t=5",
    "/runs/both/fifo/job?id=job-1", "/reports/both", "/nothing", "/enter", "/enter?token=wrong",
    "/enter?token=%ff",
)  # fmt: skip


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
    assert client.get("/state", headers={"host": host}).status_code == 403
    assert client.get(f"/enter?token={TOKEN}", headers={"host": host}).status_code == 403


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


OUTSIDE = (
    "/reports/%2e%2e", "/reports/out", "/reports/both/..%2f..", "/reports//etc", "/reports/leaking",
    "/runs/leaking/at?t=0", "/runs/leaking/stream", "/runs/leaking/job?id=secret",
    "/runs/out/results/both/fifo/at?t=0%00",
    "/runs/../results/both/fifo/at?t=0", "/runs//etc/at?t=0", "/runs/%2fetc/at?t=0", "/runs/.serve/at?t=0",
    "/page/..%2fapp.py", "/page/%2e%2e/app.py", "/page/index.html", "/jobs.csv", "/both/fifo/manifest.json",
)  # fmt: skip


@pytest.mark.parametrize("path", OUTSIDE)
def test_no_other_file_is_read(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert "secret" not in answer.text


def test_paths_of_the_folder_stay_inside(home: Path) -> None:
    folder = ServedFolder(home)
    assert folder.traces() == ["jobs.csv"]
    for path in (
        "",
        ".",
        "..",
        "both/../..",
        "/etc",
        "~",
        "both//fifo",
        "a\0b",
        "both\\fifo",
        "out",
        "nothing",
    ):
        with pytest.raises(UserError):
            folder.inside(path)


def test_the_state_lists_runs_traces_and_reports(client: TestClient) -> None:
    state = client.get("/state").json()
    assert [run["path"] for run in state["runs"]] == ["both/fifo", "both/srtf"]
    assert [run["policy"] for run in state["runs"]] == ["fifo", "srtf"]
    assert state["traces"] == ["jobs.csv"]
    assert state["reports"] == ["both"]


def events_in(text: str) -> list[tuple[str, Any]]:
    found = re.findall(r"event: (\w+)\ndata: (.*)\n\n", text)
    return [(name, json.loads(data)) for name, data in found]


def test_a_stream_begins_with_the_whole_picture(client: TestClient, home: Path) -> None:
    answer = client.get("/runs/both/fifo/stream")
    assert answer.headers["content-type"].startswith("text/event-stream")
    (first, cluster), (second, frame), (third, _) = events_in(answer.text)
    assert (first, second, third) == ("cluster", "frame", "over")
    assert cluster == {"nodes": [8, 8]}
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


GOOD: dict[str, Any] = {
    "kind": "compare", "name": "mine", "trace": "jobs.csv", "policies": ["fifo", "srtf"], "cluster": "n2g8"
}  # fmt: skip
WHAT_IF = {**GOOD, "kind": "what-if", "policies": ["fifo"]}
BAD = [
    {**GOOD, "kind": "run"}, {**GOOD, "name": "../x"}, {**GOOD, "name": "-x"}, {**GOOD, "name": "both"},
    {**GOOD, "name": ""}, {**GOOD, "name": None}, {**GOOD, "trace": "link.csv"},
    {**GOOD, "trace": "../secret.csv"},
    {**GOOD, "trace": "/etc/passwd"}, {**GOOD, "trace": None}, {**GOOD, "policies": []},
    {**GOOD, "policies": "fifo"},
    {**GOOD, "policies": ["fifo", "fifo"]}, {**GOOD, "policies": ["x.py:X"]},
    {**GOOD, "policies": ["--help"]},
    {**GOOD, "cluster": "file.yaml"}, {**GOOD, "cluster": "n0g8"}, {**GOOD, "cluster": "n2g99"},
    {**GOOD, "seed": -1}, {**GOOD, "seed": "1"}, {**GOOD, "seed": True}, {**GOOD, "out": "/tmp"},
    {**GOOD, "set": ["policy=x.py:X"]}, {**GOOD, "set": ["table=/etc/passwd"]}, {**GOOD, "set": ["--out=x"]},
    {**GOOD, "set": ["overheads.launch_s"]}, {**GOOD, "set": ["nothing.x=1"]}, {**GOOD, "set": "seed=1"},
    {**GOOD, "set": ["table=../x"]}, {**GOOD, "set": ["seed=1,2"]}, {**GOOD, "vary": ["nodes=1,2"]},
    WHAT_IF, {**WHAT_IF, "policies": ["fifo", "srtf"], "vary": ["nodes=1,2"]},
    {**WHAT_IF, "vary": ["nodes=$(id)"]},
    {**WHAT_IF, "vary": ["nodes=-x"]}, {**GOOD, "kind": "demo", "jobs": 0},
    {**GOOD, "kind": "demo", "load": "x"},
]  # fmt: skip


@pytest.mark.parametrize("settings", BAD, ids=repr)
def test_settings_that_could_do_harm_are_refused(client: TestClient, settings: dict[str, Any]) -> None:
    answer = client.post("/start", json=settings, headers={"origin": HOST})
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
    assert command_of({**WHAT_IF, "vary": ["nodes=2,4"], "seed": 3}, folder)[-4:] == [
        "--vary",
        "nodes=2,4",
        "--out",
        out,
    ]
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


def test_the_folder_must_exist(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a folder"):
        make_app(tmp_path / "nothing", TOKEN, PORT)


def test_a_log_that_is_damaged_while_it_is_watched_ends_the_stream(home: Path) -> None:
    folder = home / "growing"
    folder.mkdir()
    log = folder / f".events.csv.{os.getpid()}.abc.tmp"
    log.write_bytes(b"".join((home / "both" / "fifo" / "events.csv").read_bytes().splitlines(True)[:9]))
    with TestClient(make_app(home, TOKEN, PORT), base_url=HOST) as client:
        client.get(f"/enter?token={TOKEN}")
        assert client.get("/runs/growing/at?t=0").json()["status"] == "running"
        with log.open("a") as file:
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
