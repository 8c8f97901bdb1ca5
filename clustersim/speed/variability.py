"""GPUs of one type that are not equally fast, by class of job.

The time of a unit of work is multiplied by the factor of the slowest GPU of a job, for the class of the job.
All GPUs of a type have the same data sheet; their chips, power and cooling differ. How much a job notices of
that depends on what it uses (Sinha et al., "Not All GPUs Are Created Equal", SC 2022; Jain et al., "PAL: A
Variability-Aware Policy for Scheduling ML Workloads in GPU Clusters", SC 2024).

| factor of a GPU | |
|---|---|
| stated (`factors`) | by class and node; a table may state it by GPU |
| drawn (`sigma`) | exp(sigma of the class x \\|z\\|), z standard normal, drawn once a GPU for all classes |

Factors are at least 1: a predicted speed is that of a GPU without a flaw, so no job is faster than predicted,
and what no schedule can beat at the predicted speeds, none beats here. GPUs are counted by node, and the GPUs
that a job holds within a node are not known. So a node has the factor of its slowest GPU. For jobs of whole
nodes that is exact; for jobs of part of a node it is an upper limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from clustersim.cluster import Cluster, Placement
from itertime.errors import TableError, UnknownName, UserError, quoted
from itertime.io import check_repeated, open_table, shown
from traces.native import number, whole
from traces.workload import stream

__all__ = ["OTHER", "NodeSpeeds", "Variability", "read_factors"]

OTHER = "other"
"""The class of the jobs whose model `Variability.classes` does not name."""

_MOST, _MOST_SIGMA = 1000.0, 5.0
_SETTINGS = ("sigma", "classes", "factors")


@dataclass(frozen=True)
class Variability:
    """How unequal GPUs of one type are; see the module.

    `sigma`: by class of job; a number holds for all classes. `classes`: the class of each model, by its name;
    other jobs are of the class `other`. `factors`: by class, a factor for every node in their order; classes
    that it does not name have equal nodes. UserError for anything else, and for sigma beside factors.
    """

    sigma: float | Mapping[str, float] = 0.0
    classes: Mapping[str, str] = field(default_factory=dict)
    factors: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        by_class = self.sigma.items() if isinstance(self.sigma, Mapping) else (("", self.sigma),)
        for name, value in by_class:
            _check(f"sigma.{name}" if name else "sigma", value, 0.0, _MOST_SIGMA)
        if not isinstance(self.classes, Mapping) or not all(
            isinstance(name, str) and name for name in self.classes.values()
        ):
            raise UserError(
                f"variability.classes={quoted(self.classes)}: must map models to classes, as in {{bert: a}}"
            )
        if not isinstance(self.factors, Mapping):
            rule = "must map classes to lists of factors by node, or name a file FILE.csv"
            raise UserError(f"variability.factors={quoted(self.factors)}: {rule}")
        for name in (*dict(by_class), *self.classes, *self.factors):
            if not isinstance(name, str):
                raise UserError(f"variability: the name {quoted(name)} is no text; put it in quotes")
        for name, factors in self.factors.items():
            if not isinstance(factors, Sequence) or isinstance(factors, str) or not factors:
                rule = "must be a list with a factor for every node"
                raise UserError(f"variability.factors.{name}={quoted(factors)}: {rule}")
            for node, factor in enumerate(factors):
                _check(f"factors.{name}[{node}]", factor, 1.0, _MOST)
        if self.factors and self.sigma:
            raise UserError("variability: states sigma and factors; keep one of the two")

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Variability:
        """From settings by name; `factors` may name a table (see `read_factors`). UserError for an unknown
        name, a bad value, or a table that cannot be used.
        """
        for name in settings:
            if name not in _SETTINGS:
                raise UnknownName("parameter of variability", str(name), _SETTINGS)
        factors = settings.get("factors", {})
        return cls(**{**settings, "factors": read_factors(factors) if isinstance(factors, str) else factors})

    def stated(self) -> dict[str, Any]:
        """The parameters as plain JSON data; `Variability.of` reads them again."""
        sigma = dict(self.sigma) if isinstance(self.sigma, Mapping) else self.sigma
        factors = {name: list(by_node) for name, by_node in self.factors.items()}
        return {"sigma": sigma, "classes": dict(self.classes), "factors": factors}

    def class_of(self, model: str | None) -> str:
        """The class of the jobs that train a model, or none."""
        return self.classes.get(model or "", OTHER)

    def sigma_of(self, name: str) -> float:
        """The `sigma` of a class; 0 for a class that has none."""
        return self.sigma.get(name, 0.0) if isinstance(self.sigma, Mapping) else self.sigma


def _check(name: str, value: object, low: float, high: float) -> None:
    sound = isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
    if not sound:
        hint = "; divide the factors of a class by the least of them" if low == 1.0 else ""
        rule = f"must be a number from {low:g} to {high:g}{hint}"
        raise UserError(f"variability.{name}={quoted(value)}: {rule}")


class NodeSpeeds:
    """How much slower than predicted the nodes of a cluster are, by class of job.

    >>> speeds = NodeSpeeds(Variability(factors={"other": [1.0, 1.2]}), Cluster(2, 8))
    >>> speeds.factor("bert", ((0, 8),)), speeds.factor("bert", ((0, 8), (1, 8)))
    (1.0, 1.2)
    """

    def __init__(self, variability: Variability, cluster: Cluster, seed: int = 0):
        """UserError if `factors` are not those of the nodes of the cluster."""
        for name, factors in variability.factors.items():
            if len(factors) != cluster.nodes:
                fault = f"has {len(factors)} factors, the cluster has {cluster.nodes} nodes"
                raise UserError(f"variability.factors.{name}: {fault}; state one for each")
        self.variability = variability
        self._by_class = lru_cache(1000)(_factors_of(variability, cluster, seed))
        self._first, self._nodes = 0, cluster.nodes

    def stated(self) -> dict[str, Any]:
        """The parameters that they come from, as plain JSON data."""
        return self.variability.stated()

    def within(self, first_node: int, nodes: int) -> NodeSpeeds:
        """Those of `nodes` nodes from `first_node` on, which are then numbered from 0."""
        part = object.__new__(NodeSpeeds)
        part.variability, part._by_class = self.variability, self._by_class
        part._first, part._nodes = self._first + first_node, nodes
        return part

    def of(self, model: str | None) -> Sequence[float]:
        """The factor of each node for jobs that train a model, or none, in the order of the nodes."""
        factors = self._by_class(self.variability.class_of(model))
        return factors[self._first : self._first + self._nodes]

    def factor(self, model: str | None, placement: Placement) -> float:
        """How many times as long as predicted a unit of work of such a job takes there: the factor of the
        slowest of its nodes, at least 1.
        """
        factors = self._by_class(self.variability.class_of(model))
        return max([factors[self._first + node] for node, _ in placement])


def _factors_of(variability: Variability, cluster: Cluster, seed: int) -> Callable[[str], tuple[float, ...]]:
    """A function from a class to the factors of the nodes."""
    slowest: np.ndarray | None = None  # by node, the largest |z| of its GPUs

    def of(name: str) -> tuple[float, ...]:
        nonlocal slowest
        if name in variability.factors:
            return tuple(float(factor) for factor in variability.factors[name])
        sigma = variability.sigma_of(name)
        if not sigma:
            return (1.0,) * cluster.nodes
        if slowest is None:
            drawn = np.abs(stream(seed, "speeds of GPUs").standard_normal(cluster.gpus))
            starts = np.cumsum([0, *cluster.sizes[:-1]])
            slowest = np.maximum.reduceat(drawn, starts)
        return tuple(np.exp(sigma * slowest).tolist())

    return of


def read_factors(path: str | Path) -> dict[str, list[float]]:
    """By class, the factor of each node, from a table with the column `node`, perhaps `gpu`, and a column of
    factors for each class (`other`: all jobs whose model has no class). A node with a row for each of its
    GPUs has the factor of the slowest.

    UserError for a file that cannot be read, TableError with file, line and column for values that cannot be
    used and for nodes that are missing.
    """
    by_node: dict[int, dict[str, float]] = {}
    seen: set[tuple[int, int]] = set()
    with open_table(path) as table:
        classes = [column for column in table.columns if column not in ("node", "gpu")]
        if "node" not in table.columns or not classes:
            raise TableError(f"{path}:1: must have the columns node, gpu if wanted, and one for each class")
        check_repeated(table.columns, f"{path}:1", table.columns)
        for line, cells in table.rows:
            place = f"{path}:{line}"
            if len(cells) != len(table.columns):
                raise TableError(f"{place}: has {len(cells)} cells where the header has {len(table.columns)}")
            row = dict(zip(table.columns, cells, strict=True))
            node, gpu = (
                int(_cell(row, name, whole, place)) if name in row else 0 for name in ("node", "gpu")
            )
            if (node, gpu) in seen:
                raise TableError(f"{place}: node={node}: this GPU is stated twice; keep one")
            seen.add((node, gpu))
            factors = by_node.setdefault(node, dict.fromkeys(classes, 0.0))
            for name in classes:
                factors[name] = max(factors[name], _cell(row, name, number, place))
    missing = next((node for node in range(len(by_node)) if node not in by_node), None)
    if missing is not None or not by_node:
        raise TableError(f"{path}: has no row of node {missing or 0}; state every node from 0 on")
    return {name: [by_node[node][name] for node in range(len(by_node))] for name in classes}


def _cell(row: Mapping[str, str], column: str, parse: Callable[[str], float], place: str) -> float:
    try:
        value = parse(row[column].strip())
        if value < 0:
            raise ValueError("must not be negative")
        return value
    except ValueError as error:
        raise TableError(f"{place}: {column}={shown(row[column])}: {error}") from None
