"""Comparisons and what-ifs that the page starts: the ordinary commands, in processes of their own."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psutil

from clustersim.cluster import Cluster
from clustersim.runs import RunConfig, list_policies
from itertime.errors import UserError, quoted
from itertime.io import open_own, open_regular, read_bytes, replacing, write_text

from .folder import HOME, ServedFolder

__all__ = ["Starter", "command_of"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_SHAPE = re.compile(r"n[1-9]\d{0,4}g[1-9]\d?")
_SETTING = re.compile(r"[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*){0,3}")
_NUMBER = re.compile(r"-?\d{1,12}(?:\.\d{1,9})?(?:e-?\d{1,2})?")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_KINDS = ("compare", "what-if", "demo")
_MOST_POLICIES, _MOST_VALUES, _MOST_AT_ONCE, _MOST_JOBS = 12, 12, 4, 100_000
_MOST_KNOWN = 1000  # commands of earlier servers that are looked for
_TAIL = 2000  # bytes of what a command printed
_LARGEST_ENTRY = 1000  # bytes of what is noted of a process


def command_of(settings: Mapping[str, Any], folder: ServedFolder) -> list[str]:
    """The arguments of `clustersim` for settings from the page, checked.

    | setting | meaning |
    |---|---|
    | `kind` | compare, what-if, or demo (generated jobs) |
    | `name` | of the folder of the results: letters, digits, `_` and `-` |
    | `trace` | one of `folder.traces()`; not for demo |
    | `policies` | registered names; one for what-if |
    | `cluster` | a shape, as n16g8 |
    | `seed` | of all random draws |
    | `jobs`, `load` | of demo |
    | `set`, `vary` | lists of NAME=VALUE, NAME=VALUE,VALUE; values are numbers or words |

    UserError, in one line, for a setting that is missing, malformed or unknown.
    """
    keys = {"kind", "name", "trace", "policies", "cluster", "seed", "jobs", "load", "set", "vary"}
    if unknown := sorted(set(settings) - keys):
        raise UserError(f"{quoted(unknown[0])}: is not a setting of the page")
    kind = settings.get("kind")
    if kind not in _KINDS:
        raise UserError(f"kind={quoted(kind)}: must be one of {', '.join(_KINDS)}")
    name = _matching(settings, "name", _NAME, "letters, digits, _ and -")
    if os.path.lexists(folder.root / name):
        raise UserError(f"name={quoted(name)}: exists already; choose another name")
    shape = _matching(settings, "cluster", _SHAPE, "a shape as n16g8")
    Cluster.parse(shape)
    options = ["--cluster", shape, "--seed", str(_integer(settings, "seed", 0, 2**31 - 1, 0))]
    policies = _policies(settings, 1 if kind == "what-if" else _MOST_POLICIES)
    if kind == "demo":
        jobs, load = _integer(settings, "jobs", 1, _MOST_JOBS, 800), _load(settings)
        options += ["--jobs", str(jobs), "--load", str(load), "--policies", ",".join(policies)]
        return ["demo", *options, "--out", str(folder.root / name)]
    trace = settings.get("trace")
    if not isinstance(trace, str):
        raise UserError("trace: choose a file of the served folder")
    path = str(folder.trace(trace))
    options += ["--policy" if kind == "what-if" else "--policies", ",".join(policies)]
    for text in _list(settings, "set"):
        options += ["--set", _assignment("set", text, 1)]
    vary = [_assignment("vary", text, _MOST_VALUES) for text in _list(settings, "vary")]
    if kind == "what-if" and not vary:
        raise UserError("vary: state at least one setting and its values, as nodes=16,32")
    if kind == "compare" and vary:
        raise UserError("vary: belongs to a what-if")
    for text in vary:
        options += ["--vary", text]
    return [kind, path, *options, "--out", str(folder.root / name)]


def _matching(settings: Mapping[str, Any], key: str, pattern: re.Pattern[str], must: str) -> str:
    value = settings.get(key)
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise UserError(f"{key}={quoted(value)}: must be {must}")
    return value


def _integer(settings: Mapping[str, Any], key: str, minimum: int, maximum: int, default: int) -> int:
    value = settings.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
        raise UserError(f"{key}={quoted(value)}: must be a whole number from {minimum} to {maximum}")
    return value


def _load(settings: Mapping[str, Any]) -> float:
    value = settings.get("load", 1.2)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0.01 <= value <= 100:
        raise UserError(f"load={quoted(value)}: must be a number from 0.01 to 100")
    return float(value)


def _list(settings: Mapping[str, Any], key: str) -> Sequence[str]:
    value = settings.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value) or len(value) > 20:
        raise UserError(f"{key}: must be a list of at most 20 texts NAME=VALUE")
    return value


def _policies(settings: Mapping[str, Any], limit: int) -> list[str]:
    value = settings.get("policies")
    registered = [info.name for info in list_policies()]
    if not isinstance(value, list) or not 1 <= len(value) <= limit or len(set(map(str, value))) < len(value):
        raise UserError(f"policies: choose {'one' if limit == 1 else f'1 to {limit} different ones'}")
    for name in value:
        if name not in registered:
            raise UserError(f"policies: {quoted(name)} is not registered")
    return value


def _assignment(key: str, text: str, limit: int) -> str:
    """NAME=VALUE,... of which no value can name a file outside the folder that the command runs in."""
    name, equals, values = text.replace(" ", "").partition("=")
    items = values.split(",")
    if not equals or not _SETTING.fullmatch(name):
        raise UserError(f"{key}={quoted(text)}: write NAME=VALUE, as overheads.launch_s=10")
    fields = {*RunConfig.model_fields, "nodes", "policy"}
    if name.partition(".")[0] not in fields:
        raise UserError(f"{key}={quoted(text)}: {name} is not a setting of a run")
    if not 1 <= len(items) <= limit:
        raise UserError(f"{key}={quoted(text)}: must have 1 to {limit} values")
    if not all(_NUMBER.fullmatch(item) or _WORD.fullmatch(item) for item in items):
        raise UserError(f"{key}={quoted(text)}: values must be numbers or words")
    return f"{name}={','.join(items)}"


class Starter:
    """Starts commands in the served folder, and knows those that it and earlier servers started.

    They are processes of their own session: they go on when the server ends. What they print is kept in
    `.serve/NAME.log`, their settings in `.serve/NAME.json`, their process in `.serve/NAME.process`. These are
    new files: no link or pipe in their places is followed.
    """

    def __init__(self, folder: ServedFolder):
        self._folder, self._home = folder, folder.root / HOME
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, settings: Mapping[str, Any]) -> str:
        """Start what the settings say; its name. UserError as of `command_of`, if four run already or one of
        this name, and if another one is being started.
        """
        command_of(settings, self._folder)
        self._make_home()
        with self._alone():
            return self._start(settings)

    def _start(self, settings: Mapping[str, Any]) -> str:
        arguments, name = command_of(settings, self._folder), str(settings["name"])
        running = [known for known, process in self._started.items() if process.poll() is None]
        running += self._earlier()
        if name in running:  # it has not made its folder yet
            raise UserError(f"name={quoted(name)}: runs already; choose another name")
        if len(running) >= _MOST_AT_ONCE:
            raise UserError(f"{len(running)} comparisons run already; wait for the end of one, or stop one")
        write_text(self._home / f"{name}.json", json.dumps(dict(settings)))
        write_text(self._home / f"{name}.process", "")  # what cannot be written is refused before the start
        with replacing(self._home / f"{name}.log") as new_log, new_log.open("wb") as log:
            self._started[name] = subprocess.Popen(
                [sys.executable, "-P", "-m", "clustersim", *arguments],
                cwd=self._folder.root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._remember(name)
        return name

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other requests, to any server of the folder, from starting something at the same time."""
        try:
            lock = open_own(self._home / "lock")
        except OSError as error:
            raise UserError(f"{HOME}/lock: cannot be used: {error.strerror or error}") from None
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError("another comparison is being started; try again") from None
            except OSError:
                pass  # some network file systems have no locks
            yield

    def _make_home(self) -> None:
        """The folder of what commands print. UserError if something else has its name."""
        if self._home.is_symlink():
            raise UserError(f"{HOME}: is a link; remove it")
        try:
            self._home.mkdir(exist_ok=True)
        except OSError as error:
            raise UserError(f"{HOME}: cannot be used as a folder: {error.strerror or error}") from None

    def stop(self, name: str) -> None:
        """Interrupt a command; it keeps the records up to now. UserError if it was not started here."""
        process = self._started.get(name)
        if process is not None:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
            return
        earlier = self._earlier().get(name)
        if earlier is None:
            raise UserError("no server of this folder started it, or it has ended")
        os.killpg(earlier.pid, signal.SIGINT)

    def commands(self) -> list[dict[str, Any]]:
        """Those started by this server, and those of earlier ones that still run: `name`, `status` (running,
        done, failed) and `printed`, the end of what a failed one printed.
        """
        commands = [{"name": name, "status": "running", "printed": ""} for name in self._earlier()]
        for name, process in self._started.items():
            code = process.poll()
            status = "running" if code is None else "failed" if code else "done"
            printed = self._printed(name) if code else ""
            commands.append({"name": name, "status": status, "printed": printed})
        return commands

    def _remember(self, name: str) -> None:
        """Note the process of a command, so that a server that is started later can stop it."""
        process = self._started[name]
        with suppress(psutil.Error):
            entry = {"pid": process.pid, "began_s": psutil.Process(process.pid).create_time()}
            write_text(self._home / f"{name}.process", json.dumps(entry))

    def _earlier(self) -> dict[str, psutil.Process]:
        """The commands of earlier servers of this folder that still run. Number and time of start identify a
        process, and its command names the folder of the results.
        """
        processes: dict[str, psutil.Process] = {}
        if self._home.is_symlink() or not self._home.is_dir():
            return processes
        for path in sorted(self._home.glob("*.process"))[:_MOST_KNOWN]:
            name = path.name.removesuffix(".process")
            if name in self._started or not _NAME.fullmatch(name):
                continue
            with suppress(OSError, ValueError, KeyError, TypeError, OverflowError, psutil.Error):
                entry = json.loads(read_bytes(path, _LARGEST_ENTRY, links=False))
                process = psutil.Process(entry["pid"])
                ours = str(self._folder.root / name) in process.cmdline()
                if ours and process.create_time() == entry["began_s"]:
                    processes[name] = process
        return processes

    def _printed(self, name: str) -> str:
        """The end of what a command printed; empty if its file was removed."""
        with suppress(OSError), open_regular(self._home / f"{name}.log", links=False) as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _TAIL))
            return log.read(_TAIL).decode(errors="replace").strip()
        return ""
