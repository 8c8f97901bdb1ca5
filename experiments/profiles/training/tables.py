"""The newer tables, and which chip stands for which."""

from __future__ import annotations

from experiments.profiles.chips import Chip

__all__ = ["CUDNN_TABLE", "NORMS_TABLE", "family", "like"]

CUDNN_TABLE = "attention_fwd_bwd_cudnn"
NORMS_TABLE = "norms_fwd_bwd_cudnn"

# A chip without tables of its own -> the chip whose fractions of peak and of HBM bandwidth it takes. H100 and
# H200 hold the same die; B300 and GB300, B200 and GB200 differ in host and power limit.
STANDS_FOR = {
    "attention": {"h100": "h200", "b300": "gb300"},
    "serving": {"h100": "h200", "b300": "b200", "gb300": "gb200"},
    "norms": {"a100": "h200", "h100": "h200", "b200": "gb200", "b300": "gb300"},
    "casts": {"h100": "h200", "b300": "b200", "gb300": "gb200"},
}


def family(chip: Chip) -> str:
    """The first part of the file names of a chip's newer tables."""
    return chip.serving_tables or chip.tables


def like(what: str, chip: Chip) -> str:
    """The chip whose table of `what` a chip uses, by the first part of its file names."""
    return STANDS_FOR[what].get(family(chip), family(chip))
