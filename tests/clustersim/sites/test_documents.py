"""A site is the same after it was written and read, and its nodes keep their places in the cluster."""

import json
from dataclasses import replace

import pytest

from clustersim.sites import (
    Association,
    Partition,
    Qos,
    Settings,
    SiteNode,
    SiteReservation,
    SlurmSite,
    changed_document,
    closed_numbers,
    cluster_of_site,
    document_of,
    hostlist_of,
    hosts_of,
    load_site,
    node_numbers,
    site_of,
    write_site,
)


@pytest.fixture
def site():
    nodes = tuple(SiteNode(name, 8, "a100", 32, 256.0) for name in hosts_of("n[01-03],n[05-06]"))
    partitions = {
        "gpu": Partition(tuple(node.name for node in nodes), MaxTime=3600.0, Default=True),
        "small": Partition(("n01", "n03"), PriorityTier=5, TRESBillingWeights={"cpu": 1.0, "mem": 0.2}),
    }
    limits = {"MaxTRESPerUser": {"gres/gpu": 56.0}, "GrpTRESMins": {"cpu": 6000.0}, "MaxWall": 90.5}
    users = [Association("root"), Association("acc1", "root", Share=5, limits={"MaxJobs": 3})]
    return SlurmSite(
        "here",
        nodes,
        partitions,
        {"normal": Qos(limits=limits), "high": Qos(Preempt=("normal",))},
        (*users, Association("acc1", user="u1", Share=None, limits={"GrpTRES": {"mem": 16.7}})),
        (SiteReservation("maint", 100.0, 160.0, ("n01", "n02"), users=("root",)),),
        Settings(SchedulerParameters={"bf_interval": 1, "bf_continue": True}, PreemptMode="OFF"),
        ("Licenses=a: is not modelled",),
    )


def test_times_of_reservations_are_dates(site):
    document = changed_document(document_of(site), "reservations.maint.known", "1970-01-01T01:01:30+01:00")
    assert site_of(document).reservations[0].known == 90.0


def test_a_site_is_the_same_after_a_file_or_a_manifest(site, tmp_path):
    assert site_of(json.loads(json.dumps(document_of(site)))) == site
    write_site(site, tmp_path / "site.yaml")
    assert load_site(tmp_path / "site.yaml") == site
    text = (tmp_path / "site.yaml").read_text(encoding="utf-8")
    for line in (
        "- name: n[01-03,05-06]",
        "GrpTRESMins: cpu=100",
        "MaxTRESPerUser: gres/gpu=56",
        "Share: parent",
    ):
        assert line in text


def test_a_file_may_state_values_as_slurm_prints_them():
    document = {
        "nodes": [{"name": "n[1-2]", "gpus": 4}],
        "partitions": {"gpu": {"nodes": "ALL", "MaxTime": "2-00:00:00", "OverSubscribe": False}},
        "qos": {"high": {"limits": {"MaxTRESPU": "GRES/gpu=8", "MaxJobsPU": 3, "GrpTRES": "cpu=-1"}}},
        "settings": {
            "PreemptMode": False,
            "PriorityFlags": "ACCRUE_ALWAYS,MAX_TRES",
            "PriorityMaxAge": "1-0",
        },
    }
    site = site_of(document)
    assert site.partitions["gpu"] == Partition(("n1", "n2"), MaxTime=172800.0)
    assert site.qos["high"].limits == {
        "MaxTRESPerUser": {"gres/gpu": 8.0},
        "MaxJobsPerUser": 3,
        "GrpTRES": {},
    }
    assert (site.settings.PreemptMode, site.settings.PriorityMaxAge) == ("OFF", 86400.0)


@pytest.mark.parametrize(
    "hosts", [["n01", "n02", "n04"], ["n9", "n10", "n010"], ["a", "b2x", "b3x", "b3"], ["n2", "n1"]]
)
def test_a_list_of_hosts_gives_back_its_names_in_order(hosts):
    assert hosts_of(hostlist_of(hosts)) == hosts


def test_nodes_are_numbered_type_by_type_in_the_order_of_the_controller(site):
    assert list(node_numbers(site).values()) == [0, 1, 2, 3, 4]
    others = [SiteNode("login", 0), SiteNode("v1", 4, "tesla_v100"), SiteNode("n07", 4, "a100", state="down")]
    mixed = replace(site, nodes=(*site.nodes[:2], *others, *site.nodes[2:]))
    assert node_numbers(mixed) == {"n01": 0, "n02": 1, "n07": 2, "n03": 3, "n05": 4, "n06": 5, "v1": 6}
    assert closed_numbers(mixed) == [2]
    cluster = cluster_of_site(mixed)
    assert (list(cluster.sizes), cluster.gpu_types) == ([8, 8, 4, 8, 8, 8, 4], ("a100", "tesla_v100"))
    assert [pool.system for pool in cluster.pools] == ["dgx-a100-80gb", None]
    assert cluster.groups[0].host_memory_gb_per_node == 256.0  # CR_CORE_MEMORY allocates memory
