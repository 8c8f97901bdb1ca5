"""The records of a run by field, and allocations found from columns: against a loop over the records."""

from __future__ import annotations

import gc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clustersim
from clustersim import Run
from clustersim.analysis import allocations, gpu_time
from clustersim.analysis.tables import RecordTable, jobs_of, numbered, per_run, rows_by_number
from clustersim.records import ALLOCATES, RELEASES, EventRecord
from tests.effort import examples
from traces import Job


@pytest.fixture(scope="module")
def run() -> Run:
    jobs = [Job(f"j{i}", 10.0 * i, gpus=1 + i % 4, duration_s=40.0 + i) for i in range(12)]
    return clustersim.run(jobs, "srtf", cluster="n2g4")


def test_a_column_has_the_values_of_the_records(run: Run) -> None:
    table = RecordTable([replace(run.jobs[0], finish_s=None), *run.jobs])
    assert table.values("job_id") == ["j0", *(job.job_id for job in run.jobs)]
    assert np.isnan(table["finish_s"][0])
    assert table["finish_s"][1:].tolist() == [job.finish_s for job in run.jobs]
    assert table.equal("state", "finished").tolist() == [True, *(j.state == "finished" for j in run.jobs)]


def test_results_are_kept_by_run_and_forgotten_with_it(run: Run) -> None:
    computed = []

    @per_run
    def count(given: Run) -> int:
        computed.append(given.policy)
        return len(given.jobs)

    other = replace(run, policy="other", jobs=run.jobs[:3])
    assert (count(run), count(other), count(run), count(other)) == (12, 3, 12, 3)
    assert computed == ["srtf", "other"]
    assert jobs_of(other) is jobs_of(other)
    assert jobs_of(other) is not jobs_of(run)
    del other
    gc.collect()
    again = replace(run, jobs=run.jobs[:5])  # may have the address of the run that is gone
    assert count(again) == 5


@given(st.lists(st.integers(0, 4), max_size=20))
def test_rows_by_number(values: list[int]) -> None:
    numbers, distinct = numbered(values)
    assert [distinct[number] for number in numbers] == values
    rows = rows_by_number(numbers, len(distinct))
    assert [values[row] for group in rows for row in group] == [
        v for v in distinct for _ in range(values.count(v))
    ]
    assert all(np.all(np.diff(group) > 0) for group in rows)


KINDS = ("submit", "start", "restart", "resize", "preempt", "interrupt", "finish", "rate", "node_down")


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(["j0", "j1", "lost"])), max_size=14))
def test_allocations_are_those_of_a_loop_over_the_log(run: Run, log: list[tuple[str, str]]) -> None:
    """Of any log, even one that no engine writes."""
    events = [
        EventRecord(1.0 + i // 2, kind, job_id, 2, ((0, 2),), "", 0.5, "")
        for i, (kind, job_id) in enumerate(log)
    ]
    held: dict[str, EventRecord] = {}
    expected = []
    for event in events:
        if event.event in ALLOCATES or event.event in RELEASES:
            if event.job_id in held:
                expected.append((held.pop(event.job_id), event.time_s, event.event))
            if event.event in ALLOCATES:
                held[event.job_id] = event
    end_s = max(events[-1].time_s if events else 0.0, run.manifest["end_s"])
    expected += [(event, end_s, "") for event in held.values()]
    place = {id(event): i for i, event in enumerate(events)}
    found = [tuple(one) for one in allocations(replace(run, events=events))]
    assert found == sorted(expected, key=lambda one: place[id(one[0])])


def test_a_job_of_the_log_without_a_record_is_refused(run: Run) -> None:
    with pytest.raises(KeyError, match="without a record"):
        gpu_time(replace(run, jobs=run.jobs[1:]))
