"""`itertime budget`, what GPUs train in some days, and `itertime cost`, what a training takes and costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from itertime.commandline import option_groups, print_json
from itertime.errors import UserError, quoted

from .documents import plan_document, print_error_note, wrapped
from .idle_options import print_unpredicted, print_without_effect
from .layout import predict_command
from .options import (
    MEMORY_HEADROOM,
    Conditions,
    Execution,
    GlobalBatch,
    Headroom,
    Json,
    ModelName,
    SpaceOptions,
    Subject,
    SystemName,
    UsdPerGpuHour,
    option,
)
from .search import no_answer

if TYPE_CHECKING:
    from itertime.planning import Answer, Budget, CostPoint, Goodput, RankedPlan, Training, TrainingCost
    from itertime.spec import ModelSpec, Plan, System

MILLION = 1e6
SHAPE = "megatron-1.7b"  # a model from which generated shapes differ in their sizes alone
MOST_POINTS = 1000  # of a range of utilisations


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """The options that say what a training may use, and on how many tokens a model trains."""

    gpus: Annotated[int, option("--gpus", "Use at most this many GPUs.", min=1)]
    days: Annotated[float, option("--days", "Days of training.")]
    tokens_per_parameter: Annotated[
        float,
        option("--tokens-per-parameter", "Tokens to train on per parameter; 20 is the Chinchilla rule."),
    ] = 20.0


@option_groups
def budget(
    conditions: Conditions,
    allowance: Allowance,
    space_options: SpaceOptions,
    execution: Execution,
    memory_headroom: Headroom = MEMORY_HEADROOM,
    json: Json = False,
) -> None:
    """Find the largest model that GPUs train compute-optimally in a number of days, at peak and simulated."""
    from itertime.planning import LAWS, Budget, generated, published

    system, space = conditions.read_system(), space_options.plan_space(execution)
    limits = Budget(
        **vars(allowance),
        global_batch=conditions.global_batch,
        system=system,
        space=space,
        memory_headroom=memory_headroom,
    )
    print_unpredicted(execution.options)
    answers = {
        name: limits.largest([conditions.changed(shape) for shape in shapes()])
        for name, shapes in (("published", published), ("generated", generated))
    }
    best = answers["published"].simulated
    if best is not None and best.fastest is not None:
        print_without_effect(conditions, best.model, system, [best.fastest.plan], execution)
    trainings = _Trainings(conditions, system, memory_headroom)
    gpus, days = allowance.gpus, allowance.days
    if json:
        documents = {name: trainings.document(answer) for name, answer in answers.items()}
        rule: dict[str, Any] = {"gpus": gpus, "days": days}
        rule["rule_parameters"] = limits.rule_parameters()
        rule["optimal_tokens_per_parameter"] = _least_loss(limits)
        print_json(rule | space_options.frame(system, space) | documents)
        return
    print(f"{gpus} GPUs for {days:g} days, {allowance.tokens_per_parameter:g} tokens per parameter")
    print(wrapped(space_options.frame_text(system, space)))
    print(f"at 100 % utilisation the rule gives {limits.rule_parameters() / 1e9:.1f}B parameters")
    least = (f"{ratio:.0f} by {LAWS[name].source}" for name, ratio in _least_loss(limits).items())
    print(wrapped(f"the least loss there has tokens per parameter: {', '.join(least)}"))
    for name, answer in answers.items():
        print(f"{name} shapes")
        trainings.print("at 100 %", answer.naive)
        trainings.print("simulated", answer.simulated)
    print_error_note(system)


@dataclass(frozen=True)
class _Trainings:
    """What the trainings of a budget are shown with."""

    conditions: Conditions
    system: System
    memory_headroom: float

    def document(self, answer: Answer) -> dict[str, Any]:
        """An answer as `--json` prints it."""
        return {
            "naive": self._document_of(answer.naive),
            "simulated": self._document_of(answer.simulated),
            "tried": len(answer.tried),
        }

    def print(self, name: str, training: Training | None) -> None:
        """Print a training on a line, its loss on another, and what predicts its plan on a third."""
        from itertime.planning import LAWS

        if training is None:
            print(f"  {name:9}  none: no shape is trained in time")
            return
        model, fastest = training.model, training.fastest
        size = f"{model.parameters / 1e9:6.1f}B parameters, {training.tokens / 1e9:6,.0f}B tokens"
        losses = ", ".join(f"{nats:.3f} by {LAWS[law].source}" for law, nats in _losses(training).items())
        if fastest is None:
            print(f"  {name:9}  {model.name:15} {size}, no plan keeps the rules and fits in memory")
            print(f"             loss in nats a token: {losses}")
            return
        days = f"{training.days:6.1f} days (at peak {training.ideal_days:.1f})"
        plan = f"MFU {fastest.prediction.mfu:.1%} on {fastest.plan.gpus} GPUs, {fastest.plan.label}"
        print(f"  {name:9}  {model.name:15} {size}, {days}, {plan}")
        print(f"             loss in nats a token: {losses}")
        print(f"             {self._command(model, fastest.plan)}")

    def _document_of(self, training: Training | None) -> dict[str, Any] | None:
        """`days` and `plan` are null where no plan fits."""
        if training is None:
            return None
        model, fastest = training.model, training.fastest
        plan = None
        if fastest is not None:
            plan = plan_document(model, fastest.plan, self.system, fastest.prediction)
            plan["command"] = self._command(model, fastest.plan)
        return {
            "model": model.name,
            "parameters": model.parameters,
            "layers": model.layers,
            "hidden": model.hidden,
            "heads": model.heads,
            "tokens": training.tokens,
            "loss": _losses(training),
            "ideal_days": training.ideal_days,
            "days": training.days if fastest else None,
            "plan": plan,
        }

    def _command(self, model: ModelSpec, plan: Plan) -> str:
        """What predicts a plan of a shape: of a shipped model, or of one that `generated` makes."""
        from itertime.spec import list_models

        conditions = vars(self.conditions)
        if model.name in list_models():
            subject = Subject(model=model.name, **conditions)
        else:
            keys = ("name", "layers", "hidden", "heads")
            shape = [f"model.{key}={getattr(model, key)}" for key in keys]
            settings = [*shape, *(self.conditions.settings or ())]
            subject = Subject(model=SHAPE, **conditions | {"settings": settings})
        return predict_command(subject, plan, self.memory_headroom)


def _losses(training: Training) -> dict[str, float]:
    """The loss of a training by each law, nats a token."""
    from itertime.planning import LAWS

    return {name: law.nats(training.model, training.tokens) for name, law in LAWS.items()}


def _least_loss(limits: Budget) -> dict[str, float]:
    """Tokens per parameter of the least loss that the GPUs reach at their peak, by each law that says it."""
    from itertime.planning import PARAMETRIC_LAWS

    flops = limits.flops()
    return {name: law.optimal_tokens_per_parameter(flops) for name, law in PARAMETRIC_LAWS.items()}


@dataclass(frozen=True, kw_only=True)
class StudySubject(Subject):
    """What is predicted; by default the model, the system and the batch of Fig. 1 of vTrain's paper."""

    model: ModelName = "gpt3-175b"
    system: SystemName = "dgx-a100-80gb"
    global_batch: GlobalBatch = 1536


@dataclass(frozen=True, kw_only=True)
class Curve:
    """The options of the training, and of its curve of days and dollars over utilisation."""

    gpus: Annotated[int, option("--gpus", "GPUs of the training.", min=1)] = 1024
    tokens: Annotated[float, option("--tokens", "Tokens to train on.")] = 300e9
    utilisation: Annotated[str, option("--utilisation", "LOW:HIGH or LOW:HIGH:STEP, shares of the peak.")] = (
        "0.3:0.7"
    )
    flops: Annotated[
        str, option("--flops", "FLOPs that count: model (as in MFU), 6nt, or 8nt (recomputed).")
    ] = "model"
    price: UsdPerGpuHour = None
    goodput: Annotated[
        str,
        option(
            "--goodput",
            "Interruptions, checkpoints and evaluations: none, default or llama3, or KEY=VALUE,... "
            "as in preset=llama3,restart_s=300.",
        ),
    ] = "none"

    def training(self, model: ModelSpec, system: System) -> TrainingCost:
        """The training that the options state. UserError for a wrong value of one of them."""
        from itertime.io import key_values
        from itertime.planning import Downtime, TrainingCost
        from itertime.spec import checked_price

        text = self.goodput if "=" in self.goodput else f"preset={self.goodput}"
        downtime = Downtime.of(key_values(text, "--goodput", "preset=llama3"), "--goodput")
        return TrainingCost(
            model, system, self.tokens, self.gpus, checked_price(self.price), self.flops, downtime=downtime
        )


@option_groups
def cost(
    subject: StudySubject,
    curve: Curve,
    space_options: SpaceOptions,
    execution: Execution,
    memory_headroom: Headroom = MEMORY_HEADROOM,
    csv: Annotated[Path | None, option("--csv", "Write the points to this file.")] = None,
    plot: Annotated[
        Path | None, option("--plot", "Draw the curve: .png, .pdf or .svg (needs matplotlib).")
    ] = None,
    json: Json = False,
) -> None:
    """Show days and cost of a training over the utilisation of its GPUs, with the best plan's predicted."""
    model, system = subject.read_model(), subject.read_system()
    shares, space = _shares(curve.utilisation), space_options.plan_space(execution)
    training = curve.training(model, system)
    price = training.price
    print_unpredicted(execution.options)
    # The curve holds for any plan; the point on it is that of the best plan that fits.
    points = [training.at(share) for share in shares]
    result = training.searched(subject.global_batch, space, memory_headroom)
    ranked_plan = next(iter(result.plans), None)
    predicted_point = training.under(ranked_plan) if ranked_plan else None
    print_without_effect(subject, model, system, [plan.plan for plan in result.plans], execution)
    size = f"{curve.tokens / 1e9:,.6g}B tokens on {curve.gpus:,} GPUs"
    title = f"{model.name}, {size} at ${price.usd_per_gpu_hour:g} a GPU-hour"
    if csv is not None:
        _write_cost_csv(csv, points, predicted_point)
    if plot is not None:
        _draw_cost(plot, title, points, predicted_point)
    if json:
        subject_document = {"model": model.name, "system": system.name, "gpus": curve.gpus}
        counts = {"tokens": curve.tokens, "flops": training.flops, "count": curve.flops}
        prices = {"price": price.usd_per_gpu_hour, "price_from": price.origin}
        plan = None
        if ranked_plan:
            plan = plan_document(model, ranked_plan.plan, system, ranked_plan.prediction)
            plan["command"] = predict_command(subject, ranked_plan.plan, memory_headroom)
        outcome = {
            "goodput": _goodput_document(training.goodput),
            "points": [point._asdict() for point in points],
            "predicted": predicted_point._asdict() if predicted_point else None,
            "plan": plan,
        }
        print_json(subject_document | counts | prices | space_options.frame(system, space) | outcome)
    else:
        print(f"{title}, {price.origin}")
        print(wrapped(space_options.frame_text(system, space)))
        print(f"{training.flops:.4g} FLOPs, counted as {curve.flops}")
        print(wrapped(_goodput_text(training.goodput)))
        _print_cost(points, predicted_point)
        if ranked_plan:
            _print_plan(ranked_plan, predict_command(subject, ranked_plan.plan, memory_headroom), curve.flops)
            print_error_note(system)
    if not ranked_plan:
        raise UserError(no_answer(result))


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


def _print_cost(points: Sequence[CostPoint], predicted: CostPoint | None) -> None:
    """A line for each utilisation, and one for the prediction, in order."""
    print(f"{'utilisation':>11} {'days':>9} {'cost, $M':>10}")
    for point in sorted({*points, *([predicted] if predicted else [])}):
        mark = "  predicted" if point == predicted else ""
        print(f"{point.utilisation:11.1%} {point.days:9.2f} {point.cost_usd / MILLION:10.3f}{mark}")


def _print_plan(ranked_plan: RankedPlan, command: str, count: str) -> None:
    """The plan of the predicted point, the command that predicts it, and where its FLOPs are not those that
    count.
    """
    plan = ranked_plan.plan
    print(f"predicted: {ranked_plan.prediction.iteration_s:.2f} s an iteration, {plan.label}")
    print(f"this plan again: {command}")
    if count == "8nt" and plan.recompute == "none":
        print("8nt counts a second forward pass, which this plan does not need")


def _goodput_text(goodput: Goodput) -> str:
    """The share of the days in which iterations are done, and what takes the rest."""
    if goodput.share == 1:
        return "no interruptions, checkpoints or evaluations are counted (--goodput)"
    parts = [f"goodput {goodput.share:.1%}"]
    if goodput.interruption_share:
        parts.append(
            f"interruptions, one every {goodput.mtbf_s / 3600:.3g} h, {goodput.interruption_share:.1%}"
        )
    if goodput.checkpoint_share:
        every = f"{goodput.checkpoint_s:.3g} s every {goodput.checkpoint_every_s:,.0f} s"
        parts.append(f"checkpoints, {every}, {goodput.checkpoint_share:.1%}")
    if goodput.evaluation_share:
        parts.append(f"evaluations {goodput.evaluation_share:.1%}")
    return "; ".join(parts)


def _goodput_document(goodput: Goodput) -> dict[str, float | None]:
    """`mtbf_s` and `checkpoint_every_s` are null where there are no interruptions and no checkpoints."""
    return {name: value if isfinite(value) else None for name, value in vars(goodput).items()}


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
