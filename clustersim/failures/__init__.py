"""When nodes are out of service and how jobs fail, drawn without knowing any job.

| name | what |
|---|---|
| `Failures` | The parameters of failures: rates, repair times, retries, spare nodes |
| `JobFailure` | How an unfinished job ends, and the share of its stated work that is done before |
| `fate_of` | The fate of `job` |
| `Maintenance` | Every planned change, in order of time |
| `read_calendar` | The entries of a YAML or JSON file that holds them under `calendar` |
| `NodeChange` | `node` goes out of service (`up` is False) or comes back |
| `Outages` | The changes of service, from `start_s` on, of the nodes of a cluster |

Why
- Outages are drawn from streams of the machines alone. All policies meet the same failures, so a difference
  between two policies is caused by the policies. The price: an idle node fails as often as a busy one.
"""

from .failures import Failures, JobFailure, fate_of
from .maintenance import Maintenance, read_calendar
from .outages import NodeChange, Outages

__all__ = ["Failures", "JobFailure", "Maintenance", "NodeChange", "Outages", "fate_of", "read_calendar"]
