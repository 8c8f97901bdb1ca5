"""Grid files and what-ifs: what they mean, what is said about wrong ones, and the page of a grid."""

from __future__ import annotations

import re
from math import prod
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clustersim
from clustersim.cli import main
from clustersim.grid import Variation, WhatIf, plan_variation, read_plan
from clustersim.grid.expand import Grid, expand
from clustersim.grid.gridfile import read_document, read_grid_file
from clustersim.grid.page import axis_number, difference_rows
from clustersim.grid.page.document import Mean, Scale, better
from clustersim.grid.page.tables import best_rows, effect_rows, heat_maps
from itertime.errors import UserError
from itertime.spec.system import SYSTEMS as FOLDER
from tests.effort import examples
from tests.places import ROOT
from traces import Job, write_trace

TRACE = "job_id,submit_s,gpus,duration_s\na,0,8,60\nb,0,8,30\nc,10,4,5\n"


def grid_of(tmp_path: Path, text: str) -> Grid:
    path = tmp_path / "grid.yaml"
    path.write_text(text)
    return expand(*read_grid_file(path))


# What it means


def test_an_axis_of_labels_stands_for_settings(tmp_path: Path) -> None:
    text = """
set: {trace: t.csv, placement: spread}
matrix:
  scheduler: {theirs: {policy: elasticflow}, ours: {policy: elasticflow, planner: 3d}}
  trace: {small: s.csv, large: l.csv}
"""
    settings = dict(grid_of(tmp_path, text).cells[3].settings)
    assert settings == {"policy": "elasticflow", "planner": "3d", "placement": "spread", "trace": "l.csv"}


def test_scalars_are_those_of_yaml_1_2(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a: [yes, 1:30, 1e3, 010, 2026-01-01, '7', 0x10, ~, true, .5, 1_000]\n")
    data = read_document(path).data
    assert data == {"a": ["yes", "1:30", 1000.0, 10, "2026-01-01", "7", "0x10", None, True, 0.5, "1_000"]}


@settings(deadline=None, max_examples=examples(50))
@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.integers(1, 3), st.data())
def test_cells_are_the_product_less_what_is_excluded(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], seeds: int, data: st.DataObject
) -> None:
    names = ["policy", "trace.load", "overheads.launch_s"][: len(sizes)]
    axes = {name: [f"{name[0]}{i}" for i in range(size)] for name, size in zip(names, sizes, strict=True)}
    out = data.draw(st.fixed_dictionaries({}, optional={n: st.sampled_from(v) for n, v in axes.items()}))
    lines = ["matrix:", *(f"  {name}: {values}" for name, values in axes.items()), f"seeds: {seeds}"]
    if out:
        lines.append(f"exclude: [{{{', '.join(f'{n}: {v}' for n, v in out.items())}}}]")
    gone = prod(len(values) for name, values in axes.items() if name not in out) if out else 0
    left = (prod(sizes) - gone) * seeds
    text = "\n".join(lines)
    folder = tmp_path_factory.mktemp("grid")
    if left == 0:
        with pytest.raises(UserError, match="leaves no cell"):
            grid_of(folder, text)
        return
    grid = grid_of(folder, text)
    assert len(grid.cells) == left
    assert len({cell.label for cell in grid.cells}) == left
    assert not any(all(cell.axes[n] == v for n, v in out.items()) for cell in grid.cells if out)


# What makes no sense


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
        + "".join(
            f"{c}: &{c} [{', '.join([f'*{p}'] * 10)}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True)
        ),
        "a: &a [*a]\n",
        "[" * 5000,
        "a: " + "{a: " * 50 + "1" + "}" * 50,
    ],
    ids=["laughs", "recursive", "brackets", "deep"],
)
def test_documents_that_explode_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bomb.yaml"
    path.write_text(text)
    with pytest.raises(UserError):
        read_document(path)


def test_a_million_cells_are_refused_before_they_are_made(tmp_path: Path) -> None:
    axis = list(range(100))
    text = f"matrix:\n  policy: {axis}\n  trace.load: {axis}\n  trace.jobs: {axis}\n"
    with pytest.raises(UserError, match="1,000,000 cells; a grid has at most"):
        grid_of(tmp_path, text)
    with pytest.raises(UserError, match="bytes"):
        grid_of(tmp_path, "#" * 1_000_001)


# Keys


FIFO = "set: {trace: t.csv}\nmatrix: {policy: [fifo]}\n"
MINE = "set: {trace: t.csv}\nmatrix: {policy: ['mine.py:Mine']}\n"
IN_CLUSTER = "set: {trace: t.csv, cluster: made/cluster.yaml}\nmatrix: {policy: [fifo]}\n"
GENERATED = "set: {trace: {jobs: 3, rules: none, sizes: my.sizes.yaml}}\nmatrix: {policy: [fifo]}\n"
MODELS = "set: {trace: m.csv, model_path: [made]}\nmatrix: {policy: [fifo]}\n"
SYSTEM = (FOLDER / "dgx-a100-80gb.yaml").read_text()
SOUND = {
    "t.csv": TRACE,
    "other.csv": TRACE,
    "made/site.yaml": SYSTEM,
    "made/cluster.yaml": "groups:\n  - {name: ours, system: site.yaml, nodes: 2}\n"
    "  - {name: old, gpu_type: v100, nodes: 2}\n",
    "mine.py": "from clustersim import Scheduler\nimport ranks\nclass Mine(Scheduler):\n    pass\n",
    "ranks.py": "rank = len\n",
    "m.csv": "job_id,submit_s,model,global_batch,iterations,gpus\na,0,small,64,20,8\n",
    "made/small.yaml": "extends: gpt3-1.3b\nlayers: 12\n",
    "my.sizes.yaml": "source: me\nsizes:\n  - {gpus: 8, share: 1, exponential: {mean_s: 60}}\n",
}


@pytest.mark.parametrize(
    ("grid", "changed_file", "content", "same"),
    [
        (FIFO, "grid.yaml", "# moved\n" + FIFO, True),
        (FIFO, "grid.yaml", FIFO + "limits: {time_s: 5}\nwindow: {warmup_s: 5}\n", True),
        (FIFO, "grid.yaml", FIFO.replace("t.csv", "other.csv"), True),  # equal content
        (FIFO, "grid.yaml", FIFO + "seeds: [1]\n", False),
        (FIFO, "grid.yaml", FIFO.replace("t.csv", "t.csv, placement: spread"), False),
        (FIFO, "t.csv", TRACE.replace("60", "61"), False),
        (IN_CLUSTER, "made/site.yaml", SYSTEM + "# a comment changes nothing\n", True),
        (IN_CLUSTER, "made/site.yaml", SYSTEM.replace("gpus_per_node: 8", "gpus_per_node: 4"), False),
        (MINE, "mine.py", SOUND["mine.py"] + "# another version\n", False),
        (MINE, "ranks.py", "rank = hash\n", False),
        (MODELS, "made/small.yaml", "extends: gpt3-1.3b\nlayers: 36\n", False),
        (GENERATED, "my.sizes.yaml", SOUND["my.sizes.yaml"].replace("60", "61"), False),
    ],
)
def test_the_key_is_the_hash_of_what_the_result_depends_on(
    here: Path, grid: str, changed_file: str, content: str, same: bool
) -> None:
    """Of the grid itself, and of the content of every file that it names, or that one of these names."""
    (here / "made").mkdir()
    keys = []
    for files in ({**SOUND, "grid.yaml": grid}, {changed_file: content}):
        for name, text in files.items():
            (here / name).write_text(text)
        keys.append([planned.key for planned in read_plan("grid.yaml").cells])
    assert (keys[0] == keys[1]) == same


def test_the_example_of_the_page_is_a_grid(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "grids.md").read_text(encoding="utf-8")
    example = page.partition("## An example")[2].partition("\n\n")[2].partition("\n\n")[0]
    (tmp_path / "buy.yaml").write_text("\n".join(line[4:] for line in example.splitlines()))
    assert len(read_plan(tmp_path / "buy.yaml").cells) == 4 * 2 * 20


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"#" * 1_000_001, "has 1,000,001 bytes"),
        (b"a: 1\nb: \xe9\n", r"g\.yaml:2: byte 0xe9 is not UTF-8 text"),
    ],
    ids=["large", "latin-1"],
)
def test_a_grid_file_is_a_text_file_of_limited_size(tmp_path, content, error):
    (tmp_path / "g.yaml").write_bytes(content)
    with pytest.raises(UserError, match=error):
        read_plan(tmp_path / "g.yaml")


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
