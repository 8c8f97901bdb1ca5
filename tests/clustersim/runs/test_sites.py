"""A site as a setting: its nodes are the cluster, its rules those of the policy, and manifests hold it."""

import json

import pytest

import clustersim
from clustersim.grid import what_if
from clustersim.grid.inputs import Hashes, Inputs, key_of
from clustersim.runs import RunConfig, setup_of
from clustersim.sites import (
    Association,
    Partition,
    Qos,
    SiteNode,
    SlurmSite,
    document_of,
    load_site,
    site_of,
    write_site,
)
from itertime.errors import UserError
from itertime.io import sha256
from policies.fifo import Fifo
from traces import Job, write_trace


class Rules(Fifo):
    """The first job first; the rules of a site are read."""

    def __init__(self, site=None):
        super().__init__()
        self.site = site_of(site)


@pytest.fixture
def site(tmp_path):
    states = {"n3": "down"}
    nodes = [SiteNode(f"n{i}", 4, "a100", 16, 64.0, state=states.get(f"n{i}", "up")) for i in (1, 2, 3, 4)]
    partitions = {"gpu": Partition(("n1", "n2", "n3", "n4")), "old": Partition(("n1", "n2"))}
    associations = (Association("root"), Association("lab", "root"), Association("lab", user="ann"))
    site = SlurmSite("hill", tuple(nodes), partitions, {"high": Qos(Priority=5)}, associations)
    write_site(site, tmp_path / "site.yaml")
    return str(tmp_path / "site.yaml")


JOBS = [Job(f"j{i}", 10.0 * i, gpus=4, duration_s=100.0) for i in range(6)]


def test_nodes_and_rules_of_a_site_are_those_of_the_run(site, tmp_path):
    run = clustersim.run(JOBS, Rules, site=site, overheads=None, out=tmp_path / "out")
    assert (run.cluster.nodes, run.cluster.gpus) == (4, 16)
    assert [job.finish_s for job in run.jobs] == [100.0, 110.0, 120.0, 200.0, 210.0, 220.0]  # on three nodes
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert manifest["calendar"] == [{"at_s": 0, "remove": "2"}]
    assert (
        site_of(manifest["site"]) == setup_of(RunConfig.make(policy="easy", site=site), Rules).scheduler.site
    )
    again = clustersim.run(JOBS, Rules, site=manifest["site"], calendar=manifest["calendar"], overheads=None)
    assert [job.finish_s for job in again.jobs] == [job.finish_s for job in run.jobs]


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ("site.qos.high.limits.GrpTRES=gres/gpu=8", lambda site: site.qos["high"].limits),
        ("site.associations.lab/ann.Share=parent", lambda site: site.associations[2].Share),
        ("site.settings.SchedulerParameters.bf_interval=60", lambda site: site.settings.SchedulerParameters),
        ("site.partitions.old.MaxTime=1-00:00:00", lambda site: site.partitions["old"].MaxTime),
        ("site.nodes.n[3-4].state=up", lambda site: [node.state for node in site.nodes]),
        ("site.nodes=6", lambda site: (site.nodes[-1].name, site.partitions["gpu"].nodes[-2:])),
        ("site.nodes=2", lambda site: (len(site.nodes), site.partitions["gpu"].nodes)),
    ],
)
def test_one_value_of_a_site_is_another(site, change, value):
    changed = site_of(RunConfig.make([change], policy="easy", site=site).site or {})
    expected = {
        "qos": {"GrpTRES": {"gres/gpu": 8.0}},
        "associations": None,
        "settings": {"bf_interval": 60},
        "partitions": 86400.0,
        "nodes": ["up"] * 4,
        "nodes=6": ("n6", ("n5", "n6")),
        "nodes=2": (2, ("n1", "n2")),
    }
    assert value(changed) == expected[change.removeprefix("site.").partition(".")[0]]


def test_a_what_if_varies_a_site(site, tmp_path):
    result = what_if(JOBS, "easy", {"nodes": [2, 4]}, workers=1, site=site, overheads=None)
    assert [cell.metrics["makespan_s"] for cell in result] == [310.0, 220.0]


@pytest.mark.parametrize(
    ("changes", "settings", "said"),
    [
        ([], {"cluster": "n4g4"}, "cluster='n4g4': contradicts site, which states the nodes"),
        (["site.qos.hi.Priority=1"], {}, "unknown name in qos 'hi'; did you mean high?"),
        (["site.qos.high.Prio=1"], {}, "site: qos.high: unknown key 'Prio' (did you mean 'Priority'?)"),
        (["site.nodes=0"], {}, "site.nodes=0: must be a whole number, at least 1"),
        (["site.nodes.n9.state=up"], {}, "unknown node 'n9'"),
        (["site.tiers.a=1"], {}, "unknown part of a site 'tiers'"),
        (["site.qos.high.Priority=1"], {"site": None}, "no site is stated; give its file with --site"),
    ],
)
def test_values_that_no_site_has_are_refused(site, changes, settings, said):
    with pytest.raises(UserError) as refusal:
        RunConfig.make(changes, policy="easy", **{"site": site, **settings}).stated_cluster()
    assert said in str(refusal.value)


def test_the_key_of_a_cell_knows_the_date_of_a_trace_where_the_site_has_dates(site, tmp_path):
    trace, report = tmp_path / "jobs.csv", tmp_path / "jobs.import.json"
    write_trace(JOBS, trace)
    keys = set()
    for settings in ({}, {"PriorityUsageResetPeriod": "DAILY"}):
        document = {**document_of(load_site(site)), "settings": settings}
        inputs = Inputs(RunConfig.make(policy="slurm", site=document), str(trace))
        for shift_s in (1.6e9, 1.7e9):
            clock = {"shift_s": shift_s, "time_scale": 1.0}
            report.write_text(json.dumps({"output": {"sha256": sha256(trace)}, "clock": clock}))
            keys.add(key_of(inputs, Hashes(), {})[0])
    assert len(keys) == 3
