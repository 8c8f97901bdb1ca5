"""Best plans beside Arena's measured ones: the models, the arithmetic, the figures, and that the page is
up to date.
"""

import pytest

from experiments import arena_plans as study
from experiments.arena_plans import Compared, Row
from itertime.errors import UserError

RENEW = "python -m experiments.arena_plans"

needs_data = pytest.mark.skipif(
    not study.DATA.exists(), reason=f"needs {study.DATA}, which is not part of this project"
)


@pytest.mark.parametrize(
    ("model", "size"), [("bert", s) for s in study.BERT] + [("moe", s) for s in study.MOE]
)
def test_models_have_the_parameters_of_their_names(model: str, size: str) -> None:
    spec = study.shape(model, size)
    assert spec is not None
    billions = float(size[:-1]) / (1000 if size.endswith("M") else 1)
    assert spec.parameters / 1e9 == pytest.approx(billions, rel=0.04)


def test_a_model_of_convolutions_cannot_be_stated() -> None:
    assert study.shape("wide_resnet", "1B") is None


def test_errors_by_hand() -> None:
    """Twice too fast on two GPUs, right on four and on eight; a plan that did not run counts nowhere."""
    rows = [Row("bert", "1.3B", 128, "a100", 1, n, s) for n, s in ((2, 8.0), (4, 4.0), (8, 2.0), (1, None))]
    found = [Compared(row, s) for row, s in zip(rows, (4.0, 4.0, 2.0, 9.0), strict=True)]
    assert study.errors(found) == study.Errors(
        rows=3, mape=pytest.approx(1 / 6), bias=pytest.approx(-1 / 6), median=0.0,
        spearman=pytest.approx(0.866, abs=1e-3), groups=1, speed_up=pytest.approx(0.5),
    )  # fmt: skip


def test_a_missing_table_is_named() -> None:
    with pytest.raises(UserError, match=r"--data=nowhere\.csv"):
        study.main(["--data", "nowhere.csv"])


@needs_data
def test_figures_and_page() -> None:
    """Bands around what was found. Predictions are too fast everywhere, which no constant here mends."""
    rows = study.read(study.DATA)
    assert len(rows) == 173
    by_case = [(case, study.compared(rows, case)) for case in study.CASES]
    for case, part in by_case:
        found = [one for one in part if one.row.gpu_type == "a100"]
        bert, moe = (
            study.errors([one for one in found if one.row.model == name]) for name in ("bert", "moe")
        )
        assert (bert.rows, moe.rows) == (12, 18)
        assert bert.spearman == pytest.approx(1)
        assert moe.spearman == pytest.approx(1)
        assert bert.speed_up < 0.08
        assert moe.speed_up < 0.14
        free = case.name == "any plan"
        assert bert.mape == pytest.approx(0.24 if free else 0.08, abs=0.03)
        assert moe.mape == pytest.approx(0.31 if free else 0.15, abs=0.04)
    assert study.PAGE.read_text(encoding="utf-8") == study.page(rows, by_case), RENEW
