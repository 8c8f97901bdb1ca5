"""The figures of docs/backtest.md: Muri's testbed, as its command prints them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from clustersim.cli import main
from tests.effort import first
from tests.places import ROOT

PAGE = (ROOT / "docs" / "backtest.md").read_text(encoding="utf-8")
COMMAND = next(line.strip() for line in PAGE.splitlines() if "muri_testbed/SRSF" in line)


@pytest.mark.parametrize("policy", first(1, ["SRSF", "SRTF"]))
def test_the_policy_of_a_testbed_is_found(
    policy: str, shared_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first half of the jobs tells the policy; mean wait and JCT of the second are within 5 %."""
    log = shared_dir / "data" / "clusters" / "muri_testbed" / f"{policy}.job.csv.gz"
    if not log.exists():
        pytest.skip(f"no log at {log}")
    arguments = shlex.split(COMMAND.replace("clustersim ", ""))
    arguments[1] = str(log)
    assert main([*arguments, "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out.splitlines()
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["site"]["policy"] == policy.lower()
    judged = summary["parts"]["judged"]
    for what in ("wait", "jct"):
        logged, simulated = judged[what]["logged"], judged[what]["simulated"]
        assert simulated["mean_s"] == pytest.approx(logged["mean_s"], rel=0.05)
    assert judged["jct"]["spearman"] == pytest.approx(0.994, abs=0.0006)
    if policy == "SRSF":
        table = PAGE.partition(COMMAND)[2].split("```text\n")[1].split("```")[0].splitlines()
        assert [line.rstrip() for line in shown if line.rstrip() in table] == table
