"""Scheduling policies, one file each; the entry points in `pyproject.toml` give them their names.

| where          | what                                                                              |
|----------------|-----------------------------------------------------------------------------------|
| `policies/`    | the registered policies: `vtrain-aware` is in `vtrain_aware.py`                   |
| `reservation/` | reservations before a deadline: `elasticflow` and `vtrain-aware` are built from it |
| `toolkit/`     | what several policies share: rounds, placing a list of jobs, backfilling, queues  |
| `solvers/`     | optimisation problems: shares of time, auctions, assignments                      |

Policies import `clustersim.scheduler` and nothing else of the simulator. A policy may use all three folders,
`reservation` the other two, which know nothing of each other.

Why
- There are two kinds of look-ahead. EASY asks a draft of the cluster at a later moment, so its reservation
  for the head of the queue names places, under any placement rule. Conservative backfilling and EDF with
  admission plan a whole queue ahead, for which drafts are too slow. They count GPUs in a calendar, which is
  exact where any GPUs will do; their pages state the effect of fragmentation. A calendar of nodes would tie
  both policies to one placement rule.
- The key of a waiting job changes only when its policy says so. Tiresias' promotions, or a newly learned
  distribution, take the job out of the ranking and put it in again, so no decision sorts the queue.
- Estimates are upper bounds, as in batch systems that end jobs at their limit. Reservations therefore only
  move forward: making all of them anew, in their former order, delays no job.
"""
