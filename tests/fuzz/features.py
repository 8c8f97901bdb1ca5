"""The features of a simulator, each as a function that changes the scene of a run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

__all__ = ["FEATURES", "TABLE", "Scene", "new_scene"]

JobColumns = dict[str, Any]

TABLE: dict[tuple[str, int], dict[int, float]] = {
    **{("small", 8 << k): {n: 6.4 / (8 << k) * n ** (0.6 + 0.1 * k) for n in (1, 2, 4, 8)} for k in range(4)},
    **{("large", 8 << k): {n: 3.2 / (8 << k) * n**0.9 for n in (4, 8, 16)} for k in range(4)},
}
"""Iterations per second of two models by global batch and GPUs, in scenes whose speeds need no plans."""
PLANNED = (("megatron-1.7b", 64, 0.9), ("gpt3-1.3b", 64, 1.2))
"""Models whose speeds follow from plans, a global batch, and roughly the iterations per second on 8 GPUs."""
DURATIONS_S = (1.5, 20.0, 33.3, 200.0, 900.0)


@dataclass
class Scene:
    """What a run is made of, while features change it. `groups`: of the cluster file, by the names of its
    clusters; the name is empty unless it is a fleet.
    """

    policy: str
    random: Random
    jobs: list[JobColumns]
    groups: dict[str, list[dict[str, Any]]]
    settings: dict[str, Any] = field(default_factory=dict)
    planned: bool = False
    network: str = "ideal"

    @property
    def node_sizes(self) -> list[int]:
        """The GPUs of each node."""
        groups = [group for own in self.groups.values() for group in own]
        return [group["gpus_per_node"] for group in groups for _ in range(group["nodes"])]

    @property
    def trained(self) -> list[JobColumns]:
        """The jobs that state iterations."""
        return [job for job in self.jobs if "iterations" in job]

    @property
    def timed(self) -> list[JobColumns]:
        """The jobs that state a duration."""
        return [job for job in self.jobs if "iterations" not in job]

    def some(self, jobs: list[JobColumns], share: float = 0.5) -> list[JobColumns]:
        return [job for job in jobs if self.random.random() < share]


def new_scene(policy: str, random: Random, counts: Sequence[int], *, planned: bool) -> Scene:
    """Jobs in bursts on a few nodes, of odd and even counts of GPUs: rigid ones and elastic ones. `counts`:
    how many jobs there may be. `planned`: whether the speeds of elastic jobs come from plans, or from the
    throughput table.
    """
    nodes, size = random.choice(((2, 4), (3, 4), (4, 4), (2, 8)))
    now, jobs = 0.0, []
    for i in range(random.choice(counts)):
        now += random.choice((0.0, 1.0, random.uniform(5, 120)))
        job: JobColumns = {"job_id": f"j{i}", "submit_s": round(now, 3)}
        gpus = random.choice((1, 1, 2, 3, 4, 8))
        run_s = random.choice(DURATIONS_S)
        if random.random() < 0.5:
            job |= {"gpus": min(gpus, nodes * size), "duration_s": run_s}
        elif planned:
            model, batch, per_s = random.choice(PLANNED)
            job |= {"model": model, "global_batch": batch, "gpus": random.choice((2, 4, 8))}
            job["iterations"] = max(1.0, round(run_s * per_s * job["gpus"] / 8))
        else:
            model = random.choice(("small", "large"))
            gpus = random.choice([n for n in TABLE[model, 8] if n <= nodes * size])
            job |= {"model": model, "global_batch": 8, "gpus": gpus}
            job["iterations"] = run_s * TABLE[model, 8][gpus]
        jobs.append(job)
    group = {"name": "all", "gpu_type": "a100", "nodes": nodes, "gpus_per_node": size}
    return Scene(policy, random, jobs, {"": [group]}, planned=planned)


# What jobs state


def deadlines(scene: Scene) -> None:
    for job in scene.some(scene.jobs, 0.8):
        run_s = job.get("duration_s", 300.0)
        job["deadline_s"] = job["submit_s"] + run_s * scene.random.uniform(0.4, 5) + 50


def wrong_statements(scene: Scene) -> None:
    """Some jobs state hostile work, others a little too much or too little."""
    factors = (1e-6, 0.1, 0.9, 1 - 1e-12, 1 + 1e-15, 1.1, 10.0, 1e6)
    for job in scene.some(scene.trained, 0.8):
        stated = [1e-12, 1e12, *(job["iterations"] * factor for factor in factors)]
        job["stated_iterations"] = scene.random.choice(stated)


def tenants(scene: Scene) -> None:
    """Tenants, users, priorities and weights."""
    for job in scene.jobs:
        job["tenant"], job["user"] = scene.random.choice("abc"), scene.random.choice("uvw")
        job["priority"], job["weight"] = scene.random.randint(-1, 2), scene.random.choice((0.5, 1.0, 4.0))


def user_estimates(scene: Scene) -> None:
    for job in scene.some(scene.jobs, 0.8):
        job["estimate_s"] = job.get("duration_s", 300.0) * scene.random.choice((0.3, 1.0, 1.5, 10.0))


def parts_of_gpus(scene: Scene) -> None:
    for job in scene.some(scene.timed, 0.7):
        job |= {"gpus": 1, "gpu_fraction": scene.random.choice((0.1, 0.25, 1 / 3, 0.5, 0.6, 0.999999))}


def sharing(scene: Scene) -> None:
    parts_of_gpus(scene)
    pairs = {"small": {"": 1.4}, "": {"small": 1.1}}
    scene.settings["sharing"] = scene.random.choice(({"slowdown": 1.3}, {"slowdown": 1.1, "pairs": pairs}))


def phases(scene: Scene) -> None:
    """Durations change their speed, models their batch."""
    texts = ("0.3:1 0.7:2.5", "0.25:1.5 0.25:0.25 0.5:8", f"{1 / 3!r}:1 {2 / 3!r}:1.5")
    ramps = ("0.2:32 0.3:64 0.5:128",) if scene.planned else ("0.25:8 0.25:16 0.5:64", "0.5:16 0.5:8")
    for job in scene.some(scene.jobs, 0.7):
        job["phases"] = scene.random.choice(ramps if "iterations" in job else texts)


def batches(scene: Scene) -> None:
    """Models whose batch a policy may choose."""
    ranges = ("1:64..256:800", "0.5:64..128:100 0.5:64") if scene.planned else ("0.5:8..64:16 0.5:8..64:400",)
    for job in scene.some(scene.trained, 0.8):
        job["phases"] = scene.random.choice(ranges)


def services(scene: Scene) -> None:
    """Some jobs are instances, which do no work of their own."""
    for job in scene.some(scene.timed, 0.6):
        job["service"] = scene.random.choice(("chat", "code"))
        for column in ("gpu_fraction", "phases", "deadline_s", "state", "estimate_s"):
            job.pop(column, None)
    scene.settings["services_preempt"] = scene.random.random() < 0.7


def host_demands(scene: Scene) -> None:
    """Cores and host memory beyond the share of a job's GPUs of its node."""
    for own in scene.groups.values():
        for group in own:
            size = group["gpus_per_node"]
            group |= {"cpus_per_node": 4 * size, "host_memory_gb_per_node": 16 * size}
    for job in scene.some(scene.jobs, 0.7):
        each = scene.random.choice((2.0, 4.0, 6.5))
        job["cpus"] = each * job["gpus"]
        job["host_memory_gb"] = scene.random.choice((None, 10.0, 12.5))


def logged_ends(scene: Scene) -> None:
    """Jobs that failed or were cancelled in the log end so here, too."""
    for job in scene.some(scene.timed, 0.5):
        job["state"] = scene.random.choice(("failed", "cancelled"))
    scene.settings["failures"] = {"mtbf_gpu_h": None, "end_as_logged": True}


def kinds_of_jobs(scene: Scene) -> None:
    """Requests that an elastic policy may not leave, and sizes that only some nodes have."""
    for job in scene.some(scene.trained, 0.7):
        job["min_gpus"], job["max_gpus"] = 1, max(job["gpus"], scene.random.choice((2, 4, 8)))


def holds(scene: Scene) -> None:
    """Begin times, eligibility as logged, dependencies on earlier jobs, and arrays of few tasks at a time."""
    random = scene.random
    for i, job in enumerate(scene.jobs):
        if job.get("service"):
            continue
        job["user"], job["name"] = random.choice("uvw"), random.choice(("x", None))
        later_s = round(job["submit_s"] + random.uniform(0, 200), 3)
        kind = random.choice(("begin", "eligible", "depends", "array", "", ""))
        if kind == "begin":
            job["begin_s"] = random.choice((0.0, later_s))
        elif kind == "eligible":
            job["eligible_s"] = later_s
        elif kind == "array":
            job["array_id"], job["array_limit"] = random.choice("AB"), random.choice((1, 2))
        elif kind == "depends" and i:
            names = [f"j{random.randrange(i)}" for _ in range(random.choice((1, 2)))]
            kinds = ("after", "afterok", "afterany", "afternotok", "singleton")
            chosen = [random.choice(kinds) for _ in names]
            words = [k if k == "singleton" else f"{k}:{name}" for k, name in zip(chosen, names, strict=True)]
            job["depends"] = random.choice(",?").join(words)


def stated_ends(scene: Scene) -> None:
    """Jobs that are cancelled while they wait, stopped at a limit, suspended, or ran more than once."""
    random = scene.random
    for job in scene.some(scene.jobs, 0.7):
        if job.get("service"):
            continue
        kind = random.choice(("cancel", "limit", "attempts", "suspended"))
        if kind == "cancel":
            job["cancel_s"] = round(job["submit_s"] + random.uniform(0, 100), 3)
        elif kind == "limit":
            job["time_limit_s"] = random.choice((10.0, 30.0, 300.0))
        elif kind == "attempts":
            pause_s = random.choice((0, 40))
            job["attempts"] = f"2000-2030:PREEMPTED 2100-2110:NODE_FAIL {2110 + pause_s}-2200:COMPLETED"
            job["eligible_s"] = 2110.0 + pause_s if pause_s else None
        elif "iterations" not in job:
            job["suspended_s"] = 12.5


def node_shapes(scene: Scene) -> None:
    """Jobs that ask for a number of nodes."""
    for job in scene.some(scene.jobs, 0.6):
        if job.get("gpu_fraction") is None:
            job["nodes"] = scene.random.choice((1, 2, 3, job["gpus"]))
            job["nodes"] = min(job["nodes"], job["gpus"])


# Clusters


def gpu_types(scene: Scene) -> None:
    """Two types in each cluster; some jobs ask for one."""
    for own in scene.groups.values():
        own.append({**own[0], "name": "new", "gpu_type": "h100", "nodes": scene.random.choice((1, 2))})
    for job in scene.some(scene.jobs, 0.3):
        job["gpu_type"] = scene.random.choice(("a100", "h100"))
    scene.settings["type_slowdown"] = scene.random.choice((None, 1.0, 2.0))


def node_sizes(scene: Scene) -> None:
    """Smaller nodes of the same type in each cluster, before or behind the others."""
    for own in scene.groups.values():
        group = own[0]
        size = scene.random.choice([n for n in (1, 2, 3) if n < group["gpus_per_node"]])
        small = {**group, "name": "small", "gpus_per_node": size, "nodes": scene.random.choice((1, 2, 3))}
        own.insert(scene.random.choice((0, 1)), small)


def fleet(scene: Scene) -> None:
    """Two clusters under one policy."""
    own = scene.groups.pop("")
    scene.groups = {"east": own, "west": [{**group, "nodes": group["nodes"] + 1} for group in own]}


def routing(scene: Scene) -> None:
    """Two clusters with a policy each."""
    fleet(scene)
    by = scene.random.choice(("first-fit", "least-loaded", "least-wait", "fastest", "soonest", "home"))
    scene.settings["routing"] = {"by": by, "move": scene.random.random() < 0.5}
    if by == "home":
        scene.settings["routing"]["homes"] = {"default": "west", "a": "east"}


def tiers(scene: Scene) -> None:
    scene.network = "tiers"
    for own in scene.groups.values():
        for group in own:
            group |= {"nodes_per_leaf": scene.random.choice((1, 2)), "leaf_oversubscription": 8}
    scene.settings["placement"] = scene.random.choice(("topology", "any", "spread", "pack"))


def contention(scene: Scene) -> None:
    tiers(scene)
    scene.network = "contention"


# Settings


def overheads(scene: Scene) -> None:
    scene.settings["overheads"] = scene.random.choice((
        None, {"preset": "mlperf"}, {"launch_s": 4.0, "checkpoint_interval_s": 60.0},
        {"resize_s": 20.0, "migrate_s": 40.0},
    ))  # fmt: skip


def shared_storage(scene: Scene) -> None:
    scene.settings["overheads"] = {"storage_shared": True, "storage_bytes_per_s": 3e9, "launch_s": 5.0}


def failures(scene: Scene) -> None:
    scene.settings["failures"] = {
        **(scene.settings.get("failures") or {}), "mtbf_gpu_h": scene.random.choice((0.5, 2.0)),
        "kinds": {"short": (1, 0.02), "long": (1, 0.2)}, "spare_nodes": scene.random.choice((0, 1)),
        "spare_swap_s": 30.0, "retries": 50,
    }  # fmt: skip
    scene.settings.setdefault("overheads", {"launch_s": 4.0, "checkpoint_interval_s": 60.0})


def calendar(scene: Scene) -> None:
    """Maintenance, a reclaim with notice, and a node that leaves and comes back."""
    last = len(scene.node_sizes) - 1
    scene.settings["calendar"] = [
        {"at_s": 100, "maintenance": 0, "for_s": 80, "every_s": 300, "times": 3},
        {"at_s": 250, "reclaim": last, "for_s": 150, "notice_s": 30},
        {"at_s": 60, "remove": 1},
        {"at_s": 500, "add": 1},
    ]


def removal(scene: Scene) -> None:
    """A node that leaves for good; jobs may have no place then."""
    scene.settings["calendar"] = [{"at_s": 150, "remove": scene.random.choice((0, 1))}]


def spot(scene: Scene) -> None:
    last = len(scene.node_sizes) - 1
    scene.settings["spot"] = {
        "nodes": str(last), "mean_up_h": 0.1, "mean_down_h": 0.02,
        "notice_s": scene.random.choice((0.0, 20.0)), "cordon": scene.random.random() < 0.7,
    }  # fmt: skip


def reservations(scene: Scene) -> None:
    for job in scene.jobs:
        job.setdefault("tenant", scene.random.choice("abc"))
    entry = {
        "at_s": scene.random.choice((30, 200)), "for_s": 200, "tenants": ["a"],
        "others": scene.random.choice(("drain", "preempt", "kill")),
    }  # fmt: skip
    where = scene.random.choice(({"nodes": "0"}, {"nodes": "1"}, {"gpus": scene.node_sizes[-1]}))
    scene.settings["reservations"] = [{**entry, **where}]


def step_times(scene: Scene) -> None:
    scene.settings["step_time"] = {"slowdown": 1.2, "spread": 0.4, "worker_cv": 0.05}


def variability(scene: Scene) -> None:
    scene.settings["variability"] = {"sigma": 0.1}


def rounds(scene: Scene) -> None:
    scene.settings["decision_interval_s"] = scene.random.choice((7.0, 60.0))


def estimates(scene: Scene) -> None:
    scene.settings["estimates"] = {"sigma": scene.random.choice((0.5, 2.0))}


def predictor(scene: Scene) -> None:
    for job in scene.jobs:
        job.setdefault("user", scene.random.choice("uvw"))
    scene.settings["estimates"] = {"predictor": "history"}


def quotas(scene: Scene) -> None:
    for job in scene.jobs:
        job.setdefault("tenant", scene.random.choice("abc"))
    gpus = sum(scene.node_sizes)
    scene.settings["quotas"] = {"a": gpus // 2, "b": gpus // 4}


def placements(scene: Scene) -> None:
    scene.settings["placement"] = scene.random.choice(("spread", "topology", "buddy", "any"))


def until(scene: Scene) -> None:
    scene.settings["until_s"] = scene.random.choice((40.0, 300.0, 900.5))


def window(scene: Scene) -> None:
    """From a moment before the last submission on."""
    last_s = scene.jobs[-1]["submit_s"] - scene.jobs[0]["submit_s"]
    scene.settings |= {"warmup_s": last_s / 2, "measure_s": last_s + 1.0}


def bound(scene: Scene) -> None:
    scene.settings["bound"] = "auto"


def planners(scene: Scene) -> None:
    scene.settings["planner"] = scene.random.choice(("data-parallel", "vtrain", "megatron"))
    scene.settings["memory_headroom"] = scene.random.choice((0.0, 0.3))


FEATURES: dict[str, Callable[[Scene], None]] = {
    feature.__name__.replace("_", " "): feature
    for feature in (
        gpu_types, node_sizes, fleet, routing, tiers, contention,  # first: others look at their nodes
        deadlines, wrong_statements, tenants, user_estimates, parts_of_gpus, phases, batches,
        host_demands, logged_ends, kinds_of_jobs, sharing, services, holds, stated_ends, node_shapes,
        overheads, shared_storage,
        failures, calendar, removal, spot, reservations, step_times, variability, rounds, estimates,
        predictor, quotas, placements, until, window, bound, planners,
    )
}  # fmt: skip
"""By name, in the order in which they are applied to a scene."""
