"""How sure a prediction is: intervals from measured runs, and sizes outside the profile.

| name | what |
|---|---|
| `WatchedProfile` | The times of a profile, noting the sizes that are asked for |
| `CLASSES` |  |
| `LEVEL` |  |
| `TABLE` |  |
| `conformal_range` | The range that holds the next ratio with probability `level` |
| `interval_s` | The interval in seconds that should hold nine in ten measured iterations |
| `plan_class` | The first of `CLASSES` that the plan belongs to |
"""

from .extrapolation import WatchedProfile
from .intervals import CLASSES, LEVEL, TABLE, conformal_range, interval_s, plan_class

__all__ = ["CLASSES", "LEVEL", "TABLE", "WatchedProfile", "conformal_range", "interval_s", "plan_class"]
