"""The Scheduler API: what a policy is written with.

| name | what |
|---|---|
| `Scheduler` | base class of all policies: implement `schedule`, and `admit` if jobs may be declined |
| `State` | the cluster and its jobs as a policy sees them: `now`, `pending`, `running`, `look_ahead` |
| `JobView` | what a policy knows of a job: request, useful GPU counts, rate, work left, costs, deadline |
| `JobCurve` | speeds and costs of a job at each useful GPU count, as tuples (`JobView.curve`) |
| `JobTable` | the running jobs as numpy vectors (`State.table`) |
| `Proposal` | a draft of which job runs where from now on: `start`, `stop`, `resize`, `run`, `run_by` |
| `Ranking` | the pending jobs in the order of a key, kept sorted between calls (`State.pending_by`) |
| `Event` | something that happened since the last call: a job came or ended, a node failed, a wake-up |
| `Cluster` | the machines (from `clustersim.cluster`) |
| `Kernels` | loops over plain vectors, compiled where that pays (from `clustersim.jit`) |
| `LEAST_LEFT` | the share of its stated work that a job states to be left until it is done |
| `PolicyError` | a broken rule, for example a GPU count that a job cannot run on |

>>> from clustersim.scheduler import Scheduler
>>> class Fifo(Scheduler):
...     def schedule(self, state):
...         proposal = state.proposal()  # everything stays as it is
...         for job in state.pending:
...             if not proposal.start(job):
...                 break
...         return proposal

Why
- A policy drafts the desired state and the engine enacts the difference. Stopping and starting a job in one
  draft is no event at all, and a policy cannot forget to release GPUs. Every rule is checked in the draft,
  where the mistake is made.
- Preemptive disciplines share `run_by(key)`, which keeps running jobs in place and takes GPUs from the end
  of the order first. Elastic ones share `run({job: gpus})`, which finds places for counts. `pending_by(key)`
  keeps waiting jobs sorted and apart by size, so a decision looks only at jobs that it can place.
- A policy that keeps its own account of jobs asks those of `changed_jobs` alone: between two changes progress
  is a straight line. A policy that does not ask pays nothing.
"""

from clustersim.cluster import Cluster
from clustersim.errors import PolicyError
from clustersim.jit import Kernels
from clustersim.jobs import LEAST_LEFT

from .changes import JobTable
from .job_curve import JobCurve
from .job_view import JobView
from .proposal import Proposal
from .ranking import Ranking
from .scheduler import Event, Scheduler, State

__all__ = [
    "LEAST_LEFT",
    "Cluster",
    "Event",
    "JobCurve",
    "JobTable",
    "JobView",
    "Kernels",
    "PolicyError",
    "Proposal",
    "Ranking",
    "Scheduler",
    "State",
]
