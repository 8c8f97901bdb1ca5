"""What an installation of Slurm states of itself. Defaults are those of Slurm 22.05.

Sources: the manual pages slurm.conf(5), sacctmgr(1), scontrol(1), and the pages on multifactor priority, QOS,
resource limits, preemption and reservations of Slurm's documentation.

The fields are the keys of site.yaml as well. A file may state them as Slurm prints them: a time as
`1-00:00:00`, names as `a,b`, nodes as `n[01-16]`, resources as `gres/gpu=64,mem=16G`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime
from math import inf
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer
from pydantic.dataclasses import dataclass

from itertime.errors import UnknownName
from itertime.io import CONFIG, Name, NonNegative, Whole
from traces.host_lists import hostlist_of, hosts_of

from .limits import Limits, Tres, limits_of, written_limits
from .units import seconds_of, time_text, weights_of
from .vocabulary import (
    ENFORCED_WORDS,
    NODE_STATES,
    PARTITION_STATES,
    PLUGINS,
    PREEMPT_MODES,
    PREEMPT_OPTIONS,
    RESET_PERIODS,
    SELECTION_WORDS,
    enforced,
    option_fault,
)

__all__ = [
    "Association",
    "Partition",
    "Qos",
    "Settings",
    "SiteNode",
    "SiteReservation",
    "SlurmSite",
    "accounts_above",
]

Options = Mapping[str, int | float | bool | str]


def _seconds(value: Any) -> Any:
    return seconds_of(value) if isinstance(value, str) else value


def _written_time(seconds: float | None) -> float | str | None:
    return time_text(seconds) if seconds is not None and seconds == int(seconds) else seconds


def _moment(value: Any) -> Any:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError("is no date; write 2026-03-01T08:00:00, or seconds since 1970") from None
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    return value


def _hosts(value: Any) -> Any:
    return tuple(hosts_of(value)) if isinstance(value, str) else value


def _names(value: Any) -> Any:
    return tuple(filter(None, value.split(","))) if isinstance(value, str) else value


def _weights(value: Any) -> Any:
    return weights_of(value) if isinstance(value, str) else value


def _share(value: Any) -> Any:
    return None if value == "parent" else value


def _mode(value: Any) -> Any:
    return "OFF" if value is False else value


def _known(kind: str, words: Sequence[str], fold: Callable[[str], str] = str) -> AfterValidator:
    """The check that all words of a text, which commas divide, are of these; their case is `fold`ed."""

    def folded_text(text: str) -> str:
        folded_words = [fold(word.strip()) for word in text.split(",")]
        for word in folded_words:
            if word not in words:
                raise ValueError(str(UnknownName(kind, word, words)))
        return ",".join(folded_words)

    return AfterValidator(folded_text)


def _plugin(name: str) -> AfterValidator:
    return _known("plugin", PLUGINS[name])


def _words(kind: str, words: Sequence[str], fold: Callable[[str], str]) -> AfterValidator:
    """The check that all names of a setting are words of Slurm; their case is `fold`ed."""

    def folded_names(names: tuple[str, ...]) -> tuple[str, ...]:
        folded = tuple(map(fold, names))
        for word in folded:
            if word not in words:
                raise ValueError(str(UnknownName(kind, word, words)))
        return folded

    return AfterValidator(folded_names)


def _options(options: Options) -> Options:
    for name, value in options.items():
        if fault := option_fault(name, value):
            raise ValueError(fault)
    return options


def _preempt_options(options: Options) -> Options:
    for name in options:
        if name not in PREEMPT_OPTIONS:
            raise ValueError(str(UnknownName("name in PreemptParameters", name, PREEMPT_OPTIONS)))
    return options


def _positive_weights(weights: Tres) -> Tres:
    for name, weight in weights.items():
        if not 0 <= weight < inf:
            raise ValueError(f"{name}={weight:g}: must be a number from 0")
    return weights


def _sharing(value: Any) -> Any:
    return "NO" if value is False else value


def _written_share(share: int | None) -> int | str:
    return "parent" if share is None else share


def _written_names(names: Iterable[str] | None) -> list[str] | None:
    return None if names is None else list(names)


_AS_TIME = (BeforeValidator(_seconds), PlainSerializer(_written_time))
Seconds = Annotated[NonNegative, *_AS_TIME]
SecondsOrNone = Annotated[NonNegative | None, *_AS_TIME]
Hosts = Annotated[tuple[Name, ...], BeforeValidator(_hosts), PlainSerializer(hostlist_of)]
Names = Annotated[tuple[Name, ...], BeforeValidator(_names), PlainSerializer(_written_names)]
NamesOrNone = Annotated[tuple[Name, ...] | None, BeforeValidator(_names), PlainSerializer(_written_names)]
Weights = Annotated[Tres, BeforeValidator(_weights), AfterValidator(_positive_weights)]
LimitsByName = Annotated[Limits, BeforeValidator(limits_of), PlainSerializer(written_limits)]
ShareOrParent = Annotated[
    Annotated[int, Field(ge=0)] | None, BeforeValidator(_share), PlainSerializer(_written_share)
]
Mode = Annotated[str, BeforeValidator(_mode), _known("mode", PREEMPT_MODES, str.upper)]
"""What YAML reads as false is OFF."""
Moment = Annotated[float, BeforeValidator(_moment)]
Weight = Annotated[int, Field(ge=0, lt=2**32)]
CheckedOptions = Annotated[Options, AfterValidator(_options)]
PreemptOptions = Annotated[Options, AfterValidator(_preempt_options)]
Selection = Annotated[Names, _words("value of SelectTypeParameters", SELECTION_WORDS, str.upper)]
Enforced = Annotated[
    Names,
    _words("value of AccountingStorageEnforce", ENFORCED_WORDS, str.lower),
    AfterValidator(enforced),
]
"""The words that are stated, with those that they imply."""
Sharing = Annotated[str, BeforeValidator(_sharing)]


@dataclass(frozen=True, config=CONFIG)
class SiteNode:
    """A node. Its place in `SlurmSite.nodes` is that in the controller's table, which decides placements.

    `gpus` of the type `gpu_type`; `memory_gb` in 1e9 bytes. `state`: up, or down (drained, failed, off).
    """

    name: Name
    gpus: Annotated[Whole, Field(le=64)]
    gpu_type: str = ""
    cpus: Annotated[Whole, Field(le=10_000)] = 1
    memory_gb: NonNegative | None = None
    weight: Whole = 1
    state: Annotated[str, _known("state", NODE_STATES)] = "up"


@dataclass(frozen=True, config=CONFIG)
class Partition:
    """A partition: a set of nodes, by name, which other partitions may share. None: no limit."""

    nodes: Hosts
    PriorityTier: Whole = 1
    PriorityJobFactor: Whole = 1
    Default: bool = False
    MaxTime: SecondsOrNone = None
    DefaultTime: SecondsOrNone = None
    MaxNodes: Whole | None = None
    MinNodes: Whole = 0
    QOS: str | None = None
    AllowAccounts: NamesOrNone = None
    DenyAccounts: Names = ()
    AllowQos: NamesOrNone = None
    DenyQos: Names = ()
    PreemptMode: Mode | None = None  # None: that of the site
    GraceTime: Seconds = 0.0
    LLN: bool = False
    OverSubscribe: Sharing = "NO"
    TRESBillingWeights: Weights = field(default_factory=dict)
    State: Annotated[str, _known("state", PARTITION_STATES, str.upper)] = "UP"


@dataclass(frozen=True, config=CONFIG)
class Qos:
    """A quality of service. `Preempt`: the QOS whose jobs its jobs may preempt."""

    Priority: int = 0
    Preempt: Names = ()
    PreemptMode: Mode | None = None  # None: that of the site
    GraceTime: Seconds = 0.0
    PreemptExemptTime: SecondsOrNone = None  # None: that of the site
    Flags: Names = ()
    UsageFactor: float = 1.0
    limits: LimitsByName = field(default_factory=dict)


@dataclass(frozen=True, config=CONFIG)
class Association:
    """A node of the tree of shares: an account (`user` empty), or a user in an account, perhaps in one
    partition only. `Share`: None stands for `parent`.
    """

    account: str
    parent: str = ""
    user: str = ""
    partition: str = ""
    Share: ShareOrParent = 1
    Priority: int = 0
    QOS: Names = ()
    DefaultQOS: str | None = None
    limits: LimitsByName = field(default_factory=dict)


@dataclass(frozen=True, config=CONFIG)
class SiteReservation:
    """Nodes that are, from `start` to `end`, for `users` and `accounts` alone. It counts from `known` on
    (None: always), since jobs that would run into it may not start. Times are seconds since 1970, or dates,
    which are of UTC if they state no other zone.
    """

    name: Name
    start: Moment
    end: Moment
    nodes: Hosts
    users: Names = ()
    accounts: Names = ()
    Flags: Names = ()
    known: Moment | None = None


@dataclass(frozen=True, config=CONFIG)
class Settings:
    """The settings of slurm.conf that decide schedules, by its names, with times in seconds.

    `SchedulerParameters`: those that are stated, by name; a flag without a value is True.
    """

    SchedulerType: Annotated[str, _plugin("SchedulerType")] = "sched/backfill"
    SchedulerParameters: CheckedOptions = field(default_factory=dict)
    SelectType: Annotated[str, _plugin("SelectType")] = "select/cons_tres"
    SelectTypeParameters: Selection = ("CR_CORE_MEMORY",)
    PriorityType: Annotated[str, _plugin("PriorityType")] = "priority/basic"
    PriorityFlags: Names = ()
    PriorityMaxAge: Seconds = 7 * 86400.0
    PriorityDecayHalfLife: Seconds = 7 * 86400.0
    PriorityCalcPeriod: Seconds = 300.0
    PriorityUsageResetPeriod: Annotated[str, _known("period", RESET_PERIODS, str.upper)] = "NONE"
    PriorityFavorSmall: bool = False
    PriorityWeightAge: Weight = 0
    PriorityWeightAssoc: Weight = 0
    PriorityWeightFairshare: Weight = 0
    PriorityWeightJobSize: Weight = 0
    PriorityWeightPartition: Weight = 0
    PriorityWeightQOS: Weight = 0
    PriorityWeightTRES: Weights = field(default_factory=dict)
    FairShareDampeningFactor: Annotated[int, Field(ge=1)] = 1
    PreemptType: Annotated[str, _plugin("PreemptType")] = "preempt/none"
    PreemptMode: Mode = "OFF"
    PreemptParameters: PreemptOptions = field(default_factory=dict)
    PreemptExemptTime: Seconds = 0.0
    AccountingStorageEnforce: Enforced = ()
    OverTimeLimit: Seconds = 0.0
    KillWait: Seconds = 30.0
    Epilog: bool = False
    """Whether nodes run a program at the end of each job."""
    requeue_delay: Seconds = 121.0
    """Seconds until a requeued job is eligible again: AuthInfo's cred_expire, 120 by default, and 1."""


@dataclass(frozen=True, config=CONFIG)
class SlurmSite:
    """An installation of Slurm. `nodes` in the order of the controller's table.

    `unmodelled`: what the files state, differs from Slurm's default, and no simulation here follows: a
    sentence each.
    """

    name: Name
    nodes: tuple[SiteNode, ...]
    partitions: Mapping[str, Partition]
    qos: Mapping[str, Qos] = field(default_factory=dict)
    associations: tuple[Association, ...] = ()
    reservations: tuple[SiteReservation, ...] = ()
    settings: Settings = field(default_factory=Settings)
    unmodelled: tuple[Name, ...] = ()


def accounts_above(account: str, parents: Mapping[str, str]) -> Iterator[str]:
    """An account and those above it, the lowest first; in a circle of parents each one once. `parents`: the
    parent of each account, empty for the top one.

    >>> list(accounts_above("lab", {"lab": "hall", "hall": "root", "root": ""}))
    ['lab', 'hall', 'root']
    """
    path = dict[str, None]()
    while account and account not in path:
        path[account] = None
        yield account
        account = parents.get(account, "")
