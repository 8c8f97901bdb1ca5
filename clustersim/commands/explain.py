"""`clustersim explain`: the story of one job, and the reasons for its waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .output.waits import counted, named, num, wait_lines

if TYPE_CHECKING:
    from clustersim.analysis import Explanation, Spell, Wait
    from clustersim.records import EventRecord, JobRecord, PlanKey, PlanRecord
    from clustersim.rundir import StreamedRun

    from .output.replays import Replay

__all__ = ["explain"]

_VERBS = {
    "start": "started on", "restart": "restarted on", "resize": "resized to", "migrate": "migrated, to",
    "replan": "went on with",
}  # fmt: skip
_ENDS = {
    "finish": "finished", "preempt": "preempted", "resize": "resized", "migrate": "migrated",
    "interrupt": "interrupted", "fail": "failed", "replan": "replanned",
    "requeue": "requeued",
}  # fmt: skip


def explain(
    folder: Annotated[Path, typer.Argument(help="Folder of `run --out` or `compare --out`.")],
    job: Annotated[str, typer.Option(help="The id of a job in the trace.")],
) -> None:
    """Tell why one job waited, where it ran, and at what cost.

    Prints each wait, each allocation with its nodes and plan, and the cost of overheads, preemptions and
    resizes. For a comparison, the story under each policy.
    """
    from clustersim.analysis import explain as explained
    from clustersim.gctuning import collect_less_often
    from clustersim.rundir import read_streamed, refuse_changed

    from .output.runs import of_sound_records, run_folders
    from .output.terminal import plain, say

    for home in run_folders(folder):
        with collect_less_often():
            run = read_streamed(home)
            refuse_changed(home, run)
            with of_sound_records([home]):
                story = explained(run, job)
                lines, replays, obstacle = list(_lines(run, story)), *_replays(run, story)
        for line in lines:
            say(line, indent=8)
        if replays:
            say("  its plans again, in order:")
        for replay in replays:
            print(plain(replay.command))  # on one line, to be copied
            if replay.differs:
                recorded, present = f"{replay.recorded_s:.6g}", f"{replay.iteration_s:.6g}"
                say(f"  an iteration took {recorded} s in the run, and takes {present} s with today's files")
        if obstacle:
            say(f"  its plans cannot be predicted any more: {obstacle}")


def _lines(run: StreamedRun, story: Explanation) -> Iterator[str]:
    from clustersim.analysis import Wait
    from clustersim.records import plan_key

    job = story.record
    software = " ".join(filter(None, (job.framework, job.precision, job.plan_options)))
    gpus = counted(job.gpus) if job.gpus else ""
    description = ", ".join(text for text in (job.model, software, gpus, job.tenant) if text)
    yield f"job {job.job_id} ({description}) under {run.policy}: {job.state}" + (
        f", {job.reason}" if job.reason else ""
    )
    yield (
        f"  t={num(job.submit_s)} s: {'submitted' if story.submitted else 'would have been submitted'}"
        + (f", to be done by t={num(job.deadline_s)} s" if job.deadline_s is not None else "")
    )
    varying = _varying_plans(run, job)
    notes = deque(story.notes)
    for spell in story.spells:
        begins_s = spell.from_s if isinstance(spell, Wait) else spell.given.time_s
        while notes and (notes[0].time_s, notes[0].event == "note") < (begins_s, True):
            yield _noted(notes.popleft())
        if isinstance(spell, Wait):
            yield from _wait(run, spell, job)
        else:
            yield from _ran(run, spell, varying.get(plan_key(job, spell.given, run.cluster)))
    yield from map(_noted, notes)
    if job.jct_s is not None:
        held_s, undone = job.held_s or 0.0, bool(job.interruptions or job.requeues)
        yield (
            f"  in all {num(job.jct_s)} s: "
            + (f"{num(held_s)} s on hold, " if held_s else "")
            + f"{num(job.wait_s)} s of waiting, "
            f"{num(job.lost_s - job.lost_work_s)} s of overheads, "
            + (f"{num(job.lost_work_s)} s of work that was lost, " if undone else "")
            + f"{num(job.jct_s - job.wait_s - held_s - job.lost_s)} s of progress"
        )
    if job.deadline_met is not None:
        yield f"  deadline {'met' if job.deadline_met else 'missed'}"
    yield from _costs(story)


def _replays(run: StreamedRun, story: Explanation) -> tuple[list[Replay], str]:
    """What predicts the plans of a job, in the order in which it ran them, and what is in the way of it."""
    from clustersim.analysis import Spell
    from clustersim.records import plan_key
    from itertime.errors import UserError

    from .output.replays import replay_of

    plans = {plan.key: plan for plan in run.plans}
    try:
        keys = [plan_key(story.record, s.given, run.cluster) for s in story.spells if isinstance(s, Spell)]
        replays = [replay_of(run, plans[key]) for key in dict.fromkeys(keys) if key in plans]
    except UserError as error:
        return [], str(error)
    return [replay for replay in dict.fromkeys(replays) if replay is not None], ""


def _noted(event: EventRecord) -> str:
    happened = {"hold": f"held: {event.detail}", "eligible": "eligible"}.get(event.event)
    return f"  t={num(event.time_s)} s: {happened or f'noted by the policy: {event.detail}'}"


def _wait(run: StreamedRun, wait: Wait, job: JobRecord) -> Iterator[str]:
    yield f"  t={num(wait.from_s)} s: waited {num(wait.to_s - wait.from_s)} s for {counted(wait.needed)}"
    host_demands = [] if job.cpus_per_gpu is None else [f"{num(job.cpus_per_gpu)} cores"]
    host_demands += [] if job.host_gb_per_gpu is None else [f"{num(job.host_gb_per_gpu)} GB of host memory"]
    yield from wait_lines(
        wait, run.cluster.gpus, " and ".join(host_demands) if run.cluster.states_host else ""
    )


def _varying_plans(run: StreamedRun, job: JobRecord) -> dict[PlanKey, PlanRecord]:
    """The plans of jobs like this one whose iterations differ in time; only options of a plan make them."""
    from clustersim.records import spread_words

    if not job.plan_options:
        return {}
    return {plan.key: plan for plan in run.plans if spread_words(plan)}


def _ran(run: StreamedRun, spell: Spell, varying: PlanRecord | None) -> Iterator[str]:
    from clustersim.records import plan_words, spread_words
    from clustersim.rundir import placement_text

    event = spell.given
    plan = f", plan {plan_words(event.plan)}" if event.plan else ""
    kind = run.cluster.type_of(event.placement[0][0]) if run.cluster.mixed else ""
    where = f"{counted(event.gpus, kind)}, nodes {placement_text(event.placement)}{plan}"
    if event.detail:  # the phase of a job in phases, and its batch
        where += f", {event.detail}"
    yield f"  t={num(event.time_s)} s: {_VERBS[event.event]} {where}"
    if varying is not None:
        mean = f"{1000 * varying.iteration_s:,.4g} ms on average"
        yield f"      nine in ten iterations take {spread_words(varying)} by the samples drawn, {mean}"
    if spell.paid_s > 0:
        yield f"      paid {num(spell.paid_s)} s of overhead, {num(spell.paid_s * event.gpus)} GPU-seconds"
    takers = f"; its nodes went to {named(spell.takers)}" if spell.takers else ""
    end = "still running when the run ended" if spell.ended is None else _ENDS[spell.ended]
    reason = f" ({spell.why})" if spell.why else ""
    yield f"      t={num(spell.to_s)} s: {end} after {num(spell.to_s - event.time_s)} s{reason}{takers}"
    if spell.ended == "interrupt":
        yield (
            f"      lost the work of {num(spell.lost_s)} s, {num(spell.lost_s * event.gpus)} GPU-seconds, "
            "done since its last checkpoint"
        )
    elif spell.ended == "requeue":
        yield f"      lost the work of {num(spell.lost_s)} s, all that it had done"


def _costs(story: Explanation) -> Iterator[str]:
    """The cost of each kind of change, with the waits after preemptions and failures."""
    from clustersim.analysis import Spell, Wait

    for kind in _VERBS:
        spells = [s for s in story.spells if isinstance(s, Spell) and s.given.event == kind]
        if spells and (kind != "replan" or any(s.paid_s for s in spells)):
            gpu_s = sum(s.paid_s * s.given.gpus for s in spells)
            paid_s = sum(s.paid_s for s in spells)
            yield f"  cost of {_counted(len(spells), kind)}: {num(paid_s)} s, {num(gpu_s)} GPU-seconds"
    record = story.record
    paid_s = sum(s.paid_s for s in story.spells if isinstance(s, Spell))
    saves_s = record.lost_s - record.lost_work_s - paid_s
    if saves_s > 1e-3:
        yield f"  cost of periodic checkpoints: {num(saves_s)} s"
    for kind, name, count in (
        ("preempt", "preemption", record.preemptions),
        ("interrupt", "failure", record.interruptions),
    ):
        waits = [w for w in story.spells if isinstance(w, Wait) and w.after == kind]
        waited_s = sum(w.to_s - w.from_s for w in waits)
        lost = f"{num(record.lost_work_s)} s of work and " if kind == "interrupt" else ""
        if count:
            yield f"  cost of {_counted(count, name)}: {lost}{num(waited_s)} s of waiting"


def _counted(count: int, noun: str) -> str:
    """A count with its noun.

    >>> _counted(1, "failure"), _counted(2, "failure")
    ('1 failure', '2 failures')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
