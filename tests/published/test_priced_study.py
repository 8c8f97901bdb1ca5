"""The study of `priced`: its page is what its table gives, and what it claims holds there."""

from pathlib import Path

import pytest

from clustersim.runs import make_policy
from clustersim.testing import CASES, check_case
from experiments import priced as study
from tests.places import ROOT

RENEW = "python -m experiments.priced"


@pytest.fixture(scope="module")
def cells() -> list[study.Cell]:
    return study.read_cells(study.FOLDER / "runs.csv")


def test_the_page_is_made_from_the_table(cells: list[study.Cell]) -> None:
    template = (study.FOLDER / "page.template.md").read_text(encoding="utf-8")
    kept = (ROOT / "experiments" / "PRICED.md").read_text(encoding="utf-8")
    assert kept == study.page(template, cells), RENEW
    assert study.as_csv(cells) == (study.FOLDER / "runs.csv").read_text(encoding="utf-8")


def test_no_run_is_better_than_its_bound(cells: list[study.Cell]) -> None:
    over = [v for cell in cells for m in ("jct_over_bound", "makespan_over_bound") if (v := cell.metrics[m])]
    assert over
    assert min(over) >= 1.0


def test_every_workload_has_a_shorter_mean_than_under_the_best_other_policy(cells: list[study.Cell]) -> None:
    runs = study.Runs(cells, "priced_workloads")
    for workload in runs.axis(0):
        best = runs.best(workload, "", "jct_mean_s")
        assert best is not None
        ours = runs.mean((workload, "", study.OURS), "jct_mean_s")
        theirs = runs.mean(best, "jct_mean_s")
        assert ours is not None
        assert theirs is not None
        assert ours < 0.9 * theirs


@pytest.mark.parametrize("name", ["Blind", "NoWaiting"])
def test_the_variants_keep_every_rule(name: str) -> None:
    case = next(case for case in CASES if case.name == "elastic jobs with deadlines and overheads")
    check_case(lambda: make_policy(f"{study.FOLDER / 'variants.py'}:{name}", {}), case)


def test_a_table_survives_being_written(cells: list[study.Cell], tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text(study.as_csv(cells), encoding="utf-8")
    assert study.read_cells(tmp_path / "runs.csv") == cells
