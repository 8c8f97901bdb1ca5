"""The figures of docs/backtest.md and HELIOS.md: Muri's testbed, as its command prints them; and Helios'
vcvGl, whose backtest is refused.
"""

import json
import shlex
from pathlib import Path

import pytest

from clustersim.backtest import read_logged
from clustersim.cli import main
from experiments.helios_study import POLICIES, PUBLISHED, demand, simulated
from experiments.helios_waits import followed, table
from itertime.errors import TableError
from tests.effort import first
from tests.places import ROOT
from traces import Job
from traces.logs import import_log

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


# Helios


def test_followed_by_hand() -> None:
    jobs = [
        Job("a", 0.0, user="u", gpus=1, duration_s=400.0),
        Job("b", 430.0, user="u", gpus=1, duration_s=400.0),
        Job("c", 800.0, user="u", gpus=1, duration_s=10.0),
        Job("d", 420.0, user="v", gpus=1, duration_s=10.0),
    ]
    assert followed(jobs, {"a": 400.0, "b": 830.0, "c": 810.0, "d": 430.0}) == (1, 1)


def test_the_table_of_the_page(shared_dir: Path) -> None:
    path = shared_dir / "data" / "clusters" / "helios" / "venus_vcvGl_sept.csv"
    if not path.exists():
        pytest.skip(f"no log at {path}")
    with pytest.raises(TableError, match="states no start of any job"):
        read_logged(path)
    page = (ROOT / "docs" / "backtest.md").read_text()
    for name, mean, p90, before, after in table(str(path)):
        assert f"| {name} | {mean:,.0f} | {p90:,.0f} | {before} | {after} |" in page


def test_the_study_of_policies(shared_dir: Path) -> None:
    path = shared_dir / "data" / "clusters" / "helios" / "venus_vcvGl_sept.csv"
    if not path.exists():
        pytest.skip(f"no log at {path}")
    page = (ROOT / "experiments" / "HELIOS.md").read_text()
    jobs, _ = import_log(path)
    found = {policy: simulated(jobs, policy, "n20g8") for policy in POLICIES}
    for policy, one in found.items():
        waits = f"{one.wait_s:,.0f} | {one.wait_p90_s:,.0f} | {one.waiting}"
        assert f"| {policy} | {one.jct_s:,.0f} | {found['fifo'].jct_s / one.jct_s:.2f} | {waits} |" in page
    for cluster, (jct_s, ratio) in PUBLISHED.items():
        assert f"| {cluster} | {jct_s:,.0f} | {ratio:.2f} |" in page
    held = demand(jobs, 160)
    assert f"{100 * held.share_above:.1f} % of the time" in page
    assert f"at most {held.peak}, and {held.gpu_h_above:,.0f} GPU-hours" in page


def test_demand_by_hand() -> None:
    jobs = [Job("a", 0.0, gpus=2, duration_s=7200.0), Job("b", 3600.0, gpus=3, duration_s=60.0)]
    jobs.append(Job("c", 7200.0, gpus=1, duration_s=3600.0))
    held = demand(jobs, 4)
    assert (held.peak, held.gpu_h_above) == (5, pytest.approx(60 / 3600))
    assert held.share_above == pytest.approx(60 / 7200)
    assert held.load == pytest.approx((2 * 7200 + 3 * 60 + 3600) / 4 / 7200)
