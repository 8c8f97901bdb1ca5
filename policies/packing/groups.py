"""Groups of jobs that run on the same GPUs: which there are in a draft, and how to start others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from clustersim.scheduler import JobView, Proposal

__all__ = ["Group", "Wanted", "groups_of", "run_groups", "start_group"]

Group = tuple[JobView, ...]
"""Jobs that run on the same GPUs; one job on GPUs of its own is a group too."""

Wanted = tuple[Group, str | None]
"""A group that is to run, and the GPU type, None for any."""


def groups_of(proposal: Proposal) -> list[Group]:
    """The groups of a draft: those that share GPUs, then the jobs that run on GPUs of their own."""
    shared = [tuple(group) for group in proposal.groups()]
    grouped = {job for group in shared for job in group}
    return [*shared, *((job,) for job in proposal.running() if job not in grouped)]


def start_group(proposal: Proposal, group: Group, parts: int, gpu_type: str | None = None) -> bool:
    """Start the jobs of a group, each on one of `parts` equal parts of the same GPUs; 1: a job on whole GPUs.
    Returns whether the first job has a place.
    """
    host, *guests = group
    if parts == 1:
        return proposal.start(host, gpu_type=gpu_type) is not None
    if proposal.start_shared(host, 1 / parts, gpu_type=gpu_type) is None:
        return False
    for job in guests:
        proposal.start_shared(job, 1 / parts, beside=host)
    return True


def run_groups(
    proposal: Proposal, groups: Sequence[Wanted], parts_of: Callable[[JobView], int]
) -> list[Wanted]:
    """Make the draft run these groups, and stop all other jobs. Returns the groups without a place.

    A group that runs stays. Of another one the first job that runs on the right GPUs, in a part of them,
    stays, and the others join it, so it pays nothing. All other groups start on free GPUs, the largest
    first. `parts_of`: into how many parts the GPUs of a job alone are divided.
    """
    running = {job: group for group in groups_of(proposal) for job in group}
    shared = {job for group in proposal.groups() for job in group}
    hosts: dict[Group, JobView] = {}  # of wanted groups
    stay: set[JobView] = set()
    hosted_groups: set[Group] = set()  # groups whose GPUs have a host
    for group, gpu_type in groups:
        for job in group:
            group_before = running.get(job)
            fits = (
                group_before is not None
                and group_before not in hosted_groups
                and gpu_type in (None, proposal.gpu_type(job))
            )
            if group_before is not None and fits and (len(group) == 1 or job in shared):
                hosts[group] = job
                hosted_groups.add(group_before)
                stay.update(member for member in group if member in group_before)
                break
    for job in running:
        if job not in stay:
            proposal.stop(job)
    for group, host in hosts.items():
        for job in group:
            if job not in stay:
                proposal.start_shared(job, 1 / parts_of(job), beside=host)
    unhosted = [entry for entry in groups if entry[0] not in hosts]
    unplaced = []
    for group, gpu_type in sorted(unhosted, key=lambda entry: -entry[0][0].requested):
        if not start_group(proposal, group, parts_of(group[0]), gpu_type):
            unplaced.append((group, gpu_type))
    return unplaced
