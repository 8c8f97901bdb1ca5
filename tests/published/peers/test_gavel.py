"""Gavel's programs on random instances, 50 of the 200 by default: what they optimise is as good here. Gavel's
simulator on 80 jobs: completion times.
"""

from pathlib import Path

import pytest

from experiments.peers.gavel import TOLERANCE, Instance, Program, programs
from experiments.peers.gavel_runs import KEPT, beside, rows_of, simulated
from experiments.peers.rows import Row, instances
from policies.gavel_ftf import GavelFtf
from policies.gavel_max_min import GavelMaxMin
from policies.toolkit.gavel import Gavel
from tests.effort import first
from tests.published.peers.doubles import KeptFtf, KeptMaxMin, KeptShares


@pytest.fixture(scope="module", params=[50, pytest.param(200, marks=pytest.mark.long)])
def found(request: pytest.FixtureRequest, shared_reference: Path) -> dict[str, Program]:
    return {program.there: program for program in programs(shared_reference / "peers", request.param)}


@pytest.mark.parametrize(
    "there",
    ["max_min", "max_min_weights", "max_min_no_perf", "ftf", "throughput_normalised", "throughput"],
)
def test_values_are_equal(found: dict[str, Program], there: str) -> None:
    assert found[there].equal == len(found[there].differences) >= 50


def test_levels_of_water_filling_are_never_lower(found: dict[str, Program]) -> None:
    assert found["water_filling"].equal >= 0.97 * len(found["water_filling"].differences)
    assert min(found["water_filling"].differences) >= -TOLERANCE


def test_the_makespan_is_never_longer(found: dict[str, Program]) -> None:
    """Gavel's bisection stops within 5 %."""
    assert min(found["makespan"].differences) >= -0.05
    assert max(found["makespan"].differences) <= TOLERANCE


def test_weights_change_the_levels(shared_reference: Path) -> None:
    """Shares without weights are no optimum of the weighted program: the comparison would notice them."""
    entries = instances(shared_reference / "peers" / "gavel_allocations.json.gz")[:20]
    lower = 0
    for entry in entries:
        one, plain = Instance(entry, weighted=True), Instance(entry)
        ours = one.levels(plain.shares(GavelMaxMin()))[0]
        lower += ours < one.levels(one.theirs["max_min_weights"])[0] * (1 - 0.01)
    assert lower >= 5


def end(folder: Path, here: str, there: str) -> Row:
    return next(row for row in rows_of(folder / "peers", here) if row.there == there)


@pytest.mark.parametrize(
    ("here", "there", "most"),
    first(
        1,
        [
            ("gavel-throughput, rates=raw", "max_sum_throughput_perf", 0.01),
            ("gavel-max-min", "max_min_fairness_perf", 0.04),
            ("gavel-max-min", "max_min_fairness_water_filling_perf", 0.04),
            ("gavel-ftf", "finish_time_fairness_perf", 0.04),
        ],
    ),
)
def test_mean_completion_times(shared_reference: Path, here: str, there: str, most: float) -> None:
    row = end(shared_reference, here, there)
    assert row.of == 80
    assert row.equal >= 55
    assert row.difference is not None
    assert abs(row.difference) <= most


def test_gavel_adds_up_iterations(shared_reference: Path) -> None:
    """Raw rates are nearer to Gavel's throughput than relative ones."""
    raw, relative = (
        end(shared_reference, here, "max_sum_throughput_perf")
        for here in ("gavel-throughput, rates=raw", "gavel-throughput")
    )
    assert raw.equal > relative.equal
    assert abs(raw.difference) < abs(relative.difference) / 4  # type: ignore[arg-type]


@pytest.mark.long
@pytest.mark.parametrize(
    ("policy", "double", "there"),
    [
        (GavelMaxMin, KeptMaxMin, "max_min_fairness_perf"),
        (GavelFtf, KeptFtf, "finish_time_fairness_perf"),
    ],
)
def test_kept_allocations_are_what_the_shipped_simulator_differs_by(
    policy: type[Gavel], double: type[KeptShares], there: str, shared_reference: Path
) -> None:
    folder, always = shared_reference / "peers", {"recompute_every_round": True}
    plain, kept = (
        beside(folder, "ours", there, KEPT, simulated(folder, cls, always)).difference
        for cls in (policy, double)
    )
    assert plain is not None
    assert kept is not None
    assert plain < -0.1
    assert abs(kept) < 0.04
