"""Cores and host memory of nodes: under no policy a job gets GPUs without them, and the audit proves it."""

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from math import floor
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clustersim
from clustersim.audit.folder import check_run
from clustersim.cli import main
from clustersim.cluster import Cluster
from clustersim.cluster.topology import NodeGroup
from clustersim.overheads import Overheads
from clustersim.records import ALLOCATES, RELEASES, EventRecord, Run
from clustersim.runs import make_policy
from clustersim.scheduler import Proposal, State
from clustersim.speed import CannotRun, SpeedOnOneType
from clustersim.testing import check_outcome, decide, simulate
from itertime.errors import UserError
from tests.builders import Acts
from tests.effort import examples
from traces.job import Job

BY_KEY = ("fifo", "fifo-skip", "sjf", "srtf", "srsf", "smallest", "las", "edf")
TABLE = {
    (model, 64): {n: 0.1 * n**power for n in (1, 2, 4, 8, 16, 32) if n >= least}
    for model, least, power in (("small", 1, 0.8), ("large", 4, 0.95))
}


def cluster_of(
    nodes: int, gpus: int, cpus: int | None = None, memory_gb: float | None = None, **more: object
) -> Cluster:
    limits = {"cpus_per_node": cpus, "host_memory_gb_per_node": memory_gb}
    group = NodeGroup("all", nodes, gpus, "v100", **limits, **more)  # type: ignore[arg-type]
    return Cluster.of([group])


def over(
    events: Iterable[EventRecord], jobs: Iterable[Job], cpus: float | None, memory_gb: float | None
) -> list[str]:
    """A plain oracle: the instants at which a node gives more than it has, from the events alone."""
    asked = {job.job_id: job for job in jobs}
    held: dict[str, tuple[tuple[int, int], ...]] = {}
    found, rows = [], [*events]
    for i, event in enumerate(rows):
        if event.event in RELEASES or event.event in ALLOCATES:
            held.pop(event.job_id, None)
        if event.event in ALLOCATES:
            held[event.job_id] = tuple(event.placement)
        if i + 1 < len(rows) and rows[i + 1].time_s == event.time_s:
            continue
        for name, limit in (("cpus", cpus), ("host_memory_gb", memory_gb)):
            used: dict[int, Fraction] = {}
            for job_id, placement in held.items():
                job = asked[job_id]
                each = Fraction(getattr(job, name) or 0) / (job.gpus or 1)
                each = Fraction(floor(each * 10**6), 10**6)
                for node, count in placement:
                    used[node] = used.get(node, Fraction(0)) + count * each
            found += [f"t={event.time_s}: {name} of node {n}" for n, u in used.items() if limit and u > limit]
    return found


def broken(run: Run) -> list[str]:
    return [finding.rule for finding in check_run(run) if finding.violations]


def demanding(seed: int, count: int, elastic: bool = True) -> list[Job]:
    """Jobs of which many need more cores or memory than the share of their GPUs of a node of 4 GPUs, 16 cores
    and 64 GB.
    """
    random, now, jobs = Random(seed), 0.0, []
    for i in range(count):
        now += random.choice((0, 0, random.randint(1, 120)))
        run_s, gpus = float(random.randint(10, 900)), random.choice((1, 1, 2, 3, 4))
        more = {
            "cpus": random.choice((None, 2.0, 4.0, 16.0 / gpus, 6.5)),
            "deadline_s": now + 6 * run_s + 300,
        }
        more["cpus"] = more["cpus"] and min(16.0, more["cpus"] * gpus)
        more["host_memory_gb"] = random.choice((None, None, 10.0, 33.3))
        work: dict[str, object] = {"duration_s": run_s}
        if elastic and i % 3 == 0:
            model = random.choice(("small", "large"))
            gpus = 4
            work = {"model": model, "global_batch": 64, "iterations": run_s * TABLE[model, 64][gpus]}
        jobs.append(Job(f"j{i}", now, f"t{i % 3}", gpus=gpus, **work, **more))  # type: ignore[arg-type]
    return jobs


def test_an_elastic_job_is_not_offered_counts_that_no_node_can_hold() -> None:
    cluster = Cluster(4, 8)
    speed = SpeedOnOneType(cluster, None, TABLE, stretches=cluster_of(4, 8, 32).pools[0].stretches)
    job = Job("a", 0.0, model="small", gpus=1, global_batch=64, iterations=9.0)
    assert speed.curve(job).sizes == (1, 2, 4, 8, 16, 32)
    assert speed.curve(replace(job, cpus=4)).sizes == (1, 2, 4, 8, 16, 32), "a share of the node"
    assert speed.curve(replace(job, cpus=5)).sizes == (1, 2, 4)
    assert speed.offers(replace(job, cpus=32))[0].curve.sizes == (1,)
    with pytest.raises(CannotRun, match="asks for cpus=33 on 1 GPUs"):
        speed.curve(replace(job, cpus=33))


def test_a_placement_of_a_policy_that_finds_too_few_cores_is_refused() -> None:
    def name_places(state: State, proposal: Proposal) -> None:
        for job in state.pending:
            assert proposal.has_room(job, ((0, 2),)) == (job.id == "a")
            assert proposal.free_nodes(job) == ({0: 3} if job.id == "a" else {0: 1})
            assert proposal.free_for(job) == (3 if job.id == "a" else 1)
            assert proposal.fits(2, job=job) == (job.id == "a")
            assert proposal.fits(2), "for some job"
            proposal.start(job, on=((0, 2),))

    jobs = [Job(name, 0.0, gpus=2, duration_s=9.0, cpus=8) for name in "ab"]
    with pytest.raises(UserError, match=r"start\(job b, gpus=2, on=.*node 0: 8 cores are needed, 4 are"):
        simulate(jobs, Acts(name_places), cluster_of(1, 8, 12))


@settings(max_examples=examples(8), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    policy=st.sampled_from((*BY_KEY, "easy", "afs", "gavel-max-min", "elasticflow", "hived", "lucid")),
    placement=st.sampled_from(("pack", "spread", "topology", "buddy", "any")),
    cpus=st.sampled_from((16, 18, 23)),
    memory_gb=st.sampled_from((64, 40.5)),
)
def test_no_node_is_ever_over_its_cores_or_memory(
    seed: int, policy: str, placement: str, cpus: int, memory_gb: float
) -> None:
    jobs = demanding(seed, 25)
    outcome = simulate(
        jobs, make_policy(policy, {}), cluster_of(3, 4, cpus, memory_gb), table=TABLE,
        placement=placement, overheads=Overheads(),
    )  # fmt: skip
    check_outcome(outcome)
    assert over(outcome.events, jobs, cpus, memory_gb) == []
    assert any(over(outcome.events, jobs, 5, 20)), "demands bite"


@pytest.mark.parametrize("policy", BY_KEY)
def test_a_cluster_short_of_cores_is_as_one_with_fewer_gpus(policy: str) -> None:
    """Where every GPU needs 16 cores, a node of 8 GPUs and 96 cores is a node of 6 GPUs."""
    for seed in range(3):
        random, now, jobs = Random(seed), 0.0, []
        for i in range(60):
            now += random.choice((0, 0, random.randint(1, 60)))
            gpus, run_s = random.randint(1, 6), float(random.randint(1, 600))
            jobs.append(Job(f"{i}", now, gpus=gpus, duration_s=run_s, deadline_s=now + 3 * run_s))
        bound = [replace(job, cpus=16.0 * (job.gpus or 0)) for job in jobs]
        short = simulate(bound, make_policy(policy, {}), cluster_of(4, 8, 96))
        small = simulate(jobs, make_policy(policy, {}), cluster_of(4, 6))
        assert short.events == small.events
        plain = simulate(jobs, make_policy(policy, {}), cluster_of(4, 8))
        assert plain.events != small.events


@pytest.mark.parametrize("policy", ["fifo", "elasticflow", "gavel-max-min", "srtf"])
def test_without_demands_or_without_limits_nothing_changes(policy: str) -> None:
    bare = [replace(job, cpus=None, host_memory_gb=None) for job in demanding(3, 40)]
    plain = simulate(bare, make_policy(policy, {}), cluster_of(3, 4), table=TABLE)
    limited = simulate(bare, make_policy(policy, {}), cluster_of(3, 4, 16, 64), table=TABLE)
    unlimited = simulate(demanding(3, 40), make_policy(policy, {}), cluster_of(3, 4), table=TABLE)
    assert limited.events == plain.events == unlimited.events
    assert limited.records == plain.records


def test_a_scene_for_one_decision_knows_cores() -> None:
    """Two cores are left on the node of the running job, too few for another, and six on the other node."""
    running = [Job("r", 0.0, gpus=2, duration_s=99.0, cpus=4)]
    pending = [Job(name, 1.0, gpus=1, duration_s=9.0, cpus=3) for name in "abc"]
    made = decide(
        make_policy("fifo-skip", {}), pending=pending, running=running, cluster=cluster_of(2, 4, 6), now_s=1.0
    )
    assert made.starts == {"a": ((1, 1),), "b": ((1, 1),)}
    assert made.waits == ("c",)


def test_the_story_of_a_job_says_what_it_needs_beside_free_gpus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [Job(name, 0.0, gpus=2, duration_s=9.0, cpus=8, host_memory_gb=3) for name in "ab"]
    limits = "nodes: 1, gpus_per_node: 8, cpus_per_node: 12"
    (tmp_path / "cluster.yaml").write_text(f"groups: [{{name: all, gpu_type: v100, {limits}}}]")
    run = clustersim.run(
        jobs, "fifo", cluster=str(tmp_path / "cluster.yaml"), overheads=None, out=tmp_path / "out"
    )
    use = {"cpu_h": 16 * 9 / 3600, "cpu_ratio": 8 / 12, "memory_gb_h": 6 * 9 / 3600, "memory_ratio": None}
    assert run.summary["host"] == pytest.approx(use)
    assert main(["explain", str(tmp_path / "out"), "--job", "b"]) == 0
    shown = capsys.readouterr().out
    assert "for 9 s enough were free (6 free), but not given to it" in shown
    assert "beside each GPU it needs 4 cores and 1.5 GB of host memory" in shown
