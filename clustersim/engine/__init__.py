"""The simulation: events change the state, the policy decides, its proposal is enacted.

| name | what |
|---|---|
| `Simulation` | one run of one policy over jobs in order of submission: `run` fills the recorder |
| `RunSetup` | what a simulation needs beside its jobs: cluster, policy, speeds, overheads, failures, ... |
| `Links`, `links_of` | the jobs that dependencies of a trace name, and how far they are |
| `NEVER` | the status of dependencies that cannot be fulfilled |
| `PolicyCalls` | calls a policy and turns its mistakes into PolicyErrors that name the place |

Why
- There is one event per change of a job's state. SimPy carries arrivals, completions and wake-ups as bare
  callbacks.
- All events of an instant come before its decision: completions release GPUs, nodes leave and return to
  service, jobs are submitted and admitted, then the policy decides once. A zero-delay timeout puts the
  decision behind everything due. A job that is done at the instant at which its node fails has finished.
- The log keeps the order in which SimPy reaches the events of an instant. Their effects do not depend on it.
- Times are floating-point seconds: sums that differ in the last bit are two instants, and two decisions.
- A SimPy timeout cannot be cancelled. Each allocation has a generation number, and a completion of an
  earlier generation is stale. `wake_at` is guarded in the same way.
- Ties end at the order of submission: (time, natural order of the id). Shuffling a trace changes nothing.
- The policy restarts interrupted jobs, not the engine: which job gets GPUs next is a scheduling decision.
- A job that can run on no GPU count of the cluster is rejected, with the reason in its record.
"""

from .links import NEVER, Links, links_of
from .policy_calls import PolicyCalls
from .setup import RunSetup
from .simulation import Simulation

__all__ = ["NEVER", "Links", "PolicyCalls", "RunSetup", "Simulation", "links_of"]
