"""How sure a prediction is: its interval, and the sizes for which no measurement exists.

| name | what |
|---|---|
| `interval_s` | seconds between which nine in ten measured iterations of such plans lie |
| `interval_basis` | what the width of that interval comes from, in words |
| `CLASSES` | the class of a plan, by which intervals differ; all classes |
| `kind_of` | dense or mixture, by which they differ too |
| `measured_relatives` | profiles that borrow each other's intervals |
| `ANY` | in the table: any GPU, any framework |
| `conformal_range` | the range that holds the next ratio with a given probability |
| `TABLE`, `CHIPS_TABLE` | the files of the shipped intervals; that of chips that only data sheets describe |
| `errors_on` | how wrong predictions on a GPU were, and plans beside each other |
| `WatchedProfile` | a profile that notes which of the sizes asked for lie outside the measured ones |

What the model owes to a look at the measured runs is listed in docs/accuracy.md and docs/itertime.md.
"""

from .errors_by_gpu import errors_on
from .extrapolation import WatchedProfile
from .intervals import (
    ANY,
    CHIPS_TABLE,
    CLASSES,
    TABLE,
    conformal_range,
    interval_basis,
    interval_s,
    kind_of,
    measured_relatives,
)

__all__ = [
    "ANY",
    "CHIPS_TABLE",
    "CLASSES",
    "TABLE",
    "WatchedProfile",
    "conformal_range",
    "errors_on",
    "interval_basis",
    "interval_s",
    "kind_of",
    "measured_relatives",
]
