"""`itertime search`, with the options that it alone has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from itertime.commandline import option_groups, print_json

from .idle_options import print_unpredicted, print_without_effect
from .options import MEMORY_HEADROOM, Execution, Headroom, Json, Subject, numbers_of, option, words_of
from .output.search_output import (
    DEFAULT_USD_PER_GPU_HOUR,
    document_of,
    notes_document,
    price_of,
    print_found,
    print_notes,
)

if TYPE_CHECKING:
    from itertime.planning import Space

__all__ = ["search"]

TOP, WHOLE_FRONT = 10, 1_000_000

_TRIED = "Plans to try"


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
        from itertime.errors import UserError

        if self.pareto and self.objective not in ("time", "pareto"):
            raise UserError("--pareto: is short for --objective pareto; leave out --objective")
        objective = "pareto" if self.pareto else self.objective
        if objective == "pareto" and (self.max_gpus is None or self.gpus is not None):
            raise UserError("--pareto: needs --max-gpus; leave out --gpus")
        return objective


@dataclass(frozen=True, kw_only=True)
class Choices:
    """The options that say which plans a search tries: lists of values, or `all`."""

    tp: Annotated[
        str, option("--tp", "Degrees to try, for example 4,8; all: those within a node.", _TRIED)
    ] = "all"
    pp: Annotated[
        str,
        option("--pp", "Degrees to try; all: those that divide the layers, or these and two more.", _TRIED),
    ] = "all"
    cp: Annotated[str, option("--cp", "Context parallelism to try, for example 1,2.", _TRIED)] = "1"
    ep: Annotated[
        str, option("--ep", "Expert parallelism to try; all: those that divide the experts.", _TRIED)
    ] = "all"
    micro_batch: Annotated[str, option("--micro-batch", "Sizes to try; all: 1 to 64.", _TRIED)] = "all"
    interleave: Annotated[
        str,
        option(
            "--interleave",
            "Chunks per stage to try, for example 1,2; all: those that divide a stage's layers.",
            _TRIED,
        ),
    ] = "all"
    sequence_parallel: Annotated[
        bool | None,
        option(
            "--sequence-parallel/--no-sequence-parallel",
            "Only with it, or only without it; default: both.",
            _TRIED,
        ),
    ] = None
    recompute: Annotated[str, option("--recompute", "Modes to try; early-stop only if named.", _TRIED)] = (
        "none,selective,full"
    )
    zero: Annotated[str, option("--zero", "ZeRO stages to try, for example 0,1.", _TRIED)] = "0,1,2,3"
    offload_optimizer: Annotated[
        bool, option("--offload-optimizer", "Also try plans that keep and run it on the CPU.", _TRIED)
    ] = False

    def space(self, execution: Execution) -> Space:
        """The plans to look at."""
        from itertime.planning import MICRO_BATCHES, Space
        from itertime.spec import parse_options

        sequence_parallel = self.sequence_parallel
        return Space(
            tp=_chosen("--tp", self.tp),
            pp=_chosen("--pp", self.pp),
            micro_batch=_chosen("--micro-batch", self.micro_batch) or MICRO_BATCHES,
            interleave=_chosen("--interleave", self.interleave),
            recompute=words_of(self.recompute),
            zero_stage=numbers_of("--zero", self.zero),
            sequence_parallel=(False, True) if sequence_parallel is None else (sequence_parallel,),
            cp=numbers_of("--cp", self.cp),
            ep=_chosen("--ep", self.ep),
            ends=True,
            offload_optimizer=self.offload_optimizer,
            **(vars(execution) | {"options": parse_options(execution.options, "--options")}),
        )


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
    price, price_from = price_of(system, goal.price)
    space = choices.space(execution)
    print_without_effect(model, vars(choices) | vars(execution))
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
        notes = notes_document(system, choice, price, price_from)
        print_json(document_of(model, system, result, by_cost, price) | notes)
    else:
        print_found(model, result, by_cost, price, against_best=not front, explain=goal.explain)
        print_notes(system, result, choice, f"{price:g} a GPU-hour, {price_from}")


def _chosen(option: str, text: str) -> tuple[int, ...]:
    """The numbers of an option; empty for "all", which leaves the choice to the search."""
    return () if text.strip() == "all" else numbers_of(option, text)
