"""The kernels of one transformer layer under a plan: shape, seconds, achieved rate, and the limit that binds.

The list comes from the cost model itself, not from a second description of a layer. A profile that notes
every size asked for gives the kernels; what each contributes to a part of the layer's time is the change of
that part when this kernel alone takes longer. All parts are sums and maxima of kernel times, so the
contributions add up to the part (Euler's theorem for functions of degree one), up to what is no kernel of the
profile: transfers between nodes, and the site's and the framework's constants. That remainder is a row of its
own, so the rows of a layer sum to its time.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from itertime.costs import KernelTimes, Workload, micro_batch_passes
from itertime.spec import ModelSpec, Plan, PlanBatch, Profile, System

__all__ = ["LayerKernel", "layer_kernels"]

Array = NDArray[np.float64]
STEP = 2.0**-20  # relative; small enough to cross no maximum, large enough for nine exact digits
LEAST = 1e-9  # of the layer; smaller contributions are rounding
NO_KERNELS = {
    "launch": "wait for launches",
    "overhead": "framework and site",
    "tp_comm": "between nodes, latency",
    "ep_comm": "between nodes, latency",
    "cp_comm": "between nodes, latency",
}
BITS = {"bf16": 16, "fp8": 8, "fp8_block": 8, "mxfp8": 8, "nvfp4": 4, "tf32": 32}
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

    def passes(changed: tuple[int, int] | None) -> tuple[dict[tuple[str, str], float], _Recorder]:
        recorder = _Recorder(profile, changed)
        work = Workload.of(model, batch, system, cast(KernelTimes, recorder))
        forward, backward = micro_batch_passes(work)
        found = {("forward", part): float(value[0]) for part, value in forward.layer.items()}
        found |= {
            ("recompute" if part == "recompute" else "backward", part): float(value[0])
            for part, value in backward.layer.items()
        }
        return found, recorder

    whole, recorder = passes(None)
    least = LEAST * sum(whole.values())
    rows: list[LayerKernel] = []
    charged = dict.fromkeys(whole, 0.0)
    for call, (method, arguments, seconds) in enumerate(recorder.calls):
        for element in np.flatnonzero(seconds):
            changed, _ = passes((call, int(element)))
            for key, before in whole.items():
                share = (changed[key] - before) / STEP
                if key[1] == "launch" or abs(share) < least:
                    continue
                sizes = _sizes(arguments, seconds.shape, int(element))
                rows.append(_kernel(profile, method, sizes, key, share, float(seconds.flat[element])))
                charged[key] += share
    for (pass_, part), total in whole.items():
        rest = total - charged[pass_, part]
        if abs(rest) > least:
            name = NO_KERNELS.get(part, "not a kernel of the profile")
            rows.append(LayerKernel(name, "", pass_, part, rest, 0.0, 0.0, "", "not a kernel"))
    parts: dict[str, float] = {}
    for (_, part), total in whole.items():
        parts[part] = parts.get(part, 0.0) + total
    order = ("forward", "backward", "recompute")
    return sorted(_merged(rows), key=lambda row: (order.index(row.pass_), -row.seconds)), parts


class _Recorder:
    """A profile that notes what it is asked for, and makes one answer `STEP` longer."""

    def __init__(self, profile: Profile, changed: tuple[int, int] | None):
        self._profile = profile
        self._changed = changed
        self.calls: list[tuple[str, Mapping[str, Any], Array]] = []

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._profile, name)
        return self._noting(name, value) if name.endswith("_s") and callable(value) else value

    def _noting(self, name: str, method: Callable[..., Array]) -> Callable[..., Array]:
        signature = inspect.signature(method)

        def call(*arguments: Any, **options: Any) -> Array:
            bound = signature.bind(*arguments, **options)
            bound.apply_defaults()
            seconds = np.asarray(method(*arguments, **options), dtype=float)
            self.calls.append((name, bound.arguments, seconds))
            if self._changed is None or self._changed[0] != len(self.calls) - 1:
                return seconds
            longer = seconds.copy()
            longer.flat[self._changed[1]] *= 1 + STEP
            return longer

        return call


def _sizes(arguments: Mapping[str, Any], shape: tuple[int, ...], element: int) -> dict[str, Any]:
    """The arguments of one element of a call."""
    sizes: dict[str, Any] = {}
    for name, value in arguments.items():
        if isinstance(value, np.ndarray):
            value = np.broadcast_to(value, shape).flat[element].item()
        sizes[name] = value
    return sizes


def _kernel(
    profile: Profile,
    method: str,
    sizes: dict[str, Any],
    key: tuple[str, str],
    seconds: float,
    each_s: float,
) -> LayerKernel:
    name, work, unit, bounds = _DESCRIBED[method](profile, sizes)
    launch = min(profile.launch_s, each_s)
    limit = max(bounds | {"launch": launch}, key=lambda one: (bounds | {"launch": launch})[one])
    rate = work / each_s / (1e12 if unit == "TFLOP/s" else 1e9)
    return LayerKernel(name, _shape(method, sizes), *key, seconds, each_s, rate, unit, limit)


Described = tuple[str, float, str, dict[str, float]]


def _gemm(profile: Profile, sizes: dict[str, Any]) -> Described:
    """Name, work and its unit, and the seconds that each limit alone would take."""
    m, n, k = (float(sizes[name]) for name in "mnk")
    count = float(sizes.get("groups", sizes.get("batch", 1)))
    precision = sizes.get("precision", "bf16")
    flops = 2 * m * n * k * count
    bits = BITS.get(precision, 16)
    moved = (bits / 8 * (m * k + k * n) + max(bits, 16) / 8 * m * n) * count
    bounds = {
        "arithmetic": flops / profile.peak_flops_of(precision),
        "memory": moved / profile.hbm_bytes_per_s,
    }
    kind = "grouped gemm" if "groups" in sizes else "gemm"
    return f"{kind} {precision}", flops, "TFLOP/s", bounds


def _attention(profile: Profile, sizes: dict[str, Any]) -> Described:
    kernel = sizes["kernel"]
    dim, value_dim = float(sizes["head_dim"]), kernel.value_dim or float(sizes["head_dim"])
    batch, heads, kv_heads = (float(sizes[name]) for name in ("batch", "heads", "kv_heads"))
    seq_q, seq_kv = float(sizes["seq_q"]), float(sizes["seq_kv"])
    kept = 0.5 if sizes["causal"] else 1.0
    if kernel.window and sizes["causal"]:
        kept = min(kept, kernel.window / seq_kv)
    flops = 2 * batch * heads * seq_q * seq_kv * (dim + value_dim) * kept
    flops *= BACKWARD_FLOPS if sizes["backward"] else 1.0
    moved = (
        2 * batch * (dim + value_dim) * (heads * seq_q + kv_heads * seq_kv) * (2 if sizes["backward"] else 1)
    )
    bounds = {"arithmetic": flops / profile.peak_flops, "memory": moved / profile.hbm_bytes_per_s}
    return f"attention {kernel.name}", flops, "TFLOP/s", bounds


def _elementwise(profile: Profile, sizes: dict[str, Any]) -> Described:
    moved = float(sizes["nbytes"])
    style = f" {sizes['style']}" if sizes.get("style") else ""
    return f"{sizes['kind']}{style}", moved, "GB/s", {"memory": moved / profile.hbm_bytes_per_s}


def _cast(profile: Profile, sizes: dict[str, Any]) -> Described:
    model = profile.casts.get(sizes["precision"])
    moved = float(sizes["elements"]) * (model.bytes_per_element if model else 4.0)
    return f"cast {sizes['precision']}", moved, "GB/s", {"memory": moved / profile.hbm_bytes_per_s}


def _collective(profile: Profile, sizes: dict[str, Any]) -> Described:
    moved = float(sizes["nbytes"])
    seconds = [float(profile.collective_s(sizes["operation"], size, sizes["ranks"])) for size in (1.0, moved)]
    return str(sizes["operation"]), moved, "GB/s", {"latency": seconds[0], "NVLink": seconds[1] - seconds[0]}


_DESCRIBED: dict[str, Callable[[Profile, dict[str, Any]], Described]] = {
    "gemm_s": _gemm,
    "grouped_gemm_s": _gemm,
    "attention_s": _attention,
    "elementwise_s": _elementwise,
    "cast_s": _cast,
    "collective_s": _collective,
}
_SHOWN = {
    "gemm_s": ("m", "n", "k", "batch"),
    "grouped_gemm_s": ("m", "n", "k", "groups"),
    "attention_s": ("batch", "heads", "kv_heads", "head_dim", "seq_q", "seq_kv"),
    "elementwise_s": ("nbytes", "width"),
    "cast_s": ("elements",),
    "collective_s": ("nbytes", "ranks"),
}
_SHORT = {"kv_heads": "kv", "head_dim": "dim", "seq_q": "q", "seq_kv": "k"}


def _shape(method: str, sizes: dict[str, Any]) -> str:
    words = []
    for name in _SHOWN[method]:
        value = sizes.get(name)
        if value is None or (name in ("batch", "groups") and value == 1):
            continue
        if name == "nbytes":
            words.append(f"{float(value) / 1e6:.4g} MB")
        else:
            words.append(f"{_SHORT.get(name, name)} {float(value):.6g}")
    return " ".join(words)


def _merged(rows: list[LayerKernel]) -> list[LayerKernel]:
    """Equal kernels of a pass as one row."""
    found: dict[tuple[str, ...], LayerKernel] = {}
    for row in rows:
        key = (row.kernel, row.shape, row.pass_, row.part, f"{row.each_s:.9g}")
        before = found.get(key)
        seconds = row.seconds + (before.seconds if before else 0.0)
        found[key] = LayerKernel(**(vars(row) | {"seconds": seconds}))
    return list(found.values())
