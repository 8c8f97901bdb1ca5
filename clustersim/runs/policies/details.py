"""What a policy says about itself: its docstrings, its parameters, its papers."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from clustersim.scheduler import Scheduler

from .registry import find_policy

__all__ = ["PolicyDetails", "PolicyParameter", "policy_details"]

_AUTHOR = r"[A-Z][\w'-]+(?: [A-Z][\w'-]+)?"
_CITATION = re.compile(
    rf"{_AUTHOR}(?:, {_AUTHOR})*(?: et al\.| and {_AUTHOR})?, \"[^\"]+\",[^.;()]*?\d{{4}}"
    r"|[A-Z][\w-]+ et al\.,[^.;)\"]*?\d{4}"
)
"""Authors, title in quotes, venue and year; or authors, venue and year."""
_SENTENCE = re.compile(r"(?<=[.;])\s+(?=[A-Z`])")


@dataclass(frozen=True)
class PolicyParameter:
    """A keyword argument of a policy: its default as text, and the sentence of the docstrings that names it;
    `required`: it has no default.
    """

    name: str
    default: Any
    required: bool
    meaning: str


@dataclass(frozen=True)
class PolicyDetails:
    """A policy by its class attributes and docstrings. `papers`: the citations in them, in their order."""

    name: str
    planner: str
    elastic: bool
    one_gpu_type: bool
    equal_nodes: bool
    text: str
    papers: tuple[str, ...]
    parameters: tuple[PolicyParameter, ...]


def policy_details(name: str) -> PolicyDetails:
    """What the policy of a registered name or `file.py:Class` is. Raises as `find_policy`."""
    cls = find_policy(name)
    sentences = list(_sentences(cls))
    return PolicyDetails(
        name=name,
        planner=cls.planner,
        elastic=cls.elastic,
        one_gpu_type=cls.one_gpu_type,
        equal_nodes=cls.equal_nodes,
        text=inspect.getdoc(cls) or "",
        papers=tuple(dict.fromkeys(_CITATION.findall(" ".join(sentences)))),
        parameters=tuple(
            PolicyParameter(
                p.name, None if p.default is p.empty else p.default, p.default is p.empty,
                _meaning(p.name, sentences),
            )
            for p in inspect.signature(cls).parameters.values()
            if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ),
    )  # fmt: skip


def _sentences(cls: type[Scheduler]) -> Iterator[str]:
    """The sentences of a policy's docstrings, its module's, and those of policies that it is a variant of. A
    line of an indented block, as of a formula, is one of its own.
    """
    for one in cls.__mro__:
        if one is Scheduler or not issubclass(one, Scheduler):
            return
        for text in (inspect.getdoc(one), inspect.getdoc(sys.modules[one.__module__])):
            for paragraph in (text or "").split("\n\n"):
                if paragraph.startswith("    "):
                    yield from map(str.strip, paragraph.split("\n"))
                else:
                    yield from _SENTENCE.split(" ".join(paragraph.split()))


def _meaning(parameter: str, sentences: Sequence[str]) -> str:
    """The first sentence of the form "`parameter`: ...", else the first with the parameter in backquotes,
    else the first that has its name.
    """
    name = re.escape(parameter)
    for pattern in (rf"^(- )?`{name}`( off)?:", rf"`{name}\b", rf"\b{name}\b"):
        for sentence in sentences:
            if re.search(pattern, sentence):
                return sentence.rstrip(":;").removeprefix("- ")
    return ""
