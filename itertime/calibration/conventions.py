"""What sources of measured runs mean and document, and no column states: the file `conventions.yaml`.

A fact about a source is a line there, with where it is from. The code that reads rows knows no source.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field
from pydantic.dataclasses import dataclass

from itertime.io import CONFIG, construct, read_mapping

from .table import Cells

__all__ = ["CONVENTIONS", "Chip", "Conventions", "SiteConventions", "conventions_of"]


@dataclass(frozen=True, config=CONFIG)
class SiteConventions:
    """The conventions of a site. The defaults are those of a site without any."""

    source: str = ""
    framework: str | None = None
    system: str | None = None
    memory: str | None = None
    model: dict[str, Any] = Field(default_factory=dict)
    shapes: dict[int, dict[str, Any]] = Field(default_factory=dict)
    plan: dict[str, Any] = Field(default_factory=dict)
    overlaps_without_zero: bool = False
    allocated: bool = False
    early_stop: str | None = None


@dataclass(frozen=True, config=CONFIG)
class Chip:
    """How a chip is sold, and the system whose nodes hold it, by form and memory."""

    forms: tuple[str, ...]
    systems: dict[str, str]
    usual_gb: str = ""

    def system(self, form: str, memory_gb: str) -> str | None:
        """The system of nodes with this form of the chip; None if there is none."""
        if form not in self.forms:
            return None
        if form == "PCIE":
            return self.systems.get(f"PCIE-{memory_gb}") or self.systems.get("PCIE")
        return self.systems.get(memory_gb or self.usual_gb if self.usual_gb else "")


@dataclass(frozen=True, config=CONFIG)
class BertConventions:
    """What MLPerf's rules and the submitters' codes fix for BERT, and the names of their machines."""

    model: str
    lengths: str
    adam_bucket_bytes: int
    lamb_blocks: int
    custom_cooling_w: dict[str, float]
    servers: dict[str, str]


@dataclass(frozen=True, config=CONFIG)
class Conventions:
    """The content of the file, whose comments say what its keys mean."""

    sites: dict[str, SiteConventions]
    memories: dict[str, dict[str, Any]]
    usual_power_w: dict[str, float]
    chips: dict[str, Chip]
    precisions: dict[str, str]
    software: dict[str, str]
    bert: BertConventions


_FILE = Path(__file__).with_name("conventions.yaml")
CONVENTIONS = construct(Conventions, read_mapping(_FILE), _FILE)


def conventions_of(row: Cells) -> SiteConventions:
    """The conventions of the site that ran a row."""
    return CONVENTIONS.sites.get(row["site"] or "", SiteConventions())
