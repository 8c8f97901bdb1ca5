"""`itertime models`, `systems` and `frameworks`: list the shipped ones, and show one with all its values; a
new system by a data sheet; the options of plans, and the shipped lengths of samples.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from itertime.commandline import new_app, print_json
from itertime.errors import UserError, printable

from .options import Json, option

if TYPE_CHECKING:
    from itertime.spec import Framework, Lengths, ModelSpec, Reference, System
    from itertime.spec.shape import TowerKeys

COLUMNS = 80
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)  # of lengths
GBPS = 1e9 / 8  # bytes/s

models_app = new_app("List the shipped models, show one, import one from Hugging Face.")
systems_app = new_app("List the shipped systems, show one, make one from a data sheet.")
frameworks_app = new_app("List the shipped frameworks, show one.")
for app in (models_app, systems_app, frameworks_app):
    app.info.no_args_is_help = False
    app.info.invoke_without_command = True
    app.info.subcommand_metavar = "[COMMAND]"

ModelArgument = Annotated[
    str, typer.Argument(help="A name (see `itertime models`), a YAML file, or Hugging Face's config.json.")
]
SystemArgument = Annotated[str, typer.Argument(help="A name (see `itertime systems`) or a YAML file.")]
FrameworkArgument = Annotated[str, typer.Argument(help="A name (see `itertime frameworks`) or a YAML file.")]


@models_app.callback()
def models(context: typer.Context, json: Json = False) -> None:
    """List the shipped models: size, shape, and how well a prediction can represent them.

    `show` has all values of a model, its source, and what a prediction leaves out.
    """
    if context.invoked_subcommand is not None:
        return
    from itertime.spec import list_models, load_model, refusal_of

    specs = [load_model(name) for name in list_models()]
    if json:
        print_json({"models": [_model_row(spec) for spec in specs]})
        return
    head = ("model", "params B", "active B", "layers", "width", "heads", "tokens")
    print("{:<20}{:>9}{:>9}{:>7}{:>7}{:>8}{:>7}  prediction".format(*head))
    for spec in specs:
        active = f"{spec.active_parameters / 1e9:.1f}" if spec.is_mixture else ""
        heads = f"{spec.heads}/{spec.kv_heads}"
        print(
            f"{spec.name:<20}{spec.parameters / 1e9:>9.2f}{active:>9}{spec.layers:>7}{spec.hidden:>7}"
            f"{heads:>8}{spec.seq_len:>7}  {_fidelity(spec)}"
        )
    refused = sum(bool(refusal_of(spec)) for spec in specs)
    print(f"{len(specs)} models, {refused} of them refused; `itertime models show MODEL` says why")


@models_app.command("show")
def show_model(model: ModelArgument, json: Json = False) -> None:
    """Show a model: its parameters, all its values, their source, and what a prediction leaves out."""
    from itertime.spec import approximations_of, model_of, model_reference, refusal_of

    reference = model_reference(model)
    spec = model_of(reference)
    kinds = {name: dict(keys) for name, keys in spec.kinds}
    towers = {name: _tower_keys(keys) for name, keys in spec.towers}
    values = _field_values(spec) | {"head_dim": spec.head_width, "kinds": kinds, "towers": towers}
    if json:
        print_json(
            _document(reference, spec, values)
            | {
                "parameters": spec.parameters,
                "active_parameters": spec.active_parameters,
                "approximations": list(approximations_of(spec)),
                "refusal": refusal_of(spec) or None,
            }
        )
        return
    published = f" (published: {spec.parameters_published})" if spec.parameters_published else ""
    print(f"{printable(spec.name)}: {spec.parameters / 1e9:,.3f} billion parameters{published}")
    if spec.is_mixture:
        published = spec.active_parameters_published
        published = f" (published: {published})" if published else ""
        print(f"a token passes {spec.active_parameters / 1e9:,.3f} billion of them{published}")
    if spec.mtp_layers:
        print(f"MTP heads have {spec.mtp_parameters / 1e9:,.3f} billion beside them")
    own_lines = ("approximations", "parameters_published", "active_parameters_published")
    for key, entries in (("kinds", kinds), ("towers", towers)):
        values[key] = {
            name: ", ".join(f"{key}={_shown(value)}" for key, value in keys.items())
            for name, keys in entries.items()
        }
    _print_values(reference, {name: value for name, value in values.items() if name not in own_lines})
    for text in approximations_of(spec):
        _print_wrapped("approximation", text)
    if reason := refusal_of(spec):
        _print_wrapped("not predicted", f"{reason}.")


def _tower_keys(keys: TowerKeys) -> dict[str, Any]:
    """Keys of a tower that are not at their defaults."""
    defaults = {field.name: getattr(field.default, "default", field.default) for field in fields(keys)}
    return {name: value for name, value in vars(keys).items() if name in defaults and value != defaults[name]}


@models_app.command("import")
def import_model(
    config: Annotated[Path, typer.Argument(help="A config.json of Hugging Face Transformers.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="The model file to write (YAML).", show_default=False),
    ] = None,
    force: Annotated[bool, option("--force", "Replace the file if it exists.")] = False,
) -> None:
    """Make a model file of a config.json, count its parameters, and refuse keys that are not understood.

    A file that exists is refused, unless it has the same content.
    """
    from itertime.io import check_absent, read_mapping, write_text
    from itertime.spec import ModelSpec, refusal_of
    from itertime.spec.hub import imported_model

    if output is not None and output.suffix not in (".yaml", ".yml"):
        raise UserError(f"-o {printable(str(output))}: must end in .yaml, as in -o model.yaml")
    model = imported_model(read_mapping(config), config)
    spec = ModelSpec(**model.keys)
    active = f", of which a token passes {spec.active_parameters:,}" if spec.is_mixture else ""
    counted = f"{printable(spec.name)}: {spec.parameters:,} parameters{active}"
    if output is None:
        print(f"# {counted}\n{model.text}", end="")
        return
    check_absent([output], force, model.text)
    write_text(output, model.text)
    print(counted)
    for text in model.keys.get("approximations", ()):
        _print_wrapped("approximation", text)
    if reason := refusal_of(spec):
        _print_wrapped("not predicted", f"{reason}.")
    print(f"written: {printable(str(output))}")


@systems_app.callback()
def systems(context: typer.Context, json: Json = False) -> None:
    """List the shipped systems: GPUs, links within a node, NICs.

    `show` has all values of a system, and their source.
    """
    if context.invoked_subcommand is not None:
        return
    from itertime.spec import list_systems, load_system

    specs = [load_system(name) for name in list_systems()]
    if json:
        keys = ("name", "profile", "gpus_per_node", "nic_bytes_per_s", "nvlink_bytes_per_s", "source")
        print_json({"systems": [{key: getattr(spec, key) for key in keys} for spec in specs]})
        return
    head = ("system", "node", "NVLink GB/s a GPU", "NICs Gb/s a node")
    print("{:<20}{:<18}{:>19}{:>18}".format(*head))
    for spec in specs:
        node = f"{spec.gpus_per_node} x {spec.profile}"
        nvlink, nics = spec.nvlink_bytes_per_s / 1e9, spec.nic_bytes_per_s / GBPS
        print(f"{spec.name:<20}{node:<18}{nvlink:>19,.0f}{nics:>18,.0f}")


@systems_app.command("show")
def show_system(system: SystemArgument, json: Json = False) -> None:
    """Show a system: all its values and their source."""
    from itertime.spec import system_of, system_reference

    reference = system_reference(system)
    spec = system_of(reference)
    values = _field_values(spec) | {f"site.{name}": value for name, value in vars(spec.site).items()}
    del values["site"]
    if json:
        print_json(_document(reference, spec, values))
        return
    nics = f"{spec.nic_bytes_per_s / GBPS:,.0f} Gb/s"
    print(f"{printable(spec.name)}: nodes of {spec.gpus_per_node} GPUs with {nics}")
    _print_values(reference, values)


@systems_app.command("new")
def new_system(
    name: Annotated[str, typer.Argument(help="The name of the new system.", show_default=False)],
    like: Annotated[str, option("--like", "The system whose nodes its own are like: a name or a file.")],
    sheet: Annotated[Path, option("--sheet", "The data sheet of its chips (YAML).")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Its file, or a folder; default: NAME.yaml.")
    ] = None,
    force: Annotated[bool, option("--force", "Replace its files if they exist.")] = False,
) -> None:
    """Make a system of chips that no table measures, from their data sheet.

    Writes NAME.yaml and, beside it, NAME.json, its profile. Kernels are those of the nearest measured chip,
    at the ratios of the peaks and of the memory bandwidths.
    """
    from itertime.profiling import write_system

    path = Path() if out is None else out
    path = path / f"{name}.yaml" if path.is_dir() else path
    system = write_system(name, like, sheet, path, overwrite=force)
    print(f"{path}: nodes like {printable(like)}; predict with --system {path}")
    print(f"{path.with_suffix('.json')}: kernels of {system.base}, by data sheets")
    for item in system.profile.evidence:
        _print_wrapped(item.part, item.note)


@frameworks_app.callback()
def frameworks(context: typer.Context, json: Json = False) -> None:
    """List the shipped frameworks: the software that trains, apart from GPU and site.

    `show` has all values of a framework, and their source.
    """
    if context.invoked_subcommand is not None:
        return
    from itertime.spec import list_frameworks, load_framework

    specs = [load_framework(name) for name in list_frameworks()]
    if json:
        print_json({"frameworks": [vars(framework) for framework in specs]})
        return
    head = ("framework", "attention", "fusion", "GEMM times", "TP overlap")
    print("{:<20}{:<12}{:<12}{:>12}{:>16}".format(*head))
    for spec in specs:
        hidden = f"{1 - spec.tp_exposed:.0%} hidden" if spec.tp_overlap else "no"
        print(
            f"{spec.name:<20}{spec.attention:<12}{spec.elementwise:<12}"
            f"{spec.gemm_multiplier:>12.3f}{hidden:>16}"
        )


@frameworks_app.command("show")
def show_framework(framework: FrameworkArgument, json: Json = False) -> None:
    """Show a framework: all its values and their source."""
    from itertime.spec import framework_of, framework_reference

    reference = framework_reference(framework)
    spec = framework_of(reference)
    if json:
        print_json(_document(reference, spec, vars(spec)))
        return
    print(f"{printable(spec.name)}:")
    _print_values(reference, vars(spec))


def lengths(json: Json = False) -> None:
    """List the shipped lengths of samples, which a model names in its key `lengths`: mean and quantiles."""
    from itertime.spec import list_lengths, load_lengths

    distributions = [load_lengths(name) for name in list_lengths()]
    if json:
        print_json({"lengths": [_lengths_row(distribution) for distribution in distributions]})
        return
    head = ("lengths, tokens", "mean", *(f"{q:.0%}" for q in QUANTILES), "longest", "at longest")
    print(f"{head[0]:<17}{''.join(f'{name:>7}' for name in head[1:-2])}{head[-2]:>8}{head[-1]:>11}")
    for distribution in distributions:
        quantiles = "".join(f"{distribution.quantile(q):>7}" for q in QUANTILES)
        longest = f"{distribution.longest:>8}{distribution.shares[-1]:>11.1%}"
        print(f"{distribution.name:<17}{distribution.mean:>7.1f}{quantiles}{longest}")
    print(
        "x %: so many samples are no longer. A model has them as `lengths: NAME`,\n  or a CSV file of its own"
    )


def _lengths_row(distribution: Lengths) -> dict[str, Any]:
    return {
        "name": distribution.name,
        "mean": distribution.mean,
        "mean_square": distribution.mean_square,
        "quantiles": {f"{q:g}": distribution.quantile(q) for q in QUANTILES},
        "longest": distribution.longest,
        "share_at_longest": distribution.shares[-1],
        "source": distribution.source,
    }


def plan_options(json: Json = False) -> None:
    """List the keys of --options: values, the first by default, and meaning."""
    from dataclasses import asdict

    from itertime.io import keys_of
    from itertime.spec import PlanOptions

    keys = list(keys_of(PlanOptions))
    if json:
        print_json({"plan_options": [asdict(key) for key in keys]})
        return
    print("options of a plan: --options KEY=VALUE,KEY=VALUE; what they do to\n  convergence is not predicted")
    for key in keys:
        unit = "" if key.unit in ("", "1") else f" {key.unit}"
        default = f"; default {key.default}" if key.default else ""
        _print_wrapped(key.name, f"{key.values}{unit}{default}")
        print(textwrap.fill(key.text, COLUMNS, initial_indent="    ", subsequent_indent="    "))


def _field_values(spec: ModelSpec | System) -> dict[str, Any]:
    """The values of the keys, without what has been computed from them."""
    return {field.name: getattr(spec, field.name) for field in fields(spec)}


def _model_row(spec: ModelSpec) -> dict[str, Any]:
    from itertime.spec import refusal_of

    counts = {"parameters": spec.parameters, "active_parameters": spec.active_parameters}
    return {**_field_values(spec), **counts, "refusal": refusal_of(spec) or None}


def _fidelity(spec: ModelSpec) -> str:
    from itertime.spec import approximations_of, refusal_of

    if refusal_of(spec):
        return "refused"
    return "approximate" if approximations_of(spec) else "full"


def _document(
    reference: Reference, spec: ModelSpec | System | Framework, values: Mapping[str, Any]
) -> dict[str, Any]:
    from itertime.io import keys_of
    from itertime.spec import resolved_digest

    return {
        "name": spec.name,
        "values": dict(values),
        "units": {key.name: key.unit for key in keys_of(reference.kind) if key.unit},
        "files": [str(path) for path in reference.files],
        "resolved_sha256": resolved_digest(spec),
        "source": spec.source,
    }


def _print_values(reference: Reference, values: Mapping[str, Any]) -> None:
    """Every value with its unit, the source, and the files; defaults are marked."""
    from itertime.io import keys_of, read_mapping

    explicit_keys = {*reference.content, *(f"site.{name}" for name in reference.content.get("site") or {})}
    for key in keys_of(reference.kind):
        if key.name in values and key.name not in ("name", "source"):
            default = "" if key.name in explicit_keys else "  (default)"
            print(f"  {key.name:<32}{_quantity(values[key.name], key.unit)}{default}")
    inherited = len(reference.files) > 1 and "source" not in read_mapping(reference.files[0])
    _print_wrapped("source of what it extends" if inherited else "source", str(values["source"]))
    for number, path in enumerate(reference.files):
        print(f"{'extends' if number else 'file'}: {path}")


def _quantity(value: Any, unit: str) -> str:
    """A value with its unit; a bandwidth also in Gb/s."""
    if unit == "bytes/s" and value is not None:
        return f"{_shown(value)} {unit} ({value / GBPS:,g} Gb/s)"
    return _shown(value) if value is None or unit in ("", "1", "1, 1") else f"{_shown(value)} {unit}"


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_shown(item)}" for name, item in value.items()) or "-"
    if isinstance(value, tuple):
        return ", ".join(_shown(item) for item in value) or "-"
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else printable(str(value))


def _print_wrapped(name: str, text: str) -> None:
    text = printable(f"{name}: {text}")
    print(textwrap.fill(text, COLUMNS, subsequent_indent="  ", break_on_hyphens=False))
