"""A decision with reservations looks at what has changed, and decides as if it looked at everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.failures import Failures
from clustersim.scheduler import State
from clustersim.testing import simulate
from policies.elasticflow import ElasticFlow
from policies.priced_deadlines import PricedDeadlines
from policies.reservation import Agenda, Reservations, held_on
from tests.deadlines import hostile_bench, mixed_bench, random_bench
from tests.effort import examples
from tests.oracles.plain_reservations import plain_agenda, plain_shorten

FAILURES = Failures(mtbf_gpu_h=3.0, kinds={"short": (1, 0.02), "long": (1, 0.2)})
agenda, shorten_all = Reservations.agenda, Reservations.shorten_all


def checked_agenda(self: Reservations, state: State) -> Agenda:
    expected = plain_agenda(self, state.now)
    found = agenda(self, state)
    assert (found.due, found.shares, found.soon) == (expected.due, expected.shares, expected.soon)
    assert list(found.due) == list(found.shares)
    assert +Counter(found.growing) == +Counter(expected.growing)
    assert found.wake_at == expected.wake_at
    for job, slot in found.due.items():
        demand = self.demands[job]
        assert not demand.in_place or held_on(job, demand.gpu_type) == slot.gpus
    return found


def checked_shorten_all(self: Reservations, state: State) -> None:
    expected = {}
    for job in self.reserved():
        self.demands[job].refresh()
        expected[job] = plain_shorten(self.slots(job), self.demands[job], state.now)
    shorten_all(self, state)
    for job, kept in expected.items():
        slots = [slot._replace(start=max(slot.start, state.now)) for slot in self.slots(job)]
        assert slots == kept or (not kept and all(slot.end <= state.now for slot in slots))


@contextmanager
def held_to_plain() -> Iterator[None]:
    """Every decision is compared with all of it worked out anew, and there is at least one."""
    decided = []

    def checked(self: Reservations, state: State) -> Agenda:
        decided.append(state.now)
        return checked_agenda(self, state)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reservations, "agenda", checked)
        patch.setattr(Reservations, "shorten_all", checked_shorten_all)
        yield
    assert decided


@given(
    seed=st.integers(0, 10**9),
    scale=st.sampled_from((0, 1, 10)),
    bench=st.sampled_from((random_bench, hostile_bench, mixed_bench)),
    policy=st.sampled_from((ElasticFlow, PricedDeadlines)),
)
@settings(max_examples=examples(40), deadline=None)
def test_reservations_are_what_they_are_when_worked_out_anew(
    seed: int, scale: float, bench: Callable[..., Any], policy: Callable[[], Any]
) -> None:
    on, jobs = bench(seed, scale, "pack")
    with held_to_plain():
        on.run(jobs, policy())


@given(seed=st.integers(0, 10**9), scale=st.sampled_from((0, 1, 10)))
@settings(max_examples=examples(20), deadline=None)
def test_reservations_are_the_same_where_nodes_fail(seed: int, scale: float) -> None:
    on, jobs = random_bench(seed, scale, "pack")
    with held_to_plain():
        simulate(
            jobs, ElasticFlow(), on.cluster, table=on.table, overheads=on.overheads, failures=FAILURES,
            seed=seed,
        )  # fmt: skip
