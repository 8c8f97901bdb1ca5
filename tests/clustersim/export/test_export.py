"""Figures and traces for Perfetto: they show the run, and the same run gives the same bytes."""

import gzip
import json
import re
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clustersim
from clustersim import Run, write_run
from clustersim.cli import main
from clustersim.export import KINDS, figures, save, write_timeline
from clustersim.export.perfetto import timeline_events
from clustersim.grid import Results
from clustersim.grid.comparisons import Result
from clustersim.records import EventRecord
from itertime.errors import UserError
from itertime.io.figures import ENDINGS
from tests.effort import rotated
from traces import Job

matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed (extra: plots)")


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    jobs = [Job(f"j$_{{{i}", 20.0 * i, gpus=1 + i % 8, duration_s=100.0 + 7 * i) for i in range(30)]
    jobs.append(Job("never", 0.0, gpus=99, duration_s=1.0))
    return [clustersim.run(jobs, policy, cluster="n3g8") for policy in ("fifo", "srtf")]


@pytest.mark.parametrize(("kind", "ending"), rotated(KINDS, ENDINGS))
def test_files_are_repeatable(runs: list[Run], kind: str, ending: str, tmp_path: Path) -> None:
    contents = []
    for name in ("a", "b"):
        with figures() as plt:
            save(KINDS[kind](plt, runs), tmp_path / f"{name}.{ending}")
        contents.append((tmp_path / f"{name}.{ending}").read_bytes())
    assert contents[0] == contents[1]
    assert contents[0].startswith({"pdf": b"%PDF", "svg": b"<?xml", "png": b"\x89PNG"}[ending])


def test_a_completion_curve_ends_at_the_share_that_finished(runs: list[Run]) -> None:
    with figures() as plt:
        (axes,) = KINDS["jct-cdf"](plt, runs).axes
        for line, run in zip(axes.lines, runs, strict=True):
            assert line.get_ydata()[-1] == pytest.approx(100 * 30 / 31)
            assert np.asarray(line.get_xdata()) == pytest.approx(
                sorted(job.jct_s / 3600 for job in run.jobs if job.jct_s is not None)
            )


def test_bars_of_a_gantt_cover_what_was_held(runs: list[Run]) -> None:
    with figures() as plt:
        figure = KINDS["gantt"](plt, runs)
        for axes, run in zip(figure.axes, runs, strict=True):
            boxes = [path.get_extents() for path in axes.collections[0].get_paths()]
            unit_s = 60.0 if "minutes" in figure.axes[-1].get_xlabel() else 1.0
            area = sum(box.width * unit_s * box.height * 8 for box in boxes)
            assert area == pytest.approx(sum(job.gpu_seconds for job in run.jobs))


# Figures of a grid


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return clustersim.grid(
        {
            "set": {"cluster": "n2g8", "trace": {"jobs": 12, "gpus": 16}, "planner": "data-parallel"},
            "matrix": {"policy": ["fifo", "srtf"], "trace.load": [0.5, 1, 2]},
            "seeds": 3,
        },
        out=tmp_path_factory.mktemp("grid") / "study",
    )


def _mean_hours(results: Results, **axes: object) -> tuple[float, float]:
    """The mean JCT of a cell, and half its interval: Student's t with 2 degrees of freedom."""
    values = [r.metrics["jct_mean_s"] / 3600 for r in results if {**r.axes, **axes} == r.axes]
    return float(np.mean(values)), 4.302653 * float(np.std(values, ddof=1)) / 3**0.5


def test_bars_over_policies_are_means_with_intervals(results: Results) -> None:
    figure = results.plot(x="policy", where={"trace.load": 1.0}).figure
    for bar, policy in zip(figure.axes[0].patches, ("fifo", "srtf"), strict=True):
        assert bar.get_height() == pytest.approx(
            _mean_hours(results, **{"policy": policy, "trace.load": 1})[0]
        )
    (bars,) = figure.axes[0].collections
    for (low, high), policy in zip(
        (segment[:, 1] for segment in bars.get_segments()), ("fifo", "srtf"), strict=True
    ):
        assert (high - low) / 2 == pytest.approx(
            _mean_hours(results, **{"policy": policy, "trace.load": 1})[1]
        )
    assert figure.get_size_inches()[0] == 3.4
    grouped = results.plot(x="policy", interval=False, width="text").figure
    assert (len(grouped.axes[0].patches), len(grouped.axes[0].collections)) == (6, 0)


def test_the_answer_names_the_best_of_those_that_finish_as_much(results: Results) -> None:
    below = [
        100 * (1 - _mean_hours(results, **{"policy": "srtf", "trace.load": load})[0] / base)
        for load in (0.5, 1, 2)
        if (base := _mean_hours(results, **{"policy": "fifo", "trace.load": load})[0])
    ]
    assert results.answer(results.compare({"policy": "fifo"})).startswith("srtf: best JCT mean in ")
    by_policy = replace(results, baseline={"policy": "fifo"})
    assert f"{min(below):.1f} to {max(below):.1f} % below fifo" in by_policy.answer()

    def declining(result: Result) -> Result:
        metrics = {**result.metrics, "finished": 9} if result.axes["policy"] == "srtf" else result.metrics
        return replace(result, metrics=metrics)

    picky = replace(results, results=tuple(map(declining, results)))
    assert picky.answer() == (
        "fifo: best JCT mean in 3 of 3 cells (of those that finish nearly as many jobs as any)"
    )


def test_the_answer_prefers_no_value_to_its_equal(results: Results) -> None:
    hours = {0.5: 3.0, 1: 1.0, 2: 2.0}
    equal = [replace(r, metrics={"finished": 9, "jct_mean_s": hours[r.axes["trace.load"]]}) for r in results]
    assert replace(results, results=tuple(equal)).answer().startswith("load 1: best JCT mean in 2 of 2 cells")
    failed = [replace(r, status="failed") if r.axes["policy"] == "fifo" else r for r in equal]
    assert replace(results, results=tuple(failed)).answer() == "load 1: best JCT mean of 3 values"


def test_lines_and_heat_maps_show_every_cell(results: Results) -> None:
    lines = results.plot(interval=False).figure.axes[0].lines
    for line, policy in zip(lines, ("fifo", "srtf"), strict=True):
        assert list(line.get_xdata()) == [0.5, 1, 2]
        for load, height in zip((0.5, 1, 2), line.get_ydata(), strict=True):
            assert height == pytest.approx(_mean_hours(results, **{"policy": policy, "trace.load": load})[0])
    (image,) = results.plot(x="policy", y="trace.load").figure.axes[0].images
    assert image.get_array()[2, 1] == pytest.approx(
        _mean_hours(results, **{"policy": "srtf", "trace.load": 2})[0]
    )
    completions = results.plot("jct-cdf", where={"trace.load": 2}).figure.axes[0].lines
    assert len(completions) == 6


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"metric": "jct_man_s"}, "did you mean jct_mean_s"),
        ({"x": "lod"}, "unknown axis 'lod'"),
        ({"kind": "pie"}, "unknown kind of plot 'pie'"),
        ({"kind": "lines", "x": "policy"}, "policy=fifo: is not a number"),
        ({"where": {"trace.load": 3}}, "unknown value of trace.load '3'"),
        ({"x": "policy", "y": "policy"}, "a heat map needs two axes"),
        ({"metric": "gantt"}, "name a value of trace.load"),
        ({"width": "wide"}, "width=wide: must be column, text or 1 to 40 inches"),
    ],
)
def test_what_cannot_be_drawn_is_named(results: Results, settings: dict[str, Any], text: str) -> None:
    with pytest.raises(UserError, match=re.escape(text)):
        results.plot(**settings)


def test_the_command(
    runs: list[Run], results: Results, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def plot(*words: object) -> int:
        return main(["plot", *map(str, words)])

    for run in runs:
        write_run(tmp_path / "c" / run.policy, run)
    assert plot(tmp_path / "c", "--kind", "jct-cdf", "-o", tmp_path / "f.svg") == 0
    assert plot(tmp_path / "c", "--metric", "wait_mean_s") == 0
    assert plot(results.folder, "--where", "trace.load=2.0", "-o", tmp_path / "s.pdf") == 0
    assert capsys.readouterr().out.split() == [
        str(tmp_path / name) for name in ("f.svg", "c/wait_mean_s.pdf", "s.pdf")
    ]
    for words, text in [
        (["c", "--kind", "gant"], "did you mean gantt"),
        (["c", "--kind", "gantt", "-o", "g.gif"], "let the name end in .pdf, .svg, .png"),
        (["c", "--x", "trace.load"], "holds runs, which have no axis but the policy"),
        ([results.folder, "--where", "trace.load"], "must be AXIS=VALUE"),
        ([results.folder, "--where", "policy=fifo", "--where", "policy=srtf"], "state one value"),
    ]:
        assert plot(tmp_path / words[0], *words[1:]) == 2
        assert text in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c", "f.svg", "s.pdf"]


# The trace for Perfetto


EVIL = '<script>alert(1)</script>"\\'


@pytest.fixture(scope="module")
def run() -> Run:
    jobs = [Job(EVIL, 1000.0, gpus=12, duration_s=500.0, tenant=EVIL)]
    jobs += [Job(f"j{i}", 1000.0 + 30 * i, gpus=1 + i % 4, duration_s=100.0 + i) for i in range(12)]
    return clustersim.run(jobs, "srtf", cluster="n2g8")


def test_the_gpus_are_held_as_the_records_say(run: Run) -> None:
    held: dict[str, int] = defaultdict(int)
    by_gpu: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for event in timeline_events(run):
        if event["ph"] == "X" and event["cat"] != "overhead":
            held[event["name"]] += event["dur"]
            by_gpu[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert held == pytest.approx({job.job_id: job.gpu_seconds * 1e6 for job in run.jobs}, abs=100)
    assert len(by_gpu) == 16
    for spells in by_gpu.values():
        spells.sort()
        assert all(end <= begin + 1 for (_, end), (begin, _) in pairwise(spells))


def test_time_begins_with_the_first_submission_and_counters_follow_the_cluster(run: Run) -> None:
    events = list(timeline_events(run))
    counts = [e for e in events if e["ph"] == "C" and e["name"] == "GPUs"]
    assert len(counts) == len(run.snapshots)
    assert all(sum(e["args"].values()) == 16 for e in counts)
    assert min(e["ts"] for e in events if "ts" in e) == 0
    assert max(e["args"]["allocated"] for e in counts) > 8


def test_overhead_is_nested_in_what_pays_it(run: Run) -> None:
    events = [e for e in timeline_events(run) if e["ph"] == "X"]
    overheads = [e for e in events if e["cat"] == "overhead"]
    assert overheads
    for overhead in overheads:
        around = [
            e for e in events
            if e is not overhead and (e["pid"], e["tid"]) == (overhead["pid"], overhead["tid"])
            and e["ts"] == overhead["ts"] and e["dur"] >= overhead["dur"]
        ]  # fmt: skip
        assert len(around) == 1


def test_outages_are_marked(run: Run) -> None:
    down = EventRecord(1010.0, "node_down", "", 0, ((1, 8),), "", 0.0, "")
    marked = Run(**{**{n: getattr(run, n) for n in run.__dataclass_fields__}, "events": [*run.events, down]})
    (mark,) = [e for e in timeline_events(marked) if e["ph"] == "i"]
    assert (mark["pid"], mark["ts"], mark["name"]) == (2, 10_000_000, "node down")


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_the_file_is_json_and_the_same_every_time(run: Run, tmp_path: Path, name: str) -> None:
    count = write_timeline(run, tmp_path / name)
    content = (tmp_path / name).read_bytes()
    write_timeline(run, tmp_path / name)
    assert (tmp_path / name).read_bytes() == content
    document = json.loads(gzip.decompress(content) if name.endswith("gz") else content)
    assert len(document["traceEvents"]) == count
    assert EVIL in {event["name"] for event in document["traceEvents"]}
