"""Options that several commands share, alone and in groups (`option_groups`), and what they turn into."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from itertime.errors import shown

from .documents import wrapped

if TYPE_CHECKING:
    from itertime.planning import Space
    from itertime.spec import ModelSpec, Reference, System


def option(name: str, text: str, panel: str | None = None, **bounds: Any) -> Any:
    """An option of a command: its name, its help, the panel that the help stands in, and `min` or `max`."""
    return typer.Option(name, help=text, rich_help_panel=panel, **bounds)


OWNERS = ("model.", "system.")
DEGREES, MEMORY, EXECUTION = "Parallelism and batches", "Memory", "How layers and exchanges run"
_TRIED = "Plans to try"

ModelName = Annotated[str, option("--model", "A name (see `itertime models`) or a YAML file.")]
SystemName = Annotated[str, option("--system", "A name (see `itertime systems`) or a YAML file.")]
SeqLen = Annotated[int | None, option("--seq-len", "Tokens per sequence; default: the model's own.", min=1)]
Attention = Annotated[str | None, option("--attention", "core or flash; default: the model's own.")]
Freeze = Annotated[
    str | None,
    option("--freeze", "What is not trained, with commas: layers, embedding, head, kinds of layers, towers."),
]
Settings = Annotated[
    list[str] | None,
    option("--set", "system.KEY=VALUE or model.KEY=VALUE, as in system.nic_gbps=400; repeatable."),
]
MEMORY_HEADROOM = 0.07  # as in itertime.costs, which takes long to import
Headroom = Annotated[
    float,
    option(
        "--memory-headroom", "Share of the GPU's memory that a plan must leave free to fit, below 1.", MEMORY
    ),
]
UsdPerGpuHour = Annotated[
    float | None,
    option("--price", "Dollars per GPU-hour; default: the system's, or 5 where it states none."),
]
Json = Annotated[bool, option("--json", "Print one JSON document.")]
Tp = Annotated[int, option("--tp", "Tensor parallelism.", DEGREES, min=1)]
MicroBatch = Annotated[int, option("--micro-batch", "Sequences per micro-batch.", DEGREES, min=1)]
GlobalBatch = Annotated[int, option("--global-batch", "Sequences per iteration.", min=1)]
Recompute = Annotated[
    str,
    option("--recompute", "full, early-stop, selective, elementwise, none, or modules: moe_act,...", MEMORY),
]
SequenceParallel = Annotated[bool, option("--sequence-parallel", "Split norms and dropout over tp.", DEGREES)]
Fp32Gradients = Annotated[
    bool, option("--fp32-gradients", "Accumulate and exchange gradients in 32 bits.", MEMORY)
]
Cp = Annotated[int, option("--cp", "Context parallelism: ranks that share a sequence.", DEGREES, min=1)]
Ep = Annotated[int, option("--ep", "Expert parallelism: ranks that share the experts.", DEGREES, min=1)]


Precision = Annotated[
    str,
    option(
        "--precision", "Of the layers' matrices: bf16, fp8, fp8_block, mxfp8, nvfp4, tf32, fp32.", EXECUTION
    ),
]
FrameworkName = Annotated[
    str | None,
    option("--framework", "A name (see `itertime frameworks`) or a YAML file; default: the system's."),
]
Etp = Annotated[
    int | None, option("--etp", "Tensor parallelism of the experts; default: as --tp.", DEGREES, min=1)
]
TpOverlap = Annotated[
    bool | None,
    option(
        "--tp-overlap/--no-tp-overlap",
        "Hide tensor-parallel communication behind matrix products; default: as the framework does.",
        EXECUTION,
    ),
]
Dispatcher = Annotated[
    str, option("--dispatcher", "Of tokens to their experts: alltoall, deepep or hybridep.", EXECUTION)
]
Rules = Annotated[
    str,
    option(
        "--rules",
        "By which seconds follow from kernels: itertime, or vtrain: those of that paper's artifact.",
        EXECUTION,
    ),
]
Options = Annotated[
    str,
    option(
        "--options",
        "KEY=VALUE,...: batches, balance, clipping, optimizer, ...; see `itertime plan-options`.",
        EXECUTION,
    ),
]


def model_of(
    name: str,
    seq_len: int | None,
    attention: str | None,
    settings: Sequence[str] | None = None,
    freeze: str | None = None,
) -> ModelSpec:
    """The model of `--model`, `--set model.KEY=VALUE`, `--seq-len`, `--attention` and `--freeze`.

    Says on stderr what predictions of this model leave out. UserError for a model that cannot be predicted.
    """
    from itertime.errors import printable
    from itertime.spec import approximations_of, check_predictable, model_reference

    model = changed_model(model_reference(name), seq_len, attention, settings, freeze)
    check_predictable(model)
    for text in approximations_of(model):
        print(wrapped(printable(f"note: {model.name}: {text}")), file=sys.stderr)
    return model


def changed_model(
    reference: Reference,
    seq_len: int | None,
    attention: str | None,
    settings: Sequence[str] | None,
    freeze: str | None = None,
) -> ModelSpec:
    """The model of these keys, with `--set model.KEY=VALUE`, `--seq-len`, `--attention` and `--freeze`, whose
    names are frozen beside those of the model.
    """
    from itertime.spec import model_of

    changed = reference.changed(_settings_of("model", settings), "--set model.")
    fields: dict[str, Any] = {} if attention is None else {"attention": attention}
    model = model_of(changed)
    if freeze is not None:
        names = [name.strip() for name in freeze.split(",")]
        fields["frozen"] = tuple(dict.fromkeys([*model.frozen, *names]))
    return replace(model.with_seq_len(seq_len), **fields)


def system_of(name: str, settings: Sequence[str] | None = None, framework: str | None = None) -> System:
    """The system of `--system`, `--set system.KEY=VALUE` and `--framework`, whose file is read."""
    from itertime.spec import load_framework, system_of, system_reference

    system = system_of(system_reference(name).changed(_settings_of("system", settings), "--set system."))
    if framework is None:
        return system
    load_framework(framework)
    return replace(system, framework=framework)


def _settings_of(owner: str, settings: Sequence[str] | None) -> list[str]:
    """The settings of `--set` that begin with `owner` and a dot, without these; UserError for any that begin
    with neither owner.
    """
    from itertime.errors import UserError

    for text in settings or ():
        if not text.startswith(OWNERS):
            raise UserError(f"--set {text}: write model.KEY=VALUE or system.KEY=VALUE")
    return [text.removeprefix(f"{owner}.") for text in settings or () if text.startswith(f"{owner}.")]


@dataclass(frozen=True, kw_only=True)
class _NamedModel:
    model: ModelName


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """The options that state on what and how a model trains, whichever it is."""

    system: SystemName
    global_batch: GlobalBatch
    seq_len: SeqLen = None
    attention: Attention = None
    freeze: Freeze = None
    framework: FrameworkName = None
    settings: Settings = None

    def read_system(self) -> System:
        """The system; see `system_of`."""
        return system_of(self.system, self.settings, self.framework)

    def changed(self, model: ModelSpec) -> ModelSpec:
        """A model that no option names, as the options change it."""
        from dataclasses import asdict

        from itertime.spec import Reference

        keys = Reference(kind=type(model), where=model.name, content=asdict(model), files=())
        return changed_model(keys, self.seq_len, self.attention, self.settings, self.freeze)


@dataclass(frozen=True, kw_only=True)
class Subject(Conditions, _NamedModel):
    """The options that state what is predicted: a model, on a system, under a framework."""

    def read_model(self) -> ModelSpec:
        """The model; see `model_of`."""
        return model_of(self.model, self.seq_len, self.attention, self.settings, self.freeze)


@dataclass(frozen=True, kw_only=True)
class Execution:
    """The options that say how layers and exchanges run; a search tries one value of each."""

    etp: Etp = None
    precision: Precision = "bf16"
    grad_overlap: Annotated[
        bool, option("--grad-overlap", "Exchange gradients during the backward pass.", EXECUTION)
    ] = False
    tp_overlap: TpOverlap = None
    ep_overlap: Annotated[
        bool, option("--ep-overlap", "Hide expert-parallel communication behind computation.", EXECUTION)
    ] = False
    dispatcher: Dispatcher = "alltoall"
    cuda_graphs: Annotated[
        str, option("--cuda-graphs", "Launch at once: none, the kernels of layers, or full.", EXECUTION)
    ] = "none"
    rules: Rules = "itertime"
    options: Options = ""


@dataclass(frozen=True, kw_only=True)
class SpaceOptions:
    """The options that say which plans a search tries: a space by name, and in place of some of its choices
    lists of values, or `all`.
    """

    space: Annotated[
        str | None,
        option(
            "--space",
            "full, or vtrain: that of vTrain's studies (no ZeRO, 1F1B, cp 1); default: full, or with "
            "--rules vtrain that.",
            _TRIED,
        ),
    ] = None
    tp: Annotated[
        str | None, option("--tp", "Degrees to try, for example 4,8; all: those within a node.", _TRIED)
    ] = None
    pp: Annotated[
        str | None,
        option("--pp", "Degrees to try; all: those that divide the layers, or these and two more.", _TRIED),
    ] = None
    cp: Annotated[
        str | None,
        option("--cp", "Context parallelism to try; all: powers of two with 8,192 tokens a rank.", _TRIED),
    ] = None
    ep: Annotated[
        str | None, option("--ep", "Expert parallelism to try; all: those that divide the experts.", _TRIED)
    ] = None
    micro_batch: Annotated[str | None, option("--micro-batch", "Sizes to try; all: 1 to 64.", _TRIED)] = None
    interleave: Annotated[
        str | None,
        option(
            "--interleave",
            "Chunks per stage to try, for example 1,2; all: those that divide a stage's layers.",
            _TRIED,
        ),
    ] = None
    sequence_parallel: Annotated[
        bool | None,
        option(
            "--sequence-parallel/--no-sequence-parallel",
            "Only with it, or only without it; default: both.",
            _TRIED,
        ),
    ] = None
    recompute: Annotated[
        str | None,
        option("--recompute", "To try; default: none,selective,full. Modules: moe_act+layernorm.", _TRIED),
    ] = None
    zero: Annotated[str | None, option("--zero", "ZeRO stages to try, for example 0,1.", _TRIED)] = None
    offload_optimizer: Annotated[
        bool, option("--offload-optimizer", "Also try plans that keep and run it on the CPU.", _TRIED)
    ] = False

    def plan_space(self, execution: Execution) -> Space:
        """The plans to look at: those of the named space, except for the choices that options state."""
        from itertime.planning import MICRO_BATCHES, SPACE_OF_RULES, named_space
        from itertime.spec import parse_options

        stated: dict[str, Any] = {}
        for name in ("tp", "pp", "cp", "ep", "micro_batch", "interleave"):
            text = getattr(self, name)
            if text is not None:
                stated[name] = _chosen("--" + name.replace("_", "-"), text)
        if "micro_batch" in stated:
            stated["micro_batch"] = stated["micro_batch"] or MICRO_BATCHES
        if self.recompute is not None:
            stated["recompute"] = words_of(self.recompute)
        if self.zero is not None:
            stated["zero_stage"] = numbers_of("--zero", self.zero)
        if self.sequence_parallel is not None:
            stated["sequence_parallel"] = (self.sequence_parallel,)
        return replace(
            named_space(self.space or SPACE_OF_RULES.get(execution.rules, "full")),
            **stated,
            offload_optimizer=self.offload_optimizer,
            **(vars(execution) | {"options": parse_options(execution.options, "--options")}),
        )

    def frame(self, system: System, space: Space) -> dict[str, str]:
        """What `--json` says of the plans that were looked at."""
        return {
            "space": self._name(space),
            "framework": system.framework,
            "precision": space.precision,
            "rules": space.rules,
        }

    def frame_text(self, system: System, space: Space) -> str:
        """Among which plans a search looked, under which framework and precision they run, and by which rules
        they are predicted, if these are not the default ones.
        """
        from itertime.spec import DEFAULT_RULES

        stated = ", ".join(f"{name} {value}" for name, value in self.replaced_choices.items())
        name = f"{self._name(space)}, but for {stated}" if stated else self._name(space)
        rules = "" if space.rules == DEFAULT_RULES else f"; rules {space.rules}"
        peak = "" if space.precision == "bf16" else ", utilisation of the bf16 peak"
        return f"space {name}; framework {shown(system.framework)}; precision {space.precision}{peak}{rules}"

    def _name(self, space: Space) -> str:
        """The name of the space that was searched, of which `space` may differ by options."""
        from itertime.planning import SPACE_OF_RULES

        return self.space or SPACE_OF_RULES[space.rules]

    @property
    def replaced_choices(self) -> dict[str, str]:
        """The choices of the space that options replace, as text by the name of the option."""
        values = vars(self) | {"offload_optimizer": self.offload_optimizer or None}
        del values["space"]
        return {
            name.replace("_", "-"): str(value).lower() for name, value in values.items() if value is not None
        }


def _chosen(option: str, text: str) -> tuple[int, ...]:
    """The numbers of an option; empty for "all", which leaves the choice to the search."""
    return () if text.strip() == "all" else numbers_of(option, text)


def words_of(text: str) -> tuple[str, ...]:
    """The words of a comma-separated list, each once."""
    return tuple(dict.fromkeys(word.strip() for word in text.split(",")))


def numbers_of(option: str, text: str) -> tuple[int, ...]:
    """The whole numbers of a comma-separated list, each once; otherwise UserError naming the option."""
    from itertime.errors import UserError

    try:
        numbers = tuple(dict.fromkeys(map(int, words_of(text))))
    except ValueError:
        raise UserError(
            f"{option}={text}: must be whole numbers separated by commas, for example 1,2"
        ) from None
    if min(numbers) < 0:
        raise UserError(f"{option}={text}: must not be negative")
    return numbers
