"""What an installation of Slurm states of itself. Defaults are those of Slurm 22.05.

Sources: the manual pages slurm.conf(5), sacctmgr(1), scontrol(1), and the pages on multifactor priority, QOS,
resource limits, preemption and reservations of Slurm's documentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Association", "Partition", "Qos", "Settings", "SiteNode", "SiteReservation", "SlurmSite"]

Tres = Mapping[str, float]
"""Trackable resources by name: `gres/gpu`, `gres/gpu:a100`, `cpu`, `mem` (GB), `node`, `billing`."""

Limits = Mapping[str, int | float | Tres]
"""Limits by sacctmgr's names, with those of a QOS written out: `GrpTRES`, `GrpJobs`, `MaxJobs`, `MaxTRES`,
`MaxTRESPerUser`, `MaxJobsPerUser`, `MaxWall` and so on. Wall times are in seconds, TRES-minutes in
TRES-seconds.
"""


@dataclass(frozen=True)
class SiteNode:
    """A node. Its place in `SlurmSite.nodes` is that in the controller's table, which decides placements.

    `gpus` of the type `gpu_type`; `memory_gb` in 1e9 bytes. `state`: up, or down (drained, failed, off).
    """

    name: str
    gpus: int
    gpu_type: str = ""
    cpus: int = 1
    memory_gb: float | None = None
    weight: int = 1
    state: str = "up"


@dataclass(frozen=True)
class Partition:
    """A partition: a set of nodes, by name, which other partitions may share. None: no limit."""

    nodes: tuple[str, ...]
    PriorityTier: int = 1
    PriorityJobFactor: int = 1
    Default: bool = False
    MaxTime: float | None = None  # seconds
    DefaultTime: float | None = None  # seconds
    MaxNodes: int | None = None
    MinNodes: int = 0
    QOS: str | None = None
    AllowAccounts: tuple[str, ...] | None = None
    DenyAccounts: tuple[str, ...] = ()
    AllowQos: tuple[str, ...] | None = None
    DenyQos: tuple[str, ...] = ()
    PreemptMode: str | None = None  # None: that of the site
    GraceTime: float = 0.0  # seconds
    LLN: bool = False
    TRESBillingWeights: Tres = field(default_factory=dict)
    State: str = "UP"


@dataclass(frozen=True)
class Qos:
    """A quality of service. `Preempt`: the QOS whose jobs its jobs may preempt."""

    Priority: int = 0
    Preempt: tuple[str, ...] = ()
    PreemptMode: str | None = None  # None: that of the site
    GraceTime: float = 0.0  # seconds
    PreemptExemptTime: float | None = None  # seconds; None: that of the site
    Flags: tuple[str, ...] = ()
    UsageFactor: float = 1.0
    limits: Limits = field(default_factory=dict)


@dataclass(frozen=True)
class Association:
    """A node of the tree of shares: an account (`user` empty), or a user in an account, perhaps in one
    partition only. `Share`: None stands for `parent`.
    """

    account: str
    parent: str = ""
    user: str = ""
    partition: str = ""
    Share: int | None = 1
    Priority: int = 0
    QOS: tuple[str, ...] = ()
    DefaultQOS: str | None = None
    limits: Limits = field(default_factory=dict)


@dataclass(frozen=True)
class SiteReservation:
    """Nodes that are, from `start` to `end` (seconds since 1970), for `users` and `accounts` alone. It counts
    from `known` on (seconds since 1970; None: always), since jobs that would run into it may not start.
    """

    name: str
    start: float
    end: float
    nodes: tuple[str, ...]
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    Flags: tuple[str, ...] = ()
    known: float | None = None


@dataclass(frozen=True)
class Settings:
    """The settings of slurm.conf that decide schedules, by its names, with times in seconds.

    `SchedulerParameters`: those that are stated, by name; a flag without a value is True.
    """

    SchedulerType: str = "sched/backfill"
    SchedulerParameters: Mapping[str, int | float | bool | str] = field(default_factory=dict)
    SelectType: str = "select/cons_tres"
    SelectTypeParameters: tuple[str, ...] = ("CR_CORE_MEMORY",)
    PriorityType: str = "priority/basic"
    PriorityFlags: tuple[str, ...] = ()
    PriorityMaxAge: float = 7 * 86400.0
    PriorityDecayHalfLife: float = 7 * 86400.0
    PriorityCalcPeriod: float = 300.0
    PriorityUsageResetPeriod: str = "NONE"
    PriorityFavorSmall: bool = False
    PriorityWeightAge: int = 0
    PriorityWeightAssoc: int = 0
    PriorityWeightFairshare: int = 0
    PriorityWeightJobSize: int = 0
    PriorityWeightPartition: int = 0
    PriorityWeightQOS: int = 0
    PriorityWeightTRES: Tres = field(default_factory=dict)
    FairShareDampeningFactor: int = 1
    PreemptType: str = "preempt/none"
    PreemptMode: str = "OFF"
    PreemptParameters: Mapping[str, int | float | bool | str] = field(default_factory=dict)
    PreemptExemptTime: float = 0.0
    AccountingStorageEnforce: tuple[str, ...] = ()
    OverTimeLimit: float = 0.0
    KillWait: float = 30.0
    requeue_delay: float = 121.0
    """Seconds until a requeued job is eligible again: AuthInfo's cred_expire, 120 by default, and 1."""


@dataclass(frozen=True)
class SlurmSite:
    """An installation of Slurm. `nodes` in the order of the controller's table.

    `unmodelled`: what the files state, differs from Slurm's default, and no simulation here follows: a
    sentence each.
    """

    name: str
    nodes: tuple[SiteNode, ...]
    partitions: Mapping[str, Partition]
    qos: Mapping[str, Qos] = field(default_factory=dict)
    associations: tuple[Association, ...] = ()
    reservations: tuple[SiteReservation, ...] = ()
    settings: Settings = field(default_factory=Settings)
    unmodelled: tuple[str, ...] = ()
