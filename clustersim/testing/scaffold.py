"""The template of a new policy and its test, for `clustersim policies new NAME`."""

from __future__ import annotations

import keyword
import re
from pathlib import Path
from string import Template

from itertime.errors import UserError
from itertime.io import MAX_BYTES, read_text, write_text

__all__ = ["write_template"]

_FOLDER = Path(__file__).parent / "templates"
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def write_template(name: str, folder: Path) -> tuple[Path, Path, str]:
    """Write a working policy and its test into `folder`. Returns both files and the name of the class.

    UserError for an invalid name, a missing folder, and files that already exist.
    """
    module, class_name = name.replace("-", "_"), "".join(word.capitalize() for word in name.split("-"))
    if not _NAME.fullmatch(name) or keyword.iskeyword(module) or keyword.iskeyword(class_name):
        raise UserError(f"policy name {name!r}: write lower-case words joined by hyphens, as in my-policy")
    if not folder.is_dir():
        raise UserError(f"{folder}: is not a folder; create it first")
    names = {"name": name, "module": module, "class_name": class_name}
    files = {
        folder / f"{module}.py": "new_policy.py.txt",
        folder / f"test_{module}.py": "new_policy_test.py.txt",
    }
    for path in files:
        if path.exists():
            raise UserError(f"{path}: already exists; choose another name or folder")
    for path, source in files.items():
        text = Template(read_text(_FOLDER / source, MAX_BYTES)).substitute(names)
        write_text(path, text)
    policy, test = files
    return policy, test, class_name
