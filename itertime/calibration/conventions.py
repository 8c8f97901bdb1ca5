"""What sources of measured runs mean and document, and no column states: the file `conventions.yaml`. What
the names mean that tables use for GPUs, precisions, CUDA graphs, models and frameworks.

A fact about a source is a line there, with where it is from. The code that reads rows knows no source.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

from pydantic import Field
from pydantic.dataclasses import dataclass

from itertime.errors import UserError
from itertime.io import CONFIG, construct, read_mapping, shown
from itertime.spec import PRECISIONS, ModelSpec, list_models

from .named_rows import Cells


@dataclass(frozen=True, config=CONFIG)
class SiteConventions:
    """The conventions of a site. The defaults are those of a site without any."""

    source: str = ""
    framework: str | None = None
    system: str | None = None
    memory: str | None = None
    model: dict[str, Any] = Field(default_factory=dict)
    shapes: dict[int, dict[str, Any]] = Field(default_factory=dict)
    plan: dict[str, Any] = Field(default_factory=dict)
    overlaps_without_zero: bool = False
    allocated: bool = False
    memory_unit: float = 1.0
    early_stop: str | None = None


@dataclass(frozen=True, config=CONFIG)
class Chip:
    """How a chip is sold, and the system whose nodes hold it, by form and memory."""

    forms: tuple[str, ...]
    systems: dict[str, str]
    usual_gb: str = ""

    def system(self, form: str, memory_gb: str) -> str | None:
        """The system of nodes with this form of the chip; None if there is none."""
        if form not in self.forms:
            return None
        if form == "PCIE":
            return self.systems.get(f"PCIE-{memory_gb}") or self.systems.get("PCIE")
        return self.systems.get(memory_gb or self.usual_gb if self.usual_gb else "")


@dataclass(frozen=True, config=CONFIG)
class Accelerator:
    """A chip that tables name, the system whose nodes hold it, and how many devices of a plan it is."""

    system: str
    devices: int = 1


@dataclass(frozen=True, config=CONFIG)
class BertConventions:
    """What MLPerf's rules and the submitters' codes fix for BERT, and the names of their machines."""

    model: str
    lengths: str
    adam_bucket_bytes: int
    lamb_blocks: int
    custom_cooling_w: dict[str, float]
    servers: dict[str, str]


@dataclass(frozen=True, config=CONFIG)
class Conventions:
    """The content of the file, whose comments say what its keys mean."""

    sites: dict[str, SiteConventions]
    organisations: dict[str, str]
    memories: dict[str, dict[str, Any]]
    usual_power_w: dict[str, float]
    chips: dict[str, Chip]
    accelerators: dict[str, Accelerator]
    scaled_models: dict[str, dict[str, Any]]
    benchmark_names: dict[str, str]
    precisions: dict[str, str]
    software: dict[str, str]
    bert: BertConventions


_FILE = Path(__file__).with_name("conventions.yaml")
CONVENTIONS = construct(Conventions, read_mapping(_FILE), _FILE)


def conventions_of(row: Cells) -> SiteConventions:
    """The conventions of the site that ran a row."""
    return CONVENTIONS.sites.get(row["site"] or "", SiteConventions())


def stated_gb(row: Cells) -> float | None:
    """The memory that a row states, in units of 1e9 bytes; None without one."""
    return None if row["memory_gb"] is None else row["memory_gb"] * conventions_of(row).memory_unit


def source_of(row: Cells, file: str) -> str:
    """The organisation that measured a row of the table `file`: its runs are left out together."""
    site, origin = row["site"] or "", row["source"] or ""
    submitter = re.match(r"mlperf\d+-(.+)", site) or (not site and re.search(r"(\S+)/results/", origin))
    if submitter:
        return f"mlperf-{submitter[1].lower()}"
    return CONVENTIONS.organisations.get(site, site or file)


_GRAPHED = frozenset({"attn", "mlp", "moe", "moe_router", "moe_preprocess"})
"""Parts of a layer that Megatron Core captures in CUDA graphs (`cuda_graph_scope`)."""
_DEEPSPEED_PIPELINE = r"megatron-deepspeed|deepspeed and megatron|mt-?nlg|smith et al|bigscience|\bbloom\b"
_MT_NLG = {"layers": 105, "hidden": 20480, "global_batch": 1920}
_OTHER_LAYERS = (
    r"mamba|nemotron-?h\b|nemotron-?3-?(nano|super|ultra)|nemotron-?nano|jamba|zamba|"
    r"qwen3-?next|qwen3\.5|kimi-?linear"
)


def system_of(gpu: str) -> str:
    """The system whose nodes hold a GPU, as tables name it: `H100-SXM-80GB`, `GB200`, `B300-SXM-288GB`.

    Raises UserError for a GPU, or a form of it, that no profile describes.

    >>> system_of("H100-SXM5-80GB"), system_of("h100-pcie"), system_of("GB300-NVL72")
    ('dgx-h100', 'h100-pcie', 'gb300-nvl72')
    """
    pattern = r"(?:NVIDIA[- ])?([A-Z]{1,2}\d+)[- ]?(?:(SXM|PCIE|NVL)\d*)?[- ]?(?:(\d+) ?GB)?(?:[- ]HBM\d?E?)?"
    match = re.fullmatch(pattern, gpu.upper())
    chip, form, memory = match.groups("") if match else ("", "", "")
    chips = CONVENTIONS.chips
    system = chips[chip].system(form, memory) if chip in chips else None
    if system is None:
        raise UserError(
            f"gpu={shown(gpu)}: no profile for GPU {shown(gpu)}; those known are forms of {', '.join(chips)}"
        )
    return system


def nodes_of(gpu: str) -> str:
    """The system whose nodes hold a GPU of an iteration table: one with kernels of its own (`system_of`), or
    one that only its data sheet describes. Raises UserError as `system_of` does.
    """
    accelerator = _accelerator(gpu)
    if accelerator is None or accelerator.devices > 1:  # such a table counts devices, and names chips
        return system_of(gpu)
    return accelerator.system


def accelerator_of(chip: str) -> Accelerator:
    """The chip that a table of chips names. Raises UserError for one that no system has.

    >>> accelerator_of("TPU7x (Ironwood)").system, accelerator_of("Trainium1 (chip of 2 cores)").devices
    ('tpu7x', 2)
    """
    accelerator = _accelerator(chip)
    if accelerator is not None:
        return accelerator
    try:
        return Accelerator(system_of(chip))
    except UserError:
        raise UserError(
            f"chip={shown(chip)}: no system has it; `itertime systems new` makes one of its data sheet"
        ) from None


def _accelerator(chip: str) -> Accelerator | None:
    named = (entry for pattern, entry in CONVENTIONS.accelerators.items() if re.search(pattern, chip.lower()))
    return next(named, None)


def scaled_model(name: str) -> ModelSpec | None:
    """The model of a benchmark that is published as a rule of scaling, and no model of its own."""
    fields = CONVENTIONS.scaled_models.get(name.lower())
    if fields is None:
        return None
    base = CONVENTIONS.scaled_models.get(fields.get("like", ""), {})
    own = {key: value for key, value in fields.items() if key != "like"}
    return construct(ModelSpec, {"name": name.lower(), **base, **own}, _FILE)


_OF_GPUS = tuple(name for name in PRECISIONS if name != "fp32")


def precision_of(recipe: str | None) -> str:
    """The precision that a recipe's name means. Raises UserError for one that no profile can have.

    >>> precision_of("FP8-CS"), precision_of("fp8_sc"), precision_of("fp8_mx"), precision_of(None)
    ('fp8', 'fp8_block', 'mxfp8', 'bf16')
    """
    name = re.sub(r"[- ]+", "_", (recipe or "bf16").lower())
    if name in _OF_GPUS:
        return name
    for precision, pattern in CONVENTIONS.precisions.items():
        if re.fullmatch(pattern, name):
            return precision
    raise UserError(f"precision={recipe}: no profile has matrices in it; known: {', '.join(_OF_GPUS)}")


def graphs_of(cuda_graphs: str | None, assumed: list[str]) -> str:
    """`cuda_graphs` of a plan. Megatron Core states `implementation:scope`, the scope being the iteration or
    parts of a layer; without a scope it captures whole layers, as does its older scope `full`.
    """
    name = (cuda_graphs or "none").lower()
    if name in ("none", "false", "off", "no"):
        return "none"
    scope = name.rpartition(":")[2]
    if scope == "full_iteration":
        return "full"
    if scope in ("local", "transformer_engine", "full", "true", "layers"):
        return "layers"
    parts = set(re.split(r"[;,+ ]+", scope)) - {""}
    if not parts <= _GRAPHED:
        scopes = ", ".join(sorted(_GRAPHED))
        raise UserError(f"cuda_graphs={cuda_graphs}: must be none, layers, full_iteration, or {scopes}")
    if not parts & {"attn", "mlp", "moe"}:
        assumed.append(
            f"cuda_graphs={cuda_graphs}: taken as none, as attention and experts are launched one by one"
        )
        return "none"
    return "layers"


def software_of(text: str) -> str | None:
    """The framework that a text names, in any case; None if it names none."""
    text = text.lower()
    return next((name for pattern, name in CONVENTIONS.software.items() if re.search(pattern, text)), None)


def trained_by_megatron_deepspeed(text: str, row: dict[str, object]) -> bool:
    """Whether a run without a stated framework went through Megatron-DeepSpeed's pipeline engine: its source
    or note names it, or MT-NLG or BLOOM, which it trained; or it has MT-NLG's layers, width and batch (Smith
    et al. 2022).
    """
    by_name = re.search(_DEEPSPEED_PIPELINE, text.lower()) is not None
    return by_name or all(row[column] == value for column, value in _MT_NLG.items())


def published_names(name: str) -> tuple[str, ...]:
    """Shipped models of this name, however it is punctuated: of exactly this name, or else those of which one
    name begins with the other (`qwen3-235b`, `deepseek-v3-671b`), the longest first.
    """
    plain, names = _plain(name), _names()
    if plain in names:
        return (names[plain],)
    close = [model for model in names if plain and (model.startswith(plain) or plain.startswith(model))]
    return tuple(names[model] for model in sorted(close, key=len, reverse=True))


def unknown_layers(name: str) -> bool:
    """Whether a model of this name has layers of state spaces or of linear attention, which no column states.

    >>> unknown_layers("nemotron-h-56b"), unknown_layers("nemotron4-15b")
    (True, False)
    """
    return re.search(_OTHER_LAYERS, name.lower()) is not None


@functools.cache
def _names() -> dict[str, str]:
    return {_plain(name): name for name in list_models()}


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower().removeprefix("meta-"))
