"""For authors of policies: run a policy on a few jobs, and check that it keeps every rule.

| name | what |
|---|---|
| `check_scheduler` | run a policy over every case and check each run; one line in a test |
| `simulate` | run jobs under a policy in memory: an `Outcome` with the event log and the job records |
| `decide` | a single decision in a situation that the caller describes: a `Decision` |
| `Decision` | the starts, stops, resizes and moves that a policy proposes; prints as a sentence |
| `Outcome` | what a run left: events, records, speeds |
| `Case` | a small trace, with its cluster, overheads and failures |
| `CASES` | the cases of `check_scheduler`: rigid and elastic jobs, deadlines, failures, impossible jobs |
| `check_case` | check a policy on one case |
| `BrokenCase` | what a failed check raises: the case, and the event log as far as it came |
| `check_outcome` | check one run by the rules of the audit |
| `check_parameters` | check that parameters are stored under their own names |

    from clustersim.testing import check_scheduler

    def test_mine():
        check_scheduler(MyScheduler)

A failed check is an AssertionError that names the case, the simulated time and the jobs.
"""

from .checks import CASES, check_case, check_parameters, check_scheduler, simulate
from .decide import Decision, decide
from .outcome import BrokenCase, Case, Outcome, check_outcome

__all__ = [
    "CASES",
    "BrokenCase",
    "Case",
    "Decision",
    "Outcome",
    "check_case",
    "check_outcome",
    "check_parameters",
    "check_scheduler",
    "decide",
    "simulate",
]
