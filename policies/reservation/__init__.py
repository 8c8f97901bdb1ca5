"""Deadlines that are met: what jobs reserve, which jobs are admitted, and where they run.

`elasticflow`, `vtrain-aware` and `priced-deadlines` use these parts; docs/policies/elasticflow.md has the
rule.

| name | what |
|---|---|
| `Reservations` | the jobs that entered, their reservations, and the test of which further jobs fit |
| `follow` | the proposal of a policy that keeps its reservations |
| `kernels` | the rules, ElasticFlow's two ideas first among them; `tables` has what they work on |

Theorem. No job with a reservation is late, if jobs work no slower than predicted (`JobView.rate`), changes
cost no more than predicted (`JobView.restart_s`), stated work is true, and nodes in service stay so but for
changes that the run's calendar announces.

A reservation is a rectangle (start s, end e, n GPUs of one type, virtual node or whole nodes), e before the
deadline. Let w be the work left with a guard against the rounding of times, r the rate on n GPUs, and c what
the job pays before it works there: what it still owes if it is in place (it holds the n GPUs at its address),
else a launch if it never ran and t = s, else a restart. At every decision at time t

    max(t, s) + c + w / r <= e,   and at no time do rectangles take more nodes than are in service.

1. Admission finds such rectangles for the new job and for all that it moves, or leaves all as they are; a
   rectangle is put into a calendar of the others. Shortening only takes away.
2. At s the job is seated: it pays at most c, and is then in place, works at r and never moves. There are
   nodes enough, as rectangles that overlap were put into one calendar; jobs that are not in place give way,
   and each virtual node and each job of whole nodes has nodes of its own.
3. A job that is due and not in place stays elsewhere only if it owes nothing there and is at least as fast.
   So the inequality holds with c a full restart until it is seated.
4. Before s a job may hold any GPUs: what it works only makes w less, and c is counted in full.
"""

from __future__ import annotations

from . import kernels
from .following import follow
from .reservations import Reservations

__all__ = ["Reservations", "follow", "kernels"]
