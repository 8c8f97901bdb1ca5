"""Grid files: what they mean, and what is said about those that mean nothing."""

from __future__ import annotations

import os
from math import prod
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.grid import read_plan
from clustersim.grid.expand import Grid, expand
from clustersim.grid.gridfile import read_document, read_grid_file
from itertime.errors import UserError
from itertime.spec.system import SYSTEMS as FOLDER
from tests.effort import examples
from tests.places import ROOT

TRACE = "job_id,submit_s,gpus,duration_s\na,0,8,60\nb,0,8,30\nc,10,4,5\n"


def grid_of(tmp_path: Path, text: str) -> Grid:
    path = tmp_path / "grid.yaml"
    path.write_text(text)
    return expand(*read_grid_file(path))


# What it means


def test_the_matrix_is_multiplied_out_with_seeds_innermost(tmp_path: Path) -> None:
    grid = grid_of(tmp_path, "matrix:\n  policy: [fifo, srtf]\n  trace.load: [0.5, 1]\nseeds: 2\n")
    labels = [cell.label for cell in grid.cells]
    assert labels[:3] == [
        "policy=fifo, trace.load=0.5, seed=0",
        "policy=fifo, trace.load=0.5, seed=1",
        "policy=fifo, trace.load=1, seed=0",
    ]
    assert len(labels) == 8


def test_an_axis_of_labels_stands_for_settings(tmp_path: Path) -> None:
    text = """
set: {trace: t.csv, placement: spread}
matrix:
  scheduler:
    theirs: {policy: elasticflow}
    ours: {policy: elasticflow, planner: 3d}
  trace: {small: s.csv, large: l.csv}
"""
    cells = grid_of(tmp_path, text).cells
    assert [dict(cell.axes) for cell in cells] == [
        {"scheduler": s, "trace": t} for s in ("theirs", "ours") for t in ("small", "large")
    ]
    wanted = {"policy": "elasticflow", "planner": "3d", "placement": "spread", "trace": "l.csv"}
    assert dict(cells[3].settings) == wanted


def test_exclude_takes_away_and_include_adds(tmp_path: Path) -> None:
    text = """
matrix:
  policy: [fifo, srtf, edf]
  trace.load: [0.5, 0.9]
exclude:
  - {policy: [srtf, edf], trace.load: 0.9}
include:
  - {policy: srtf, trace.load: 2.0, placement: spread}
seeds: [3]
"""
    grid = grid_of(tmp_path, text)
    assert grid.axes == ("policy", "trace.load", "placement")
    assert [tuple(cell.axes.values()) for cell in grid.cells] == [
        ("fifo", 0.5, None), ("fifo", 0.9, None), ("srtf", 0.5, None), ("edf", 0.5, None),
        ("srtf", 2.0, "spread"),
    ]  # fmt: skip
    assert grid.excluded == 2
    assert all(cell.seed == 3 for cell in grid.cells)


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


def plan_keys(folder: Path, text: str) -> list[str]:
    path = folder / "grid.yaml"
    path.write_text(text)
    return [planned.key for planned in read_plan(path).cells]


def test_the_key_is_the_hash_of_what_the_result_depends_on(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TRACE)
    (tmp_path / "other.csv").write_text(TRACE)
    text = "set: {trace: t.csv}\nmatrix: {policy: [fifo]}\n"
    key = plan_keys(tmp_path, text)
    assert plan_keys(tmp_path, "# moved\n" + text) == key
    assert plan_keys(tmp_path, text + "limits: {time_s: 5}\nwindow: {warmup_s: 5}\n") == key
    assert plan_keys(tmp_path, text.replace("t.csv", "other.csv")) == key  # equal content
    assert plan_keys(tmp_path, text + "seeds: [1]\n") != key
    assert plan_keys(tmp_path, text.replace("t.csv", "t.csv, placement: spread")) != key
    (tmp_path / "t.csv").write_text(TRACE.replace("60", "61"))
    assert plan_keys(tmp_path, text) != key


def test_the_key_follows_the_systems_that_a_cluster_file_names(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TRACE)
    (tmp_path / "made").mkdir()
    site = tmp_path / "made" / "site.yaml"
    site.write_text((FOLDER / "dgx-a100-80gb.yaml").read_text())
    (tmp_path / "made" / "cluster.yaml").write_text(
        "groups:\n  - {name: ours, system: site.yaml, nodes: 2}\n  - {name: old, gpu_type: v100, nodes: 2}\n"
    )
    text = "set: {trace: t.csv, cluster: made/cluster.yaml}\nmatrix: {policy: [fifo]}\n"
    key = plan_keys(tmp_path, text)
    site.write_text(site.read_text() + "# a comment changes nothing\n")
    assert plan_keys(tmp_path, text) == key
    site.write_text(site.read_text().replace("gpus_per_node: 8", "gpus_per_node: 4"))
    assert plan_keys(tmp_path, text) != key


def test_the_key_follows_the_content_of_policy_files_and_rules(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TRACE)
    policy = tmp_path / "mine.py"
    policy.write_text("from clustersim import Scheduler\n\n\nclass Mine(Scheduler):\n    pass\n")
    text = "set: {trace: t.csv}\nmatrix: {policy: ['mine.py:Mine']}\n"
    key = plan_keys(tmp_path, text)
    policy.write_text(policy.read_text() + "# another version\n")
    assert plan_keys(tmp_path, text) != key
    sizes = tmp_path / "my.sizes.yaml"
    sizes.write_text("source: me\nsizes:\n  - {gpus: 8, share: 1, exponential: {mean_s: 60}}\n")
    text = "set: {trace: {jobs: 3, rules: none, sizes: my.sizes.yaml}}\nmatrix: {policy: [fifo]}\n"
    key = plan_keys(tmp_path, text)
    sizes.write_text(sizes.read_text().replace("60", "61"))
    assert plan_keys(tmp_path, text) != key


def test_the_example_of_the_page_is_a_grid(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "grids.md").read_text(encoding="utf-8")
    example = page.partition("## An example")[2].partition("\n\n")[2].partition("\n\n")[0]
    (tmp_path / "buy.yaml").write_text("\n".join(line[4:] for line in example.splitlines()))
    assert len(read_plan(tmp_path / "buy.yaml").cells) == 4 * 2 * 20


@pytest.mark.parametrize("kind", ["pipe", "device", "large", "latin-1"])
def test_a_grid_file_is_a_text_file_of_limited_size(tmp_path, kind):
    path = tmp_path / "g.yaml"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.write_bytes(b"#" * 1_000_001 if kind == "large" else b"a: 1\nb: \xe9\n")
    says = {"large": "has 1,000,001 bytes", "latin-1": r"g\.yaml:2: byte 0xe9 is not UTF-8 text"}
    with pytest.raises(UserError, match=says.get(kind, "is not a regular file")):
        read_plan(path)
