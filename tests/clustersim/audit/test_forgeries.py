"""Cheats by which a policy might look better: a consistent run of something else, with the manifest
of the honest run and new hashes.

`check` knows the jobs, the cluster and all costs; only `--replay` knows the decisions of the policy.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import clustersim
from clustersim.audit import check_run_folder, replay
from clustersim.failures import Failures, JobFailure, failure_of_job
from clustersim.overheads import Overheads
from clustersim.rundir import read_run, write_run
from clustersim.scheduler import Proposal, State
from clustersim.speed import Curve, SpeedOnOneType
from policies.edf import Edf
from traces.job import Job
from traces.native import write_trace

JOBS = [
    Job(f"{i}", 90.0 * i, model="megatron-1.7b" if i % 3 else "gpt3-1.3b", gpus=(4, 8, 8, 16)[i % 4],
        global_batch=64, iterations=200.0 + 10 * i, deadline_s=90.0 * i + 2500.0, tenant="ab"[i % 2])
    for i in range(14)
] + [Job("plain", 100.0, gpus=8, duration_s=900.0, deadline_s=1500.0)]  # fmt: skip
OVERHEADS = {"storage_shared": True, "storage_bytes_per_s": 2e9}
SETTINGS: dict[str, Any] = {
    "policy": "edf", "cluster": "n3g8", "failures": {"mtbf_gpu_h": 8.0, "job_failed_share": 0.1},
    "overheads": OVERHEADS, "seed": 3,
}  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("honest")
    write_trace(JOBS, folder / "trace.csv")
    clustersim.run(folder / "trace.csv", out=folder / "run", **SETTINGS)
    honest = read_run(folder / "run")
    kinds = {event.event for event in honest.events}
    assert kinds > {"interrupt", "restart", "preempt", "loaded", "fail", "finish"}
    return folder


def forged(home: Path, out: Path, jobs: list[Job] = JOBS, **settings: Any) -> Path:
    """Another run under the manifest of the honest one; only the time of its end is its own."""
    honest = read_run(home / "run")
    made = clustersim.run(jobs, **{**SETTINGS, **settings})
    manifest = {**honest.manifest, **{name: made.manifest[name] for name in ("end_s", "oracle_used")}}
    manifest["trace"] = {**manifest["trace"], "jobs": len(jobs)}
    names = {name: getattr(honest, name) for name in ("policy", "planner", "cluster")}
    write_run(out, replace(made, manifest=manifest, **names))
    return out


class Idle(Edf):
    """Takes GPUs from a job once, and gives them to no other."""

    def __init__(self) -> None:
        self.stopped = False

    def schedule(self, state: State) -> Proposal:
        proposal = super().schedule(state)
        if state.now > 300 and state.running and not proposal.changes and not self.stopped:
            self.stopped = True
            proposal.stop(next(iter(state.running)))
        return proposal


def fast(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    honest = SpeedOnOneType.curve

    def made(self: SpeedOnOneType, job: Job) -> Curve:
        curve = honest(self, job)
        if not curve.plans:
            return curve
        return replace(curve, unit_s={gpus: 0.95 * unit_s for gpus, unit_s in curve.unit_s.items()})

    monkeypatch.setattr(SpeedOnOneType, "curve", made)
    return {}


def fails_early(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    def fate(job: Job, failures: Failures, seed: int) -> JobFailure | None:
        found = failure_of_job(job, failures, seed)
        return None if found is None else found._replace(share=0.9 * found.share)

    monkeypatch.setattr("clustersim.engine.features.disruptions.failure_of_job", fate)
    return {}


def half_price(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return {"overheads": {**OVERHEADS, "scale": 0.5}}


def jobs_with(**fields: Callable[[Job], Any]) -> Callable[[pytest.MonkeyPatch], dict[str, Any]]:
    changed = [replace(job, **{name: value(job) for name, value in fields.items()}) for job in JOBS]
    return lambda _: {"jobs": changed}


def settings(**changed: Any) -> Callable[[pytest.MonkeyPatch], dict[str, Any]]:
    return lambda _: changed


@pytest.mark.parametrize(
    ("cheat", "rule"),
    [
        (fast, "plans"),
        (half_price, "overheads"),
        (settings(overheads={"storage_shared": True}), "conservation"),
        (settings(overheads={**OVERHEADS, "checkpoint_interval_s": 1e5}), "conservation"),
        (settings(failures=None), "outages"),
        (fails_early, "trace"),
        (settings(failures={"mtbf_gpu_h": 8.0, "job_failed_share": 0.1, "retries": 0}), "service"),
        (settings(seed=4), "outages"),
        (settings(planner="data-parallel"), "plans"),
        (settings(jobs=JOBS[:-1]), "trace"),
        (jobs_with(deadline_s=lambda job: job.deadline_s + 600), "trace"),
        (jobs_with(iterations=lambda job: job.iterations and job.iterations * 0.99), "trace"),
        (settings(until_s=1800.0), "manifest"),
        (settings(policy=Idle), "idle"),
        (settings(policy="srtf"), "replay"),
        (settings(placement="spread"), "replay"),
        (jobs_with(priority=lambda job: 1), ""),
        (settings(), ""),
    ],
)  # fmt: skip
def test_a_run_that_is_not_what_it_is_said_to_be(
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cheat: Callable[..., dict[str, Any]],
    rule: str,
) -> None:
    with monkeypatch.context() as patch:
        folder = forged(home, tmp_path / "run", **cheat(patch))
    broken = [finding.rule for finding in check_run_folder(folder, home / "trace.csv") if finding.violations]
    again = "replay" if replay(folder, home / "trace.csv").violations else ""
    assert rule in broken if rule not in ("replay", "") else not broken
    assert bool(again) == bool(rule)


def test_the_constants_are_those_of_the_settings(home: Path) -> None:
    """The cheats above change settings that the manifest states."""
    manifest = read_run(home / "run").manifest
    assert Overheads(**manifest["overheads"]) == Overheads.of(SETTINGS["overheads"])
    assert Failures.of(manifest["failures"]) == Failures.of(SETTINGS["failures"])
