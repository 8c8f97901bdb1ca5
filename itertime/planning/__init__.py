"""Search for the best plans, and planners that choose a plan by a rule.

| name | what |
|---|---|
| `search` | the best plans on a number of GPUs: fastest, cheapest, or the Pareto front |
| `SearchResult`, `RankedPlan` | what a search returns; one plan of it with its prediction |
| `judge`, `PlanChoice` | the optimism of a search: how far the best of many plans by prediction is the best |
| `Space`, `WHOLE` | the choices of a search; those of the default, all sensible ones |
| `VTRAIN`, `SPACES`, `named_space` | the space of vTrain's studies; the spaces that have a name |
| `SPACE_OF_RULES` | the name of the space of a search by default, by the rules of its predictions |
| `MICRO_BATCHES` | micro-batch sizes that are tried by default |
| `make_planner`, `Planner` | a planner by name: from model, batch and GPUs to a plan, by one rule |
| `PLANNERS`, `FORMER_NAMES` | names of all planners; the present name of one by a name that it had |
| `planner_name` | the name of a planner by a name that it has or had |
| `PlannedRun` | the plan of a planner, with its seconds, bytes and MFU |
| `default_cache` | the folder that keeps planned runs for later processes |
| `Budget` | GPUs and days, and the largest model that they train compute-optimally |
| `Answer`, `Training` | that model at peak and as simulated; the training of one model |
| `published`, `generated` | shapes to try: those of SC'21, and those between them |
| `LAWS` | the loss of a model after some tokens, by the law of each of three papers |
| `PARAMETRIC_LAWS` | those of them that say how many tokens a parameter give the least loss |
| `TrainingCost`, `CostPoint`, `COUNTS` | days and dollars of a training by utilisation; counts of its FLOPs |
| `Downtime`, `DOWNTIMES`, `Goodput`, `goodput` | what keeps a training from its iterations, presets; the \
share of its time in which they are done |
| `daly_interval_s`, `young_interval_s` | seconds of work between checkpoints that waste the least time |
| `stretch_of` | mean seconds that a second of iterations takes, with saves and interruptions |
| `training_days`, `DAY_S` | days of a training under a plan; seconds of a day |
| `checked_tokens` | the tokens of a training, if they are in range |
| `train_time`, `TrainTime` | the training of a model to its target, and its seconds by part |
| `Steps`, `StartUp` | the inputs of a time to train, from logs or from the user |
| `evaluations_of` | how often the training of a model is evaluated |
| `load_convergence`, `list_convergence` | steps by optimizer and batch; the models that have them |

Why
- Planners know no job and no cluster. The importers of traces need them too, to turn a logged run time into
  a number of iterations.
- A question has the same answer at every door: `search`, `cost`, `budget` and the planner `best`, by default
  that of simulated jobs, look at `Space()`, and a choice that is added there is added everywhere. The curve
  of a planner is about at most so many GPUs, `search` about exactly or at most as many.
- The planners of vTrain's comparison share a space without ZeRO and interleaving. `data-parallel` would
  otherwise win by means other than parallelism.
- Convergence is an input. Nothing about a model and a plan says how many steps reach a target, so they come
  from logs or from the user, and an answer says from which. Beyond the logs there is no answer.
- The cache trusts nothing. There is no pickle; digest, key, types and ranges are checked. The key holds a
  hash of the source, so a changed formula never meets an old number. A failing disk is no error: there is
  just no cache.
"""

from .budget import Answer, Budget, Training, generated, published
from .choice import PlanChoice
from .convergence import StartUp, Steps, list_convergence, load_convergence
from .curve_cache import default_cache
from .goodput import DOWNTIMES, Downtime, Goodput, daly_interval_s, goodput, stretch_of, young_interval_s
from .loss import LAWS, PARAMETRIC_LAWS
from .planner import FORMER_NAMES, PLANNERS, PlannedRun, Planner, make_planner, planner_name
from .search import RankedPlan, SearchResult, judge, search
from .space import MICRO_BATCHES, SPACE_OF_RULES, SPACES, VTRAIN, WHOLE, Space, named_space
from .train_time import TrainTime, evaluations_of, train_time
from .training_cost import COUNTS, DAY_S, CostPoint, TrainingCost, checked_tokens, training_days

__all__ = [
    "COUNTS",
    "DAY_S",
    "DOWNTIMES",
    "FORMER_NAMES",
    "LAWS",
    "MICRO_BATCHES",
    "PARAMETRIC_LAWS",
    "PLANNERS",
    "SPACES",
    "SPACE_OF_RULES",
    "VTRAIN",
    "WHOLE",
    "Answer",
    "Budget",
    "CostPoint",
    "Downtime",
    "Goodput",
    "PlanChoice",
    "PlannedRun",
    "Planner",
    "RankedPlan",
    "SearchResult",
    "Space",
    "StartUp",
    "Steps",
    "TrainTime",
    "Training",
    "TrainingCost",
    "checked_tokens",
    "daly_interval_s",
    "default_cache",
    "evaluations_of",
    "generated",
    "goodput",
    "judge",
    "list_convergence",
    "load_convergence",
    "make_planner",
    "named_space",
    "planner_name",
    "published",
    "search",
    "stretch_of",
    "train_time",
    "training_days",
    "young_interval_s",
]
