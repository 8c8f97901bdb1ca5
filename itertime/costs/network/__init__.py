"""Seconds of communication between GPUs, in a node and across nodes, from what the links carry.

| name | what |
|---|---|
| `Group` | a process group: its ranks, how many share a node and its NICs, how far its nodes lie apart |
| `Fabric` | the system and the profile whose links carry the bytes |
| `all_reduce_s`, `reduce_scatter_s`, `all_gather_s` | NCCL's collectives of a group |
| `all_to_all_s`, `p2p_s` | sends from each rank to each, and from one to one |
| `all_reduce_between_sites_s` | an all-reduce of sites, each with one link for all of its GPUs |
| `ranks_together` | how many of a group's ranks lie in one NVLink domain |
| `RoutedTokens` | the tokens that a rank sends to their experts |
| `dispatch_s`, `combine_s` | to the ranks of the experts, and back: NCCL, DeepEP, HybridEP |
| `distinct_parts` | how many ranks, or nodes, a token has to reach |

Every function broadcasts; the formulas and their sources are in the modules' docstrings.
"""

from .collectives import (
    all_gather_s,
    all_reduce_between_sites_s,
    all_reduce_s,
    all_to_all_s,
    p2p_s,
    reduce_scatter_s,
)
from .expert_dispatch import RoutedTokens, combine_s, dispatch_s, distinct_parts
from .group import Fabric, Group, ranks_together

__all__ = [
    "Fabric",
    "Group",
    "RoutedTokens",
    "all_gather_s",
    "all_reduce_between_sites_s",
    "all_reduce_s",
    "all_to_all_s",
    "combine_s",
    "dispatch_s",
    "distinct_parts",
    "p2p_s",
    "ranks_together",
    "reduce_scatter_s",
]
