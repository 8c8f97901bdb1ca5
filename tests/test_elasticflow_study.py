"""The comparison with ElasticFlow's artifact: its page states what its program prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.elasticflow_traces import DELAYS_S, STUDIES, in_time_alone, jobs, table

PAGE = Path(__file__).parents[1] / "experiments" / "ELASTICFLOW.md"
RENEW = "python -m experiments.elasticflow_traces ../shared/data/traces/itp_elasticflow"


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.trace)
def test_the_page_is_up_to_date(study: object, shared_dir: Path) -> None:
    text = table(shared_dir / "data" / "traces" / "itp_elasticflow", study)  # type: ignore[arg-type]
    assert text in PAGE.read_text(encoding="utf-8"), f"renew the page: {RENEW}"


def test_a_later_start_never_helps(shared_dir: Path) -> None:
    folder = shared_dir / "data" / "traces" / "itp_elasticflow"
    for study in STUDIES:
        shares = in_time_alone(jobs(folder / study.trace), folder / study.table)
        assert len(shares) == len(DELAYS_S)
        assert shares == sorted(shares, reverse=True)
        assert 0 < shares[-1] < shares[0] < 1
