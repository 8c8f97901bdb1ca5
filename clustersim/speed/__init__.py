"""How fast a job runs: iterations per second for a number and type of GPUs, and where it runs.

| name | what |
|---|---|
| `Speed` | protocol: the curves and offers of the jobs of one run |
| `speed_for` | the speeds of a run: from a planner by name, and a throughput table if there is one |
| `node_changes` | what the nodes of a pool have otherwise than their system states |
| `SpeedOnOneType`, `SpeedByType` | speeds on equal nodes of one GPU type; of several types |
| `Curve` | seconds per unit of work by GPU count, for one kind of job on one GPU type |
| `PhaseCurve` | one phase of a kind of job: its share of the work, its batch, its speeds |
| `Offer` | what one GPU type offers a job: its curve, and the number of GPUs to use by default |
| `CannotRun` | raised where no GPU count can run a job; the text is the reason |
| `Requests` | the GPUs that a job requests, and its run time on them |
| `regular_counts` | 1, 2, 4, ... GPUs within a node, then 1, 2, 4, ... whole nodes |
| `read_throughput_table` | measured speeds: {(model, global batch): {GPUs: iterations/s}} |
| `StepTimes` | how much slower than predicted jobs run: interference, unequal workers |
| `Variability` | GPUs of one type that are not equally fast, by class of job |
| `NodeSpeeds` | the same for the nodes of one cluster |
| `Slowdown` | what makes jobs slower than predicted: their steps and their nodes |
| `Network` | protocol: the speeds of placed jobs, where these depend on their nodes |
| `network_for` | the network of a run, by the model that its cluster names |
| `NodeSizes` | the speeds on an ideal network, where nodes of one GPU type differ in size |
| `Interference` | how much jobs on one GPU slow each other down |
| `Packing` | how many jobs a policy runs on the same GPUs, and the most work that those then do |
| `CoRunners` | the jobs that share GPUs, and how much each is slowed down |
| `RunningSpeeds` | the speed of every running job: as predicted, times all that slows it down |

Why
- A placement is reduced to a layout (GPUs per node, nodes per leaf, senders, oversubscription) that
  `itertime` evaluates as a system of its own. So there is one network model, layouts repeat and are cached,
  and a packed job runs at the ideal speed to the last bit.
- Links are shared max-min fairly; packets and flows are not simulated. Shares change only when jobs come
  and go, so the engine stays at one event per change of state. The price: every job sends all the time.
- The network keeps levels of links instead of shares of jobs. A link's level is the share at which it is
  full, and depends only on lower levels. A change is followed upwards until levels stay equal. That is
  exact: tests compare with `==` after every change. Solving all connected links again was six times slower.
- A job runs on GPUs of one type. Mixed allocations train at the pace of the slowest GPU unless the plan is
  balanced for them, which no planner here does. The engine sees one curve per type (`Offer`).
- A job that asks for a GPU type runs on that type alone on a cluster of several types, as a constraint in a
  batch system. On a cluster of one type its wish is informational: logs of one type are often run on another.
- A job whose request is too small for its model under the run's planner gets the smallest count that holds
  it, and its record says so. Rejecting it would make policies with different planners serve different jobs.
"""

from .by_type import SpeedByType, node_changes, speed_for
from .curve import CannotRun, Curve, Offer, PhaseCurve, regular_counts
from .interference import CoRunners, Interference, Packing
from .network import Network, NodeSizes, network_for
from .requests import Requests
from .running_speeds import RunningSpeeds
from .slowdown import Slowdown
from .speed import Speed, SpeedOnOneType
from .step_times import StepTimes
from .throughput_table import read_throughput_table
from .variability import NodeSpeeds, Variability

__all__ = [
    "CannotRun",
    "CoRunners",
    "Curve",
    "Interference",
    "Network",
    "NodeSizes",
    "NodeSpeeds",
    "Offer",
    "Packing",
    "PhaseCurve",
    "Requests",
    "RunningSpeeds",
    "Slowdown",
    "Speed",
    "SpeedByType",
    "SpeedOnOneType",
    "StepTimes",
    "Variability",
    "network_for",
    "node_changes",
    "read_throughput_table",
    "regular_counts",
    "speed_for",
]
