"""`itertime search`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from itertime.commandline import print_json
from itertime.commands.options import (
    Attention,
    GlobalBatch,
    GradOverlap,
    Json,
    ModelName,
    SeqLen,
    SystemName,
    model_of,
    numbers_of,
    plan_document,
    words_of,
)

if TYPE_CHECKING:
    from itertime.plansearch import Found

__all__ = ["search"]

HOUR_S = 3600.0
BAR = 40  # characters of a whole iteration


def search(
    model: ModelName,
    system: SystemName,
    global_batch: GlobalBatch,
    gpus: Annotated[int | None, typer.Option("--gpus", min=1, help="Use exactly this many GPUs.")] = None,
    max_gpus: Annotated[
        int | None, typer.Option("--max-gpus", min=1, help="Use at most this many GPUs.")
    ] = None,
    objective: Annotated[
        str, typer.Option("--objective", help="time, cost (dollars per iteration), or pareto.")
    ] = "time",
    price: Annotated[float, typer.Option("--price", help="Dollars per GPU-hour.")] = 5.0,
    pareto: Annotated[
        bool,
        typer.Option(
            "--pareto", help="The front of time against GPUs, up to --max-gpus; --objective pareto."
        ),
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show where the time and the memory of the best plan go.")
    ] = False,
    top: Annotated[
        int | None, typer.Option("--top", min=1, help="How many plans to show: 10, or the whole front.")
    ] = None,
    seq_len: SeqLen = None,
    attention: Attention = None,
    tp: Annotated[str, typer.Option("--tp", help="Only these, such as 4,8; all within a node.")] = "all",
    pp: Annotated[str, typer.Option("--pp", help="Only these; all that divide the layers.")] = "all",
    micro_batch: Annotated[str, typer.Option("--micro-batch", help="Only these; 1 to 64.")] = "all",
    interleave: Annotated[
        str, typer.Option("--interleave", help="Only so many chunks a stage, such as 1,2; all.")
    ] = "all",
    recompute: Annotated[
        str, typer.Option("--recompute", help="Only these choices.")
    ] = "none,selective,full",
    zero: Annotated[str, typer.Option("--zero", help="Only these ZeRO stages, such as 0,1.")] = "0,1,2,3",
    sequence_parallel: Annotated[
        bool | None,
        typer.Option("--sequence-parallel/--no-sequence-parallel", help="Only with it, or only without."),
    ] = None,
    cp: Annotated[str, typer.Option("--cp", help="Context parallelism to try, such as 1,2.")] = "1",
    ep: Annotated[str, typer.Option("--ep", help="Only this expert parallelism; all.")] = "all",
    grad_overlap: GradOverlap = False,
    json: Json = False,
) -> None:
    """The best plans for a model on a number of GPUs, among all that keep the rules and fit in memory."""
    from itertime.errors import UserError
    from itertime.plansearch import search as run
    from itertime.planspace import MICRO_BATCHES, Space
    from itertime.system import load_system

    if pareto and objective not in ("time", "pareto"):
        raise UserError("--pareto: is the front of time against GPUs; leave out --objective")
    pareto = pareto or objective == "pareto"
    if pareto and (max_gpus is None or gpus is not None):
        raise UserError("--pareto: needs --max-gpus; leave out --gpus")
    if not 0 < price < 1e9:
        raise UserError(f"--price={price:g}: must be dollars per GPU-hour, above 0")
    spec = model_of(model, seq_len, attention)
    space = Space(
        tp=_chosen("--tp", tp),
        pp=_chosen("--pp", pp),
        micro_batch=_chosen("--micro-batch", micro_batch) or MICRO_BATCHES,
        interleave=_chosen("--interleave", interleave),
        recompute=words_of(recompute),
        zero_stage=numbers_of("--zero", zero),
        sequence_parallel=(False, True) if sequence_parallel is None else (sequence_parallel,),
        grad_overlap=grad_overlap,
        cp=numbers_of("--cp", cp),
        ep=_chosen("--ep", ep),
    )
    if top is None:
        top = 1_000_000 if pareto else 10
    result = run(
        spec,
        global_batch,
        load_system(system),
        gpus,
        max_gpus=max_gpus,
        space=space,
        objective="pareto" if pareto else objective,
        top=top,
    )
    by_cost = objective == "cost"
    if json:
        plans = [
            plan_document(spec, found.plan, found.prediction)
            | {"cost_usd": _value(found, True, price), **_worse(result.plans[0], found, by_cost, price)}
            for found in result.plans
        ]
        counts = {"evaluated": result.evaluated, "feasible": result.feasible, "seconds": result.seconds}
        print_json({"plans": plans, **counts})
        return
    print(
        f"{spec.name}: {result.evaluated} plans, {result.feasible} fit in memory, "
        f"{result.seconds * 1e3:.0f} ms"
    )
    if not result.plans:
        rules = "no plan keeps the rules (see docs/itertime.md); try another number of GPUs, or restrict less"
        print("no plan fits in memory; try more GPUs" if result.evaluated else rules)
        return
    for place, found in enumerate(result.plans, 1):
        print(_line(place, found, price))
        if place > 1 and not pareto:
            print(_why(result.plans[0], found, by_cost, price))
    if explain:
        _explain(result.plans[0])


def _chosen(option: str, text: str) -> tuple[int, ...]:
    """The numbers of an option; empty, which means every sensible one, for "all"."""
    return () if text.strip() == "all" else numbers_of(option, text)


def _value(found: Found, by_cost: bool, price: float) -> float:
    """Seconds, or dollars, of one iteration."""
    return found.prediction.iteration_s * (_usd_per_s(found, price) if by_cost else 1.0)


def _usd_per_s(found: Found, price: float) -> float:
    return found.plan.gpus * price / HOUR_S


def _worse(best: Found, found: Found, by_cost: bool, price: float) -> dict[str, Any]:
    """By how much a plan is worse than the best one, and the parts that make the difference: seconds, or
    dollars where cost is what counts.
    """
    from itertime.explain import difference

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
    numbers = f"{one.iteration_s:10.4f} s  {one.memory_bytes / 1e9:6.1f} GB  MFU {one.mfu:5.1%}"
    cost = f"${_value(found, True, price):9,.4f}"
    return f"{place:3}  {plan.gpus:6} GPUs  {numbers}  {cost}  {plan.label}"


def _why(best: Found, found: Found, by_cost: bool, price: float) -> str:
    from itertime.explain import in_words

    worse = _worse(best, found, by_cost, price)
    share = worse["worse_by"] / _value(best, by_cost, price)
    unit = " $" if by_cost else " s"
    return f"     {share:+7.1%}: {in_words(worse['worse_because'], unit) or 'no part differs'}"


def _explain(found: Found) -> None:
    from itertime.explain import where_time_goes

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
