"""The architecture of docs/design.md, as far as a program can see it.

Every import counts: at the top of a module, under TYPE_CHECKING and inside functions.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("itertime", "traces", "clustersim", "policies")

LAYERS = {
    "itertime": (
        {"errors", "schedule"},
        {"io", "commandline"},
        {"spec"},
        {"accuracy", "costs", "profiling"},
        {"prediction"},
        {"calibration", "planning", "timeline"},
        {"commands"},
        {"cli"},
    ),
    "traces": (
        {"job", "phases", "sidecars"},
        {"summary", "native", "workload"},
        {"estimates", "editing"},
        {"logs", "synthetic"},
        {"statistics"},
        {"fitting"},
    ),
    "clustersim": (
        {"errors", "gctuning", "overheads", "failures", "cluster"},
        {"placement", "records", "speed"},
        {"jobs", "bounds", "rundir", "analysis"},
        {"scheduler", "report"},
        {"engine", "export"},
        {"runs"},
        {"grid", "audit", "backtest", "gym"},
        {"testing", "forecast", "notebook", "serve"},
        {"commands"},
        {"cli"},
        {"__main__"},
    ),
    "policies": ({"toolkit", "solvers"}, {"packing", "reservation"}, {"pricing"}),
}
"""Units of each package, lowest first: sub-packages and modules of the root. A unit may import units of lower
layers, never one of its own layer. The policies themselves stand above their package's layers.
"""

MOST_MODULES, MOST_LINES, MOST_FUNCTION_LINES, MOST_PARAMETERS = 12, 400, 60, 10
NAMEDTUPLE_METHODS = {"_fields", "_replace", "_asdict", "_make", "_exit"}


@cache
def modules() -> dict[str, Path]:
    """File by dotted name; an `__init__` has the name of its package."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if path.name == "__init__.py" else parts)] = path
    return found


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(modules()[name].read_text(encoding="utf-8"))


def is_face(name: str) -> bool:
    return modules()[name].name == "__init__.py"


def home(name: str) -> list[str]:
    """The package of a module, in parts."""
    return name.split(".") if is_face(name) else name.split(".")[:-1]


@cache
def imported(name: str) -> frozenset[str]:
    """Modules of ours that a module imports."""
    found: set[str] = set()
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = home(name)[: len(home(name)) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                full = f"{source}.{alias.name}"
                found.add(full if full in modules() else source)
    return frozenset(found & modules().keys())


def unit(name: str) -> str:
    """The unit of a module; empty for the face of a whole package."""
    return [*name.split("."), ""][1]


@cache
def policy_modules() -> frozenset[str]:
    """Modules that the entry points name; each has the name of its policy."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    entries: dict[str, str] = project["entry-points"]["clustersim.schedulers"]
    targets = {name: target.partition(":")[0] for name, target in entries.items()}
    assert targets == {name: f"policies.{name.replace('-', '_')}" for name in entries}
    return frozenset(target.removeprefix("policies.") for target in targets.values())


def circles(arrows: dict[str, set[str]]) -> list[str]:
    """What is left of a graph when nodes without arrows are removed until there are none: circles, and what
    depends on them.
    """
    left = {name: set(needs) for name, needs in arrows.items()}
    while free := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in free:
            del left[name]
    return sorted(left)


def test_a_circle_is_seen() -> None:
    """The search itself: a check that finds nothing in any graph would pass every test below."""
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["a", "b", "c"]
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []


def run_by(name: str) -> set[str]:
    """Modules that run before a module does: those that it imports, and the `__init__` of every package
    around them. The packages around the module itself are running by then.
    """
    around = {outer for other in imported(name) for outer in (*packages_around(other), other)}
    return (around & modules().keys()) - {name} - set(packages_around(name))


def packages_around(name: str) -> Iterator[str]:
    """The packages of a.b.c: a and a.b."""
    parts = name.split(".")
    yield from (".".join(parts[:count]) for count in range(1, len(parts)))


def test_no_module_is_part_of_a_circle() -> None:
    assert not circles({name: run_by(name) for name in modules()})


def test_no_unit_is_part_of_a_circle() -> None:
    arrows: dict[str, set[str]] = {}
    for name in modules():
        mine = ".".join(name.split(".")[:2])
        needs = {".".join(other.split(".")[:2]) for other in imported(name)}
        arrows.setdefault(mine, set()).update(needs - {mine} - set(PACKAGES))
    assert not circles({name: needs for name, needs in arrows.items() if name not in PACKAGES})


@pytest.mark.parametrize("package", PACKAGES)
def test_units_import_only_lower_layers(package: str) -> None:
    layer = {name: height for height, row in enumerate(LAYERS[package]) for name in row}
    wrong = [
        f"{name} imports {other}"
        for name in modules()
        if name.split(".")[0] == package and unit(name) in layer
        for other in imported(name)
        if other.split(".")[0] == package
        and unit(other) not in ("", unit(name))
        and layer.get(unit(other), len(layer)) >= layer[unit(name)]
    ]
    assert not wrong


@pytest.mark.parametrize("package", PACKAGES)
def test_every_unit_has_a_layer(package: str) -> None:
    units = {unit(name) for name in modules() if name.split(".")[0] == package} - {""}
    extra = policy_modules() if package == "policies" else frozenset()
    assert units == {name for row in LAYERS[package] for name in row} | extra


def test_what_is_installed_needs_no_experiment() -> None:
    """The programs that make the shipped data read published runs, and lie outside the wheel."""
    importers = [
        name
        for name in modules()
        for node in ast.walk(tree(name))
        if (isinstance(node, ast.Import) and any(a.name.split(".")[0] == "experiments" for a in node.names))
        or (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "experiments")
    ]
    assert not importers


def test_policies_do_not_import_policies_but_variants() -> None:
    """A policy may be a variant of another; none imports one that imports a third."""
    above = {
        name: {other for other in imported(name) if other.removeprefix("policies.") in policy_modules()}
        for name in (f"policies.{policy}" for policy in policy_modules())
    }
    assert not [name for name, bases in above.items() for base in bases if above[base]]


def test_a_folder_holds_at_most_a_dozen_modules() -> None:
    counts: dict[str, int] = {}
    for name in modules():
        if not is_face(name):
            counts[".".join(home(name))] = counts.get(".".join(home(name)), 0) + 1
    del counts["policies"]  # as many modules as there are policies
    assert not {folder: count for folder, count in counts.items() if count > MOST_MODULES}


@pytest.mark.parametrize("name", list(modules()))
def test_shape_of_a_module(name: str) -> None:
    assert len(modules()[name].read_text(encoding="utf-8").splitlines()) <= MOST_LINES
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < MOST_FUNCTION_LINES, node.name
            parameters = len([*node.args.args, *node.args.kwonlyargs])
            if unit(name) != "commands" and not node.name.startswith("__"):  # options of a command, fields
                assert parameters <= MOST_PARAMETERS, node.name


def test_private_names_are_used_where_they_are_defined() -> None:
    wrong = []
    for name in modules():
        nodes = list(ast.walk(tree(name)))
        own = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
        own |= {n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
        own |= {n.target.id for n in nodes if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
        for node in nodes:
            if (
                isinstance(node, ast.Attribute)
                and node.attr.startswith("_")
                and not node.attr.startswith("__")
            ):
                of_itself = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
                if not of_itself and node.attr not in own | NAMEDTUPLE_METHODS:
                    wrong.append(f"{name}:{node.lineno} {ast.unparse(node)}")
            elif isinstance(node, ast.ImportFrom) and (
                node.level or (node.module or "").split(".")[0] in PACKAGES
            ):
                private = [
                    a.name for a in node.names if a.name.startswith("_") and not a.name.startswith("__")
                ]
                wrong += [f"{name}:{node.lineno} imports {private_name}" for private_name in private]
    assert not wrong


def test_only_commands_import_late() -> None:
    """Commands import inside functions, so that --help is fast. Faces may resolve names on first use."""
    late = [
        f"{name}:{inner.lineno}"
        for name in modules()
        if unit(name) != "commands" and not is_face(name)
        for node in ast.walk(tree(name))
        if isinstance(node, ast.FunctionDef)
        for inner in ast.walk(node)
        if isinstance(inner, ast.ImportFrom)
        and (inner.level or (inner.module or "").split(".")[0] in PACKAGES)
    ]
    assert not late


def sub_packages() -> Iterator[str]:
    folders = {".".join(home(name)) for name in modules()}
    yield from sorted(folders - set(PACKAGES))


@pytest.mark.parametrize("name", list(sub_packages()))
def test_a_sub_package_states_what_it_offers(name: str) -> None:
    """The docstring of an `__init__` names everything in `__all__`, and nothing else is imported."""
    assert name in modules(), "there is no __init__.py"
    assigned = [node for node in tree(name).body if isinstance(node, ast.Assign)]
    offered = next(ast.literal_eval(n.value) for n in assigned if ast.unparse(n.targets[0]) == "__all__")
    docstring = ast.get_docstring(tree(name)) or ""
    assert docstring
    if unit(name) == "commands":
        return  # its modules are what it offers
    assert [public for public in offered if not re.search(rf"`{public}\b", docstring)] == []
    brought = {
        alias.asname or alias.name
        for n in tree(name).body
        if isinstance(n, ast.ImportFrom)
        for alias in n.names
    }
    assert brought - {"annotations"} == set(offered)


def test_imports_are_relative_at_home_and_absolute_abroad() -> None:
    wrong = []
    for name in modules():
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.ImportFrom):
                own = home(name)
                within = len(own) > 1 and (node.module or "").split(".")[: len(own)] == own
                if node.level > 1 or (not node.level and within):
                    wrong.append(f"{name}:{node.lineno}")
    assert not wrong
