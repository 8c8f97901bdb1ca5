"""What `clustersim policies` prints: all policies, and what one of them is."""

from __future__ import annotations

import json as json_text
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from itertime.commandline import print_json

from .terminal import WIDE, plain, say

if TYPE_CHECKING:
    from clustersim.runs.policies import PolicyDetails, PolicyInfo

__all__ = ["print_details", "print_policies"]

_MOST_INDENT = 50  # characters before the sentences of a list


def print_policies(infos: Sequence[PolicyInfo]) -> None:
    """A policy a line: name, planner and one sentence, folded beside them."""
    names, planners = (max(len(getattr(i, part)) for i in infos) for part in ("name", "planner"))
    for info in infos:
        head = f"{info.name:<{names}}  {info.planner:<{planners}}  "
        say(f"{head}{info.summary}", indent=len(head) if len(head) < _MOST_INDENT else 2)
    say("clustersim policies show NAME: paper, parameters and page of one.")


def print_details(details: PolicyDetails, page: str, *, json: bool, wide: bool) -> None:
    """What a policy is, for readers or as JSON."""
    if json:
        print_json({**asdict(details), "parameters": list(map(asdict, details.parameters)), "page": page})
        return
    width = WIDE if wide else None
    say(f"{details.name}", width)
    for paragraph in details.text.split("\n\n"):
        print()
        if paragraph.startswith("    "):  # a formula
            for line in paragraph.split("\n"):
                say(line.strip(), width, indent=4)
        else:
            say(" ".join(paragraph.split()), width, indent=0)
    print()
    for paper in details.papers:
        say(f"Paper: {paper}", width)
    say(f"Planner: {details.planner}", width)
    say(f"GPUs of a job: {'chosen by the policy' if details.elastic else 'as many as it asks for'}", width)
    if details.one_gpu_type:
        say("Clusters: of one GPU type", width)
    if details.equal_nodes:
        say("Nodes: of one size for each GPU type", width)
    say(f"Page: {page}", width)
    if details.parameters:
        print("\nParameters, set by --set policy.NAME=VALUE:")
    for parameter in details.parameters:
        default = "required" if parameter.required else f"default {_as_text(parameter.default)}"
        say(f"  {parameter.name} ({default}): {parameter.meaning}".rstrip(": "), width, indent=6)


def _as_text(value: Any) -> str:
    """A default as `--set` takes it."""
    try:
        return plain(value if isinstance(value, str) else json_text.dumps(value))
    except TypeError:
        return plain(repr(value))
