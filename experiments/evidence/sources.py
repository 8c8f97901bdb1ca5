"""Sources of measured runs: the organisations whose runs are left out together."""

from __future__ import annotations

import re

from itertime.calibration import Cells

__all__ = ["source_of"]

ORGANISATIONS = {
    "nvidia-dgxc": "dgxc",
    "nvidia-bridge": "bridge",
    "nvidia-bridge-skills": "bridge",
    "nvidia-nemo": "nemo",
    "nvidia-nemo-long": "nemo",
    "nvidia-automodel": "automodel",
    "nvidia-automodel-lora": "automodel",
    "meta-grand-teton": "torchtitan",
    "mosaicml": "llm-foundry",
    "ibm-h100": "fms",
    "ibm-vela": "fms",
    "leonardo": "modalities",
    "qwen-finetune": "qwen",
}
"""Organisations by site. A submitter to MLPerf is one in all rounds; any other site's rows count as those of
their file.
"""


def source_of(row: Cells, file: str) -> str:
    """The source of a row of the table `file`: all files of an organisation are one."""
    site, origin = row["site"] or "", row["source"] or ""
    if submitter := re.match(r"mlperf\d+-(.+)", site):
        return f"mlperf-{submitter[1]}"
    if not site and (submitter := re.search(r"(\S+)/results/", origin)):
        return f"mlperf-{submitter[1].lower()}"
    return ORGANISATIONS.get(site, file)
