"""Loads a policy's file together with the modules beside it.

`import helper` in the file, or in a module beside it, finds `helper.py` in the file's folder, as if the file
were run as a script. `sys.path` stays as it is: the modules belong to this policy alone, under a package of
its own. Policies in two folders can have helpers of the same name, and a helper hides no installed module
from the rest of the program. Modules of Python and the packages of this project are never taken from the
folder.
"""

from __future__ import annotations

import builtins
import hashlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["load_policy_file"]

_PREFIX = "clustersim_policy_"
_NEVER_BESIDE = sys.stdlib_module_names | {"clustersim", "itertime", "policies", "traces"}


def load_policy_file(path: Path) -> ModuleType:
    """The module in a file, executed anew, and with it the modules beside it that it imports. Whatever it
    raises.
    """
    folder = Path(os.path.abspath(path)).parent
    package = ModuleType(_PREFIX + hashlib.sha256(os.path.abspath(path).encode()).hexdigest()[:12])
    package.__path__ = [str(folder)]
    for name in [name for name in sys.modules if name.startswith(f"{package.__name__}.")]:
        del sys.modules[name]  # of an earlier load; the file may have changed since
    sys.modules[package.__name__] = package
    _BESIDE.builtins[package.__name__] = vars(builtins) | {"__import__": _importer(package, folder)}
    name = f"{package.__name__}.{path.stem}"
    spec = spec_from_file_location(name, path, loader=_Loader(name, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickling look their module up
    spec.loader.exec_module(module)
    return module


def _importer(package: ModuleType, folder: Path) -> Callable[..., Any]:
    """`__import__` for the modules of a policy's folder."""
    beside: dict[str, bool] = {}

    def import_(
        name: str, globals: Mapping[str, object] | None = None, locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (), level: int = 0,
    ) -> ModuleType:  # fmt: skip
        top = name.partition(".")[0]
        if not level and top not in beside:
            beside[top] = _is_beside(top, folder)
        if level or not beside[top]:
            return __import__(name, globals, locals, fromlist or (), level)
        module = __import__(f"{package.__name__}.{name}", globals, locals, fromlist or ())
        return module if fromlist else sys.modules[f"{package.__name__}.{top}"]

    return import_


def _is_beside(top: str, folder: Path) -> bool:
    """Whether a top-level module is one of the folder: a file, a package, or a folder of modules whose name
    no installed module has.
    """
    if top in _NEVER_BESIDE:
        return False
    inner = folder / top
    if inner.with_name(f"{top}.py").is_file() or (inner / "__init__.py").is_file():
        return True
    return inner.is_dir() and find_spec(top) is None


class _Loader(SourceFileLoader):
    """Executes a module under the builtins of its policy. It neither reads nor writes byte code, which is
    outdated after a change within the second that keeps the size.
    """

    def exec_module(self, module: ModuleType) -> None:
        package = module.__name__.partition(".")[0]
        module.__dict__["__builtins__"] = _BESIDE.builtins[package]
        path = self.get_filename(module.__name__)
        exec(self.source_to_code(self.get_data(path), path), module.__dict__)


class _Beside(MetaPathFinder):
    """Finds the modules of the packages that stand for the folders of policies. `builtins`: by package."""

    def __init__(self) -> None:
        self.builtins: dict[str, dict[str, Any]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in self.builtins:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, str(spec.loader.path))
        return spec


_BESIDE = _Beside()
sys.meta_path.insert(0, _BESIDE)
