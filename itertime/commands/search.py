"""`itertime search`, with the options that it alone has, and what it prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from itertime.commandline import option_groups, print_json
from itertime.errors import UserError, shown

from .documents import error_note, plan_document, wrapped
from .idle_options import print_unpredicted, print_without_effect
from .options import MEMORY_HEADROOM, Choices, Execution, Headroom, Json, Subject, choice_texts, option

if TYPE_CHECKING:
    from itertime.planning import PlanChoice, RankedPlan, SearchResult, Space
    from itertime.spec import ModelSpec, System

TOP, WHOLE_FRONT = 10, 1_000_000
HOUR_S = 3600.0
DEFAULT_USD_PER_GPU_HOUR = 5.0  # vTrain's figure
BAR = 40  # characters of a whole iteration
MEMORY_OF = 3  # plans whose memory is shown part by part


@dataclass(frozen=True, kw_only=True)
class Goal:
    """The options that say how many GPUs a plan may use, what is best, and what to show."""

    gpus: Annotated[int | None, option("--gpus", "Use exactly this many GPUs.", min=1)] = None
    max_gpus: Annotated[int | None, option("--max-gpus", "Use at most this many GPUs.", min=1)] = None
    objective: Annotated[str, option("--objective", "time, cost (dollars per iteration), or pareto.")] = (
        "time"
    )
    price: Annotated[
        float | None,
        option("--price", f"Dollars per GPU-hour; default: the system's, or {DEFAULT_USD_PER_GPU_HOUR:g}."),
    ] = None
    pareto: Annotated[
        bool,
        option("--pareto", "The front of time against GPUs, up to --max-gpus; short for --objective pareto."),
    ] = False
    explain: Annotated[
        bool, option("--explain", "Show where the time and the memory of the best plan go.")
    ] = False
    top: Annotated[
        int | None, option("--top", "How many plans to show; default: 10, or the whole front.", min=1)
    ] = None

    def resolved_objective(self) -> str:
        """The objective that `--objective` and `--pareto`, short for one of its values, state together."""
        if self.pareto and self.objective not in ("time", "pareto"):
            raise UserError("--pareto: is short for --objective pareto; leave out --objective")
        objective = "pareto" if self.pareto else self.objective
        if objective == "pareto" and (self.max_gpus is None or self.gpus is not None):
            raise UserError("--pareto: needs --max-gpus; leave out --gpus")
        return objective


@option_groups
def search(
    subject: Subject,
    goal: Goal,
    choices: Choices,
    execution: Execution,
    memory_headroom: Headroom = MEMORY_HEADROOM,
    json: Json = False,
) -> None:
    """Find the best plans for a model on a number of GPUs that keep the rules and fit in memory."""
    from itertime.planning import judge
    from itertime.planning import search as run

    objective = goal.resolved_objective()
    model, system = subject.read_model(), subject.read_system()
    price, price_from = _price_of(system, goal.price)
    space = choices.plan_space(execution)
    print_without_effect(model, vars(choices) | vars(execution) | choice_texts(space))
    print_unpredicted(execution.options)
    result = run(
        model,
        subject.global_batch,
        system,
        goal.gpus,
        max_gpus=goal.max_gpus,
        space=space,
        objective=objective,
        top=goal.top or (WHOLE_FRONT if objective == "pareto" else TOP),
        memory_headroom=memory_headroom,
    )
    # A front has no single best plan, so no choice is judged, and no plan is compared with the first.
    by_cost, front = objective == "cost", objective == "pareto"
    choice = None if front else judge(model, system, result, objective)
    if json:
        notes = _notes_document(system, choice, price, price_from)
        frame = {"space": choices.space, "framework": system.framework, "precision": space.precision}
        print_json(_document_of(model, system, result, by_cost, price) | frame | notes)
    else:
        _print_counts(model, result, memory_headroom)
        print(wrapped(searched(choices, system, space)))
        _print_plans(result, by_cost, price, against_best=not front, explain=goal.explain)
        _print_notes(system, result, choice, f"{price:g} a GPU-hour, {price_from}")
    if not result.plans:
        raise UserError(_no_answer(result))


def _price_of(system: System, option: float | None) -> tuple[float, str]:
    """Dollars per GPU-hour, and where they come from: the option, the system, or the default.

    UserError for an option that is no price.
    """
    if option is not None:
        if not 0 < option < 1e9:
            raise UserError(f"--price={option:g}: must be dollars per GPU-hour, above 0")
        return option, "as --price says"
    if system.usd_per_gpu_hour is not None:
        return system.usd_per_gpu_hour, f"as system {system.name} says"
    return DEFAULT_USD_PER_GPU_HOUR, "by default: the system states no price"


def _document_of(
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


def searched(choices: Choices, system: System, space: Space) -> str:
    """Among which plans a search looked, and under which framework and precision they run."""
    stated = ", ".join(f"{name} {value}" for name, value in choices.stated.items())
    name = f"{choices.space}, but for {stated}" if stated else choices.space
    return f"space {name}; framework {shown(system.framework)}; precision {space.precision}"


def _print_counts(model: ModelSpec, result: SearchResult, memory_headroom: float) -> None:
    fit = "fit in memory" + (f" with {memory_headroom:.3g} of it free" if memory_headroom else "")
    counts = f"{result.evaluated} plans, {result.feasible} {fit}"
    print(f"{model.name}: {counts}, {result.seconds * 1e3:.0f} ms")


def _no_answer(result: SearchResult) -> str:
    """Why a search without a plan has none, and what to try."""
    if result.evaluated:
        return "no plan fits in memory; try more GPUs"
    if result.in_the_way:
        return f"no plan can have the options, most because of {result.in_the_way}"
    return "no plan keeps the rules (see docs/itertime.md); try another number of GPUs, or restrict less"


def _print_plans(
    result: SearchResult, by_cost: bool, price: float, *, against_best: bool, explain: bool
) -> None:
    """`against_best`: also say why each plan is worse than the first. `explain`: also show where the time and
    the memory of the first go.
    """
    for place, ranked_plan in enumerate(result.plans, 1):
        print(_line(place, ranked_plan, price))
        if place > 1 and against_best:
            print(_why(result.plans[0], ranked_plan, by_cost, price))
        if place <= MEMORY_OF and against_best:
            print(_memory(ranked_plan))
    if explain and result.plans:
        _explain(result.plans[0])


def _notes_document(
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


def _print_notes(system: System, result: SearchResult, choice: PlanChoice | None, price: str) -> None:
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
    tokens, tflops = prediction.tokens_per_s_per_gpu, prediction.tflops_per_gpu
    rates = f"{tokens:,.0f} tokens/s/GPU, {tflops:,.0f} TFLOP/s/GPU"
    return f"{place:3}  {plan.gpus:5} GPUs  {numbers}  {cost}\n     {plan.label}: {rates}"


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
