"""`itertime predict` and `itertime timeline`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from itertime.commandline import option_groups, print_json
from itertime.errors import UserError, printable, shown

from .documents import error_note, plan_document, rates_text, rules_text, wrapped
from .idle_options import print_unpredicted, print_without_effect
from .layout import PlanLayout, chosen_plan
from .options import MEMORY_HEADROOM, Execution, Headroom, Json, Subject

if TYPE_CHECKING:
    from itertime.energy import IterationEnergy
    from itertime.prediction import Prediction
    from itertime.spec import Plan, System

PAGES = (".html", ".htm")

Output = Annotated[
    Path,
    typer.Option(
        "-o",
        "--output",
        help="The file to write: a page (.html) or a Chrome trace (.json).",
        show_default=False,
    ),
]


@option_groups
def predict(
    subject: Subject,
    layout: PlanLayout,
    execution: Execution,
    memory_headroom: Headroom = MEMORY_HEADROOM,
    energy: Annotated[
        float | None,
        typer.Option(
            "--energy",
            metavar="SHARE",
            min=0.0,
            max=1.0,
            help="Also state power and energy, where GPUs that wait take this share of their power limit; "
            "0.15 is what simulations assume.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Predict the seconds of one iteration, where they go, the memory, and whether the plan fits.

    What is not stated of the plan is the best of what a search finds for what is.
    """
    from itertime.prediction import predict as run

    model, system = subject.read_model(), subject.read_system()
    choice = chosen_plan(subject, layout, execution, model, system, memory_headroom)
    print_without_effect(subject, model, system, [choice.plan], layout, execution)
    print_unpredicted(execution.options)
    prediction = run(model, choice.plan, system, memory_headroom=memory_headroom)
    iteration_energy = None if energy is None else _energy_of(prediction, system, energy)
    if json:
        document = plan_document(model, choice.plan, system, prediction)
        if iteration_energy is not None:
            document["energy"] = iteration_energy._asdict()
        print_json(document | choice.replay(subject, memory_headroom))
    else:
        software = f"framework {shown(system.framework)}, {choice.plan.precision}{rules_text(choice.plan)}"
        print(f"{model.name} on {choice.plan.gpus} GPUs, {software}: {choice.plan.label}")
        choice.say()
        _print_prediction(prediction, choice.plan)
        if iteration_energy is not None:
            print(_energy_text(iteration_energy, choice.plan.gpus))
        if prediction.interval_s is None and (note := error_note(system)):
            print(wrapped(f"warning: {note}"), file=sys.stderr)


def _energy_of(prediction: Prediction, system: System, idle_share: float) -> IterationEnergy:
    """The energy of an iteration. UserError where the power limit of the GPUs is not known."""
    from itertime.energy import IterationEnergy
    from itertime.prediction import COMPUTING
    from itertime.spec import profile_of

    limit_w = profile_of(system).power_w
    if limit_w is None:
        raise UserError(f"--energy: the power limit of GPUs of {shown(system.name)} is not known")
    computing_s = sum(prediction.breakdown.get(name, 0.0) for name in COMPUTING)
    sizes = prediction.gpus, prediction.tokens, prediction.model_flops
    return IterationEnergy.of(prediction.iteration_s, computing_s, *sizes, limit_w, idle_share)


def _energy_text(energy: IterationEnergy, gpus: int) -> str:
    return (
        f"{energy.gpu_w:,.0f} W a GPU of {energy.limit_w:,.0f} (computing {energy.load:.0%} of the time), "
        f"{gpus * energy.gpu_w / 1e3:,.1f} kW; {energy.joules / 3.6e6:.4g} kWh an iteration, "
        f"{energy.tokens_per_joule:.3g} tokens/J, {energy.flops_per_joule / 1e9:,.1f} GFLOP/J"
    )


def _print_prediction(prediction: Prediction, plan: Plan) -> None:
    print(f"{prediction.iteration_s:.4f} s per iteration, {rates_text(prediction)}")
    print(f"MFU {prediction.mfu:.1%}, HFU {prediction.hfu:.1%} of the bf16 peak")
    if prediction.interval_s:
        low, high = prediction.interval_s
        print(f"nine in ten measured iterations of such plans lie between {low:.4f} and {high:.4f} s")
        print(wrapped(f"its width: {prediction.interval_basis}"))
    else:
        print(f"no interval is known for this GPU{rules_text(plan)}")
    if prediction.spread_s:
        low, high = prediction.spread_s
        print(f"nine in ten iterations take {low:.4f} to {high:.4f} s, by the lengths of the samples drawn")
        if prediction.sampling_error_s:
            print(f"standard error of the mean, of sampled iterations: {prediction.sampling_error_s:.2g} s")
    for part in prediction.unusable:
        print(wrapped(printable(f"warning: the profile cannot use its own {part}")), file=sys.stderr)
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


@option_groups
def timeline(subject: Subject, output: Output, layout: PlanLayout, execution: Execution) -> None:
    """Draw one iteration task by task: a web page, or a trace for chrome://tracing or ui.perfetto.dev."""
    from itertime.timeline import iteration_graph, write_chrome_trace

    ending = output.suffix.lower()
    if ending not in (*PAGES, ".json"):
        raise UserError(f"-o={output}: must end in .html or .json")
    model, system = subject.read_model(), subject.read_system()
    choice = chosen_plan(subject, layout, execution, model, system)
    print_without_effect(subject, model, system, [choice.plan], layout, execution)
    if ending in PAGES:
        from itertime.timeline import write_timeline_page

        write_timeline_page(model, choice.plan, system, output)
        print(f"written to {output}; open it in a browser")
    else:
        graph = iteration_graph(model, choice.plan, system)
        write_chrome_trace(graph, output)
        tasks = f"{len(graph.tasks)} tasks"
        print(f"{tasks} written to {output}; open it in chrome://tracing or ui.perfetto.dev")
    choice.say()
