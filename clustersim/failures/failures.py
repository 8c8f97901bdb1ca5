"""How nodes and jobs fail: the parameters, the draws of one machine, and those of one job.

Defaults: one failure per 25,000 GPU-hours, an assumption between the 50,700 of Llama 3 and the fewer of
smaller, younger sites. The kinds have the shares that Llama 3 reports for its 419 unexpected interruptions in
54 days on 16,384 GPUs ("The Llama 3 Herd of Models", 2024, table 5). The times to repair are assumptions: a
part that must be exchanged takes a shift or two, a reboot takes minutes.

Every machine has its own random streams, and draws the same numbers under every policy (common random
numbers): two policies meet the same failures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from math import exp, fsum, gamma, log
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from itertime.errors import UnknownName, UserError, quoted
from traces.job import Job

__all__ = [
    "KINDS",
    "PRESETS",
    "Failures",
    "Fault",
    "JobFailure",
    "Machine",
    "ended_badly",
    "failure_of_job",
    "lemons",
]

HOUR_S = 3600.0
_MOST = 1e12

KINDS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "gpu": (0.35, 12.0),
        "memory": (0.17, 12.0),
        "software": (0.13, 0.25),
        "network": (0.08, 4.0),
        "host": (0.08, 4.0),
        "other": (0.19, 1.0),
    }
)
"""Kind of fault: its share, and the mean hours to repair it. `memory`: of the GPU. `host`: unplanned
maintenance. `other`: the remaining rows of Llama 3's table."""


class Fault(NamedTuple):
    """A fault that ends a machine's time in service: its kind, and the seconds until the machine can serve
    again.
    """

    kind: str
    repair_s: float


@dataclass(frozen=True)
class Failures:
    """How nodes and jobs fail.

    | parameter | unit | meaning |
    |---|---|---|
    | mtbf_gpu_h | GPU-hours | in service per failure of a node, over all nodes; None: nodes never fail |
    | weibull_shape | | of the time in service; 1: exponential; below 1: failures cluster |
    | lemon_share | | of the nodes are lemons, which fail more often than the others |
    | lemon_factor | | how many times as often a lemon fails |
    | kinds | share, hours | by kind of fault: its share, and the mean time to repair it |
    | repair_sigma | | of the log-normal times to repair; 0: always the mean |
    | repair_scale | | multiplies all times to repair |
    | spare_nodes | nodes | in addition to the cluster's; they replace failed nodes |
    | spare_swap_s | s | until a spare node, or a repaired node from elsewhere, serves in a place |
    | retries | | how often failures may stop a job; at one more it is given up |
    | end_as_logged | | jobs that failed or were cancelled in the trace end that way here |
    | job_failed_share | | of the other jobs fail, drawn by job |
    | job_cancelled_share | | of the other jobs are cancelled, drawn by job |

    Schroeder and Gibson found a Weibull shape of 0.7 to 0.8 and log-normal repairs ("A large-scale study of
    failures in high-performance computing systems", DSN 2006).
    """

    mtbf_gpu_h: float | None = 25_000.0
    weibull_shape: float = 1.0
    lemon_share: float = 0.0
    lemon_factor: float = 10.0
    kinds: Mapping[str, tuple[float, float]] = field(default_factory=lambda: dict(KINDS))
    repair_sigma: float = 1.0
    repair_scale: float = 1.0
    spare_nodes: int = 0
    spare_swap_s: float = 600.0
    retries: int = 1000
    end_as_logged: bool = False
    job_failed_share: float = 0.0
    job_cancelled_share: float = 0.0

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if name == "mtbf_gpu_h" and value is None:
                continue
            must_be_whole = name in ("spare_nodes", "retries")
            sound = isinstance(value, int) if must_be_whole else isinstance(value, int | float)
            if not sound or isinstance(value, bool) or not low <= value <= high:
                expected = "a whole number" if must_be_whole else "a number"
                raise _wrong(name, value, f"must be {expected} from {low:g} to {high:g}")
        if not isinstance(self.end_as_logged, bool):
            raise _wrong("end_as_logged", self.end_as_logged, "must be true or false")
        if self.job_failed_share + self.job_cancelled_share > 1:
            failing_share = self.job_failed_share + self.job_cancelled_share
            raise _wrong("job_failed_share + job_cancelled_share", failing_share, "must not be above 1")
        object.__setattr__(self, "kinds", _kinds(self.kinds))

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Failures:
        """The preset that `settings` names as `preset` ("default" if it names none), with the other settings
        in place of its parameters. UnknownName for a preset or a parameter that does not exist.
        """
        values = dict(settings)
        preset = values.pop("preset", "default")
        if not isinstance(preset, str) or preset not in PRESETS:
            raise UnknownName("preset of failures", str(preset), PRESETS)
        names = [f.name for f in fields(cls)]
        for name in values:
            if name not in names:
                raise UnknownName("parameter of failures", str(name), [*names, "preset"])
        return replace(PRESETS[preset], **values)

    def stated(self) -> dict[str, Any]:
        """Every parameter as plain JSON data; `Failures(**stated)` reads them again."""
        kinds = {name: list(pair) for name, pair in self.kinds.items()}
        return {**{f.name: getattr(self, f.name) for f in fields(self)}, "kinds": kinds}

    def node_mtbf_s(self, gpus_per_node: int) -> float:
        """Mean seconds that a node serves between failures, averaged over the failures of lemons and other
        nodes; infinite if nodes never fail.
        """
        if self.mtbf_gpu_h is None:
            return float("inf")
        return self.mtbf_gpu_h * HOUR_S / gpus_per_node

    def ordinary_mtbf_s(self, gpus_per_node: int) -> float:
        """The same of a node that is no lemon, so that the mean rate over all nodes is the stated one."""
        return self.node_mtbf_s(gpus_per_node) * (1 - self.lemon_share + self.lemon_share * self.lemon_factor)


_RANGES = {
    "mtbf_gpu_h": (1e-3, _MOST),
    "weibull_shape": (0.1, 20.0),
    "lemon_share": (0.0, 1.0),
    "lemon_factor": (1.0, 1e6),
    "repair_sigma": (0.0, 5.0),
    "repair_scale": (0.0, 1e6),
    "spare_nodes": (0, 1_000_000),
    "spare_swap_s": (0.0, _MOST),
    "retries": (0, 1_000_000),
    "job_failed_share": (0.0, 1.0),
    "job_cancelled_share": (0.0, 1.0),
}


def _wrong(name: str, value: object, expected: str) -> UserError:
    return UserError(f"failures.{name}={quoted(value)}: {expected}")


def _kinds(value: object) -> dict[str, tuple[float, float]]:
    """Kinds of fault as settings state them, with shares that add up to 1."""
    remedy = "must give each kind its share and mean hours to repair, as in {gpu: [0.6, 12], other: [0.4, 1]}"
    kinds: dict[str, tuple[float, float]] = {}
    for name, pair in value.items() if isinstance(value, Mapping) else ():
        numbers = pair if isinstance(pair, list | tuple) else ()
        sound = all(isinstance(n, int | float) and not isinstance(n, bool) and 0 <= n <= 1e6 for n in numbers)
        if not isinstance(name, str) or not name.isidentifier() or len(numbers) != 2 or not sound:
            raise _wrong("kinds", value, remedy)
        kinds[name] = (float(numbers[0]), float(numbers[1]))
    total = fsum(share for share, _ in kinds.values())
    if not total:
        raise _wrong("kinds", value, remedy)
    return {name: (share / total, hours) for name, (share, hours) in kinds.items()}


PRESETS: Mapping[str, Failures] = {
    "default": Failures(),
    "llama3": Failures(mtbf_gpu_h=50_700.0),
    "none": Failures(mtbf_gpu_h=None),
}
"""`llama3`: 419 unexpected interruptions in 54 days on 16,384 GPUs. `none`: nodes never fail; for runs in
which jobs fail on their own."""


class Machine:
    """The random draws of one machine: how long it serves, what fails then, how long the repair takes."""

    __slots__ = ("_faults", "_life", "_number", "_parameters", "_seed")

    def __init__(self, parameters: Failures, seed: int, number: int):
        """`number`: the machine's own; together with the seed it determines all draws."""
        self._parameters, self._seed, self._number = parameters, seed, number
        self._life = _stream(seed, "life", number)
        self._faults: np.random.Generator | None = None  # most machines of a large cluster never fail

    def first_life_s(self, mean_s: float) -> float:
        """Seconds to the first failure of a machine that has long been in service, and fails every `mean_s`.

        This is the rest of a life observed at a random moment: a uniform part of a life that is drawn in
        proportion to its length (Cox, Renewal Theory, 1962, section 5.2). For the exponential distribution it
        has the distribution of any life.
        """
        shape = self._parameters.weibull_shape
        life = self._life.standard_gamma(1 + 1 / shape) ** (1 / shape)
        return float(mean_s / gamma(1 + 1 / shape) * self._life.random() * life)

    def life_s(self, mean_s: float) -> float:
        """Seconds from a repair to the next failure: Weibull, of mean `mean_s`."""
        shape, uniform = self._parameters.weibull_shape, 1.0 - float(self._life.random())  # in (0, 1]
        return mean_s / gamma(1 + 1 / shape) * (-log(uniform)) ** (1 / shape)

    def fault(self) -> Fault:
        """The kind of a fault, and how long it takes to repair: log-normal, with the mean of the kind."""
        if self._faults is None:
            self._faults = _stream(self._seed, "faults", self._number)
        uniform, normal = float(self._faults.random()), float(self._faults.standard_normal())
        remaining, fault_kind = uniform, ""
        for kind, (share, _) in self._parameters.kinds.items():
            if share:
                fault_kind, remaining = kind, remaining - share
            if share and remaining < 0:
                break
        sigma = self._parameters.repair_sigma
        factor = exp(sigma * normal - sigma * sigma / 2)
        hours = self._parameters.kinds[fault_kind][1] * self._parameters.repair_scale
        return Fault(fault_kind, hours * HOUR_S * factor)


def lemons(parameters: Failures, machines: int, seed: int) -> frozenset[int]:
    """The numbers of the lemons among `machines` machines."""
    count = round(parameters.lemon_share * machines)
    machines_drawn = _stream(seed, "lemons").permutation(machines)[:count] if count else ()
    return frozenset(int(number) for number in machines_drawn)


def _stream(seed: int, purpose: str, number: int = 0) -> np.random.Generator:
    """Random numbers for one purpose and one machine or job, independent of all others."""
    return np.random.default_rng([seed, number, *purpose.encode()])


_FAILED = ("fail", "failed", "failure", "error", "oom", "node_fail", "timeout", "out_of_memory", "boot_fail")
_CANCELLED = ("cancel", "canceled", "cancelled", "kill", "killed", "stop", "stopped", "aborted", "revoked")


def ended_badly(state: str | None) -> bool:
    """Whether the logged state of a job says that it failed or was cancelled; not if it states none."""
    words = (state or "").lower().split()
    return bool(words) and words[0] in (*_FAILED, *_CANCELLED)


class JobFailure(NamedTuple):
    """How an unfinished job ends, and the share of its stated work that is done before."""

    reason: str
    share: float


def failure_of_job(job: Job, failures: Failures, seed: int) -> JobFailure | None:
    """How `job` fails; None if it will finish.

    With `end_as_logged`, a job that failed or was cancelled in the trace ends that way after the work that
    the trace states, which is the work that it did. Of the other jobs the stated shares fail or are
    cancelled, drawn by job id from a stream of their own. They end at a share of their work that is uniform
    in (0, 1): an assumption, because no distribution is published.
    """
    if failures.end_as_logged and job.state is not None:
        state = job.state.strip().lower()
        if state in _FAILED:
            return JobFailure("failed, as logged", 1.0)
        if state in _CANCELLED:
            return JobFailure("cancelled, as logged", 1.0)
    failed, cancelled = failures.job_failed_share, failures.job_cancelled_share
    if not failed and not cancelled:
        return None
    draws = _stream(seed, f"fate of {job.job_id}")
    draw, share = float(draws.random()), float(1 - draws.random())
    if draw < failed:
        return JobFailure("failed, as drawn", share)
    return JobFailure("cancelled, as drawn", share) if draw < failed + cancelled else None
