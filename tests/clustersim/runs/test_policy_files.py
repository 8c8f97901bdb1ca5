"""Policies by name and in files, models of the user, and the files on which a run depends."""

import hashlib
import json
import pickle
import shutil
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import yaml

import clustersim
from clustersim.errors import PolicyError
from clustersim.runs import algorithm_of, code_hash, find_policy, list_policies, make_policy
from clustersim.runs.fingerprints import PARTS, SIMULATOR, hash_of_parts
from clustersim.runs.policies import registry
from clustersim.runs.policies.files import files_of, hash_of_files
from clustersim.scheduler import Scheduler
from itertime.errors import TableError, UnknownName, UserError
from itertime.io import sha256
from itertime.planning import PLANNERS
from itertime.spec import Models, load_model
from tests.house.test_layers import arrows, modules
from tests.printed import Call
from tests.tables import TEXTS, table_rows
from traces import Job
from traces.native import read_trace

POLICY = TEXTS["a policy with files beside it"]
NAMED = {
    "ranks.py", "helpers/__init__.py", "helpers/deep.py", "helpers/more.py", "beside.py", "whole.py",
    "late.py", "weights.json", "named/module.py", "__init__.py",
}  # fmt: skip
OTHERS = {"unused.py", "numpy.txt", "helpers/unused.py", "other.json"}


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    for name in NAMED | OTHERS:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x = 1\n")
    (folder / "helpers" / "deep.py").write_text("from .more import x\nfrom ..ranks import y\n")
    (tmp_path / "outside.py").write_text("x = 1\n")
    file = folder / "policy.py"
    file.write_text(POLICY + "        open('../outside.py')\n")
    return file


def test_a_policy_that_plans_in_another_way_alone_decides_as_its_base() -> None:
    class Wide(find_policy("sjf")):  # type: ignore[misc]
        """Sjf with the planner of Megatron."""

        planner = "megatron"

    class Patient(find_policy("elasticflow")):  # type: ignore[misc]
        leaves_idle = True

    elastic = {name: algorithm_of(find_policy(name)) for name in ("vtrain-aware", "elasticflow", "gandiva")}
    assert elastic == {"vtrain-aware": "elasticflow", "elasticflow": None, "gandiva": None}
    assert (algorithm_of(Wide), algorithm_of(Patient)) == ("sjf", None)


def test_imports_and_files_that_the_source_names(policy: Path) -> None:
    """Also within functions, through another module, relative, and of the package that the file lies in."""
    names = [path.relative_to(policy.parent).as_posix() for path in files_of(policy)]
    assert names[0] == "policy.py"
    assert set(names[1:]) == NAMED
    assert names[1:] == sorted(names[1:])


@pytest.mark.parametrize("name", [*sorted(NAMED | OTHERS), "../outside.py"])
def test_named_files_count_and_others_do_not(policy: Path, name: str) -> None:
    hash_of_policy = hash_of_files(policy)
    (policy.parent / name).write_text("x = 2\n")
    assert (hash_of_files(policy) != hash_of_policy) == (name in NAMED)


def test_the_hash_does_not_depend_on_the_place(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(policy.parent)
    assert hash_of_files("policy.py") == hash_of_files(policy)


@pytest.mark.parametrize(
    "content", [b"", b"x = (", b"\xff\xfe", b"import numpy\n", b"'" + b"(" * 9999 + b"'"]
)
def test_a_policy_of_one_file_has_the_hash_of_that_file(tmp_path: Path, content: bytes) -> None:
    """Also if it is no Python: that is reported where it is imported."""
    file = tmp_path / "policy.py"
    file.write_bytes(content)
    assert hash_of_files(file) == hashlib.sha256(content).hexdigest()


IMPORTING = TEXTS["a policy that imports"]
FIRST, LAST = "def rank(job):\n    return 0\n", "def rank(job):\n    return -job.order\n"
JOBS = [Job(name, 0.0, gpus=8, duration_s=10.0) for name in "ab"]


def folder_of(path: Path, imports: str, late: str = "pass", **files: str) -> str:
    """A folder with a policy and `files`; `__` stands for `/`. Returns the policy's name."""
    for name, text in {"pol": IMPORTING.format(imports=imports, late=late), **files}.items():
        file = path.joinpath(*name.split("__")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return f"{path / 'pol.py'}:Mine"


def order_of(policy: str | type) -> str:
    """The jobs in the order in which they end."""
    run = clustersim.run(JOBS, policy, cluster="n1g8", overheads=None)
    return "".join(job.job_id for job in sorted(run.jobs, key=lambda job: job.finish_s or 0))


IMPORTS = yaml.safe_load(Path(__file__).with_name("imports.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("imports", "late", "files"), IMPORTS)
def test_a_policy_imports_what_lies_beside_it(
    tmp_path: Path, imports: str, late: str, files: dict[str, str]
) -> None:
    path, modules = [*sys.path], {*sys.modules}
    assert order_of(folder_of(tmp_path, imports, late, **files)) == "ba"
    assert sys.path == path
    added = {name for name in {*sys.modules} - modules if not name.startswith("clustersim_policy_")}
    assert not added & {"helper", "inner", "other", "pol"}
    assert not list(tmp_path.rglob("__pycache__"))


def test_helpers_of_one_name_in_two_folders_do_not_mix(tmp_path: Path) -> None:
    for imports, late in (("from helper import rank", "pass"), ("", "from helper import rank")):
        names = [
            folder_of(tmp_path / folder, imports, late, helper=text)
            for folder, text in (("one", FIRST), ("two", LAST))
        ]
        one, two = map(find_policy, names)
        assert [order_of(one), order_of(two), order_of(one), order_of(two)] == ["ab", "ba", "ab", "ba"]


def test_an_edit_counts_at_once(tmp_path: Path) -> None:
    """Also one that keeps the size of the file, within a second."""
    policy = folder_of(tmp_path, "from helper import rank", helper=LAST)
    assert order_of(policy) == "ba"
    (tmp_path / "helper.py").write_text(LAST.replace("-", "+"))
    assert order_of(policy) == "ab"


def test_an_error_of_a_helper_at_work_is_located_there(tmp_path: Path) -> None:
    policy = folder_of(tmp_path, "from helper import rank", helper="def rank(job):\n    return 1 / 0\n")
    with pytest.raises(PolicyError, match=r"ZeroDivisionError at .*helper\.py:2"):
        order_of(policy)


CONTRACT = ("edf", "elasticflow", "fifo", "fifo-skip", "sjf", "srtf", "vtrain-aware")
SEVERAL = TEXTS["two policies in one file"]


def test_registered_policies() -> None:
    infos = list_policies()
    assert [info.name for info in infos] == sorted(info.name for info in infos)
    assert set(CONTRACT) <= {info.name for info in infos}
    assert all(info.summary and info.planner in PLANNERS for info in infos)
    planners = {info.name: info.planner for info in infos}
    assert (planners["elasticflow"], planners["vtrain-aware"]) == ("data-parallel", "best")


def test_policies_in_files(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(SEVERAL)
    policy = make_policy(f"{mine}:Mine", {"quantum_s": 5, "names": ["x"]})
    assert (policy.planner, vars(policy)) == ("megatron", {"quantum_s": 5, "names": ["x"]})
    assert isinstance(make_policy(f"{mine}:Plain", {}), Scheduler)
    assert vars(make_policy(f"{mine}:Mine", {"names": None}))["names"] is None  # it states no type
    assert vars(make_policy("elasticflow", {"guard_s": None})) == vars(make_policy("elasticflow", {}))


@pytest.mark.parametrize(
    ("name", "params", "text"),
    [
        ("las", {"quantum_s": "x" * 100_000}, "policy las: quantum_s='xxx.*: must be a finite number"),
        ("tiresias", {"order": ["x" * 999] * 999}, "order=.*: must be start or submission"),
        ("tiresias", {"thresholds_gpu_s": "x" * 999}, "thresholds_gpu_s=.*: must be a list of positive"),
        ("drf", {"weights": {"a" * 999: "x" * 999}}, "weights: a{60}='.*: must be a finite number"),
        ("elasticflow", {"admission": "x" * 999}, "admission='.*: must be true or false"),
    ],
)
def test_of_long_values_the_beginning_is_shown(name: str, params: dict[str, Any], text: str) -> None:
    with pytest.raises(UserError, match=text) as caught:
        make_policy(name, params)
    assert len(str(caught.value)) < 1000


def test_third_parties_that_do_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("theirs", "no_such_package_here:Theirs", registry.GROUP)
    monkeypatch.setattr(registry, "_registered", lambda: {"theirs": entry})
    with pytest.raises(
        PolicyError,
        match=r"policy theirs \(no_such_package_here:Theirs\) does not load: .*ModuleNotFoundError",
    ):
        find_policy("theirs")


def test_errors_survive_the_way_out_of_a_worker() -> None:
    with pytest.raises(UnknownName) as caught:
        find_policy("fif")
    error, twin = caught.value, pickle.loads(pickle.dumps(caught.value))
    assert str(twin) == str(error)
    assert (twin.kind, twin.name, twin.known) == (error.kind, error.name, error.known)


# Fingerprints


def test_the_parts_that_count() -> None:
    """Changes to these parts outdate earlier results. All other packages only look at results."""
    assert list(PARTS) == ["itertime", "traces", "clustersim"]
    assert PARTS["itertime"] == PARTS["traces"] == (".",)
    assert set(SIMULATOR) == {
        "cluster", "overheads", "failures", "placement", "records", "sites", "speed", "bounds", "jobs",
        "rundir", "analysis", "scheduler", "engine", "runs", "errors.py", "energy.py", "gctuning.py",
        "jit.py",
    }  # fmt: skip
    assert len(code_hash()) == 64


def test_the_parts_are_all_that_a_run_imports() -> None:
    seen: set[str] = set()
    waiting = ["clustersim.runs.run"]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += arrows()[name]
    units = {modules()[name].unit for name in seen if name.startswith("clustersim.")}
    assert units == {part.removesuffix(".py") for part in SIMULATOR}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name in ("engine/clock.py", "engine/deep/table.json", "report/page.py", "errors.py", "cli.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    return tmp_path


@pytest.mark.parametrize(("name", "counts"), table_rows("files of the parts count and others do not"))
def test_files_of_the_parts_count_and_others_do_not(package: Path, name: str, counts: bool) -> None:
    hash_of_package = hash_of_parts(package, ("engine", "errors.py"))
    (package / name).parent.mkdir(exist_ok=True)
    (package / name).write_text("2")
    assert (hash_of_parts(package, ("engine", "errors.py")) != hash_of_package) == counts


def test_a_part_that_is_missing_is_a_mistake(package: Path) -> None:
    with pytest.raises(AssertionError, match="placement"):
        hash_of_parts(package, ("placement",))


SHAPE = "layers: 24\nhidden: 2048\nheads: 16\nvocab: 51200\nseq_len: 2048\n"
HEADER = "job_id,submit_s,model,global_batch,iterations,gpus\n"
RUN = ["--policy", "easy", "--cluster", "n1g8"]


@pytest.fixture
def here(here: Path) -> Path:
    """A trace that names a file beside it, one in a folder, and a shipped model."""
    for folder in ("mine", "more", "secret"):
        (here / folder).mkdir()
    (here / "own.yaml").write_text(SHAPE)
    (here / "mine" / "small.yaml").write_text(SHAPE.replace("24", "12"))
    (here / "t.csv").write_text(
        f"{HEADER}a,0,own.yaml,64,20,8\nb,1,small,64,20,4\nc,2,gpt3-1.3b,64,20,8\nd,3,own.yaml,64,5,8\n"
    )
    return here


def test_a_run_of_own_models_is_proved_without_their_files(here: Path, call: Call) -> None:
    assert call("trace", "check", "t.csv", "--model-path", "mine").code == 0
    assert call("run", "t.csv", *RUN, "--model-path", "mine", "--out", "out").code == 0
    manifest = json.loads((here / "out" / "manifest.json").read_text())
    assert list(manifest["models"]) == ["own.yaml", "small"]
    path = here / "mine" / "small.yaml"
    assert manifest["models"]["small"]["files"] == [{"path": "mine/small.yaml", "sha256": sha256(path)}]
    assert manifest["models"]["small"]["spec"]["layers"] == 12
    path.unlink()
    (here / "own.yaml").write_text(SHAPE.replace("2048", "4096"))
    (here / "elsewhere").mkdir()
    shutil.move("t.csv", "elsewhere")
    for more in ([], ["--replay"]):
        code, _, said = call("check", "out", "--trace", "elsewhere/t.csv", *more)
        assert code == 0, said
    assert call("report", "out").code == 0


def test_an_edit_of_a_model_or_of_its_lengths_counts_in_the_same_process(bert: Path) -> None:
    """Jobs that a program makes may name any file. Twice the layers take nearly twice the time."""
    own = Job("a", 0.0, model=str(bert / "own.yaml"), global_batch=64, iterations=20, gpus=8)
    padded = replace(own, model=str(bert / "bert.yaml"), global_batch=256, plan_options=OPTIONS)
    for job, name, edit, least, most in (
        (own, "own.yaml", ("24", "48"), 1.7, 2.1),
        (padded, "mine.csv", ("300", "10"), 1 / 0.6, 9.0),
    ):
        first = clustersim.run([job], "fifo", cluster="n1g8", overheads=None)
        (bert / name).write_text((bert / name).read_text().replace(*edit))
        second = clustersim.run([job], "fifo", cluster="n1g8", overheads=None)
        assert least < second.summary["makespan_s"] / first.summary["makespan_s"] < most
        assert list(first.manifest["models"]) == [job.model]
    shipped = [replace(own, model="gpt3-1.3b")]
    assert clustersim.run(shipped, "fifo").manifest["models"] == {}


def test_a_file_that_another_extends_counts_and_stays_in_the_folder(here: Path) -> None:
    (here / "long.yaml").write_text("extends: own.yaml\nseq_len: 4096\n")
    (here / "json.json").write_text('{"extends": "gpt3-1.3b", "seq_len": 4096}')
    models = Models(here)
    for name, files in (("long.yaml", ["long.yaml", "own.yaml"]), ("json.json", ["json.json"])):
        found = models.find(name)
        assert found is not None
        assert found.seq_len == 4096
        stated = models.document()[name]["files"]
        assert [one["path"] for one in stated] == [str(here / file) for file in files]


@pytest.mark.parametrize("name", ["link.yaml", "bert.yaml"])
def test_a_link_leads_out_of_the_folder_of_the_trace(bert: Path, name: str) -> None:
    """A link to a model, and one to the lengths of a model."""
    (bert / "sub").mkdir()
    (bert / "sub" / "link.yaml").symlink_to(bert / "own.yaml")
    (bert / "sub" / "mine.csv").symlink_to(bert / "mine.csv")
    (bert / "sub" / "bert.yaml").write_text(BERT)
    Path("sub/t.csv").write_text(f"{HEADER}a,0,{name},64,20,8\n")
    with pytest.raises(TableError, match=r"leads out of the folder|is not the file of a model"):
        read_trace("sub/t.csv")
    if name == "bert.yaml":
        (bert / "sub" / "mine.csv").unlink()
        (bert / "sub" / "mine.csv").write_text(LENGTHS)
        assert read_trace("sub/t.csv")


def test_recorded_models_are_what_was_read(here: Path) -> None:
    models = Models(here, ["mine"])
    own, small = models.find("own.yaml"), models.find("small")
    again = Models.recorded(json.loads(json.dumps(models.document())))
    assert (again.find("own.yaml"), again.find("small")) == (own, small)
    assert again.document() == models.document()
    assert again.find("gpt3-1.3b") == load_model("gpt3-1.3b")
    assert again.find("nowhere") is None


# Lengths of samples

LENGTHS = "tokens,sequences\n64,300\n512,100\n"
BERT = "extends: bert-large-wikipedia\nlengths: mine.csv\n"
OPTIONS = "batching=unpadded"


@pytest.fixture
def bert(here: Path) -> Path:
    """A trace beside a model of BERT with its own lengths."""
    (here / "bert.yaml").write_text(BERT)
    (here / "mine.csv").write_text(LENGTHS)
    (here / "b.csv").write_text(f"{HEADER[:-1]},plan_options\na,0,bert.yaml,256,20,8,{OPTIONS}\n")
    return here


def test_a_table_of_lengths_is_a_file_of_its_model(bert: Path, call: Call) -> None:
    assert call("run", "b.csv", *RUN, "--out", "out").code == 0
    (files,) = (
        m["files"] for m in json.loads((bert / "out" / "manifest.json").read_text())["models"].values()
    )
    assert files == [{"path": name, "sha256": sha256(bert / name)} for name in ("bert.yaml", "mine.csv")]
    (bert / "bert.yaml").unlink()
    for more in ([], ["--replay"]):
        assert call("check", "out", *more).code == 0
    (bert / "mine.csv").write_text(LENGTHS.replace("300", "301"))
    assert call("report", "out").code == 0
    code, _, said = call("check", "out", "--replay")
    assert code == 2
    assert "the lengths of model bert.yaml, mine.csv, are not those that the run read" in said
