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
