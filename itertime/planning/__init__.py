"""The best plans: which are looked at, the search, planners, and their cache.

| name | what |
|---|---|
| `Answer` | The largest of some shapes at 100 % utilisation (`naive`) and at the simulated one |
| `Budget` | `gpus` GPUs of a system for `days` days |
| `Training` | One model trained on its compute-optimal number of tokens |
| `generated` | Shapes between those of SC'21 |
| `published` | The shapes of SC'21, Table 1 |
| `default_cache` | The cache in the folder that `ITERTIME_CACHE` names |
| `PLANNERS` |  |
| `PlannedRun` | A plan for one job |
| `Planner` | One rule on one system |
| `make_planner` | The planner `name` on a system |
| `Found` | One plan of a search and its prediction |
| `SearchResult` | `plans`, best first |
| `search` | The `top` best plans on exactly `gpus` or at most `max_gpus` GPUs |
| `MICRO_BATCHES` |  |
| `Space` | The choices of a search, which considers every combination that keeps the rules |
| `WHOLE` |  |

Why
- Planners search vTrain's space; `search` looks at all of it. Planners are compared with each other, as in
  the paper, so they share a space without ZeRO and interleaving (`space=WHOLE` gives them everything).
- The cache of curves trusts nothing: no pickle, a digest, a key in the file, types and ranges checked. The
  key holds a hash of the source. A failing disk is no error: there is just no cache.
"""

from .budget import Answer, Budget, Training, generated, published
from .curve_cache import default_cache
from .planner import PLANNERS, PlannedRun, Planner, make_planner
from .search import Found, SearchResult, search
from .space import MICRO_BATCHES, WHOLE, Space

__all__ = [
    "MICRO_BATCHES",
    "PLANNERS",
    "WHOLE",
    "Answer",
    "Budget",
    "Found",
    "PlannedRun",
    "Planner",
    "SearchResult",
    "Space",
    "Training",
    "default_cache",
    "generated",
    "make_planner",
    "published",
    "search",
]
