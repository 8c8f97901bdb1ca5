"""Inference services: instances that need GPUs from their submission until a set time, ahead of other jobs.

| name | what |
|---|---|
| `Services` | the instances in a simulation: which of them have GPUs, and how they get them |

Why
- An instance is a job whose time runs whether it has GPUs or not. A service whose need for GPUs follows a
  time series is a number of such instances (`traces.services`), which come and go.
- The site serves instances before the policy decides, on GPUs that are then out of service for the policy. So
  every policy works beside services, as it does beside nodes under maintenance, and none has to know them.
"""

from .serving import Services

__all__ = ["Services"]
