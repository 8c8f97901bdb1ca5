"""The default install: what works in a process that has none of the libraries of the extras."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import clustersim
from itertime.errors import UserError
from itertime.io import has_parquet
from tests.places import ROOT
from tests.printed import Call
from traces import write_trace

EXTRAS = ("pyarrow", "matplotlib", "distributed", "gymnasium", "starlette", "uvicorn", "torch")
MAIN = """
import json, sys

sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))  # None: an import of the module fails
from clustersim.cli import main

print("codes", [main(words) for words in json.loads(sys.argv[2])])
"""
TRACE = "job_id,submit_s,gpus,duration_s,tenant\n" + "".join(
    f"j{i},{60 * i},{4 + 4 * (i % 3)},900,{'ab'[i % 2]}\n" for i in range(12)
)
MODELS = "job_id,submit_s,model,global_batch,iterations,gpus\na,0,llama2-7b,512,20,8\nb,9,gpt3-1.3b,64,90,4\n"
RUNS = [
    "compare models.csv --policies fifo,srtf --cluster n2g8 --workers 1 --out both",
    "compare t.csv --policies fifo,srtf --cluster n2g8 --vary nodes=2,3 --workers 1 --out g",
]
REFUSED = [
    "run t.csv --policy fifo --cluster n2g8 --out columns --parquet",
    "trace check t.parquet",
    "plot both --kind gantt -o gantt.pdf",
]


def test_the_default_install_has_the_results_of_a_full_one(here: Path, call: Call) -> None:
    """Tables and summaries are the same bytes; only Parquet and figures are missing, and say so."""
    (here / "t.csv").write_text(TRACE)
    (here / "models.csv").write_text(MODELS)
    (here / "t.parquet").write_bytes(b"PAR1")
    command = [
        sys.executable,
        "-c",
        MAIN,
        ",".join(EXTRAS),
        json.dumps([words.split() for words in (*RUNS, *REFUSED)]),
    ]
    tree = {**os.environ, "PYTHONPATH": str(ROOT)}  # cells are named by a hash of the code
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=tree)
    assert "codes [0, 0, 2, 2, 2]" in done.stdout
    for path in ("columns/jobs.parquet", "t.parquet"):
        assert f"{path}: Parquet needs pyarrow, which is not installed; install the extra: pip" in done.stderr
    assert "plots need matplotlib" in done.stderr
    light = tables(here)
    assert len(light) == 2 * 5 + 2
    assert {path.parent.name for path in here.glob("*/report.html")} == {"both", "g"}
    for folder in ("both", "g"):
        Path(folder).rename(f"light-{folder}")
    assert [call(*words.split()).code for words in RUNS] == [0, 0]
    assert tables(here) == light


def tables(folder: Path) -> dict[str, bytes]:
    """The tables and summaries of the runs and of the grid, without those that hold wall times."""
    paths = [*folder.glob("both/*/*.csv"), *folder.glob("both/*/summary.json")]
    paths += [folder / "g" / "results.csv", folder / "g" / "comparison.csv"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_frames_are_equal_whether_or_not_pandas_keeps_text_in_arrow(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    columns = {"job_id": ["a", "ü"], "submit_s": [0.0, 5.0], "gpus": [4, 8], "duration_s": [60.0, 30.0]}
    frames, runs = {}, {}
    for storage in ("pyarrow", "python"):
        with pd.option_context("mode.string_storage", storage):
            run = clustersim.run(pd.DataFrame(columns), "fifo", cluster="n1g8")
            frames[storage], runs[storage] = run.to_pandas().to_json(), run.jobs
    assert frames["pyarrow"] == frames["python"]
    assert runs["pyarrow"] == runs["python"]
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert not has_parquet()
    with pytest.raises(UserError, match=r"pip install 'clustersim\[parquet\]'"):
        write_trace([], tmp_path / "t.parquet")
    assert not [*tmp_path.iterdir()]
