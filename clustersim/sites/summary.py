"""What a site is, in sentences: nodes, partitions and what they share, the scheduler, QOS, accounts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import combinations

from .limits import written_limits
from .machines import UP, gpu_type_of
from .slurm import Partition, Qos, Settings, SlurmSite
from .units import time_text

__all__ = ["summary_of"]

_MOST_LISTED = 8  # partitions, QOS and overlaps that are written out


def summary_of(site: SlurmSite) -> list[str]:
    """The sentences, the most important first."""
    return [
        _nodes(site),
        *_partitions(site.partitions),
        *_settings(site.settings),
        *_qos(site.qos),
        *_associations(site),
        *([f"{len(site.reservations)} reservations"] if site.reservations else []),
    ]


def _nodes(site: SlurmSite) -> str:
    kinds = Counter((gpu_type_of(node), node.gpus) for node in site.nodes if node.gpus)
    gpus = sum(count * of_node for (_, of_node), count in kinds.items())
    shapes = [f"{count:,} x {of_node} {gpu_type}" for (gpu_type, of_node), count in kinds.items()]
    without = sum(not node.gpus for node in site.nodes)
    down = sum(node.state != UP for node in site.nodes)
    text = f"{len(site.nodes):,} nodes, {gpus:,} GPUs: {', '.join(shapes)}"
    text += f"; {without:,} nodes without GPUs" if without else ""
    return text + (f"; {down:,} nodes are down" if down else "")


def _partitions(partitions: Mapping[str, Partition]) -> Iterator[str]:
    tiers = {partition.PriorityTier for partition in partitions.values()}
    for name, partition in list(partitions.items())[:_MOST_LISTED]:
        facts = [f"{len(partition.nodes):,} nodes"]
        facts += ["default"] if partition.Default else []
        facts += [f"tier {partition.PriorityTier}"] if len(tiers) > 1 else []
        facts += [] if partition.MaxTime is None else [f"at most {time_text(partition.MaxTime)}"]
        facts += [f"QOS {partition.QOS}"] if partition.QOS else []
        facts += [partition.State] if partition.State != "UP" else []
        yield f"partition {name}: {', '.join(facts)}"
    if len(partitions) > _MOST_LISTED:
        yield f"{len(partitions) - _MOST_LISTED:,} more partitions"
    overlaps = [
        f"{name} and {neighbour} share {count:,}"
        for name, neighbour in combinations(partitions, 2)
        if (count := len(set(partitions[name].nodes) & set(partitions[neighbour].nodes)))
    ]
    if overlaps:
        tail = f", and {len(overlaps) - _MOST_LISTED:,} more pairs" if len(overlaps) > _MOST_LISTED else ""
        yield f"partitions overlap: {'; '.join(overlaps[:_MOST_LISTED])} nodes{tail}"


def _settings(settings: Settings) -> Iterator[str]:
    interval = settings.SchedulerParameters.get("bf_interval", 30)
    cycle = f" every {interval} s" if settings.SchedulerType == "sched/backfill" else ""
    yield f"{settings.SchedulerType}{cycle}, {settings.SelectType}, {settings.PriorityType}"
    weights = {
        name.removeprefix("PriorityWeight"): value
        for name, value in vars(settings).items()
        if name.startswith("PriorityWeight") and value
    }
    if weights:
        terms = ", ".join(
            f"{name} {value}"
            if not isinstance(value, Mapping)
            else f"{name} {','.join(f'{tres}={weight:g}' for tres, weight in value.items())}"
            for name, value in weights.items()
        )
        yield f"weights of priorities: {terms}"
    if settings.PreemptType != "preempt/none":
        yield f"{settings.PreemptType}, {settings.PreemptMode}"


def _qos(kinds: Mapping[str, Qos]) -> Iterator[str]:
    for name, qos in list(kinds.items())[:_MOST_LISTED]:
        facts = [f"priority {qos.Priority}"]
        facts += [f"preempts {', '.join(qos.Preempt)}"] if qos.Preempt else []
        facts += [f"{limit}={value}" for limit, value in written_limits(qos.limits).items()]
        yield f"QOS {name}: {', '.join(facts)}"
    if len(kinds) > _MOST_LISTED:
        yield f"{len(kinds) - _MOST_LISTED:,} more QOS"


def _associations(site: SlurmSite) -> Iterator[str]:
    if site.associations:
        users = sum(bool(entry.user) for entry in site.associations)
        limited = sum(bool(entry.limits) for entry in site.associations)
        accounts = len(site.associations) - users
        yield f"{accounts:,} accounts, {users:,} users in them; {limited:,} of these have limits"
