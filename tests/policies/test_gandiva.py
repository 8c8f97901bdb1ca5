"""Gandiva's packing by trial, growth and migration; its time slices are tested beside round-robin's."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

import clustersim
from clustersim.audit import check_run_folder
from clustersim.cluster import SharedPlacement
from clustersim.records import ALLOCATES
from tests.builders import drawn_jobs, rigid
from traces.job import Job

PAIRS = {"good": {"good": 1.1, "bad": 1.8}, "bad": {"good": 2.4, "bad": 2.2}}
"""Two good jobs do 1.82 times the work of one; a good and a bad one 0.97, two bad ones 0.91."""


def run_of(jobs: list[Job], sharing: Any, cluster: str = "n1g1", **more: Any) -> clustersim.Run:
    params = {"packing": True, **more.pop("params", {})}
    return clustersim.run(
        jobs, "gandiva", cluster=cluster, sharing=sharing, params=params, **{"overheads": None, **more}
    )


def together_s(run: clustersim.Run) -> dict[frozenset[str], float]:
    """The longest time for which each two jobs ran on the same GPUs."""
    where: dict[str, SharedPlacement] = {}
    since: dict[frozenset[str], float] = {}
    longest: dict[frozenset[str], float] = {}
    for event in run.events:
        if event.event in ("submit", "rate", "note"):
            continue
        where.pop(event.job_id, None)
        for pair in [pair for pair in since if event.job_id in pair]:
            longest[pair] = max(longest.get(pair, 0.0), event.time_s - since.pop(pair))
        if event.event in ALLOCATES and isinstance(event.placement, SharedPlacement):
            for other, place in where.items():
                if place.key == event.placement.key:
                    since[frozenset({event.job_id, other})] = event.time_s
            where[event.job_id] = event.placement
    return longest


@pytest.mark.parametrize("seed", range(3))
def test_with_full_interference_no_packing_lasts_and_none_beats_turns(seed: int) -> None:
    """All work is 1 GPU's: it takes as long in turns as in pairs, so the last job ends when it does alone."""
    random = Random(seed)
    jobs = [rigid(f"j{i}", 10.0 * i, 1, random.uniform(2000, 9000), model=f"m{i % 3}") for i in range(8)]
    turns, packed = (run_of(jobs, {"slowdown": 2.0}, params={"packing": on}) for on in (False, True))
    assert turns.summary["makespan_s"] == pytest.approx(sum(job.duration_s or 0.0 for job in jobs))
    assert packed.summary["makespan_s"] == pytest.approx(turns.summary["makespan_s"])
    assert max(together_s(packed).values()) == pytest.approx(120.0)  # a trial
    worse = run_of(jobs, {"slowdown": 3.0})
    assert turns.summary["makespan_s"] < worse.summary["makespan_s"]
    assert worse.summary["makespan_s"] < 1.02 * turns.summary["makespan_s"]  # at most six trials of 120 s


def test_only_pairs_that_gain_stay_together() -> None:
    random = Random(7)
    jobs = [
        rigid(f"{model}{i}", 5.0 * i, 2, random.uniform(3000, 9000), model=model)
        for i in range(12)
        for model in ("good", "bad")
    ]
    run = run_of(jobs, {"pairs": PAIRS}, "n2g4")
    lasting = {pair for pair, seconds in together_s(run).items() if seconds > 121}
    assert lasting
    assert all(job.startswith("good") for pair in lasting for job in pair)
    assert {"good", "bad"} in [{job.rstrip("0123456789") for job in pair} for pair in together_s(run)]
    alone = run_of(jobs, {"pairs": PAIRS}, "n2g4", params={"packing": False})
    assert run.summary["makespan_s"] < 0.85 * alone.summary["makespan_s"]


@pytest.mark.parametrize("params", [{}, {"grow_shrink": True}, {"quantum_s": 200.0, "trial_s": 300.0}])
def test_every_rule_holds_and_all_jobs_finish(params: dict[str, Any], tmp_path: Path) -> None:
    jobs = drawn_jobs(1, 60, 400, (1, 1, 2, 3, 4, 8), (300, 4000), model=("good", "bad"))
    run = run_of(
        jobs, {"pairs": PAIRS}, "n3g8", overheads={"launch_s": 20.0}, params=params,
        out=tmp_path / "run", failures={"mtbf_gpu_h": 30.0}, seed=1,
    )  # fmt: skip
    assert all(job.state == "finished" for job in run.jobs)
    assert not [v for finding in check_run_folder(tmp_path / "run") for v in finding.violations]
