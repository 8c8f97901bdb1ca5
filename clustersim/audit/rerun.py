"""The replay of a recorded run: simulate it again from its manifest and compare the files byte for byte."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from math import inf
from pathlib import Path
from typing import Any

from clustersim.errors import PolicyError
from clustersim.records import INTERRUPTED, STOPPED
from clustersim.rundir import (
    EVENTS_FILE,
    JOBS_CSV,
    MANIFEST,
    PLANS_FILE,
    SUMMARY,
    USAGE_FILE,
    StreamedRun,
    csv_hash,
    jobs_file,
    read_json,
    read_streamed,
)
from clustersim.runs import (
    LARGEST_FILE,
    NO_BOUND,
    SETTINGS,
    Entry,
    RunConfig,
    Trace,
    is_of_nodes,
    is_of_this_code,
    other_libraries,
    policy_hash,
    run_config,
    stated_hash,
    trace_of_manifest,
)
from itertime.errors import UserError
from itertime.io import open_regular, sha256, shown

from .closeness import NOT_COMPARED, first_difference
from .evidence import RELATIVE, Finding, Violation
from .expected import Recomputed

__all__ = ["replay"]

_PIECE = 1 << 16  # bytes of a line that are compared at once


def replay(directory: str | Path, trace: str | Path | None = None, policy: str | None = None) -> Finding:
    """Simulate the run of a folder again, into a temporary folder, and compare file by file.

    `trace`: the trace, if it is no longer where the run read it. `policy`: `file.py:Class`, required if the
    policy of the run came from a file, because a folder cannot name code to run.

    Where another version of Python or of a library made the run, last digits may differ: then numbers are
    equal that agree to `RELATIVE`, and the finding says so.

    UserError if the run cannot be repeated: an input is missing or changed, the run was interrupted, or
    another version made the run and this version gives another result.
    """
    home, run = Path(directory), read_streamed(directory)
    config, source = _config(run, policy), _trace(home, run, trace)
    with _temporary() as folder:
        parquet = jobs_file(home).name != JOBS_CSV
        broken = ""
        try:
            run_config(source, config, cluster=run.cluster, out=folder, parquet=parquet)
        except PolicyError as error:
            if not hasattr(error, "partial"):
                raise
            broken = f"the policy breaks a rule: {error}"
        texts = list(_differences(home, Path(folder), run))
        other_versions = other_libraries(run.manifest)
        difference = first_difference(run, read_streamed(folder)) if texts and other_versions else ""
    if broken and run.manifest.get("status") != STOPPED:
        texts.insert(0, broken)
        difference = difference or broken
    text = "simulated again, the run writes the same files, byte for byte"
    if texts and other_versions and not difference:
        problem = (
            f"the last digits of some numbers, which may depend on versions: made under {other_versions}"
        )
        return Finding("replay", f"simulated again, the run writes the same to {RELATIVE:g}", (), problem)
    if texts and other_versions and _is_ours(run, config.policy):
        problem = f"was made under {other_versions}, and is another run here: {difference}"
        raise UserError(f"{home}: {problem}; replay it under those versions")
    if texts and not _is_ours(run, config.policy):
        version = run.manifest.get("versions")
        program_version = version.get("clustersim") if isinstance(version, dict) else None
        problem = (
            f"was made by another version of the program or its policy (clustersim {shown(program_version)})"
        )
        raise UserError(f"{home}: {problem}, and this one differs: {texts[0]}; replay it with that version")
    return Finding("replay", text, tuple(Violation(text) for text in texts))


def _temporary() -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix="clustersim-replay-")
    except OSError as error:
        problem = f"no folder for the files of the replay: {error.strerror or error}"
        raise UserError(f"{problem}; set TMPDIR to one with room") from None


# The settings of the run


def _config(run: StreamedRun, policy: str | None) -> RunConfig:
    manifest = run.manifest
    if manifest.get("status") == INTERRUPTED:
        raise UserError(
            f"{run.folder}: was interrupted by a user; only runs that end by themselves can be replayed"
        )
    missing = [
        name for name, setting in SETTINGS.items() if setting.entry is Entry.NEEDED and name not in manifest
    ]
    if missing:
        raise UserError(f"{run.folder / MANIFEST}: states no {', '.join(missing)}; run the simulation again")
    policy_name = _policy(run, policy)
    window = manifest.get("window")
    settings = {
        name: manifest[name]
        for name, setting in SETTINGS.items()
        if setting.entry is not Entry.NO and name in manifest
    }
    if is_of_nodes(manifest.get("price_from")):
        del settings["price_usd_per_gpu_h"]
    settings |= window if isinstance(window, dict) else {}
    bound = manifest.get("bound")  # auto has chosen a method, which is stated
    settings["bound"] = bound.get("method") if isinstance(bound, dict) else NO_BOUND
    config = RunConfig.make(policy=policy_name, **settings)
    if config.table is not None and _hash(config.table, LARGEST_FILE) != manifest.get("table_sha256"):
        raise UserError(
            f"table={config.table}: was changed since the run; restore the table that the run read"
        )
    if why_not := Recomputed(run.cluster, manifest).why_not:
        raise UserError(f"{run.folder}: cannot be replayed: {why_not}")
    return config


def _policy(run: StreamedRun, policy: str | None) -> str:
    recorded, digest = run.policy, run.manifest.get("policy_sha256")
    from_file = ".py:" in recorded or recorded.endswith(".py")
    if digest is not None and not from_file:
        return recorded
    if policy is None:
        problem = "no code is run because a folder names it" if from_file else "it was given as a class"
        where = recorded if from_file else "FILE.py:Class"
        raise UserError(
            f"{run.folder}: its policy is {shown(recorded)}: {problem}; name it: --policy {where}"
        )
    if from_file and digest != (_policy_hash(policy) if ".py:" in policy else None):
        problem = "is not the file of the run's policy, or was changed since, or a file beside it was"
        raise UserError(f"--policy {policy}: {problem}")
    name = recorded.rpartition(":")[2]
    if policy.rpartition(":")[2] != name:
        problem = f"the run's policy is {shown(recorded)}; name its class {shown(name)}"
        raise UserError(f"--policy {policy}: {problem}")
    return policy


def _trace(home: Path, run: StreamedRun, path: str | Path | None) -> Trace:
    trace = trace_of_manifest(run.manifest, path, run.jobs.most)
    if isinstance(trace, str):
        raise UserError(f"{home}: cannot be replayed: {trace}; give --trace FILE")
    digest = stated_hash(run.manifest)
    if digest and trace.sha256 != digest:
        raise UserError(f"--trace {path}: is not the trace of {home}: its hash is another")
    return trace


def _hash(path: str | Path, limit: float = inf) -> str:
    try:
        return sha256(path, limit)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _policy_hash(name: str) -> str:
    try:
        return policy_hash(name)
    except OSError as error:
        raise UserError(f"{error.filename}: cannot be read: {error.strerror or error}") from None


def _is_ours(run: StreamedRun, policy: str) -> bool:
    return is_of_this_code(run.manifest) and run.manifest.get("policy_sha256") in (None, policy_hash(policy))


# Comparison


def _differences(home: Path, again: Path, run: StreamedRun) -> Iterator[str]:
    """A sentence for each file and each entry of the manifest that differs."""
    jobs = jobs_file(home).name
    for name in (jobs, EVENTS_FILE, USAGE_FILE, PLANS_FILE, SUMMARY):
        if _hash(home / name) == _hash(again / name):
            continue
        if name == JOBS_CSV or name != jobs:
            yield f"{name}:{_first_difference(home / name, again / name)}"
        elif csv_hash(run.jobs) != read_json(again / MANIFEST).get("result_hash"):
            yield f"{name}: holds other records than the replay gives"
    yield from _other_statements(run.manifest, read_json(again / MANIFEST))


def _first_difference(ours: Path, theirs: Path) -> str:
    line = 1
    with open_regular(ours) as recorded, open_regular(theirs) as again:
        while True:
            a, b = recorded.readline(_PIECE), again.readline(_PIECE)
            if a != b or not a:
                texts = [_shown(piece) for piece in (a, b)]
                return f"{line}: {texts[0]}; the replay: {texts[1]}"
            line += a.endswith(b"\n")


def _shown(piece: bytes) -> str:
    return shown(piece.decode(errors="replace").rstrip("\r\n")) if piece else "it ends"


def _other_statements(recorded: Mapping[str, Any], again: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys([*again, *recorded]):
        if name not in NOT_COMPARED and name != "result_hash" and recorded.get(name) != again.get(name):
            difference = f"{name} is {shown(recorded.get(name))}"
            yield f"{MANIFEST}: {difference}; by the replay {shown(again.get(name))}"
