"""Seconds of an all-reduce between sites, each of which all others reach over one link.

The link of a site is shared by all of its GPUs, so what counts is the sum of what they exchange. Site by
site, an all-reduce of S bytes is a ring, whose links carry 2 (W-1)/W S bytes in 2 (W-1) messages one after
the other (Patarasuk and Yuan 2009), or a double tree of 2 S bytes in 2 ceil(log2 W) messages (Sanders, Speck,
Traeff 2009). The tree pays where the bytes are few and the sites many and far apart.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from itertime.arrays import Array
from itertime.spec import System

__all__ = ["all_reduce_between_sites_s"]


def all_reduce_between_sites_s(
    nbytes: ArrayLike, sites: ArrayLike, gpus_per_site: ArrayLike, system: System
) -> Array:
    """Seconds to all-reduce `nbytes` bytes of each of W = `sites` sites over the system's site link.

    min(2 (W-1)/W S/B + 2 (W-1) a, 2 S/B + 2 ceil(log2 W) a), with a the link's latency. B is the bandwidth
    of the link, or of the NICs of `gpus_per_site` GPUs where these carry less. No time for one site, or for
    no bytes. The system must have a site link. All arguments broadcast.
    """
    assert system.site_link_bytes_per_s is not None
    hop = system.site_link_latency_s
    size, count = np.asarray(nbytes, dtype=float), np.asarray(sites, dtype=float)
    of_a_gpu = min(system.nic_bytes_per_s / system.gpus_per_node, system.gpu_nic_bytes_per_s)
    nics = system.achieved_network * np.asarray(gpus_per_site) * of_a_gpu
    once = size / np.minimum(system.site_link_bytes_per_s, nics)
    ring = 2 * (count - 1) / count * once + 2 * (count - 1) * hop
    tree = 2 * once + 2 * np.ceil(np.log2(count)) * hop
    return np.where((size > 0) & (count > 1), np.minimum(ring, tree), 0.0)
