import gzip
import math
import os
import string
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from itertime.errors import TableError, UserError
from itertime.io import replacing
from itertime.spec import PRECISIONS
from tests.effort import examples
from tests.tables import table_rows
from traces import Job, read_trace, write_trace
from traces.job import MAX_GPUS
from traces.native import COLUMNS, MAX_COUNT, MAX_SECONDS, MIN_SECONDS, jobs_of_frame, unreadable

RIGID = "job_id,submit_s,gpus,duration_s\n"
LLM = "job_id,submit_s,model,global_batch,iterations\n"
ANY_FOLDER = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

times = st.floats(0, MAX_SECONDS, allow_nan=False)
counts = st.integers(1, 10_000_000)
names = st.text(min_size=1, max_size=20).filter(lambda text: not text.isspace())


@st.composite
def jobs(draw: st.DrawFn, job_id: str) -> Job:
    submit_s = draw(times)
    low, asked, high = sorted(draw(st.tuples(counts, counts, counts)))
    work = {"duration_s": draw(times.filter(lambda s: s >= MIN_SECONDS)), "gpus": asked}
    if draw(st.booleans()):
        batch, iterations = draw(counts), draw(st.floats(1e-12, 1e12))
        work |= {"model": draw(st.sampled_from(["gpt3-13b", "bert-large"]))}  # type: ignore[dict-item]
        work |= {"global_batch": batch, "iterations": iterations}
        if draw(st.booleans()):
            work |= {"stated_iterations": draw(st.floats(1e-12, 1e12))}
    optional = {
        "tenant": names,
        "min_gpus": st.just(low),
        "max_gpus": st.just(high),
        "seq_len": counts,
        "deadline_s": st.floats(submit_s, MAX_SECONDS),
        "priority": st.integers(-(10**12), 10**12),
        "weight": st.floats(1e-6, 1e6),
        "state": names,
        "estimate_s": times.filter(lambda s: s >= MIN_SECONDS),
        "user": names,
        "gpu_type": names,
        "logged_start_s": st.floats(submit_s, MAX_SECONDS),
        "partition": names,
        "qos": names,
        "framework": st.sampled_from(["te", "megatron"]),
        "precision": st.sampled_from(PRECISIONS),
        "phases": st.sampled_from(["0.25:512 0.75:1024", "1:8", "0.1:1 0.2:2 0.7:4"]),
        "plan_options": st.sampled_from(
            ["clipping=bucket,optimizer=lamb", "compression=topk,compression_density=0.25", "optimizer=came"]
        ),
    }
    own_cells = st.dictionaries(st.sampled_from(["x_loss", "x_=1"]), names, max_size=2)
    optional["extra"] = own_cells.map(lambda cells: tuple(sorted(cells.items())))
    for name, values in optional.items():
        if draw(st.booleans()):
            work[name] = draw(values)
    return Job(job_id, submit_s, **work)  # type: ignore[arg-type]


@st.composite
def job_lists(draw: st.DrawFn) -> list[Job]:
    ids = draw(st.lists(names, min_size=1, max_size=6, unique=True))
    return [draw(jobs(i)) for i in ids]


def write(folder: Path, content: str | bytes, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def errors(path: Path, **options: list[str]) -> list[str]:
    with pytest.raises(TableError) as caught:
        read_trace(path, **options)
    assert caught.value.exit_code == 3
    return str(caught.value).replace(f"{path}:", "").splitlines()


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet"])
@given(written=job_lists())
@settings(parent=ANY_FOLDER, max_examples=examples(60))
def test_what_is_written_reads_back_equal(tmp_path: Path, ending: str, written: list[Job]) -> None:
    path = tmp_path / f"trace.{ending}"
    write_trace(written, path)
    assert read_trace(path) == written
    again = path.read_bytes()
    write_trace(read_trace(path), path)
    assert path.read_bytes() == again


@pytest.mark.parametrize("prefix", ["", "\ufeff"], ids=["plain", "bom"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"], ids=["lf", "crlf", "cr"])
@pytest.mark.parametrize("packed", [False, True], ids=["csv", "gzip"])
def test_all_encodings_of_a_trace_give_equal_jobs(
    tmp_path: Path, prefix: str, line_end: str, packed: bool
) -> None:
    text = 'job_id, submit_s ,gpus,duration_s,x_note\nä,0, 8.0 ,1e3,\n\n"b,",2.5,1,60,free text\n'
    data = (prefix + text.replace("\n", line_end)).encode()
    path = write(tmp_path, gzip.compress(data) if packed else data)
    assert read_trace(path) == [
        Job("ä", 0.0, gpus=8, duration_s=1000.0),
        Job("b,", 2.5, gpus=1, duration_s=60.0, extra=(("x_note", "free text"),)),
    ]


def test_empty_cells_are_what_the_job_does_not_state(tmp_path: Path) -> None:
    header = ",".join(COLUMNS)
    row = "a,0,,,1,,,,, ,,9" + "," * (len(COLUMNS) - 12)
    assert read_trace(write(tmp_path, f"{header}\n{row}\n")) == [Job("a", 0.0, gpus=1, duration_s=9.0)]


@pytest.mark.parametrize(
    ("column", "value", "complaint"), table_rows("a bad cell of parquet is named by its row")
)
def test_a_bad_cell_of_parquet_is_named_by_its_row(
    tmp_path: Path, column: str, value: str, complaint: str
) -> None:
    """`tests/files/refused/trace.yaml` has the errors of every column."""
    good = {"job_id": "b", "submit_s": "100", "gpus": "4", "duration_s": "60", "plan_options": ""}
    path = tmp_path / "trace.parquet"
    pd.DataFrame([good, good | {"job_id": "c", column: value}]).to_parquet(path)
    assert errors(path) == [f"2: {column}={value}: {complaint}"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            RIGID.encode() + b"a,0,1,5\nb\xff,0,1,5\n",
            ["3: byte 0xff is not UTF-8 text; save the file as CSV in UTF-8"],
        ),
        (RIGID.encode("utf-16"), ["1: is UTF-16 text; save it as CSV in UTF-8"]),
        (b"PK\x03\x04" + bytes(50), ["1: is a ZIP archive or workbook; save it as CSV in UTF-8"]),
        (b"\x1f\x8b\x08junk", ["damaged gzip file"]),
        (gzip.compress(RIGID.encode() * 999)[:-20], ["damaged gzip file"]),
        (b"PAR1" + bytes(50), ["is not a Parquet file that can be read"]),
        (b"\x00\x01\x02\x03", ["1: has no column of a trace"]),
    ],
)
def test_what_is_no_text_is_named(tmp_path: Path, content: bytes, expected: list[str]) -> None:
    found = errors(write(tmp_path, content))
    assert len(found) == len(expected)
    for line, start in zip(found, expected, strict=True):
        assert line.strip().startswith(start) or start in line


def test_a_throughput_table_may_name_other_models(tmp_path: Path) -> None:
    path = write(tmp_path, LLM + "a,0,vgg16,64,5\n")
    assert read_trace(path, known_models=["vgg16"])[0].model == "vgg16"
    assert "gpt3" not in errors(path, known_models=["vgg19"])[0]


def test_an_unused_model_name_is_not_checked(tmp_path: Path) -> None:
    path = write(tmp_path, "job_id,submit_s,model,gpus,duration_s\na,0,anything,1,5\n")
    assert read_trace(path)[0].model == "anything"


@given(st.data())
@settings(parent=ANY_FOLDER, max_examples=examples(300))
def test_any_damage_gives_jobs_or_an_error_for_the_user(tmp_path: Path, data: st.DataObject) -> None:
    good = (RIGID + "a,0,1,5\nb,3.5,8,60\n").encode()
    start = data.draw(st.integers(0, len(good)))
    end = data.draw(st.integers(start, len(good)))
    junk = data.draw(st.one_of(st.binary(max_size=8), st.text(string.printable, max_size=8).map(str.encode)))
    path = write(tmp_path, good[:start] + junk + good[end:])
    try:
        found, problem = read_trace(path), f"{path}:"
    except TableError as error:
        found, problem = [], str(error)
    assert problem.startswith(f"{path}:")
    assert all(job.gpus is not None and job.gpus >= 1 for job in found)


@pytest.mark.parametrize("name", ["missing.csv", ""])
def test_a_file_that_cannot_be_opened_is_a_usage_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="cannot be read") as caught:
        read_trace(tmp_path / name)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        *(
            (
                {"duration_s": pa.array([60], pa.duration(unit))},
                r"column duration_s: type duration.* has a unit",
            )
            for unit in ("s", "us", "ns")
        ),
        ({"submit_s": [[1.0]]}, "column submit_s: type list"),
        ({"job_id": ["x" * 200_000]}, r"trace.parquet:1: job_id=x+\.\.\.: is longer than 100,000 char"),
    ],
    ids=["s", "us", "ns", "list", "long"],
)
def test_what_parquet_holds_and_csv_does_not_is_refused(
    tmp_path: Path, columns: dict[str, Any], says: str
) -> None:
    """As text, 60 s in microseconds is 60000000, which would be read as seconds. The CSV files of a run could
    not hold long text.
    """
    path = tmp_path / "trace.parquet"
    good = {"job_id": ["a"], "submit_s": [0.0], "gpus": [1], "duration_s": [5.0]}
    pq.write_table(pa.table(good | columns), path)
    with pytest.raises(TableError, match=says):
        read_trace(path)


def test_a_frame_with_gaps_written_by_pandas_is_read(tmp_path: Path) -> None:
    frame = pd.DataFrame({"job_id": [1, 2], "submit_s": [0, 1], "gpus": [8, None], "duration_s": [5.0, None]})
    frame = frame.assign(model=[None, "gpt3-13b"], global_batch=[None, 64], iterations=[None, 10])
    expected = [
        Job("1", 0.0, gpus=8, duration_s=5.0),
        Job("2", 1.0, model="gpt3-13b", global_batch=64, iterations=10.0),
    ]
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert read_trace(tmp_path / "t.parquet") == read_trace(tmp_path / "t.csv") == expected


def test_writing_needs_a_known_ending_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"let the name end in \.csv, \.csv\.gz, \.parquet"):
        write_trace([Job("a", 0.0)], tmp_path / "trace.xlsx")
    with pytest.raises(UserError, match="cannot be written"):
        write_trace([Job("a", 0.0)], tmp_path / "missing" / "trace.csv")
    assert not list(tmp_path.iterdir())


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = write(tmp_path, "old")

    def fail_half_way() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert (path.read_text(), os.listdir(tmp_path)) == ("old", ["trace.csv"])


@pytest.mark.parametrize(("cell", "stated"), table_rows("options are kept in one form"))
def test_options_are_kept_in_one_form(cell: str, stated: str | None, tmp_path: Path) -> None:
    path = write(tmp_path, f'job_id,submit_s,gpus,duration_s,plan_options\na,0,8,5,"{cell}"')
    (job,) = read_trace(path)
    assert job.plan_options == stated
    for name in ("again.csv", "again.csv.gz", "again.parquet"):
        write_trace([job], tmp_path / name)
        assert read_trace(tmp_path / name) == [job]


# Jobs that no trace can hold are told from those that a trace can, at every bound


BOUNDS = {
    "submit_s": (0.0, MAX_SECONDS),
    "duration_s": (MIN_SECONDS, MAX_SECONDS),
    "estimate_s": (MIN_SECONDS, MAX_SECONDS),
    "gpus": (1, MAX_GPUS),
    "priority": (-MAX_COUNT, MAX_COUNT),
    "weight": (1e-6, 1e6),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_a_value_is_readable_exactly_if_its_parser_takes_it(name: str) -> None:
    low, high = BOUNDS[name]
    whole = isinstance(low, int)
    near = [low - 1, low, low + 1, high - 1, high, high + 1]
    odd = [] if whole else [-1e-9, math.nan, math.inf, math.nextafter(low, 0) if low else -0.0]
    for value in [*near, *odd, 1.5, True] if whole else [*map(float, near), *odd]:
        try:
            COLUMNS[name](repr(value))
            taken = True
        except ValueError:
            taken = False
        fields = {"gpus": 1, "duration_s": 60.0, "submit_s": 0.0, name: value}
        assert (unreadable(Job("a", **fields)) is None) == taken, value  # type: ignore[arg-type]


# Data frames as traces


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
