"""A grid on Slurm as docs/grids.md says, with a stub of sbatch that runs the job script on this machine."""

from __future__ import annotations

import os
import re
import signal
import stat
from contextlib import suppress
from pathlib import Path

import pytest

import clustersim
from clustersim.cli import main
from tests.places import ROOT

SBATCH = """#!/bin/sh
echo "$0 $@" >> "$STUB/calls"
cp "$1" "$STUB/script"
setsid sh "$STUB/script" > "$STUB/output" 2>&1 &
echo $! >> "$STUB/pids"
echo "Submitted batch job 42"
"""
SCANCEL = '#!/bin/sh\necho "$0 $@" >> "$STUB/calls"\n'
GRID = "set: {trace: t.csv, cluster: n1g8}\nmatrix: {policy: [fifo, srtf]}\nseeds: 2\n"


def documented() -> str:
    """The Python of the page, on one processor instead of sixteen."""
    page = (ROOT / "docs" / "grids.md").read_text()
    (example,) = re.findall(r"^```python\n(from dask_jobqueue.*?)^```$", page, re.DOTALL | re.MULTILINE)
    for large, small in (("cores=16", "cores=1"), ("processes=16", "processes=1"), ("jobs=4", "jobs=1")):
        assert large in example
        example = example.replace(large, small)
    return example.replace("64GB", "2GB")


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        (folder / name).write_text(text)
        (folder / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("STUB", str(tmp_path))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.long
def test_the_documented_way_onto_slurm(slurm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed")
    (slurm / "t.csv").write_text("job_id,submit_s,gpus,duration_s\na,0,8,60\nb,0,8,30\n")
    (slurm / "g.yaml").write_text(GRID)
    names: dict[str, object] = {}
    try:
        exec(compile(documented(), "docs/grids.md", "exec"), names)
        address = capsys.readouterr().out.split()[-1]
        assert main(["grid", "g.yaml", "--scheduler", address]) == 0, capsys.readouterr().err
        assert main(["grid", "g.yaml", "--out", "here"]) == 0
    finally:
        if "cluster" in names:
            names["cluster"].close()  # type: ignore[attr-defined]
        for pid in (slurm / "pids").read_text().split():
            with suppress(ProcessLookupError):  # it has ended with its scheduler
                os.killpg(int(pid), signal.SIGKILL)
    assert (slurm / "calls").read_text().count("sbatch") == 1
    script = (slurm / "script").read_text()
    assert "#SBATCH -p normal" in script
    assert "#SBATCH -t 04:00:00" in script
    assert [r.status for r in clustersim.read_results("g")] == ["done"] * 4
    assert (slurm / "g" / "results.csv").read_bytes() == (slurm / "here" / "results.csv").read_bytes()
