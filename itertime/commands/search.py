"""`itertime search`."""

from __future__ import annotations

from itertime.commandline import print_json
from itertime.commands.found import document_of, print_found
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
    words_of,
)
from itertime.commands.search_options import (
    CpChoices,
    EpChoices,
    Explain,
    Gpus,
    InterleaveChoices,
    MaxGpus,
    MicroBatchChoices,
    Objective,
    Pareto,
    PpChoices,
    Price,
    RecomputeChoices,
    SequenceParallelChoice,
    Top,
    TpChoices,
    ZeroChoices,
)

__all__ = ["search"]

TOP, WHOLE_FRONT = 10, 1_000_000


def search(
    model: ModelName,
    system: SystemName,
    global_batch: GlobalBatch,
    gpus: Gpus = None,
    max_gpus: MaxGpus = None,
    objective: Objective = "time",
    price: Price = 5.0,
    pareto: Pareto = False,
    explain: Explain = False,
    top: Top = None,
    seq_len: SeqLen = None,
    attention: Attention = None,
    tp: TpChoices = "all",
    pp: PpChoices = "all",
    micro_batch: MicroBatchChoices = "all",
    interleave: InterleaveChoices = "all",
    recompute: RecomputeChoices = "none,selective,full",
    zero: ZeroChoices = "0,1,2,3",
    sequence_parallel: SequenceParallelChoice = None,
    cp: CpChoices = "1",
    ep: EpChoices = "all",
    grad_overlap: GradOverlap = False,
    json: Json = False,
) -> None:
    """Find the best plans for a model on a number of GPUs that keep the rules and fit in memory."""
    from itertime.plansearch import search as run
    from itertime.planspace import MICRO_BATCHES, Space
    from itertime.system import load_system

    objective = _objective(objective, pareto, gpus, max_gpus)
    _check_price(price)
    front = objective == "pareto"
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
    result = run(
        spec,
        global_batch,
        load_system(system),
        gpus,
        max_gpus=max_gpus,
        space=space,
        objective=objective,
        top=top or (WHOLE_FRONT if front else TOP),
    )
    by_cost = objective == "cost"
    if json:
        print_json(document_of(spec, result, by_cost, price))
    else:
        print_found(spec, result, by_cost, price, against_best=not front, explain=explain)


def _objective(stated: str, pareto: bool, gpus: int | None, max_gpus: int | None) -> str:
    """The objective that `--objective` and `--pareto`, short for one of its values, state together."""
    from itertime.errors import UserError

    if pareto and stated not in ("time", "pareto"):
        raise UserError("--pareto: is short for --objective pareto; leave out --objective")
    objective = "pareto" if pareto else stated
    if objective == "pareto" and (max_gpus is None or gpus is not None):
        raise UserError("--pareto: needs --max-gpus; leave out --gpus")
    return objective


def _check_price(price: float) -> None:
    from itertime.errors import UserError

    if not 0 < price < 1e9:
        raise UserError(f"--price={price:g}: must be dollars per GPU-hour, above 0")


def _chosen(option: str, text: str) -> tuple[int, ...]:
    """The numbers of an option; empty for "all", which leaves the choice to the search."""
    return () if text.strip() == "all" else numbers_of(option, text)
