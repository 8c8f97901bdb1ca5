"""`itertime budget`, what GPUs train in some days, and `itertime cost`, what a training takes and costs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from itertime.commandline import print_json
from itertime.errors import UserError, quoted

from .documents import plan_document
from .options import (
    MEMORY_HEADROOM,
    GlobalBatch,
    Headroom,
    Json,
    ModelName,
    Options,
    SystemName,
    option,
    words_of,
)

if TYPE_CHECKING:
    from itertime.planning import Answer, CostPoint, Training
    from itertime.spec import System

MILLION = 1e6
MOST_POINTS = 1000  # of a range of utilisations
Modes = Annotated[str, option("--recompute", "Modes to try.")]


def budget(
    system: SystemName,
    gpus: Annotated[int, option("--gpus", "Use at most this many GPUs.", min=1)],
    days: Annotated[float, option("--days", "Days of training.")],
    global_batch: GlobalBatch,
    recompute: Modes = "none,selective,full",
    tokens_per_parameter: Annotated[
        float,
        option("--tokens-per-parameter", "Tokens to train on per parameter; 20 is the Chinchilla rule."),
    ] = 20.0,
    options: Options = "",
    memory_headroom: Headroom = MEMORY_HEADROOM,
    json: Json = False,
) -> None:
    """Find the largest model that GPUs train compute-optimally in a number of days, at peak and simulated."""
    from itertime.planning import VTRAIN, Budget, generated, published
    from itertime.spec import load_system, parse_options

    machine = load_system(system)
    space = replace(VTRAIN, recompute=words_of(recompute), options=parse_options(options, "--options"))
    limits = Budget(
        gpus=gpus,
        days=days,
        global_batch=global_batch,
        system=machine,
        space=space,
        tokens_per_parameter=tokens_per_parameter,
        memory_headroom=memory_headroom,
    )
    answers = {"published": limits.largest(published()), "generated": limits.largest(generated())}
    if json:
        documents = {name: _document(answer, machine) for name, answer in answers.items()}
        print_json({"gpus": gpus, "days": days, "rule_parameters": limits.rule_parameters(), **documents})
        return
    print(f"{gpus} GPUs for {days:g} days, {tokens_per_parameter:g} tokens per parameter")
    print(f"at 100 % utilisation the rule gives {limits.rule_parameters() / 1e9:.1f}B parameters")
    for name, answer in answers.items():
        print(f"{name} shapes")
        _print_training("at 100 %", answer.naive)
        _print_training("simulated", answer.simulated)


def cost(
    model: ModelName = "gpt3-175b",
    system: SystemName = "dgx-a100-80gb",
    gpus: Annotated[int, option("--gpus", "GPUs of the training.", min=1)] = 1024,
    tokens: Annotated[float, option("--tokens", "Tokens to train on.")] = 300e9,
    utilisation: Annotated[
        str, option("--utilisation", "LOW:HIGH or LOW:HIGH:STEP, shares of the peak.")
    ] = "0.3:0.7",
    flops: Annotated[
        str, option("--flops", "FLOPs that count: model (as in MFU), 6nt, or 8nt (recomputed).")
    ] = "model",
    price: Annotated[float, option("--price", "Dollars per GPU-hour; 5 is vTrain's price.")] = 5.0,
    global_batch: GlobalBatch = 1536,
    recompute: Modes = "none,selective,full",
    memory_headroom: Headroom = MEMORY_HEADROOM,
    csv: Annotated[Path | None, option("--csv", "Write the points to this file.")] = None,
    plot: Annotated[
        Path | None, option("--plot", "Draw the curve: .png, .pdf or .svg (needs matplotlib).")
    ] = None,
    json: Json = False,
) -> None:
    """Show days and cost of a training over the utilisation of its GPUs, with the best plan's predicted."""
    from itertime.planning import VTRAIN, TrainingCost
    from itertime.spec import load_model, load_system

    spec, machine = load_model(model), load_system(system)
    shares = _shares(utilisation)
    training = TrainingCost(spec, machine, tokens, gpus, price, flops)
    # The curve holds for any plan; the point on it is that of the best plan that fits.
    points = [training.at(share) for share in shares]
    space = replace(VTRAIN, recompute=words_of(recompute))
    prediction = training.predicted(global_batch, space, memory_headroom)
    predicted_point, ranked_plan = prediction if prediction else (None, None)
    title = f"{spec.name}, {tokens / 1e9:,.6g}B tokens on {gpus:,} GPUs at ${price:g} a GPU-hour"
    if csv is not None:
        _write_cost_csv(csv, points, predicted_point)
    if plot is not None:
        _draw_cost(plot, title, points, predicted_point)
    if json:
        plan = plan_document(spec, ranked_plan.plan, machine, ranked_plan.prediction) if ranked_plan else None
        subject = {"model": spec.name, "system": machine.name, "gpus": gpus, "tokens": tokens}
        inputs = {"flops": training.flops, "count": flops, "price": price}
        curve = [point._asdict() for point in points]
        predicted = predicted_point._asdict() if predicted_point else None
        outcome = {"points": curve, "predicted": predicted, "plan": plan}
        print_json(subject | inputs | outcome)
        return
    print(title)
    print(f"{training.flops:.4g} FLOPs, counted as {flops}")
    _print_cost(points, predicted_point)
    if ranked_plan:
        iteration_s, label = ranked_plan.prediction.iteration_s, ranked_plan.plan.label
        print(f"predicted: {iteration_s:.2f} s an iteration, {label}")
    else:
        print(f"no plan for a global batch of {global_batch:,} fits", file=sys.stderr)


def _shares(text: str) -> list[float]:
    """The utilisations of LOW:HIGH or LOW:HIGH:STEP, in steps of 0.05 unless stated; HIGH always counts."""
    try:
        low, high, *steps = (float(part) for part in text.split(":"))
        step = steps[0] if steps else 0.05
        if len(steps) > 1 or not 0 < low <= high <= 1 or not step > 0 or (high - low) / step > MOST_POINTS:
            raise ValueError
    except ValueError:
        form = f"LOW:HIGH or LOW:HIGH:STEP, shares of the peak above 0, at most {MOST_POINTS:,} steps"
        raise UserError(f"--utilisation {quoted(text)}: must be {form}, as in 0.3:0.7:0.1") from None
    count = int((high - low) / step + 1e-9)
    shares = [round(low + i * step, 12) for i in range(count + 1)]
    return shares if shares[-1] == high else [*shares, high]


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
    model, fastest = training.model, training.fastest
    return {
        "model": model.name,
        "parameters": model.parameters,
        "layers": model.layers,
        "hidden": model.hidden,
        "heads": model.heads,
        "tokens": training.tokens,
        "ideal_days": training.ideal_days,
        "days": training.days if fastest else None,
        "plan": plan_document(model, fastest.plan, system, fastest.prediction) if fastest else None,
    }


def _print_training(name: str, training: Training | None) -> None:
    if training is None:
        print(f"  {name:9}  none: no shape is trained in time")
        return
    model, fastest = training.model, training.fastest
    size = f"{model.parameters / 1e9:6.1f}B parameters, {training.tokens / 1e9:6,.0f}B tokens"
    if fastest is None:
        print(f"  {name:9}  {model.name:15} {size}, no plan fits in memory")
        return
    days = f"{training.days:6.1f} days (at peak {training.ideal_days:.1f})"
    plan = f"MFU {fastest.prediction.mfu:.1%} on {fastest.plan.gpus} GPUs, {fastest.plan.label}"
    print(f"  {name:9}  {model.name:15} {size}, {days}, {plan}")


def _print_cost(points: Sequence[CostPoint], predicted: CostPoint | None) -> None:
    """A line for each utilisation, and one for the prediction, in order."""
    print(f"{'utilisation':>11} {'days':>9} {'cost, $M':>10}")
    for point in sorted({*points, *([predicted] if predicted else [])}):
        mark = "  predicted" if point == predicted else ""
        print(f"{point.utilisation:11.1%} {point.days:9.2f} {point.cost_usd / MILLION:10.3f}{mark}")


def _write_cost_csv(path: Path, points: Sequence[CostPoint], predicted: CostPoint | None) -> None:
    """Columns `utilisation, days, cost_usd, predicted`; the prediction is the last row."""
    from itertime.io import write_text

    rows = [(point, "false") for point in points] + ([(predicted, "true")] if predicted else [])
    lines = [f"{p.utilisation!r},{p.days!r},{p.cost_usd!r},{mark}" for p, mark in rows]
    write_text(path, "\n".join(["utilisation,days,cost_usd,predicted", *lines]) + "\n")


def _draw_cost(path: Path, title: str, points: Sequence[CostPoint], predicted: CostPoint | None) -> None:
    """The curve with both scales, and the prediction as a point. UserError for an unknown format, and if
    matplotlib is not installed.
    """
    from itertime.io.figures import COLOURS, check_ending, figures, save

    check_ending(path)
    with figures() as plt:
        figure, axes = plt.subplots(figsize=(4.6, 3.2))
        axes.plot([100 * point.utilisation for point in points], [point.days for point in points])
        if predicted:
            x, y = 100 * predicted.utilisation, predicted.days
            axes.plot([x], [y], "o", color=COLOURS[1])
            words = f"predicted: {x:.1f} %, {y:.1f} days, ${predicted.cost_usd / MILLION:.2f}M"
            axes.annotate(words, (x, y), xytext=(6, 8), textcoords="offset points", fontsize=8)
        axes.set(xlabel="utilisation of the GPUs, %", ylabel="days", ylim=(0, None))
        axes.set_title(title, loc="left", fontsize=9)
        millions_per_day = points[0].cost_usd / points[0].days / MILLION
        scales = (lambda days: days * millions_per_day, lambda dollars: dollars / millions_per_day)
        axes.secondary_yaxis("right", functions=scales).set_ylabel("cost, millions of dollars")
        save(figure, path)
