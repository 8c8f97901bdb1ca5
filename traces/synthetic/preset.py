"""Presets: a generated trace after the example of a log, in a file of few numbers.

`load_preset` takes the name of a bundled file (`traces/rules/NAME.preset.yaml`) or the path of another one.
`traces.fitting` makes such a file from a log.
"""

from __future__ import annotations

from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from itertime.errors import UnknownName
from itertime.io import CONFIG, Count, Name, NonNegative, Share, construct, names_file, read_mapping
from traces.workload import FOLDER

from .rhythm import Rhythm
from .sizes import SizeClass, Sizes

__all__ = ["Owners", "Preset", "list_presets", "load_preset", "preset_path"]

_ENDING = ".preset.yaml"
_MOST_OWNERS = 100_000


@dataclass(frozen=True, config=CONFIG)
class Owners:
    """Tenants: the share of the k-th of `count` goes with (k + shift)^-exponent (Zipf-Mandelbrot)."""

    count: Annotated[Count, Field(le=_MOST_OWNERS)]
    exponent: Annotated[NonNegative, Field(le=20)] = 0.0
    shift: NonNegative = 0.0

    @cached_property
    def ends(self) -> list[float]:
        """The cumulative shares, the last of them 1."""
        weights = [(rank + self.shift) ** -self.exponent for rank in range(1, self.count + 1)]
        total = sum(weights)
        return [end / total for end in accumulate(weights)]


@dataclass(frozen=True, config=CONFIG)
class Preset:
    """A preset file.

    | field | meaning |
    |---|---|
    | source | where the numbers come from |
    | sizes | classes of GPU counts with shares and run times, as in a sizes file |
    | arrivals | see `Rhythm` |
    | tenants | see `Owners`; none: all jobs are of one tenant |
    | repeat_share | share of the jobs with the GPUs and the tenant of the job before, as in a sweep |
    """

    source: Name
    sizes: Annotated[tuple[SizeClass, ...], Field(min_length=1)]
    arrivals: Rhythm
    tenants: Owners | None = None
    repeat_share: Annotated[Share, Field(lt=1)] = 0.0

    @cached_property
    def mix(self) -> Sizes:
        """The sizes, as those of a sizes file."""
        return Sizes(self.source, self.sizes)


def list_presets() -> list[str]:
    """Names of the bundled presets, sorted."""
    return sorted(path.name.removesuffix(_ENDING) for path in FOLDER.glob(f"*{_ENDING}"))


def preset_path(name_or_path: str | Path) -> Path:
    """The file of a preset: a path (ending in .yaml, .yml or .json), or that of a bundled name."""
    name = str(name_or_path)
    if names_file(name):
        return Path(name)
    if name not in list_presets():
        raise UnknownName("preset", name, list_presets())
    return FOLDER / f"{name}{_ENDING}"


def load_preset(name_or_path: str | Path) -> Preset:
    """Load a bundled preset by name, or a file. Raises UserError, naming file and key, if unusable."""
    path = preset_path(name_or_path)
    return construct(Preset, read_mapping(path), path)
