"""Searches on drafts: from what a policy wants for all jobs at once to a draft that does it.

| name | what |
|---|---|
| `fulfil` | run jobs on given numbers of GPUs, the most important first (`Proposal.run`) |
| `unmet` | the jobs that did not get theirs |
| `hand_back`, `is_packed` | let stopped jobs keep GPUs that no job got; those to which this does not apply |
| `Wanted` | a job with the number of GPUs that it is to have, and their type |
| `run_by` | serve jobs strictly by a key, with preemption (`Proposal.run_by`) |
| `compact` | move small jobs together, so that whole nodes become free (`Proposal.compact`) |
| `unsettled` | the jobs that have worked for less time than a restart takes (`State.unsettled`) |
| `in_service_by_type` | GPUs that are free or held, by type |

A search calls only what a policy could call on a draft, copies drafts to try things out, and takes the copy
over that it likes best.
"""

from .compaction import compact
from .fulfilment import Wanted, fulfil, hand_back, in_service_by_type, is_packed, unmet, unsettled
from .preemption import run_by

__all__ = [
    "Wanted",
    "compact",
    "fulfil",
    "hand_back",
    "in_service_by_type",
    "is_packed",
    "run_by",
    "unmet",
    "unsettled",
]
