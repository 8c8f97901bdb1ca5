"""The priority of waiting jobs: priority/basic and priority/multifactor.

Sources: Slurm's page "Multifactor Priority Plugin"; slurm.conf(5), `PriorityType`, `PriorityWeight*`,
`PriorityFlags`, `PriorityCalcPeriod`, `PriorityDecayHalfLife`, `PriorityUsageResetPeriod`,
`TRESBillingWeights`. A priority is a whole number of at least 1, made when a job is submitted and again every
`PriorityCalcPeriod`; in between neither age nor usage moves it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta

from .fair_share import ShareTree
from .limits import Limits
from .records import JobRecord, resources_of
from .rules import Rules

__all__ = ["Priorities"]

HIGHEST = 4_294_901_759
"""The priority of the first job under priority/basic; each later one gets one less."""

_PERIODS: Mapping[str, Callable[[datetime], object]] = {
    "DAILY": lambda moment: moment.date(),
    "WEEKLY": lambda moment: (moment + timedelta(days=1)).isocalendar()[:2],
    "MONTHLY": lambda moment: (moment.year, moment.month),
    "QUARTERLY": lambda moment: (moment.year, (moment.month - 1) // 3),
    "YEARLY": lambda moment: moment.year,
}
"""The number of the period in which a moment lies."""


class Priorities:
    """Priorities of jobs, with the usage and the fair share that they depend on.

    `tree`: shares and usage. `factors`: the fair-share factor by (account, user), as last calculated.
    """

    def __init__(self, rules: Rules, totals: Mapping[str, Mapping[str, float]], limits: Limits):
        """`totals`: the resources of each partition by name. `limits`: those that count what jobs use."""
        self._rules, self._totals, self._limits = rules, totals, limits
        self.tree = ShareTree(rules.associations)
        self.factors: dict[tuple[str, str], float] = {}
        self._calculated_s: float | None = None
        self._submissions = 0
        self._array_heads: dict[str, JobRecord] = {}  # of arrays with tasks that are held back
        flags = {flag.upper() for flag in rules.settings.PriorityFlags}
        self._classic = "NO_FAIR_TREE" in flags
        self._accrues = "ACCRUE_ALWAYS" in flags
        self._relative_to_time = "SMALL_RELATIVE_TO_TIME" in flags
        self._max_tres = "MAX_TRES" in flags
        partition_factors = [partition.PriorityJobFactor for partition in rules.partitions.values()]
        self._top_partition = max(partition_factors, default=1) or 1
        self._top_qos = max((qos.Priority for qos in rules.qos.values()), default=0) or 1
        self._association_priorities = {
            (entry.account, entry.user): entry.Priority for entry in rules.associations
        }
        self._top_association = max(self._association_priorities.values(), default=0) or 1
        self._update_factors()

    def submit(self, job: JobRecord, now: float, tasks_held_back: int = 0) -> None:
        """Give a job that enters the queue its priorities. `tasks_held_back`: how many further tasks of its
        array wait for the limit of the array. All tasks of an array that wait have the same priority and age.
        """
        if not self._rules.is_multifactor:
            if job.priorities:
                return  # a requeued job keeps its place
            job.priorities = dict.fromkeys(job.partitions, HIGHEST - self._submissions - job.nice)
            self._submissions += 1
            return
        if (job.account, job.user) not in self.factors:
            self.tree.user(job.account, job.user)
            self._update_factors()
        head = self._array_heads.pop(job.array, None) if job.array is not None else None
        if head is None:
            self._prioritise(job, now)
        else:
            job.priorities = dict(head.priorities)
            job.eligible_s = head.eligible_s
        if job.array is not None and tasks_held_back:
            self._array_heads[job.array] = job

    def recalculate(
        self, waiting_jobs: Iterable[JobRecord], running_jobs: Iterable[JobRecord], now: float
    ) -> None:
        """What happens every `PriorityCalcPeriod`: usage decays, running jobs are charged, all usage is
        forgotten where a period of `PriorityUsageResetPeriod` ended, and all waiting jobs get new priorities.
        """
        if not self._rules.is_multifactor:
            return
        if self._calculated_s is not None:
            self._forget(self._decay(now - self._calculated_s))
        for job in running_jobs:
            self._charge(job, now)
        if self._calculated_s is not None and self._period(now) != self._period(self._calculated_s):
            self._forget(0.0)
        self._calculated_s = now
        self._update_factors()
        for job in {*waiting_jobs, *self._array_heads.values()}:
            self._prioritise(job, now)

    def end(self, job: JobRecord, now: float) -> None:
        """Charge a job that ends or loses its nodes for the time since the last calculation."""
        if self._rules.is_multifactor:
            self._charge(job, now)

    def billing(self, job: JobRecord, partition: str) -> float:
        """What a second of a job costs: by `TRESBillingWeights` of the partition, else its cores."""
        weights = self._rules.partitions[partition].TRESBillingWeights
        resources = resources_of(job)
        if not weights:
            return resources["cpu"]
        costs = [weight * resources.get(name, 0.0) for name, weight in weights.items()]
        return max(costs) if self._max_tres else sum(costs)

    def _period(self, time_s: float) -> object:
        """The period of `PriorityUsageResetPeriod` in which a time lies: days, weeks from Sunday on, months,
        quarters or years, of UTC.
        """
        word = self._rules.settings.PriorityUsageResetPeriod
        if word not in _PERIODS:
            return None
        return _PERIODS[word](datetime.fromtimestamp(self._rules.epoch_s + time_s, UTC))

    def _decay(self, seconds: float) -> float:
        half_life_s = self._rules.settings.PriorityDecayHalfLife
        return 2.0 ** (-seconds / half_life_s) if half_life_s else 1.0

    def _charge(self, job: JobRecord, now: float) -> None:
        """The seconds since the last calculation decay as a whole, as the plugin has it."""
        begin_s = job.start_s // 1.0
        if self._calculated_s is not None:
            begin_s = max(begin_s, self._calculated_s)
        seconds = max(0.0, now // 1.0 - begin_s)
        cost = self.billing(job, job.partition) * self._rules.qos_of(job.qos).UsageFactor
        self.tree.charge(job.account, job.user, seconds * self._decay(seconds) * cost)
        if self._limits.counts_use:
            self._limits.use(job, seconds * self._decay(seconds))

    def _forget(self, factor: float) -> None:
        """Multiply all usage by a factor."""
        self.tree.decay(factor)
        self._limits.decay(factor)

    def _update_factors(self) -> None:
        if self._classic:
            self.factors = self.tree.classic(self._rules.settings.FairShareDampeningFactor)
        else:
            self.factors = self.tree.fair_tree()

    def _prioritise(self, job: JobRecord, now: float) -> None:
        shared = self._age(job, now) + self._size(job) + self._standing(job)
        for name in job.partitions:
            settings, partition = self._rules.settings, self._rules.partitions[name]
            priority = shared + settings.PriorityWeightPartition * (
                partition.PriorityJobFactor / self._top_partition
            )
            if settings.PriorityWeightTRES:
                requested, totals = resources_of(job), self._totals[name]
                priority += sum(
                    weight * requested.get(tres, 0.0) / totals[tres]
                    for tres, weight in settings.PriorityWeightTRES.items()
                    if totals.get(tres)
                )
            job.priorities[name] = max(1, int(priority) - job.nice)

    def _age(self, job: JobRecord, now: float) -> float:
        settings = self._rules.settings
        since_s = job.submit_s if self._accrues else job.eligible_s
        waited_s = max(0.0, now // 1.0 - since_s // 1.0)
        age = min(1.0, waited_s / settings.PriorityMaxAge) if settings.PriorityMaxAge else 1.0
        return settings.PriorityWeightAge * age

    def _size(self, job: JobRecord) -> float:
        settings, rules = self._rules.settings, self._rules
        cpus = resources_of(job)["cpu"]
        if self._relative_to_time:
            minutes = max(1.0, job.limit_s / 60)
            size = cpus / minutes / rules.all_cpus
        else:
            size = (job.nodes / rules.all_nodes + cpus / rules.all_cpus) / 2
        return settings.PriorityWeightJobSize * (1 - size if settings.PriorityFavorSmall else size)

    def _standing(self, job: JobRecord) -> float:
        """What user, association and QOS contribute."""
        settings, association = self._rules.settings, (job.account, job.user)
        return (
            settings.PriorityWeightFairshare * self.factors.get(association, 0.0)
            + settings.PriorityWeightQOS * self._rules.qos_of(job.qos).Priority / self._top_qos
            + settings.PriorityWeightAssoc
            * self._association_priorities.get(association, 0)
            / self._top_association
        )
