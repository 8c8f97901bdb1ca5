"""Explicit rules that turn a log of GPU counts and run times into jobs with models.

A rules file (YAML) maps ranges of requested GPUs to weighted choices of model, global batch and GPU
multiplier, and states how deadlines are drawn. `load_rules` takes the name of a bundled file (in
`traces/rules/`) or the path of another one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from itertime.errors import UnknownName, UserError
from itertime.io import CONFIG, Count, Name, Positive, Share, construct, names_file, read_mapping, shown
from itertime.spec import Models

__all__ = [
    "FOLDER",
    "Choice",
    "Deadlines",
    "Rules",
    "SizeRule",
    "list_rules",
    "load_rules",
    "rules_path",
]

FOLDER = Path(__file__).parents[1] / "rules"


@dataclass(frozen=True, config=CONFIG)
class Choice:
    """A model and its global batch (sequences), on `gpu_multiplier` x the logged GPUs; drawn by `weight`."""

    model: Name
    global_batch: Count
    gpu_multiplier: Count = 1
    weight: Positive = 1.0


@dataclass(frozen=True, config=CONFIG)
class SizeRule:
    """The choices for jobs that request `gpus` = [lowest, highest] GPUs, both included."""

    gpus: tuple[Count, Count]
    choices: Annotated[tuple[Choice, ...], Field(min_length=1)]


@dataclass(frozen=True, config=CONFIG)
class Deadlines:
    """A `share` of the jobs gets the deadline submit_s + U(low, high) x duration_s; the others get none."""

    low: Positive
    high: Positive
    share: Share = 1.0


@dataclass(frozen=True, config=CONFIG)
class Rules:
    """A rules file. Multiplied GPU counts are rounded up to a multiple of `gpus_multiple_of`, say a node."""

    source: Name
    sizes: Annotated[tuple[SizeRule, ...], Field(min_length=1)]
    deadlines: Deadlines | None = None
    gpus_multiple_of: Count = 1

    def choices(self, gpus: int) -> tuple[Choice, ...]:
        """The choices for a logged GPU count; empty if no rule covers it."""
        return next((rule.choices for rule in self.sizes if rule.gpus[0] <= gpus <= rule.gpus[1]), ())

    def choose(self, gpus: int, uniform: float) -> Choice | None:
        """The choice at quantile `uniform` in [0, 1) of the weights; None if no rule covers `gpus`."""
        choices = self.choices(gpus)
        weight_left = uniform * sum(choice.weight for choice in choices)
        for choice in choices:
            weight_left -= choice.weight
            if weight_left < 0:
                return choice
        return choices[-1] if choices else None

    def requested_gpus(self, gpus: int, choice: Choice) -> int:
        """The GPUs that a job of `gpus` logged GPUs requests under `choice`."""
        return -(-gpus * choice.gpu_multiplier // self.gpus_multiple_of) * self.gpus_multiple_of


def list_rules() -> list[str]:
    """Names of the bundled rules, sorted. Files named NAME.sizes.yaml are size mixes."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml") if "." not in path.stem)


def rules_path(name_or_path: str | Path) -> Path:
    """The file of the rules: a path (ending in .yaml, .yml or .json), or that of a bundled name."""
    name = str(name_or_path)
    if names_file(name):
        return Path(name)
    if name not in list_rules():
        raise UnknownName("rules", name, [*list_rules(), "none"])
    return FOLDER / f"{name}.yaml"


def load_rules(name_or_path: str | Path, models: Models | None = None) -> Rules:
    """Load bundled rules by name, or a file. They choose among `models`, by default the shipped ones. Raises
    UserError, naming file and key, for unusable rules.
    """
    path = rules_path(name_or_path)
    rules = construct(Rules, read_mapping(path), path)
    _check_ranges(rules, path)
    _check_models(rules, path, models or Models())
    if rules.deadlines and rules.deadlines.low > rules.deadlines.high:
        raise UserError(f"{path}: deadlines.low={rules.deadlines.low}: is above deadlines.high; swap them")
    return rules


def _check_ranges(rules: Rules, path: Path) -> None:
    covered = 0
    for index, rule in enumerate(rules.sizes):
        low, high = rule.gpus
        where = f"{path}: sizes.{index}.gpus=[{low}, {high}]"
        if low > high:
            raise UserError(f"{where}: the lowest count is above the highest; swap them")
        if low <= covered:
            raise UserError(f"{where}: overlaps or precedes the range before it; list ranges upwards")
        covered = high


def _check_models(rules: Rules, path: Path, models: Models) -> None:
    model_names = models.names()
    for index, rule in enumerate(rules.sizes):
        for position, choice in enumerate(rule.choices):
            where = f"{path}: sizes.{index}.choices.{position}.model"
            if choice.model not in model_names:
                raise UserError(f"{where}: {UnknownName('model', choice.model, model_names)}")
            try:
                models.find(choice.model)
            except UserError as error:
                raise UserError(f"{where}={shown(choice.model)}: {error}") from None
