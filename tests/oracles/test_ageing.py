"""Policies under which waiting jobs age, against plain rules that look at every job in every second.

A key that changes may pass another between two events. The policies must decide then, by the keys of that
moment: every job must run from the same second to the same second under both.
"""

import re
from collections.abc import Callable, Mapping
from random import Random

import pytest

from clustersim.errors import PolicyError
from clustersim.scheduler import JobView, Proposal, Scheduler, State
from tests.effort import first
from tests.oracles.plain_world import Now, Plain, Rule, random_trace, schedule, served, simulated
from tests.places import ROOT


def tutorial() -> type[Scheduler]:
    """The ageing policy of the tutorial, as it stands there."""
    text = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    block = re.search(r"^class Ageing\(.*?(?=^half = )", text, re.DOTALL | re.MULTILINE)
    assert block
    names = {"Scheduler": Scheduler, "JobView": JobView, "Proposal": Proposal, "State": State}
    exec(compile(block.group(0), "docs/tutorial.md", "exec"), names)
    return names["Ageing"]


Ageing = tutorial()


def waited(job: Plain, now: Now) -> int:
    """Seconds without GPUs. Without overheads a job does a second of work in each second on GPUs."""
    return now.t - job.submit - (job.run - job.left)


class PlainAgeing(Rule):
    def __init__(self, age_s: int):
        self.age_s = age_s

    def chosen(self, now: Now) -> list[Plain]:
        def rank(job: Plain) -> float:
            return job.left * 0.5 ** (waited(job, now) // self.age_s)

        return served(now.jobs, rank, now.gpus)


class ResponseRatio(Scheduler):
    """The highest ratio of response to run time first, without preemption: long jobs age more slowly, so that
    the order of the waiting jobs changes too.
    """

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        for job in state.pending_by(self.rank, changing=True).walk(proposal.fits):
            proposal.start(job)
        return proposal

    def rank(self, job: JobView) -> float:
        return -(job.waited_s + job.oracle_remaining()) / job.oracle_remaining()


class PlainResponseRatio(Rule):
    def chosen(self, now: Now) -> list[Plain]:
        def rank(job: Plain) -> float:
            return -(waited(job, now) + job.run) / job.run

        return now.running + served(now.waiting, rank, now.free)


Pair = tuple[Rule, Scheduler]


def ageing(random: Random) -> Pair:
    age_s = random.choice((1, 2, 5, 20))
    return PlainAgeing(age_s), Ageing(age_s)  # type: ignore[call-arg]


PAIRS: Mapping[str, Callable[[Random], Pair]] = {
    "tutorial": ageing,
    "response ratio": lambda random: (PlainResponseRatio(), ResponseRatio()),
}


@pytest.mark.parametrize("seeds", first(1, [range(100), range(1000, 4000)]), ids=str)
@pytest.mark.parametrize("name", PAIRS)
def test_every_job_runs_when_the_plain_rule_says(name: str, seeds: range) -> None:
    for seed in seeds:
        random = Random(seed)
        gpus, jobs = random_trace(random)
        rule, policy = PAIRS[name](random)
        scene = f"seed {seed}, {gpus} GPUs: {jobs}"
        assert simulated(jobs, gpus, policy) == schedule(jobs, gpus, rule), scene


class Frozen(Ageing):  # type: ignore[valid-type, misc]
    """Its keys are looked up once."""

    def schedule(self, state: State) -> Proposal:
        wake_at = super().schedule(state).wake_at
        proposal = state.proposal()
        proposal.run_by(self.rank)  # type: ignore[attr-defined]
        proposal.wake_at = wake_at
        return proposal


def test_a_frozen_key_is_refused() -> None:
    """A run looks at one key in four decisions, so a short trace may end before it does."""
    refused = []
    for seed in range(40):
        gpus, jobs = random_trace(Random(seed))
        try:
            simulated(jobs, gpus, Frozen(2))
        except PolicyError as error:
            refused.append(str(error))
    assert refused
    for text in refused:
        assert re.search(r"policy Frozen at t=\d+ s: the key of job \d+ changed while it waits", text)
