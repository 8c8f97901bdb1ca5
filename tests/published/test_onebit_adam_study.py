"""The study of 1-bit Adam: its limits on measured throughputs, its arithmetic, and that its page is fresh."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.onebit_adam import (
    ETHERNET,
    INFINIBAND,
    PRETRAINING,
    SQUAD,
    Row,
    assumptions_md,
    bandwidth_md,
    gain,
    main,
    mape,
    measured_md,
    published_md,
    read_rows,
    whole_run,
)
from itertime import load_system
from tests.places import ROOT

PAGE = ROOT / "experiments" / "ONEBIT_ADAM.md"
RENEW = (
    "python -m experiments.onebit_adam --data ../shared/data/mlperf --out experiments/onebit_adam, "
    "and copy its four .md files to ONEBIT_ADAM.md"
)


@pytest.fixture(scope="module")
def rows(shared_dir: Path) -> list[Row]:
    return read_rows(shared_dir / "data" / "mlperf")


def _section(name: str) -> str:
    return PAGE.read_text().split(f"<!-- {name} -->")[1].split("<!-- end -->")[0].strip()


def test_measured_throughputs_are_met_within_15_percent(rows: list[Row]) -> None:
    assert len(rows) == 40
    assert mape(rows) <= 0.15
    for method in ("Adam", "1-bit Adam"):
        assert mape(row for row in rows if row.method == method) <= 0.15


def test_the_method_wins_where_it_was_measured_to(rows: list[Row]) -> None:
    """Between nodes 1-bit Adam is faster in every pair of rows, measured and predicted."""
    pairs = 0
    for adam in rows:
        for other in rows:
            same = (adam.task, adam.system, adam.gpus) == (other.task, other.system, other.gpus)
            if same and adam.gpus > 4 and (adam.method, other.method) == ("Adam", "1-bit Adam"):
                pairs += 1
                assert other.measured > adam.measured
                assert other.predicted() > adam.predicted()
    assert pairs == 11


def test_rows_know_their_task_and_cluster(rows: list[Row]) -> None:
    assert {row.task for row in rows} == {PRETRAINING, SQUAD}
    counts = [sum(row.system == name for row in rows) for name in (ETHERNET, INFINIBAND)]
    assert counts == [21, 19]


def test_the_page_has_the_errors_of_today(rows: list[Row]) -> None:
    assert _section("measured") == measured_md(rows).strip(), RENEW
    assert _section("assumptions") == assumptions_md(rows).strip(), RENEW


def test_the_page_has_the_speed_ups_of_today() -> None:
    assert _section("published") == published_md().strip(), RENEW
    assert _section("bandwidth") == bandwidth_md().strip(), RENEW


def test_a_run_is_slower_than_its_compressed_iterations() -> None:
    """The speed-up of a run is the harmonic mean of 1 and that of an iteration, weighted by the warm-up."""
    system = load_system(ETHERNET)
    after = gain(system, PRETRAINING, 32).same
    assert whole_run(PRETRAINING, 32, system, 0.15) == pytest.approx(1 / (0.15 + 0.85 / after), rel=1e-9)
    assert whole_run(PRETRAINING, 32, system, 1.0) == 1


def test_nothing_is_gained_behind_800_gigabits() -> None:
    for name in ("dgx-v100", "dgx-a100-80gb", "a100-80gb-800g"):
        for gpus in (8, 64, 256):
            found = gain(load_system(f"{name},nic_gbps=800"), PRETRAINING, gpus)
            assert found.best <= found.same < 1


def test_the_program_writes_its_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--out", str(tmp_path)]) == 0
    assert (tmp_path / "published.md").read_text() in capsys.readouterr().out
    assert not (tmp_path / "measured.md").exists()


def test_a_missing_table_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--data", str(tmp_path), "--out", str(tmp_path)]) == 2
    assert "communication_methods.csv" in capsys.readouterr().err


def test_a_wrong_table_is_named_by_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "communication_methods.csv"
    table.write_text("method,workload,network,gpus,throughput_samples_per_s\nAdam,same,40 GbE,many,90\n")
    assert main(["--data", str(tmp_path), "--out", str(tmp_path)]) == 2
    assert f"{table}:2: " in capsys.readouterr().err
