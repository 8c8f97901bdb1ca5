"""The registered policies with their parameters and defaults, from the registry."""

from __future__ import annotations

import inspect

from clustersim.runs import list_policies
from clustersim.runs.policies import find_policy

from .markdown import table

__all__ = ["policies_page"]

_EMPTY = inspect.Parameter.empty


def policies_page() -> str:
    """A table of all policies, then each with its docstring and its parameters."""
    infos = [info for info in list_policies() if find_policy(info.name).__module__.startswith("policies.")]
    rows = [(f"[`{info.name}`](#{info.name})", info.planner, info.summary) for info in infos]
    parts = [
        "# Policies, parameters, defaults",
        f"The {len(infos)} policies of this project, from the registry: what each does, its planner, and its "
        "parameters with their defaults. A parameter is `--set policy.NAME=VALUE` of the commands, or an "
        "entry of `params` in Python. [Policies](../policies.md) gives the papers, the simplifications "
        "and the reasons.",
        table(("policy", "planner", "summary"), rows),
    ]
    for info in infos:
        parts += [f"## {info.name}", *_section(find_policy(info.name))]
    return "\n\n".join(parts) + "\n"


def _section(cls: type) -> list[str]:
    parameters = [
        (f"`{name}`", f"`{each.annotation}`", "required" if each.default is _EMPTY else f"`{each.default!r}`")
        for name, each in inspect.signature(cls).parameters.items()
    ]
    found = inspect.getdoc(cls) or ""
    shown = table(("parameter", "type", "default"), parameters) if parameters else "No parameters."
    return [found, shown]
