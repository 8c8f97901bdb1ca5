"""Checkpoints and failures through the ordinary engine, against theory.

One job on one node of one GPU that fails at exponential times and is back at once: the setting of Daly ("A
higher order estimate of the optimum checkpoint interval for restart dumps", Future Generation Computer
Systems 22, 2006, section 3). Failures may strike during work, saves and restarts alike. Confidence intervals
are Student's over independent seeds.
"""

from math import exp

import numpy as np
import pytest

from clustersim.failures import Failures
from clustersim.overheads import Overheads
from clustersim.testing import simulate
from itertime.planning import Downtime, daly_interval_s, goodput, young_interval_s
from policies.fifo import Fifo
from tests.theory.confidence import interval
from traces.job import Job


def run_time_s(work_s: float, interval_s: float, save_s: float, mtbf_s: float, seed: int) -> float:
    """How long a job takes that saves and loads in `save_s` and starts in no time."""
    failures = Failures(mtbf_gpu_h=mtbf_s / 3600, kinds={"any": (1, 0.0)}, retries=1_000_000)
    overheads = Overheads(launch_s=0.0, plain_restart_s=2 * save_s, checkpoint_interval_s=interval_s)
    job = Job("a", 0.0, gpus=1, duration_s=work_s)
    finish_s = (
        simulate([job], Fifo(), "n1g1", overheads=overheads, failures=failures, seed=seed).of("a").finish_s
    )
    assert finish_s is not None
    return finish_s


def expected_s(work_s: float, interval_s: float, save_s: float, load_s: float, mtbf_s: float) -> float:
    """The exact mean, by the renewal argument of Daly's equation 20.

    A stretch of d seconds that has to go through without a failure takes M (e^{d/M} - 1) on average if every
    retry begins at once, and M e^{R/M} (e^{d/M} - 1) if every retry has first to load for R seconds without a
    failure. Here the first interval has nothing to load before its first save, and no save follows the last.
    """
    intervals = round(work_s / interval_s)
    assert intervals * interval_s == pytest.approx(work_s)
    stretch = mtbf_s * (exp((interval_s + save_s) / mtbf_s) - 1)
    last = mtbf_s * (exp(interval_s / mtbf_s) - 1)
    return stretch + exp(load_s / mtbf_s) * ((intervals - 2) * stretch + last)


@pytest.mark.parametrize(
    ("interval_s", "mtbf_s", "seeds"), [(100.0, 1000.0, 60), (400.0, 1000.0, 100), (250.0, 300.0, 150)]
)
def test_expected_run_time(interval_s: float, mtbf_s: float, seeds: int) -> None:
    work_s, save_s = 20_000.0, 20.0
    times = [run_time_s(work_s, interval_s, save_s, mtbf_s, seed) for seed in range(seeds)]
    expected = expected_s(work_s, interval_s, save_s, save_s, mtbf_s)
    mean, half_width = interval(times)
    assert half_width <= 0.05 * expected
    assert abs(mean - expected) <= half_width, f"{mean:g} +- {half_width:g}: {expected:g}"
    downtime = Downtime(
        mtbf_gpu_h=mtbf_s / 3600,
        restart_s=0.0,
        restart_gpu_s=0.0,
        checkpoint_s=save_s,
        checkpoint_every_s=interval_s,
    )
    share = goodput(downtime, parameters=1.0, gpus=1, gpus_per_node=1).share
    assert expected == pytest.approx(work_s / share, rel=0.02), "the goodput of a long training"


def test_no_checkpoints_is_the_restart_of_the_whole() -> None:
    """M (e^{T/M} - 1), with nothing to load (Ross, Introduction to Probability Models, section 7.3)."""
    work_s, mtbf_s, seeds = 1000.0, 800.0, 600
    failures = Failures(mtbf_gpu_h=mtbf_s / 3600, kinds={"any": (1, 0.0)})
    overheads = Overheads(launch_s=0.0, checkpoint_interval_s="none")
    times = []
    for seed in range(seeds):
        job = Job("a", 0.0, gpus=1, duration_s=work_s)
        record = simulate([job], Fifo(), "n1g1", overheads=overheads, failures=failures, seed=seed).of("a")
        assert record.finish_s is not None
        assert record.finish_s == pytest.approx(work_s + record.lost_work_s)
        times.append(record.finish_s)
    expected = mtbf_s * (exp(work_s / mtbf_s) - 1)
    mean, half_width = interval(times)
    assert half_width <= 0.12 * expected
    assert abs(mean - expected) <= half_width


def test_least_waste_is_where_young_and_daly_say() -> None:
    """The same failures for all intervals: longer and shorter ones take significantly longer."""
    save_s, mtbf_s, work_s, seeds = 20.0, 2000.0, 40_000.0, 40
    young, daly = young_interval_s(save_s, mtbf_s), daly_interval_s(save_s, mtbf_s)
    assert daly == pytest.approx(young, rel=0.1)
    factors = (0.3, 1.0, 3.0)
    times = {
        factor: np.array([run_time_s(work_s, factor * daly, save_s, mtbf_s, seed) for seed in range(seeds)])
        for factor in factors
    }
    for factor in (0.3, 3.0):
        gained = times[factor] - times[1.0]
        mean, half_width = interval(gained)
        assert mean - half_width > 0, f"{factor} of the optimum: {mean:g} +- {half_width:g} s"


def test_the_named_intervals_are_the_ones_used() -> None:
    """ "young" and "daly" give the run that the same interval in seconds gives."""
    save_s, mtbf_s = 20.0, 2000.0
    for name, interval_s in (
        ("young", young_interval_s(save_s, mtbf_s)),
        ("daly", daly_interval_s(save_s, mtbf_s)),
    ):
        failures = Failures(mtbf_gpu_h=mtbf_s / 3600)
        runs = [
            simulate(
                [Job("a", 0.0, gpus=1, duration_s=9_000.0)], Fifo(), "n1g1", failures=failures, seed=3,
                overheads=Overheads(plain_restart_s=2 * save_s, checkpoint_interval_s=chosen),
            ).events
            for chosen in (name, interval_s)
        ]  # fmt: skip
        assert runs[0] == runs[1]


def test_a_job_on_many_nodes_fails_as_often_as_all_of_them() -> None:
    """n nodes fail n times as often: interruptions per second of running are n/M."""
    nodes, node_mtbf_s = 8, 20_000.0
    failures = Failures(mtbf_gpu_h=2 * node_mtbf_s / 3600, kinds={"any": (1, 0.0)}, retries=1_000_000)
    rates = []
    for seed in range(20):
        job = Job("a", 0.0, gpus=2 * nodes, duration_s=100_000.0)
        record = simulate([job], Fifo(), f"n{nodes}g2", failures=failures, seed=seed).of("a")
        assert record.finish_s is not None
        rates.append(record.interruptions / record.finish_s)
    mean, half_width = interval(rates)
    assert half_width <= 0.2 * nodes / node_mtbf_s
    assert abs(mean - nodes / node_mtbf_s) <= half_width
