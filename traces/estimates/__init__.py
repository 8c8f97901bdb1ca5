"""What is believed of the work of jobs before they end, and how wrong it is.

| name | what |
|---|---|
| `Estimates` | the settings of a run: errors drawn around the truth, or run times predicted from history |
| `MAX_SIGMA` | the largest error that can be drawn |
| `PREDICTORS` | what each predictor of run times does, by name |
| `Predictor` | predicts the run times of submitted jobs, learns from those that end, and counts its errors |
| `History`, `Rolling`, `LastTwo`, `Blend` | the predictors |

Why
- Errors are drawn in `traces`, before a run. Predictions need the run: what ended before a job was submitted
  depends on the schedule. So the engine asks the predictor at each submission and teaches it at each end.
- A prediction is made once, when its job is submitted. It then stays, so queues that are sorted by it stay
  sorted, and no decision can use what the predictor learns later.
"""

from __future__ import annotations

from .predictors import PREDICTORS, Blend, History, LastTwo, Predictor, Rolling
from .settings import MAX_SIGMA, Estimates

__all__ = [
    "MAX_SIGMA",
    "PREDICTORS",
    "Blend",
    "Estimates",
    "History",
    "LastTwo",
    "Predictor",
    "Rolling",
]
