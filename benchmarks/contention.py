"""CPU time of a very large cluster with contention for the uplinks of leaf switches.

    python benchmarks/contention.py --nodes 12500 --jobs 100000 --policy fifo-skip

LLM training jobs of 8 to 2,048 GPUs arrive as a Poisson stream at load 0.9 on nodes of 8 GPUs, 32 to a leaf
switch. The uplinks of a switch carry a quarter of what its nodes can send. Every start and completion that
touches a full uplink changes the speed of the jobs on it. Network "ideal" is for comparison.

`rates` counts the changes of running jobs' speeds. `levels` is the number of links solved per start or
completion, which does not depend on the machine.
"""

from __future__ import annotations

import argparse
import logging
import resource
from collections import Counter
from time import process_time

import numpy as np

from clustersim.cluster import Cluster
from clustersim.cluster.topology import NodeGroup
from clustersim.engine import RunSetup, Simulation
from clustersim.overheads import Overheads
from clustersim.runs import make_policy
from clustersim.speed import speed_for
from clustersim.speed.network.network import ContendedNetwork
from itertime import load_system
from traces.job import Job

NODES_PER_LEAF, OVERSUBSCRIPTION, LOAD, MEAN_RUN_TIME_S = 32, 4.0, 0.9, 4 * 3600.0
SYSTEM = "dgx-a100-80gb"
KINDS = (  # model, global batch, GPUs, share of the jobs
    ("gpt3-1.3b", 512, 8, 0.40),
    ("gpt3-1.3b", 512, 32, 0.20),
    ("gpt3-6.7b", 512, 64, 0.15),
    ("gpt3-6.7b", 512, 128, 0.10),
    ("megatron-18.4b", 1024, 256, 0.08),
    ("megatron-18.4b", 1024, 512, 0.05),
    ("megatron-39.1b", 1536, 1024, 0.015),
    ("megatron-39.1b", 1536, 2048, 0.005),
)


def cluster_of(nodes: int, network: str) -> Cluster:
    nic = load_system(SYSTEM).nic_bytes_per_s
    uplink = NODES_PER_LEAF * nic / OVERSUBSCRIPTION
    group = NodeGroup(
        "a100", nodes, 8, "a100", SYSTEM,
        nodes_per_leaf=NODES_PER_LEAF, leaf_uplink_bytes_per_s=uplink,
    )  # fmt: skip
    return Cluster.of([group], network)


def jobs_of(count: int, cluster: Cluster, seed: int) -> list[Job]:
    """Poisson arrivals with exponential run times, stated for a packed job alone. On a small cluster the jobs
    are those of `KINDS` that it holds.
    """
    speed = speed_for(cluster, "vtrain")
    fitting_kinds = [kind for kind in KINDS if kind[2] <= cluster.gpus]
    shares = [share for *_, share in fitting_kinds]
    unit_s = [
        speed.curve(Job("", 0.0, model=model, global_batch=batch, iterations=1, gpus=gpus)).unit_s[gpus]
        for model, batch, gpus, _ in fitting_kinds
    ]
    gaps, kinds, times = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(3))
    mean_gpus = sum(gpus * share for _, _, gpus, share in fitting_kinds) / sum(shares)
    submits = np.cumsum(gaps.exponential(MEAN_RUN_TIME_S * mean_gpus / (LOAD * cluster.gpus), count)).tolist()
    drawn_kinds = kinds.choice(len(shares), count, p=[share / sum(shares) for share in shares]).tolist()
    run_times = times.exponential(MEAN_RUN_TIME_S, count).tolist()
    jobs = []
    for i, (submit, kind, run_s) in enumerate(zip(submits, drawn_kinds, run_times, strict=True)):
        model, batch, gpus, _ = fitting_kinds[kind]
        iterations = max(1, round(run_s / unit_s[kind]))
        jobs.append(Job(str(i), submit, model=model, global_batch=batch, iterations=iterations, gpus=gpus))
    return jobs


def levels_per_change(simulation: Simulation, events: Counter[str]) -> float:
    network = simulation.enactment.speeds.network
    computed = network.links.levels_computed if isinstance(network, ContendedNetwork) else 0
    return computed / (events["start"] + events["finish"])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--nodes", type=int, default=12_500)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--policy", default="fifo-skip")
    parser.add_argument("--placement", nargs="+", default=["pack", "topology"])
    parser.add_argument("--network", nargs="+", default=["ideal", "contention"])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    logging.getLogger("itertime").setLevel(logging.ERROR)  # sizes beyond the profile's range
    print(f"{'network':<12}{'placement':<11}{'CPU s':>8}{'jobs/s':>8}{'rates':>10}{'levels':>8}"
          f"{'mean JCT h':>12}{'GiB':>6}")  # fmt: skip
    for network in options.network:
        cluster = cluster_of(options.nodes, network)
        jobs = jobs_of(options.jobs, cluster, options.seed)
        for placement in options.placement:
            setup = RunSetup(
                cluster=cluster,
                scheduler=make_policy(options.policy, {}),
                speed=speed_for(cluster, "vtrain"),
                overheads=Overheads.none(),
                placement=placement,
            )
            simulation = Simulation(jobs, setup)
            began = process_time()
            recorder = simulation.run()
            seconds = process_time() - began
            events = Counter(event.event for event in recorder.events)
            jct_h = sum(record.jct_s or 0.0 for record in recorder.jobs) / len(jobs) / 3600
            gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            print(f"{network:<12}{placement:<11}{seconds:>8.1f}{len(jobs) / seconds:>8,.0f}"
                  f"{events['rate']:>10,}{levels_per_change(simulation, events):>8.1f}"
                  f"{jct_h:>12.3f}{gib:>6.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
