"""The settings of a run, the keys of files and the columns of records, from the classes that hold them."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from itertime.io import keys_of

from .markdown import table

__all__ = [
    "described_keys",
    "described_settings",
    "fields_table",
    "files_page",
    "records_page",
    "section",
    "settings_page",
]

REQUIRED = "required"


def described_keys(kind: type) -> str:
    """The keys of a class whose fields carry unit, values and meaning."""
    rows = [
        (f"`{key.name}`", key.unit, key.values, REQUIRED if key.default is None else key.default, key.text)
        for key in keys_of(kind)
    ]
    return table(("key", "unit", "value", "default", "meaning"), rows)


def fields_table(kind: Any) -> str:
    """The fields of a class with type and default."""
    rows = [(f"`{name}`", f"`{typing}`", default) for name, typing, default in _fields(kind)]
    return table(("name", "type", "default"), rows)


def _fields(kind: Any) -> list[tuple[str, str, str]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [
            (field.alias or name, _type(field.annotation), _value(_default_of(field)))
            for name, field in kind.model_fields.items()
        ]
    if dataclasses.is_dataclass(kind):
        return [
            (field.name, _type(field.type), _value(_default_in(field.default, field.default_factory)))
            for field in dataclasses.fields(kind)
        ]
    defaults = getattr(kind, "_field_defaults", {})
    return [
        (name, _type(kind.__annotations__[name]), _value(defaults.get(name, dataclasses.MISSING)))
        for name in kind._fields
    ]


def _default_of(field: Any) -> Any:
    return field.default_factory() if field.default_factory else field.default


def _default_in(default: Any, factory: Any) -> Any:
    return factory() if factory is not dataclasses.MISSING else default


def _type(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"Annotated\[([^,\]]+),[^\]]*\]", r"\1", text)
    return re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", text)


def _value(value: Any) -> str:
    if value is dataclasses.MISSING or value is PydanticUndefined:
        return REQUIRED
    text = repr(value)
    return f"`{text}`" if len(text) < 80 else "see below"


def section(title: str, kind: Any, text: str | None = None, level: int = 2) -> str:
    """A class as a section: its docstring (or `text`), and its fields where the docstring has no table."""
    words = inspect.getdoc(kind) if text is None else text
    parts = [f"{'#' * level} {title}", words or "", fields_table(kind)]
    return "\n\n".join(part for part in parts if part)


def described_settings(home: str = "") -> str:
    """The settings of a run: how `--set` and options state them, defaults and meanings. `home`: the way from
    the page to the folder `docs`.
    """
    from clustersim.runs import SETTINGS, RunConfig

    rows = []
    for name, setting in SETTINGS.items():
        assigned = setting.assigned or (f"{name}.NAME" if setting.parts else name)
        options = ", ".join(f"`{option}`" for option in (setting.option, setting.off_option) if option)
        default = setting.default or _plain(_default_of(RunConfig.model_fields[name]))
        rows.append((f"`{assigned}`", options, default, setting.meaning.replace("](", f"]({home}")))
    return table(("`--set`", "option", "default", "meaning"), rows)


def _plain(value: Any) -> str:
    """A default as a user writes it."""
    return (
        str(value).lower()
        if isinstance(value, bool)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


def settings_page() -> str:
    """Every setting of a run, and the parts of those that have parts."""
    from clustersim.runs import SETTINGS, RunConfig

    texts = [
        "# Settings",
        "Every setting of a run, with type, default and meaning, read from their declarations. "
        "A setting is a keyword of `clustersim.run`, `--set NAME=VALUE` of the commands, and a key of a "
        "grid. A part of a setting is `--set SETTING.PART=VALUE`. [Runs](../runs.md) explains them in "
        "context.",
        f"## All settings\n\n{described_settings('../')}",
        f"Their types in Python:\n\n{fields_table(RunConfig)}",
    ]
    texts += [section(f"`{name}`", setting.kind) for name, setting in SETTINGS.items() if setting.parts]
    return "\n\n".join(texts) + "\n"


def files_page() -> str:
    """The keys of every kind of YAML file."""
    from clustersim.cluster import clusterfile
    from clustersim.grid import gridfile
    from itertime.spec import ModelSpec, PlanOptions, System
    from traces.synthetic.preset import Owners, Preset
    from traces.synthetic.recipe import Recipe

    texts = [
        "# Keys of YAML files",
        "Every key of the files that clustersim reads, from the classes that check them. Each section links "
        "to the page that explains the file. An unknown key is an error that names the file and the key.",
        f"## Model files\n\nExplained in [Models and systems](../models.md).\n\n{described_keys(ModelSpec)}",
        f"## System files\n\nExplained in [Models and systems](../models.md).\n\n{described_keys(System)}",
        "## Options of a plan\n\nThe keys of `--options` and of the column `plan_options`, explained in "
        f"[Options of a plan](../plan-options.md).\n\n{described_keys(PlanOptions)}",
        "## Cluster files\n\nExplained in [Clusters](../clusters.md) and [Fleets](../fleets.md). A file:\n\n"
        + fields_table(clusterfile.ClusterFile),
        "An entry of `groups`:\n\n" + fields_table(clusterfile.GroupEntry),
        "An entry of `clusters`:\n\n" + fields_table(clusterfile.ClusterEntry),
        "## Grid files\n\nExplained in [Grids](../grids.md).\n\n" + fields_table(gridfile.GridFile),
        section("`limits` of a grid", gridfile.Limits, level=3),
        section("`window` of a grid", gridfile.Window, level=3),
        section(
            "Recipes of generated traces",
            Recipe,
            "The options of `clustersim trace generate`, and the keys of `trace` in a grid. Explained in "
            "[Traces](../traces.md#generating-traces).\n\n" + (inspect.getdoc(Recipe) or ""),
        ),
        section("Presets of generated traces", Preset),
        section("`tenants` of a preset", Owners, level=3),
    ]
    return "\n\n".join(texts) + "\n"


def records_page() -> str:
    """The columns of a trace, and of the records that a run writes."""
    from clustersim.records import EventRecord, JobRecord, PlanRecord, Snapshot
    from traces import Job

    texts = [
        "# Columns of traces and records",
        "Every column of a trace, and of the tables that a run writes, with type and default, from the "
        "classes of one row. [Traces](../traces.md) explains what a trace may hold, and "
        "[Runs](../runs.md#output-files) explains each column of the records.",
        section("A trace", Job),
        section("`jobs.csv`", JobRecord),
        section("`events.csv`", EventRecord),
        section("`usage.csv`", Snapshot),
        section("`plans.csv`", PlanRecord),
    ]
    return "\n\n".join(texts) + "\n"
