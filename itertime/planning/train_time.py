"""Time to train: seconds until a model reaches its target quality.

    seconds = start-up + steps x seconds of a step + evaluations x seconds of an evaluation

The seconds of a step and of an evaluation are predicted. Steps and start-up are inputs, from tables of logs
or from the user: nothing here predicts whether training converges, and how soon.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from itertime.costs import MEMORY_HEADROOM, Workload, stage_costs
from itertime.errors import UserError
from itertime.prediction import Prediction, predict
from itertime.spec import (
    NO_EVALUATIONS,
    Evaluations,
    ModelSpec,
    Plan,
    PlanBatch,
    Profile,
    System,
    load_model,
    mlperf_evaluations,
    profile_of,
)

from .convergence import REMEDY, StartUp, Steps, list_convergence, load_convergence, start_up


@dataclass(frozen=True)
class TrainTime:
    """A training to its target.

    Predicted: `prediction`, of a step, and `evaluation_s`, seconds of one evaluation. Inputs: `steps`,
    `start_up` and `evaluations`, from which their number `evaluated` follows.
    """

    prediction: Prediction
    steps: Steps
    start_up: StartUp
    evaluations: Evaluations
    evaluated: int
    evaluation_s: float

    @property
    def parts(self) -> dict[str, float]:
        """Seconds by part, in order of time."""
        return {
            "start-up": self.start_up.seconds,
            "steps": self.steps.count * self.prediction.iteration_s,
            "evaluations": self.evaluated * self.evaluation_s,
        }

    @property
    def seconds(self) -> float:
        return sum(self.parts.values())

    @property
    def range_s(self) -> tuple[float, float]:
        """Seconds at the low and at the high end of steps and start-up, with the predicted step."""
        low, high = (
            start_s + steps / self.steps.count * (self.seconds - self.start_up.seconds)
            for start_s, steps in (
                (self.start_up.low_s, self.steps.low),
                (self.start_up.high_s, self.steps.high),
            )
        )
        return low, high


def train_time(
    model: ModelSpec,
    plan: Plan,
    system: System,
    *,
    steps: Steps | None = None,
    startup: StartUp | None = None,
    evaluations: Evaluations | None = None,
    profile: Profile | None = None,
    memory_headroom: float = MEMORY_HEADROOM,
) -> TrainTime:
    """The training of a model to its target under a plan.

    Where an input is None, the steps are those of the model's table, the start-up is that of logs on as many
    GPUs, and the evaluations are `evaluations_of` the model. Raises UserError where the table has no answer,
    and for a plan that cannot train the model.
    """
    steps = steps_of(model, plan) if steps is None else steps
    prediction = predict(model, plan, system, profile, memory_headroom=memory_headroom)
    if startup is None:
        startup = start_up(plan.gpus, plan.cuda_graphs == "full")
    if evaluations is None:
        evaluations = evaluations_of(model, plan.global_batch)
    evaluated = evaluations.count(steps.count * plan.global_batch)
    seconds = evaluation_s(model, plan, system, evaluations.samples, profile) if evaluated else 0.0
    return TrainTime(prediction, steps, startup, evaluations, evaluated, seconds)


def evaluations_of(model: ModelSpec, global_batch: int) -> Evaluations:
    """MLPerf's rule for a model with a table of steps; `NO_EVALUATIONS` for any other."""
    return mlperf_evaluations(global_batch) if model.name in list_convergence() else NO_EVALUATIONS


def steps_of(model: ModelSpec, plan: Plan) -> Steps:
    """The steps of a plan by the table of its model.

    Raises UserError for a model without a table, for a changed one, and for a plan that does not train as the
    logs did: with another optimizer, compressed gradients, or workers that exchange every few steps.
    """
    table = load_convergence(model.name)
    shipped = load_model(model.name)
    if replace(model, attention=shipped.attention) != shipped:
        raise UserError(
            f"model={model.name}: the table of steps is that of the shipped model, and this one differs from "
            f"it; {REMEDY}"
        )
    options = plan.options
    if options.compression != "none":
        raise UserError(
            f"compression={options.compression}: the logs behind the table of steps send whole gradients, "
            f"and what compression does to convergence is an input; {REMEDY}"
        )
    if options.workers > 1:
        raise UserError(
            f"workers={options.workers}: the logs behind the table of steps exchange gradients in each step; "
            f"what local steps do to convergence is an input; {REMEDY}"
        )
    return table.steps(options.optimizer, plan.global_batch)


def evaluation_s(
    model: ModelSpec, plan: Plan, system: System, samples: int, profile: Profile | None = None
) -> float:
    """Seconds of the forward pass on `samples` samples, divided among the replicas of the model.

    The micro-batches are those of the plan, or smaller ones where a replica has fewer samples. They pass one
    after the other through the pipeline's slowest stage. Reading the set and gathering the score are left
    out.
    """
    replica = ceil(samples / plan.dp)
    size = min(plan.micro_batch, replica)
    batches = ceil(replica / size)
    alone = replace(plan, micro_batch=size, global_batch=plan.dp * size * batches)
    work = Workload.of(model, PlanBatch.of([alone]), system, profile or profile_of(system))
    forward = sum(stage_costs(work).forward.values(), np.zeros(work.partition.stages.shape))
    slowest = np.where(work.partition.stages > 0, forward, 0.0).max()
    return float(slowest) * (batches + plan.pp - 1)
