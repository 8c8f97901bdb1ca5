"""Jobs per second of one schedule by keys that are looked up once, and by keys that may change.

python benchmarks/keys.py --jobs 5000 --load 1.5

The trace is that of `engine.py`. The policy is `srtf`, whose keys do not change while jobs wait, so that all
rows have the same schedule: `frozen` as registered, `changing` with `run_by(key, falling=True,
changing=True)`, and `checked` as registered with all keys looked up after each decision, as `policies check`
does. Process time; the least of three runs in turn.
"""

from __future__ import annotations

import argparse
from time import process_time

from engine import CLUSTER, rigid_jobs

from clustersim.cluster import Cluster
from clustersim.engine import RunSetup, Simulation
from clustersim.overheads import Overheads
from clustersim.records import MemoryRecorder
from clustersim.scheduler import JobView, Proposal, Scheduler, State
from clustersim.speed import speed_for

__all__ = ["main"]


class ShortestFirst(Scheduler):
    """The least time left first, with a count of decisions and of keys."""

    def __init__(self, changing: bool):
        self.changing, self.decisions, self.keys = changing, 0, 0

    def schedule(self, state: State) -> Proposal:
        self.decisions += 1
        proposal = state.proposal()
        proposal.run_by(self.time_left, falling=True, changing=self.changing)
        return proposal

    def time_left(self, job: JobView) -> float:
        self.keys += 1
        return job.oracle_remaining()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--load", type=float, default=1.5)
    arguments = parser.parse_args()
    cluster = Cluster.parse(CLUSTER)
    jobs = list(rigid_jobs(arguments.jobs, cluster, 1, arguments.load))
    best: dict[str, float] = {}
    counts: dict[str, str] = {}
    for _ in range(3):
        for name, changing, checked in (
            ("frozen", False, False),
            ("changing", True, False),
            ("checked", False, True),
        ):
            policy = ShortestFirst(changing)
            setup = RunSetup(
                cluster=cluster,
                scheduler=policy,
                speed=speed_for(cluster, "vtrain"),
                overheads=Overheads.none(),
                check_all_keys=checked,
            )
            recorder, began = MemoryRecorder(cluster), process_time()
            Simulation(jobs, setup, recorder).run()
            seconds = process_time() - began
            best[name] = min(seconds, best.get(name, seconds))
            waiting = max(snapshot.pending for snapshot in recorder.snapshots)
            per_decision = policy.keys / policy.decisions
            counts[name] = f"{per_decision:8.1f} keys per decision, at most {waiting} waiting"
    for name, seconds in best.items():
        print(f"{name:<10} {arguments.jobs / seconds:8.0f} jobs/s, {counts[name]}")


if __name__ == "__main__":
    main()
