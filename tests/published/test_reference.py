"""Every start and finish that two independent simulators compute for 1,000 jobs on 1,024 GPUs."""

import csv
import json
from pathlib import Path

import pytest

from clustersim.cli import main

POLICIES = ("fifo", "fifo-skip", "sjf", "srtf", "smallest", "srsf")
PUBLISHED = {  # mean JCT, makespan: ../shared/reference/README.md
    "fifo": (7975.386, 260973.0),
    "sjf": (7927.893, 260973.0),
    "srtf": (7792.866, 261501.0),
}
GPU_SECONDS = 83_830_848


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def runs(shared_reference: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    for policy in POLICIES:
        code = main(
            [
                "run", str(shared_reference / "syn1000.csv"), "--policy", policy, "--cluster", "n128g8",
                "--placement", "any", "--no-overheads", "--out", str(folder / policy),
            ]
        )  # fmt: skip
        assert code == 0
    return folder


@pytest.mark.parametrize("policy", POLICIES)
def test_every_start_and_finish(runs: Path, shared_reference: Path, policy: str) -> None:
    """And the GPU-seconds, which are the same under every policy; and the averages that are published."""
    expected, table = rows(shared_reference / f"syn1000.{policy}.csv"), rows(runs / policy / "jobs.csv")
    times, found = (
        {row["job_id"]: (float(row["start_s"]), float(row["finish_s"])) for row in some}
        for some in (expected, table)
    )
    assert len(times) == 1000
    assert {j: (found[j], times[j]) for j in times if found[j] != times[j]} == {}
    assert found.keys() == times.keys()
    assert sum(float(row["gpu_seconds"]) for row in table) == GPU_SECONDS
    assert {row["state"] for row in table} == {"finished"}
    if policy in PUBLISHED:
        summary = json.loads((runs / policy / "summary.json").read_text())
        assert (round(summary["jct_mean_s"], 3), summary["makespan_s"]) == PUBLISHED[policy]


def test_packing_changes_the_answer(shared_reference: Path, capfd: pytest.CaptureFixture[str]) -> None:
    trace = shared_reference / "syn1000.csv"
    assert (
        main(["run", str(trace), "--policy", "fifo", "--placement", "pack", "--no-overheads", "--json"]) == 0
    )
    assert round(json.loads(capfd.readouterr().out)["jct_mean_s"], 3) == 8000.610
