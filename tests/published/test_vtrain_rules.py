"""The study of vTrain's rules: its page is fresh, and they err as the paper's figures let expect."""

import pytest

from experiments import vtrain_rules as rules
from tests.places import SHARED

DATA = SHARED / "data"
NEEDED = (DATA / rules.PLANS, *(DATA / "iterations" / name for name in rules.RUNS))


@pytest.mark.skipif(not all(path.exists() for path in NEEDED), reason="needs ../shared/data")
def test_the_page_is_up_to_date() -> None:
    """Regression: experiments/VTRAIN_RULES.md."""
    page = rules.PAGE.read_text(encoding="utf-8")
    for name, lines in rules.tables(DATA).items():
        text = f"<!-- {name} -->\n\n" + "\n".join(lines) + "\n\n<!-- end -->"
        assert text in page, "python -m experiments.vtrain_rules"
