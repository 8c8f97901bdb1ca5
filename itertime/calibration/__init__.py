"""Measured iterations: tables, validation, and the constants of a site.

| name | what |
|---|---|
| `calibrate` | Fit the site that ran the rows of `files` |
| `report` | The JSON document of `itertime calibrate` |
| `write_site` | Write the YAML file of the runs' most common system with the site's constants |

Why
- `calibrate` refuses to hand out constants that predict worse than none. The fit minimises ratios, which
  treat 5 times too fast and 5 times too slow alike; the error in percent does not. Where both disagree the
  site stays neutral, and the program says so.
- What the model owes to a look at the measured runs is listed in docs/accuracy.md and docs/itertime.md.
"""

from .calibrate import calibrate
from .site_file import report, write_site

__all__ = ["calibrate", "report", "write_site"]
