"""Arena: cells by hand, on one GPU type and on two."""

from __future__ import annotations

import clustersim
from policies.solvers.divisions.cell_search import Changes, GpuCell
from traces.job import Job


def test_room_takes_free_gpus_of_another_type_once() -> None:
    """Two jobs would move to the one free GPU of type b; one does, and the other shrinks."""
    big, small, moved = GpuCell("a", 2, 2.0), GpuCell("a", 1, 1.0), GpuCell("b", 1, 1.9)
    search = Changes([(name, i, big, [small, big, moved]) for i, name in enumerate("xy")], steps=2)
    found = search.room("a", 3, {"a": 0, "b": 1})
    assert found is not None
    assert [(change.job, change.cell) for change in found] == [("x", moved), ("y", small)]
    assert search.room("a", 4, {"a": 0, "b": 1}) is None


def test_a_job_whose_run_time_nobody_states_needs_no_oracle() -> None:
    jobs = [Job(str(i), 10.0 * i, gpus=4, duration_s=100.0) for i in range(4)]
    assert clustersim.run(jobs, "arena", cluster="n1g8").manifest["oracle_used"] is False
