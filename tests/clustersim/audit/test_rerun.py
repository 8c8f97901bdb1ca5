"""`clustersim check --replay`: the same run again, byte for byte, or the differences."""

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
from tests.tables import TEXTS, table_rows
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
MINE = TEXTS["a policy with a helper"]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    write_trace(JOBS, tmp_path / "trace.csv")
    return tmp_path / "trace.csv"


@pytest.fixture
def made(trace: Path, tmp_path: Path) -> Path:
    """A sound run."""
    clustersim.run(trace, "fifo", cluster="n2g8", out=tmp_path / "run")
    return tmp_path / "run"


def texts(folder: Path, **options: Any) -> str:
    return "; ".join(violation.text for violation in replay(folder, **options).violations)


def test_the_command(trace: Path, tmp_path: Path, check: Any) -> None:
    out = tmp_path / "out"
    options = ["--cluster", "n2g8", "--policies", "fifo,srtf", "--out", str(out)]
    assert main(["compare", str(trace), *options, "--workers", "1"]) == 0
    code, printed, _ = check(out, "--replay")
    lines = printed.splitlines()
    assert code == 0
    assert [line.split()[:2] for line in lines if "replay" in line] == [["ok", "replay"]] * 2
    assert sum(line.startswith("  Proved: the whole folder;") for line in lines) == 2
    assert check(out, "--policy", "fifo")[0] == 2
    for option, proved in (("--replay", True), ("--json", False)):
        code, printed, _ = check(out / "fifo", option, "--json")
        (document,) = json.loads(printed)["runs"]
        assert (code, document["decisions_proved"]) == (0, proved)
        assert document["rules"][-1]["ok"]
        assert (document["rules"][-1]["rule"] == "replay") == proved


def test_a_recipe_whose_rules_were_changed(tmp_path: Path, check: Any) -> None:
    rules, out = tmp_path / "rules.yaml", tmp_path / "run"
    text = rules_path("llm-mix").read_text()
    rules.write_text(text)
    clustersim.run(
        Trace.generated(Recipe(jobs=12, gpus=64, rules=str(rules))), "fifo", cluster="n8g8", out=out
    )
    assert check(out, "--replay")[0] == 0
    rules.write_text(text.replace("gpt3-1.3b", "llama2-7b"))
    code, printed, error = check(out, "--replay")
    assert (code, "BROKEN" in printed) == (2, False)
    assert "the files that its recipe names were changed since the run" in error
    rules.unlink()
    assert check(out)[0] == 0


# What is not the same


def stated(folder: Path, **fields: Any) -> None:
    """Write a falsified manifest, with correct hashes."""
    run = read_run(folder)
    write_run(folder, replace(run, manifest={**run.manifest, **fields}))


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run in which nodes fail."""
    folder = tmp_path_factory.mktemp("failing")
    write_trace(JOBS, folder / "trace.csv")
    return clustersim.run(folder / "trace.csv", "fifo", cluster="n4g8", failures={"mtbf_gpu_h": 0.5})


@pytest.mark.parametrize(("fields", "text"), table_rows("settings that the run did not have"))
def test_settings_that_the_run_did_not_have(
    fields: dict[str, Any], text: str, failing: Run, tmp_path: Path
) -> None:
    write_run(tmp_path, replace(failing, manifest={**failing.manifest, **fields}))
    if text == "unknown parameter":
        with pytest.raises(UserError, match="parameter of policy fifo"):
            replay(tmp_path)
        return
    assert text in texts(tmp_path)


def test_a_decision_that_the_policy_did_not_take(trace: Path, tmp_path: Path, check: Any) -> None:
    """Job c was admitted; the log says that the policy declined it. No other rule can know."""
    run = clustersim.run(trace, "elasticflow", cluster="n2g8", out=tmp_path / "run")
    times = dict.fromkeys(("start_s", "finish_s", "jct_s", "queue_s"))
    amounts = dict.fromkeys(("wait_s", "gpu_seconds", "overhead_gpu_s", "lost_s"), 0.0)
    declined = {"state": "rejected", "reason": "declined by the policy", **times, **amounts}
    jobs = [replace(job, **declined) if job.job_id == "c" else job for job in run.jobs]
    write_run(tmp_path / "run", replace(run, jobs=jobs))
    assert "jobs.csv:5: c,default,,rejected" in texts(tmp_path / "run")
    code, printed, _ = check(tmp_path / "run", "--replay")
    assert code == 4
    assert "Proved: the other rules." in printed


# Where a run cannot be made again


def test_a_policy_from_a_file_is_not_run_unasked(trace: Path, tmp_path: Path, check: Any) -> None:
    file, moved, out = tmp_path / "mine.py", tmp_path / "other.py", tmp_path / "run"
    for path in (file, moved):
        path.write_text(MINE)
    clustersim.run(trace, f"{file}:Mine", cluster="n2g8", out=out)
    file.write_text(f"raise SystemExit('run unasked')\n{MINE}")
    for options, text in (
        ((), f"name it: --policy {file}:Mine"),
        (("--policy", f"{file}:Mine"), "was changed since"),
        (("--policy", f"{moved}:Scheduler"), "name its class Mine"),
    ):
        code, _, error = check(out, "--replay", *options)
        assert code == 2
        assert text in error
    assert check(out, "--replay", "--policy", f"{moved}:Mine")[0] == 0


def test_a_policy_that_broke_a_rule_breaks_it_again(trace: Path, tmp_path: Path) -> None:
    file, out = tmp_path / "mine.py", tmp_path / "run"
    file.write_text(MINE)
    policy = f"{file}:Mine"
    with pytest.raises(PolicyError):
        clustersim.run(trace, policy, cluster="n2g8", params={"until_s": 30.0}, out=out)
    assert texts(out, policy=policy) == ""
    stated(out, params={"until_s": 1e9})
    assert "events.csv:" in texts(out, policy=policy)
    stated(out, params={"until_s": 30.0}, status="complete", complete=True)
    assert "the policy breaks a rule: policy Mine at t=50 s" in texts(out, policy=policy)


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
    break_it: Callable[[Path, Path], None], text: str, trace: Path, made: Path, check: Any
) -> None:
    break_it(made, trace)
    code, _, error = check(made, "--replay")
    assert code == 2
    assert text in error


def test_another_version_that_gives_something_else(made: Path) -> None:
    """Equal files are a proof under another version, too."""
    stated(made, versions={"clustersim": "0.0.1", "code": "0" * 64})
    assert texts(made) == ""
    stated(made, oracle_used=True)
    with pytest.raises(UserError, match=r"another version .* 0\.0\.1.*oracle_used is True.*with that"):
        replay(made)


def with_digits(folder: Path, share: float, numpy: str) -> Path:
    """The run with the speeds of its planned job changed by a share, as if made under another numpy."""
    run = read_run(folder)
    events = [
        event._replace(unit_s=event.unit_s * (1 + share)) if event.job_id == "llm" else event
        for event in run.events
    ]
    versions = {**run.manifest["versions"], "numpy": numpy}
    write_run(folder, replace(run, events=events, manifest={**run.manifest, "versions": versions}))
    return folder


def test_last_digits_may_depend_on_the_versions_of_libraries(made: Path, check: Any) -> None:
    """A sound run that was made under another numpy is not accused."""
    folder = with_digits(made, 1e-15, "1.26.4")
    finding = replay(folder)
    assert not finding.violations
    assert finding.unproved.startswith("the last digits of some numbers, which may depend on versions: made")
    assert f"numpy 1.26.4 (here {version('numpy')})" in finding.unproved
    code, printed, _ = check(folder, "--replay")
    assert code == 0
    assert "give this run, with numbers that agree to 1e-9" in printed


def test_another_run_under_other_libraries_is_neither_proved_nor_accused(made: Path) -> None:
    folder = with_digits(made, 1e-6, "1.26.4")
    with pytest.raises(UserError, match=r"made under numpy 1\.26\.4 .*events, row \d+: unit_s is ") as caught:
        replay(folder)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("share", [1e-15, 1e-6])
def test_under_the_same_libraries_every_digit_counts(made: Path, share: float) -> None:
    assert "events.csv:" in texts(with_digits(made, share, version("numpy")))


def test_the_versions_of_what_computes_numbers_are_stated(made: Path) -> None:
    versions = read_run(made).manifest["versions"]
    assert set(versions) == {"clustersim", "code", "python", "numpy", "scipy", "simpy"}
    assert other_libraries({"versions": versions}) == ""
    older = {**versions, "scipy": "1.11.1"}
    assert other_libraries({"versions": older}) == f"scipy 1.11.1 (here {version('scipy')})"
    del older["scipy"]
    assert "scipy None (here" in other_libraries({"versions": older})
    assert "numpy None" in other_libraries({})


def test_what_the_rules_say_is_told_where_nothing_can_be_replayed(
    trace: Path, tmp_path: Path, check: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = tmp_path / "runs"
    for name in ("fine", "gone", "falsified"):
        clustersim.run(trace, "fifo", cluster="n2g8", out=runs / name)
    stated(runs / "gone", status="interrupted", complete=False)
    code, out, err = check(runs, "--replay", "--json")
    assert [run["rules"][-1]["rule"] for run in json.loads(out)["runs"]] == ["replay", "replay", "summary"]
    assert (code, err.count("error: ")) == (2, 1)
    stated(runs / "falsified", overheads=None)
    trace.unlink()
    code, out, err = check(runs, "--replay")
    assert "BROKEN  overheads" in out
    assert (code, err.count("give --trace FILE")) == (4, 2)
    full = OSError(28, "No space left on device")
    monkeypatch.setattr(tempfile, "mkdtemp", lambda *_: (_ for _ in ()).throw(full))
    write_trace(JOBS, trace)
    code, _, err = check(runs / "fine", "--replay")
    assert code == 2
    assert "No space left on device; set TMPDIR" in err


def test_a_manifest_changed_by_hand(made: Path, check: Any) -> None:
    manifest = json.loads((made / "manifest.json").read_text())
    assert manifest["manifest_sha256"] == manifest_hash(manifest)
    (made / "manifest.json").write_text(json.dumps({**manifest, "seed": 1}))
    code, out, _ = check(made)
    assert code == 4
    assert "manifest.json: is not what its manifest_sha256 was made of" in out
    assert main(["report", str(made)]) == 2


# Whatever a manifest says

HOSTILE: list[Any] = [
    None, True, -1, 7, 1e-9, 1e300, 10**400, "", "x", "\ud800", "a\0b", "/dev/zero", "vtrain", "x.py:Y",
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
