"""The profile of a GPU: how long its kernels and its in-node collectives take.

A profile is a JSON file of coefficients and small tables, computed from measurements. Each part states
whether it was measured, fitted or assumed, on how many rows, and with which error.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import model_validator
from pydantic.dataclasses import dataclass

from itertime.errors import UnknownName, UserError, quoted
from itertime.io import CONFIG, NonNegative, Positive, Whole, construct, file_state, read_mapping

from .kernels import (
    Attention,
    AttentionModel,
    AttentionSlowdown,
    Cast,
    CastModel,
    Collective,
    Elementwise,
    ElementwiseModel,
    ElementwiseStyle,
    Gemm,
    GroupedGemm,
    Query,
    TimedKernels,
)
from .operators import Array, GemmModel, PowerTerm
from .plans import IN_32_BIT
from .size_table import SizeTable

FOLDER = Path(__file__).parents[1] / "profiles"
SHIPPED_PROFILES = frozenset(path.stem for path in FOLDER.glob("*.json"))
"""The names of the shipped profiles."""

ELEMENTWISE_KINDS = (
    "elementwise",
    "layernorm",
    "rmsnorm",
    "softmax",
    "gelu",
    "swiglu",
    "dropout",
    "rotary",
    "embedding",
    "cross_entropy",
    "adam",
)
OLDER_ATTENTION = ("flash1", "triton")
NEWER_ATTENTION = ("flash3", "cudnn", "cudnn_fp8", "cudnn_mxfp8")
ELEMENTWISE_STYLES = ("fused", "compiled", "eager")
UNUSABLE_PCT = 50.0
"""The error above which a fit is not used."""
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")


@dataclass(frozen=True, config=CONFIG)
class Evidence:
    """The evidence for one part of a profile: one row of `itertime profile show`.

    Errors are mean absolute percentage errors over `rows` rows, None without a measurement to compare with.
    `error_held_out_pct` is on rows that the coefficients were not fitted to; `note` says which. `measured`
    gives the range of each argument (m, n, k; bytes; head_dim, seq; width; ranks) over these rows.

    "unusable": no rows measure the part, or a fit misses them by more than `UNUSABLE_PCT`. `source` is then
    what stands in, and a prediction that needs the part names it.
    """

    part: str
    kind: Literal["measured", "fitted", "assumed", "unusable"]
    source: str
    rows: Whole
    error_in_sample_pct: NonNegative | None = None
    error_held_out_pct: NonNegative | None = None
    note: str = ""
    measured: dict[str, tuple[NonNegative, NonNegative]] = dataclasses.field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> Evidence:
        for argument, (low, high) in self.measured.items():
            if low > high:
                raise ValueError(f"measured.{argument}: {low:g} is above {high:g}")
        return self


@dataclass(frozen=True, config=CONFIG)
class Profile:
    """Times of one GPU type's kernels, in seconds: `seconds` answers the queries of `kernels/queries.py`.

    A profile describes an undisturbed GPU, without site multipliers. `launch_s` is the time of the smallest
    kernel, not `Site.launch_s`. `memory_bytes` is the GPU's total as CUDA reports it. `gemm` is the model of
    16-bit products, `gemm_precisions` holds those of other precisions, `grouped_gemm` those of experts'
    products by precision. `power` states the limit at which the GEMMs run, and what another limit changes.
    `gemm_in_training` is the time of a GEMM between a layer's other kernels over its time alone: a cold L2
    cache, layouts of gradients, sums in 32 bit. `seconds` does not include it. `nvlink_bytes_per_s`: links of
    a GPU, one direction, in the node whose collectives were measured; None: those of the node that is
    predicted. `chip_class` says what a chip is built as whose kernels follow from another one's by data
    sheets; empty for chips with kernels of their own.

    `timed` holds kernels as they were timed; the formulas answer for all others. The profile of a CPU core
    (`is_core`) lacks the kinds of kernels and the collectives that were not timed, and has products in the
    precisions of `gemm_precisions` alone.
    """

    name: str
    gpu: str
    source: str
    peak_flops_per_s: Positive
    hbm_bytes_per_s: Positive
    memory_bytes: Positive
    launch_s: Positive
    gemm: GemmModel
    attention: AttentionModel
    attention_slowdown: dict[str, AttentionSlowdown]
    elementwise: dict[str, ElementwiseModel]
    collectives: dict[str, SizeTable]
    evidence: list[Evidence]
    gemm_precisions: dict[str, GemmModel] = dataclasses.field(default_factory=dict)
    grouped_gemm: dict[str, GemmModel] = dataclasses.field(default_factory=dict)
    power: PowerTerm | None = None
    attention_kernels: dict[str, AttentionModel] = dataclasses.field(default_factory=dict)
    elementwise_styles: dict[str, dict[str, ElementwiseStyle]] = dataclasses.field(default_factory=dict)
    casts: dict[str, CastModel] = dataclasses.field(default_factory=dict)
    gemm_in_training: Positive = 1.0
    nvlink_bytes_per_s: Positive | None = None
    chip_class: str = dataclasses.field(default="", repr=False)  # no time follows from it
    timed: TimedKernels | None = None
    is_core: bool = False

    @model_validator(mode="after")
    def _check(self) -> Profile:
        if self.is_core:
            return self
        for field, required in (
            ("attention_slowdown", OLDER_ATTENTION),
            ("elementwise", ELEMENTWISE_KINDS),
            ("collectives", COLLECTIVES),
        ):
            for name in required:
                if name not in getattr(self, field):
                    raise ValueError(f"{field} lacks {name!r}")
        return self

    @functools.cached_property
    def ranges(self) -> dict[str, dict[str, tuple[float, float]]]:
        """The range that the evidence covers, by kernel ("gemm", "attention", a kind, a collective) and
        argument. Assumed parts have no range.
        """
        return _united(self.evidence)

    @functools.cached_property
    def digest(self) -> str:
        """A hash of everything in the profile: equal for profiles that give equal times."""
        return hashlib.blake2b(repr(self).encode(), digest_size=20).hexdigest()

    @functools.cached_property
    def unusable(self) -> dict[str, str]:
        """What stands in for each unusable part, in words. Parts are named as kernels in `ranges`, products
        with their precision behind a comma.
        """
        unusable_parts = (item for item in self.evidence if item.kind == "unusable")
        return {item.part: f"{item.note}; {item.source}" for item in unusable_parts}

    @property
    def peak_flops(self) -> float:
        """Dense 16-bit peak, FLOP/s."""
        return self.peak_flops_per_s

    @property
    def power_w(self) -> float | None:
        """Power limit of the GPU that the GEMMs' times hold for, watts; None if it is not known."""
        return None if self.power is None else self.power.limit_w

    @property
    def precisions(self) -> tuple[str, ...]:
        """The precisions whose GEMMs the profile has a model of."""
        return (*self._narrow, *self.gemm_precisions)

    @property
    def _narrow(self) -> tuple[str, ...]:
        """16 bit, in which a core of a CPU has no products."""
        return () if self.is_core else ("bf16",)

    @property
    def trained_precisions(self) -> tuple[str, ...]:
        """The precisions in which plans can train: 16 bit, those with a model of GEMMs and of casts, TF32."""
        trained = (name for name in self.gemm_precisions if name in self.casts or name in IN_32_BIT)
        return (*self._narrow, *trained, *(("tf32",) if self._has_tf32 else ()))

    @property
    def _has_tf32(self) -> bool:
        return "V100" not in self.gpu and self.chip_class in ("", "gpu") and not self.is_core  # no TF32 there

    def peak_flops_of(self, precision: str = "bf16") -> float:
        """Dense peak of a precision, FLOP/s. Raises `UserError` if the profile has no model of it."""
        return self.peak_flops_per_s if precision == "bf16" else self._gemm_of(precision).peak_flops_per_s

    def seconds(self, query: Query) -> Array:
        """Seconds of one launch of the kernel that `query` describes, in the common shape of its sizes.

        Raises `UserError` for a precision of products, and `UnknownName` for an attention kernel, a kind or
        style of memory-bound kernels, a precision of casts or a collective that the profile has no model of.
        """
        if self.timed is not None:
            return self.timed.seconds(query, self._untimed.seconds)
        match query:
            case Gemm():
                return self._gemm_of(query.precision).seconds(query.m, query.n, query.k, query.batch)
            case Elementwise():
                return self._elementwise_s(query)
            case Attention():
                return self._attention_s(query)
            case Collective():
                if query.operation not in self.collectives:
                    self._refuse(query.operation)
                    raise UnknownName("collective", query.operation, self.collectives)
                return self.collectives[query.operation].seconds(query.nbytes, query.ranks)
            case Cast():
                return self._cast_s(query)
            case GroupedGemm():
                model = self.grouped_gemm.get(query.precision) or self._gemm_of(query.precision)
                return model.seconds(query.m, query.n, query.k, query.groups)

    @functools.cached_property
    def _untimed(self) -> Profile:
        """The profile with its formulas alone."""
        return dataclasses.replace(self, timed=None)

    def _refuse(self, kernel: str) -> None:
        """Raises `UserError` for a kernel of a CPU that was not timed: nothing stands in for it."""
        if self.is_core:
            raise UserError(
                f"profile {self.name}: {kernel} was not timed, and nothing stands in for it on a CPU; "
                "time it: itertime profile collect --device cpu"
            )

    def _gemm_of(self, precision: str) -> GemmModel:
        """The model of products of a precision. Raises `UserError` if there is none."""
        if precision == "bf16" and not self.is_core:
            return self.gemm
        if precision == "tf32" and self._has_tf32:
            return self._tf32
        if precision not in self.gemm_precisions:
            precisions = ", ".join(self.precisions)
            raise UserError(
                f"profile {self.name}: precision={quoted(precision)}: no GEMM model; it has {precisions}"
            )
        return self.gemm_precisions[precision]

    @functools.cached_property
    def _tf32(self) -> GemmModel:
        model = self.gemm
        return dataclasses.replace(
            model, peak_flops_per_s=model.peak_flops_per_s / 2, bytes_per_s=model.bytes_per_s / 2
        )

    def variant(
        self,
        *,
        power_w: float | None = None,
        hbm_bytes_per_s: float | None = None,
        memory_bytes: float | None = None,
        multiprocessors: int | None = None,
        gpu: str | None = None,
    ) -> Profile:
        """The same chip with another power limit, memory or number of multiprocessors; None: unchanged.

        Memory-bound times follow `hbm_bytes_per_s`; the arithmetic of GEMMs and attention follows `power_w`
        and `multiprocessors` as `PowerTerm` says. Collectives do not change. Raises `UserError` for another
        power limit if the profile states none.
        """
        memory = (hbm_bytes_per_s or self.hbm_bytes_per_s) / self.hbm_bytes_per_s
        count = self.gemm.multiprocessors
        share = (multiprocessors or count) / count
        rate, power = 1.0, self.power
        if power is not None:
            power, rate = power.at(power_w or power.limit_w, share)
        elif power_w is not None:
            raise UserError(f"profile {self.name}: power_w={power_w:g}: the profile states no power limit")

        def gemm(model: GemmModel) -> GemmModel:
            return model.scaled(rate, memory, multiprocessors)

        return dataclasses.replace(
            self,
            gpu=gpu or self.gpu,
            power=power,
            peak_flops_per_s=self.peak_flops_per_s * share,
            hbm_bytes_per_s=hbm_bytes_per_s or self.hbm_bytes_per_s,
            memory_bytes=memory_bytes or self.memory_bytes,
            gemm=gemm(self.gemm),
            gemm_precisions={name: gemm(model) for name, model in self.gemm_precisions.items()},
            grouped_gemm={name: gemm(model) for name, model in self.grouped_gemm.items()},
            attention=self.attention.scaled(rate, memory, multiprocessors),
            attention_kernels={
                name: model.scaled(rate, memory, multiprocessors)
                for name, model in self.attention_kernels.items()
            },
            elementwise={kind: model.scaled(memory) for kind, model in self.elementwise.items()},
            elementwise_styles={
                style: {kind: model.scaled(memory) for kind, model in kinds.items()}
                for style, kinds in self.elementwise_styles.items()
            },
            casts={name: model.scaled(memory) for name, model in self.casts.items()},
        )

    def _attention_s(self, query: Attention) -> Array:
        kernel = query.kernel
        newer = self.attention_kernels.get(kernel.name)
        if newer is not None:
            return newer.seconds(query)
        if kernel.value_dim is not None:
            padded = np.maximum(query.head_dim, kernel.value_dim)
            query = query._replace(head_dim=padded, kernel=kernel._replace(value_dim=None))
        seconds = self.attention.seconds(query)
        if kernel.name == "flash" or kernel.name in NEWER_ATTENTION:
            return seconds
        dim, seq, causal = (
            float(np.max(np.asarray(size))) for size in (query.head_dim, query.seq_kv, query.causal)
        )
        return self.attention_factor(kernel.name, dim, seq, bool(causal)) * seconds

    def attention_factor(self, kernel: str, head_dim: float, seq: float, causal: bool = True) -> float:
        """The time of an attention kernel over that of FlashAttention-2.

        `kernel` is "flash" (1) or one of `OLDER_ATTENTION`. Raises `UnknownName` for another kernel.
        """
        if kernel == "flash":
            return 1.0
        if kernel not in self.attention_slowdown:
            raise UnknownName("attention kernel", kernel, ["flash", *self.attention_slowdown])
        return self.attention_slowdown[kernel].factor(head_dim, seq, causal)

    def _elementwise_s(self, query: Elementwise) -> Array:
        nbytes, kind, width, style, backward = query
        if kind not in self.elementwise:
            self._refuse(kind)
            raise UnknownName("element-wise kind", kind, self.elementwise)
        if style is not None:
            if style not in ELEMENTWISE_STYLES:
                raise UnknownName("element-wise style", style, ELEMENTWISE_STYLES)
            styled = self.elementwise_styles.get(style, {}).get(kind)
            if styled is not None:
                return styled.seconds(nbytes, width, backward)
        return self.elementwise[kind].seconds(nbytes, width)

    def _cast_s(self, query: Cast) -> Array:
        if query.precision == "bf16":
            return np.zeros_like(np.asarray(query.elements, dtype=float))
        if query.precision not in self.casts:
            raise UnknownName("precision of a cast", query.precision, ["bf16", *self.casts])
        return self.casts[query.precision].seconds(query.elements)


def _united(evidence: list[Evidence]) -> dict[str, dict[str, tuple[float, float]]]:
    """The union of the ranges of each kernel's evidence."""
    ranges: dict[str, dict[str, tuple[float, float]]] = {}
    for item in evidence:
        union = ranges.setdefault(_kernel_of(item), {})
        for argument, (low, high) in item.measured.items():
            range_so_far = union.get(argument, (low, high))
            union[argument] = min(low, range_so_far[0]), max(high, range_so_far[1])
    return ranges


def _kernel_of(item: Evidence) -> str:
    """The kernel that an evidence is of: the first word of its part."""
    return re.split(r"[ ,(]", item.part)[0]


def list_profiles() -> list[str]:
    """Names of the shipped profiles, sorted."""
    return sorted(SHIPPED_PROFILES)


def load_profile(name_or_path: str | Path) -> Profile:
    """A shipped profile by name, or one from a JSON file by its path, which is read again where it changed.

    Raises `UnknownName` for a name that is not shipped, `UserError` naming file and key for a wrong file.
    """
    return read_profile(profile_path(name_or_path), profile_state(name_or_path))


def profile_path(name_or_path: str | Path) -> Path:
    """The file of a profile, by name or path. Raises `UnknownName` for a name that is not shipped."""
    text = str(name_or_path)
    is_path = isinstance(name_or_path, Path) or "/" in text or text.endswith(".json")
    if not is_path and text not in SHIPPED_PROFILES:
        raise UnknownName("profile", text, list_profiles())
    return Path(text) if is_path else FOLDER / f"{text}.json"


def profile_state(name_or_path: str | Path) -> tuple[int, ...] | None:
    """The state of a user's profile, by which it is read again; None for a shipped one, and for no file.
    Raises as `profile_path`.
    """
    return None if name_or_path in SHIPPED_PROFILES else file_state(profile_path(name_or_path))


@functools.lru_cache(maxsize=16)
def read_profile(path: Path, state: tuple[int, ...] | None = None) -> Profile:
    """The profile in a file in some state; the last 16 are kept."""
    profile = construct(Profile, read_mapping(path), path)
    _ = profile.digest  # computed here, so that no later call has to
    return profile
