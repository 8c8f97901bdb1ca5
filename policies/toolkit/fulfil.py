"""From a list of jobs with GPU counts, most important first, to a proposal that runs them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from clustersim.scheduler import JobView, Proposal, State

__all__ = ["Wanted", "in_service_by_type", "run_elastic", "run_or_less", "run_ranked"]

_NOTHING = (None, 0, None)

Wanted = tuple[JobView, int, str | None]
"""A job, the GPUs it is to have, and their type, None for any."""


def run_ranked(state: State, ranked: Sequence[Wanted]) -> Proposal:
    """A draft in which the jobs of `ranked` run on that many GPUs, as many as there is room for, first come
    first; everybody else stops. A job that is listed more than once runs as it first can.

    Who runs is decided by counting GPUs; a job that keeps its count keeps its place. Where the free GPUs are
    scattered, small jobs move together (on clusters of one GPU type); what still finds no room is skipped,
    except the first of the list, which always runs. Room that is left goes to those passed over before.

    Jobs that are settling are left as they are, ahead of everybody: with restarts longer than the time
    between two decisions jobs would otherwise change places and sizes for ever and get nothing done. If the
    first of the others has to wait for them, nobody new starts meanwhile. A draft that is not what was wanted
    asks to be thought over when the first of them has settled.

    Nodes that failed or went for good may leave no place for whom GPUs were counted: that keeps nobody else
    out. If none of `ranked` has a place, everything stays as it is, and whoever waits and has one runs too.
    """
    return _ranked(state, ranked)[0]


def _ranked(state: State, ranked: Sequence[Wanted]) -> tuple[Proposal, Sequence[Wanted]]:
    """`run_ranked`, and those of `ranked` who may have no place in it."""
    settling, mixed = state.unsettled(), state.cluster.mixed
    others = [entry for entry in ranked if entry[0] not in settling] if settling else ranked
    line: list[Wanted] = [(job, job.gpus, job.gpu_type if mixed else None) for job in settling]
    line += others
    chosen = _within(state, line)
    proposal = state.proposal()
    waiting = chosen.copy()
    for job in state.running:
        _, gpus, gpu_type = chosen.get(job, _NOTHING)
        if gpus == job.gpus and (gpu_type is None or gpu_type == job.gpu_type):
            del waiting[job]
        else:
            proposal.stop(job)
    all_there = _start(proposal, waiting.values())
    if not all_there and not mixed:
        missing = (entry for entry in chosen.values() if not _holds(proposal, entry))
        draft = proposal.copy() if settling else proposal
        draft.compact({job: gpus for job, gpus, _ in missing})
        if all(draft.gpus(job) == job.gpus for job in settling):
            proposal = draft
    first = others[0][0] if others else None
    if first and proposal.placement(first) is None:
        all_there, proposal = False, _anew(state, line)
    without = [entry for entry in others if entry[0] not in chosen] if all_there else line
    blocked = bool(settling) and first is not None and proposal.placement(first) is None
    for job, gpus, gpu_type in without:
        if not proposal.free:
            break
        if proposal.placement(job) is None and proposal.fits(gpus, gpu_type) and (job.running or not blocked):
            proposal.start(job, gpus, gpu_type=gpu_type)
    if not settling and not any(proposal.placement(job) for job, _, _ in line):
        return _anybody(state), ranked
    if settling and any(proposal.gpus(job) != gpus for job, gpus, _ in ranked):
        proposal.wake_at = min(settling.values())
    return proposal, without if all_there else ranked


def run_elastic(state: State, shares: Mapping[JobView, int]) -> Proposal:
    """As `run_or_less`, on GPUs that are all alike."""
    return run_or_less(state, [(job, gpus, None) for job, gpus in shares.items()])


def run_or_less(state: State, ranked: Sequence[Wanted]) -> Proposal:
    """As `run_ranked`, for jobs that may also run on less: who finds no room gets the most that there is."""
    proposal, without = _ranked(state, ranked)
    for job, gpus, gpu_type in without:
        if not proposal.free:
            break
        if proposal.placement(job) is None:
            sizes = job.sizes if gpu_type is None else job.sizes_on(gpu_type)
            fitting = [size for size in sizes if size <= gpus and proposal.fits(size, gpu_type)]
            if fitting:
                proposal.start(job, fitting[-1], gpu_type=gpu_type)
    return proposal


def _holds(proposal: Proposal, wanted: Wanted) -> bool:
    """Whether a job runs in the draft as it is to."""
    job, gpus, gpu_type = wanted
    return proposal.gpus(job) == gpus and gpu_type in (None, proposal.gpu_type(job))


def in_service_by_type(state: State) -> dict[str, int]:
    """GPUs that jobs hold or could have, by type in the order of the cluster's."""
    proposal = state.proposal()
    counts = {name: proposal.free_of(name) for name in state.cluster.gpu_types}
    for job in state.running:
        assert job.gpu_type is not None
        counts[job.gpu_type] += job.gpus
    return counts


def _within(state: State, line: Sequence[Wanted]) -> dict[JobView, Wanted]:
    """Those of `line` who get GPUs when each in turn takes what is left of its type."""
    left = state.in_service
    by_type = in_service_by_type(state) if state.cluster.mixed else {}
    chosen: dict[JobView, Wanted] = {}
    for entry in line:
        job, gpus, gpu_type = entry
        if gpus <= left and job not in chosen and (gpu_type is None or gpus <= by_type.get(gpu_type, gpus)):
            chosen[job] = entry
            left -= gpus
            if gpu_type in by_type:
                by_type[gpu_type] -= gpus
            if not left:
                break
    return chosen


def _start(proposal: Proposal, waiting: Iterable[Wanted]) -> bool:
    """Start those who wait, largest first; whether all of them found room."""
    line = sorted(waiting, key=lambda entry: -entry[1])
    placed = [proposal.start(job, gpus, gpu_type=gpu_type) for job, gpus, gpu_type in line]
    return None not in placed


def _anybody(state: State) -> Proposal:
    """A draft in which everything stays as it is, and who waits runs on the GPUs that it asks for, or on the
    most that it can have.
    """
    proposal = state.proposal()
    for job in state.pending:
        if proposal.start(job) is None:
            sizes = [size for size in job.sizes if proposal.fits(size)]
            if sizes:
                proposal.start(job, sizes[-1])
    return proposal


def _anew(state: State, line: Sequence[Wanted]) -> Proposal:
    """A draft that places everybody from an empty cluster, strictly in the order of the list."""
    proposal = state.proposal()
    for job in state.running:
        proposal.stop(job)
    for job, gpus, gpu_type in line:
        if proposal.placement(job) is None and proposal.fits(gpus, gpu_type):
            proposal.start(job, gpus, gpu_type=gpu_type)
    return proposal
