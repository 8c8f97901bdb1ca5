"""What is trained, how, and on what: model, plan, system, and the profile of a GPU.

| name | what |
|---|---|
| `ModelSpec` | One transformer, as trained |
| `list_models` | Names of the shapes that ship with the package, in alphabetical order |
| `load_model` | The shipped model `name`, or the model in a YAML file if `name` is a path |
| `Array` |  |
| `AttentionCurve` | Rate of one flash attention kernel for long sequences |
| `AttentionModel` | Time of a flash attention kernel (Dao, FlashAttention-2, 2023) |
| `AttentionSlowdown` | The time of another attention kernel over that of FlashAttention-2 |
| `ElementwiseModel` | Time of a memory-bound kernel |
| `GemmModel` | Time of `batch` products y[m, n] = x[m, k] w[k, n] in 16-bit floating point, in one launch |
| `GemmTile` | A thread block's part of the output, rows x columns, and its fraction of peak in full waves |
| `SlowdownCurve` | Times of a kernel over those of FlashAttention-2 |
| `WidthRate` | Bandwidth of a kernel that reduces over rows of `width` elements |
| `Plan` | One way to train a model on `gpus` = tp x cp x pp x dp GPUs, numbered in `rank_order`, tp first |
| `RECOMPUTE` |  |
| `PlanBatch` | Many plans of one model as columns |
| `Evidence` | The evidence for one part of a profile |
| `Profile` | Times of one GPU type's kernels, in seconds |
| `list_profiles` | Names of the shipped profiles, sorted |
| `load_profile` | A shipped profile by name, or one from a JSON file by its path |
| `profile_path` | The file of a profile, by name or path |
| `SizeTable` | `time_s[i][j]` seconds for `ranks[i]` ranks and `first_bytes * 2**j` bytes |
| `Site` | Corrections of the profile for one site's software and network |
| `System` | A cluster's hardware as seen by one training job |
| `list_systems` | Names of the shipped systems, sorted |
| `load_system` | A shipped system by name, or one from a YAML (or JSON) file by its path |

Why
- A profile is what the GPU does when it is alone. Sites differ by constants, which `calibrate` fits and a
  system file holds. Every part of a profile says whether it was measured, fitted or assumed.
"""

from .model import ModelSpec, list_models, load_model
from .operators import (
    Array,
    AttentionCurve,
    AttentionModel,
    AttentionSlowdown,
    ElementwiseModel,
    GemmModel,
    GemmTile,
    SlowdownCurve,
    WidthRate,
)
from .plan import RECOMPUTE, Plan
from .plan_batch import PlanBatch
from .profile import Evidence, Profile, list_profiles, load_profile, profile_path
from .size_table import SizeTable
from .system import Site, System, list_systems, load_system

__all__ = [
    "RECOMPUTE",
    "Array",
    "AttentionCurve",
    "AttentionModel",
    "AttentionSlowdown",
    "ElementwiseModel",
    "Evidence",
    "GemmModel",
    "GemmTile",
    "ModelSpec",
    "Plan",
    "PlanBatch",
    "Profile",
    "Site",
    "SizeTable",
    "SlowdownCurve",
    "System",
    "WidthRate",
    "list_models",
    "list_profiles",
    "list_systems",
    "load_model",
    "load_profile",
    "load_system",
    "profile_path",
]
