"""Rooms: which of the free GPUs a job gets."""

from clustersim.cluster import Capacity, Cluster, HostDemand, SharedPlacement, cluster_of, node_set
from clustersim.placement import LimitedRoom, Room, SharedGpuRoom, placer

PACK = placer("pack")
NODES = Cluster(4, 8)


def test_a_job_keeps_its_own_gpus_while_they_are_free() -> None:
    capacity = Capacity(NODES)
    room = Room(PACK)
    assert room.keep(capacity, ((3, 8),)) == ((3, 8),)
    capacity.take(((3, 1),))
    assert room.keep(capacity, ((3, 8),)) is None
    assert room.place(capacity, 8, near := ((2, 8),)) == near


def test_reserved_nodes_are_used_first_and_closed_ones_not_at_all() -> None:
    capacity = Capacity(NODES)
    room = LimitedRoom(PACK, closed=node_set([0, 1]), reserved=node_set([3]))
    assert room.place(capacity, 8) == ((3, 8),)
    assert room.place(capacity, 16) == ((2, 8), (3, 8))
    assert room.fits(capacity, 16)
    assert not room.fits(capacity, 24)
    assert room.keep(capacity, ((0, 8),)) == ((0, 8),), "its own GPUs do not count as closed"


def test_a_share_goes_to_the_fullest_shared_gpu_else_to_a_free_one() -> None:
    capacity = Capacity(NODES)
    room = SharedGpuRoom(PACK, 400_000)
    first = room.place(capacity, 1)
    assert first == SharedPlacement(((0, 1),), 0, 400_000)
    capacity.take(first)
    second = room.place(capacity, 1)
    assert second == first, "the same GPU has room for a second share"
    capacity.take(second)
    assert room.place(capacity, 1) == SharedPlacement(((0, 1),), 1, 400_000)
    assert room.fits(capacity, 0.2)


def test_a_node_short_of_cores_is_out_of_the_room() -> None:
    group = {"name": "a", "nodes": 2, "gpus_per_node": 8, "gpu_type": "a100", "cpus_per_node": 16}
    cluster = cluster_of({"network": "ideal", "groups": [group]})
    capacity, demand = Capacity(cluster), HostDemand.of(32, None, 8)
    room = LimitedRoom(PACK, demand=demand)
    assert room.place(capacity, 8) == ((0, 4), (1, 4)), "4 cores for each GPU, 16 on a node"
    capacity.take(((0, 4),), demand)
    assert room.place(capacity, 4) == ((1, 4),)
    assert not room.fits(capacity, 8)
