from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from clustersim.cli import main
from clustersim.commands.trace import app
from itertime.commandline import run_app
from tests.places import ROOT

pytestmark = pytest.mark.usefixtures("wide_terminal")

LOG = "job_id,submission_time,duration,num_gpu\n" + "".join(
    f"job-{i},{500 + 7 * i},{600 + 97 * i},{2 ** (i % 7)}\n" for i in range(40)
)
BAD = "job_id,submit_s,gpus,duration_s\na,0,1,5\nb,0,0,5\n"


def trace(*arguments: object) -> int:
    return run_app(app, "clustersim trace", [str(argument) for argument in arguments])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    return path


def test_import_writes_the_trace_and_its_report(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = log.parent / "out.csv.gz"
    assert trace("import", log, "-o", output, "--limit", 30, "--rules", "llm-mix") == 0
    said = capsys.readouterr()
    assert "30 jobs of 40 rows" in said.out
    assert "10 outside the selection" in said.err
    report = json.loads((log.parent / "out.import.json").read_text())
    assert report["input"]["sha256"] == hashlib.sha256(log.read_bytes()).hexdigest()
    assert report["output"] == {"file": output.name, "sha256": _digest(output), "jobs": 30}
    assert (report["seed"], report["planner"], report["system"]) == (0, "3d", "dgx-a100-80gb")
    assert str(log.parent) not in json.dumps(report)
    assert sorted(os.listdir(log.parent)) == ["log.csv", "out.csv.gz", "out.import.json"]


def test_import_keeps_jobs_as_logged_and_says_what_they_ask_for(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trace("import", log, "-o", log.parent / "out.csv") == 0
    said = capsys.readouterr()
    hours = sum(2 ** (i % 7) * (600 + 97 * i) for i in range(40)) / 3600
    gpus = hours * 3600 / (7 * 39)
    assert said.out.splitlines() == [
        f"{log.parent / 'out.csv'}: 40 jobs of 40 rows (itp)",
        f"{hours:,.2f} GPU-hours submitted over 273 s: {gpus:,.1f} GPUs on average, "
        f"so {round(gpus):,} GPUs have load 1",
    ]
    assert "times: submission_time, duration in s (the unit of ITP's logs)" in said.err
    report = json.loads((log.parent / "out.import.json").read_text())
    assert report["rules"] == {"name": "none"}
    assert (log.parent / "out.csv").read_text().splitlines()[0] == "job_id,submit_s,gpus,duration_s"


def test_import_says_when_one_job_is_the_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.csv"
    log.write_text("job_id,submission_time,duration,num_gpu\na,0,9000,8\nb,7200,60,1\nc,9000,60,1\n")
    assert trace("import", log, "-o", tmp_path / "out.csv") == 0
    said = capsys.readouterr()
    assert " submitted over 2.5 hours: 8.0 GPUs on average" in said.out
    assert "note: one job is 100% of the work: the load says little about queueing" in said.err


def test_import_warns_of_a_unit_that_nothing_states_and_counts_drops_by_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.csv"
    log.write_text("at;n;took\n0;1;60\n60;0;60\n90;0;60\n95;1;0\n99;1;\n")
    columns = "submit_s=at,gpus=n,duration_s=took"
    assert trace("import", log, "-o", tmp_path / "out.csv", "--columns", columns) == 0
    said = capsys.readouterr().err
    assert "warning: at, took: nothing in the log states the unit, read as s; if it is another one" in said
    assert "dropped 4 rows (2 x n: must be at least 1; 1 x took: must be greater than 0" in said
    assert "; first on line 3: n=0: must be at least 1); 0 outside the selection" in said
    stated = ["--columns", columns, "--time-unit", "min"]
    assert trace("import", log, "-o", tmp_path / "out.csv", *stated) == 0
    assert "warning" not in capsys.readouterr().err
    assert "\n2,0,1,3600\n" in (tmp_path / "out.csv").read_text()


def test_check_summarises_as_text_and_json(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = log.parent / "out.parquet"
    assert trace("import", log, "-o", output, "--rules", "llm-mix", "--planner", "data-parallel") == 0
    capsys.readouterr()
    assert trace("check", output) == 0
    text = capsys.readouterr().out
    assert re.search(r"\noffered load [0-9.]+ on 1,024 GPUs under planner 3d: ", text)
    assert "megatron-18.4b" in text
    assert trace("check", output, "--cluster", "n4g8", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["jobs"], summary["cluster_gpus"], summary["kinds"]) == (40, 32, {"iterations": 40})
    demand = summary["demand"]
    assert summary["load"] == pytest.approx(demand["gpu_seconds"] / demand["span_s"] / 32)
    assert summary["larger_than_cluster"] == sum(n for gpus, n in summary["gpus"].items() if int(gpus) > 32)
    assert summary["refused"]["jobs"] == summary["larger_than_cluster"] == 40 - demand["jobs"]
    assert re.fullmatch(r"job job-\d+: asks for \d+ GPUs, the cluster has 32", summary["refused"]["first"])
    assert sum(summary["models"].values()) == summary["deadlines"]["jobs"] == 40


def test_jobs_submitted_closer_together_than_tables_resolve_have_no_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "burst.csv"
    path.write_text("job_id,submit_s,gpus,duration_s\na,0,1,10\nb,1e-320,1,10\n")
    assert trace("check", path, "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["load"], summary["demand"]["mean_gpus"]) == (None, None)


def test_check_of_a_bad_trace_names_the_line_and_exits_with_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(BAD)
    for options in ([], ["--json"]):
        assert trace("check", path, *options) == 3
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err == f"error: {path}:3: gpus=0: must be at least 1\n"


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("a,0,8,60,,,", "0.133 GPU-hours requested, all at one time\n"),
        ("a,0,8,60,,,\nb,30,8,60,,,", "1.000 on 32 GPUs: 0.267 GPU-hours requested within 30 s"),
        ("a,0,64,60,,,", "offered load: none, as no job can run\n"),
        ("a,0,64,60,,,", "cannot run on 32 GPUs, and do not count above: 1; the first: job a: asks for 64"),
        ("a,0,,,gpt3-13b,64,9", " GPU-hours requested under planner 3d, all at one time\n"),
        ("a,0,1,60,gpt3-13b,64,9", " GPU-hours requested under planner 3d, all at one time\n"),
    ],
)  # fmt: skip
def test_check_shows_what_the_jobs_request(
    tmp_path: Path, row: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(f"job_id,submit_s,gpus,duration_s,model,global_batch,iterations\n{row}\n")
    assert trace("check", path, "--cluster", "n4g8") == 0
    assert says in capsys.readouterr().out


def test_generate_writes_trace_and_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "made.csv"
    assert (
        trace("generate", "-o", output, "--jobs", 50, "--load", 0.5, "--arrivals", "bursty", "--seed", 3) == 0
    )
    said = capsys.readouterr()
    assert "50 jobs; offered load 0.500 on 1,024 GPUs under planner 3d: " in said.out
    assert "note: the longest job runs " in said.err
    recipe = json.loads((tmp_path / "made.generate.json").read_text())["recipe"]
    assert (recipe["jobs"], recipe["load"], recipe["arrivals"], recipe["seed"]) == (50, 0.5, "bursty", 3)
    assert trace("check", output) == 0
    assert "offered load 0.500 on 1,024 GPUs under planner 3d: " in capsys.readouterr().out
    assert trace("check", output, "--planner", "data-parallel", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["planner"] == "data-parallel"
    assert summary["load"] > 0.6


def test_a_throughput_table_lets_a_trace_name_its_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "speeds").mkdir()
    (tmp_path / "speeds" / "vgg16.csv").write_text("global_batch_size,1,2\n64,5,0\n")
    (tmp_path / "trace.csv").write_text("job_id,submit_s,model,global_batch,iterations\na,0,vgg16,64,5\n")
    table = tmp_path / "table.csv"
    assert trace("import-table", tmp_path / "speeds", "-o", table) == 0
    said = capsys.readouterr()
    assert "1 speeds of 1 models" in said.out
    assert "1 cells state no speed" in said.err
    assert json.loads((tmp_path / "table.import.json").read_text())["counts"]["cells_without_speed"] == 1
    assert trace("check", tmp_path / "trace.csv") == 3
    assert trace("check", tmp_path / "trace.csv", "--table", table) == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["import", "log.csv", "-o", "out.xlsx"], 2, "unknown kind of trace file"),
        (["import", "log.csv", "-o", "log.csv"], 2, "is the log itself"),
        (["import", "log.csv", "-o", "missing/out.csv"], 2, "cannot be written"),
        (["import", "absent.csv", "-o", "out.csv"], 2, "cannot be read"),
        (["import", "log.csv", "-o", "out.csv", "--limit", "0"], 2, "--limit 0: must be at least 1"),
        (
            ["import", "log.csv", "-o", "out.csv", "--from-s", "9", "--until-s", "5"],
            2,
            "--from-s 9, --until-s 5",
        ),
        (["import", "log.csv", "-o", "out.csv", "--time-unit", "weeks"], 2, "unknown unit in --time-unit"),
        (["import", "log.csv", "-o", "out.csv", "--tenant", "team"], 3, "unknown column 'team'"),
        (["import", "log.csv", "-o", "out.csv", "--format", "lsf"], 2, "unknown log format 'lsf'"),
        (["import", "log.csv", "-o", "out.csv", "--format", "elasticflow"], 3, "not an ElasticFlow trace"),
        (["import", "bad.csv", "-o", "out.csv"], 3, "no known log format"),
        (["import", "log.csv", "-o", "out.csv", "--rules", "bad.yaml"], 2, "bad.yaml"),
        (["generate", "-o", "out.csv", "--load", "-1"], 2, "load=-1: must be above 0"),
        (["generate", "-o", "out.csv", "--seed", "-1"], 2, "--seed"),
        (["generate"], 2, "output"),
        (["check", "absent.csv"], 2, "cannot be read"),
        (["check", "log.csv"], 3, "clustersim trace import"),
        (["check", "log.csv", "--cluster", "big"], 2, "not a shape"),
        (["check", "log.csv", "--table", "bad.csv"], 3, "missing column"),
        (["import-table", ".", "-o", "out.csv"], 3, "the first column must be global_batch_size"),
    ],
)
def test_mistakes_exit_with_their_code_one_message_and_no_output(
    log: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(log.parent)
    (log.parent / "bad.csv").write_text(BAD)
    (log.parent / "bad.yaml").write_text("sizes: 3\n")
    before = sorted(os.listdir())
    assert trace(*arguments) == code
    said = capsys.readouterr()
    assert message in said.err
    assert "Traceback" not in said.err
    assert said.out == ""
    assert sorted(os.listdir()) == before
    assert log.read_text() == LOG


def test_output_does_not_depend_on_the_hash_seed(log: Path) -> None:
    program = (
        "import sys; from clustersim.commands.trace import app; from itertime.commandline import run_app\n"
    )
    program += "for line in sys.argv[1:]: assert run_app(app, 'trace', line.split('|')) == 0"
    importing = ["import", str(log), "-o", "log.csv", "--rules", "llm-mix"]
    generating = ["generate", "-o", "made.csv", "--jobs", "60"]
    found = []
    for hash_seed in ("1", "2"):
        folder = log.parent / hash_seed
        folder.mkdir()
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", program, "|".join(importing), "|".join(generating)]
        subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
        found.append({path.name: _digest(path) for path in sorted(folder.iterdir())})
    assert len(found[0]) == 4
    assert found[0] == found[1]


def test_help_imports_nothing_slow() -> None:
    program = "import sys, clustersim.commands.trace; print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True
    )
    loaded = done.stdout.split()
    for slow in ("numpy", "pandas", "scipy", "pyarrow", "pydantic", "yaml"):
        assert slow not in loaded


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_rules_that_name_a_model_of_the_user_are_imported_and_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("models").mkdir()
    Path("models/own.yaml").write_text("extends: gpt3-1.3b\nlayers: 30\n")
    choices = "[{model: own, global_batch: 64}]"
    Path("rules.yaml").write_text(f"source: x\nsizes:\n  - {{gpus: [1, 8], choices: {choices}}}\n")
    Path("log.csv").write_text("job,gpus,at,took\n1,8,0,60\n")
    log = ["trace", "import", "log.csv", "--columns", "job_id=job,gpus=gpus,submit_s=at,duration_s=took"]
    assert main([*log, "--rules", "rules.yaml", "-o", "jobs.csv"]) == 2
    assert "choices.0.model: unknown model 'own'" in capsys.readouterr().err
    assert main([*log, "--rules", "rules.yaml", "-o", "jobs.csv", "--model-path", "models"]) == 0
    assert '"models/own.yaml"' in Path("jobs.import.json").read_text()
    capsys.readouterr()
    run = ["run", "jobs.csv", "--policy", "fifo", "--cluster", "n1g8", "--model-path", "models", "--json"]
    assert main([*run, "--no-overheads"]) == 0
    assert json.loads(capsys.readouterr().out)["jct_mean_s"] == pytest.approx(60.0)
