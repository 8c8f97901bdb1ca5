"""Outputs of Slurm that hold no jobs, and what reads them: mistaken for logs, they are named."""

from __future__ import annotations

import re

from traces.logs.source import Head

__all__ = ["named_configuration"]

_SITE = "clustersim site slurm reads it, as {}; a log of jobs is what sacct prints"
_NO_READER = "no jobs; a log of jobs is what sacct prints"
_KINDS = (
    (r"Configuration data as of ", "the configuration of Slurm (scontrol show config)", "--config"),
    (r"NodeName=\S+ .*\b(?:Arch|CoresPerSocket)=", "the nodes of Slurm (scontrol show node)", "--nodes"),
    (r"PartitionName=\S+\s+AllowG", "the partitions of Slurm (scontrol show partition)", "--partitions"),
    (r"ReservationName=", "the reservations of Slurm (scontrol show reservation)", "--reservations"),
    (r"Name\|Priority\|GraceTime\|", "the QOS of Slurm (sacctmgr show qos)", "--qos"),
    (r"Cluster\|Account\|User\|", "the associations of Slurm (sacctmgr show assoc)", "--assoc"),
    (r"(?:[^\n]*\n)*?(?:ClusterName|SlurmctldHost|ControlMachine) *=", "the settings of a slurm.conf",
    "--config"),
    (r"(?:NodeName=\S+ )?(?:Auto[Dd]etect=|Name=gpu\b)", "the settings of a gres.conf", ""),
    (r"Account\|User\|RawShares\||\s*Account +User +RawShares", "shares of accounts (sshare)", ""),
    (r"\*+\nsdiag output", "statistics of the controller (sdiag)", ""),
    (r"-+\nCluster Utilization|-+\n\S+ Usage|-+\nTop ", "a report of use (sreport)", ""),
    (r"\s*JOBID +PARTITION .*\bPRIORITY .*\bFAIRSHARE", "priorities of jobs (sprio)", ""),
    (r"(?:[^\n]*\n)?\s*(?:NODELIST|PARTITION) +(?:NODES|AVAIL)", "the state of nodes (sinfo)", ""),
)  # fmt: skip
"""How an output begins, what it is, and the option of `clustersim site slurm` that takes it."""


def named_configuration(head: Head) -> str:
    """What a file is that Slurm wrote and that holds no jobs, with what reads it; "" for any other."""
    for pattern, kind, option in _KINDS:
        if re.match(pattern, head.text):
            return f"holds {kind}: " + (_SITE.format(option) if option else _NO_READER)
    return ""
