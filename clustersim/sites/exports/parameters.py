"""The parameters of slurm.conf: their defaults in Slurm 22.05, which ones simulations follow, and which not.

Source: slurm.conf(5) of Slurm 22.05.8. A parameter that decides when or where jobs start, and that nothing
here follows, is named where it differs from its default. Paths, ports, logs and limits of daemons decide no
schedule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = [
    "FOLLOWED",
    "FOLLOWED_PRIORITY_FLAGS",
    "IRRELEVANT",
    "UNMODELLED",
    "Unmodelled",
]


class Unmodelled(NamedTuple):
    """Values at which a parameter has no effect, in lower case, and what simulations leave out otherwise."""

    neutral: tuple[str, ...]
    consequence: str


FOLLOWED: Mapping[str, str] = {
    "ClusterName": "",
    "SchedulerType": "sched/backfill",
    "SchedulerParameters": "(null)",
    "SelectType": "select/linear",
    "SelectTypeParameters": "CR_CORE_MEMORY",
    "PriorityType": "priority/basic",
    "PriorityFlags": "",
    "PriorityMaxAge": "7-00:00:00",
    "PriorityDecayHalfLife": "7-00:00:00",
    "PriorityCalcPeriod": "00:05:00",
    "PriorityFavorSmall": "No",
    "PriorityUsageResetPeriod": "NONE",
    "PriorityWeightAge": "0",
    "PriorityWeightAssoc": "0",
    "PriorityWeightFairshare": "0",
    "PriorityWeightJobSize": "0",
    "PriorityWeightPartition": "0",
    "PriorityWeightQOS": "0",
    "PriorityWeightTRES": "(null)",
    "FairShareDampeningFactor": "1",
    "PreemptType": "preempt/none",
    "PreemptMode": "OFF",
    "PreemptParameters": "(null)",
    "PreemptExemptTime": "00:00:00",
    "AccountingStorageEnforce": "none",
    "OverTimeLimit": "0",
    "KillWait": "30",
    "Epilog": "(null)",
    "AuthInfo": "(null)",
}
"""Parameters that become settings of a site, with their defaults. Of AuthInfo, cred_expire counts: a requeued
job waits that long.
"""

_OFF = ("none", "(null)", "", "no", "0", "0 sec", "0 min", "n/a")

UNMODELLED: Mapping[str, Unmodelled] = {
    "BurstBufferType": Unmodelled(_OFF, "jobs do not wait for burst buffers here"),
    "CompleteWait": Unmodelled(_OFF, "the scheduler does not wait for nodes of completing jobs here"),
    "DependencyParameters": Unmodelled(_OFF, "dependencies are those of Slurm's default here"),
    "EnforcePartLimits": Unmodelled(
        _OFF, "jobs beyond the limits of a partition are not refused at submission"
    ),
    "Epilog": Unmodelled(_OFF, "its run time keeps no nodes here"),
    "EpilogSlurmctld": Unmodelled(_OFF, "its run time keeps no nodes here"),
    "FederationParameters": Unmodelled(_OFF, "jobs stay in this cluster here"),
    "JobRequeue": Unmodelled(("1", "yes"), "jobs are requeued here unless the log says otherwise"),
    "JobSubmitPlugins": Unmodelled(
        _OFF, "jobs are not changed at submission here; a log has them as changed"
    ),
    "Licenses": Unmodelled(_OFF, "jobs do not wait for licenses here"),
    "MCSPlugin": Unmodelled((*_OFF, "mcs/none"), "nodes are not kept to one label here"),
    "NodeFeaturesPlugins": Unmodelled(_OFF, "nodes do not change their features here"),
    "PowerPlugin": Unmodelled(_OFF, "power is not capped here"),
    "PriorityParameters": Unmodelled(_OFF, "no priority plugin reads it here"),
    "PrioritySiteFactorPlugin": Unmodelled(_OFF, "the site factor of priorities is 0 here"),
    "Prolog": Unmodelled(_OFF, "starts are not delayed by its run time, unless overheads.launch_s states it"),
    "PrologSlurmctld": Unmodelled(
        _OFF, "starts are not delayed by its run time, unless overheads.launch_s states it"
    ),
    "RequeueExit": Unmodelled(_OFF, "exit codes requeue no job here"),
    "RequeueExitHold": Unmodelled(_OFF, "exit codes hold no job here"),
    "ResumeProgram": Unmodelled(_OFF, "nodes are never powered down here"),
    "ResvOverRun": Unmodelled(_OFF, "jobs end with their reservation here"),
    "SuspendProgram": Unmodelled(_OFF, "nodes are never powered down here"),
    "SuspendTime": Unmodelled((*_OFF, "infinite", "-1"), "nodes are never powered down here"),
    "TopologyPlugin": Unmodelled(
        (*_OFF, "topology/none", "topology/default", "topology/flat"),
        "jobs are placed without regard to switches",
    ),
    "TopologyParam": Unmodelled(_OFF, "jobs are placed without regard to switches"),
}
"""Parameters that decide schedules and that no simulation here follows."""

FOLLOWED_PRIORITY_FLAGS = (
    "ACCRUE_ALWAYS",
    "MAX_TRES",
    "NO_FAIR_TREE",
    "SMALL_RELATIVE_TO_TIME",
)
"""Flags of PriorityFlags that the policy `slurm` follows."""

_IRRELEVANT = """
         accountingstoragebackuphost accountingstorageexternalhost accountingstoragehost
    accountingstorageparameters     accountingstoragepass accountingstorageport accountingstoragetres
    accountingstoragetype accountingstorageuser     accountingstoreflags accountingstoragejobcomment
    acctgatherenergytype acctgatherfilesystemtype     acctgatherinterconnecttype acctgathernodefreq
    acctgatherprofiletype allowspecresourcesusage authaltparameters     authalttypes authtype backupaddr
    backupcontroller batchstarttimeout bcastexclude bcastparameters boot_time     cgroupplugin
    checkpointtype clifilterparameters clifilterplugins communicationparameters controladdr
    controlmachine corespecplugin cpufreqdef cpufreqgovernors credtype cryptotype debugflags
    defcpupergpu     defmempercpu defmempergpu defmempernode disablerootjobs eiotimeout epilogmsgtime
    extsensorsfreq extsensorstype     fastschedule firstjobid getenvtimeout grestypes gpufreqdef
    groupupdateforce groupupdatetime hash_val     hashplugin hash_plugin healthcheckinterval
    healthchecknodestate healthcheckprogram inactivelimit     interactivestepoptions
    jobacctgatherfrequency jobacctgatherparams jobacctgathertype jobcomphost jobcomploc
    jobcompparams jobcomppass jobcompport jobcomptype jobcompuser jobcontainertype
    jobcredentialprivatekey     jobcredentialpubliccertificate jobdefaults jobfileappend killonbadexit
    launchparameters launchtype     logtimeformat maildomain mailprog maxarraysize maxbatchrequeue maxjobcount
    maxdbdmsgs maxjobid maxmempercpu maxmempernode     maxnodecount maxstepcount maxtaskspernode
    mcsparameters messagetimeout minjobage mpidefault mpiparams     multiple_slurmd next_job_id
    plugindir plugstackconfig powerparameters preppparameters prepparameters     prepplugins
    priorityparameters prioritysitefactorparameters privatedata proctracktype prologepilogtimeout
    prologflags propagateprioprocess propagateresourcelimits propagateresourcelimitsexcept rebootprogram
    reconfigflags resumefailprogram resumerate resumetimeout resvepilog resvprolog returntoservice
    routeplugin     schedulertimeslice scronparameters slurm_conf slurm_version slurmctldaddr
    slurmctlddebug slurmctldhost     slurmctldlogfile slurmctldparameters slurmctldpidfile
    slurmctldplugstack slurmctldport     slurmctldprimaryoffprog slurmctldprimaryonprog
    slurmctldsyslogdebug slurmctldtimeout slurmddebug     slurmdlogfile slurmdparameters slurmdpidfile
    slurmdport slurmdspooldir slurmdsyslogdebug slurmdtimeout     slurmduser slurmschedlogfile
    slurmschedloglevel slurmuser srunepilog srunportrange srunprolog     statesavelocation
    suspendexcnodes suspendexcparts suspendexcstates suspendrate suspendtimeout     switchparameters
    switchtype taskepilog taskplugin taskpluginparam taskprolog tcptimeout tmpfs trackwckey
    treewidth unkillablestepprogram unkillablesteptimeout usepam vsizefactor waittime x11parameters
"""
IRRELEVANT = frozenset(_IRRELEVANT.split()) - {name.lower() for name in UNMODELLED}
"""Parameters, in lower case, that decide neither when nor where a job starts, beyond what its log shows."""
