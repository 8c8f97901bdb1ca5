"""Clusters of several GPU types: where jobs run, how fast, and which requests a policy may make."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clustersim.cluster import Cluster
from clustersim.cluster.topology import NodeGroup
from clustersim.engine import Simulation
from clustersim.errors import PolicyError
from clustersim.scheduler import Proposal, State
from clustersim.speed import CannotRun, SpeedByType, read_throughput_table, speed_for
from clustersim.speed.throughput_table import throughputs_by_type
from experiments.type_slowdown import table
from tests.builders import Acts, free_setup, gpt3
from tests.places import ROOT
from traces.job import Job

GROUPS = (
    NodeGroup("old", 4, 8, "a100", "dgx-a100-80gb"),
    NodeGroup("new", 2, 8, "h100", "dgx-h100"),
    NodeGroup("oldest", 1, 8, "v100"),
)
CLUSTER = Cluster.of(GROUPS)
TABLE = "model,global_batch,gpu_type,gpus,iterations_per_s\n"


def speed(table: Path | None = None) -> SpeedByType:
    made = speed_for(CLUSTER, "vtrain", table)
    assert isinstance(made, SpeedByType)
    return made


def test_each_type_has_its_own_curve_and_the_fastest_comes_first() -> None:
    offers = speed().offers(gpt3("a", 0, 16, 100))
    assert [offer.gpu_type for offer in offers] == ["h100", "a100"], "v100 has no profile"
    fast, slow = (offer.curve for offer in offers)
    assert fast.unit_s[16] < slow.unit_s[16]
    assert max(fast.unit_s) == 16
    assert max(slow.unit_s) == 32
    alone = speed_for(Cluster.parse("n4g8"), "vtrain").curve(gpt3("a", 0, 16, 100))
    assert slow.unit_s == alone.unit_s, "a type's curve is that of a cluster of it alone"


def test_a_rejection_names_the_reason_of_each_type() -> None:
    with pytest.raises(CannotRun) as caught:
        speed().offers(gpt3("a", 0, 64, 100))
    assert "a100: asks for 64 GPUs, the cluster has 32" in str(caught.value)
    assert "h100: asks for 64 GPUs, the cluster has 16" in str(caught.value)
    assert "v100: GPU type v100 has no profile" in str(caught.value)


def answered(ask: Any, cluster: Cluster = CLUSTER) -> Any:
    """What `ask(job, proposal, state)` returns for a job of 16 GPUs that has just been submitted."""
    answers: list[Any] = []

    def act(state: State, proposal: Proposal) -> None:
        for job in list(state.pending):
            answers.append(ask(job, proposal, state))
            if proposal.placement(job) is None:
                proposal.start(job)

    setup = free_setup(cluster, Acts(act), speed=speed_for(cluster, "vtrain"))
    assert Simulation([gpt3("a", 0, 16, 100)], setup).run().jobs[0].state == "finished"
    return answers[0]


def test_types_in_a_view() -> None:
    def ask(job, proposal, state):  # type: ignore[no-untyped-def]
        return (
            job.gpu_types, job.gpu_type, job.rate(16), job.rate(16, "h100"), job.rate(16, "a100"),
            job.rate(32), job.rate(32, "h100"), job.can_run_on(32), job.can_run_on(32, "h100"),
            job.sizes_on("v100"),
            job.remaining(16, "a100") / job.remaining(16), state.cluster.gpu_types, job.requested,
        )  # fmt: skip

    types, now, best, h100, a100, more, none, can, cannot, sizes, ratio, all_types, requested = answered(ask)
    assert (types, now, all_types, requested) == (("h100", "a100"), None, ("a100", "h100", "v100"), 16)
    assert best == h100 > a100 > 0
    assert more > a100
    assert (none, can, cannot, sizes) == (0.0, True, False, ())
    assert ratio == pytest.approx(h100 / a100)


def test_moving_between_types() -> None:
    def ask(job, proposal, state):  # type: ignore[no-untyped-def]
        first = proposal.start(job, gpu_type="a100")
        second = proposal.resize(job, 16, gpu_type="h100")
        types = proposal.gpu_type(job)
        third = proposal.resize(job, 8)
        tight = proposal.resize(job, 32, gpu_type="a100"), proposal.fits(16, "v100"), proposal.fits(32)
        proposal.stop(job)
        return first, second, types, third, tight, proposal.start(job, on=((4, 8), (5, 8)))

    a100, h100 = ((0, 8), (1, 8)), ((4, 8), (5, 8))
    tight = tuple((n, 8) for n in range(4)), False, False
    assert answered(ask) == (a100, h100, "h100", ((4, 8),), tight, h100)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda job, p, s: p.compact({job: 16}), "one GPU type"),
        (lambda job, p, s: job.rate(8, "b200"), "unknown GPU type"),
        (lambda job, p, s: p.free_of("b200"), "unknown GPU type"),
    ],
)  # fmt: skip
def test_requests_that_a_policy_may_not_make(ask, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(PolicyError, match=words):
        answered(ask)


def test_one_type_may_be_named_too() -> None:
    assert answered(lambda job, p, s: p.start(job, gpu_type="a100"), Cluster.parse("n2g8"))


def test_tables_by_type(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(TABLE + "m,8,a100,8,1.0\nm,8,v100,8,0.25\nm,8,b200,8,9\n")
    assert throughputs_by_type(path, ("a100", "h100", "v100")) == {
        "a100": {("m", 8): {8: 1.0}}, "h100": {}, "v100": {("m", 8): {8: 0.25}},
    }  # fmt: skip
    assert read_throughput_table(path) == {("m", 8): {8: 1.0}}
    job = Job("a", 0.0, model="m", global_batch=8, iterations=10, gpus=8)
    known = speed(path).by_type["v100"].offers(job)
    assert known[0].curve.unit_s == {8: 4.0}


def test_one_type_needs_no_column_and_reads_its_rows_of_a_table_with_one(tmp_path: Path) -> None:
    plain, typed = tmp_path / "plain.csv", tmp_path / "typed.csv"
    plain.write_text("model,global_batch,gpus,iterations_per_s\nm,8,8,1\n")
    typed.write_text(TABLE + "m,8,a100,8,1\nm,8,h100,8,3\n")
    assert throughputs_by_type(plain, ("h100",)) == {"h100": {("m", 8): {8: 1.0}}}
    assert throughputs_by_type(typed, ("h100",)) == {"h100": {("m", 8): {8: 3.0}}}


def test_offers_of_equal_jobs_that_ask_for_different_types_are_not_confused() -> None:
    known = speed()
    job = gpt3("a", 0, 8, 100)
    old, new = replace(job, gpu_type="a100"), replace(job, gpu_type="h100")
    for _ in range(2):
        assert [offer.gpu_type for offer in known.offers(job)] == ["h100", "a100"]
        assert [offer.gpu_type for offer in known.offers(old)] == ["a100"]
        assert [offer.gpu_type for offer in known.offers(new)] == ["h100"]
    assert known.curve_on(old, "a100") == known.curve_on(job, "a100")
    with pytest.raises(CannotRun, match="asks for GPU type a100, not h100"):
        known.curve_on(old, "h100")
    with pytest.raises(CannotRun, match="h100: asks for 32 GPUs, the cluster has 16"):
        known.offers(replace(new, gpus=32))


def test_the_page_shows_what_the_study_of_type_slowdowns_prints(shared_reference: Path) -> None:
    text = (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")
    assert table(shared_reference / "peers" / "gavel_runs").strip() in text
