"""A run leaves no garbage and restores the settings of the garbage collector."""

import gc
from collections.abc import Callable, Iterator

import pytest

from clustersim.cluster import Cluster
from clustersim.engine import Simulation
from clustersim.gctuning import collect_less_often
from clustersim.runs import make_policy
from clustersim.scheduler import JobView, Scheduler, State
from policies.fifo import Fifo
from tests.builders import free_setup
from traces.job import Job


@pytest.fixture
def collector() -> Iterator[None]:
    """Turns the collector off, and restores it afterwards."""
    before = gc.get_threshold()
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    gc.set_threshold(*before)


class Picky(Fifo):
    """Declines every job."""

    def admit(self, job: JobView, state: State) -> bool:
        return False


def simulation(
    policy: Scheduler, jobs: int = 400, on_progress: Callable[[int], None] | None = None
) -> Simulation:
    cluster = Cluster(nodes=2, gpus_per_node=8)
    trace = [Job(str(i), 7.0 * i, gpus=1 + i % 16, duration_s=1.0 + 13 * i % 40) for i in range(jobs)]
    return Simulation(trace, free_setup(cluster, policy), on_progress=on_progress)


@pytest.mark.parametrize("policy", [Fifo(), make_policy("srtf", {}), make_policy("las", {}), Picky()])
def test_no_job_that_left_is_garbage(collector: None, policy: Scheduler) -> None:
    ran = simulation(policy)
    ran.run()
    assert gc.collect() < 40, "400 jobs, each of which would be two objects or more"


def test_the_collector_is_left_as_it_was(collector: None) -> None:
    gc.set_threshold(123, 4, 5)
    seen: list[tuple[int, int, int]] = []
    simulation(Fifo(), jobs=3, on_progress=lambda _: seen.append(gc.get_threshold())).run()
    assert (gc.get_threshold(), seen[0][1:]) == ((123, 4, 5), (4, 5))
    assert seen[0][0] > 10_000
    with pytest.raises(ZeroDivisionError), collect_less_often():
        raise ZeroDivisionError
    assert gc.get_threshold() == (123, 4, 5)
    for threshold in (0, 10**6):  # a collector that is off, or collects less often already
        gc.set_threshold(threshold)
        with collect_less_often():
            assert gc.get_threshold()[0] == threshold
