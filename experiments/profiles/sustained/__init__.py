"""Fits to tables of kernels that ran for up to a second each, at the GPU's power limit.

| name | what |
|---|---|
| `fit_precisions` | models of GEMMs by precision, what another power limit changes, and the evidence |
| `fit_grouped` | models of experts' grouped GEMMs by precision, and the evidence |
| `SOURCES` | which table, collector and dtype each GPU's precisions come from |
"""

from .gemm import fit_precisions
from .grouped_gemm import fit_grouped
from .tables import SOURCES

__all__ = ["SOURCES", "fit_grouped", "fit_precisions"]
