"""Runs over every kind of setting: what a change of the simulator that should change no result is held
against (`scenarios.yaml`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from traces.job import Job
from traces.synthetic import Recipe, generate

__all__ = ["SCENARIOS", "Scenario"]

HERE = Path(__file__).parent
DOCUMENT = yaml.safe_load((HERE / "scenarios.yaml").read_text(encoding="utf-8"))
Jobs = Callable[[], list[Job]]


@dataclass(frozen=True)
class Scenario:
    """One run: its jobs, its policy, and the settings in which it differs from the defaults."""

    jobs: Jobs
    policy: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    cluster: str = "n16g8"


@cache
def llm() -> list[Job]:
    """Training jobs whose speed follows from best plans, some with deadlines."""
    return generate(Recipe(**DOCUMENT["recipes"]["llm"]))[0]


def _rigid_s(number: int) -> float:
    return 300.0 + number * 7919 % 4400


@cache
def rigid() -> list[Job]:
    """Jobs of a stated duration, from 1 to 32 GPUs, of two priorities and three tenants."""
    return [
        Job(
            str(i),
            i * 20.0,
            gpus=(1, 2, 4, 8, 16, 32)[i % 6],
            duration_s=_rigid_s(i),
            priority=i % 2,
            tenant="abc"[i % 3],
            user=f"u{i % 5}",
            estimate_s=_rigid_s(i) * (1 + i % 4),
        )
        for i in range(120)
    ]


@cache
def small_jobs() -> list[Job]:
    """Jobs on parts of a GPU, beside some on whole ones."""
    parts = (0.25, 0.5, 0.4, None)
    return [
        Job(str(i), i * 20.0, gpus=1, duration_s=300.0 + 37 * i, gpu_fraction=parts[i % 4]) for i in range(80)
    ]


@cache
def phased() -> list[Job]:
    """Jobs that change their speed or their batch while they run."""
    steps = ("0.3:1 0.3:2 0.4:4", "0.5:1 0.5:3")
    plain = [
        Job(f"d{i}", 40.0 * i, gpus=1 << i % 4, duration_s=400.0 + 60 * (i % 7), phases=steps[i % 2])
        for i in range(40)
    ]
    batches = "0.4:512 0.6:1024"
    models = [replace(job, phases=batches, global_batch=512) for job in llm()[:20] if job.model]
    return sorted([*plain, *models], key=lambda job: job.submit_s)


@cache
def choices_of_batches() -> list[Job]:
    """Jobs with gradient noise, whose policies may choose the batch."""
    return generate(Recipe(**DOCUMENT["recipes"]["choices_of_batches"]))[0]


@cache
def misstated() -> list[Job]:
    """Jobs whose users misstate the work."""
    return generate(Recipe(**DOCUMENT["recipes"]["misstated"]))[0]


@cache
def served() -> list[Job]:
    """Rigid jobs beside instances of two inference services."""
    instances = [
        Job(f"s{i}", 90.0 * i, gpus=(1, 4)[i % 2], duration_s=500.0, service=("chat", "code")[i % 2])
        for i in range(40)
    ]
    return sorted([*rigid()[:80], *instances], key=lambda job: job.submit_s)


@cache
def demanding() -> list[Job]:
    """Rigid jobs that need cores and host memory, too."""
    return [
        replace(job, cpus=(4, 12)[i % 2] * (job.gpus or 1), host_memory_gb=(16.0, None, 60.0)[i % 3])
        for i, job in enumerate(rigid()[:80])
    ]


@cache
def typed() -> list[Job]:
    """Training jobs and rigid jobs, some of which ask for a GPU type."""
    asked = ("a100", None, "h100", None)
    return [
        replace(job, gpu_type=asked[i % 4], precision=None) if job.model else job
        for i, job in enumerate(llm())
    ]


@cache
def weighted() -> list[Job]:
    return [replace(job, weight=1.0 + i % 3, tenant="abc"[i % 3]) for i, job in enumerate(llm())]


JOBS: dict[str, Jobs] = {
    make.__name__: make
    for make in (
        llm, rigid, small_jobs, phased, choices_of_batches, misstated, served, demanding, typed, weighted,
    )
}  # fmt: skip


def _scenario(row: dict[str, Any]) -> Scenario:
    cluster = row.get("cluster", "n16g8")
    place = str(HERE / cluster) if cluster.endswith(".yaml") else cluster
    return Scenario(JOBS[row["jobs"]], row["policy"], row.get("settings", {}), place)


SCENARIOS = {name: _scenario(row) for name, row in DOCUMENT["scenarios"].items()}
"""By name."""
