"""`itertime search`, with the options that it alone has, and what it prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from itertime.commandline import option_groups, print_json
from itertime.errors import UserError

from .documents import error_note, plan_document, print_error_note, rules_text, wrapped
from .idle_options import print_unpredicted, print_without_effect
from .layout import predict_command
from .options import (
    MEMORY_HEADROOM,
    Execution,
    Headroom,
    Json,
    SpaceOptions,
    Subject,
    UsdPerGpuHour,
    option,
)

if TYPE_CHECKING:
    from itertime.planning import PlanChoice, RankedPlan, SearchResult
    from itertime.spec import ModelSpec, Price, System

TOP, WHOLE_FRONT = 10, 1_000_000
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
    price: UsdPerGpuHour = None
    tokens: Annotated[
        float | None, option("--tokens", "Also show days and dollars of a training on this many tokens.")
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
    space_options: SpaceOptions,
    execution: Execution,
    memory_headroom: Headroom = MEMORY_HEADROOM,
    json: Json = False,
) -> None:
    """Find the best plans for a model on a number of GPUs that keep the rules and fit in memory."""
    from itertime.planning import checked_tokens, judge
    from itertime.planning import search as run
    from itertime.spec import checked_price, price_of

    objective = goal.resolved_objective()
    model, system = subject.read_model(), subject.read_system()
    price = price_of(system, checked_price(goal.price))
    tokens = None if goal.tokens is None else checked_tokens(goal.tokens)
    space = space_options.plan_space(execution)
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
    plans = [ranked_plan.plan for ranked_plan in result.plans]
    print_without_effect(subject, model, system, plans, execution)
    # A front has no single best plan, so no choice is judged, and no plan is compared with the first.
    front = objective == "pareto"
    choice = None if front else judge(model, system, result, objective)
    answer = _Answer(subject, model, system, result, price, objective == "cost", tokens, memory_headroom)
    if json:
        frame = space_options.frame(system, space)
        print_json(answer.document() | frame | _notes_document(system, choice, price))
    else:
        print(answer.counts)
        print(wrapped(space_options.frame_text(system, space)))
        answer.print_plans(against_best=not front)
        if goal.explain and result.plans:
            _explain(result.plans[0])
        _print_notes(system, result, choice, price)
    if not result.plans:
        raise UserError(no_answer(result))


@dataclass(frozen=True)
class _Answer:
    """What a search found, and what its plans are shown with: the price of a GPU-hour, whether they are
    compared in dollars, and the tokens of a training.
    """

    subject: Subject
    model: ModelSpec
    system: System
    result: SearchResult
    price: Price
    by_cost: bool
    tokens: float | None
    memory_headroom: float

    @property
    def counts(self) -> str:
        """How many plans were looked at, and how many of them fit."""
        headroom = f" with {self.memory_headroom:.3g} of it free" if self.memory_headroom else ""
        fit = f"{self.result.feasible} fit in memory{headroom}"
        milliseconds = f"{self.result.seconds * 1e3:.0f} ms"
        return f"{self.model.name}: {self.result.evaluated} plans, {fit}, {milliseconds}"

    def document(self) -> dict[str, Any]:
        """The document of `--json`."""
        result = self.result
        plans = [
            plan_document(self.model, ranked_plan.plan, self.system, ranked_plan.prediction)
            | {
                "cost_usd": self._usd(ranked_plan),
                **self._training(ranked_plan),
                **self._worse(ranked_plan),
                "command": self._command(ranked_plan),
            }
            for ranked_plan in result.plans
        ]
        counts = {"evaluated": result.evaluated, "feasible": result.feasible, "seconds": result.seconds}
        obstacle = {"in_the_way": result.in_the_way} if result.in_the_way else {}
        return {"plans": plans, **counts, **obstacle}

    def print_plans(self, against_best: bool) -> None:
        """Each plan, with the command that predicts it, on one line so that it can be copied. `against_best`:
        also say why each is worse than the first.
        """
        for place, ranked_plan in enumerate(self.result.plans, 1):
            print(self._line(place, ranked_plan))
            if place > 1 and against_best:
                print(self._why(ranked_plan))
            if place <= MEMORY_OF and against_best:
                print(_memory(ranked_plan))
            print(f"     {self._command(ranked_plan)}")

    def _command(self, ranked_plan: RankedPlan) -> str:
        return predict_command(self.subject, ranked_plan.plan, self.memory_headroom)

    def _usd(self, ranked_plan: RankedPlan) -> float:
        """Dollars of one iteration."""
        return self.price.usd(ranked_plan.plan.gpus, ranked_plan.prediction.iteration_s)

    def _value(self, ranked_plan: RankedPlan) -> float:
        """What plans are compared by: seconds, or dollars, of one iteration."""
        return self._usd(ranked_plan) if self.by_cost else ranked_plan.prediction.iteration_s

    def _training(self, ranked_plan: RankedPlan) -> dict[str, float]:
        """Days and dollars of the training; nothing where no tokens are stated."""
        from itertime.planning import DAY_S, training_days

        if self.tokens is None:
            return {}
        days = training_days(self.tokens, ranked_plan)
        return {"days": days, "training_usd": self.price.usd(ranked_plan.plan.gpus, days * DAY_S)}

    def _worse(self, ranked_plan: RankedPlan) -> dict[str, Any]:
        """By how much a plan is worse than the best one, and the parts that make the difference."""
        from itertime.prediction import difference

        def parts_of(plan: RankedPlan) -> dict[str, float]:
            factor = self.price.usd(plan.plan.gpus, 1.0) if self.by_cost else 1.0
            return {name: seconds * factor for name, seconds in plan.prediction.breakdown.items()}

        best = self.result.plans[0]
        return {
            "worse_by": self._value(ranked_plan) - self._value(best),
            "worse_because": difference(parts_of(best), parts_of(ranked_plan)),
        }

    def _line(self, place: int, ranked_plan: RankedPlan) -> str:
        plan, prediction = ranked_plan.plan, ranked_plan.prediction
        low_high = "({:.4g} to {:.4g})".format(*prediction.interval_s) if prediction.interval_s else ""
        time = f"{prediction.iteration_s:9.4f} s {low_high:18}"
        numbers = f"{time} {prediction.memory_bytes / 1e9:6.1f} GB  MFU {prediction.mfu:5.1%}"
        tokens, tflops = prediction.tokens_per_s_per_gpu, prediction.tflops_per_gpu
        rates = f"{tokens:,.0f} tokens/s/GPU, {tflops:,.0f} TFLOP/s/GPU"
        first_line = f"{place:3}  {plan.gpus:5} GPUs  {numbers}  ${self._usd(ranked_plan):8,.4f}"
        lines = [first_line, f"{plan.label}: {rates}"]
        if self.tokens is not None:
            training = self._training(ranked_plan)
            days, dollars = training["days"], training["training_usd"]
            lines.append(f"{days:,.4g} days and ${dollars:,.0f} for {self.tokens / 1e9:,.6g}B tokens")
        return "\n     ".join(lines)

    def _why(self, ranked_plan: RankedPlan) -> str:
        from itertime.prediction import in_words

        worse = self._worse(ranked_plan)
        share = worse["worse_by"] / self._value(self.result.plans[0])
        unit = " $" if self.by_cost else " s"
        return _folded(f"     {share:+7.1%}: {in_words(worse['worse_because'], unit) or 'no part differs'}")


def no_answer(result: SearchResult) -> str:
    """Why a search without a plan has none, and what to try."""
    if result.evaluated:
        return "no plan fits in memory; try more GPUs"
    if result.in_the_way:
        return f"no plan can have the options, most because of {result.in_the_way}"
    return "no plan keeps the rules (see docs/itertime.md); try another number of GPUs, or restrict less"


def _notes_document(system: System, choice: PlanChoice | None, price: Price) -> dict[str, Any]:
    """What `--json` says about the search as a whole: see `PlanChoice`, a warning where errors are large, and
    the dollars of a GPU-hour.
    """
    return {
        "choice": None if choice is None else vars(choice),
        "warning": error_note(system),
        "usd_per_gpu_hour": price.usd_per_gpu_hour,
        "price_from": price.origin,
    }


def _print_notes(system: System, result: SearchResult, choice: PlanChoice | None, price: Price) -> None:
    """What the dollars are of, and how sure the seconds and the choice of the first plan are."""
    if not result.plans:
        return
    print(f"$: of one iteration, at {price.usd_per_gpu_hour:g} a GPU-hour, {price.origin}")
    if any(ranked_plan.prediction.interval_s for ranked_plan in result.plans):
        print("in brackets: the seconds of nine in ten measured iterations of such plans")
    else:
        print(f"no interval known for {system.name}{rules_text(result.plans[0].plan)}")
    print_error_note(system)
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
