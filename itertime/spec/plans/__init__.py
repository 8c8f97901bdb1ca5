"""How a model is trained: one plan, its options and rules, and many plans as columns.

| name | what |
|---|---|
| `Plan` | degrees of parallelism, micro-batch, schedule, recomputation, ZeRO |
| `PlanOptions`, `parse_options` | batches, balance, clipping, optimizer, compression; from text |
| `DEFAULT_OPTIONS` | the options of a plan that states none |
| `ONE_BIT` | compressions that are optimizers of their own |
| `broken_options` | the rules of options, for one plan or many |
| `broken_stacks` | those of what a model has beside one stack of layers |
| `STRATA` | bins of lengths of a stratified balance |
| `RemainderChunks` | layers of the chunks of a pipeline that is split by `Plan.split` "remainder" |
| `PlanBatch` | many plans of one model and the same options as columns of arrays |
| `layers_of_chunks`, `is_layout`, `layout_problem` | the layers of chunks as a list; what is wrong with one |
| `Work` | tokens and FLOPs of an iteration of each plan of a batch |
| `ZERO_BUBBLE` | the schedules in `PlanBatch.zero_bubble` |
| `HABIT` | in `PlanBatch.tp_overlap`: the framework decides |
| `RECOMPUTE`, `PRECISIONS`, `CUDA_GRAPHS`, `DISPATCHERS`, `CP_EXCHANGES` | choices; `PlanBatch` has indices |
| `IN_32_BIT` | the precisions of 32 bit throughout |
| `MODULES`, `absent_modules` | modules to recompute: all, those that a model lacks |
| `modules_of`, `outer_modules` | those of a code, and without those inside others |
| `op_shares` | which products torchtitan repeats operator by operator |
| `recompute_code`, `in_order`, `recompute_problem` | the code of a choice, a list in order, a wrong choice |
| `RULES`, `DEFAULT_RULES` | the rules by which plans are predicted |
| `refusals` | what the rules of a plan cannot say of it |
| `CHOICES` | the words that a field of a plan may have, by field |
"""

from .layout import is_layout, layers_of_chunks, layout_problem
from .option_rules import STRATA, broken_options
from .options import DEFAULT_OPTIONS, IN_32_BIT, ONE_BIT, PlanOptions, parse_options
from .plan import (
    CHOICES,
    CP_EXCHANGES,
    CUDA_GRAPHS,
    DISPATCHERS,
    PRECISIONS,
    Plan,
    RemainderChunks,
)
from .plan_batch import HABIT, ZERO_BUBBLE, PlanBatch
from .recompute import (
    MODULES,
    RECOMPUTE,
    absent_modules,
    in_order,
    modules_of,
    op_shares,
    outer_modules,
    recompute_code,
    recompute_problem,
)
from .rules import DEFAULT_RULES, RULES, refusals
from .stack_rules import broken_stacks
from .work import Work

__all__ = [
    "CHOICES",
    "CP_EXCHANGES",
    "CUDA_GRAPHS",
    "DEFAULT_OPTIONS",
    "DEFAULT_RULES",
    "DISPATCHERS",
    "HABIT",
    "IN_32_BIT",
    "MODULES",
    "ONE_BIT",
    "PRECISIONS",
    "RECOMPUTE",
    "RULES",
    "STRATA",
    "ZERO_BUBBLE",
    "Plan",
    "PlanBatch",
    "PlanOptions",
    "RemainderChunks",
    "Work",
    "absent_modules",
    "broken_options",
    "broken_stacks",
    "in_order",
    "is_layout",
    "layers_of_chunks",
    "layout_problem",
    "modules_of",
    "op_shares",
    "outer_modules",
    "parse_options",
    "recompute_code",
    "recompute_problem",
    "refusals",
]
