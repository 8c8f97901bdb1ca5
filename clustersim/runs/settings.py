"""What is declared of a setting: a `Setting` beside the type and the default of each field of `RunConfig`.

Everything that handles settings reads these declarations: the checks of `RunConfig`, the set-up of a run, the
manifest, the replay of a run from its manifest, the completion of `--set`, and the tables of docs/runs.md and
of the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cached_property
from typing import Any, get_args, get_type_hints

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from clustersim.cluster import Cluster

__all__ = ["Entry", "Setting"]


class Entry(Enum):
    """What a manifest has of a setting."""

    NEEDED = "an entry; a run without it cannot be simulated again"
    ALWAYS = "an entry, which manifests of earlier versions lack"
    IF_STATED = "an entry where the value is not the default"
    NO = "no entry of its own"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The declaration of a setting, apart from its name, type, bounds and default.

    | attribute | what |
    |---|---|
    | `meaning` | a sentence in Markdown; its links start in `docs` |
    | `default` | the default in words, if the value does not say it |
    | `option`, `off_option` | the options of `run` and `compare` that state it, and that switch it off |
    | `assigned` | the left side of `--set`, where it is neither the name nor `NAME.PART` |
    | `kind` | the class of a setting with parts: `kind.of` makes it of the parts, its fields name them |
    | `parts_beside` | names of parts that `kind.of` takes and that are no fields |
    | `checked` | whether `kind.of` can check the parts before the cluster is known |
    | `field` | the field of `RunSetup` that the setting resolves to; empty if it is no single field |
    | `resolve` | (value, cluster, seed) to the value of that field; by default `kind.of`, or the value |
    | `of_policy` | whether None stands for the attribute of the policy that has the name of the setting |
    | `entry` | what the manifest has of it |

    A setting that is None or an empty list leaves its field of `RunSetup` at the default.
    """

    meaning: str
    default: str = ""
    option: str = ""
    off_option: str = ""
    assigned: str = ""
    kind: Any = None
    parts_beside: tuple[str, ...] = ()
    checked: bool = True
    field: str = ""
    resolve: Callable[[Any, Cluster, int], object] | None = None
    of_policy: bool = False
    entry: Entry = Entry.IF_STATED

    @property
    def parameter(self) -> str:
        """The parameter of a command that is its option; empty if it has none."""
        return self.option.removeprefix("--").replace("-", "_")

    @property
    def parts(self) -> list[str]:
        """The names of its parts; empty if it has none."""
        return [f.name for f in fields(self.kind)] + [*self.parts_beside] if is_dataclass(self.kind) else []

    @cached_property
    def optional_parts(self) -> dict[str, bool] | None:
        """Whether None is a value of each of its parts; None for a setting without parts."""
        if not is_dataclass(self.kind):
            return None
        hints = get_type_hints(self.kind)
        return {name: name in hints and type(None) in get_args(hints[name]) for name in self.parts}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The check of the type, followed by that of the parts."""
        schema = handler(source)
        if self.kind is None or not self.checked:
            return schema
        return core_schema.no_info_after_validator_function(self._with_sound_parts, schema)

    def _with_sound_parts(self, value: Any) -> Any:
        """The value; UserError, which names the part, if `kind.of` refuses it."""
        if value is not None:
            self.kind.of(value)
        return value
