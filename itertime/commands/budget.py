"""`itertime budget`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from itertime.commandline import print_json

from .options import (
    MEMORY_HEADROOM,
    GlobalBatch,
    Headroom,
    Json,
    Options,
    SystemName,
    words_of,
)
from .output import plan_document

if TYPE_CHECKING:
    from itertime.planning import Answer, Training
    from itertime.spec import System

__all__ = ["budget"]


def budget(
    system: SystemName,
    gpus: Annotated[int, typer.Option("--gpus", min=1, help="Use at most this many GPUs.")],
    days: Annotated[float, typer.Option("--days", help="Days of training.")],
    global_batch: GlobalBatch,
    recompute: Annotated[str, typer.Option("--recompute", help="Modes to try.")] = "none,selective,full",
    tokens_per_parameter: Annotated[
        float,
        typer.Option(
            "--tokens-per-parameter", help="Tokens to train on per parameter; 20 is the Chinchilla rule."
        ),
    ] = 20.0,
    options: Options = "",
    memory_headroom: Headroom = MEMORY_HEADROOM,
    json: Json = False,
) -> None:
    """Find the largest model that GPUs train compute-optimally in a number of days, at peak and simulated."""
    from itertime.planning import Budget, Space, generated, published
    from itertime.spec import load_system, parse_options

    machine = load_system(system)
    space = Space(recompute=words_of(recompute), options=parse_options(options, "--options"))
    given = Budget(
        gpus=gpus,
        days=days,
        global_batch=global_batch,
        system=machine,
        space=space,
        tokens_per_parameter=tokens_per_parameter,
        memory_headroom=memory_headroom,
    )
    answers = {"published": given.largest(published()), "generated": given.largest(generated())}
    if json:
        documents = {name: _document(answer, machine) for name, answer in answers.items()}
        print_json({"gpus": gpus, "days": days, "rule_parameters": given.rule_parameters(), **documents})
        return
    print(f"{gpus} GPUs for {days:g} days, {tokens_per_parameter:g} tokens per parameter")
    print(f"at 100 % utilisation the rule gives {given.rule_parameters() / 1e9:.1f}B parameters")
    for name, answer in answers.items():
        print(f"{name} shapes")
        _print_training("at 100 %", answer.naive)
        _print_training("simulated", answer.simulated)


def _document(answer: Answer, system: System) -> dict[str, Any]:
    return {
        "naive": _training(answer.naive, system),
        "simulated": _training(answer.simulated, system),
        "tried": len(answer.tried),
    }


def _training(training: Training | None, system: System) -> dict[str, Any] | None:
    """`days` and `plan` are null where no plan fits."""
    if training is None:
        return None
    model, found = training.model, training.found
    return {
        "model": model.name,
        "parameters": model.parameters,
        "layers": model.layers,
        "hidden": model.hidden,
        "heads": model.heads,
        "tokens": training.tokens,
        "ideal_days": training.ideal_days,
        "days": training.days if found else None,
        "plan": plan_document(model, found.plan, system, found.prediction) if found else None,
    }


def _print_training(name: str, training: Training | None) -> None:
    if training is None:
        print(f"  {name:9}  none: no shape is trained in time")
        return
    model, found = training.model, training.found
    size = f"{model.parameters / 1e9:6.1f}B parameters, {training.tokens / 1e9:6,.0f}B tokens"
    if found is None:
        print(f"  {name:9}  {model.name:15} {size}, no plan fits in memory")
        return
    days = f"{training.days:6.1f} days (at peak {training.ideal_days:.1f})"
    plan = f"MFU {found.prediction.mfu:.1%} on {found.plan.gpus} GPUs, {found.plan.label}"
    print(f"  {name:9}  {model.name:15} {size}, {days}, {plan}")
