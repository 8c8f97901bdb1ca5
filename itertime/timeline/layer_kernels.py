"""The kernels of one transformer layer under a plan: shape, seconds, achieved rate, and the limit that binds.

The list comes from the cost model itself, not from a second description of a layer. A profile that notes
every size asked for gives the kernels; what each contributes to a part of the layer's time is the change of
that part when this kernel alone takes longer. All parts are sums and maxima of kernel times, so the
contributions add up to the part (Euler's theorem for functions of degree one), up to what is no kernel of the
profile: transfers between nodes, and the site's and the framework's constants. That remainder is a row of its
own, so the rows of a layer sum to its time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from itertime.arrays import Array
from itertime.costs import Workload, micro_batch_passes
from itertime.spec import (
    Attention,
    Cast,
    Collective,
    Elementwise,
    Gemm,
    GroupedGemm,
    ModelSpec,
    Plan,
    PlanBatch,
    Profile,
    Query,
    System,
)

STEP = 2.0**-20  # relative; small enough to cross no maximum, large enough for nine exact digits
SMALLEST_SHARE = 1e-9  # of the layer; smaller contributions are rounding
NO_KERNELS = {
    "launch": "wait for launches",
    "overhead": "framework and site",
    "tp_comm": "between nodes, latency",
    "ep_comm": "between nodes, latency",
    "cp_comm": "between nodes, latency",
}
BITS = {"bf16": 16, "fp8": 8, "fp8_block": 8, "mxfp8": 8, "nvfp4": 4, "tf32": 32, "fp32": 32}
BACKWARD_FLOPS = 2.5  # of attention's forward pass: five products against two


@dataclass(frozen=True)
class LayerKernel:
    """What one kernel adds to one pass of a layer.

    `pass_` is forward, backward or recompute; `part` the part of the breakdown of a prediction. `seconds` is
    charged in all, `each_s` the profile's time of one run, `runs` their ratio: how often it runs, times what
    framework and site multiply. `rate` is in `unit`, TFLOP/s or GB/s, of one run. `limit` is what bounds it:
    arithmetic, memory, NVLink, latency, launch; or "not a kernel".
    """

    kernel: str
    shape: str
    pass_: str
    part: str
    seconds: float
    each_s: float
    rate: float
    unit: str
    limit: str

    @property
    def runs(self) -> float:
        return self.seconds / self.each_s if self.each_s else 0.0


def layer_kernels(
    model: ModelSpec, plan: Plan, system: System, profile: Profile
) -> tuple[list[LayerKernel], dict[str, float]]:
    """The kernels of one layer and micro-batch, forward, then backward, and the seconds of each part.

    The rows' seconds sum to those of the parts. Raises UserError for an impossible plan.
    """
    plan.check(model)
    batch = PlanBatch.of([plan])

    def passes(slowed: tuple[int, int] | None) -> tuple[dict[tuple[str, str], float], _Recorder]:
        recorder = _Recorder(profile, slowed)
        work = Workload.of(model, batch, system, recorder)
        forward, backward = micro_batch_passes(work)
        pass_s = {("forward", part): float(value[0]) for part, value in forward.layers[0].items()}
        pass_s |= {
            ("recompute" if part == "recompute" else "backward", part): float(value[0])
            for part, value in backward.layers[0].items()
        }
        return pass_s, recorder

    # Every launch is made longer in turn. What a part of the layer grows by is what the launch adds to it.
    unchanged_s, recorder = passes(None)
    threshold_s = SMALLEST_SHARE * sum(unchanged_s.values())
    rows: list[LayerKernel] = []
    kernels_s = dict.fromkeys(unchanged_s, 0.0)
    for call, (query, seconds) in enumerate(recorder.calls):
        for element in np.flatnonzero(seconds):
            slowed_s, _ = passes((call, int(element)))
            for key, part_s in unchanged_s.items():
                share = (slowed_s[key] - part_s) / STEP
                if key[1] == "launch" or abs(share) < threshold_s:
                    continue
                launch = _element(query, seconds.shape, int(element))
                rows.append(_kernel(profile, launch, key, share, float(seconds.flat[element])))
                kernels_s[key] += share
    # What no kernel adds is a row of its own, so that the rows of a part sum to its seconds.
    for (pass_, part), total in unchanged_s.items():
        remainder_s = total - kernels_s[pass_, part]
        if abs(remainder_s) > threshold_s:
            name = NO_KERNELS.get(part, "not a kernel of the profile")
            rows.append(LayerKernel(name, "", pass_, part, remainder_s, 0.0, 0.0, "", "not a kernel"))
    parts: dict[str, float] = {}
    for (_, part), total in unchanged_s.items():
        parts[part] = parts.get(part, 0.0) + total
    order = ("forward", "backward", "recompute")
    return sorted(_merged(rows), key=lambda row: (order.index(row.pass_), -row.seconds)), parts


class _Recorder:
    """The times of a profile; the queries are noted with their answers, and one answer is `STEP` longer:
    that of the launch `slowed`, (query, element of its array).
    """

    def __init__(self, profile: Profile, slowed: tuple[int, int] | None):
        self._profile = profile
        self._slowed = slowed
        self.memory_bytes = profile.memory_bytes
        self.peak_flops = profile.peak_flops
        self.gemm_in_training = profile.gemm_in_training
        self.nvlink_bytes_per_s = profile.nvlink_bytes_per_s
        self.calls: list[tuple[Query, Array]] = []

    def seconds(self, query: Query) -> Array:
        seconds = np.asarray(self._profile.seconds(query), dtype=float)
        self.calls.append((query, seconds))
        if self._slowed is None or self._slowed[0] != len(self.calls) - 1:
            return seconds
        longer = seconds.copy()
        longer.flat[self._slowed[1]] *= 1 + STEP
        return longer


def _element(query: Query, shape: tuple[int, ...], element: int) -> Query:
    """The query of one launch alone, of those that have an answer of this shape."""
    values: list[Any] = [
        np.broadcast_to(value, shape).flat[element].item() if isinstance(value, np.ndarray) else value
        for value in query
    ]
    return type(query)(*values)


def _kernel(
    profile: Profile, query: Query, key: tuple[str, str], seconds: float, each_s: float
) -> LayerKernel:
    name, work, unit, bounds = _described(profile, query)
    bounds |= {"launch": min(profile.launch_s, each_s)}
    limit = max(bounds, key=lambda bound: bounds[bound])
    rate = work / each_s / (1e12 if unit == "TFLOP/s" else 1e9)
    return LayerKernel(name, _shape(query), *key, seconds, each_s, rate, unit, limit)


Described = tuple[str, float, str, dict[str, float]]


def _described(profile: Profile, query: Query) -> Described:
    """Name, work and its unit, and the seconds that each limit alone would take, of a query of one launch."""
    match query:
        case Gemm():
            return _gemm(profile, "gemm", query, _number(query.batch))
        case GroupedGemm():
            return _gemm(profile, "grouped gemm", query, _number(query.groups))
        case Attention():
            return _attention(profile, query)
        case Elementwise():
            name = query.kind if query.style is None else f"{query.kind} {query.style}"
            moved_bytes = _number(query.nbytes)
            return name, moved_bytes, "GB/s", {"memory": moved_bytes / profile.hbm_bytes_per_s}
        case Cast():
            model = profile.casts.get(query.precision)
            moved_bytes = _number(query.elements) * (model.bytes_per_element if model else 4.0)
            name = f"cast {query.precision}"
            return name, moved_bytes, "GB/s", {"memory": moved_bytes / profile.hbm_bytes_per_s}
        case Collective():
            latency = float(profile.seconds(query._replace(nbytes=1.0)))
            links = float(profile.seconds(query)) - latency
            return query.operation, _number(query.nbytes), "GB/s", {"latency": latency, "NVLink": links}


def _number(size: ArrayLike) -> float:
    return float(np.asarray(size))


def _gemm(profile: Profile, name: str, query: Gemm | GroupedGemm, count: float) -> Described:
    m, n, k = _number(query.m), _number(query.n), _number(query.k)
    flops = 2 * m * n * k * count
    bits = BITS.get(query.precision, 16)
    moved_bytes = (bits / 8 * (m * k + k * n) + max(bits, 16) / 8 * m * n) * count
    bounds = {
        "arithmetic": flops / profile.peak_flops_of(query.precision),
        "memory": moved_bytes / profile.hbm_bytes_per_s,
    }
    return f"{name} {query.precision}", flops, "TFLOP/s", bounds


def _attention(profile: Profile, query: Attention) -> Described:
    batch, heads, kv_heads, dim, seq_q, seq_kv = (_number(size) for size in query[:6])
    kernel, backward = query.kernel, query.backward
    value_dim = kernel.value_dim or dim
    share = 0.5 if query.causal else 1.0  # of the scores
    if kernel.window and query.causal:
        share = min(share, kernel.window / seq_kv)
    flops = 2 * batch * heads * seq_q * seq_kv * (dim + value_dim) * share
    flops *= BACKWARD_FLOPS if backward else 1.0
    moved_bytes = 2 * batch * (dim + value_dim) * (heads * seq_q + kv_heads * seq_kv) * (2 if backward else 1)
    bounds = {"arithmetic": flops / profile.peak_flops, "memory": moved_bytes / profile.hbm_bytes_per_s}
    return f"attention {kernel.name}", flops, "TFLOP/s", bounds


_SHOWN: dict[type[Query], tuple[str, ...]] = {
    Gemm: ("m", "n", "k", "batch"),
    GroupedGemm: ("m", "n", "k", "groups"),
    Attention: ("batch", "heads", "kv_heads", "head_dim", "seq_q", "seq_kv"),
    Elementwise: ("nbytes", "width"),
    Cast: ("elements",),
    Collective: ("nbytes", "ranks"),
}
_SHORT = {"kv_heads": "kv", "head_dim": "dim", "seq_q": "q", "seq_kv": "k"}


def _shape(query: Query) -> str:
    words = []
    for name in _SHOWN[type(query)]:
        value = getattr(query, name)
        if value is None or (name in ("batch", "groups") and value == 1):
            continue
        if name == "nbytes":
            words.append(f"{float(value) / 1e6:.4g} MB")
        else:
            words.append(f"{_SHORT.get(name, name)} {float(value):.6g}")
    return " ".join(words)


def _merged(rows: list[LayerKernel]) -> list[LayerKernel]:
    """Equal kernels of a pass as one row."""
    rows_by_key: dict[tuple[str, ...], LayerKernel] = {}
    for row in rows:
        key = (row.kernel, row.shape, row.pass_, row.part, f"{row.each_s:.9g}")
        equal_row = rows_by_key.get(key)
        seconds = row.seconds + (equal_row.seconds if equal_row else 0.0)
        rows_by_key[key] = LayerKernel(**(vars(row) | {"seconds": seconds}))
    return list(rows_by_key.values())
