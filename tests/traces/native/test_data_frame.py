"""Data frames as traces: the same jobs as from a file, the same rules, and rows named in errors."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from itertime.errors import TableError
from traces import Job, read_trace, write_trace
from traces.native import jobs_of_frame

FRAME = pd.DataFrame({"job_id": [1, 2], "submit_s": [0, 1.5], "gpus": [8, 4], "duration_s": [60.0, 5]})


def test_jobs_of_pandas_and_of_another_library() -> None:
    wanted = [Job("1", 0.0, gpus=8, duration_s=60.0), Job("2", 1.5, gpus=4, duration_s=5.0)]
    assert jobs_of_frame(FRAME) == wanted
    assert jobs_of_frame(pa.Table.from_pandas(FRAME)) == wanted


def test_missing_values_are_not_stated() -> None:
    frame = FRAME.assign(
        deadline_s=[None, 9.0], tenant=[None, "t"], max_gpus=pd.array([16, None], dtype="Int64")
    )
    first, second = jobs_of_frame(frame)
    assert (first.deadline_s, first.tenant, first.max_gpus) == (None, "default", 16)
    assert (second.deadline_s, second.tenant, second.max_gpus) == (9.0, "t", None)


@given(
    st.lists(
        st.builds(
            lambda submit_s, gpus, run_s, deadline: (submit_s, gpus, run_s, submit_s + (deadline or 0.0)),
            st.floats(0, 1e9),
            st.integers(1, 10_000),
            st.floats(1e-3, 1e9),
            st.none() | st.floats(0, 1e9),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_a_frame_gives_the_jobs_of_its_file(rows: list[tuple[float, int, float, float | None]]) -> None:
    jobs = [
        Job(f"job {i}", submit_s, gpus=gpus, duration_s=run_s, deadline_s=deadline_s)
        for i, (submit_s, gpus, run_s, deadline_s) in enumerate(rows)
    ]
    columns = ("job_id", "submit_s", "gpus", "duration_s", "deadline_s")
    frame = pd.DataFrame([{name: getattr(job, name) for name in columns} for job in jobs])
    assert jobs_of_frame(frame) == jobs


def test_a_trace_read_by_pandas(tmp_path: Path) -> None:
    jobs = [
        Job("007", 0.0, model="llama2-7b", global_batch=64, iterations=3.5, priority=2),
        *jobs_of_frame(FRAME),
    ]
    write_trace(jobs, tmp_path / "t.parquet")
    assert (
        jobs_of_frame(pd.read_parquet(tmp_path / "t.parquet")) == read_trace(tmp_path / "t.parquet") == jobs
    )


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (FRAME.rename(columns={"gpus": "gpu"}), "unknown column 'gpu'"),
        (FRAME.drop(columns="submit_s"), "missing column submit_s"),
        (FRAME.assign(gpus=[8, 0]), "row 1: gpus=0: must be at least 1"),
        (FRAME.assign(submit_s=[0, float("inf")]), "row 1: submit_s=inf: must be finite"),
        (FRAME.assign(job_id=["a", None]), "row 1: job_id: is empty"),
        (FRAME.assign(deadline_s=[None, 1.0]), "row 1: deadline_s=1: is before submit_s=1.5"),
        (pd.concat([FRAME, FRAME[["gpus"]]], axis=1), "column gpus appears twice"),
    ],
)
def test_mistakes_name_row_and_column(frame: pd.DataFrame, text: str) -> None:
    with pytest.raises(TableError, match="data frame") as caught:
        jobs_of_frame(frame)
    assert text in str(caught.value)
