"""Sources of measured runs: the organisations whose runs are left out together."""

from __future__ import annotations

from itertime.calibration import Cells

__all__ = ["source_of"]

ORGANISATIONS = {
    "nvidia-dgxc": "dgxc",
    "nvidia-bridge": "bridge",
    "nvidia-nemo": "nemo",
    "nvidia-automodel": "automodel",
    "meta-grand-teton": "torchtitan",
    "mosaicml": "llm-foundry",
    "ibm-h100": "fms",
    "ibm-vela": "fms",
    "leonardo": "modalities",
}
"""Organisations by site; any other site's rows count as those of their file."""


def source_of(row: Cells, file: str) -> str:
    """The source of a row of the table `file`: all files of an organisation are one."""
    return ORGANISATIONS.get(row["site"] or "", file)
