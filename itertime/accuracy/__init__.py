"""How sure a prediction is: its interval, and the sizes for which no measurement exists.

| name | what |
|---|---|
| `interval_s` | seconds between which nine in ten measured iterations of such plans lie |
| `plan_class`, `CLASSES` | the class of a plan, by which intervals differ; all classes |
| `conformal_range` | the range that holds the next ratio with a given probability |
| `LEVEL` | that probability in the shipped intervals: 0.9 |
| `TABLE` | the file of the shipped intervals |
| `errors_on`, `MeasuredErrors` | how wrong predictions on a GPU were, and plans beside each other |
| `ERRORS`, `LARGE_PCT` | the file of these errors; the mean error from which a GPU's are called large |
| `WatchedProfile` | a profile that notes which of the sizes asked for lie outside the measured ones |

What the model owes to a look at the measured runs is listed in docs/accuracy.md and docs/itertime.md: no
program fits a zero-shot constant to them, but people saw them.
"""

from .errors_by_gpu import ERRORS, LARGE_PCT, MeasuredErrors, errors_on
from .extrapolation import WatchedProfile
from .intervals import CLASSES, LEVEL, TABLE, conformal_range, interval_s, plan_class

__all__ = [
    "CLASSES",
    "ERRORS",
    "LARGE_PCT",
    "LEVEL",
    "TABLE",
    "MeasuredErrors",
    "WatchedProfile",
    "conformal_range",
    "errors_on",
    "interval_s",
    "plan_class",
]
