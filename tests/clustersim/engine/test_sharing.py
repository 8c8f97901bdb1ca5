"""Jobs that hold part of a GPU: how they share it, how fast they are, and that no GPU is oversubscribed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import strategies as st

import clustersim
from clustersim.audit import check_run_folder
from clustersim.records import Run
from traces.job import Job


def part(name: str, fraction: float, run_s: float, submit_s: float = 0.0, **more: object) -> Job:
    return Job(name, submit_s, gpus=1, duration_s=run_s, gpu_fraction=fraction, **more)  # type: ignore[arg-type]


def run(jobs: Iterable[Job], policy: str = "fifo", cluster: str = "n1g1", **settings: object) -> Run:
    return clustersim.run(list(jobs), policy, cluster=cluster, overheads=None, **settings)


def test_gpu_hours_and_use_count_parts() -> None:
    done = run([part("a", 0.25, 100.0), part("b", 0.5, 100.0)], cluster="n1g2")
    assert [job.gpu_seconds for job in done.jobs] == [25.0, 50.0]
    assert [tuple(row)[1:3] for row in done.snapshots] == [(0.75, 1.25), (0, 0)]
    assert done.summary["gpu_allocated_ratio"] == 0.375
    assert done.summary["cost_usd"] == pytest.approx(75 / 3600 * 5)


@st.composite
def traces(draw: st.DrawFn) -> list[Job]:
    now, jobs = 0.0, []
    for i in range(draw(st.integers(2, 16))):
        now += draw(st.sampled_from((0.0, 1.0, 30.0)))
        run_s = draw(st.sampled_from((1.5, 20.0, 33.3, 400.0)))
        fraction = draw(st.sampled_from((None, 0.1, 0.25, 1 / 3, 0.5, 0.6, 0.999999)))
        if fraction is None:
            jobs.append(Job(str(i), now, gpus=draw(st.sampled_from((1, 2, 4))), duration_s=run_s))
        else:
            jobs.append(part(str(i), fraction, run_s, now))
    return jobs


def test_the_check_finds_a_gpu_that_gives_too_much(tmp_path: Path) -> None:
    clustersim.run(
        [part("a", 0.5, 100.0), part("b", 0.5, 50.0)], "fifo", cluster="n1g2", overheads=None, out=tmp_path
    )
    log = tmp_path / "events.csv"
    log.write_text(log.read_text().replace("0x1#0:0.5", "0x1#0:0.75"))
    broken = {rule.rule for rule in check_run_folder(tmp_path) if rule.violations}
    assert {"capacity", "gang", "conservation"} <= broken


def test_the_check_finds_a_job_that_is_too_fast(tmp_path: Path) -> None:
    jobs = [part("a", 0.5, 100.0), part("b", 0.5, 50.0)]
    clustersim.run(jobs, "fifo", cluster="n1g1", overheads=None, sharing={"slowdown": 1.5}, out=tmp_path)
    log = tmp_path / "events.csv"
    log.write_text(log.read_text().replace(",1.5\n", ",1\n"))
    assert "sharing" in {rule.rule for rule in check_run_folder(tmp_path) if rule.violations}
