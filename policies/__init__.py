"""Scheduling policies, one file each; the entry points in `pyproject.toml` give them their names.

| where          | what                                                                              |
|----------------|-----------------------------------------------------------------------------------|
| `policies/`    | the registered policies: `vtrain-aware` is in `vtrain_aware.py`                   |
| `reservation/` | reservations before a deadline: `elasticflow` and `vtrain-aware` are made of it   |
| `toolkit/`     | what several policies share: rounds, placing a list of jobs, backfilling, queues  |
| `solvers/`     | optimisation problems: shares of time, auctions, assignments                      |

Policies import `clustersim.scheduler` and nothing else of the simulator. A policy may use all three folders,
`reservation` the other two, which know nothing of each other.
"""
