"""Runs over every kind of setting: what a change of the simulator that should change no result is held
against.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from traces.job import Job
from traces.synthetic import Recipe, generate

__all__ = ["SCENARIOS", "Scenario"]

HERE = Path(__file__).parent
FLEET = str(HERE / "fleet.yaml")
TWO_TYPES = str(HERE / "two_types.yaml")
LEAVES = str(HERE / "leaves.yaml")
LIMITED_HOSTS = str(HERE / "limited_hosts.yaml")
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
    return generate(
        Recipe(
            jobs=60,
            load=1.5,
            gpus=128,
            arrivals="bursty",
            sizes="itp-8h",
            rules="llm-mix",
            deadlines="1:3",
            seed=1,
        )
    )[0]


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
    return generate(
        Recipe(
            jobs=40,
            load=1.5,
            gpus=128,
            sizes="itp-8h",
            rules="llm-mix",
            deadlines="none",
            seed=3,
            gradient_noise="1:8",
        )
    )[0]


@cache
def misstated() -> list[Job]:
    """Jobs whose users misstate the work."""
    return generate(
        Recipe(
            jobs=50,
            load=1.3,
            gpus=128,
            sizes="itp-8h",
            rules="llm-mix",
            deadlines="1:4",
            seed=5,
            stated_sigma=0.5,
        )
    )[0]


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


CALENDAR = [
    {"at_s": 600, "remove": "0-2"},
    {"at_s": 4000, "add": "0-1"},
]
RESERVATIONS = [{"at_s": 500, "for_s": 2500, "nodes": "8-11", "tenants": ["a"]}]
SLOW_STEPS = {"slowdown": 1.1, "spread": 0.2, "worker_cv": 0.05}

SCENARIOS: dict[str, Scenario] = {
    # plain runs
    "fifo": Scenario(rigid, "fifo"),
    "fifo, no overheads": Scenario(rigid, "fifo-skip", {"overheads": None}),
    "srtf": Scenario(rigid, "srtf"),
    "easy": Scenario(rigid, "easy"),
    "conservative": Scenario(rigid, "conservative"),
    "multifactor": Scenario(rigid, "multifactor"),
    "quotas": Scenario(rigid, "quota", {"quotas": {"a": 64, "b": 32}}),
    "elasticflow": Scenario(llm, "elasticflow"),
    "vtrain-aware": Scenario(llm, "vtrain-aware"),
    "priced-deadlines": Scenario(llm, "priced-deadlines"),
    "sia": Scenario(llm, "sia"),
    "gavel, weights": Scenario(weighted, "gavel-max-min"),
    "tiresias": Scenario(llm, "tiresias"),
    "themis": Scenario(llm, "themis"),
    "muri": Scenario(rigid, "muri"),
    "lucid": Scenario(rigid, "lucid"),
    "hived": Scenario(rigid, "hived", {"quotas": {"a": 64, "b": 32}}),
    # networks
    "tiers": Scenario(llm, "srtf", {"network": "tiers"}, LEAVES),
    "contention": Scenario(llm, "srtf", {"network": "contention", "placement": "any"}, LEAVES),
    "contention, spread": Scenario(llm, "fifo", {"network": "contention", "placement": "spread"}, LEAVES),
    "contention, any": Scenario(llm, "elasticflow", {"network": "contention", "placement": "any"}, LEAVES),
    "tiers, topology": Scenario(llm, "elasticflow", {"network": "tiers", "placement": "topology"}, LEAVES),
    # placements and planners
    "buddy": Scenario(rigid, "srtf", {"placement": "buddy"}),
    "any": Scenario(rigid, "fifo-skip", {"placement": "any"}),
    "data-parallel": Scenario(llm, "srtf", {"planner": "data-parallel"}),
    "megatron": Scenario(llm, "priced", {"planner": "megatron"}),
    "little memory": Scenario(llm, "srtf", {"memory_headroom": 0.3}),
    # overheads
    "overheads of mlperf": Scenario(llm, "srtf", {"overheads": {"preset": "mlperf"}}),
    "storage shared": Scenario(llm, "srtf", {"overheads": {"storage_shared": True}}),
    # speeds in truth
    "step times": Scenario(rigid, "easy", {"step_time": SLOW_STEPS}),
    "variability": Scenario(rigid, "las", {"variability": {"sigma": 0.05}}),
    "pal": Scenario(llm, "pal", {"variability": {"sigma": 0.05}}),
    "all slow": Scenario(
        llm,
        "srtf",
        {
            "network": "contention",
            "step_time": {"slowdown": 1.1, "spread": 0.2},
            "variability": {"sigma": 0.05},
        },
        LEAVES,
    ),
    # GPUs shared
    "sharing": Scenario(small_jobs, "fifo", {"sharing": {"slowdown": 1.2}}),
    "sharing, failures": Scenario(
        small_jobs,
        "srtf",
        {
            "sharing": {"slowdown": 1.3},
            "step_time": {"slowdown": 1.2, "spread": 0.1},
            "failures": {"preset": "llama3"},
        },
    ),
    "packing": Scenario(rigid, "gandiva", {"params": {"packing": True}, "sharing": {"slowdown": 1.2}}),
    # what takes nodes away
    "failures": Scenario(llm, "priced", {"failures": {"preset": "llama3", "mtbf_gpu_h": 2000.0}}),
    "failures often": Scenario(rigid, "srtf", {"failures": {"mtbf_gpu_h": 200.0}}),
    "calendar": Scenario(rigid, "srtf", {"calendar": CALENDAR}),
    "spot": Scenario(llm, "srtf", {"spot": {"nodes": "8-15", "mean_up_h": 2.0}}),
    "reservations": Scenario(rigid, "fifo", {"reservations": RESERVATIONS}),
    "all closed": Scenario(
        rigid,
        "easy",
        {"reservations": RESERVATIONS, "calendar": CALENDAR, "spot": {"nodes": "12-15", "mean_up_h": 2.0}},
    ),
    # work as stated
    "misstated": Scenario(misstated, "srtf"),
    "misstated by setting": Scenario(llm, "vtrain-aware", {"estimates": {"sigma": 0.4}}),
    "predicted": Scenario(rigid, "qssf"),
    # features of jobs
    "phases": Scenario(phased, "srtf"),
    "phases, failures": Scenario(phased, "las", {"failures": {"mtbf_gpu_h": 60.0}}),
    "phases, contention": Scenario(phased, "srtf", {"network": "contention", "placement": "any"}, LEAVES),
    "shockwave": Scenario(phased, "shockwave"),
    "pollux": Scenario(choices_of_batches, "pollux"),
    "services": Scenario(served, "fifo"),
    "services wait": Scenario(served, "srtf", {"services_preempt": False}),
    "services, failures": Scenario(served, "srtf", {"failures": {"mtbf_gpu_h": 60.0}}),
    "host demands": Scenario(demanding, "srtf", cluster=LIMITED_HOSTS),
    "host demands, easy": Scenario(demanding, "easy", cluster=LIMITED_HOSTS),
    # clusters
    "two types": Scenario(typed, "srtf", cluster=TWO_TYPES),
    "two types, elasticflow": Scenario(typed, "elasticflow", cluster=TWO_TYPES),
    "two types, allox": Scenario(typed, "allox", cluster=TWO_TYPES),
    "two types, contention": Scenario(
        typed, "srtf", {"network": "contention", "type_slowdown": 1.2}, cluster=TWO_TYPES
    ),
    "fleet": Scenario(llm, "srtf", cluster=FLEET),
    "fleet, routed": Scenario(llm, "srtf", {"routing": {"by": "soonest"}}, cluster=FLEET),
    "fleet, moved": Scenario(
        rigid,
        "easy",
        {"routing": {"by": "first-fit", "move": True, "policies": {"west": "fifo"}}},
        cluster=FLEET,
    ),
    "fleet, spot and failures": Scenario(
        llm,
        "srtf",
        {"routing": {"by": "soonest"}, "spot": {"mean_up_h": 3.0}, "failures": {"preset": "llama3"}},
        cluster=FLEET,
    ),
    # the run
    "rounds of tiresias": Scenario(
        rigid, "tiresias", {"decision_interval_s": 1800.0, "params": {"thresholds_gpu_s": [2000.0, 20000.0]}}
    ),
    "rounds": Scenario(rigid, "srtf", {"decision_interval_s": 120.0}),
    "rounds, contention": Scenario(
        llm, "tiresias", {"decision_interval_s": 300.0, "network": "contention", "placement": "any"}, LEAVES
    ),
    "window, end": Scenario(
        rigid, "srtf", {"warmup_s": 600.0, "measure_s": 1200.0, "until_s": 4000.0, "price_usd_per_gpu_h": 2.0}
    ),
    "bounds": Scenario(rigid, "srtf", {"bound": "auto"}),
}
"""By name. Settings are those of `RunConfig`; the bound is left out unless a scenario states one."""
