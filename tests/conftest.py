"""What all tests share: the published data, that no test depends on the speed of the machine, and what each
takes.
"""

import os
import signal
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

# As many processes as processors are enough: threads that wait for each other took most of the CPU time.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import pytest
from hypothesis import HealthCheck, settings

from clustersim.grid.making import worker
from clustersim.grid.making.make_cell import CellVerdict
from clustersim.records import MemoryRecorder, Run
from clustersim.rundir import RunWriter
from tests.places import SHARED

# A slow or busy machine is no fault of what is tested.
settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")
# Programs started in the background by a script ignore Ctrl-C, and so would those that tests send it to.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["ITERTIME_CACHE"] = "off"  # tests of the cache have folders of their own
os.environ["CLUSTERSIM_COMPILE"] = "never"  # nor does a test wait for a compiler, unless it is about that


@pytest.fixture(scope="module")
def wide_terminal() -> Iterator[None]:
    """Sentences of commands are one line each, wherever the test's files lie."""
    patch = pytest.MonkeyPatch()
    patch.setenv("COLUMNS", "2000")
    yield
    patch.undo()


@pytest.fixture(autouse=True, scope="session")
def fork_servers_stay() -> Iterator[None]:
    """Grids of this process share fork servers, each of which takes most of a CPU second to start."""

    class StayingServer(worker.ForkServer):
        busy = ended = False

        def make(self, order: Mapping[str, Any]) -> CellVerdict | None:
            self.busy = True
            verdict = None if self.ended else super().make(order)
            self.busy = False
            return verdict

        def kill(self) -> None:
            self.ended = True
            if self.busy:
                super().kill()
            else:
                idle.append(self)

    def idle_server() -> StayingServer:
        servers = [idle.pop() for _ in idle.copy()]
        idle.extend(server for server in servers if server.alive())
        server = idle.pop() if idle else StayingServer()
        server.ended = False
        return server

    idle: list[StayingServer] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "ForkServer", idle_server)
        yield
    for server in idle:
        worker.ForkServer.kill(server)


@pytest.fixture(autouse=True, scope="session")
def no_run_is_better_than_possible() -> Iterator[None]:
    """Every run that a test makes in this process is held against its bound."""
    patch = pytest.MonkeyPatch()
    for recorder in (MemoryRecorder, RunWriter):
        patch.setattr(recorder, "finish", _held_against_its_bound(recorder.finish))
    yield
    patch.undo()


def _held_against_its_bound(finish: Callable[..., Run]) -> Callable[..., Run]:
    @wraps(finish)
    def checked(*arguments: Any, **options: Any) -> Run:
        run = finish(*arguments, **options)
        far = {name: run.summary.get(name) for name in ("jct_over_bound", "makespan_over_bound")}
        below = {name: value for name, value in far.items() if value is not None and value < 1}
        share = run.summary.get("deadlines_of_bound")
        assert not below, f"{run.policy} is better than any policy can be: {below}"
        assert share is None or share <= 1, f"{run.policy} meets more deadlines than can be met: {share}"
        return run

    return checked


MOST_CPU_S = 5.0
"""What CONTRIBUTING.md allows a test of the default run, with its fixtures."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[_BEGAN] = _cpu_s()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test's last report, also one of another process, has its CPU seconds."""
    report = yield
    if report.when == "teardown" and item.get_closest_marker("long") is None:
        report.user_properties.append(("cpu_s", _cpu_s() - item.stash[_BEGAN]))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The CPU seconds of tests that take more than they may, which is no failure: machines differ."""
    reports = [each for some in terminalreporter.stats.values() for each in some]
    took = [
        (seconds, report.nodeid)
        for report in reports
        if isinstance(report, pytest.TestReport)
        for name, seconds in report.user_properties
        if name == "cpu_s"
    ]
    long = sorted((one for one in took if one[0] > MOST_CPU_S), reverse=True)
    if len(took) > 1000:
        terminalreporter.write_line(f"{len(took)} tests took {sum(one[0] for one in took):.0f} CPU seconds")
    if long:
        terminalreporter.write_line(f"More than {MOST_CPU_S:g} CPU seconds (CONTRIBUTING.md):")
    for seconds, name in long:
        terminalreporter.write_line(f"{seconds:8.1f}  {name}")


_BEGAN = pytest.StashKey[float]()


def _cpu_s() -> float:
    """Of this process and of those that it started and that have ended."""
    return sum(os.times()[:4])


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Published measurements, logs and schedules; skips the test where they are missing."""
    if not (SHARED / "data").is_dir():
        pytest.skip(f"no published measurements at {SHARED / 'data'}")
    return SHARED


@pytest.fixture(scope="session")
def shared_reference() -> Path:
    """Completion times that other simulators compute; skips the test where they are missing."""
    folder = SHARED / "reference"
    if not folder.is_dir():
        pytest.skip(f"no reference schedules at {folder}")
    return folder


@pytest.fixture(scope="session")
def shared_traces() -> Path:
    """The folder of published job logs; skips the test where it is missing."""
    folder = SHARED / "data" / "traces"
    if not folder.is_dir():
        pytest.skip(f"no published job logs at {folder}")
    return folder
