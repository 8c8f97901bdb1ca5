"""Whether the stamp of a state moves with everything that a policy may decide by."""

from collections.abc import Hashable

from clustersim.scheduler import Proposal, Scheduler, State
from clustersim.scheduler.internal import active_of

__all__ = ["watch_stamps"]


def watch_stamps(scheduler: Scheduler) -> None:
    """Let a policy that is yet to be called fail if it sees another state under the same stamp."""
    schedule, seen = scheduler.schedule, dict[int, Hashable]()

    def watched(state: State) -> Proposal:
        facts = summary_of(state)
        assert seen.setdefault(state.stamp, facts) == facts, f"t={state.now:g}: the stamp has not moved"
        return schedule(state)

    scheduler.schedule = watched  # type: ignore[method-assign]


def summary_of(state: State) -> Hashable:
    """What a policy sees apart from the progress of jobs and the time."""
    facts = state._facts
    nodes, capacity = facts.nodes, facts.capacity
    jobs = [active_of(view) for view in (*state.running, *state.pending)]
    return (
        tuple((job.job.job_id, job.placement, job.unit_s, job.curve.sizes, job.phases and job.phases.present)
              for job in jobs),
        tuple(job.phases.batch for job in jobs if job.phases is not None and job.phases.batch is not None),
        tuple(nodes.closed_to(view).reserved for view in (*state.running, *state.pending)),
        tuple(sorted(nodes.leaving.items())),
        (state.in_service, state.free, capacity.closed, capacity.idle_millionths, nodes.serving),
        (tuple(sorted(nodes.gpus_serving.items())), tuple(sorted(nodes.removed_by(state.now)))),
    )  # fmt: skip
