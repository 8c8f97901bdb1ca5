"""The study of a real Slurm, as far as no Slurm is needed: workloads, scores of repeats, and the page."""

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.slurm import workloads
from experiments.slurm.__main__ import HERE, PAGE, TABLE, read_table, replaced
from experiments.slurm.cluster import absent, sealed
from experiments.slurm.measures import repeat_score, waits_of
from experiments.slurm.page import page

HEAD = "JobID|JobName|Eligible|Start|NodeList\n"


@pytest.mark.parametrize("kind", workloads.KINDS)
def test_a_workload_is_drawn_from_its_name_and_number(kind: str) -> None:
    workload = workloads.drawn(kind, 1)
    assert workload == workloads.drawn(kind, 1) != workloads.drawn(kind, 2)
    names = [request.name for request in workload.requests]
    assert len(set(names)) == len(names)
    for place, request in enumerate(workload.requests):
        assert request.gpus <= 8 or request.gpus % 8 == 0
        assert 1 <= request.limit_min <= workloads.MOST_MINUTES
        earlier = request.depend.partition(":")[2]
        assert not earlier or earlier in names[:place]


def test_waits_begin_when_a_job_is_eligible_and_end_at_its_first_start(tmp_path: Path) -> None:
    rows = [
        "7|a|2026-03-01T10:00:00|2026-03-01T10:00:05|n1",
        "7|a|2026-03-01T10:02:00|2026-03-01T10:03:00|n1",
        "8_1|b|2026-03-01T10:00:10|2026-03-01T10:00:10|n2",
        "9|c|2026-03-01T10:00:10|Unknown|None assigned",
    ]
    (tmp_path / "sacct.txt").write_text(HEAD + "\n".join(rows), encoding="utf-8")
    assert waits_of(tmp_path / "sacct.txt") == {"a_": 5.0, "b_1": 0.0}


def test_the_score_of_a_repeat() -> None:
    logged = {"a": 10.0, "b": 0.0, "c": 2.0}
    assert repeat_score(logged, logged | {"d": 5.0}) == 0.0
    assert repeat_score(logged, dict.fromkeys(logged, 0.0)) == 1.0
    exchanged = {"a": 0.0, "b": 10.0, "c": 2.0}  # the right distribution, of other jobs: 20 / 3 / 2 / 4
    assert repeat_score(logged, exchanged) == pytest.approx(5 / 6)
    assert repeat_score(logged, {}) is None


def test_the_page_is_made_of_the_table() -> None:
    rows = read_table(TABLE)
    assert PAGE.read_text(encoding="utf-8") == page((HERE / "page.template.md").read_text("utf-8"), rows)
    newer = [replace(rows[-1], repeat=1, wait_s=3.0)]
    others = [row for row in rows if row.workload != rows[-1].workload]
    assert replaced(rows, newer) == [*others, *newer]


def test_what_is_absent_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.slurm.cluster.shutil.which", lambda *_, **__: None)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert absent().startswith("slurmctld, slurmd")
    assert "apt-get install" in absent()
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert absent() == "needs Linux and root, for namespaces"
    assert sealed(["true"])[-1] == "true"
