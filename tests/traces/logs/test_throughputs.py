"""The throughput tables of the ElasticFlow log."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.speed import read_throughput_table
from itertime.errors import TableError, UserError
from traces.logs import import_log, read_throughputs, write_throughputs
from traces.logs.throughputs import TableRow


def folder_with(path: Path, **files: str) -> Path:
    for name, text in files.items():
        (path / f"{name}.csv").write_text(text)
    return path


def test_cells_become_rows_and_cells_without_speed_are_counted(tmp_path: Path) -> None:
    tables = folder_with(
        tmp_path,
        bert="global_batch_size,1,2,4\n64,6.5,,0\n128,3.25,nan,5\n",
        vgg16="global_batch_size,8\n32,1\n",
    )
    rows, report = read_throughputs(tables)
    assert rows == [
        TableRow("bert", 64, 1, 6.5),
        TableRow("bert", 128, 1, 3.25),
        TableRow("bert", 128, 4, 5.0),
        TableRow("vgg16", 32, 8, 1.0),
    ]
    assert report["counts"] == {"cells": 7, "rows": 4, "cells_without_speed": 3}


def test_the_written_table_is_one_that_the_simulator_reads(tmp_path: Path) -> None:
    rows = [TableRow("bert", 64, 1, 1 / 3), TableRow("bert", 64, 2, 0.5)]
    write_throughputs(rows, tmp_path / "table.csv")
    assert read_throughput_table(tmp_path / "table.csv") == {("bert", 64): {1: 1 / 3, 2: 0.5}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("batch,1\n64,2\n", "bert.csv:1: the first column must be global_batch_size"),
        ("", "bert.csv:1: the first column must be global_batch_size"),
        ("global_batch_size,one\n64,2\n", "bert.csv:1: header=one: is not a number"),
        ("global_batch_size,0\n64,2\n", "bert.csv:1: header=0: must be at least 1"),
        ("global_batch_size,1\nmany,2\n", "bert.csv:2: global_batch_size=many: is not a number"),
        ("global_batch_size,1\n64,2\n64,3\n", "bert.csv:3: global_batch_size=64: is already on line 2"),
        ("global_batch_size,1\n64,-2\n", "bert.csv:2: 1=-2: must not be negative"),
        ("global_batch_size,1\n64,inf\n", "bert.csv:2: 1=inf: must be finite"),
        ("global_batch_size,1\n64,2,3\n", "bert.csv:2: has 3 cells where the header has 2"),
        ("global_batch_size,1\n64,0\n", "no file in it states a speed above 0"),
    ],
)
def test_bad_tables_name_the_cell(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TableError, match=message):
        read_throughputs(folder_with(tmp_path, bert=text))


def test_a_folder_without_tables_is_a_usage_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UserError, match=r"not a folder with MODEL\.csv files"):
            read_throughputs(path)


def test_published_traces_and_tables_agree(shared_traces: Path) -> None:
    """In ElasticFlow's own traces iterations = duration x the table's speed at (model, batch, GPUs), rounded.

    So `batch_size` is the global batch, the cells are iterations/s, and `duration` is the run time on
    num_gpu GPUs.
    """
    published = shared_traces / "itp_elasticflow"
    speeds = {row[:3]: row.iterations_per_s for row in read_throughputs(published / "throughputs_A100")[0]}
    jobs = import_log(published / "cluster04.csv.gz")[0]
    for job in jobs:
        assert job.model
        assert job.global_batch
        assert job.iterations
        speed = speeds[job.model, job.global_batch, job.gpus]
        assert job.iterations == pytest.approx(job.duration_s * speed, abs=1.0)
