"""Measured iterations: errors of predictions, and constants fitted to one site.

| name | what |
|---|---|
| `validate` | predictions for the rows of an iteration table, and their errors |
| `summary` | the JSON document of `itertime validate` |
| `GROUPINGS` | the properties by which it groups rows |
| `write_rows` | measured and predicted values of every row, as CSV |
| `calibrate` | the constants of the site that ran the rows, with errors in sample and held out |
| `report` | the JSON document of `itertime calibrate` |
| `write_site` | the system file of a calibrated site |
| `source_of` | the organisation that measured a row |
| `read_table`, `Cells` | the rows of an iteration table |
| `RunSet`, `MeasuredRun` | these rows as runs, evaluated together |

Why
- `calibrate` refuses constants that predict worse than none. The fit minimises ratios, which treat 5 times
  too fast and 5 times too slow alike; the error in percent, which people read, does not. Where both disagree,
  because runs lie far from the model, the site stays neutral and the program says so. Minimising percent
  instead would make every calibrated site too fast.
"""

from .calibrate import calibrate
from .conventions import source_of
from .measured_run import MeasuredRun
from .run_set import RunSet
from .site_file import report, write_site
from .table import Cells, read_table
from .validation import GROUPINGS, summary, validate, write_rows

__all__ = [
    "GROUPINGS",
    "Cells",
    "MeasuredRun",
    "RunSet",
    "calibrate",
    "read_table",
    "report",
    "source_of",
    "summary",
    "validate",
    "write_rows",
    "write_site",
]
