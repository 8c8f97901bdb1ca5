"""PowerSGD: gradients of matrices as products of two factors of a low rank (Vogels et al. 2019, algorithm 1).

Every matrix M of n x m has a right factor Q, m x r, from the iteration before. An iteration computes P = M Q,
sums P over the ranks, makes its columns orthogonal, computes Q = M^T P, sums Q, and takes P Q^T for the sum
of the gradients. Vectors are summed as they are. What P Q^T lacks of M is added to the next gradient.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from itertime.arrays import Array
from itertime.costs.linear import linear_gemms
from itertime.costs.partition import Workload
from itertime.schedule import FIRST, LAST
from itertime.spec import Elementwise, Gemm

PASSES = 7
"""Reads and writes of the columns that are left, for every column that becomes orthogonal: the product with
it and its sum, the products to subtract and the difference (PyTorch, `_orthogonalize_gram_schmidt`)."""
KERNELS = 7
"""Kernels of one column: norm, division, product, sum, product, difference, copy."""


@dataclass(frozen=True)
class Factors:
    """Matrices of the stage that ends last: `counts`, `rows` and `columns` of each kind, (kinds, plans).

    `shares`: elements of P, of Q and of vectors over the parameters of the stage, (plans,) each.
    """

    counts: Array
    rows: Array
    columns: Array
    shares: tuple[Array, Array, Array]


def power_factors(workload: Workload) -> Factors:
    """The matrices of the stage with the embedding on one GPU, and what PowerSGD sends of them.

    The rank of a matrix's factors is at most its smaller side.
    """
    plans, partition, column = workload.plans, workload.partition, np.arange(len(workload))
    layers = partition.layers[np.where(plans.pp == 1, LAST, FIRST), column].astype(float)
    shapes = [(layers, n, k) for _, n, k in linear_gemms(workload)]
    tables = np.rint(partition.tables / partition.table)
    hidden = np.full(len(plans), float(workload.model.hidden))
    shapes.append((tables, partition.table / hidden, hidden))
    counts, rows, columns = (np.array(column) for column in zip(*shapes, strict=True))
    rank = np.minimum(plans.options.compression_rank, np.minimum(rows, columns))
    parameters = layers * workload.shared_parameters + partition.tables
    vectors = np.maximum(parameters - (counts * rows * columns).sum(axis=0), 0.0)
    shares = (
        (counts * rows * rank).sum(axis=0) / parameters,
        (counts * columns * rank).sum(axis=0) / parameters,
        vectors / parameters,
    )
    return Factors(counts, rows, columns, shares)


def power_kernels_s(workload: Workload) -> Array:
    """Seconds of the three products of every matrix and of making P's columns orthogonal, in 32 bit."""
    factors, profile = power_factors(workload), workload.profile
    n, m = factors.rows, factors.columns
    rank = np.minimum(workload.plans.options.compression_rank, np.minimum(n, m)) + 0 * n
    products = profile.seconds(Gemm(np.array([n, m, n]), np.array([rank, rank, m]), np.array([m, n, rank])))
    moved = 4 * n * (3 * rank + PASSES * rank * (rank - 1) / 2)
    kernels = KERNELS * rank
    orthogonal = kernels * profile.seconds(Elementwise(moved / kernels)) / workload.system.site.hbm_fraction
    matrix_s = workload.gemm_factor * products.sum(axis=0) + orthogonal
    return np.asarray((factors.counts * matrix_s).sum(axis=0))
