"""For authors of policies: run a policy on a few jobs, and check that it keeps every rule.

| name | what |
|---|---|
| `CASES` |  |
| `check_case` | One case of `check_scheduler` |
| `check_parameters` | Parameters must be stored under their own names |
| `check_scheduler` | Run the policies that `factory` makes over every case, a new one for each run |
| `simulate` | Run `jobs` under `scheduler`, by default without overheads and failures |
| `Decision` | The changes that a policy proposes at `now_s`, by job id, in order of submission |
| `decide` | One decision of `policy` in the situation described |
| `Case` | A small trace, and what it runs on |
| `Outcome` | The result of running a case |
| `check_outcome` | Every check of one run |

    from clustersim.testing import check_scheduler

    def test_mine():
        check_scheduler(MyScheduler)

A failed check is an AssertionError that names the case, the simulated time and the jobs.
"""

from .checks import CASES, check_case, check_parameters, check_scheduler, simulate
from .decide import Decision, decide
from .outcome import Case, Outcome, check_outcome

__all__ = [
    "CASES",
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
