"""What is trained, how, and on what: the model, the plan, the system, and the profile of its GPUs.

| name | what |
|---|---|
| `ModelSpec` | the shape of one transformer: parameters and FLOPs follow from it |
| `load_model`, `list_models` | a shipped model or a YAML file; names of the shipped models |
| `approximations_of` | what a prediction of a model leaves out |
| `refusal_of`, `check_predictable` | why no prediction of a model is made, as text, as an error |
| `Plan` | one way to train a model: degrees of parallelism, micro-batch, schedule, recomputation, ZeRO |
| `RemainderChunks` | layers of the chunks of a pipeline that is split by `Plan.split` "remainder" |
| `PlanBatch` | many plans of one model as columns of arrays |
| `PlanOptions`, `parse_options` | a plan's batches, balance, clipping, optimizer, compression; from text |
| `DEFAULT_OPTIONS` | the options of a plan that states none |
| `ONE_BIT` | compressions that are optimizers of their own |
| `broken_options` | the rules of such options, for one plan or many |
| `broken_stacks` | those of what a model has beside one stack of layers |
| `STRATA` | bins of lengths of a stratified balance |
| `layers_of_chunks`, `is_layout`, `layout_problem` | layers of chunks as a list; its faults |
| `Work` | tokens and FLOPs of an iteration of each plan of a batch |
| `ZERO_BUBBLE` | the schedules in `PlanBatch.zero_bubble` |
| `HABIT` | in `PlanBatch.tp_overlap`: the framework decides |
| `modules_of`, `outer_modules`, `absent_modules`, `op_shares` | modules to recompute |
| `recompute_code`, `in_order`, `recompute_problem` | of what is recomputed: code, order, fault |
| `RECOMPUTE`, `PRECISIONS`, `CUDA_GRAPHS`, `DISPATCHERS`, `CP_EXCHANGES` | choices; `PlanBatch` has indices |
| `IN_32_BIT` | the precisions of 32 bit throughout |
| `RULES`, `DEFAULT_RULES` | the rules by which plans are predicted |
| `refusals` | what the rules of a plan cannot say of it |
| `CHOICES` | the words that a field of a plan may have, by field |
| `Framework` | the software that trains: its kernels, what it hides, what it adds |
| `load_framework`, `list_frameworks` | a shipped framework or a YAML file; names of the shipped ones |
| `System` | nodes, links and switches of a cluster, as one job sees them |
| `NETWORK_EFFICIENCY` | achieved fraction of the NICs, where nothing else is known |
| `Site` | corrections of a profile for the software and the network of one site |
| `load_system`, `list_systems` | a shipped system or a YAML file; names of the shipped systems |
| `SHIPPED_SYSTEMS`, `SHIPPED_PROFILES` | the names of the shipped systems and profiles, as sets |
| `model_reference`, `system_reference`, `framework_reference` | keys and files, changes by `KEY=VALUE` |
| `Models` | models by name or path: shipped ones, and files of the user, as a trace names them |
| `at_depth`, `depth_of` | the name of a model with fewer of its layers; the layers in such a name |
| `model_of`, `system_of`, `framework_of`, `Reference` | the model, system or framework that such keys make |
| `Evaluations`, `NO_EVALUATIONS` | how often a training evaluates its model; a training without any |
| `mlperf_evaluations` | MLPerf's rule for BERT |
| `Lengths` | how many tokens the samples of a data set have |
| `load_lengths`, `list_lengths` | a shipped distribution or a table of the user; names of the shipped ones |
| `as_model`, `as_system` | a model, a system, as it is or by name |
| `Price`, `price_of`, `checked_price` | dollars of a GPU-hour, and where they come from; a stated one |
| `DEFAULT_USD_PER_GPU_HOUR` | where neither user nor system states a price |
| `is_system_file` | whether a file states a system, rather than a shipped name |
| `resolved_digest` | hash of a model or a system as resolved |
| `Profile` | seconds of a GPU's kernels and of collectives within a node |
| `Evidence` | whether a part of a profile is measured, fitted or assumed, and its errors |
| `load_profile`, `list_profiles` | a shipped profile or a JSON file; names of the shipped profiles |
| `profile_of` | the profile of a system's GPUs, with their power and memory |
| `stalled_sends` | seconds that stalled sends add in some runs, and whether they are likely |
| `profile_path` | the file of a profile |

Queries, which `Profile.seconds` answers:

| name | what |
|---|---|
| `Query` | any of them |
| `Gemm`, `GroupedGemm` | matrix products; those of several experts in one launch |
| `Attention` | one layer's attention, forward or backward |
| `AttentionKernel` | which attention kernel runs, its head dim of values, its window |
| `Elementwise`, `Cast` | memory-bound kernels; quantisation of a 16-bit tensor |
| `Collective` | a collective among GPUs of one node |

`kernels`, `operators` and `size_table` have the parts of a profile: models of the time of one kernel.

Why
- A profile describes a GPU that is alone. Sites differ from it by constants, which `itertime calibrate` fits
  and a system file holds.
- Every part of a profile states whether it was measured, fitted or assumed.
"""

from .evaluations import NO_EVALUATIONS, Evaluations, mlperf_evaluations
from .fidelity import approximations_of, check_predictable, refusal_of
from .framework import Framework, framework_of, framework_reference, list_frameworks, load_framework
from .kernels import (
    Attention,
    AttentionKernel,
    Cast,
    Collective,
    Elementwise,
    Gemm,
    GroupedGemm,
    Query,
)
from .lengths import Lengths, list_lengths, load_lengths
from .model import ModelSpec
from .plans import (
    CHOICES,
    CP_EXCHANGES,
    CUDA_GRAPHS,
    DEFAULT_OPTIONS,
    DEFAULT_RULES,
    DISPATCHERS,
    HABIT,
    IN_32_BIT,
    ONE_BIT,
    PRECISIONS,
    RECOMPUTE,
    RULES,
    STRATA,
    ZERO_BUBBLE,
    Plan,
    PlanBatch,
    PlanOptions,
    RemainderChunks,
    Work,
    absent_modules,
    broken_options,
    broken_stacks,
    in_order,
    is_layout,
    layers_of_chunks,
    layout_problem,
    modules_of,
    op_shares,
    outer_modules,
    parse_options,
    recompute_code,
    recompute_problem,
    refusals,
)
from .profile import SHIPPED_PROFILES, Evidence, Profile, list_profiles, load_profile, profile_path
from .references import Reference, resolved_digest
from .system import (
    DEFAULT_USD_PER_GPU_HOUR,
    NETWORK_EFFICIENCY,
    SHIPPED_SYSTEMS,
    Price,
    Site,
    System,
    as_system,
    checked_price,
    is_system_file,
    list_systems,
    load_system,
    price_of,
    profile_of,
    stalled_sends,
    system_of,
    system_reference,
)
from .user_models import (
    Models,
    as_model,
    at_depth,
    depth_of,
    list_models,
    load_model,
    model_of,
    model_reference,
)

__all__ = [
    "CHOICES",
    "CP_EXCHANGES",
    "CUDA_GRAPHS",
    "DEFAULT_OPTIONS",
    "DEFAULT_RULES",
    "DEFAULT_USD_PER_GPU_HOUR",
    "DISPATCHERS",
    "HABIT",
    "IN_32_BIT",
    "NETWORK_EFFICIENCY",
    "NO_EVALUATIONS",
    "ONE_BIT",
    "PRECISIONS",
    "RECOMPUTE",
    "RULES",
    "SHIPPED_PROFILES",
    "SHIPPED_SYSTEMS",
    "STRATA",
    "ZERO_BUBBLE",
    "Attention",
    "AttentionKernel",
    "Cast",
    "Collective",
    "Elementwise",
    "Evaluations",
    "Evidence",
    "Framework",
    "Gemm",
    "GroupedGemm",
    "Lengths",
    "ModelSpec",
    "Models",
    "Plan",
    "PlanBatch",
    "PlanOptions",
    "Price",
    "Profile",
    "Query",
    "Reference",
    "RemainderChunks",
    "Site",
    "System",
    "Work",
    "absent_modules",
    "approximations_of",
    "as_model",
    "as_system",
    "at_depth",
    "broken_options",
    "broken_stacks",
    "check_predictable",
    "checked_price",
    "depth_of",
    "framework_of",
    "framework_reference",
    "in_order",
    "is_layout",
    "is_system_file",
    "layers_of_chunks",
    "layout_problem",
    "list_frameworks",
    "list_lengths",
    "list_models",
    "list_profiles",
    "list_systems",
    "load_framework",
    "load_lengths",
    "load_model",
    "load_profile",
    "load_system",
    "mlperf_evaluations",
    "model_of",
    "model_reference",
    "modules_of",
    "op_shares",
    "outer_modules",
    "parse_options",
    "price_of",
    "profile_of",
    "profile_path",
    "recompute_code",
    "recompute_problem",
    "refusal_of",
    "refusals",
    "resolved_digest",
    "stalled_sends",
    "system_of",
    "system_reference",
]
