"""A system of chips that only a data sheet describes, as the files that shipped systems have."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from itertime.errors import UserError, quoted
from itertime.io import check_absent, names_file, write_texts
from itertime.spec import SHIPPED_SYSTEMS, Profile, System, system_of, system_reference
from itertime.spec.references import Reference, in_field_units

from .chip_sheet import MOST_RATIO, SOFTWARE, ChipSheet, ClassFigures, base_of, read_sheet
from .profile_text import plain_values, render
from .sheet_profile import profile_by_sheet

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_VARIANT = ("power_w", "hbm_bytes_per_s", "memory_bytes", "multiprocessors", "usd_per_gpu_hour")
"""Keys of the other system that describe its GPUs, and not its nodes."""
_SWITCHED = "nvls-tree"
"""The algorithm of collectives that sums in NVIDIA's switches."""


class NewSystem(NamedTuple):
    """The texts of a system's file and of its profile's, the profile, and the measured chip behind it."""

    system_text: str
    profile_text: str
    profile: Profile
    base: str


def new_system(
    name: str,
    like: str,
    sheet_path: Path,
    *,
    extends: str = "",
    profile_name: str = "",
    figures: ClassFigures | None = None,
) -> NewSystem:
    """The files of the system `name`: nodes as those of the system `like`, chips and what else the sheet
    says. `extends`, `profile_name`: how its file names that system, and its profile; by default as `like`
    and as the file `name`.json beside it. `figures`: what the chip reaches, where its sheet does not say so;
    by default what its class does.

    Raises UserError, naming file, key, value and remedy, for a name that no file can have, a sheet that
    cannot be used, and another system whose constants belong to its site.
    """
    if not _NAME.fullmatch(name):
        raise UserError(
            f"{quoted(name)}: must consist of small letters, digits, dots and dashes, as dgx-h100 does"
        )
    sheet, nodes = read_sheet(sheet_path)
    if figures is not None and not sheet.die:
        efficiency = sheet.efficiency or figures.efficiency
        experts = sheet.expert_efficiency or figures.expert_efficiency
        sheet = replace(sheet, efficiency=efficiency, expert_efficiency=experts)
    reference = system_reference(like)
    if reference.changes:
        raise UserError(f"--like {like}: must be a name or a file; state changes in the sheet")
    if reference.content.get("site"):
        raise UserError(f"--like {like}: has constants of a site (site); they do not hold for other chips")
    profile = profile_by_sheet(name, sheet)
    content = _node_keys(reference, sheet, nodes)
    _check(name, content, reference, sheet_path)
    content = {"extends": extends or like, "profile": profile_name or f"{name}.json", **content}
    if profile_name.removesuffix(".json") not in ("", name):  # the files have another name
        content = {"name": name, **content}
    lines = [f"{key}: {_scalar(value)}" for key, value in content.items()]
    text = "\n".join([f"# itertime systems new {name} --like {like} --sheet {sheet_path.name}", *lines, ""])
    return NewSystem(text, render(plain_values(profile)), profile, base_of(sheet, sheet_path).name)


def write_system(name: str, like: str, sheet_path: Path, path: Path, *, overwrite: bool = False) -> NewSystem:
    """Write the system `name` to `path`, a YAML file, and its profile beside it, with the ending .json.

    Raises UserError as `new_system`, for the name of a shipped system, for a path that names no YAML file,
    and for files that exist unless `overwrite` says that they may be replaced.
    """
    if name in SHIPPED_SYSTEMS:
        raise UserError(f"{name}: is the name of a shipped system; choose another name")
    if path.suffix not in (".yaml", ".yml"):
        raise UserError(f"{path}: must end in .yaml, as in -o {name}.yaml")
    files, folder = (path, path.with_suffix(".json")), path.parent
    if any(os.path.realpath(path) == os.path.realpath(sheet_path) for path in files):
        raise UserError(
            f"{sheet_path}: is the sheet, which the system {name} would replace; rename one of them"
        )
    check_absent(files, overwrite)
    if not folder.is_dir():
        raise UserError(f"{folder}: is not a folder; make it, or name another one with -o")
    extends = os.path.relpath(like, folder) if names_file(like) else like
    system = new_system(name, like, sheet_path, extends=extends, profile_name=files[1].name)
    write_texts({files[0]: system.system_text, files[1]: system.profile_text})
    return system


def _node_keys(reference: Reference, sheet: ChipSheet, nodes: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of the new system beside the other one's: those of the sheet, and what does not hold for
    other chips.
    """
    content = dict(nodes)
    framework = SOFTWARE.get(sheet.chip_class)
    if framework is not None:
        content.setdefault("framework", framework)
    algorithms = reference.content.get("collective_algorithms", ())
    if _SWITCHED in algorithms and not sheet.die:
        lasting = [algorithm for algorithm in algorithms if algorithm != _SWITCHED]
        content.setdefault("collective_algorithms", lasting)
    for key in _VARIANT:
        if reference.content.get(key) is not None:
            content.setdefault(key, None)
    return {**content, "nvlink_bytes_per_s": sheet.nvlink_bytes_per_s, "source": sheet.source}


def _check(name: str, content: Mapping[str, Any], reference: Reference, sheet_path: Path) -> None:
    """UserError, naming the sheet, if these keys beside those of the other system make no system."""
    keys = in_field_units(System, content, str(sheet_path))
    merged = {key: value for key, value in reference.content.items() if key != "nvlink_slowdown"}
    merged |= {"name": name, "profile": name, **keys}
    system = system_of(Reference(kind=System, where=str(sheet_path), content=merged, files=()))
    ratio = system.nic_bytes_per_s / (system.gpus_per_node * system.nvlink_bytes_per_s)
    if ratio > MOST_RATIO:
        raise UserError(
            f"{sheet_path}: nic_bytes_per_s={system.nic_bytes_per_s:g}: is {ratio:.3g} times all chips' "
            "links; state it in bytes/s, or as nic_gbps in Gb/s"
        )


def _scalar(value: Any) -> str:
    """A value of a system's file: bandwidths in GB/s, texts in quotes where YAML needs them."""
    if isinstance(value, float) and value >= 1e9:
        return f"{value / 1e9!r}e+9"
    return json.dumps(value, ensure_ascii=False) if not isinstance(value, list) else f"[{', '.join(value)}]"
