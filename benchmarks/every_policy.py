"""CPU time of every policy, in all and per decision, on a trace that keeps thousands of jobs waiting.

python benchmarks/every_policy.py --jobs 10000 --load 2.5
python benchmarks/every_policy.py --jobs 300 --load 1 --check
python benchmarks/every_policy.py --rigid --load 0.9 --rows --policies srtf tiresias
python benchmarks/every_policy.py --trace TRACE.csv --policies hesrpt afs --limit-s 600

Generated LLM jobs (`clustersim trace generate`) on 1,024 GPUs, each policy in a process of its own, one after
the other. A policy that needs more than `--limit-s` seconds of processor time is stopped, and the table says
so. With `--check` the run is written into a folder, and `clustersim check` must find no fault in it. `result`
is the beginning of the hash of all job records: two versions with equal decisions have equal hashes.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import resource
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from time import process_time
from typing import NamedTuple

from engine import rigid_jobs

from clustersim.audit import check_run_folder
from clustersim.cluster import Cluster
from clustersim.runs import Trace, find_policy, list_policies, run
from clustersim.scheduler import Proposal, Scheduler, State
from traces.synthetic import Recipe, generate


class Cost(NamedTuple):
    """One run: seconds of processor time in all and inside the policy, number of decisions, the longest queue
    at a decision, jobs finished and left, and violations found (None if not checked).
    """

    cpu_s: float
    deciding_s: float
    decisions: int
    most_waiting: int
    finished: int
    left: int
    violations: int | None
    result: str


class Clock:
    """Number and processor time of the decisions of one run."""

    def __init__(self) -> None:
        self.seconds, self.decisions, self.most_waiting = 0.0, 0, 0

    def timing(self, policy: type[Scheduler]) -> type[Scheduler]:
        """The policy, with every decision timed by this clock."""
        clock = self

        def schedule(self: Scheduler, state: State) -> Proposal:
            began = process_time()
            proposal = policy.schedule(self, state)
            clock.seconds += process_time() - began
            clock.decisions += 1
            clock.most_waiting = max(clock.most_waiting, len(state.pending))
            return proposal

        return type(policy.__name__, (policy,), {"schedule": schedule, "__doc__": policy.__doc__})


def cost_of(policy: str, trace: Trace, cluster: str, check: bool) -> Cost:
    """One run, in this process."""
    clock = Clock()
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "run"
        began = process_time()
        timed, kept = clock.timing(find_policy(policy)), folder if check else None
        result = run(trace, timed, cluster=cluster, out=kept, bound="none")
        cpu_s = process_time() - began
        violations = sum(len(finding.violations) for finding in check_run_folder(folder)) if check else None
        digest, states = hashlib.sha256(), {"finished": 0, "rejected": 0}
        for job in result.jobs:
            digest.update(repr(job).encode())
            states[job.state] = states.get(job.state, 0) + 1
    left = sum(states.values()) - states["finished"] - states["rejected"]
    return Cost(
        cpu_s, clock.seconds, clock.decisions, clock.most_waiting, states["finished"], left, violations,
        digest.hexdigest()[:12],
    )  # fmt: skip


def _send_cost(
    to: Connection, policy: str, trace: Trace, cluster: str, check: bool, limit_s: int | None
) -> None:
    if limit_s is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
    to.send(cost_of(policy, trace, cluster, check))


def measure(policy: str, trace: Trace, cluster: str, check: bool, limit_s: int | None) -> Cost | None:
    """One run in a process of its own; None if the limit or an error ended it."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_cost, args=(sender, policy, trace, cluster, check, limit_s))
    process.start()
    sender.close()
    try:
        cost = receiver.recv()
    except EOFError:
        cost = None
    process.join()
    return cost


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit with status 1 if a policy has no result, leaves jobs unfinished or breaks a rule."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--load", type=float, default=2.5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trace", type=Path, help="a trace to run in place of a generated one")
    parser.add_argument("--rigid", action="store_true", help="the rigid jobs of engine.py")
    parser.add_argument("--cluster", default="n128g8")
    parser.add_argument("--policies", nargs="+", default=[info.name for info in list_policies()])
    parser.add_argument("--limit-s", type=int, help="processor seconds a policy may take")
    parser.add_argument("--check", action="store_true", help="prove every rule from the run's folder too")
    parser.add_argument(
        "--rows", action="store_true", help="print rows of docs/performance.md: units of srtf"
    )
    options = parser.parse_args(arguments)
    if options.rigid:
        cluster = Cluster.parse(options.cluster)
        trace = Trace.of(list(rigid_jobs(options.jobs, cluster, options.seed, options.load)))
    elif options.trace is None:
        recipe = Recipe(
            jobs=options.jobs,
            load=options.load,
            planner="data-parallel",
            load_of="process",
            seed=options.seed,
        )
        trace = Trace.of(generate(recipe)[0])
    else:
        trace = Trace.read(options.trace)
    titles = (
        f"{'':<18}{'CPU s':>8}{'deciding':>10}{'decisions':>11}{'us each':>9}{'waiting':>9}{'finished':>10}"
    )
    if not options.rows:
        print(f"{titles}{'left':>6}{'faults':>8}  result", flush=True)
    failed, unit_s = False, 0.0
    for policy in options.policies:
        cost = measure(policy, trace, options.cluster, options.check, options.limit_s)
        failed |= cost is None or cost.left > 0 or bool(cost.violations)
        if cost is None:
            print(f"{policy:<18}  no result (an error above, or {options.limit_s} s were over)", flush=True)
            continue
        if options.rows:
            unit_s = unit_s or cost.deciding_s  # of the first policy: name srtf first
            each_us = 1e6 * cost.deciding_s / max(1, cost.decisions)
            print(f"| {policy} | {cost.deciding_s / unit_s:.1f} | {each_us:,.0f} us |", flush=True)
            continue
        faults = "-" if cost.violations is None else str(cost.violations)
        each_us = 1e6 * cost.deciding_s / max(1, cost.decisions)
        print(f"{policy:<18}{cost.cpu_s:>8.1f}{cost.deciding_s:>10.1f}{cost.decisions:>11,}{each_us:>9,.0f}"
              f"{cost.most_waiting:>9,}{cost.finished:>10,}{cost.left:>6}{faults:>8}  {cost.result}",
              flush=True)  # fmt: skip
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
