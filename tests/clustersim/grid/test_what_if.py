"""What-ifs: grids of settings over one trace, as a library and as commands; and the page of a grid."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

import clustersim
from clustersim.cli import main
from clustersim.grid import Variation, WhatIf, plan_variation
from clustersim.grid.page import axis_number, difference_rows
from clustersim.grid.page.document import Mean, Scale, better
from clustersim.grid.page.tables import best_rows, effect_rows, heat_maps
from itertime.errors import UserError
from traces import Job, write_trace

JOBS = [Job(f"j{i}", 120.0 * i, gpus=4 + 4 * (i % 3), duration_s=900.0 + 60 * (i % 7)) for i in range(24)]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("what-if") / "jobs.csv"
    write_trace(JOBS, path)
    return path


@pytest.fixture(scope="module")
def found(trace: Path, tmp_path_factory: pytest.TempPathFactory) -> WhatIf:
    """Two policies on two sizes of a cluster, with two costs of a launch."""
    folder = tmp_path_factory.mktemp("results") / "sizes"
    return clustersim.what_if(
        trace, ["fifo", "srtf"], {"nodes": [2, 3], "overheads.launch_s": [0, 60]},
        cluster="n2g8", out=folder, workers=1,
    )  # fmt: skip


def test_differences_are_to_the_first_values(found: WhatIf) -> None:
    assert found.baseline == {"policy": "fifo", "nodes": 2, "overheads.launch_s": 0}
    base = next(one for one in found if dict(one.axes) == dict(found.baseline))
    frame = found.to_pandas().set_index(["policy", "nodes", "overheads.launch_s"])
    compared = [one for one in found.compare() if one.metric == "jct_mean_s"]
    assert len(compared) == 7
    for one in compared:
        own = frame.loc[tuple(one.axes.values()), "jct_mean_s"]
        assert one.difference.difference == pytest.approx(own - base.metrics["jct_mean_s"])


def test_a_what_if_shows_itself(found: WhatIf, tmp_path: Path) -> None:
    assert repr(found) == "<WhatIf of 8 runs: policy=fifo, srtf; nodes=2, 3; overheads.launch_s=0, 60>"
    table = found._repr_html_()
    assert "Against policy=fifo, nodes=2, overheads.launch_s=0" in table
    assert table.count("<tr>") == 1 + len(difference_rows(found.document())[1])
    assert found.plot()._repr_png_()[:4] == b"\x89PNG"
    found.report().save(tmp_path / "page.html")
    assert "<!doctype html>" in (tmp_path / "page.html").read_text()


def test_data_frames_are_traces_and_a_folder_of_its_own_goes() -> None:
    frame = pd.DataFrame(
        {"job_id": ["a", "b"], "submit_s": [0.0, 1.0], "gpus": [8, 8], "duration_s": [60.0, 60.0]}
    )
    settings = {"overheads": None, "cluster": "n1g8"}
    made = clustersim.what_if(frame, "fifo", {"nodes": [1, 2]}, workers=1, **settings)
    assert [result.metrics["makespan_s"] for result in made] == [120.0, 61.0]
    assert made[0].run().policy == "fifo"
    folder = made.folder
    assert folder.is_dir()
    del made
    assert not folder.exists()


def test_values_of_the_system_are_varied(trace: Path, tmp_path: Path) -> None:
    variation = Variation(["fifo"], {"system.nic_gbps": [100, 200]})
    plan = plan_variation(trace, variation, {}, tmp_path / "x")
    assert [cell.inputs.config.system for cell in plan.cells] == [
        "dgx-a100-80gb,nic_gbps=100", "dgx-a100-80gb,nic_gbps=200",
    ]  # fmt: skip


def test_a_refused_data_frame_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nodes"):
        clustersim.what_if(JOBS[:2], "fifo", {"nodes": [1, "x"]}, out=tmp_path / "bad", workers=1)
    assert list(tmp_path.iterdir()) == []


def test_pages_of_runs_and_their_links(found: WhatIf, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(found.folder), "--pages", "2"]) == 0
    page = (found.folder / "report.html").read_text()
    links = re.findall(r'href="(runs/\w+\.html)"', page)
    assert len(links) == 2
    assert all((found.folder / link).is_file() for link in links)
    assert main(["report", str(found.folder), "--baseline", "fifo"]) == 2
    assert "its file states baseline" in capsys.readouterr().err


def test_what_the_page_of_a_grid_says(found: WhatIf) -> None:
    document = found.document()
    maps, left_out = heat_maps(document)
    assert left_out == 0
    assert len(maps) == 3 * 2 * len(document.varying) == 18  # pairs of axes, values of the third, metrics
    axis, others, best = best_rows(document)
    assert (axis, others) == ("policy", ["nodes", "overheads.launch_s"])
    frame = found.to_pandas()
    for row in best:
        if row.metric.startswith("JCT mean"):
            cell = frame[
                (frame["nodes"] == int(row.labels[0])) & (frame["overheads.launch_s"] == int(row.labels[1]))
            ]
            least = cell["jct_mean_s"].min()
            assert set(row.winner.split(", ")) == set(cell.loc[cell["jct_mean_s"] == least, "policy"])
    assert all(row.trend == "" for m in document.scales for row in effect_rows(document, m)), "one seed"


def test_one_unit_for_each_metric() -> None:
    hours = Scale.of("jct_mean_s", [7200.0 * 5, 60.0])
    assert hours.head == "JCT mean, h"
    assert (hours.text(7200.0), hours.text(-7200.0, signed=True)) == ("2.00", "−2.00")
    assert hours.text(-360.0, signed=True) == "−0.100"
    share = Scale.of("deadline_met_ratio", [0.5])
    assert (share.head, share.text(0.25), share.text(None)) == ("Deadlines met, %", "25.0", "–")
    assert Scale.of("rejected", [3.0]).text(4.0) == "4"
    assert (better("deadline_met_ratio"), better("wait_mean_s"), better("events")) == ("higher", "lower", "")
    numbers = [axis_number(value) for value in (1, "0.5", "small", True, None, "nan")]
    assert numbers == [1, 0.5, *[None] * 4]
    mean = Mean.of([1.0, 2.0, 3.0])
    assert mean is not None
    assert (mean.mean, mean.half) == (2.0, pytest.approx(4.30265 / 3**0.5, rel=1e-4))


def test_hostile_names_do_not_become_markup(tmp_path: Path) -> None:
    evil = "<script>alert(1)<script>"
    policy = tmp_path / "evil.py"
    policy.write_text("from policies.fifo import Fifo\nclass Own(Fifo):\n    pass\n")
    made = clustersim.what_if(
        JOBS[:3], f"{policy}:Own", {"placement": ["pack", "any"]}, cluster="n2g8", workers=1
    )
    object.__setattr__(made, "name", evil)
    page = made.report().text
    assert evil not in page
    assert "&lt;script&gt;alert(1)" in page
