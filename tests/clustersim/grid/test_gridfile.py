"""Grid files: what they mean, and what is said about those that mean nothing."""

from __future__ import annotations

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
