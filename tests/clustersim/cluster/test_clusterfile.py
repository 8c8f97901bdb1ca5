"""Cluster files: their meaning, and errors that name file, key, value and remedy."""

import json
from pathlib import Path

import pytest

from clustersim.cluster import Cluster, cluster_of, load_cluster
from clustersim.cluster.clusterfile import GPU_TYPES
from itertime import load_system
from tests.tables import TEXTS

TWO = TEXTS["a cluster of two groups"]


def _load(folder: Path, text: str, network: str | None = None) -> Cluster:
    path = folder / "cluster.yaml"
    path.write_text(text)
    return load_cluster(str(path), network=network)


def test_groups_pools_and_switches(tmp_path: Path) -> None:
    cluster = _load(tmp_path, TWO)
    assert (cluster.nodes, cluster.gpus, cluster.network) == (48, 40 * 8 + 8 * 4, "contention")
    assert (cluster.gpus_per_node, cluster.shape) == (8, "n40g8+n8g4")
    assert [(p.gpu_type, p.first, p.nodes, p.gpus) for p in cluster.pools] == [
        ("h100", 0, 40, 320),
        ("a100", 40, 8, 32),
    ]
    assert [cluster.size_of(node) for node in (0, 39, 40, 47)] == [8, 8, 4, 4]
    assert [(leaf.first, leaf.nodes, leaf.spine) for leaf in cluster.leaves] == [
        (0, 16, 0), (16, 16, 0), (32, 8, 0), (40, 4, 1), (44, 4, 2),
    ]  # fmt: skip
    nic = load_system("dgx-h100").nic_bytes_per_s
    assert cluster.leaves[0].uplink_bytes_per_s == 16 * nic / 2
    assert cluster.leaves[3].uplink_bytes_per_s == 100e9
    assert cluster.leaves[3].spine_uplink_bytes_per_s == 50e9
    assert cluster.leaf_of[15:17] == (0, 1)
    assert cluster.leaf_of[-1] == 4


def test_network_of_the_call_wins_over_that_of_the_file(tmp_path: Path) -> None:
    assert _load(tmp_path, TWO, network="tiers").network == "tiers"


def test_groups_of_one_type_are_one_pool(tmp_path: Path) -> None:
    text = "groups: [{name: a, gpu_type: a100, nodes: 3}, {name: b, gpu_type: a100, nodes: 5}]"
    cluster = _load(tmp_path, text)
    assert [(p.nodes, p.first_leaf, p.leaves) for p in cluster.pools] == [(8, 0, 2)]


def test_shapes_need_no_file() -> None:
    assert load_cluster("n128g8") == Cluster(128, 8, "dgx-a100-80gb")
    assert load_cluster("4x8", "a100-80gb-800g") == Cluster(4, 8, "a100-80gb-800g")
    tiers = load_cluster("n4g8", network="tiers")
    assert (tiers.gpu_types, tiers.nodes, len(tiers.leaves)) == (("a100",), 4, 1)


def test_a_system_with_switches_gives_them_to_its_nodes(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(
        "{name: site, profile: a100-80gb, gpus_per_node: 8, nic_bytes_per_s: 100.0e+9, source: a test,"
        " nvlink_bytes_per_s: 300.0e+9, nodes_per_leaf: 4, leaf_oversubscription: 2}"
    )
    cluster = _load(tmp_path, "groups: [{name: a, system: site.yaml, nodes: 6}]")
    assert cluster.gpu_types == ("a100",)
    assert [(leaf.nodes, leaf.uplink_bytes_per_s) for leaf in cluster.leaves] == [(4, 200e9), (2, 200e9)]
    assert load_cluster("n6g8", str(tmp_path / "site.yaml"), "tiers").leaves == cluster.leaves


def test_a_type_without_a_profile_is_known_but_has_no_system(tmp_path: Path) -> None:
    assert GPU_TYPES["v100"] is None
    cluster = _load(tmp_path, "groups: [{name: a, gpu_type: v100, nodes: 2}]")
    assert (cluster.pools[0].system, cluster.gpus) == (None, 16)


SIZES = """
groups:
  - {name: small, gpu_type: v100, nodes: 3, gpus_per_node: 2, cpus_per_node: 12}
  - {name: large, gpu_type: v100, nodes: 2, cpus_per_node: 40}
"""


def test_nodes_of_one_type_may_differ_in_size(tmp_path: Path) -> None:
    cluster = _load(tmp_path, SIZES)
    (pool,) = cluster.pools
    assert (cluster.mixed, cluster.unequal, cluster.gpu_types) == (False, True, ("v100",))
    assert (pool.nodes, pool.gpus, pool.gpus_per_node, pool.cpus_per_node) == (5, 22, 8, 40)
    assert pool.by_size == ((8, 0b11000), (2, 0b00111))


@pytest.mark.parametrize("text", [TWO, SIZES, "groups: [{name: a, gpu_type: v100, nodes: 2}]"])
def test_a_manifest_gives_the_same_cluster_again(tmp_path: Path, text: str) -> None:
    cluster = _load(tmp_path, text)
    assert cluster_of(json.loads(json.dumps(cluster.document()))) == cluster
    shape = Cluster.parse("n3g2")
    assert cluster_of(json.loads(json.dumps(shape.document()))) == shape


def test_cores_and_memory(tmp_path: Path) -> None:
    limits = ", cpus_per_node: 96, host_memory_gb_per_node: 1024.5"
    text = f"groups: [{{name: n, gpu_type: a100, nodes: 2{limits}}}]"
    cluster = _load(tmp_path, text)
    assert cluster.host == (96_000_000, 1_024_500_000)
    assert cluster_of(cluster.document()) == cluster
    assert cluster.states_host
    assert not load_cluster("n2g8").states_host
    group = _load(tmp_path, text.replace(limits, "")).document()["groups"][0]
    assert not {"cpus_per_node", "host_memory_gb_per_node"} & set(group)
