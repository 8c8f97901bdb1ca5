"""What several policies share; no policy is in here.

| module          | names                                           | for                                    |
|-----------------|-------------------------------------------------|----------------------------------------|
| `parameters`    | `number`, `positive`, `increasing`, `by_tenant` | checks of parameters that users set    |
| `rounds`        | `Rounds`, `TimeSlices`                          | deciding once a round; time slicing    |
| `stepwise`      | `jobs_by`, `allocate_stepwise`, `Walk`, `Price` | GPUs handed out step by step           |
| `fulfil`        | `run_ranked`, `run_at_most`, `run_elastic`,     | from jobs with GPU counts              |
|                 | `in_service_by_type`, `Wanted`                  | to a proposal that runs them           |
| `gpu_calendar`  | `FreeGpus`                                      | free GPUs at each future time          |
| `backfill`      | `Estimates`, `Shadow`                           | run-time estimates, EASY's reservation |
| `gavel`         | `Gavel`, `Ledger`, `priorities`                 | rounds that follow shares of time      |
| `tenant_queues` | `TenantQueues`                                  | waiting jobs by tenant                 |
"""

from __future__ import annotations

from .backfill import Estimates, Shadow
from .fulfil import Wanted, in_service_by_type, run_at_most, run_elastic, run_ranked
from .gavel import Gavel, Ledger, priorities
from .gpu_calendar import FreeGpus
from .parameters import by_tenant, increasing, number, positive
from .rounds import Rounds, TimeSlices
from .stepwise import Price, Walk, allocate_stepwise, jobs_by
from .tenant_queues import TenantQueues

__all__ = [
    "Estimates",
    "FreeGpus",
    "Gavel",
    "Ledger",
    "Price",
    "Rounds",
    "Shadow",
    "TenantQueues",
    "TimeSlices",
    "Walk",
    "Wanted",
    "allocate_stepwise",
    "by_tenant",
    "in_service_by_type",
    "increasing",
    "jobs_by",
    "number",
    "positive",
    "priorities",
    "run_at_most",
    "run_elastic",
    "run_ranked",
]
