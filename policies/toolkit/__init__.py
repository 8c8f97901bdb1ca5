"""What several policies share; no policy is in here.

| module          | names                                           | for                                    |
|-----------------|-------------------------------------------------|----------------------------------------|
| `parameters`    | `number`, `positive`, `increasing`,             | checks of parameters that users set    |
|                 | `by_tenant`, `switch`, `whole`                  |                                        |
| `rounds`        | `Rounds`, `TimeSlices`                          | deciding once a round; time slicing    |
| `stepwise`      | `jobs_by`, `allocate_stepwise`, `Walk`, `Price` | GPUs handed out step by step           |
| `gpu_values`    | `Values`                                        | what a GPU of each type is worth       |
| `gpu_calendar`  | `FreeGpus`, `calendars_as_planned`              | free GPUs at each future time          |
| `leases`        | `LeaseCalendar`                                 | GPUs leased for terms of equal length  |
| `backfill`      | `RunTimeEstimates`, `Shadow`                    | run-time estimates, EASY's reservation |
| `gavel`         | `Gavel`, `Ledger`, `priorities`                 | rounds that follow shares of time      |
| `progress`      | `WorkCourse`, `course_of`, `predicted_shares`   | jobs whose speed changes               |
| `cells`         | `FreeCells`, `VirtualCluster`, `Cell`,          | cells of GPUs, allocated by buddies    |
|                 | `cell_sizes`, `split_into_cells`                |                                        |
| `places`        | `on_fewest_nodes`, `places_for`, `Places`       | places that a policy chooses itself    |
| `tenant_queues` | `TenantQueues`                                  | waiting jobs by tenant                 |

Why
- Time slices count progress. A quantum that counted all time with GPUs would let jobs whose restart takes
  longer than a quantum replace each other endlessly without doing any work.
- Rounds are common to all jobs, so there is one wake-up a round instead of one a job. The slice of a job that
  starts within a round is up to a quantum longer.
- A job is left alone until its restart has paid off. Published rules of this kind know no restart costs. With
  the restarts of large models, or overheads of ten times the default, they would move jobs endlessly. So
  between two decisions about it, a job works for about as long as it pays; only making room for other jobs
  (`Proposal.compact`) may move it earlier. This rule belongs to the policies (`let_settle` of
  `Proposal.run`), not to the engine, which only says which jobs are settling (`State.unsettled`).
- The time owed to a job and the time received by it add up over the job's whole life (`Ledger`). In a busy
  cluster the shares change every round. Counting anew at each change would always prefer the jobs with the
  larger share. Comparing the latest share with all time received would make old jobs yield to young ones.
"""

from __future__ import annotations

from .backfill import RunTimeEstimates, Shadow
from .cells import Cell, FreeCells, VirtualCluster, cell_sizes, split_into_cells
from .gavel import Gavel, Ledger, priorities
from .gpu_calendar import FreeGpus, calendars_as_planned
from .gpu_values import Values
from .leases import LeaseCalendar
from .parameters import by_tenant, increasing, number, positive, switch, whole
from .places import Places, on_fewest_nodes, places_for
from .progress import WorkCourse, course_of, predicted_shares
from .rounds import Rounds, TimeSlices
from .stepwise import Price, Walk, allocate_stepwise, jobs_by
from .tenant_queues import TenantQueues

__all__ = [
    "Cell",
    "FreeCells",
    "FreeGpus",
    "Gavel",
    "LeaseCalendar",
    "Ledger",
    "Places",
    "Price",
    "Rounds",
    "RunTimeEstimates",
    "Shadow",
    "TenantQueues",
    "TimeSlices",
    "Values",
    "VirtualCluster",
    "Walk",
    "WorkCourse",
    "allocate_stepwise",
    "by_tenant",
    "calendars_as_planned",
    "cell_sizes",
    "course_of",
    "increasing",
    "jobs_by",
    "number",
    "on_fewest_nodes",
    "places_for",
    "positive",
    "predicted_shares",
    "priorities",
    "split_into_cells",
    "switch",
    "whole",
]
