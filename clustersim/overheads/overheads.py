"""The overheads of a job: seconds without progress at a start, a restart and a resize, and the cost of its
checkpoints while it runs.

The engine charges these times; policies only read them (`JobView.restart_s`). Meanwhile the job holds its new
GPUs and makes no progress.

| what | costs |
|---|---|
| begin | `scheduling_s` + launch |
| launch | `launch_s` + `launch_gpu_s` x GPUs + `launch_log2_s` x (log2 GPUs + 1) + its steps and points |
| first start | begin |
| restart, resize, migration | begin + save owed + load of a checkpoint if any, + `resize_s` or `migrate_s` |
| save owed | a save if the job has worked since its last one, else the unpaid rest of that one |
| save, load | checkpoint bytes / min(nodes x `storage_node_bytes_per_s`, `storage_bytes_per_s`) |
| checkpoint bytes | parameters x 14: fp16 weight 2, fp32 master weight 4, two fp32 Adam moments 8 |
| every `checkpoint_interval_s` of work | save |

All times are multiplied by `scale`. The 14 bytes are those of mixed-precision Adam (ZeRO, Rajbhandari et al.,
SC 2020, section 3.1). The size of a checkpoint is unknown if the model is unknown or
`checkpoint_bytes_per_parameter` is 0. The job then pays half of `plain_restart_s` for a save and half for a
load.

The save of a job that loses its GPUs is charged at its next start, so that the jobs that a policy preempts
never delay those that it starts. The GPU-seconds are the same. The save comes first in that payment. A job
that loses its GPUs again before it has paid the whole save owes the unpaid share of it at the next start. So
each save is paid once. A job that has done no work yet has nothing to save or load: any start costs it a
begin. A failure undoes the work since the last complete save, so it adds no save.

With `storage_shared`, simultaneous loads share `storage_bytes_per_s`; the table gives the time of a load that
is alone. Saves are assumed to be spread over time, and do not compete.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from math import inf, log2
from typing import Any

from itertime.errors import UnknownName, UserError, quoted
from itertime.planning import daly_interval_s, stretch_of, young_interval_s

from .checkpoints import Cycle

__all__ = ["PRESETS", "Overheads"]

_MOST = 1e15  # beyond any sensible value, while a product of two is still far from an overflow
_MOST_STRETCH = 1e9  # of work that failures never let end
_INTERVALS = ("daly", "young", "none")
_PAIRS = ("launch_steps", "launch_points")


@dataclass(frozen=True)
class Overheads:
    """The constants of the table in the docstring of this module.

    The defaults are those of the preset "default", apart from `launch_gpu_s`. A launch of 30 s is the restart
    of Pollux (OSDI 2021) and Sia (SOSP 2023). The storage figures are assumptions: 2 GB/s per node out of
    100 GB/s in all. `launch_gpu_s`: seconds that a launch takes longer for each GPU. `launch_steps`: (from
    this many GPUs on, seconds). `launch_points`: (GPUs, seconds), between two points linear in log2 GPUs,
    outside them the nearest point. `checkpoint_interval_s`: seconds of work; or "daly" or "young", the
    formula that derives them from the time of a save and the job's mean time between failures (see
    `itertime.planning`); or "none", which saves only when a job loses its GPUs. Without failures the formulas
    never save.
    """

    scheduling_s: float = 0.0
    launch_s: float = 30.0
    launch_gpu_s: float = 0.0
    launch_log2_s: float = 0.0
    launch_steps: tuple[tuple[int, float], ...] = ()
    launch_points: tuple[tuple[int, float], ...] = ()
    plain_restart_s: float = 30.0
    resize_s: float = 0.0
    migrate_s: float = 0.0
    checkpoint_bytes_per_parameter: float = 14.0
    checkpoint_interval_s: float | str = "daly"
    storage_node_bytes_per_s: float = 2e9
    storage_bytes_per_s: float = 100e9
    storage_shared: bool = False
    scale: float = 1.0

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name in _PAIRS:
                object.__setattr__(self, f.name, _pairs(f.name, value))
            elif f.name == "storage_shared":
                if not isinstance(value, bool):
                    raise UserError(f"overheads.storage_shared={quoted(value)}: must be true or false")
            elif f.name == "checkpoint_interval_s":
                _check_interval(value)
            else:
                minimum = 1.0 if f.name.endswith("bytes_per_s") else 0.0
                if not _number(value) or not minimum <= value <= _MOST:
                    raise UserError(
                        f"overheads.{f.name}={quoted(value)}: must be a number from {minimum:g} to {_MOST:g}"
                    )

    @classmethod
    def none(cls) -> Overheads:
        """Everything is free, as in simulators that charge nothing."""
        return PRESETS["none"]

    @classmethod
    def of(cls, settings: Mapping[str, Any], cluster_gpus: int = 1) -> Overheads:
        """The preset that `settings` names as `preset` ("default" if it names none), with the other settings
        in place of its constants. `cluster_gpus`: the GPUs of the cluster, which decide constants of
        "elasticflow". UnknownName for a preset or a constant that does not exist.
        """
        values = dict(settings)
        preset = values.pop("preset", "default")
        if not isinstance(preset, str) or preset not in PRESETS:
            raise UnknownName("preset of overheads", str(preset), PRESETS)
        if preset == "elasticflow" and cluster_gpus >= _LARGE_CLUSTER_GPUS:
            values = {"launch_s": _LARGE_CLUSTER_LAUNCH_S, **values}
        return PRESETS[preset].with_values(**values) if values else PRESETS[preset]

    def with_values(self, **values: Any) -> Overheads:
        """A copy with some constants replaced; UnknownName for a constant that does not exist."""
        names = [f.name for f in fields(self)]
        for name in values:
            if name not in names:
                raise UnknownName("overhead", name, [*names, "preset"])
        return replace(self, **values) if values else self

    def stated(self) -> dict[str, Any]:
        """Every constant as plain JSON data; `Overheads(**stated)` reads them again."""
        stated = asdict(self)
        for name in _PAIRS:
            stated[name] = list(map(list, getattr(self, name)))
        return stated

    def start_s(self, gpus: int = 1) -> float:
        """Seconds from the allocation of a job's first `gpus` GPUs to its first iteration."""
        begin_s = self.scheduling_s + self.launch_s + self.launch_gpu_s * gpus
        if self.launch_log2_s:
            begin_s += self.launch_log2_s * (log2(max(gpus, 1)) + 1)
        if self.launch_steps:
            begin_s += next((seconds for count, seconds in self.launch_steps[::-1] if count <= gpus), 0.0)
        if self.launch_points:
            begin_s += _between(self.launch_points, gpus)
        return self.scale * begin_s

    def restart_s(
        self, parameters: float, nodes: int, gpus: int = 1, kind: str = "restart", *,
        saves: float = 1.0, loads: bool = True,
    ) -> float:  # fmt: skip
        """Seconds from the allocation of other GPUs to the next iteration, for a model of `parameters`
        parameters on `nodes` nodes. `kind`: "restart", "resize" or "migrate". `saves`: the share of a save
        that is owed, 0 to 1. `loads`: whether there is a checkpoint to load.
        """
        extra_s = {"resize": self.resize_s, "migrate": self.migrate_s}.get(kind, 0.0)
        # A load takes as long as a save (`load_s`).
        return self.start_s(gpus) + self.scale * extra_s + (saves + loads) * self.save_s(parameters, nodes)

    def change_s(self, parameters: float, nodes: int, gpus: int) -> float:
        """Seconds of the most expensive of a restart, a resize and a migration."""
        kind = "resize" if self.resize_s > self.migrate_s else "migrate"
        return self.restart_s(parameters, nodes, gpus, kind)

    def save_s(self, parameters: float, nodes: int) -> float:
        """Seconds to save a checkpoint."""
        size_bytes = self.checkpoint_bytes(parameters)
        if not size_bytes:
            return self.scale * self.plain_restart_s / 2
        bandwidth = min(self.load_limit(nodes), self.storage_bytes_per_s)
        return self.scale * (size_bytes / bandwidth)

    def load_s(self, parameters: float, nodes: int) -> float:
        """Seconds to load a checkpoint while no other job loads."""
        return self.save_s(parameters, nodes)

    def checkpoint_bytes(self, parameters: float) -> float:
        return parameters * self.checkpoint_bytes_per_parameter

    def load_limit(self, nodes: int) -> float:
        """The most bytes/s that `nodes` nodes can load."""
        return nodes * self.storage_node_bytes_per_s

    def shares_load(self, parameters: float) -> bool:
        """Whether the load of such a job depends on the loads of other jobs."""
        return self.storage_shared and self.scale > 0 and self.checkpoint_bytes(parameters) > 0

    def cycle(self, parameters: float, nodes: int, mtbf_s: float = inf) -> Cycle:
        """The checkpoint cycle of a job on `nodes` nodes that fails every `mtbf_s` seconds on average."""
        save_s = self.save_s(parameters, nodes)
        interval = self.checkpoint_interval_s
        if interval == "none":
            return Cycle(inf, save_s)
        if isinstance(interval, str):
            interval = (daly_interval_s if interval == "daly" else young_interval_s)(save_s, mtbf_s)
        return Cycle(interval, save_s)

    def stretch(self, parameters: float, nodes: int, gpus: int, mtbf_s: float) -> float:
        """Mean seconds that a second of work takes on `gpus` GPUs of `nodes` nodes, one of which fails every
        `mtbf_s` seconds: with saves, work done again, launches and loads; at most a billion.
        """
        cycle, restart_s = (
            self.cycle(parameters, nodes, mtbf_s),
            self.restart_s(parameters, nodes, gpus, saves=0.0),
        )
        return min(_MOST_STRETCH, stretch_of(cycle.interval_s, cycle.save_s, restart_s, mtbf_s))


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_interval(value: object) -> None:
    if value in _INTERVALS or (_number(value) and 1e-3 <= value <= _MOST):  # type: ignore[operator]
        return
    expected = f"must be seconds of work, from 0.001 to {_MOST:g}, or {', '.join(_INTERVALS)}"
    raise UserError(f"overheads.checkpoint_interval_s={quoted(value)}: {expected}")


def _pairs(name: str, value: object) -> tuple[tuple[int, float], ...]:
    """Pairs of GPUs, ascending, and seconds."""
    expected = "must be pairs of GPUs (ascending) and seconds, as in [[1, 7], [2, 30], [9, 60]]"
    if isinstance(value, list | tuple):
        pairs = [tuple(pair) for pair in value if isinstance(pair, list | tuple) and len(pair) == 2]
        counts = [count for count, _ in pairs]
        sound = all(
            type(count) is int and count >= 1 and _number(seconds) and 0 <= seconds <= _MOST
            for count, seconds in pairs
        )
        if len(pairs) == len(value) and sound and counts == sorted(set(counts)):
            return tuple(pairs)
    raise UserError(f"overheads.{name}={quoted(value)}: {expected}")


def _between(points: Sequence[tuple[int, float]], gpus: int) -> float:
    """The seconds at `gpus`, linear in log2 GPUs between the points and constant outside them."""
    above = bisect_left(points, gpus, key=lambda point: point[0])
    if above == len(points):
        return points[-1][1]
    count, seconds = points[above]
    if count == gpus or not above:
        return seconds
    count_below, seconds_below = points[above - 1]
    return seconds_below + (seconds - seconds_below) * log2(gpus / count_below) / log2(count / count_below)


_LARGE_CLUSTER_GPUS, _LARGE_CLUSTER_LAUNCH_S = 256, 7.0  # of the preset "elasticflow"
_MLPERF = ((8, 26.0), (64, 52.0), (1024, 66.0), (4096, 271.0), (4320, 424.0))  # GPUs, median seconds
_PRETRAINING_GPUS, _PRETRAINING_START_S = 32, 202.0  # measured, as are the next two lines
_PRETRAINING_BYTES = 6.738e9 * 14  # of a checkpoint of LLaMA-2 7B
_PRETRAINING_SAVE_S, _PRETRAINING_NODES = 33.0, 4

PRESETS: Mapping[str, Overheads] = {
    "none": Overheads(scale=0.0),
    "default": Overheads(launch_gpu_s=0.075),
    "elasticflow": Overheads(
        launch_s=2.0, launch_log2_s=2.0, plain_restart_s=0.0, checkpoint_bytes_per_parameter=0.0
    ),
    "pollux": Overheads(launch_s=30.0, plain_restart_s=0.0, checkpoint_bytes_per_parameter=0.0),
    "helios": Overheads(
        launch_s=0.0,
        launch_steps=((1, 7.0), (2, 30.0), (9, 60.0)),
        plain_restart_s=0.0,
        checkpoint_bytes_per_parameter=0.0,
    ),
    "mlperf": Overheads(launch_s=0.0, launch_points=_MLPERF),
    "pretraining": Overheads(
        launch_s=round(_PRETRAINING_START_S - _between(_MLPERF, _PRETRAINING_GPUS), 1),
        launch_points=_MLPERF,
        storage_node_bytes_per_s=round(_PRETRAINING_BYTES / _PRETRAINING_SAVE_S / _PRETRAINING_NODES, -6),
    ),
}
"""The overheads of published simulators, and of measured runs:

- `none`: nothing, as in Gavel (OSDI 2020) and Tiresias (NSDI 2019);
- `default`: 30 s + 0.075 s a GPU. The 30 s are those of Pollux. The slope is a least-squares line through
  them and the median start-up times of MLPerf Training's BERT logs (rounds v0.7 to v5.1): 26 s on 8 GPUs, 52
  on 64, 66 on 1,024, 271 on 4,096 and 424 on 4,320;
- `elasticflow`: every start and restart on n GPUs takes 2 s + 2 (log2 n + 1) s, on clusters of 256 and more
  GPUs 7 s + 2 (log2 n + 1) s (source of the simulator of ElasticFlow, ASPLOS 2023). Its surcharge of 27 to
  47 s falls on every 60th decision, not on restarts, and is left out;
- `pollux`: 30 s for every start and restart (Pollux, OSDI 2021; Sia, SOSP 2023, charges the same);
- `helios`: 7, 30 and 60 s for 1, up to 8 and more GPUs (the simulator of Helios, SC 2021, and Lucid,
  ASPLOS 2023);
- `mlperf`: the median start-up times above, between them linear in log2 GPUs; below 8 GPUs that of 8, above
  4,320 that of 4,320. Their runs start prepared containers, and load no checkpoint;
- `pretraining`: a run of LLaMA-2 7B on 32 A100s, which took 202 s from its first process to its first step
  and 33 s for a checkpoint on 4 nodes (Zhejiang Lab Cluster Traces, 2024-04-29). What `mlperf` lacks of the
  202 s is the same at every size: an assumption. So is one bandwidth per node for all models.

The published simulators save and load in no time. With failures, free saves ("pollux", "helios") mean that a
checkpoint is complete at every moment, so state `checkpoint_interval_s` and `plain_restart_s` there.
"""
