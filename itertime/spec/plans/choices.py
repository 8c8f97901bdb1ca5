"""The values that fields of a plan can have."""

from __future__ import annotations

__all__ = [
    "CP_EXCHANGES",
    "CUDA_GRAPHS",
    "DISPATCHERS",
    "PRECISIONS",
    "RANK_ORDERS",
    "RECOMPUTE",
    "SCHEDULES",
    "SPLITS",
]

RECOMPUTE = ("none", "selective", "full", "early-stop", "elementwise")
PRECISIONS = ("bf16", "fp8", "fp8_block", "mxfp8", "nvfp4", "tf32")
CUDA_GRAPHS = ("none", "layers", "full")
DISPATCHERS = ("alltoall", "deepep", "hybridep")
SCHEDULES = ("1f1b", "gpipe")
SPLITS = ("even", "balanced", "compute", "ends", "remainder")
CP_EXCHANGES = ("ring", "gather")
RANK_ORDERS = ("tp-cp-dp-pp", "tp-cp-pp-dp")
