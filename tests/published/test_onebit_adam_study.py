"""The study of 1-bit Adam: its limits on measured throughputs, its arithmetic, and that its page is fresh."""

from pathlib import Path

import pytest

from experiments import onebit_adam as study
from experiments.onebit_adam import Row
from itertime import load_system
from tests.places import ROOT

PAGE = ROOT / "experiments" / "ONEBIT_ADAM.md"
RENEW = (
    "python -m experiments.onebit_adam --data ../shared/data/mlperf --out experiments/onebit_adam, "
    "and copy its four .md files to ONEBIT_ADAM.md"
)


@pytest.fixture(scope="module")
def rows(shared_dir: Path) -> list[Row]:
    return study.read_rows(shared_dir / "data" / "mlperf")


def _section(name: str) -> str:
    return PAGE.read_text().split(f"<!-- {name} -->")[1].split("<!-- end -->")[0].strip()


def test_measured_throughputs_are_met_within_15_percent(rows: list[Row]) -> None:
    assert len(rows) == 40
    assert study.mape(rows) <= 0.15
    for method in ("Adam", "1-bit Adam"):
        assert study.mape(row for row in rows if row.method == method) <= 0.15


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
    assert {row.task for row in rows} == {study.PRETRAINING, study.SQUAD}
    counts = [sum(row.system == name for row in rows) for name in (study.ETHERNET, study.INFINIBAND)]
    assert counts == [21, 19]


def test_the_page_has_the_errors_of_today(rows: list[Row]) -> None:
    assert _section("measured") == study.measured_md(rows).strip(), RENEW
    assert _section("assumptions") == study.assumptions_md(rows).strip(), RENEW


def test_the_page_has_the_speed_ups_of_today() -> None:
    assert _section("published") == study.published_md().strip(), RENEW
    assert _section("bandwidth") == study.bandwidth_md().strip(), RENEW


def test_a_run_is_slower_than_its_compressed_iterations() -> None:
    """The speed-up of a run is the harmonic mean of 1 and that of an iteration, weighted by the warm-up."""
    system = load_system(study.ETHERNET)
    after = study.gain(system, study.PRETRAINING, 32).same
    assert study.whole_run(study.PRETRAINING, 32, system, 0.15) == pytest.approx(
        1 / (0.15 + 0.85 / after), rel=1e-9
    )
    assert study.whole_run(study.PRETRAINING, 32, system, 1.0) == 1


def test_nothing_is_gained_behind_800_gigabits() -> None:
    for name in ("dgx-v100", "dgx-a100-80gb", "a100-80gb-800g"):
        for gpus in (8, 64, 256):
            found = study.gain(load_system(f"{name},nic_gbps=800"), study.PRETRAINING, gpus)
            assert found.best <= found.same < 1
