"""`itertime predict`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from itertime.commandline import option_groups, print_json

from .documents import error_note, plan_document, rates_text, wrapped
from .idle_options import print_unpredicted, print_without_effect
from .options import MEMORY_HEADROOM, Execution, Headroom, Json, PlanLayout, Subject, plan_of

if TYPE_CHECKING:
    from itertime.prediction import Prediction
    from itertime.spec import ModelSpec, Plan


@option_groups
def predict(
    subject: Subject,
    layout: PlanLayout,
    execution: Execution,
    memory_headroom: Headroom = MEMORY_HEADROOM,
    json: Json = False,
) -> None:
    """Predict the seconds of one iteration, where they go, the memory, and whether the plan fits."""
    from itertime.prediction import predict as run

    spec = subject.read_model()
    plan = plan_of(subject, layout, execution)
    print_without_effect(spec, vars(layout) | vars(execution))
    print_unpredicted(execution.options)
    machine = subject.read_system()
    prediction = run(spec, plan, machine, memory_headroom=memory_headroom)
    if json:
        print_json(plan_document(spec, plan, machine, prediction))
    else:
        _print_prediction(spec, plan, prediction)
        if prediction.interval_s is None and (note := error_note(machine)):
            print(wrapped(f"warning: {note}"), file=sys.stderr)


def _print_prediction(model: ModelSpec, plan: Plan, prediction: Prediction) -> None:
    print(f"{model.name} on {plan.gpus} GPUs: {plan.label}")
    print(f"{prediction.iteration_s:.4f} s per iteration, {rates_text(prediction)}")
    print(f"MFU {prediction.mfu:.1%}, HFU {prediction.hfu:.1%} of the bf16 peak")
    if prediction.interval_s:
        low, high = prediction.interval_s
        print(f"nine in ten measured iterations of such plans lie between {low:.4f} and {high:.4f} s")
    else:
        print("no interval is known for this GPU")
    if prediction.spread_s:
        low, high = prediction.spread_s
        print(f"nine in ten iterations take {low:.4f} to {high:.4f} s, by the lengths of the samples drawn")
        if prediction.sampling_error_s:
            print(f"standard error of the mean, of sampled iterations: {prediction.sampling_error_s:.2g} s")
    for name, seconds in prediction.breakdown.items():
        if seconds > 0:
            print(f"  {name:18} {seconds:10.4f} s {seconds / prediction.iteration_s:6.1%}")
    print(
        f"{prediction.memory_bytes / 1e9:.1f} GB of {prediction.capacity_bytes / 1e9:.1f} on the fullest GPU"
    )
    for name, size in prediction.memory_parts.items():
        if size > 0:
            print(f"  {name:18} {size / 1e9:10.1f} GB")
    if not prediction.fits:
        print(f"does not fit: {prediction.reason}", file=sys.stderr)
