"""What a policy sees of phases and of batches that it may choose, and statistical efficiency. Exact ends are
in `schedules/phases.yaml` and `batches.yaml`.
"""

from __future__ import annotations

from math import inf

import pytest

from clustersim.errors import PolicyError
from clustersim.scheduler import Proposal, State
from clustersim.testing import simulate
from tests.builders import Acts, Script, elastic
from traces.phases import seconds_factor

TABLE = {("m", 8): {1: 1.0, 2: 1.5}, ("m", 16): {1: 0.6, 2: 1.1}, ("m", 32): {1: 0.25, 2: 0.5, 4: 1.0}}


def test_a_policy_sees_goodput_by_batch() -> None:
    seen = []

    def look(p, jobs) -> None:  # type: ignore[no-untyped-def]
        job = jobs["a"]
        seen.append({batch: dict(zip(c.sizes, c.rates, strict=True)) for batch, c in job.batches.items()})
        seen.append((job.batch, job.phases[0].batch, jobs["b"].batches, jobs["b"].batch))

    jobs = [elastic("a", 0, 1, 100, phases="1:8..64:8"), elastic("b", 0, 1, 100)]
    simulate(jobs, Script({0.0: look}), "n1g8", table=TABLE)
    rate = {batch: pytest.approx(TABLE["m", batch][1] / seconds_factor(8, batch, 8)) for batch in (8, 16, 32)}
    assert {batch: speeds[1] for batch, speeds in seen[0].items()} == rate  # no row has batch 64
    assert seen[1] == (8, 8, {}, 8)


def test_what_a_policy_sees_of_phases() -> None:
    seen = []

    def look(state: State, proposal: Proposal) -> None:
        for job in [*state.running, *state.pending]:
            shares = [phase.share for phase in job.phases]
            seen.append((job.phase, shares, job.rate(1), job.remaining(1), job.oracle_remaining(1)))
            if not job.running:
                proposal.start(job)
                proposal.wake_at = 50.0

    job = elastic("a", 0, 1, 100, phases="0.3:8 0.7:12")
    simulate([job], Acts(look), "n1g8", table={**TABLE, ("m", 12): {1: 0.75}})
    assert seen[0] == (0, [None, None], 1.0, 100.0, pytest.approx(30 + 70 / 1.125))
    assert seen[-1] == (1, [0.3, None], 1.125, pytest.approx(47.5 / 1.125), pytest.approx(47.5 / 1.125))


@pytest.mark.parametrize(("name", "batch"), [("a", 64), ("a", 12), ("b", 8)])
def test_other_batches_are_refused(name: str, batch: int) -> None:
    jobs = [elastic("a", 0, 1, 100, phases="1:8..64:8"), elastic("b", 0, 1, 100)]
    with pytest.raises(PolicyError, match=rf"train_with\(job {name}, {batch}\): it can train with"):
        simulate(jobs, Script({0.0: lambda p, j: p.train_with(j[name], batch)}), "n1g8", table=TABLE)


def test_statistical_efficiency() -> None:
    """Pollux, equation 7: EFFICIENCY(m) = (noise + m0) / (noise + m)."""
    for noise in (0.0, 3.0, 800.0):
        for batch in (8, 16, 1024):
            efficiency = (noise + 8) / (noise + batch)
            assert 1 / seconds_factor(noise, batch, 8) == pytest.approx(batch / 8 * efficiency)
    assert seconds_factor(inf, 1024, 8) == 8 / 1024
    assert seconds_factor(5.0, 8, 8) == 1.0
