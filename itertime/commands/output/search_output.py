"""The output of `itertime search`: the plans that it found, as JSON or as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .documents import error_note, plan_document, wrapped

if TYPE_CHECKING:
    from itertime.planning import PlanChoice, RankedPlan, SearchResult
    from itertime.spec import ModelSpec, System

__all__ = [
    "DEFAULT_USD_PER_GPU_HOUR",
    "document_of",
    "notes_document",
    "price_of",
    "print_found",
    "print_notes",
]

HOUR_S = 3600.0
DEFAULT_USD_PER_GPU_HOUR = 5.0  # vTrain's figure
BAR = 40  # characters of a whole iteration
MEMORY_OF = 3  # plans whose memory is shown part by part


def price_of(system: System, option: float | None) -> tuple[float, str]:
    """Dollars per GPU-hour, and where they come from: the option, the system, or the default.

    UserError for an option that is no price.
    """
    from itertime.errors import UserError

    if option is not None:
        if not 0 < option < 1e9:
            raise UserError(f"--price={option:g}: must be dollars per GPU-hour, above 0")
        return option, "as --price says"
    if system.usd_per_gpu_hour is not None:
        return system.usd_per_gpu_hour, f"as system {system.name} says"
    return DEFAULT_USD_PER_GPU_HOUR, "by default: the system states no price"


def document_of(
    model: ModelSpec, system: System, result: SearchResult, by_cost: bool, price: float
) -> dict[str, Any]:
    """The document of `--json`. `by_cost`: compare plans in dollars, at `price` dollars per GPU-hour."""
    plans = [
        plan_document(model, ranked_plan.plan, system, ranked_plan.prediction)
        | {
            "cost_usd": _value(ranked_plan, True, price),
            **_worse(result.plans[0], ranked_plan, by_cost, price),
        }
        for ranked_plan in result.plans
    ]
    counts = {"evaluated": result.evaluated, "feasible": result.feasible, "seconds": result.seconds}
    obstacle = {"in_the_way": result.in_the_way} if result.in_the_way else {}
    return {"plans": plans, **counts, **obstacle}


def print_found(
    model: ModelSpec, result: SearchResult, by_cost: bool, price: float, *, against_best: bool, explain: bool
) -> None:
    """`against_best`: also say why each plan is worse than the first. `explain`: also show where the time and
    the memory of the first go.
    """
    headroom = result.plans[0].prediction.memory_headroom if result.plans else 0.0
    fit = "fit in memory" + (f" with {headroom:.3g} of it free" if headroom else "")
    counts = f"{result.evaluated} plans, {result.feasible} {fit}"
    print(f"{model.name}: {counts}, {result.seconds * 1e3:.0f} ms")
    if not result.plans:
        rules = "no plan keeps the rules (see docs/itertime.md); try another number of GPUs, or restrict less"
        if result.in_the_way:
            rules = f"no plan can have the options, most because of {result.in_the_way}"
        print("no plan fits in memory; try more GPUs" if result.evaluated else rules)
        return
    for place, ranked_plan in enumerate(result.plans, 1):
        print(_line(place, ranked_plan, price))
        if place > 1 and against_best:
            print(_why(result.plans[0], ranked_plan, by_cost, price))
        if place <= MEMORY_OF and against_best:
            print(_memory(ranked_plan))
    if explain:
        _explain(result.plans[0])


def notes_document(
    system: System, choice: PlanChoice | None, price: float, price_from: str
) -> dict[str, Any]:
    """What `--json` says about the search as a whole: see `PlanChoice`, a warning where errors are large, and
    the dollars of a GPU-hour.
    """
    return {
        "choice": None if choice is None else vars(choice),
        "warning": error_note(system),
        "usd_per_gpu_hour": price,
        "price_from": price_from,
    }


def print_notes(system: System, result: SearchResult, choice: PlanChoice | None, price: str) -> None:
    """What the dollars are of, and how sure the seconds and the choice of the first plan are."""
    if not result.plans:
        return
    print(f"$: of one iteration, at {price}")
    if any(ranked_plan.prediction.interval_s for ranked_plan in result.plans):
        print("in brackets: the seconds of nine in ten measured iterations of such plans")
    else:
        print(f"no interval known for {system.name}")
    if note := error_note(system):
        print(wrapped(f"warning: {note}"))
    if choice is not None:
        print(wrapped(_of_choice(choice)))


def _of_choice(choice: PlanChoice) -> str:
    counts = {0: "no other plan is", 1: "1 other plan is"}
    tied_plans = counts.get(choice.tied, f"{choice.tied:,} other plans are")
    tie = ", which is a tie" if choice.tied else ""
    return (
        f"best of many: as the best of {choice.rivals:,} by prediction, the first plan should take "
        f"{choice.optimism:.0%} more than predicted, and {choice.regret:.0%} more than the truly best one; "
        f"{tied_plans} within {choice.margin:.0%} of it{tie}"
    )


def _memory(ranked_plan: RankedPlan) -> str:
    prediction = ranked_plan.prediction
    parts = ", ".join(f"{name} {size / 1e9:.1f}" for name, size in prediction.memory_parts.items() if size)
    free = (prediction.capacity_bytes - prediction.memory_bytes) / 1e9
    return _folded(f"     memory, GB: {parts}; {free:.1f} of {prediction.capacity_bytes / 1e9:.1f} free")


def _value(ranked_plan: RankedPlan, by_cost: bool, price: float) -> float:
    """Seconds, or dollars, of one iteration."""
    return ranked_plan.prediction.iteration_s * (_usd_per_s(ranked_plan, price) if by_cost else 1.0)


def _usd_per_s(ranked_plan: RankedPlan, price: float) -> float:
    return ranked_plan.plan.gpus * price / HOUR_S


def _worse(best: RankedPlan, ranked_plan: RankedPlan, by_cost: bool, price: float) -> dict[str, Any]:
    """By how much a plan is worse than the best one, and the parts that make the difference: in seconds, or
    with `by_cost` in dollars.
    """
    from itertime.prediction import difference

    def parts_of(plan: RankedPlan) -> dict[str, float]:
        factor = _usd_per_s(plan, price) if by_cost else 1.0
        return {name: seconds * factor for name, seconds in plan.prediction.breakdown.items()}

    return {
        "worse_by": _value(ranked_plan, by_cost, price) - _value(best, by_cost, price),
        "worse_because": difference(parts_of(best), parts_of(ranked_plan)),
    }


def _line(place: int, ranked_plan: RankedPlan, price: float) -> str:
    plan, prediction = ranked_plan.plan, ranked_plan.prediction
    low_high = "({:.4g} to {:.4g})".format(*prediction.interval_s) if prediction.interval_s else ""
    time = f"{prediction.iteration_s:9.4f} s {low_high:18}"
    numbers = f"{time} {prediction.memory_bytes / 1e9:6.1f} GB  MFU {prediction.mfu:5.1%}"
    cost = f"${_value(ranked_plan, True, price):8,.4f}"
    return f"{place:3}  {plan.gpus:5} GPUs  {numbers}  {cost}\n     {plan.label}"


def _why(best: RankedPlan, ranked_plan: RankedPlan, by_cost: bool, price: float) -> str:
    from itertime.prediction import in_words

    worse = _worse(best, ranked_plan, by_cost, price)
    share = worse["worse_by"] / _value(best, by_cost, price)
    unit = " $" if by_cost else " s"
    return _folded(f"     {share:+7.1%}: {in_words(worse['worse_because'], unit) or 'no part differs'}")


def _folded(text: str) -> str:
    """A line below a plan, folded under its own beginning."""
    return wrapped(text, indent=7)


def _explain(ranked_plan: RankedPlan) -> None:
    from itertime.prediction import where_time_goes

    prediction = ranked_plan.prediction
    print(f"\nwhere the {prediction.iteration_s:.4f} s of {ranked_plan.plan.label} go")
    for group, seconds in where_time_goes(prediction).items():
        if seconds:
            share = seconds / prediction.iteration_s
            print(f"  {group:38}{seconds:10.4f} s {share:6.1%}  {'█' * round(share * BAR)}")
    print(f"and its {prediction.memory_bytes / 1e9:.1f} GB on the fullest GPU")
    for name, size in prediction.memory_parts.items():
        if size:
            print(f"  {name:38}{size / 1e9:10.1f} GB {size / prediction.memory_bytes:6.1%}")
