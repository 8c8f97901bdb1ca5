"""`clustersim check --replay`: the same run again, byte for byte, or the differences."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clustersim
from clustersim.audit import check_run_folder, replay
from clustersim.cli import main
from clustersim.errors import PolicyError
from clustersim.records import Run
from clustersim.rundir import read_run, write_run
from clustersim.rundir.format import manifest_hash
from clustersim.runs import Trace, other_libraries
from itertime.errors import UserError
from tests.effort import examples
from traces.job import Job
from traces.native import write_trace
from traces.synthetic import Recipe
from traces.workload import rules_path

pytestmark = pytest.mark.usefixtures("wide_terminal")

JOBS = [
    Job("a", 0.0, gpus=16, duration_s=300.0, deadline_s=350.0, tenant="blue"),
    Job("b", 10.0, gpus=8, duration_s=20.0),
    Job("llm", 20.0, model="megatron-1.7b", global_batch=64, iterations=50.5, gpus=4, deadline_s=1e4),
    Job("c", 50.0, gpus=8, duration_s=20.0, deadline_s=1000.0),
]
CLUSTER = """
network: contention
groups:
  - {name: a, gpu_type: a100, nodes: 4, nodes_per_leaf: 1, leaf_oversubscription: 4}
"""
MINE = """
from clustersim.scheduler import Scheduler
class Mine(Scheduler):
    '''First come, first served, up to `most` at a time.'''
    def __init__(self, most: int = 2, until_s: float = 1e9):
        self.most, self.until_s = most, until_s
    def schedule(self, state):
        if state.now >= self.until_s: raise LookupError
        proposal = state.proposal()
        for job in list(state.pending)[: self.most]: proposal.start(job)
        return proposal
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    write_trace(JOBS, tmp_path / "trace.csv")
    return tmp_path / "trace.csv"


def texts(folder: Path, **options: Any) -> str:
    return "; ".join(violation.text for violation in replay(folder, **options).violations)


def test_the_command(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    options = ["--cluster", "n2g8", "--policies", "fifo,srtf", "--out", str(out)]
    assert main(["compare", str(trace), *options, "--workers", "1"]) == 0
    capsys.readouterr()
    assert main(["check", str(out), "--replay"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines if "replay" in line] == [["ok", "replay"]] * 2
    assert sum(line.startswith("  Proved: the whole folder;") for line in lines) == 2
    assert main(["check", str(out), "--policy", "fifo"]) == 2
    assert main(["check", str(out / "fifo"), "--replay", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)["runs"][0]
    assert (made["rules"][-1]["rule"], made["rules"][-1]["ok"]) == ("replay", True)
    assert made["decisions_proved"]
    assert main(["check", str(out / "fifo"), "--json"]) == 0
    assert not json.loads(capsys.readouterr().out)["runs"][0]["decisions_proved"]


def test_a_recipe_whose_rules_were_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules, out = tmp_path / "rules.yaml", tmp_path / "run"
    text = rules_path("llm-mix").read_text()
    rules.write_text(text)
    made = Trace.generated(Recipe(jobs=12, gpus=64, rules=str(rules)))
    clustersim.run(made, "fifo", cluster="n8g8", out=out)
    assert main(["check", str(out), "--replay"]) == 0
    rules.write_text(text.replace("gpt3-1.3b", "llama2-7b"))
    capsys.readouterr()
    assert main(["check", str(out), "--replay"]) == 2
    printed = capsys.readouterr()
    assert "BROKEN" not in printed.out
    assert "the files that its recipe names were changed since the run" in printed.err
    rules.unlink()
    assert main(["check", str(out)]) == 0


# What is not the same


def rewritten(folder: Path, change: Callable[[Run], Run]) -> None:
    """A falsified run with correct hashes."""
    write_run(folder, change(read_run(folder)))


def stated(folder: Path, **fields: Any) -> None:
    rewritten(folder, lambda run: replace(run, manifest={**run.manifest, **fields}))


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run in which nodes fail."""
    folder = tmp_path_factory.mktemp("failing")
    write_trace(JOBS, folder / "trace.csv")
    return clustersim.run(folder / "trace.csv", "fifo", cluster="n4g8", failures={"mtbf_gpu_h": 0.5})


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"seed": 1}, "events.csv:"),
        ({"overheads": None}, "events.csv:"),
        ({"params": {"none": 1}}, "unknown parameter"),
        ({"placement": "spread"}, "events.csv:"),
        ({"oracle_used": True}, "manifest.json: oracle_used is True; by the replay False"),
        ({"end_s": 1e6}, "manifest.json: end_s is 1000000.0; by the replay "),
        ({"complete": False, "status": "stopped"}, "manifest.json: complete is False; by the replay True"),
        ({"luck": 7}, "manifest.json: luck is 7; by the replay None"),
    ],
)
def test_settings_that_the_run_did_not_have(
    fields: dict[str, Any], text: str, failing: Run, tmp_path: Path
) -> None:
    write_run(tmp_path, replace(failing, manifest={**failing.manifest, **fields}))
    if text == "unknown parameter":
        with pytest.raises(UserError, match="parameter of policy fifo"):
            replay(tmp_path)
        return
    assert text in texts(tmp_path)


def test_a_decision_that_the_policy_did_not_take(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Job b was admitted; the log says that the policy declined it. No other rule can know."""
    clustersim.run(trace, "elasticflow", cluster="n2g8", out=tmp_path / "run")
    run = read_run(tmp_path / "run")
    jobs = [
        replace(j, state="rejected", start_s=None, finish_s=None, jct_s=None, queue_s=None, wait_s=0.0,
                gpu_seconds=0.0, overhead_gpu_s=0.0, lost_s=0.0, reason="declined by the policy")
        if j.job_id == "c" else j for j in run.jobs
    ]  # fmt: skip
    write_run(tmp_path / "run", replace(run, jobs=jobs))
    assert "jobs.csv:5: c,default,,rejected" in texts(tmp_path / "run")
    assert main(["check", str(tmp_path / "run"), "--replay"]) == 4
    assert "Proved: the other rules." in capsys.readouterr().out


# Where a run cannot be made again


def test_a_policy_from_a_file_is_not_run_unasked(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    out = str(tmp_path / "run")
    assert main(["run", str(trace), "--policy", f"{file}:Mine", "--cluster", "n2g8", "--out", out]) == 0
    file.write_text(f"raise SystemExit('run unasked')\n{MINE}")
    assert main(["check", out, "--replay"]) == 2
    assert f"name it: --policy {file}:Mine" in capsys.readouterr().err
    assert main(["check", out, "--replay", "--policy", f"{file}:Mine"]) == 2
    assert "was changed since" in capsys.readouterr().err
    moved = tmp_path / "other.py"
    moved.write_text(MINE)
    assert main(["check", out, "--replay", "--policy", f"{moved}:Scheduler"]) == 2
    assert "name its class Mine" in capsys.readouterr().err
    assert main(["check", out, "--replay", "--policy", f"{moved}:Mine"]) == 0


def test_a_policy_that_broke_a_rule_breaks_it_again(trace: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    with pytest.raises(PolicyError):
        clustersim.run(trace, f"{file}:Mine", cluster="n2g8", params={"until_s": 30.0}, out=tmp_path / "run")
    assert texts(tmp_path / "run", policy=f"{file}:Mine") == ""
    stated(tmp_path / "run", params={"until_s": 1e9})
    assert "events.csv:" in texts(tmp_path / "run", policy=f"{file}:Mine")
    stated(tmp_path / "run", params={"until_s": 30.0}, status="complete", complete=True)
    assert "the policy breaks a rule: policy Mine at t=50 s" in texts(tmp_path / "run", policy=f"{file}:Mine")


@pytest.mark.parametrize(
    ("break_it", "text"),
    [
        (lambda folder, trace: trace.unlink(), "trace.csv: cannot be read: No such file"),
        (lambda folder, trace: write_trace(JOBS[:-1], trace), "is not the trace of the run any more"),
        (lambda folder, trace: stated(folder, status="interrupted", complete=False), "interrupted by a user"),
        (lambda folder, trace: stated(folder, policy_sha256=None), "it was given as a class; name it"),
        (lambda folder, trace: stated(folder, seed=-1), "setting seed=-1"),
        (lambda folder, trace: stated(folder, calendar=7), "calendar"),
        (lambda folder, trace: stated(folder, table="/dev/zero"), "cannot be read: is not a regular file"),
    ],
)
def test_what_is_missing_or_was_changed(
    break_it: Callable[[Path, Path], None], text: str, trace: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    clustersim.run(trace, "fifo", cluster="n2g8", out=tmp_path / "run")
    break_it(tmp_path / "run", trace)
    assert main(["check", str(tmp_path / "run"), "--replay"]) == 2
    assert text in capsys.readouterr().err


def test_another_version_that_gives_something_else(trace: Path, tmp_path: Path) -> None:
    """Equal files are a proof under another version, too."""
    clustersim.run(trace, "fifo", cluster="n2g8", out=tmp_path / "run")
    versions = {"clustersim": "0.0.1", "code": "0" * 64}
    stated(tmp_path / "run", versions=versions)
    assert texts(tmp_path / "run") == ""
    stated(tmp_path / "run", oracle_used=True)
    with pytest.raises(UserError, match=r"another version .* 0\.0\.1.*oracle_used is True.*with that"):
        replay(tmp_path / "run")


def with_digits(run: Run, share: float, numpy: str = "1.26.4") -> Run:
    """The run with the speeds of its planned job changed by a share."""
    events = [
        event._replace(unit_s=event.unit_s * (1 + share)) if event.job_id == "llm" else event
        for event in run.events
    ]
    versions = {**run.manifest["versions"], "numpy": numpy}
    return replace(run, events=events, manifest={**run.manifest, "versions": versions})


def made_elsewhere(trace: Path, folder: Path, share: float, numpy: str) -> Path:
    clustersim.run(trace, "fifo", cluster="n2g8", out=folder)
    rewritten(folder, lambda run: with_digits(run, share, numpy))
    return folder


def test_last_digits_may_depend_on_the_versions_of_libraries(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sound run that was made under another numpy is not accused."""
    folder = made_elsewhere(trace, tmp_path / "run", 1e-15, "1.26.4")
    finding = replay(folder)
    assert not finding.violations
    assert finding.unproved.startswith("the last digits of some numbers, which may depend on versions: made")
    assert f"numpy 1.26.4 (here {version('numpy')})" in finding.unproved
    assert main(["check", str(folder), "--replay"]) == 0
    assert "give this run, with numbers that agree to 1e-9" in capsys.readouterr().out


def test_another_run_under_other_libraries_is_neither_proved_nor_accused(trace: Path, tmp_path: Path) -> None:
    folder = made_elsewhere(trace, tmp_path / "run", 1e-6, "1.26.4")
    with pytest.raises(UserError, match=r"made under numpy 1\.26\.4 .*events, row \d+: unit_s is ") as caught:
        replay(folder)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("share", [1e-15, 1e-6])
def test_under_the_same_libraries_every_digit_counts(trace: Path, tmp_path: Path, share: float) -> None:
    assert "events.csv:" in texts(made_elsewhere(trace, tmp_path / "run", share, version("numpy")))


def test_the_versions_of_what_computes_numbers_are_stated(trace: Path) -> None:
    made = clustersim.run(trace, "fifo", cluster="n2g8")
    assert set(made.manifest["versions"]) == {"clustersim", "code", "python", "numpy", "scipy", "simpy"}
    assert other_libraries(made.manifest) == ""
    older = {**made.manifest["versions"], "scipy": "1.11.1"}
    assert other_libraries({"versions": older}) == f"scipy 1.11.1 (here {version('scipy')})"
    del older["scipy"]
    assert "scipy None (here" in other_libraries({"versions": older})
    assert "numpy None" in other_libraries({})


def test_what_the_rules_say_is_told_where_nothing_can_be_replayed(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("fine", "gone", "falsified"):
        clustersim.run(trace, "fifo", cluster="n2g8", out=tmp_path / "runs" / name)
    stated(tmp_path / "runs" / "gone", status="interrupted", complete=False)
    assert main(["check", str(tmp_path / "runs"), "--replay", "--json"]) == 2
    out, err = capsys.readouterr()
    assert [run["rules"][-1]["rule"] for run in json.loads(out)["runs"]] == ["replay", "replay", "summary"]
    assert err.count("error: ") == 1
    stated(tmp_path / "runs" / "falsified", overheads=None)
    trace.unlink()
    assert main(["check", str(tmp_path / "runs"), "--replay"]) == 4
    out, err = capsys.readouterr()
    assert "BROKEN  overheads" in out
    assert err.count("give --trace FILE") == 2
    monkeypatch.setattr(
        tempfile, "mkdtemp", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    write_trace(JOBS, trace)
    assert main(["check", str(tmp_path / "runs" / "fine"), "--replay"]) == 2
    assert "No space left on device; set TMPDIR" in capsys.readouterr().err


def test_a_manifest_changed_by_hand(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clustersim.run(trace, "fifo", cluster="n2g8", params={}, out=tmp_path / "run")
    path = tmp_path / "run" / "manifest.json"
    manifest = json.loads(path.read_text())
    assert manifest["manifest_sha256"] == manifest_hash(manifest)
    path.write_text(json.dumps({**manifest, "seed": 1}))
    assert main(["check", str(tmp_path / "run")]) == 4
    assert "manifest.json: is not what its manifest_sha256 was made of" in capsys.readouterr().out
    assert main(["report", str(tmp_path / "run")]) == 2


# Whatever a manifest says

HOSTILE: list[Any] = [
    None, True, -1, 7, 1e-9, 1e300, 10**400, "", "x", "\ud800", "a\0b", "/dev/zero", "3d", "x.py:Y",
    [], [[]], [1, 2], {}, {"a": 1}, {"n4g8": None},
]  # fmt: skip


def places(document: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to every value in a document."""
    inside = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in inside:
        yield (*at, key)
        if isinstance(value, dict | list):
            yield from places(value, (*at, key))


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose manifest has a value of every kind."""
    folder = tmp_path_factory.mktemp("mixed")
    write_trace(JOBS, folder / "trace.csv")
    (folder / "c.yaml").write_text(f"{CLUSTER}  - {{name: b, gpu_type: h100, nodes: 1}}\n")
    (folder / "t.csv").write_text("gpu_type,model,global_batch,gpus,iterations_per_s\na100,mine,8,1,2\n")
    settings: dict[str, Any] = {
        "cluster": str(folder / "c.yaml"), "table": str(folder / "t.csv"), "failures": {"mtbf_gpu_h": 1.0},
        "calendar": [{"at_s": 30, "maintenance": "0-1", "for_s": 10}], "quotas": {"blue": 8},
    }  # fmt: skip
    clustersim.run(folder / "trace.csv", "fifo", out=folder / "run", **settings)
    return folder / "run"


@settings(max_examples=examples(80), deadline=None)
@given(data=st.data())
def test_no_manifest_is_an_internal_error(mixed: Path, data: st.DataObject) -> None:
    path = mixed / "manifest.json"
    original = path.read_text()
    manifest = json.loads(original)
    *way, last = data.draw(st.sampled_from(list(places(manifest))))
    inner = manifest
    for key in way:
        inner = inner[key]
    inner[last] = data.draw(st.sampled_from(HOSTILE))
    manifest["manifest_sha256"] = manifest_hash(manifest)
    path.write_text(json.dumps(manifest))
    try:
        for judge in (check_run_folder, replay):
            with suppress(UserError):
                judge(mixed)
    finally:
        path.write_text(original)
