"""Backtests: the jobs of a log, simulated, beside what happened to them.

| name | what |
|---|---|
| `read_logged` | a job log with the logged start and end of each job, as a `LoggedRun` |
| `LoggedRun` | the jobs in order of submission, and what became of them |
| `SiteFacts` | what the user says of the site: pools, clusters, sizes of nodes |
| `backtest` | simulate the site, or fit one on the first part of the log; compare, as a `Backtest` |
| `Backtest` | the summary, and the simulated times of each job |
| `write_backtest` | jobs.csv, summary.json and report.html of a backtest |
| `write_backtest_report` | report.html again, from the other files |
| `has_backtest` | whether a folder holds a backtest |
| `site_words` | a site on one line |
| `score_of_waits` | how far simulated waits, or those of another run, are from logged ones |
| `calendar_of` | when the nodes of a log were there, as a `LogCalendar` of `Outage`s |
| `JOB_COLUMNS` | the columns of its jobs.csv |
| `DIVISIONS` | what can tell the pools of a site apart |
| `CANDIDATES`, `CAPACITIES`, `PARAMETERS` | what a fit tries |

Why
- A log says what happened, never why. So all that a simulation needs beyond the jobs is inferred by a stated
  rule, and each rule is among the assumptions of the result.
- Pools are simulated one by one, because their jobs do not compete.
- A fit never sees a wait of the judged part. Capacity, start-up and quotas come from the first part, too.
"""

from .calendars import LogCalendar, Outage, calendar_of
from .errors import score_of_waits
from .fit import CANDIDATES, CAPACITIES, PARAMETERS
from .folder import JOB_COLUMNS, has_backtest, write_backtest, write_backtest_report
from .logged import LoggedRun, read_logged
from .outcome import Backtest, backtest
from .pools import DIVISIONS, SiteFacts
from .site import site_words

__all__ = [
    "CANDIDATES",
    "CAPACITIES",
    "DIVISIONS",
    "JOB_COLUMNS",
    "PARAMETERS",
    "Backtest",
    "LogCalendar",
    "LoggedRun",
    "Outage",
    "SiteFacts",
    "backtest",
    "calendar_of",
    "has_backtest",
    "read_logged",
    "score_of_waits",
    "site_words",
    "write_backtest",
    "write_backtest_report",
]
