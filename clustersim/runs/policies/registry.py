"""Policies by name. The engine never uses this module: it does not know which policy it runs.

A policy is registered by an entry point of the group `clustersim.schedulers`, of this package or of any
other, or named as `path/to/file.py:Class`.
"""

from __future__ import annotations

import inspect
import os
import re
import traceback
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from clustersim.errors import PolicyError
from clustersim.scheduler import Scheduler
from itertime.errors import UnknownName, UserError, quoted

from .modules import load_policy_file

__all__ = ["PolicyInfo", "algorithm_of", "find_policy", "list_policies", "make_policy", "parameters_of"]

GROUP = "clustersim.schedulers"
_HERE = str(Path(__file__).parent)
_SYNONYMS = {
    "backfill": ("easy", "conservative", "slurm"),
    "backfilling": ("easy", "conservative", "slurm"),
    "fcfs": ("fifo",),
    "sjf-preemptive": ("srtf",),
    "spt": ("sjf",),
    "vtrain": ("vtrain-aware",),
    "volcano": ("drf", "quota"),
    "kueue": ("quota",),
    "yarn": ("drf", "quota"),
    "gavel": ("gavel-max-min", "gavel-ftf", "gavel-throughput"),
    "fair": ("max-min", "themis", "gavel-ftf"),
    "fairshare": ("multifactor", "slurm", "max-min"),
    "priority": ("multifactor", "slurm"),
    "preemptive": ("srtf", "las", "tiresias"),
    "elastic": ("elasticflow", "vtrain-aware", "pollux", "afs"),
    "deadline": ("edf", "edf-admission", "elasticflow"),
}
"""Words that people use for policies, and the policies that they may mean."""


@dataclass(frozen=True)
class PolicyInfo:
    name: str
    planner: str
    summary: str


@cache
def _registered() -> dict[str, EntryPoint]:
    """The registered policies by name, read once: it takes the metadata of all installed packages."""
    return {entry.name: entry for entry in sorted(entry_points(group=GROUP), key=lambda e: e.name)}


def list_policies() -> list[PolicyInfo]:
    """All registered policies in the order of their names, with the first paragraph of their docstrings."""
    infos = []
    for name in _registered():
        try:
            cls = find_policy(name)
        except PolicyError as error:  # one broken plug-in must not hide the others
            infos.append(PolicyInfo(name, "", f"does not load: {error}"))
            continue
        infos.append(PolicyInfo(name, cls.planner, _summary(cls)))
    return infos


def _summary(cls: type[Scheduler]) -> str:
    """The first paragraph of a policy's docstring, on one line."""
    return " ".join((inspect.getdoc(cls) or "").split("\n\n")[0].split())


def find_policy(name: str) -> type[Scheduler]:
    """The class behind a registered name or `file.py:Class`.

    UnknownName with suggestions; PolicyError if its file cannot be used.
    """
    if ".py:" in name or name.endswith(".py"):
        return _from_file(name)
    entries = _registered()
    if name not in entries:
        raise UnknownName("policy", name, entries, _SYNONYMS)
    try:
        cls = entries[name].load()
    except (Exception, SystemExit) as error:  # a plug-in may raise anything
        raise PolicyError(f"policy {name} ({entries[name].value}) does not load: {_where(error)}") from error
    return _checked(cls, name)


def make_policy(policy: str | type[Scheduler], params: dict[str, Any]) -> Scheduler:
    """An instance of a policy, named or given as a class, with the given parameters. None leaves one as if it
    were not stated, unless None is one of its values.

    UnknownName for a parameter that the policy does not have, UserError for one that is missing or whose
    value the policy refuses, PolicyError if its constructor fails for a reason of its own.
    """
    cls = find_policy(policy) if isinstance(policy, str) else _checked(policy, repr(policy))
    name = policy if isinstance(policy, str) else cls.__name__
    params = {param: value for param, value in params.items() if value is not None or _takes_none(cls, param)}
    _check_names(cls, name, params)
    try:
        return cls(**params)
    except (TypeError, ValueError) as error:
        kind = UserError if params and not _fails_anyway(cls) else PolicyError
        raise kind(f"policy {name}: {error!s:.500}") from None
    except (Exception, SystemExit) as error:
        raise PolicyError(f"policy {name} cannot be made: {_where(error)}") from error


def algorithm_of(policy: type[Scheduler]) -> str | None:
    """The policy that decides as `policy` does, which only plans jobs in another way: its name, or
    `module:Class` of a class without one. None if `policy` decides anything itself.
    """
    base = policy
    while set(vars(base)) <= _OF_A_PLANNER and len(base.__bases__) == 1 and base.__base__ is not Scheduler:
        base = base.__bases__[0]
    if base is policy or not issubclass(base, Scheduler):
        return None
    place = f"{base.__module__}:{base.__qualname__}"
    return next((name for name, entry in _registered().items() if entry.value == place), place)


_OF_A_PLANNER = {*vars(type("_Empty", (Scheduler,), {})), "__annotations__", "__firstlineno__", "planner"}
"""What a class has that differs from its base in the planner alone."""


def _takes_none(cls: type[Scheduler], name: str) -> bool:
    """Whether None may be a value of a parameter: not of one that names a type without it."""
    parameter = inspect.signature(cls).parameters.get(name)
    if parameter is None or parameter.annotation is parameter.empty or parameter.default is None:
        return True
    return re.search(r"\b(None|Optional|Any|object)\b", str(parameter.annotation)) is not None


@lru_cache(maxsize=64)
def parameters_of(cls: type[Scheduler]) -> dict[str, bool]:
    """The parameters of a policy by name, and whether each has a default."""
    parameters = inspect.signature(cls).parameters.values()
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return {parameter.name: parameter.default is not parameter.empty for parameter in named}


def _check_names(cls: type[Scheduler], name: str, params: dict[str, Any]) -> None:
    parameters = parameters_of(cls)  # type: ignore[arg-type]  # mypy looks for the hash of an instance
    for param in params:
        if param not in parameters:
            raise UnknownName(f"parameter of policy {name}", param, parameters or ["(none)"])
    for param, has_default in parameters.items():
        if not has_default and param not in params:
            remedy = f"give it, as in --set policy.{param}=VALUE"
            raise UserError(f"policy {name}: parameter {param} is missing; {remedy}")


def _fails_anyway(cls: type[Scheduler]) -> bool:
    """Whether the constructor fails with default values too: then the given values are not to blame."""
    if not all(parameters_of(cls).values()):  # type: ignore[arg-type]
        return False
    try:
        cls()
    except (Exception, SystemExit):
        return True
    return False


def _from_file(name: str) -> type[Scheduler]:
    file, _, class_name = name.rpartition(":") if ".py:" in name else (name, "", "")
    path = Path(file)
    if not class_name:
        raise UserError(f"policy {quoted(name)}: name the class too, as in {file}:MyScheduler")
    if not os.path.isfile(path):  # Path.is_file raises for a name that is too long
        raise UserError(f"policy {quoted(name)}: there is no file {file}")
    try:
        module = load_policy_file(path)
    except SyntaxError as error:
        raise PolicyError(f"policy file {error.filename or file}:{error.lineno}: {error.msg}") from None
    except (Exception, SystemExit) as error:
        raise PolicyError(f"policy file {file} does not import: {_where(error)}") from None
    if not hasattr(module, class_name):
        classes = [
            key
            for key, value in vars(module).items()
            if inspect.isclass(value) and issubclass(value, Scheduler) and value is not Scheduler
        ]
        raise UnknownName(f"class in {file}", class_name, classes or ["(no Scheduler subclass)"])
    return _checked(getattr(module, class_name), name)


def _where(error: BaseException) -> str:
    """File, line, type and message of an error in a policy."""
    frames = traceback.extract_tb(error.__traceback__)
    outside = [frame for frame in frames if not frame.filename.startswith((_HERE, "<frozen importlib"))]
    frame = (outside or frames)[-1]
    return f"{frame.filename}:{frame.lineno}: {type(error).__name__}: {error}"


def _checked(cls: object, name: str) -> type[Scheduler]:
    if not (inspect.isclass(cls) and issubclass(cls, Scheduler)):
        raise UserError(f"policy {name}: is not a subclass of clustersim.Scheduler; name a class that is")
    if not isinstance(cls.planner, str):
        raise PolicyError(f"policy {name}: planner={quoted(cls.planner)}: must be the name of a planner")
    return cls
