"""What is known of jobs when spare GPUs are shared out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from clustersim.scheduler import JobView, Proposal, State
from policies.elasticflow import ElasticFlow
from policies.reservation import SpareGpus
from tests.deadlines import hostile_bench, mixed_bench, random_bench


@pytest.mark.parametrize(
    ("bench", "seed", "scale"), [(hostile_bench, 19, 10), (random_bench, 215, 10), (mixed_bench, 464, 1)]
)
def test_a_job_that_has_started_may_begin_early(
    bench: Callable[..., Any], seed: int, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reservation began with a launch, which is over, even if the job lost its GPUs at once."""
    begin_early, again = SpareGpus._begin_early, []

    def checked(self: SpareGpus, *arguments: Any) -> Any:
        lacking = begin_early(self, *arguments)
        for *_, job, _ in self.agenda.soon:
            assert not (job.started and self.reservations.demands[job].counts_on_launch)
            again.append(job.started and not job.gpus)
        return lacking

    monkeypatch.setattr(SpareGpus, "_begin_early", checked)
    on, jobs = bench(seed, scale, "pack")
    on.run(jobs, ElasticFlow())
    assert any(again)


class Watched(ElasticFlow):
    """Notes the jobs that are tied, and those that are in place."""

    def __init__(self) -> None:
        super().__init__()
        self.tied: dict[JobView, None] = {}
        self.in_place: dict[JobView, None] = {}

    def schedule(self, state: State) -> Proposal:
        proposal, reservations = super().schedule(state), self.reservations(state)
        self.tied.update(dict.fromkeys(reservations.tied))
        self.in_place.update({job: None for job, one in reservations.demands.items() if one.in_place})
        return proposal


def test_no_job_in_phases_is_tied() -> None:
    """It may gain slack while it follows its reservation, where a later phase suits its GPUs better."""
    tied = in_place = 0
    for seed in range(40):
        on, jobs = random_bench(seed, 1, "pack")
        for (model, _), rates in list(on.table.items()):
            on.table[model, 16] = {gpus: rate * gpus**0.2 / 2 for gpus, rate in rates.items()}
        jobs = [replace(job, phases="0.4:8 0.6:16") if i % 2 else job for i, job in enumerate(jobs)]
        policy = Watched()
        on.run(jobs, policy)
        assert not any(job.phases for job in policy.tied)
        tied += len(policy.tied)
        in_place += sum(bool(job.phases) for job in policy.in_place)
    assert tied
    assert in_place
