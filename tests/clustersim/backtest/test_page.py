"""The report page of a backtest."""

import base64
import gzip
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clustersim.backtest import backtest, read_logged, write_backtest, write_backtest_report
from itertime.errors import UserError
from tests.clustersim.backtest.logs import jobs_of, logged, written
from tests.tables import table_rows
from traces.logs import ReadOptions

EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backtest of a log under easy, of which the first half chose between fifo and easy."""
    home = tmp_path_factory.mktemp("backtest")
    jobs = [replace(job, user=EVIL if job.user == "u0" else job.user) for job in logged(jobs_of(), "easy")]
    log = read_logged(written(home, jobs))
    names = write_backtest(backtest(log, fitted=True, policies=["fifo", "easy"]), home / "out")
    assert names == ["jobs.csv", "summary.json", "report.html"]
    return home / "out"


def data_of(page: str) -> dict[str, Any]:
    """What the script of a page reads: charts by id."""
    packed = re.search(r'<script type="text/plain" id="data">([^<]*)</script>', page)
    assert packed is not None
    charts = json.loads(gzip.decompress(base64.b64decode(packed[1])))["charts"]
    return {chart["id"]: chart for chart in charts}


def series_of(chart: dict[str, Any]) -> list[dict[str, Any]]:
    """The series of a chart of one panel."""
    (panel,) = chart["panels"]
    return list(panel["series"])


def text_of(folder: Path) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


def test_the_page_compares_both_sides(folder: Path) -> None:
    charts = data_of(text_of(folder))
    assert list(charts) == [
        "chart-wait", "chart-jct", "chart-jobs", "chart-errors", "chart-over-time", "chart-use",
        "chart-queue", "chart-by-size", "chart-by-hour", "chart-by-user",
    ]  # fmt: skip
    for name in ("chart-wait", "chart-jct", "chart-over-time", "chart-use", "chart-queue", "chart-by-user"):
        logged_side, simulated = series_of(charts[name])[:2]
        assert (logged_side["name"], simulated["name"]) == ("logged", "simulated")
        assert logged_side["y"] == simulated["y"], "easy made the log"
    assert series_of(charts["chart-jobs"])[0]["x"] == series_of(charts["chart-jobs"])[0]["y"]
    assert series_of(charts["chart-errors"])[0]["x"] == [0, 0, 0, 0, 100, 0, 0, 0, 0]
    assert set(series_of(charts["chart-use"])[2]["y"]) == {16}
    assert len(series_of(charts["chart-jobs"])[0]["x"]) == 60, "the judged part alone"


def test_texts_of_a_log_are_no_markup(folder: Path) -> None:
    page = text_of(folder)
    assert EVIL not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "http://" not in re.sub(r'<script type="text/plain".*?</script>|<script>.*', "", page, flags=re.S)


def test_dates_of_a_log_are_of_its_zone(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rows = [f"{i},2024-05-01 {i:02d}:00:00,2024-05-01 {i:02d}:30:00,1,60" for i in range(1, 9)]
    path.write_text("\n".join(["job_id,submit,start,gpus,run", *rows]) + "\n", encoding="utf-8")
    columns = "job_id=job_id,submit_s=submit,start_s=start,gpus=gpus,duration_s=run"
    log = read_logged(path, ReadOptions(columns=columns, time_zone="Asia/Shanghai"))
    assert log.hour().tolist() == list(range(1, 9))
    write_backtest(backtest(log), tmp_path / "out")
    page = text_of(tmp_path / "out")
    assert "from 2024-05-01 01:00:00 to 2024-05-01 08:00:00 (Asia/Shanghai)" in page
    use = data_of(page)["chart-use"]
    assert use["x"]["title"] == "date (Asia/Shanghai)"
    assert series_of(use)[0]["x"][0] == "2024-05-01 01:00:00"


@pytest.mark.parametrize(("file", "old", "new", "error"), table_rows("folders that are damaged are named"))
def test_folders_that_are_damaged_are_named(
    folder: Path, tmp_path: Path, file: str, old: str, new: str, error: str
) -> None:
    for name in ("jobs.csv", "summary.json"):
        (tmp_path / name).write_text((folder / name).read_text(encoding="utf-8"), encoding="utf-8")
    damaged = (tmp_path / file).read_text(encoding="utf-8")
    (tmp_path / file).write_text(damaged.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(UserError, match=error):
        write_backtest_report(tmp_path)
    assert not (tmp_path / "report.html").exists()


def test_groups_with_long_names_stay_apart(tmp_path: Path) -> None:
    users = {"u0": "a-long-name-of-one", "u1": "a-long-name-of-two", "u2": ""}
    jobs = [replace(job, user=users[job.user or ""] or None) for job in logged(jobs_of(30))]
    write_backtest(backtest(read_logged(written(tmp_path, jobs))), tmp_path / "out")
    names = data_of(text_of(tmp_path / "out"))["chart-by-user"]["x"]["names"]
    assert len(set(names)) == 3
    assert {name[:16] for name in names} == {"(not stated)", "a-long-name-of-…"}
