"""The output of `itertime search`: the plans that it found, as JSON or as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .documents import error_note, plan_document, wrapped

if TYPE_CHECKING:
    from itertime.planning import Choice, Found, SearchResult
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


def price_of(system: System, stated: float | None) -> tuple[float, str]:
    """Dollars per GPU-hour, and where they come from: the option, the system, or the default.

    UserError for an option that is no price.
    """
    from itertime.errors import UserError

    if stated is not None:
        if not 0 < stated < 1e9:
            raise UserError(f"--price={stated:g}: must be dollars per GPU-hour, above 0")
        return stated, "as --price says"
    if system.usd_per_gpu_hour is not None:
        return system.usd_per_gpu_hour, f"as system {system.name} says"
    return DEFAULT_USD_PER_GPU_HOUR, "by default: the system states no price"


def document_of(
    model: ModelSpec, system: System, result: SearchResult, by_cost: bool, price: float
) -> dict[str, Any]:
    """The document of `--json`. `by_cost`: compare plans in dollars, at `price` dollars per GPU-hour."""
    plans = [
        plan_document(model, found.plan, system, found.prediction)
        | {"cost_usd": _value(found, True, price), **_worse(result.plans[0], found, by_cost, price)}
        for found in result.plans
    ]
    counts = {"evaluated": result.evaluated, "feasible": result.feasible, "seconds": result.seconds}
    why = {"in_the_way": result.in_the_way} if result.in_the_way else {}
    return {"plans": plans, **counts, **why}


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
    for place, found in enumerate(result.plans, 1):
        print(_line(place, found, price))
        if place > 1 and against_best:
            print(_why(result.plans[0], found, by_cost, price))
        if place <= MEMORY_OF and against_best:
            print(_memory(found))
    if explain:
        _explain(result.plans[0])


def notes_document(system: System, choice: Choice | None, price: float, price_from: str) -> dict[str, Any]:
    """What `--json` says about the search as a whole: see `Choice`, a warning where errors are large, and the
    dollars of a GPU-hour.
    """
    return {
        "choice": None if choice is None else vars(choice),
        "warning": error_note(system),
        "usd_per_gpu_hour": price,
        "price_from": price_from,
    }


def print_notes(system: System, result: SearchResult, choice: Choice | None, price: str) -> None:
    """What the dollars are of, and how sure the seconds and the choice of the first plan are."""
    if not result.plans:
        return
    print(f"$: of one iteration, at {price}")
    if any(found.prediction.interval_s for found in result.plans):
        print("in brackets: the seconds of nine in ten measured iterations of such plans")
    else:
        print(f"no interval known for {system.name}")
    if note := error_note(system):
        print(wrapped(f"warning: {note}"))
    if choice is not None:
        print(wrapped(_of_choice(choice)))


def _of_choice(choice: Choice) -> str:
    many = {0: "no other plan is", 1: "1 other plan is"}.get(choice.tied, f"{choice.tied:,} other plans are")
    tie = ", which is a tie" if choice.tied else ""
    return (
        f"best of many: as the best of {choice.rivals:,} by prediction, the first plan should take "
        f"{choice.optimism:.0%} more than predicted, and {choice.regret:.0%} more than the truly best one; "
        f"{many} within {choice.margin:.0%} of it{tie}"
    )


def _memory(found: Found) -> str:
    one = found.prediction
    parts = ", ".join(f"{name} {size / 1e9:.1f}" for name, size in one.memory_parts.items() if size)
    free = (one.capacity_bytes - one.memory_bytes) / 1e9
    return _folded(f"     memory, GB: {parts}; {free:.1f} of {one.capacity_bytes / 1e9:.1f} free")


def _value(found: Found, by_cost: bool, price: float) -> float:
    """Seconds, or dollars, of one iteration."""
    return found.prediction.iteration_s * (_usd_per_s(found, price) if by_cost else 1.0)


def _usd_per_s(found: Found, price: float) -> float:
    return found.plan.gpus * price / HOUR_S


def _worse(best: Found, found: Found, by_cost: bool, price: float) -> dict[str, Any]:
    """By how much a plan is worse than the best one, and the parts that make the difference: in seconds, or
    with `by_cost` in dollars.
    """
    from itertime.prediction import difference

    best_parts, parts = (
        {name: seconds * (_usd_per_s(one, price) if by_cost else 1.0) for name, seconds in shown.items()}
        for one, shown in ((best, best.prediction.breakdown), (found, found.prediction.breakdown))
    )
    return {
        "worse_by": _value(found, by_cost, price) - _value(best, by_cost, price),
        "worse_because": difference(best_parts, parts),
    }


def _line(place: int, found: Found, price: float) -> str:
    plan, one = found.plan, found.prediction
    low_high = "({:.4g} to {:.4g})".format(*one.interval_s) if one.interval_s else ""
    numbers = f"{one.iteration_s:9.4f} s {low_high:18} {one.memory_bytes / 1e9:6.1f} GB  MFU {one.mfu:5.1%}"
    cost = f"${_value(found, True, price):8,.4f}"
    return f"{place:3}  {plan.gpus:5} GPUs  {numbers}  {cost}\n     {plan.label}"


def _why(best: Found, found: Found, by_cost: bool, price: float) -> str:
    from itertime.prediction import in_words

    worse = _worse(best, found, by_cost, price)
    share = worse["worse_by"] / _value(best, by_cost, price)
    unit = " $" if by_cost else " s"
    return _folded(f"     {share:+7.1%}: {in_words(worse['worse_because'], unit) or 'no part differs'}")


def _folded(text: str) -> str:
    """A line below a plan, folded under its own beginning."""
    return wrapped(text, indent=7)


def _explain(found: Found) -> None:
    from itertime.prediction import where_time_goes

    one = found.prediction
    print(f"\nwhere the {one.iteration_s:.4f} s of {found.plan.label} go")
    for group, seconds in where_time_goes(one).items():
        if seconds:
            share = seconds / one.iteration_s
            print(f"  {group:38}{seconds:10.4f} s {share:6.1%}  {'█' * round(share * BAR)}")
    print(f"and its {one.memory_bytes / 1e9:.1f} GB on the fullest GPU")
    for name, size in one.memory_parts.items():
        if size:
            print(f"  {name:38}{size / 1e9:10.1f} GB {size / one.memory_bytes:6.1%}")
