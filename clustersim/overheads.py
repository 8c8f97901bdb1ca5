"""What a start, a restart and a resize cost a job before it makes progress again.

The engine charges these times, policies only read them (`JobView.restart_s`). While it pays, a job holds
its new GPUs and makes no progress.

| what | costs |
|---|---|
| first start | `launch_s` |
| restart, resize, migration | save + `launch_s` + load |
| save, load | checkpoint bytes / min(nodes x `storage_node_bytes_per_s`, `storage_bytes_per_s`) |
| checkpoint bytes | parameters x 14: fp16 weight 2, fp32 master weight 4, two fp32 Adam moments 8 |

The 14 bytes are those of mixed-precision Adam (ZeRO, Rajbhandari et al., SC 2020, section 3.1).

The save of a job that loses its GPUs is charged at its next start, so that a preempting policy is never
delayed by what it preempts; GPU-seconds come out the same. A job known only by its duration has no model:
it pays `launch_s`, and `launch_s + plain_restart_s` on a restart.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from itertime.errors import UnknownName, UserError

__all__ = ["Overheads"]

_MOST = 1e15  # beyond all sense, and still far from overflowing a product of two


@dataclass(frozen=True)
class Overheads:
    """Constants of the table above, all multiplied by `scale`.

    30 s to launch is what Pollux (OSDI 2021) and Sia (SOSP 2023) charge for a restart; the storage figures
    are assumptions: 2 GB/s per node out of 100 GB/s in all.
    """

    launch_s: float = 30.0
    plain_restart_s: float = 30.0
    checkpoint_bytes_per_parameter: float = 14.0
    storage_node_bytes_per_s: float = 2e9
    storage_bytes_per_s: float = 100e9
    scale: float = 1.0

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            least = 1.0 if f.name.endswith("bytes_per_s") else 0.0
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not least <= value <= _MOST:
                raise UserError(f"overheads.{f.name}={value!r}: must be between {least:g} and {_MOST:g}")

    @classmethod
    def none(cls) -> Overheads:
        """Everything is free, as in simulators that charge nothing."""
        return cls(scale=0.0)

    def with_values(self, **values: float) -> Overheads:
        """A copy with some constants replaced; UnknownName for a constant that does not exist."""
        known = [f.name for f in fields(self)]
        for name in values:
            if name not in known:
                raise UnknownName("overhead", name, known)
        return replace(self, **values)

    def start_s(self) -> float:
        """Seconds from getting GPUs for the first time to the first iteration."""
        return self.scale * self.launch_s

    def restart_s(self, parameters: float, nodes: int) -> float:
        """Seconds from getting other GPUs to the next iteration, for a model of `parameters` parameters on
        `nodes` nodes.
        """
        if not parameters:
            return self.scale * (self.launch_s + self.plain_restart_s)
        bandwidth = min(nodes * self.storage_node_bytes_per_s, self.storage_bytes_per_s)
        one_way_s = parameters * self.checkpoint_bytes_per_parameter / bandwidth
        return self.scale * (self.launch_s + 2 * one_way_s)
