"""Curves on disk: equal to those computed, keyed by all they depend on, never trusted when damaged."""

from __future__ import annotations

import ast
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields, replace
from pathlib import Path

import pytest

import itertime
from itertime import PLANNERS, Planner, Site, load_model, load_profile, load_system, make_planner
from itertime.planning import WHOLE, default_cache
from itertime.planning import curve_cache as module
from itertime.planning.curve_cache import CODE, CurveCache
from itertime.spec import PlanOptions

SYSTEM, MODEL = load_system("dgx-a100-80gb"), load_model("llama2-7b")
PACKAGE = Path(itertime.__file__).parent


@pytest.fixture
def cache(tmp_path):
    return CurveCache(tmp_path / "curves")


def planner(cache, name="3d", **changes):
    return make_planner(name, replace(SYSTEM, **changes), cache=cache)


def only_file(cache):
    (path,) = cache.folder.iterdir()
    return path


def forbid_planning(monkeypatch):
    def planned(*_):
        raise AssertionError("planned again")

    monkeypatch.setattr(Planner, "_planned", planned)


@pytest.mark.parametrize("name", PLANNERS)
def test_a_kept_curve_equals_the_computed_one_to_the_last_bit(cache, monkeypatch, name):
    without = make_planner(name, SYSTEM).scaling_curve(MODEL, 512, 100)
    written = planner(cache, name).scaling_curve(MODEL, 512, 100)
    forbid_planning(monkeypatch)
    read = planner(cache, name).scaling_curve(MODEL, 512, 100)
    assert repr(without) == repr(written) == repr(read)
    assert [type(value) for value in vars(read[64]).values()] == [
        type(value) for value in vars(without[64]).values()
    ]


def test_that_nothing_fits_is_kept_too(cache, monkeypatch):
    big = load_model("gpt3-175b")
    assert planner(cache).scaling_curve(big, 64, 8) == {}
    forbid_planning(monkeypatch)
    assert planner(cache).scaling_curve(big, 64, 8) == {}


def changed(value):
    """Another value of the same type, for a key."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, tuple):
        return (*value, 1)
    if isinstance(value, PlanOptions):
        return replace(value, clipping="bucket")
    return "other" if value is None or isinstance(value, str) else replace(value, gemm_multiplier=1.5)


def test_everything_a_curve_depends_on_is_in_its_key(cache):
    profile = load_profile(SYSTEM.profile)
    base = ("3d", WHOLE, MODEL, 512, range(1, 9), SYSTEM, profile.digest)
    keys = {cache.key(*base)}
    others = [("megatron", *base[1:]), (*base[:3], 513, *base[4:]), (*base[:4], range(1, 10), *base[5:])]
    for place, thing in ((1, WHOLE), (2, MODEL), (5, SYSTEM)):
        for field in fields(thing):
            other = object.__new__(type(thing))
            other.__dict__.update(vars(thing), **{field.name: changed(getattr(thing, field.name))})
            others.append((*base[:place], other, *base[place + 1 :]))
    for field in fields(Site):
        other = object.__new__(Site)
        other.__dict__.update(vars(SYSTEM.site), **{field.name: changed(getattr(SYSTEM.site, field.name))})
        others.append((*base[:5], replace(SYSTEM, site=other), profile.digest))
    for field in fields(PlanOptions):
        other = object.__new__(PlanOptions)
        value = getattr(WHOLE.options, field.name)
        other.__dict__.update(vars(WHOLE.options), **{field.name: changed(value)})
        others.append((base[0], replace(WHOLE, options=other), *base[2:]))
    slower = replace(profile, launch_s=2 * profile.launch_s)
    keys |= {cache.key(*other) for other in others} | {cache.key(*base[:6], slower.digest)}
    assert len(keys) == len(others) + 2


# Modules that read files, report, or give intervals: no curve depends on them.
BESIDE = ("errors.py", "io/", "accuracy/")


def source_of(name: str) -> Path | None:
    """The file of a module of the package, if there is one of that name."""
    path = PACKAGE.parent.joinpath(*name.split("."))
    found = [file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()]
    return found[0] if found else None


def test_the_code_in_the_key_is_all_code_that_plans():
    """Every module of the package that the planner imports, directly or not, apart from `BESIDE`."""
    seen, waiting = set(), [Planner.__module__]
    while waiting:
        name = waiting.pop()
        path = source_of(name)
        if path is None or name in seen:
            continue
        seen.add(name)
        home = name.split(".")[: None if path.name == "__init__.py" else -1]
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                base = ".".join(home[: len(home) - node.level + 1]) + "." if node.level else ""
                source = f"{base}{node.module}"
                waiting += [source, *(f"{source}.{alias.name}" for alias in node.names)]
    paths = {source_of(name).relative_to(PACKAGE).as_posix() for name in seen - {"itertime"}}
    sources = {path for path in paths if not path.startswith(BESIDE)}
    covered = {
        source: [entry for entry in CODE if f"{source}/".startswith(f"{entry}/")] for source in sources
    }
    assert [source for source, entries in covered.items() if not entries] == []
    assert {entry for entries in covered.values() for entry in entries} == set(CODE)
    assert module.PACKAGE == PACKAGE


def test_the_hash_of_the_code_covers_modules_and_folders(tmp_path):
    def version() -> str:
        return module.source_hash(tmp_path, ["one.py", "folder"])

    (tmp_path / "folder" / "inner").mkdir(parents=True)
    for name in ("one.py", "other.py", "folder/two.py", "folder/inner/three.py"):
        (tmp_path / name).write_text("x = 1\n")
    versions = [version()]
    for name in ("one.py", "folder/two.py", "folder/inner/three.py", "folder/new.py"):
        (tmp_path / name).write_text("x = 2\n")
        versions.append(version())
    (tmp_path / "folder/new.py").rename(tmp_path / "folder/newer.py")
    versions.append(version())
    assert len(set(versions)) == len(versions)
    (tmp_path / "other.py").write_text("x = 2\n")
    (tmp_path / "folder/notes.txt").write_text("no code")
    assert version() == versions[-1]


def test_other_code_does_not_use_what_this_one_kept(cache, monkeypatch):
    planner(cache).scaling_curve(MODEL, 512, 8)
    monkeypatch.setattr(module, "code_version", lambda: "another")
    planner(cache).scaling_curve(MODEL, 512, 8)
    assert len(list(cache.folder.iterdir())) == 2


def damaged():
    def edit(path, change):
        head, _, body = path.read_bytes().partition(b"\n")
        rows = json.loads(body)
        change(rows)
        body = json.dumps(rows).encode()
        key = head.split()[1].decode()
        path.write_bytes(f"{module.MAGIC} {key} {module._digest(body)}\n".encode() + body)

    return {
        "empty": lambda path: path.write_bytes(b""),
        "cut": lambda path: path.write_bytes(path.read_bytes()[:-20]),
        "a digit": lambda path: path.write_bytes(path.read_bytes().replace(b"1", b"2", 300)),
        "not text": lambda path: path.write_bytes(b"\x80\x04\x95 pickled"),
        "another curve": lambda path: path.write_bytes(
            path.read_bytes().replace(path.stem.encode(), b"0" * 40)
        ),
        "a folder": lambda path: (path.unlink(), path.mkdir()),
        "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
        "too large": lambda path: path.open("ab").truncate(10**8),
        "no numbers": lambda path: edit(path, lambda rows: rows[0].__setitem__(2, "fast")),
        "negative": lambda path: edit(path, lambda rows: rows[0].__setitem__(2, -1.0)),
        "short": lambda path: edit(path, lambda rows: rows[0].pop()),
        "no rows": lambda path: edit(path, lambda rows: rows.__setitem__(0, 7)),
    }


@pytest.mark.parametrize("how", damaged())
def test_a_damaged_or_foreign_file_is_computed_again(cache, how):
    expected = planner(cache).scaling_curve(MODEL, 512, 64)
    path = only_file(cache)
    good = path.read_bytes()
    damaged()[how](path)
    assert planner(cache).scaling_curve(MODEL, 512, 64) == expected
    if how not in ("a folder", "a pipe"):  # which nothing of ours removes
        assert path.read_bytes() == good


def test_a_folder_that_cannot_be_used_is_no_error(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    found = planner(CurveCache(tmp_path / "file" / "curves")).scaling_curve(MODEL, 512, 8)
    assert found == planner(None).scaling_curve(MODEL, 512, 8)


def compute(folder):
    return repr(planner(CurveCache(folder)).scaling_curve(MODEL, 512, 64))


def test_two_processes_at_once_leave_one_good_file(cache):
    with ProcessPoolExecutor(2) as pool:
        answers = set(pool.map(compute, [cache.folder] * 6))
    assert answers == {repr(planner(None).scaling_curve(MODEL, 512, 64))}
    assert cache.load(only_file(cache).stem)


def test_the_least_recently_used_go_first_and_leftovers_with_them(cache, monkeypatch):
    monkeypatch.setattr(module, "MOST_FILES", 8)
    for number in range(8):
        cache.save(f"{number:040d}", {})
        os.utime(cache.folder / f"{number:040d}.json", (1000 + number, 1000 + number))
    assert cache.load(f"{0:040d}") == {}  # used again
    foreign = "notes.txt", ".hidden.tmp"
    for name in foreign:
        (cache.folder / name).write_text("mine")
    leftover = cache.folder / f".{9:040d}.json.77.tmp"
    leftover.write_text("half")
    os.utime(leftover, (time.time() - 7200,) * 2)
    cache.save(f"{8:040d}", {})
    kept = {path.name for path in cache.folder.iterdir()}
    assert kept == {f"{number:040d}.json" for number in (0, 4, 5, 6, 7, 8)} | set(foreign)


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"ITERTIME_CACHE": "off", "HOME": "/h"}, None),
        ({"ITERTIME_CACHE": "/c"}, "/c"),
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/itertime/curves"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/itertime/curves"),
        ({}, None),
    ],
)
def test_where_the_cache_is(monkeypatch, environment, folder):
    for name in ("ITERTIME_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = default_cache()
    assert (found and str(found.folder)) == folder
