"""The throughput tables of the ElasticFlow log."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.speed import read_throughput_table
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
