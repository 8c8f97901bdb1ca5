"""The Scheduler API: what a policy is written with.

| name | what |
|---|---|
| `Cluster` | `nodes` equal nodes of `gpus_per_node` GPUs |
| `PolicyError` | A policy broke a rule of the Scheduler API, or failed |
| `JobView` | What a policy sees of a job |
| `Proposal` | A draft of which job runs where from now on |
| `Ranking` | The pending jobs by (key, order of submission) |
| `Event` | Something that happened since the policy was last called |
| `Scheduler` | Base class of all policies |
| `State` | The cluster and its jobs as a policy sees them |

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
  of the order first. `pending_by(key)` keeps waiting jobs sorted and apart by size, so a decision looks only
  at jobs that it can place.
"""

from clustersim.cluster import Cluster
from clustersim.errors import PolicyError

from .job_view import JobView
from .proposal import Proposal
from .ranking import Ranking
from .scheduler import Event, Scheduler, State

__all__ = ["Cluster", "Event", "JobView", "PolicyError", "Proposal", "Ranking", "Scheduler", "State"]
