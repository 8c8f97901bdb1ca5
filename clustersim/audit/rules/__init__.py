"""The rules of an audit, one class each.

| name | what it proves |
|---|---|
| `RULES` | all rules that an event log alone can prove or refute, about jobs, nodes and shared storage |
| `HostNotExceeded` | the jobs on a node need no more cores and host memory than it has |
| `NoIdleStops` | jobs keep their GPUs where no other job gets any of them |
| `OutagesAsDrawn` | nodes go out of service and come back when seed and calendar say so |
| `PlansAsPredicted` | jobs run at the speeds of their plans, on an ideal network |
| `PlansOnNetwork` | jobs run at the speeds that their placement and shared links leave them |
| `RunsAsStated` | jobs begin, end and begin anew when their trace says so |
| `ShapesKept` | jobs that ask for a number of nodes get as many, with their GPUs divided among them |
| `PartitionsKept` | jobs run on the nodes of their partitions alone |
| `ServicesLeave` | instances of services leave when their time is over |
| `SharersAsSlow` | jobs that share a GPU run as fast as the others on it let them |
| `TraceMatches` | the records are those of the jobs of the trace |
| `ManifestConsistent` | the manifest agrees with itself and with the end of the log |
| `ReservationsKept` | reserved nodes serve those jobs alone for which they are reserved |
| `RecordsMatchLog` | the job records are those of the event log |
| `UsageMatchesLog` | usage.csv is what the event log says of the cluster |
| `NotBelowBound` | no result is better than the bound of the jobs, which the manifest states |
| `SummaryMatchesRecords` | summary.json follows from the records and snapshots |
| `better_than` | not a rule: the results of a run that are better than its bound |
| `Tally` | not a rule: job records, with the numbers that several rules need from the first iteration |
| `states_nodes` | not a rule: whether jobs of a trace ask for numbers of nodes |
| `follows_site` | not a rule: whether the policy keeps to the partitions of a site |
| `states_runs` | not a rule: whether a trace states when, where or how often jobs run |
| `counted` | not a rule: an iteration over records that also collects their columns |
"""

from .bounds import NotBelowBound, better_than
from .limits import (
    HostNotExceeded,
    NoIdleStops,
    PartitionsKept,
    ReservationsKept,
    ShapesKept,
    follows_site,
    states_nodes,
)
from .manifest import ManifestConsistent, OutagesAsDrawn
from .network import PlansOnNetwork
from .nodes import RULES
from .plans import PlansAsPredicted
from .records import RecordsMatchLog, Tally, UsageMatchesLog, counted
from .sharing import SharersAsSlow
from .stated_runs import RunsAsStated, ServicesLeave, states_runs
from .summary import SummaryMatchesRecords
from .trace import TraceMatches

__all__ = [
    "RULES",
    "HostNotExceeded",
    "ManifestConsistent",
    "NoIdleStops",
    "NotBelowBound",
    "OutagesAsDrawn",
    "PartitionsKept",
    "PlansAsPredicted",
    "PlansOnNetwork",
    "RecordsMatchLog",
    "ReservationsKept",
    "RunsAsStated",
    "ServicesLeave",
    "ShapesKept",
    "SharersAsSlow",
    "SummaryMatchesRecords",
    "Tally",
    "TraceMatches",
    "UsageMatchesLog",
    "better_than",
    "counted",
    "follows_site",
    "states_nodes",
    "states_runs",
]
