"""A site from the files that Slurm's commands print. What they say together is checked: one cluster, known
names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, tzinfo
from pathlib import Path

from clustersim.sites.document import checked_site
from clustersim.sites.slurm import Association, Partition, Qos, Settings, SiteNode, SlurmSite
from itertime.errors import UnknownName, UserError

from .accounting import associations_of_file, qos_of_file
from .configuration import Configuration, read_configuration
from .machines import gpu_types_of, nodes_of_configuration, nodes_of_file
from .partitions import partitions_of_configuration, partitions_of_file
from .reservations import reservations_of_file
from .settings import settings_of, unmodelled_of

__all__ = ["SlurmFiles", "read_slurm"]


@dataclass(frozen=True)
class SlurmFiles:
    """Where the outputs of Slurm's commands lie. `config` may be slurm.conf, which can state nodes and
    partitions as well. `name`: of the cluster, where `config` states none. `zone`: of the controller, for
    reservations.
    """

    config: Path
    nodes: Path | None = None
    partitions: Path | None = None
    qos: Path | None = None
    assoc: Path | None = None
    reservations: Path | None = None
    gres: Path | None = None
    name: str | None = None
    zone: tzinfo = UTC


def read_slurm(files: SlurmFiles) -> tuple[SlurmSite, list[str]]:
    """The site, and sentences on how the files were read. UserError names file, line, name and remedy."""
    configuration = read_configuration(files.config)
    settings = settings_of(configuration)
    sentences: list[str] = []
    unmodelled: list[str] = []
    nodes = _nodes(files, configuration, unmodelled)
    if not any(node.gpus for node in nodes):
        problem = f"none of {len(nodes):,} nodes has GPUs, so that no job could run"
        raise UserError(f"{files.nodes or files.config}: {problem}; check their Gres=")
    partitions = _partitions(files, configuration, nodes, settings, unmodelled)
    _say_hidden_partitions(files, nodes, partitions, sentences)
    qos = {} if files.qos is None else qos_of_file(files.qos, unmodelled)
    cluster = files.name or configuration.stated("ClusterName")
    associations: list[tuple[str, Association]] = []
    if files.assoc is not None:
        cluster, associations = associations_of_file(files.assoc, cluster, sentences, unmodelled)
    _check_names(files, qos, associations, partitions)
    names = [node.name for node in nodes]
    reservations = (
        ()
        if files.reservations is None
        else tuple(reservations_of_file(files.reservations, names, files.zone, unmodelled))
    )
    site = SlurmSite(
        cluster or "site",
        tuple(nodes),
        partitions,
        qos,
        tuple(association for _, association in associations),
        reservations,
        settings,
        (*dict.fromkeys([*unmodelled_of(configuration, settings), *unmodelled]),),
    )
    return checked_site(site, str(files.config)), [*sentences, *_left_out(files, settings)]


def _nodes(files: SlurmFiles, configuration: Configuration, unmodelled: list[str]) -> list[SiteNode]:
    types: Mapping[str, str] = {} if files.gres is None else gpu_types_of(files.gres)
    if files.nodes is not None:
        return nodes_of_file(files.nodes, types, unmodelled)
    if configuration.printed:
        remedy = "give the output of 'scontrol show node' with --nodes"
        raise UserError(f"{configuration.path}: scontrol show config lists no nodes; {remedy}")
    return nodes_of_configuration(configuration, types, unmodelled)


def _partitions(
    files: SlurmFiles,
    configuration: Configuration,
    nodes: list[SiteNode],
    settings: Settings,
    unmodelled: list[str],
) -> dict[str, Partition]:
    names = [node.name for node in nodes]
    if files.partitions is not None:
        return partitions_of_file(files.partitions, names, settings, unmodelled)
    if configuration.printed:
        remedy = "give the output of 'scontrol -a show partition' with --partitions"
        raise UserError(f"{configuration.path}: scontrol show config lists no partitions; {remedy}")
    return partitions_of_configuration(configuration, names, settings, unmodelled)


def _say_hidden_partitions(
    files: SlurmFiles, nodes: list[SiteNode], partitions: Mapping[str, Partition], sentences: list[str]
) -> None:
    """Say how many nodes are in no partition: hidden ones are printed by scontrol -a alone."""
    members = {name for partition in partitions.values() for name in partition.nodes}
    lone = sum(node.name not in members for node in nodes)
    if lone:
        sentences.append(
            f"{lone:,} of {len(nodes):,} nodes are in no partition; scontrol -a prints hidden partitions"
        )


def _check_names(
    files: SlurmFiles,
    qos: Mapping[str, Qos],
    associations: list[tuple[str, Association]],
    partitions: Mapping[str, Partition],
) -> None:
    """UserError, naming the files, for names in one file that another file of the same cluster would have."""
    accounts = {association.account for _, association in associations if not association.user}
    for where, association in associations:
        account = association.account if association.user else association.parent
        if account and account not in accounts:
            raise UserError(f"{where}: {UnknownName('account', account, accounts)}; export all associations")
        if association.partition and association.partition not in partitions:
            raise UserError(
                f"{where}: account {association.account}: Partition={association.partition}: "
                f"is not among the partitions; export all files from one cluster"
            )
        for name in (*association.QOS, *filter(None, [association.DefaultQOS])):
            if qos and name not in qos:
                raise UserError(
                    f"{where}: account {association.account}: QOS={name}: is not in {files.qos}; "
                    f"export both at the same time"
                )
    for partition_name, partition in partitions.items():
        if qos and partition.QOS is not None and partition.QOS not in qos:
            raise UserError(
                f"{files.partitions or files.config}: PartitionName={partition_name}: QoS={partition.QOS}: "
                f"is not in {files.qos}; export both at the same time"
            )


def _left_out(files: SlurmFiles, settings: Settings) -> list[str]:
    """What was not given although the settings use it."""
    sentences = []
    multifactor = settings.PriorityType == "priority/multifactor"
    if files.qos is None and (settings.PreemptType == "preempt/qos" or settings.PriorityWeightQOS):
        sentences.append(
            "no QOS were given, and the settings use them; --qos has limits, priorities and preemption"
        )
    if files.assoc is None and multifactor and settings.PriorityWeightFairshare:
        sentences.append(
            "no associations were given, and priorities count fair shares; --assoc has the tree of shares"
        )
    if "limits" in settings.AccountingStorageEnforce:
        missing = [
            option for option, file in (("--qos", files.qos), ("--assoc", files.assoc)) if file is None
        ]
        sentences += [f"limits are enforced; {option} states some of them" for option in missing]
    return sentences
