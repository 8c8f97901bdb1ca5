"""Loops over plain vectors, compiled where that pays.

A module of kernels holds functions of numbers, vectors and named tuples of vectors, and nothing else. They
run as they stand on lists and on arrays. `Kernels` compiles them with numba: the same source, without
`fastmath` and without threads, so that every result is the same to the last bit.

>>> from math import sqrt
>>> kernels = Kernels("math")
>>> kernels.call(sqrt, 9.0)
3.0

When it pays
- Compilation takes `COMPILE_S` seconds of CPU time, once an environment; from then on a process loads the
  machine code in `LOAD_S`. How long a run will be is unknown. So the plain functions run until they have
  taken as long as compilation (or loading) takes. Whatever the length of the run, that is at most twice the
  time of the better choice. A demo, and most cells of a grid, never come so far.
- A process that is about to fork for several long runs loads what there is before (`load_ahead`), once for
  all of them.
- Only time depends on this, never a result. `compile_s` is what it took; manifests state it.

Where machine code lies
- In `__pycache__` beside the module, in a folder of its own for each machine, version and source. The file
  `complete` in it is written last and holds a hash of every other file. So what a killed process has left,
  and what was damaged since, is not loaded but made anew.
- One process compiles at a time; the others go on with the plain functions, and look again later. Where the
  folder cannot be written, a log message says so once, and the plain functions stay.
- `CLUSTERSIM_COMPILE` is `never`, `cached` (load what was compiled, compile nothing; `uncompiled` sets it for
  commands that must not wait) or `always` (as soon as there is something to compile).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import pickle
import platform
import shutil
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.metadata import version
from inspect import isfunction
from math import inf
from pathlib import Path
from time import process_time
from types import FunctionType
from typing import Any, TypeVar

from itertime.errors import UserError
from itertime.io import open_own, read_bytes, write_bytes

__all__ = ["COMPILE_S", "LOAD_S", "VARIABLE", "Kernels", "compile_s", "load_ahead", "uncompiled"]

COMPILE_S = 15.0
"""CPU seconds to compile the kernels of `policies/reservation`, as `timings.compile_s` of a run states."""
LOAD_S = 0.4
"""CPU seconds to import numba and load the machine code; measured likewise."""
VARIABLE = "CLUSTERSIM_COMPILE"
_COMPLETE, _TYPES, _LARGEST_FILE = "complete", "types", 50_000_000
_Answer = TypeVar("_Answer")
_log = logging.getLogger("clustersim")
_seconds: list[float] = []  # of every compilation and load of this process
_kernels: list[Kernels] = []  # of this process


def compile_s() -> float:
    """CPU seconds that this process has spent so far on compiling and loading kernels."""
    return sum(_seconds)


def load_ahead() -> None:
    """Load the machine code of all kernels of this process for which there is any; compile nothing."""
    for kernels in _kernels:
        kernels.load()


@contextmanager
def uncompiled() -> Iterator[None]:
    """Compile nothing meanwhile, here and in processes that are started."""
    setting = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = "cached"
    try:
        yield
    finally:
        if setting is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = setting


class Kernels:
    """The functions of a module, plain until it pays to compile them.

    `spent_s`: CPU seconds in plain functions so far.
    """

    def __init__(self, module: str):
        self._module = module
        self._compiled: dict[str, Callable[..., Any]] = {}
        self._limit_s: float | None = None  # compile when the plain functions have taken so long
        self.spent_s = 0.0
        _kernels.append(self)

    def call(self, function: Callable[..., _Answer], *arguments: Any) -> _Answer:
        """The answer of a function of the module, by machine code if there is any for it."""
        machine_code = self._compiled.get(function.__name__)
        if machine_code is not None:
            answer: _Answer = machine_code(*arguments)
            return answer
        began = process_time()
        answer = function(*arguments)
        self.spent_s += process_time() - began
        return answer

    @property
    def compiled(self) -> bool:
        return bool(self._compiled)

    def worth_compiling(self) -> bool:
        """Whether the plain functions have taken as long as it takes to have machine code."""
        if self._limit_s is None:
            mode = os.environ.get(VARIABLE, "")
            self._limit_s = inf if mode == "never" else 0.0 if mode == "always" else LOAD_S
        return self.spent_s >= self._limit_s

    def compile_for(self, calls: Mapping[Callable[..., Any], tuple[Any, ...]]) -> bool:
        """Have machine code for the functions that are called from outside, each with arguments of the types
        that it will get: numbers, arrays and named tuples of arrays. Returns whether there is machine code
        from now on. If not, `worth_compiling` is false again, for a while or for good.
        """
        if not self._compiled:
            began = process_time()
            try:
                self._have_machine_code(calls)
            except (OSError, ImportError) as error:
                self._limit_s = inf
                _say_once(f"{self._module} runs uncompiled, which takes longer: {error}")
            finally:
                _seconds.append(process_time() - began)
        return bool(self._compiled)

    def load(self) -> None:
        """Have the machine code that there is."""
        if self._compiled or os.environ.get(VARIABLE, "") == "never":
            return
        began = process_time()
        with suppress(OSError, ImportError):
            folder = _folder_of(self._module)
            if _is_complete(folder):
                self._compiled = _machine_code(self._module, folder)
        _seconds.append(process_time() - began)

    def _have_machine_code(self, calls: Mapping[Callable[..., Any], tuple[Any, ...]]) -> None:
        folder = _folder_of(self._module)
        if _is_complete(folder):
            self._compiled = _machine_code(self._module, folder)
            return
        mode = os.environ.get(VARIABLE, "")
        if mode == "cached" or (self.spent_s < COMPILE_S and mode != "always"):
            self._limit_s = inf if mode == "cached" else COMPILE_S
            return
        folder.parent.mkdir(exist_ok=True)
        with _locked(folder.with_suffix(".lock")) as is_ours:
            if not is_ours:
                self._limit_s = self.spent_s + LOAD_S
                return
            if not _is_complete(folder):
                _remove_former(folder)
                folder.mkdir()
                _write_types(folder, calls)
                self._compiled = _machine_code(self._module, folder)
                write_bytes(folder / _COMPLETE, json.dumps(_hashes(folder)).encode())
                return
        self._compiled = _machine_code(self._module, folder)


def _write_types(folder: Path, calls: Mapping[Callable[..., Any], tuple[Any, ...]]) -> None:
    """Note what the functions that are called from outside are called with, as numba's types by name."""
    import numba

    types = {entry.__name__: tuple(map(numba.typeof, arguments)) for entry, arguments in calls.items()}
    write_bytes(folder / _TYPES, pickle.dumps(types))


def _machine_code(module: str, folder: Path) -> dict[str, Callable[..., Any]]:
    """Compile for the types that are noted in `folder`, or load from there. The twins of the plain functions
    call each other by the same names.

    What is returned are the entry points of the machine code: numba's own functions look up the types of all
    arguments at each call, which takes longer than most calls.
    """
    import numba

    _offer_bisect()
    namespace = dict(vars(import_module(module)))
    functions = [f for f in namespace.values() if isfunction(f) and f.__module__ == module]
    settings: Any = numba.config
    before, settings.CACHE_DIR = settings.CACHE_DIR, str(folder)
    try:
        for function in functions:
            twin = FunctionType(function.__code__, namespace, function.__name__, function.__defaults__)
            namespace[function.__name__] = numba.njit(cache=True)(twin)
        entries = pickle.loads(read_bytes(folder / _TYPES))  # ours, as the machine code beside it
        return {name: namespace[name].compile(types) for name, types in entries.items()}
    finally:
        settings.CACHE_DIR = before


def _offer_bisect() -> None:
    """Let machine code call `bisect_left`, which numba does not know."""
    from numba.extending import overload

    @overload(bisect_left)
    def bisect_left_of(values: Any, value: Any) -> Callable[[Any, Any], int]:
        def place(values: Any, value: Any) -> int:
            low, high = 0, len(values)
            while low < high:
                middle = (low + high) // 2
                if values[middle] < value:
                    low = middle + 1
                else:
                    high = middle
            return low

        return place


def _folder_of(module: str) -> Path:
    """Where the machine code of a module lies: by machine, versions and source, also of the modules beside
    it, which state the types of its arguments.
    """
    source = Path(str(import_module(module).__file__))
    made_of = (sys.version, version("numba"), version("llvmlite"), version("numpy"), _processor())
    beside = [(path.name, read_bytes(path)) for path in sorted(source.parent.glob("*.py"))]
    code = (beside, str(source), source.stat().st_mtime_ns)
    return source.parent / "__pycache__" / f"{source.stem}-{_digest(made_of)}-{_digest(code)}"


def _digest(parts: object) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()


def _processor() -> str:
    """What machine code depends on: the kind of processor and its instructions."""
    with suppress(OSError, UserError):
        lines = read_bytes(Path("/proc/cpuinfo")).decode(errors="replace").splitlines()
        return repr(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
    return f"{platform.machine()} {platform.processor()} {platform.node()}"


def _hashes(folder: Path) -> dict[str, str]:
    """The hash of each file in a folder, but that of `complete`."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != _COMPLETE)
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(read_bytes(path, _LARGEST_FILE)).hexdigest()
        for path in files
    }


def _is_complete(folder: Path) -> bool:
    try:
        hashes = _hashes(folder)
        return _TYPES in hashes and json.loads(read_bytes(folder / _COMPLETE, _LARGEST_FILE)) == hashes
    except (OSError, ValueError, UserError):
        return False


def _remove_former(folder: Path) -> None:
    """Remove a folder that is not complete, and those of former sources on the same machine."""
    name = folder.name.rpartition("-")[0]
    for former in folder.parent.glob(f"{name}-*"):
        if former.is_dir():
            shutil.rmtree(former)
        elif former != folder.with_suffix(".lock"):
            former.unlink()


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Whether this process alone holds the lock at `path`. It ends with its holder."""
    with open_own(path) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


_said: set[str] = set()


def _say_once(text: str) -> None:
    if text not in _said:
        _said.add(text)
        _log.warning("%s", text)
