"""The parameters of slurm.conf: their defaults in Slurm 22.05, which ones simulations follow, and which not.

Source: slurm.conf(5) of Slurm 22.05.8. A parameter that decides when or where jobs start, and that nothing
here follows, is named where it differs from its default. Paths, ports, logs and limits of daemons decide no
schedule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from clustersim.sites.vocabulary import FOLLOWED_OPTIONS

__all__ = [
    "CLOCK_ONLY",
    "FOLLOWED",
    "FOLLOWED_OPTIONS",
    "FOLLOWED_PRIORITY_FLAGS",
    "IRRELEVANT",
    "UNMODELLED",
    "UNMODELLED_OPTIONS",
    "UNMODELLED_SELECTION",
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
    "PriorityUsageResetPeriod": Unmodelled(_OFF, "usage decays, and is never reset"),
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

UNMODELLED_OPTIONS: Mapping[str, str] = {
    "bf_busy_nodes": "plans do not prefer nodes in use",
    "bf_hetjob_immediate": "components of a heterogeneous job are planned at their own times",
    "bf_hetjob_prio": "components of a heterogeneous job have their own priorities",
    "bf_licenses": "jobs do not wait for licenses here",
    "bf_running_job_reserve": "plans are of pending jobs alone",
    "defer": "the main scheduler also runs when a job is submitted",
    "delay_boot": "nodes are never booted for a job here",
    "max_switch_wait": "jobs do not wait for a number of switches here",
    "pack_serial_at_end": "jobs of one CPU are placed as any other",
    "reduce_completing_frag": "nodes of completing jobs are free at once here",
    "sched_max_job_start": "a cycle may start any number of jobs",
}
"""Names in SchedulerParameters that decide schedules and that no simulation here follows."""

_CLOCK_ONLY = """
         bf_continue bf_max_time sched_min_interval
    allow_zero_lic bb_array_stage_cnt bf_node_space_size bf_yield_interval bf_yield_sleep
    build_queue_timeout     correspond_after_task_cnt disable_hetjob_steps disable_job_shrink
    enable_hetjob_steps enable_user_top     ignore_numa ignore_prefer_validation max_array_tasks
    max_rpc_cnt max_sched_time max_script_size     no_backup_scheduling no_env_cache
    nohold_on_prolog_fail requeue_setup_env_fail salloc_wait_nodes     sbatch_wait_nodes
    spec_cores_first step_retry_count step_retry_time whole_hetjob
"""
CLOCK_ONLY = frozenset(_CLOCK_ONLY.split())
"""Names in SchedulerParameters, in lower case, that decide no start here: a cycle takes no simulated time."""

UNMODELLED_SELECTION: Mapping[str, str] = {
    "CR_LLN": "jobs do not go to the least loaded nodes here",
    "CR_ONE_TASK_PER_CORE": "tasks of a job are not counted here",
    "CR_PACK_NODES": "tasks of a job are not counted here",
    "CR_SOCKET": "single cores are allocated here, not whole sockets",
    "CR_SOCKET_MEMORY": "single cores are allocated here, not whole sockets",
    "LL_SHARED_GRES": "shared GPUs are chosen by other rules here",
}
"""Values of SelectTypeParameters that no simulation here follows."""

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
