"""Sets of nodes as the bits of an integer: bit i stands for node i.

Python's integers are of any length, and `&`, `|`, `~`, `==` and `bit_count()` work on 64 nodes per machine
word. So "the empty nodes of this leaf switch that the job already holds" costs a few machine operations on a
cluster of a thousand nodes, where a `set` needs an operation and an object per node. Copies are free, because
integers are immutable. The operators are those of integers: `a & b` is the intersection, `a & ~b` the
difference, and an empty set is 0. The functions below do the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

__all__ = ["NodeSet", "first_node", "lowest_nodes", "node_range", "node_set", "nodes_of"]

NodeSet = int
"""The nodes whose bits are set. A negative one, as `~nodes`, stands for all but a few nodes."""


_WORD_BITS = 256
_WORD = (1 << _WORD_BITS) - 1


def node_set(nodes: Iterable[int]) -> NodeSet:
    """The set of the given nodes.

    >>> bin(node_set([0, 3]))
    '0b1001'
    """
    bits = 0
    for node in nodes:
        bits |= 1 << node
    return bits


def node_range(first: int, count: int) -> NodeSet:
    """The set of `count` consecutive nodes."""
    return ((1 << count) - 1) << first


def nodes_of(nodes: NodeSet) -> Iterator[int]:
    """The nodes of a set that is not negative, in ascending order.

    >>> list(nodes_of(0b1001))
    [0, 3]
    """
    first = 0
    while nodes > _WORD:  # operations on a part of it are faster than those on all bits
        zeros = (nodes & -nodes).bit_length() - 1
        first += zeros
        nodes >>= zeros
        word = nodes & _WORD
        while word:
            lowest = word & -word
            yield first + lowest.bit_length() - 1
            word ^= lowest
        first += _WORD_BITS
        nodes >>= _WORD_BITS
    while nodes:
        lowest = nodes & -nodes
        yield first + lowest.bit_length() - 1
        nodes ^= lowest


def lowest_nodes(nodes: NodeSet, count: int) -> list[int]:
    """The first `count` nodes of a set that has so many, in ascending order.

    >>> lowest_nodes(0b1101, 2)
    [0, 2]
    """
    if nodes > _WORD:
        return list(islice(nodes_of(nodes), count))
    node_list = []
    for _ in range(count):
        lowest = nodes & -nodes
        node_list.append(lowest.bit_length() - 1)
        nodes ^= lowest
    return node_list


def first_node(nodes: NodeSet) -> int:
    """The node with the lowest number; -1 for an empty set."""
    return (nodes & -nodes).bit_length() - 1
