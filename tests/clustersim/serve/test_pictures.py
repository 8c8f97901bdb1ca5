"""Pictures of a run: those along its log equal a plain replay of its events, at any time."""

from functools import cache
from pathlib import Path
from time import monotonic

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clustersim
from clustersim.records import ALLOCATES, ENDS, RELEASES, SUBMIT, EventRecord, Run
from clustersim.rundir import RunWriter
from traces import Job

pytest.importorskip("starlette", reason="starlette is not installed (extra: serve)")

from clustersim.serve import Curves, RunPicture, Timeline, Watched


@cache
def finished() -> Run:
    """Preemptions, failures, rejected jobs, jobs that share GPUs."""
    jobs = [
        Job(f"job-{i}", 40.0 * (i // 2), gpus=1 + 3 * (i % 4), duration_s=100.0 + 37.0 * (i * 7 % 11))
        for i in range(120)
    ]
    jobs += [Job(f"part-{i}", 55.0 * i, gpus=1, gpu_fraction=0.25, duration_s=400.0) for i in range(30)] + [
        Job("too-large", 10.0, gpus=640, duration_s=10.0)
    ]
    failures = {"mtbf_gpu_h": 8.0, "repair_scale": 0.05}
    return clustersim.run(jobs, "srtf", cluster="n4g8", failures=failures)


def plain(events: list[EventRecord], time_s: float) -> dict[str, object]:
    """The numbers of an instant, counted from all events up to it."""
    past = [event for event in events if event.time_s <= time_s]
    holding: dict[str, EventRecord] = {}
    inside: list[str] = []
    for event in past:
        if event.event == SUBMIT:
            inside.append(event.job_id)
        if event.event in ENDS:
            inside.remove(event.job_id)
        if event.event in ALLOCATES:
            holding[event.job_id] = event
        if event.event in RELEASES:
            holding.pop(event.job_id, None)
    return {
        "events": len(past),
        "running": [[j, holding[j].gpus, holding[j].time_s] for j in inside if j in holding],
        "queue": len([j for j in inside if j not in holding]),
        "finished": len([e for e in past if e.event == "finish"]),
        "time_s": past[-1].time_s if past else None,
        "before_s": max((e.time_s for e in past if e.time_s < past[-1].time_s), default=None),
    }


def numbers(picture: RunPicture) -> dict[str, object]:
    document = picture.document()
    kept = {key: document[key] for key in ("events", "queue", "time_s", "before_s")}
    running = [row[:3] for row in document["running"]]
    return {**kept, "running": running, "finished": document["ended"]["finish"]}


def timeline(events: list[EventRecord], length: int, most: int) -> Timeline:
    made = Timeline(lambda at: (events[at : at + length], min(len(events), at + length)), most)
    while made.grow():
        pass
    return made


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.integers(2, 8), st.floats(-10.0, 9000.0), st.data())
def test_the_picture_of_a_time_is_that_of_a_plain_replay(
    length: int, most: int, time_s: float, data: st.DataObject
) -> None:
    events = list(finished().events)
    line = timeline(events, length, most)
    assert len(line._kept) <= most
    for at in (time_s, data.draw(st.sampled_from(events)).time_s):
        picture, next_s = line.at(at)
        assert numbers(picture) == plain(events, at)
        assert next_s == min((e.time_s for e in events if e.time_s > at), default=None)


def test_gpus_in_use_are_those_of_the_snapshots() -> None:
    run = finished()
    line = timeline(list(run.events), 50, 8)
    for snapshot in list(run.snapshots)[::7]:
        document = line.at(snapshot.time_s)[0].document()
        assert (len(document["running"]), document["queue"]) == (snapshot.running, snapshot.pending)
        assert document["used"] == pytest.approx(snapshot.allocated)
    assert {event.event for event in run.events} >= {"preempt", "interrupt", "reject", "node_down"}


@pytest.mark.parametrize("limit", [10**6, 40])
def test_curves_are_those_of_all_instants_or_evenly_thinned(limit: int) -> None:
    curves, picture = Curves(limit), RunPicture()
    instants = {}
    for event in finished().events:
        picture.apply((event,))
        curves.note(picture)
        instants[event.time_s] = (picture.used, picture.running, picture.queue)
    panels = curves.document(32, 3, None)["chart"]["panels"]
    drawn = list(zip(*(panel["series"][0]["y"] for panel in panels), strict=True))
    stride = next(2**k for k in range(20) if len(instants) <= limit * 2**k)
    kept = [*instants.values()]
    assert drawn == kept[::stride] + ([] if (len(kept) - 1) % stride == 0 else kept[-1:])


def test_a_run_is_watched_to_its_end(tmp_path: Path) -> None:
    run = finished()
    with RunWriter(tmp_path / "run", run.cluster) as writer:
        watched, late = Watched(tmp_path / "run"), Watched(tmp_path / "run")
        assert watched.frame()["status"] == late.frame()["status"] == "running"
        writer.copy(run)
        writer.finish(run.policy, run.planner, run.summary, run.manifest, run.plans)
    seen = []
    while watched.status == "running":
        watched._next_at = monotonic()  # the next frame is due
        seen.append(watched.frame()["events"])
    assert seen == sorted(seen)
    assert len(seen) > 10
    assert seen[-1] == len(run.events)
    again = Watched(tmp_path / "run").frame()  # complete: shown at once
    assert again["status"] == "complete"
    assert again["events"] == len(run.events)
    late._next_at = monotonic() - 10.0  # no browser watched for so long: it sees the present
    assert late.frame()["events"] == len(run.events)
