"""The rules `outages` and `manifest` of `clustersim check`: the log agrees with the manifest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from clustersim.audit.folder import check_run
from clustersim.cli import main
from clustersim.rundir import write_run
from clustersim.runs import run
from tests.folders import rehashed
from traces.job import Job

pytestmark = pytest.mark.usefixtures("wide_terminal")

JOBS = [Job(f"{i}", 7.3 + 40.0 * i, gpus=4, duration_s=400.0 + i) for i in range(20)]
FAILURES = {"mtbf_gpu_h": 0.7, "spare_nodes": 1, "repair_scale": 0.01}
CALENDAR = [
    {"at_s": 30, "maintenance": "0-1", "for_s": 100},
    {"at_s": 500, "remove": "3"},
    {"at_s": 60, "add": "2"},
]


def test_outages_of_another_version() -> None:
    made = run(JOBS, "fifo-skip", cluster="n4g8", failures=FAILURES, calendar=CALENDAR, seed=4)
    stated = {"seed": 5, "versions": {"clustersim": "9.9", "code": "0" * 64}}
    findings = check_run(replace(made, manifest={**made.manifest, **stated}))
    finding = next(finding for finding in findings if finding.rule == "outages")
    assert (finding.violations, "another version" in finding.unproved) == ((), True)


def test_another_format_is_not_read_as_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = run([Job("a", 0.0, gpus=4, duration_s=60.0)], "fifo", cluster="n1g8")
    write_run(tmp_path / "run", made)
    rehashed(tmp_path / "run", format="clustersim-run-2")
    for command in (["check"], ["explain", "--job", "a"]):
        assert main([command[0], str(tmp_path / "run"), *command[1:]]) == 2
        said = capsys.readouterr().err
        assert "manifest.json: format='clustersim-run-2': this program reads clustersim-run-1" in said
        assert "run the simulation again, or use the version that made it" in said
