"""Sites from what Slurm's commands print: a small export by hand, and the recorded ones."""

from dataclasses import replace

import pytest

from clustersim.sites import FOLLOWED_OPTIONS, document_of, node_numbers, site_of, summary_of
from clustersim.sites.exports import SlurmFiles, read_slurm
from clustersim.sites.exports.parameters import FOLLOWED, FOLLOWED_PRIORITY_FLAGS
from clustersim.sites.limits import FOLLOWED_LIMITS
from tests.places import ROOT, SHARED

CONFIG = """\
Configuration data as of 2026-03-02T08:00:00
AuthInfo                = cred_expire=60
ClusterName             = hill
KillWait                = 45 sec
Licenses                = solver:4
OverTimeLimit           = 2 min
PreemptMode             = REQUEUE
PreemptType             = preempt/qos
PriorityCalcPeriod      = 00:05:00
PriorityDecayHalfLife   = 14-00:00:00
PriorityType            = priority/multifactor
PriorityWeightAge       = 100
PriorityWeightTRES      = CPU=10,GRES/gpu=50
SchedulerParameters     = bf_interval=60,bf_continue,bf_intervall=3
SchedulerType           = sched/backfill
SelectType              = select/cons_tres
SelectTypeParameters    = CR_CORE_MEMORY
SLURM_VERSION           = 22.05.8

Cgroup Support Configuration:
ClusterName             = another
"""
NODES = """\
NodeName=g01 Arch=x86_64 CoresPerSocket=16
   CPUAlloc=0 CPUEfctv=62 CPUTot=64 Gres=gpu:a100:4(S:0-1) OS=Linux 6.1 #1 SMP
   RealMemory=500000 State=MIXED Weight=1 Partitions=gpu,all

NodeName=g02 Arch=x86_64 CoresPerSocket=16
   CPUEfctv=62 CPUTot=64 Gres=gpu:a100:4,shard:8 RealMemory=500000 State=IDLE+DRAIN Weight=1
   Reason=set Gres=gpu:2 later [root@2026-03-01T10:00:00]
NodeName=c01 Arch=x86_64 CoresPerSocket=16
   CPUTot=64 Gres=(null) RealMemory=250000 State=IDLE Weight=1
"""
PARTITIONS = """\
PartitionName=gpu AllowAccounts=ALL AllowQos=high,normal Default=YES QoS=N/A MaxTime=2-00:00:00 \
Nodes=g[01-02] PriorityTier=1 PreemptMode=REQUEUE State=UP TotalNodes=2 DefaultTime=NONE
PartitionName=all AllowAccounts=hpc Default=NO MaxTime=UNLIMITED Nodes=c01,g[01-02] PriorityTier=3 \
ExclusiveUser=YES PreemptMode=OFF TRESBillingWeights=cpu=1,gres/gpu=16 State=UP TotalNodes=3
"""
QOS = """\
Name|Priority|GraceTime|Preempt|PreemptMode|Flags|UsageFactor|GrpTRESMins|MaxWall|MaxTRESPU|MaxJobsPU
normal|0|00:00:00||cluster||1.000000||||
high|50|00:00:30|normal|cancel|DenyOnLimit,NoReserve|2.000000|gres/gpu=100|1-00:00:00|gres/gpu=8,mem=1T|5
"""
ASSOC = """\
Cluster|Account|User|Share|GrpTRES|MaxJobs|QOS|Def QOS
hill|root||1|||normal|
hill| hpc||3|gres/gpu=8||high,normal|normal
hill|  lab||2|||normal|
hill|  lab|ann|parent||2|normal|
vale|root||1|||normal|
"""
RESERVATIONS = """\
ReservationName=maint StartTime=2026-03-03T00:00:00 EndTime=2026-03-03T06:00:00 Duration=06:00:00
   Nodes=g02 Flags=MAINT,DAILY Users=root,-ann Accounts=(null) Licenses=(null)
"""
FILES = {
    "config": CONFIG,
    "nodes": NODES,
    "partitions": PARTITIONS,
    "qos": QOS,
    "assoc": ASSOC,
    "reservations": RESERVATIONS,
}
SLURM_CONF = """\
# the same in slurm.conf
clustername=hill   # names are in any case
AuthInfo=cred_expire=60
killwait=45
Licenses=solver:4
OverTimeLimit=2
PreemptType=preempt/qos
PreemptMode=requeue
PriorityType=priority/multifactor
PriorityCalcPeriod=00:04:01
PriorityDecayHalfLife=14-0
PriorityWeightAge=100
PriorityWeightTRES="CPU=10,GRES/gpu=50"
SchedulerParameters=bf_interval=60,bf_continue,\\
bf_intervall=3
SelectType=select/cons_tres
Include /etc/slurm/hosts.conf
PartitionName=DEFAULT State=UP
PartitionName=gpu Nodes=GPUS Default=YES MaxTime=2880 AllowQos=high,normal
PartitionName=all Nodes=c01,GPUS PriorityTier=3 AllowAccounts=hpc ExclusiveUser=YES PreemptMode=OFF \\
    TRESBillingWeights="cpu=1,gres/gpu=16"
"""
HOSTS_CONF = """\
NodeName=DEFAULT CPUs=62 RealMemory=500000 Gres=gpu:4
NodeName=g01
NodeName=g02 Gres=gpu:4,shard:8 State=DRAIN
NodeName=c01 CPUs=64 RealMemory=250000 Gres=
NodeSet=GPUS Nodes=g[01-02]
"""


@pytest.fixture
def exported(tmp_path):
    for name, text in {**FILES, "slurm.conf": SLURM_CONF, "hosts.conf": HOSTS_CONF}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "gres.conf").write_text("Name=gpu Type=a100 File=/dev/nvidia[0-3]\n")
    return SlurmFiles(**{name: tmp_path / name for name in FILES})


def test_a_site_is_what_the_commands_print(exported):
    site, said = read_slurm(exported)
    assert [(node.name, node.gpus, node.gpu_type, node.cpus, node.state) for node in site.nodes] == [
        ("g01", 4, "a100", 62, "up"),
        ("g02", 4, "a100", 62, "down"),
        ("c01", 0, "", 64, "up"),
    ]
    assert node_numbers(site) == {"g01": 0, "g02": 1}
    gpu, every = site.partitions["gpu"], site.partitions["all"]
    assert (gpu.MaxTime, gpu.AllowQos, gpu.PreemptMode) == (172800.0, ("high", "normal"), None)
    assert (every.nodes, every.PreemptMode) == (("c01", "g01", "g02"), "OFF")
    assert every.TRESBillingWeights == {"cpu": 1.0, "gres/gpu": 16.0}
    high = site.qos["high"]
    assert (high.Preempt, high.PreemptMode, high.GraceTime) == (("normal",), "CANCEL", 30.0)
    assert high.limits == {
        "GrpTRESMins": {"gres/gpu": 6000.0},
        "MaxWall": 86400.0,
        "MaxTRESPerUser": {"gres/gpu": 8.0, "mem": 2**40 / 1e9},
        "MaxJobsPerUser": 5,
    }
    assert [(entry.account, entry.parent, entry.user, entry.Share) for entry in site.associations] == [
        ("root", "", "", 1),
        ("hpc", "root", "", 3),
        ("lab", "hpc", "", 2),
        ("lab", "", "ann", None),
    ]
    assert site.reservations[0].end - site.reservations[0].start == 6 * 3600
    settings = site.settings
    assert (settings.KillWait, settings.OverTimeLimit, settings.requeue_delay) == (45.0, 120.0, 61.0)
    assert settings.PriorityWeightTRES == {"cpu": 10.0, "gres/gpu": 50.0}
    assert "1 other clusters are left out" in said[0]
    assert site_of(document_of(site)) == site


def test_what_is_not_modelled_is_named(exported):
    site, _ = read_slurm(exported)
    named = [sentence.removeprefix(f"{exported.nodes}:5: g02: ") for sentence in site.unmodelled]
    assert [sentence.partition(":")[0] for sentence in named] == [
        "Licenses=solver",
        "SchedulerParameters=bf_intervall=3",
        "Gres=shard",
        "partition gpu",
        "partition all",
        "partition all",
        "reservation maint",
        "reservation maint",
    ]
    assert "did you mean bf_interval?" in named[1]
    assert summary_of(site)[:2] == [
        "3 nodes, 8 GPUs: 2 x 4 a100; 1 nodes without GPUs; 1 nodes are down",
        "partition gpu: 2 nodes, default, tier 1, at most 2-00:00:00",
    ]


def test_slurm_conf_states_the_same_site(exported):
    folder = exported.config.parent
    printed, _ = read_slurm(exported)
    written, _ = read_slurm(
        replace(
            exported, config=folder / "slurm.conf", nodes=None, partitions=None, gres=folder / "gres.conf"
        )
    )
    assert replace(written, unmodelled=()) == replace(printed, unmodelled=())


def test_what_is_said_to_be_followed_is_in_the_policy():
    """A name that the policy no longer reads must not be said to be followed."""
    files = [ROOT / "policies/slurm.py", *(ROOT / "policies/slurmctld").glob("*.py")]
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    names = {*FOLLOWED_OPTIONS, *FOLLOWED_PRIORITY_FLAGS, *FOLLOWED_LIMITS, *FOLLOWED}
    beside = {"ClusterName", "AuthInfo", "SelectTypeParameters"}  # name, requeue_delay, cores of nodes
    assert {name for name in names if name not in text} <= beside


@pytest.mark.parametrize("run", ["site-1", "tiers-1"])
def test_recorded_exports_are_one_site_by_either_configuration(run):
    folder = SHARED / "slurm" / "reference" / run
    if not folder.is_dir():
        pytest.skip(f"needs the recorded exports in {folder}")
    names = {"qos": "sacctmgr-qos.txt", "assoc": "sacctmgr-assoc.txt", "gres": "gres.conf"}
    others = {name: folder / file for name, file in names.items()}
    printed, _ = read_slurm(
        SlurmFiles(folder / "config.txt", folder / "nodes.txt", folder / "partitions.txt", **others)
    )
    written, _ = read_slurm(SlurmFiles(folder / "slurm.conf", **others))
    assert printed == written
    assert (len(printed.nodes), printed.settings.PriorityCalcPeriod) == (16, 60.0)
    if run == "tiers-1":
        tiers = {name: (part.PriorityTier, len(part.nodes)) for name, part in printed.partitions.items()}
        assert tiers == {"gpu": (1, 16), "urgent": (10, 16), "small": (1, 4)}
