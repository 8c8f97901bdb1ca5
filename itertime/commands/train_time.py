"""`itertime train-time`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from itertime.commandline import option_groups, print_json

from .documents import error_note, plan_document, wrapped
from .idle_options import print_without_effect
from .layout import PlanLayout, chosen_plan
from .options import MEMORY_HEADROOM, Execution, Headroom, Json, Subject, option

if TYPE_CHECKING:
    from itertime.planning import TrainTime
    from itertime.spec import Evaluations, ModelSpec, Plan, System

LABEL = 13  # characters of the name of a part


@dataclass(frozen=True, kw_only=True)
class Target:
    """The options that replace what is known of a model's trainings to their target."""

    steps: Annotated[
        float | None, option("--steps", "Steps to the target; default: those of the model's table of logs.")
    ] = None
    startup: Annotated[
        float | None, option("--startup", "Seconds before the first step; default: those of logs by GPUs.")
    ] = None
    eval_every: Annotated[
        int | None,
        option("--eval-every", "Samples between evaluations; default: MLPerf's rule for BERT.", min=1),
    ] = None
    eval_samples: Annotated[
        int | None,
        option("--eval-samples", "Samples of an evaluation; 0: none; default: as MLPerf's BERT.", min=0),
    ] = None


@option_groups
def train_time(
    subject: Subject,
    target: Target,
    layout: PlanLayout,
    execution: Execution,
    memory_headroom: Headroom = MEMORY_HEADROOM,
    json: Json = False,
) -> None:
    """Predict the seconds of a training to its target: start-up, steps, evaluations.

    The seconds of a step and of an evaluation are predicted. How many steps a training takes is an input,
    from a table of logs by optimizer and global batch, or as --steps says.
    """
    model, system = subject.read_model(), subject.read_system()
    choice = chosen_plan(subject, layout, execution, model, system, memory_headroom)
    print_without_effect(
        subject, model, system, [choice.plan], layout, execution, used_elsewhere=("optimizer",)
    )
    training = _trained(model, choice.plan, system, target, memory_headroom)
    if json:
        plan = plan_document(model, choice.plan, system, training.prediction)
        print_json(plan | choice.replay(subject, memory_headroom) | _document(training))
    else:
        _print(model, choice.plan, training)
        choice.say()
    _print_notes(model, system, training, target.eval_samples)


def _trained(model: ModelSpec, plan: Plan, system: System, target: Target, headroom: float) -> TrainTime:
    from itertime.planning import StartUp, Steps, train_time

    return train_time(
        model,
        plan,
        system,
        steps=None if target.steps is None else Steps.given(target.steps, "--steps"),
        startup=None if target.startup is None else StartUp.given(target.startup, "--startup"),
        evaluations=_evaluations(model, plan, target.eval_every, target.eval_samples),
        memory_headroom=headroom,
    )


def _print_notes(model: ModelSpec, system: System, training: TrainTime, eval_samples: int | None) -> None:
    """Prints on stderr what the answer leaves out, and how far it can be trusted."""
    if not training.evaluated and eval_samples != 0:
        _note(
            f"no evaluations are counted: {model.name} has no rule for them; "
            "state --eval-every and --eval-samples"
        )
    for words, sources in (
        ("these steps", training.steps.organisations),
        ("this start-up", training.start_up.organisations),
    ):
        if len(sources) == 1:
            _note(
                f"all logs behind {words} are of {sources[0]}: a time of {sources[0]}'s own is not held out"
            )
    if training.prediction.interval_s is None and (text := error_note(system)):
        print(wrapped(f"warning: {text}"), file=sys.stderr)


def _note(text: str) -> None:
    print(wrapped(f"note: {text}"), file=sys.stderr)


def _evaluations(model: ModelSpec, plan: Plan, every: int | None, samples: int | None) -> Evaluations | None:
    """The evaluations that the options state, completed by the rule of the model. None leaves them to the
    library; UserError for half a rule of a model that has none.
    """
    from itertime.errors import UserError
    from itertime.planning import evaluations_of
    from itertime.spec import NO_EVALUATIONS, Evaluations

    if samples == 0:
        return NO_EVALUATIONS
    rule = evaluations_of(model, plan.global_batch)
    if every is None and samples is None:
        return None
    if rule is NO_EVALUATIONS and (every is None or samples is None):
        missing, present = ("--eval-every", "--eval-samples")[:: 1 if every is None else -1]
        raise UserError(f"{present}: {model.name} has no rule of evaluation; state {missing} too")
    return Evaluations(every or rule.every, samples or rule.samples)


def _document(training: TrainTime) -> dict[str, Any]:
    """The part of `--json` on the training. `input` and `predicted` name the sources of its figures."""
    return {
        "train_s": training.seconds,
        "train_range_s": training.range_s,
        "train_parts_s": training.parts,
        "steps": vars(training.steps),
        "start_up": vars(training.start_up),
        "evaluations": {
            "count": training.evaluated,
            "seconds": training.evaluation_s,
            **vars(training.evaluations),
        },
        "input": ["steps", "start_up"],
        "predicted": ["iteration_s", "evaluations.seconds"],
    }


def _print(model: ModelSpec, plan: Plan, training: TrainTime) -> None:
    print(f"{model.name} to its target on {plan.gpus} GPUs: {plan.label}")
    low, high = training.range_s
    between = f", {low:.2f} to {high:.2f} s by the spread of the logs" if low < high else ""
    print(f"{training.seconds:.2f} s{between}")
    counts = {
        "steps": f"{training.steps.count:,.6g} of {training.prediction.iteration_s:.4f} s",
        "evaluations": f"{training.evaluated} of {training.evaluation_s:.4f} s, after every "
        f"{training.evaluations.every:,} samples",
    }
    for part, seconds in training.parts.items():
        count = counts.get(part, "") if seconds else ""
        print(f"  {part:{LABEL}} {seconds:10.2f} s {seconds / training.seconds:6.1%}  {count}".rstrip())
    print("predicted: the seconds of a step and of an evaluation; all else is an input:")
    print(wrapped(f"  steps: {training.steps.origin}"))
    print(wrapped(f"  start-up: {training.start_up.origin}"))
    if training.prediction.interval_s:
        low, high = training.prediction.interval_s
        print(f"nine in ten measured steps of such plans lie between {low:.4f} and {high:.4f} s")
    if not training.prediction.fits:
        print(f"does not fit: {training.prediction.reason}", file=sys.stderr)
