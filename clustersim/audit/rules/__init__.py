"""The rules of an audit, one class each.

| name | what |
|---|---|
| `ManifestConsistent` | The manifest is consistent in itself, and with how the log ends |
| `OutagesAsDrawn` | The changes of service are drawn again and compared with those of the log, one by one |
| `PlansOnNetwork` | On a network with tiers or contention |
| `RULES` | Every rule that an event log alone can prove or refute, in order |
| `PlansAsPredicted` | On an ideal network |
| `RecordsMatchLog` | `submitted` |
| `SummaryMatchesRecords` | The summary follows from the records and snapshots of the folder |
| `Tally` | Job records, and what the first iteration over them keeps |
| `UsageMatchesLog` | After every instant, the last row of usage.csv so far states what the events add up to |
| `counted` | The records, unchanged |
| `TraceMatches` | Compares jobs and records side by side, both in order of submission |
"""

from .manifest import ManifestConsistent, OutagesAsDrawn
from .network import PlansOnNetwork
from .nodes import RULES
from .plans import PlansAsPredicted
from .records import RecordsMatchLog, SummaryMatchesRecords, Tally, UsageMatchesLog, counted
from .trace import TraceMatches

__all__ = [
    "RULES",
    "ManifestConsistent",
    "OutagesAsDrawn",
    "PlansAsPredicted",
    "PlansOnNetwork",
    "RecordsMatchLog",
    "SummaryMatchesRecords",
    "Tally",
    "TraceMatches",
    "UsageMatchesLog",
    "counted",
]
