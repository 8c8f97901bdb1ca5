"""Helios' virtual clusters at hand, beside what the paper publishes: the figures of HELIOS.md.

    python -m experiments.helios_study [../shared/data/clusters/helios/venus_vcvGl_sept.csv]

Source of the published figures: Hu et al., "Characterization and Prediction of Deep Learning Workloads in
Large-Scale GPU Datacenters", SC 2021, table 3: mean completion times under FIFO, and under SJF.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

import clustersim
from traces import Job
from traces.logs import import_log

LOG = "../shared/data/clusters/helios/venus_vcvGl_sept.csv"
CLUSTERS = {"vcvGl": "n20g8", "vcvlY": "n2g8"}
"""Nodes of the virtual clusters in September 2020, as the slice's own comments state them."""
POLICIES = ("fifo", "sjf", "srtf", "easy", "fifo-skip", "smallest")
PUBLISHED: Mapping[str, tuple[float, float]] = {
    "Venus": (64_702, 3.07), "Earth": (19_754, 2.87), "Saturn": (55_984, 6.59), "Uranus": (19_758, 1.49),
}  # fmt: skip
"""Mean JCT under FIFO in s, and its ratio to that under SJF, by cluster."""


@dataclass(frozen=True)
class Simulated:
    """Mean JCT, mean wait and its 90th percentile in s, and how many jobs wait at all."""

    jct_s: float
    wait_s: float
    wait_p90_s: float
    waiting: int


@dataclass(frozen=True)
class Demand:
    """What the jobs would hold if none waited: GPU-hours over those of the cluster until the last submission,
    the share of that time with more GPUs than there are, the most at once, GPU-hours beyond the cluster.
    """

    load: float
    share_above: float
    peak: int
    gpu_h_above: float


def simulated(jobs: Sequence[Job], policy: str, cluster: str) -> Simulated:
    """The jobs under a policy, without overheads."""
    records = clustersim.run(jobs, policy, cluster=cluster, overheads=None, bound="none").jobs
    waits = np.array([record.queue_s for record in records])
    jcts = np.array([(record.finish_s or np.nan) - record.submit_s for record in records])
    return Simulated(
        float(jcts.mean()), float(waits.mean()), float(np.quantile(waits, 0.9)), int((waits > 0).sum())
    )


def demand(jobs: Sequence[Job], gpus: int) -> Demand:
    """What the jobs hold if each starts at its submission."""
    submit_s = np.array([job.submit_s for job in jobs])
    run_s = np.array([job.duration_s or 0.0 for job in jobs])
    count = np.array([job.gpus for job in jobs], dtype=np.int64)
    times, places = np.unique(np.concatenate([submit_s, submit_s + run_s]), return_inverse=True)
    held = np.cumsum(np.bincount(places, np.concatenate([count, -count]), minlength=len(times)))
    lasts = np.diff(np.minimum(times, submit_s[-1]), append=submit_s[-1])
    above = np.clip(held - gpus, 0, None)
    return Demand(
        load=float((run_s * count).sum() / gpus / submit_s[-1]),
        share_above=float(lasts[above > 0].sum() / lasts.sum()),
        peak=int(held.max()),
        gpu_h_above=float((above * lasts).sum()) / 3600,
    )


def main() -> None:
    """Print both tables for each virtual cluster of the log."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("log", nargs="?", default=LOG, help="the log; default: %(default)s")
    jobs, _ = import_log(parser.parse_args().log)
    for tenant in sorted({job.tenant for job in jobs} & set(CLUSTERS)):
        own = [job for job in jobs if job.tenant == tenant]
        own_demand = demand(own, 8 * int(CLUSTERS[tenant][1:-2]))
        print(f"{tenant}: {len(own):,} jobs on {CLUSTERS[tenant]}; {own_demand}")
        found = {policy: simulated(own, policy, CLUSTERS[tenant]) for policy in POLICIES}
        for policy, one in found.items():
            ratio = found["fifo"].jct_s / one.jct_s
            print(
                f"{policy:10}{one.jct_s:12,.0f}{ratio:8.2f}{one.wait_s:12,.0f}{one.wait_p90_s:12,.0f}{one.waiting:8,}"
            )


if __name__ == "__main__":
    main()
