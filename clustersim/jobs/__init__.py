"""A job inside the system: its progress, its GPUs and its costs.

| name | what |
|---|---|
| `ActiveJob` | a job and its work left, in iterations or in seconds of logged duration |
| `LEAST_LEFT` | the share of its stated work that a job states to be left until it is done |
| `Checkpoints` | a part of a job: how it saves, what it loses in failures, and its loads |
| `Loads` | protocol: the loads of checkpoints from a storage that jobs share |
| `Phases` | a part of a job: its phases, in which it trains with other batches |
| `Eligibility` | a part of a job: when it was held, what it lost in runs ahead of its last one |
| `EarlierRun`, `earlier_runs_of` | one of these runs; those of a job of the trace |
| `eligible_from_s`, `stops_at_limit` | when a job may run by its trace; whether its time limit may stop it |
| `AS_LOGGED` | the end of the reason for which a job begins anew that did so in its log |

Why
- Progress is a straight line between two changes of speed. It is integrated when the line ends, or looked
  up without being stored: a policy that looks often does not change a digit.
- A job that can fail or saves has `Checkpoints`, a job in phases has `Phases`, and a job may have both or
  neither. The parts know no job: they answer in seconds and units, and the job books the answers.
- A job in phases has the curve of its present phase. So policies, network and overheads need no notion of
  phases. The end of a phase is an event like the end of a job, since speeds change then.
"""

from .active import LEAST_LEFT, ActiveJob
from .checkpoints import Checkpoints, Loads
from .eligibility import EarlierRun, Eligibility
from .phases import Phases
from .statements import AS_LOGGED, earlier_runs_of, eligible_from_s, stops_at_limit

__all__ = [
    "AS_LOGGED",
    "LEAST_LEFT",
    "ActiveJob",
    "Checkpoints",
    "EarlierRun",
    "Eligibility",
    "Loads",
    "Phases",
    "earlier_runs_of",
    "eligible_from_s",
    "stops_at_limit",
]
