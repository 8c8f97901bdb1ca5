"""Intervals of predictions: the range of measured over predicted seconds, by GPU, kind of model, framework
and class of plan.

The table `residuals/measured_over_predicted.json` holds the ranges in which nine in ten runs of an unseen
site should lie, computed from published runs. What was not measured widens them: software, GPU, class of
plan. The table repeats all ranges with each source of runs left out, so that `validate` can measure the
coverage of the intervals on that source. A source is the organisation that measured, whatever the file and
the precision.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from itertime.io import MAX_BYTES, read_text
from itertime.spec import DEFAULT_RULES, ModelSpec, Plan, System, load_framework, profile_of, stalled_sends

TABLE = Path(__file__).parents[1] / "residuals" / "measured_over_predicted.json"
CHIPS_TABLE = Path(__file__).parents[1] / "residuals" / "chips_by_sheet.json"
LEVEL = 0.9
SMALL_HIDDEN = 2048
LONG_TOKENS = 32_768
CLASSES = {
    "low-rank": "low-rank matrices beside frozen weights (LoRA)",
    "context": f"context parallelism, or sequences of {LONG_TOKENS:,} tokens and more",
    "small": f"hidden size of {SMALL_HIDDEN} or less: launch-bound",
    "tp-across-nodes": "tensor parallelism over more than one node",
    "pipeline": "pipeline parallelism",
    "sharded": "ZeRO-2, ZeRO-3, FSDP",
    "zero-1": "ZeRO-1 without a pipeline",
    "tensor": "tensor parallelism in a node, no pipeline",
    "data": "data parallelism alone",
}
GENERATIONS = {
    "a100-80gb": "ampere",
    "h100-80gb": "hopper",
    "h200-141gb": "hopper",
    "b200-180gb": "blackwell",
    "b300-270gb": "blackwell",
    "gb200-186gb": "blackwell",
    "gb300-280gb": "blackwell",
    "h20": "hopper",
}
"""Profiles that borrow each other's ranges, widened, where a GPU has too few runs of its own."""
ANY = "*"  # any GPU, any framework
UNMEASURED = "~"  # in place of a class: one of which no run of the GPU, kind and framework is known
Key = tuple[str, str, str, str]  # profile or generation or ANY, kind, framework, class
Range = tuple[float, float]


@dataclass(frozen=True)
class Ranges:
    """Measured over predicted seconds, lowest and highest, by the keys of `lookups`.

    `evidence`: runs and sources behind a range. `spreads`: standard deviations in percent of what widens
    ranges: differences of "sources"; where they were not measured, of "GPUs", "software" and "plans".
    """

    ranges: Mapping[Key, Range]
    evidence: Mapping[Key, tuple[int, int]] = field(default_factory=dict)
    spreads: Mapping[str, float] = field(default_factory=dict)

    def key_for(self, profile: str, kind: str, framework: str, name: str) -> Key | None:
        """The first of `lookups` that has a range; None if nothing is known."""
        return next((key for key in lookups(profile, kind, framework, name) if key in self.ranges), None)

    def of(self, profile: str, kind: str, framework: str, name: str) -> Range | None:
        key = self.key_for(profile, kind, framework, name)
        return None if key is None else self.ranges[key]

    def basis(self, profile: str, kind: str, framework: str, name: str) -> str:
        """What the width of a range comes from: the runs behind it, and what was not measured."""
        key = self.key_for(profile, kind, framework, name)
        if key is None:
            return ""
        place, _, software, plans = key
        runs, sources = self.evidence.get(key, (0, 0))
        words = "any software" if software == ANY else software
        where = {profile: profile, ANY: "all GPUs"}.get(place, f"{place} GPUs")
        widths = [f"{self.spreads['sources']:.0f} % between sources"]
        if place != profile:
            widths.append(f"{self.spreads['GPUs']:.0f} % as {framework} was not measured on {profile}")
        if software == ANY:
            widths.append(f"{self.spreads['software']:.0f} % as the software {framework} was not measured")
        if plans == UNMEASURED:
            widths.append(f"{self.spreads['plans']:.0f} % as plans of the class {name} were not measured")
        origin = f"{runs:,} runs of {words} on {where} at {sources} source{'s' if sources != 1 else ''}"
        return f"{origin}; {', '.join(widths)}"


def lookups(profile: str, kind: str, framework: str, name: str) -> list[Key]:
    """Where the range of a class of plans is looked up, the most specific first: the software on the GPU, on
    the GPUs of its generation and on all; then any software on each of these.
    """
    generation = GENERATIONS.get(profile)
    places = [profile, *([generation] if generation else []), ANY]
    return [
        (place, kind, software, plans)
        for software in (framework, ANY)
        for place in places
        for plans in (name, UNMEASURED)
    ]


def plan_class(model: ModelSpec, plan: Plan, system: System) -> str:
    """The first of `CLASSES` that the plan belongs to."""
    if model.lora_rank:
        return "low-rank"
    if plan.cp > 1 or model.seq_len >= LONG_TOKENS:
        return "context"
    if model.hidden <= SMALL_HIDDEN:
        return "small"
    if plan.tp > system.domain_gpus:
        return "tp-across-nodes"
    if plan.pp > 1:
        return "pipeline"
    if _shares(plan, plan.options.gradient_shards, 2):
        return "sharded"
    if _shares(plan, plan.options.optimizer_shards, 1):
        return "zero-1"
    return "tensor" if plan.tp > 1 else "data"


def _shares(plan: Plan, shards: int | None, stage: int) -> bool:
    """Whether ranks share what ZeRO shards from `stage` on, or what the options state."""
    return plan.zero_stage >= stage if shards is None else shards > 1


def kind_of(model: ModelSpec) -> str:
    """Dense models and mixtures of experts have intervals of their own."""
    return "mixture" if model.is_mixture else "dense"


def interval_s(
    model: ModelSpec,
    plan: Plan,
    system: System,
    iteration_s: float,
    *,
    framework: str = "",
    without: str = "",
) -> Range | None:
    """The interval in seconds that should hold nine in ten measured iterations, given the predicted seconds.

    A calibrated site has the range of its own held-out runs. A chip that only a data sheet describes has that
    of other models on it, or of other chips of its class. Elsewhere the range is the first of `lookups` that
    is known, with the source `without` left out. `framework`: its name, if it is not that of the system.
    None where no run tells, as of cores of a CPU, and for plans that other rules predict. Where sends may
    stall, the interval reaches from the runs without stalls to those with them.
    """
    if plan.rules != DEFAULT_RULES:
        return None
    relative = system.site.measured_over_predicted or _range_by_sheet(system)
    if relative is None and profile_of(system).is_core:
        return None
    if relative is None:
        relative = _range(without, *_names(model, plan, system, framework))
        if relative is None:
            return None
    fast_s, slow_s = modes_s(plan, system, iteration_s, framework=framework)
    return relative[0] * fast_s, relative[1] * slow_s


def modes_s(plan: Plan, system: System, iteration_s: float, *, framework: str = "") -> Range:
    """The predicted seconds of runs without stalled sends, and of those with them; equal where sends do not
    stall. `iteration_s` are those of the likelier mode; `framework`: its name, if not that of the system.
    """
    if not system.stalling_nodes:
        return iteration_s, iteration_s
    stalled_s, likely = stalled_sends(load_framework(framework or system.framework), system, plan)
    modes = (iteration_s - stalled_s, iteration_s) if likely else (iteration_s, iteration_s + stalled_s)
    return float(modes[0]), float(modes[1])


def interval_basis(model: ModelSpec, plan: Plan, system: System, *, framework: str = "") -> str:
    """What the width of `interval_s` comes from, in words; "" where there is no interval."""
    if plan.rules != DEFAULT_RULES:
        return ""
    if system.site.measured_over_predicted is not None:
        return "the site's own runs, each predicted by constants that were fitted without it"
    if profile_of(system).is_core:
        return ""
    if profile_of(system).chip_class:
        return _basis_by_sheet(system)
    return _basis(*_names(model, plan, system, framework))


def _range_by_sheet(system: System) -> Range | None:
    """The range of a chip that only a data sheet describes; None for chips with kernels of their own."""
    chip_class = profile_of(system).chip_class
    return _pair(_entry_by_sheet(system)[1]["range"]) if chip_class else None


def _basis_by_sheet(system: System) -> str:
    """What the width of such a chip's range comes from, in words."""
    chip_class = profile_of(system).chip_class
    name, entry = _entry_by_sheet(system)
    sheet = "its kernels are scaled by data sheets"
    if name == chip_class:
        return f"{sheet}; what they reach of the peak, by {entry['chips']} other chips of class {chip_class}"
    models = f"{entry['models']} model{'s' if entry['models'] > 1 else ''}"
    return f"{sheet}; what they reach of the peak, by {entry['rows']} runs of {models} on {name}"


def _entry_by_sheet(system: System) -> tuple[str, Mapping[str, Any]]:
    """The entry of a system's chip in `CHIPS_TABLE` and its name there, that of its class if it has none."""
    chips, chip_class = _chips_table(), profile_of(system).chip_class
    if system.profile in chips["chips"]:
        return system.profile, chips["chips"][system.profile]
    return chip_class, chips["classes"][chip_class]


@functools.cache
def _chips_table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(read_text(CHIPS_TABLE, MAX_BYTES))
    return table


@functools.cache
def _range(without: str, profile: str, kind: str, framework: str, name: str) -> Range | None:
    return load_ranges(without).of(profile, kind, framework, name)


@functools.cache
def _basis(profile: str, kind: str, framework: str, name: str) -> str:
    return load_ranges().basis(profile, kind, framework, name)


def _names(model: ModelSpec, plan: Plan, system: System, framework: str) -> Key:
    """The arguments of `lookups`."""
    software = framework or load_framework(system.framework).name
    return system.profile, kind_of(model), software, plan_class(model, plan, system)


def conformal_range(ratios: Sequence[float], level: float = LEVEL) -> Range:
    """The range that holds the next ratio with probability `level`, if it is exchangeable with these.

    Split conformal prediction with equal tails (Lei et al. 2018, section 2.2): of n ratios, the ones of ranks
    floor((n + 1) (1 - level) / 2) and ceil((n + 1) (1 + level) / 2), or the extremes if n is too small.
    """
    ordered, count = sorted(ratios), len(ratios)
    rank = min(math.ceil((count + 1) * (1 + level) / 2 - 1e-9), count)
    return ordered[count - rank], ordered[rank - 1]


@functools.cache
def measured_relatives(profile: str) -> tuple[str, ...]:
    """The other profiles of its generation with measured runs, whose ranges a profile borrows."""
    generation = GENERATIONS.get(profile)
    measured = {key[0] for key in load_ranges().ranges}
    related = (
        name
        for name, generation_of_gpu in GENERATIONS.items()
        if generation_of_gpu == generation and name != profile
    )
    return tuple(name for name in related if generation and name in measured)


@functools.cache
def load_ranges(without: str = "") -> Ranges:
    """The shipped ranges, without the runs of the source `without` if they include it."""
    table = _table()
    entry = table["without"].get(without, table["ranges"])
    return Ranges(
        {_key(name): _pair(values) for name, values in entry.items()},
        {_key(name): (int(values[2]), int(values[3])) for name, values in entry.items() if len(values) > 2},
        {name: 100 * sd for name, sd in table["spreads"].items()},
    )


@functools.cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(read_text(TABLE, MAX_BYTES))
    return table


def _key(name: str) -> Key:
    place, kind, framework, plans = name.split("/")
    return place, kind, framework, plans


def _pair(values: Sequence[float]) -> Range:
    low, high = values[:2]
    return low, high
