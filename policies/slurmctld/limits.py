"""Limits of associations and QOS: which one keeps a job from starting now, by Slurm's name of the reason.

Sources: Slurm's pages "Resource Limits" and "Quality of Service (QOS)"; sacctmgr(1). A job over a limit waits
and blocks no other. A limit of the partition's QOS comes before that of the job's QOS, unless that has the
flag OverPartQOS, and a limit of a QOS before the same one of associations. `Max` limits of an account hold
for each association below it that states none; `Grp` limits hold for all jobs below it together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import inf

from clustersim.sites import Qos, accounts_above

from .records import JobRecord, resources_of
from .rules import Rules

__all__ = ["Limits"]

ENFORCED = {"limits", "safe"}
"""The words of `AccountingStorageEnforce` by which limits count."""

WALL = "wall"
"""Beside trackable resources: the run time of jobs, which GrpWall limits."""

_OF_USE = ("GrpTRESMins", "GrpWall")
_OF_SUBMISSIONS = ("GrpSubmit", "MaxSubmit", "MaxSubmitPerUser", "MaxSubmitPerAccount")

_NAMES = {
    "cpu": "Cpu",
    "mem": "Mem",
    "node": "Node",
    "billing": "Billing",
}


class Limits:
    """Running jobs counted by association and QOS, and the limits that they are held against.

    `of_submissions`: whether the site limits the jobs that wait and run. `counts_use`: whether it limits what
    they use; `forgets_use`: whether use decays, or is reset.
    """

    def __init__(self, rules: Rules):
        self._rules = rules
        words = {word.lower() for word in rules.settings.AccountingStorageEnforce}
        self._enforced = bool(words & ENFORCED)
        self._above = {entry.account: entry.parent for entry in rules.associations if not entry.user}
        self._of_account = {entry.account: entry.limits for entry in rules.associations if not entry.user}
        self._of_user = {
            (entry.account, entry.user): entry.limits for entry in rules.associations if entry.user
        }
        stated_limits = {
            *(limit for entry in rules.associations for limit in entry.limits),
            *(limit for qos in rules.qos.values() for limit in qos.limits),
        }
        self._any = self._enforced and bool(stated_limits)
        self.of_submissions = self._enforced and not stated_limits.isdisjoint(_OF_SUBMISSIONS)
        self.counts_use = self._any and not stated_limits.isdisjoint(_OF_USE)
        self._is_safe = "safe" in words
        periods_end = rules.settings.PriorityUsageResetPeriod not in ("NONE", "NOW")
        self.forgets_use = rules.settings.PriorityDecayHalfLife > 0 or periods_end
        self._used: dict[tuple[str, ...], Counter[str]] = {}
        self._jobs = Counter[tuple[str, ...]]()
        self._held: dict[tuple[str, ...], Counter[str]] = {}
        self._running: dict[JobRecord, list[tuple[str, ...]]] = {}

    def start(self, job: JobRecord) -> None:
        if not self._any:
            return
        groups = [*self._groups(job, job.partition)]
        self._running[job] = groups
        resources = resources_of(job)
        for group in groups:
            self._jobs[group] += 1
            held = self._held.setdefault(group, Counter())
            for name, amount in resources.items():
                held[name] += amount  # type: ignore[assignment]

    def end(self, job: JobRecord) -> None:
        if not self._any:
            return
        resources = resources_of(job)
        for group in self._running.pop(job):
            self._jobs[group] -= 1
            for name, amount in resources.items():
                self._held[group][name] -= amount  # type: ignore[assignment]

    def use(self, job: JobRecord, seconds: float) -> None:
        """Count what a job has used of its resources, in seconds."""
        resources = resources_of(job)
        for group in self._running.get(job, ()):
            usage = self._used.setdefault(group, Counter())
            usage[WALL] += seconds  # type: ignore[assignment]
            for name, amount in resources.items():
                usage[name] += amount * seconds  # type: ignore[assignment]

    def decay(self, factor: float) -> None:
        """Multiply all use by a factor, but for QOS with the flag NoDecay."""
        for group, usage in self._used.items():
            flags = self._rules.qos_of(group[1]).Flags if group[0] == "qos" else ()
            if not any(flag.lower() == "nodecay" for flag in flags):
                for name in usage:
                    usage[name] *= factor  # type: ignore[assignment]

    def refused(self, job: JobRecord, partition: str, jobs: Iterable[JobRecord]) -> str:
        """The limit of submissions that a job exceeds beside the `jobs` that wait and run; empty if there is
        none.
        """
        if not self.of_submissions:
            return ""
        counts = Counter(
            group
            for present_job in jobs
            for group in self._groups(present_job, present_job.partition or present_job.partitions[0])
        )
        return next(self._submissions(job, partition, counts), "")

    def _submissions(
        self, job: JobRecord, partition: str, counts: Mapping[tuple[str, ...], int]
    ) -> Iterator[str]:
        by_qos = set()
        for limit, (kind, *key), reason in (
            ("GrpSubmit", ("qos",), "QOSGrpSubmitJobsLimit"),
            ("MaxSubmitPerUser", ("qos-user", job.user), "QOSMaxSubmitJobPerUserLimit"),
            ("MaxSubmitPerAccount", ("qos-account", job.account), "MaxSubmitJobsPerAccount"),
        ):
            of_qos = self._of_qos(job, partition, limit)
            if of_qos is not None:
                by_qos.add(limit)
                if counts[(kind, of_qos[0], *key)] + 1 > _number(of_qos[1]):
                    yield reason
        if "MaxSubmitPerUser" not in by_qos:
            allowed = _number(self._inherited(job, "MaxSubmit"))
            if counts["user", job.account, job.user] + 1 > allowed:
                yield "AssocMaxSubmitJobLimit"
        if "GrpSubmit" not in by_qos:
            for group, limits in self._associations(job):
                if counts[group] + 1 > _number(limits.get("GrpSubmit")):
                    yield "AssocGrpSubmitJobsLimit"

    def reason(self, job: JobRecord, partition: str, now: float) -> str:
        """The limit that a job would exceed if it started now; empty if there is none."""
        if not self._any:
            return ""
        checks = (
            self._job_counts(job, partition),
            self._resources(job, partition, now),
            self._used_up(job, partition, now),
        )
        return next((reason for reasons in checks for reason in reasons), "")

    def never(self, job: JobRecord, partition: str) -> str:
        """The limit that a job exceeds alone, so that it never starts; empty if there is none."""
        if not self._any:
            return ""
        counted = self._jobs, self._held, self._used
        self._jobs, self._held, self._used = Counter(), {}, {}
        try:
            return self.reason(job, partition, 0.0)
        finally:
            self._jobs, self._held, self._used = counted

    def _accounts(self, job: JobRecord) -> Iterator[str]:
        """The account of a job and those above it, the lowest first."""
        return accounts_above(job.account, self._above)

    def _groups(self, job: JobRecord, partition: str) -> Iterator[tuple[str, ...]]:
        """The groups of jobs among which a job counts."""
        yield ("user", job.account, job.user)
        for account in self._accounts(job):
            yield ("account", account)
        for name, _ in self._qos(job, partition):
            yield ("qos", name)
            yield ("qos-user", name, job.user)
            yield ("qos-account", name, job.account)

    def _qos(self, job: JobRecord, partition: str) -> list[tuple[str, Qos]]:
        """The QOS of the partition and of the job, the one that decides first."""
        name = self._rules.partitions[partition].QOS
        job_qos = job.qos, self._rules.qos_of(job.qos)
        if name is None or name == job.qos or name not in self._rules.qos:
            return [job_qos]
        partition_qos = name, self._rules.qos[name]
        over = any(flag.lower() == "overpartqos" for flag in job_qos[1].Flags)
        return [job_qos, partition_qos] if over else [partition_qos, job_qos]

    def _of_qos(self, job: JobRecord, partition: str, limit: str) -> tuple[str, object] | None:
        for name, qos in self._qos(job, partition):
            if limit in qos.limits:
                return name, qos.limits[limit]
        return None

    def _inherited(self, job: JobRecord, limit: str) -> object:
        """A `Max` limit of the user's association: its own, or that of the nearest account above it."""
        own_limits = self._of_user.get((job.account, job.user), {})
        if limit in own_limits:
            return own_limits[limit]
        for account in self._accounts(job):
            if limit in self._of_account.get(account, {}):
                return self._of_account[account][limit]
        return None

    def _job_counts(self, job: JobRecord, partition: str) -> Iterator[str]:
        """Limits on numbers of jobs and on time."""
        counted_by = {
            "GrpJobs": ("qos",),
            "MaxJobsPerUser": ("qos-user", job.user),
            "MaxJobsPerAccount": ("qos-account", job.account),
        }
        reasons = {
            "GrpJobs": "QOSGrpJobsLimit",
            "MaxJobsPerUser": "QOSMaxJobsPerUserLimit",
            "MaxJobsPerAccount": "MaxJobsPerAccount",
        }
        stated_by_qos = set()
        for limit, (kind, *key) in counted_by.items():
            of_qos = self._of_qos(job, partition, limit)
            if of_qos is not None:
                stated_by_qos.add(limit)
                if self._jobs[(kind, of_qos[0], *key)] + 1 > _number(of_qos[1]):
                    yield reasons[limit]
        wall = self._of_qos(job, partition, "MaxWall")
        if wall is not None:
            if job.limit_s > _number(wall[1]):
                yield "QOSMaxWallDurationPerJobLimit"
        elif job.limit_s > _number(self._inherited(job, "MaxWall")):
            yield "AssocMaxWallDurationPerJobLimit"
        if "MaxJobsPerUser" not in stated_by_qos:
            allowed = _number(self._inherited(job, "MaxJobs"))
            if self._jobs["user", job.account, job.user] + 1 > allowed:
                yield "AssocMaxJobsLimit"
        if "GrpJobs" not in stated_by_qos:
            for group, limits in self._associations(job):
                if self._jobs[group] + 1 > _number(limits.get("GrpJobs")):
                    yield "AssocGrpJobsLimit"

    def _associations(self, job: JobRecord) -> Iterator[tuple[tuple[str, ...], Mapping[str, object]]]:
        """The association of the user and those of the accounts above, each with its limits."""
        yield ("user", job.account, job.user), self._of_user.get((job.account, job.user), {})
        for account in self._accounts(job):
            yield ("account", account), self._of_account.get(account, {})

    def _resources(self, job: JobRecord, partition: str, now: float) -> Iterator[str]:
        """Limits on resources."""
        requested = resources_of(job)
        nothing: Counter[str] = Counter()
        limited_by_qos = set()
        for limit, kind, key, reason in (
            ("GrpTRES", "qos", (), "QOSGrp{}"),
            ("MaxTRES", "", (), "QOSMax{}PerJob"),
            ("MaxTRESPerAccount", "qos-account", (job.account,), "QOSMax{}PerAccount"),
            ("MaxTRESPerUser", "qos-user", (job.user,), "QOSMax{}PerUser"),
        ):
            of_qos = self._of_qos(job, partition, limit)
            if of_qos is None:
                continue
            held = self._held.get((kind, of_qos[0], *key), nothing) if kind else nothing
            for tres, allowed in _amounts(of_qos[1]):
                limited_by_qos.add((limit, tres))
                if held[tres] + requested.get(tres, 0.0) > allowed and requested.get(tres, 0.0):
                    yield _resource_reason(reason, tres)
        for tres, allowed in _amounts(self._inherited(job, "MaxTRES")):
            if ("MaxTRES", tres) not in limited_by_qos and requested.get(tres, 0.0) > allowed:
                yield _resource_reason("AssocMax{}PerJob", tres)
        of_qos = self._of_qos(job, partition, "MaxTRESMins")
        limit_of_job = self._inherited(job, "MaxTRESMins") if of_qos is None else of_qos[1]
        for tres, allowed in _amounts(limit_of_job):
            if requested.get(tres, 0.0) * job.limit_s > allowed:
                yield _resource_reason(
                    "AssocMax{}MinutesPerJob" if of_qos is None else "QOSMax{}MinutesPerJob", tres
                )
        for group, limits in self._associations(job):
            held = self._held.get(group, nothing)
            for tres, allowed in _amounts(limits.get("GrpTRES")):
                if ("GrpTRES", tres) in limited_by_qos or not requested.get(tres, 0.0):
                    continue
                if held[tres] + requested[tres] > allowed:
                    yield _resource_reason("AssocGrp{}", tres)
            yield from self._run_seconds(job, group, limits, now)

    def _run_seconds(
        self, job: JobRecord, group: tuple[str, ...], limits: Mapping[str, object], now: float
    ) -> Iterator[str]:
        """GrpTRESRunMins: what running jobs may still use by their time limits."""
        for tres, allowed in _amounts(limits.get("GrpTRESRunMins")):
            if self._to_come(tres, group, now) + resources_of(job).get(tres, 0.0) * job.limit_s > allowed:
                yield _resource_reason("AssocGrp{}RunMinutes", tres)

    def _used_up(self, job: JobRecord, partition: str, now: float) -> Iterator[str]:
        """GrpTRESMins and GrpWall: what was used, and with `safe` also what this job and those that run may
        use by their time limits.
        """
        if not self.counts_use:
            return
        requested = resources_of(job)
        owners: list[tuple[tuple[str, ...], Mapping[str, object], str]] = [
            (("qos", name), qos.limits, "QOSGrp") for name, qos in self._qos(job, partition)
        ]
        owners += [(group, limits, "AssocGrp") for group, limits in self._associations(job)]
        limited = set[str]()
        for group, limits, owner in owners:
            usage = self._used.get(group, Counter[str]())
            for tres, allowed in _amounts(limits.get("GrpTRESMins")):
                if tres in limited or not requested.get(tres, 0.0):
                    continue
                if owner == "QOSGrp":
                    limited.add(tres)
                planned = 0.0
                if self._is_safe:
                    planned = requested[tres] * job.limit_s + self._to_come(tres, group, now)
                if usage[tres] >= allowed or usage[tres] + planned > allowed:
                    yield _resource_reason(f"{owner}{{}}Minutes", tres)
            if "GrpWall" in limits and usage[WALL] >= _number(limits["GrpWall"]):
                yield f"{owner}WallLimit"

    def _to_come(self, tres: str, group: tuple[str, ...], now: float) -> float:
        """What the running jobs of a group may still use of a resource by their time limits."""
        return sum(
            resources_of(running_job).get(tres, 0.0) * max(0.0, running_job.limit_end_s - now)
            for running_job, groups in self._running.items()
            if group in groups
        )


def _number(limit: object) -> float:
    return inf if limit is None else float(limit)  # type: ignore[arg-type]


def _amounts(limit: object) -> Iterable[tuple[str, float]]:
    return limit.items() if isinstance(limit, Mapping) else ()


def _resource_reason(form: str, tres: str) -> str:
    """Slurm's name: `AssocGrpGRES`, `AssocGrpCpuLimit`, `QOSMaxNodePerUserLimit`, ..."""
    if tres.startswith("gres/"):
        return form.format("GRES")
    name = form.format(_NAMES.get(tres, tres.capitalize()))
    return name if tres in ("mem", "billing") or "Minutes" in form else f"{name}Limit"
