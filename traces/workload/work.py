"""The work of a job under the rules: its model, and the iterations that fill its logged run time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from itertime.costs import MEMORY_HEADROOM
from itertime.io import sha256
from itertime.planning import Planner, default_cache, make_planner, planner_name
from itertime.spec import Models, load_system
from traces.job import MAX_GPUS

from .rules import Deadlines, Rules, load_rules, rules_path

__all__ = ["Work", "WorkMaker", "as_floats", "deadline_factors", "stream", "work_maker"]

_BLOCK = 10_000


@dataclass(frozen=True, slots=True)
class Work:
    """A job's work: on `gpus` GPUs, `iterations` of `iteration_s` seconds each take the logged run time."""

    model: str
    global_batch: int
    gpus: int
    iterations: float
    iteration_s: float


class WorkMaker:
    """Assigns work to jobs: models by `rules`, iteration times by `planner`.

    iterations = duration_s / iteration_s, with the iteration time that the planner reaches on exactly the
    requested GPUs. There, under the same planner, the job takes its logged run time.
    """

    def __init__(self, rules: Rules, planner: Planner, models: Models | None = None):
        self.rules = rules
        self._models = models or Models()
        self._planner = planner
        self._iteration_s: dict[tuple[str, int, int], float | None] = {}

    def work(self, gpus: int, duration_s: float, uniform: float) -> Work | str:
        """The work of a job logged with `gpus` for `duration_s` seconds, or the reason why it has none.

        `uniform` in [0, 1) is the job's draw among the choices.
        """
        choice = self.rules.choose(gpus, uniform)
        if choice is None:
            return f"no rule covers {gpus} GPUs"
        requested = self.rules.requested_gpus(gpus, choice)
        if requested > MAX_GPUS:
            return f"{gpus} GPUs x {choice.gpu_multiplier} are {requested:,}; a job has at most {MAX_GPUS:,}"
        iteration_s = self._time(choice.model, choice.global_batch, requested)
        if iteration_s is None:
            return f"{choice.model} with global batch {choice.global_batch} has no plan on {requested} GPUs"
        return Work(
            model=choice.model,
            global_batch=choice.global_batch,
            gpus=requested,
            iterations=duration_s / iteration_s,
            iteration_s=iteration_s,
        )

    def _time(self, model: str, global_batch: int, gpus: int) -> float | None:
        key = (model, global_batch, gpus)
        if key not in self._iteration_s:
            # Some planners freeze the plan of the smallest count in the query, so the query starts at 1 GPU.
            counts = sorted({*(1 << k for k in range(gpus.bit_length())), gpus})
            spec = self._models.find(model)
            run = self._planner.curve(spec, global_batch, counts).get(gpus) if spec else None
            self._iteration_s[key] = run.iteration_s if run else None
        return self._iteration_s[key]


def work_maker(
    rules: str,
    planner: str,
    system: str,
    memory_headroom: float = MEMORY_HEADROOM,
    models: Models | None = None,
) -> tuple[WorkMaker, dict[str, Any]]:
    """A WorkMaker by names, and the provenance of its numbers, for a report. Plans leave `memory_headroom`, a
    share of a GPU's memory, free. The rules choose among `models`, by default the shipped ones.

    Raises UserError for rules, a planner or a system that does not exist or cannot be read.
    """
    models = models or Models()
    loaded, path, built = load_rules(rules, models), rules_path(rules), load_system(system)
    model_files = {name: model["files"] for name, model in models.document().items()}
    source = {
        "rules": {"name": path.stem, "sha256": sha256(path), "source": loaded.source},
        "planner": planner_name(planner),
        "system": built.name,
        "profile": built.profile,
        "memory_headroom": memory_headroom,
    }
    if model_files:
        source["models"] = model_files
    plan_maker = make_planner(planner, built, cache=default_cache(), memory_headroom=memory_headroom)
    return WorkMaker(loaded, plan_maker, models), source


def deadline_factors(deadlines: Deadlines | None, seed: int, count: int) -> Iterator[float | None]:
    """For each of `count` jobs the distance of its deadline from its submission, in run times; None: none."""
    if deadlines is None:
        yield from repeat(None, count)
        return
    factors = stream(seed, "deadlines").uniform(deadlines.low, deadlines.high, count)
    has_deadline = stream(seed, "deadline-share").random(count)
    for factor, share in zip(as_floats(factors), as_floats(has_deadline), strict=True):
        yield factor if share < deadlines.share else None


def as_floats(numbers: NDArray[np.float64]) -> Iterator[float]:
    """The numbers as Python floats, converted a block at a time."""
    for i in range(0, len(numbers), _BLOCK):
        yield from numbers[i : i + _BLOCK].tolist()


def stream(seed: int, purpose: str) -> np.random.Generator:
    """A random generator for one purpose, independent of those for other purposes.

    Drawing more arrivals, for example, does not change the models.
    """
    return np.random.default_rng([seed, *purpose.encode()])
