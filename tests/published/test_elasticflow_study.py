"""The comparison with ElasticFlow's artifact: its page states what its program prints."""

from pathlib import Path

import pytest

from clustersim.records import Run
from clustersim.runs import Trace, run
from experiments.elasticflow_traces import DELAYS_S, STUDIES, ElasticEdf, Study, in_time_alone, jobs, table
from tests.places import ROOT
from traces.logs import read_throughputs, write_throughputs

PAGE = ROOT / "experiments" / "ELASTICFLOW.md"
RENEW = "python -m experiments.elasticflow_traces ../shared/data/traces/itp_elasticflow"


@pytest.mark.long
@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.trace)
def test_the_page_is_up_to_date(study: Study, shared_dir: Path) -> None:
    text = table(shared_dir / "data" / "traces" / "itp_elasticflow", study)
    assert text in PAGE.read_text(encoding="utf-8"), f"renew the page: {RENEW}"


def test_a_later_start_never_helps(shared_dir: Path) -> None:
    for study in STUDIES:
        shares = in_time_alone(shared_dir / "data" / "traces" / "itp_elasticflow", study)
        assert len(shares) == len(DELAYS_S)
        assert shares == sorted(shares, reverse=True)
        assert 0 < shares[-1] < shares[0] < 1


def elastic_edf(folder: Path, study: Study, scratch: Path) -> Run:
    write_throughputs(read_throughputs(folder / study.table)[0], scratch / "speeds.csv")
    trace = Trace.of(jobs(folder / study.trace))
    table = str(scratch / "speeds.csv")
    return run(trace, ElasticEdf, cluster=study.cluster, table=table, overheads=None, placement="any")


@pytest.mark.parametrize(("study", "in_time"), list(zip(STUDIES, (23, 382), strict=True)), ids=["T4", "A100"])
def test_elastic_edf_meets_the_printed_number_of_deadlines(
    study: Study, in_time: int, shared_dir: Path, tmp_path: Path
) -> None:
    """The artifact prints 23 of 195 (0.118) and 382 of 876 (0.436)."""
    result = elastic_edf(shared_dir / "data" / "traces" / "itp_elasticflow", study, tmp_path)
    assert sum(job.deadline_met is True for job in result.jobs) == in_time
