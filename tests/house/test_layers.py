"""The architecture of docs/design.md, as far as a program can see it: one parsed tree of all modules.

Every import counts: at the top of a module, under TYPE_CHECKING and inside functions.
"""

from __future__ import annotations

import ast
import gc
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.places import ROOT

LAYERS = {
    "itertime": (
        {"arrays", "cached", "energy", "errors"},
        {"commandline", "io", "schedule"},
        {"spec"},
        {"accuracy", "costs", "profiling"},
        {"prediction"},
        {"calibration", "planning", "timeline"},
        {"commands"},
        {"cli"},
    ),
    "traces": (
        {"job", "phases", "attempts", "dependencies", "sidecars", "host_lists"},
        {"summary", "native", "workload"},
        {"estimates", "editing"},
        {"logs", "synthetic"},
        {"statistics"},
        {"fitting"},
    ),
    "clustersim": (
        {"errors", "gctuning", "jit", "overheads", "failures", "cluster"},
        {"placement", "records", "sites", "speed", "energy"},
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
    "policies": ({"toolkit", "solvers"}, {"packing", "reservation", "slurmctld"}, {"pricing"}),
}
"""Units of each package, lowest first: sub-packages and modules of the root. A unit may import units of lower
layers, never one of its own layer. The policies themselves stand above their package's layers.

docs/design.md draws them.
"""

PACKAGES = tuple(LAYERS)
IMPORTED_PACKAGES = {
    "itertime": {"itertime"},
    "traces": {"traces", "itertime"},
    "clustersim": {"clustersim", "traces", "itertime"},
    "policies": {"policies", "clustersim.scheduler", "clustersim.sites"},
}
"""What modules of a package may import of this repository; policies see the face of the scheduler, and the
rules of a site as data.
"""

ENGINE_ROOMS = {
    "cluster",
    "failures",
    "placement",
    "records",
    "speed",
    "jobs",
    "rundir",
    "scheduler",
    "engine",
}
MOST_MODULES, MOST_FUNCTION_LINES, MOST_PARAMETERS = 12, 60, 10
NAMEDTUPLE_METHODS = {"_fields", "_replace", "_asdict", "_make", "_exit"}
GETTERS = {"attrgetter", "methodcaller"}
INTERNAL, INTERNAL_USERS = "clustersim.scheduler.internal", {"scheduler", "engine", "testing"}
"""The module that reaches behind views and drafts, and the units of `clustersim` that may import it."""


DOOR = "itertime.io.door"
OPENED_ELSEWHERE = {
    "itertime.commandline": "the null device",
    "itertime.io.files": "writes a temporary file that it has made",
    "itertime.io.parquet": "hands an open file to pyarrow",
    "traces.logs.throughputs": "writes the file of `replacing`",
    "traces.native.trace_file": "writes the file of `replacing`",
    "clustersim.export.perfetto": "writes the file of `replacing`",
    "clustersim.grid.making.fork_server": "the null device, and a pipe of its own",
    "clustersim.grid.store": "writes the file of `replacing`, and flushes a folder",
    "clustersim.rundir.csv_in": "hands an open file to pyarrow",
    "clustersim.rundir.destination": "locks a folder, and hands an open file to pyarrow",
    "clustersim.rundir.spool": "writes temporary files",
    "clustersim.rundir.writing": "writes the file of `replacing`",
    "clustersim.serve.starting": "writes the file of `replacing`",
}
"""The modules that open files without the door, and why that is safe."""
PATHS = {"read_bytes", "read_text", "write_bytes", "write_text"}  # of pathlib
OPENING = {
    "os": {"open", "fdopen"},
    "gzip": {"open", "GzipFile"},
    "pq": {"read_schema", "read_metadata", "read_table", "ParquetFile"},
}


class Module:
    """A parsed module. `name`: dotted, that of the package for an `__init__`. `nodes`: of the whole tree."""

    def __init__(self, path: Path, root: Path = ROOT):
        parts = path.relative_to(root).with_suffix("").parts
        self.path = path
        self.is_face = path.name == "__init__.py"
        self.name = ".".join(parts[:-1] if self.is_face else parts)
        self.home = ".".join(parts[:-1])
        self.package = parts[0]
        self.unit = [*self.name.split("."), ""][1]  # empty for the face of a whole package
        self.tree = ast.parse(path.read_text(encoding="utf-8"))
        self.nodes = list(ast.walk(self.tree))

    def imported_names(self) -> Iterator[tuple[str, str]]:
        """The absolute source of each import, relative ones too, and the name taken from it ("" for none)."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from ((alias.name, "") for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                source = _source(node, self.home)
                yield from ((source, alias.name) for alias in node.names)
            elif isinstance(node, ast.Call) and _called(node) == "import_module":
                yield from ((text, "") for text in _texts(node))

    @property
    def functions(self) -> list[ast.FunctionDef]:
        return [node for node in self.nodes if isinstance(node, ast.FunctionDef)]

    def assigned(self, name: str) -> ast.expr | None:
        """The value that the module assigns to a name at its top level."""
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and name in map(ast.unparse, node.targets):
                return node.value
        return None


def _source(node: ast.ImportFrom, home: str) -> str:
    outer = home.split(".")[: home.count(".") + 2 - node.level] if node.level else []
    return ".".join([*outer, *([node.module] if node.module else [])])


def _called(node: ast.Call) -> str:
    return getattr(node.func, "id", getattr(node.func, "attr", ""))


def _texts(node: ast.Call) -> list[str]:
    """The arguments of a call that are string literals."""
    return [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]


@cache
def modules() -> dict[str, Module]:
    files = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    gc.disable()  # millions of nodes that all stay: collections only cost time
    try:
        return {module.name: module for module in map(Module, files)}
    finally:
        gc.freeze()
        gc.enable()


@cache
def arrows() -> dict[str, frozenset[str]]:
    """For each module the modules of ours that it imports."""
    found = {}
    for name, module in modules().items():
        pairs = list(module.imported_names())
        targets = {
            f"{source}.{taken}" if f"{source}.{taken}" in modules() else source for source, taken in pairs
        }
        found[name] = frozenset(targets & modules().keys())
    return found


def is_ours(name: str) -> bool:
    return name.split(".")[0] in {*PACKAGES, "experiments", "tests"}


@cache
def policy_modules() -> frozenset[str]:
    """Modules that the entry points name; each has the name of its policy."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    entries: dict[str, str] = project["entry-points"]["clustersim.schedulers"]
    targets = {name: target.partition(":")[0] for name, target in entries.items()}
    assert targets == {name: f"policies.{name.replace('-', '_')}" for name in entries}
    return frozenset(targets.values())


def circles(graph: dict[str, set[str]]) -> list[str]:
    """What remains of a graph when nodes without arrows, and nodes that no arrow leads to, are removed until
    there are none: circles, and what lies between them.
    """
    remaining = {name: set(needs) for name, needs in graph.items()}
    while True:
        needed = set().union(*remaining.values())
        free = [
            name for name, needs in remaining.items() if name not in needed or not needs & remaining.keys()
        ]
        if not free:
            return sorted(remaining)
        for name in free:
            del remaining[name]


def packages_around(name: str) -> Iterator[str]:
    """ "a" and "a.b" of "a.b.c"."""
    parts = name.split(".")
    yield from (".".join(parts[:count]) for count in range(1, len(parts)))


def run_by(name: str) -> set[str]:
    """Modules that run before a module does: those that it imports, and the `__init__` of every package
    around them. The packages around the module itself are running by then.
    """
    around = {outer for other in arrows()[name] for outer in (*packages_around(other), other)}
    return (around & modules().keys()) - {name} - set(packages_around(name))


def test_the_checks_see_what_they_look_for(tmp_path: Path) -> None:
    """Rules that found nothing in any text would pass everything below."""
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["b", "c"]
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    path = tmp_path / "clustersim" / "commands" / "x.py"
    path.parent.mkdir(parents=True)
    path.write_text(
        "from .. import speed\nfrom ..speed import Speed\nfrom . import output\nimport policies.fifo as f\n"
        "def later():\n    from itertime import predict\n    import_module('policies.srtf')\n"
        "    return job._job, attrgetter('_job'), self._fine\n"
    )
    module = Module(path, tmp_path)
    assert sorted(module.imported_names()) == [
        ("clustersim", "speed"),
        ("clustersim.commands", "output"),
        ("clustersim.speed", "Speed"),
        ("itertime", "predict"),
        ("policies.fifo", ""),
        ("policies.srtf", ""),
    ]
    assert late_imports(module) == ["clustersim.commands.x:6"]
    assert foreign_private_names(module) == [
        "clustersim.commands.x attrgetter('_job')",
        "clustersim.commands.x job._job",
    ]


def test_units_import_only_lower_layers() -> None:
    unit_arrows: dict[str, set[str]] = {}
    wrong = []
    for package, rows in LAYERS.items():
        height = {unit: number for number, row in enumerate(rows) for unit in row}
        inside = [module for module in modules().values() if module.package == package]
        policies = {name.removeprefix("policies.") for name in policy_modules()}
        stated = height.keys() | (policies if package == "policies" else set())
        assert {module.unit for module in inside} - {""} == stated
        for module in inside:
            for other in map(modules().__getitem__, arrows()[module.name]):
                if other.unit and (other.package, other.unit) != (package, module.unit):
                    needs = unit_arrows.setdefault(f"{package}.{module.unit}", set())
                    needs.add(f"{other.package}.{other.unit}")
                    above = height.get(other.unit, len(rows)) >= height.get(module.unit, len(rows) + 1)
                    if other.package == package and module.unit and above:
                        wrong.append(f"{module.name} imports {other.name}")
    assert not wrong
    assert not circles(unit_arrows)


def test_no_module_is_part_of_a_circle() -> None:
    assert not circles({name: run_by(name) for name in modules()})


def test_packages_and_policies_import_only_what_they_may() -> None:
    """A policy may be a variant of another policy; it imports none that imports a third."""
    wrong = []
    for module in modules().values():
        allowed = IMPORTED_PACKAGES[module.package]
        sources = {source for source, _ in module.imported_names() if is_ours(source)}
        wrong += [
            f"{module.name} imports {source}"
            for source in sources
            if not allowed & {source, source.split(".")[0]}
        ]
    bases = {name: arrows()[name] & policy_modules() for name in policy_modules()}
    wrong += [f"{name} imports {base}" for name in bases for base in bases[name] if bases[base]]
    names_of_policies = {name.removeprefix("policies.").replace("_", "-") for name in policy_modules()}
    for module in modules().values():  # policies reach a run by entry points alone
        if module.package == "clustersim" and module.unit in ENGINE_ROOMS:
            texts = {node.value for node in module.nodes if isinstance(node, ast.Constant)}
            wrong += [f"{module.name} names {text}" for text in texts & names_of_policies]
    assert not wrong


def late_imports(module: Module) -> list[str]:
    """Imports of ours inside functions."""
    return [
        f"{module.name}:{inner.lineno}"
        for function in module.functions
        for inner in ast.walk(function)
        if isinstance(inner, ast.ImportFrom) and is_ours(_source(inner, module.home))
    ]


def test_imports_stand_where_they_belong() -> None:
    """Relative at home and absolute abroad; at the top, except in commands, so that --help is fast, and in
    faces, which may resolve names on first use.
    """
    wrong = []
    for module in modules().values():
        if module.unit != "commands" and not module.is_face:
            wrong += late_imports(module)
        own = module.home.split(".")
        for node in module.nodes:
            if isinstance(node, ast.ImportFrom):
                within = len(own) > 1 and (node.module or "").split(".")[: len(own)] == own
                if node.level > 1 or (not node.level and within):
                    wrong.append(f"{module.name}:{node.lineno}")
    assert not wrong


def test_folders_and_functions_are_small() -> None:
    counts = Counter(module.home for module in modules().values() if not module.is_face)
    del counts["policies"]  # as many modules as there are policies
    assert not {folder: count for folder, count in counts.items() if count > MOST_MODULES}
    long, broad = [], []
    for module in modules().values():
        for function in module.functions:
            name = f"{module.name}.{function.name}"
            if function.end_lineno and function.end_lineno - function.lineno >= MOST_FUNCTION_LINES:
                long.append(name)
            are_fields = module.unit == "commands" or function.name.startswith("__")  # options of a command
            if not are_fields and len([*function.args.args, *function.args.kwonlyargs]) > MOST_PARAMETERS:
                broad.append(name)
    assert not long
    assert not broad


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def foreign_private_names(module: Module) -> list[str]:
    """Private names that a module uses without defining them: attributes, imports and texts of getters."""
    nodes = module.nodes
    own = {function.name for function in module.functions} | NAMEDTUPLE_METHODS
    own |= {n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    own |= {n.target.id for n in nodes if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
    found = set()
    for node in nodes:
        if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in own:
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                found.add(ast.unparse(node))
        elif isinstance(node, ast.ImportFrom) and is_ours(_source(node, module.home)):
            found |= {f"imports {alias.name}" for alias in node.names if is_private(alias.name)}
        elif isinstance(node, ast.Call) and _called(node) in GETTERS:
            foreign = {text for text in _texts(node) if is_private(text)} - own
            found |= {ast.unparse(node)} if foreign else set()
    return sorted(f"{module.name} {text}" for text in found)


def test_private_names_are_used_where_they_are_defined() -> None:
    found = [text for module in modules().values() for text in foreign_private_names(module)]
    assert not found


def test_only_scheduler_and_engine_reach_behind_the_views_of_policies() -> None:
    users = {module for module in modules().values() if INTERNAL in arrows()[module.name]}
    assert {module.unit for module in users} == INTERNAL_USERS
    assert {module.package for module in users} == {"clustersim"}


def test_modules_and_sub_packages_state_what_they_offer() -> None:
    """A module with definitions has `__all__`, apart from those of `itertime`: there the faces alone say what
    is offered, and an underscore what is a module's own. The docstring of an `__init__` names everything in
    it, and the `__init__` imports nothing else; the modules of `commands` are what that offers.
    """
    without, unnamed, foreign = [], [], []
    for name, module in modules().items():
        stated = module.assigned("__all__")
        defines = any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in module.tree.body)
        sub_package = module.is_face and bool(module.unit)
        if (sub_package or (defines and module.package != "itertime")) and stated is None:
            without.append(name)
        if sub_package and stated is not None:
            docstring = ast.get_docstring(module.tree) or ""
            assert docstring, name
            offered = set(ast.literal_eval(stated))
            if module.unit != "commands":
                unnamed += [
                    f"{name}.{public}" for public in offered if not re.search(rf"`{public}\b", docstring)
                ]
                imports = [node for node in module.tree.body if isinstance(node, ast.ImportFrom)]
                taken = {alias.asname or alias.name for node in imports for alias in node.names}
                foreign += [f"{name}.{extra}" for extra in (taken ^ offered) - {"annotations"}]
    assert {module.home for module in modules().values()} <= modules().keys(), "a folder has no __init__.py"
    assert not without
    assert not unnamed
    assert not foreign


def test_the_design_page_draws_the_layers() -> None:
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    section = page.partition("## The layers")[2].partition("`clustersim` has two columns")[0]
    drawn: dict[str, list[set[str]]] = {}
    package = ""
    for line in section.splitlines():
        units = line.partition("#")[0].split()
        if not line.startswith("    ") or not units:
            continue
        if units[0] in PACKAGES:
            package, *units = units
        drawn.setdefault(package, []).append(set(units))
    assert {name: tuple(reversed(rows)) for name, rows in drawn.items()} == LAYERS


def _opens_file(node: ast.AST) -> bool:
    """Whether a call opens a file: by a mode, by pathlib, or by a library that takes a path."""
    if not isinstance(node, ast.Call):
        return False
    name, receiver = _called(node), getattr(node.func, "value", None)
    if receiver is None:
        return name == "open"
    library = receiver.id if isinstance(receiver, ast.Name) else ""
    if name == "open" and library not in OPENING:
        modes = [*node.args[:1], *(word.value for word in node.keywords if word.arg in ("mode", "encoding"))]
        return any(isinstance(mode, ast.Constant) and isinstance(mode.value, str) for mode in modes)
    if library in ("pd", "np"):
        return name.startswith("read_") or name in ("load", "fromfile", "memmap")
    return name in PATHS or name in OPENING.get(library, ())


def test_every_file_is_opened_at_the_door() -> None:
    """It does not block, follow a link by surprise or read without end. New files are written elsewhere."""
    opening = {name for name, module in modules().items() if any(map(_opens_file, module.nodes))}
    assert opening == {DOOR, *OPENED_ELSEWHERE}
