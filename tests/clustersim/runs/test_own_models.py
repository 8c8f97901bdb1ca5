"""Models of the user: a trace names their files, the run folder keeps them, and proofs need no file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import clustersim
from clustersim.cli import main
from itertime.errors import TableError, UserError
from itertime.io import sha256
from itertime.spec import Models, load_model
from traces import Job
from traces.native import read_trace

SHAPE = "layers: 24\nhidden: 2048\nheads: 16\nvocab: 51200\nseq_len: 2048\n"
HEADER = "job_id,submit_s,model,global_batch,iterations,gpus\n"
RUN = ["--policy", "easy", "--cluster", "n1g8"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A trace that names a file beside it, one in a folder, and a shipped model."""
    monkeypatch.chdir(tmp_path)
    for folder in ("mine", "more", "secret"):
        (tmp_path / folder).mkdir()
    (tmp_path / "own.yaml").write_text(SHAPE)
    (tmp_path / "mine" / "small.yaml").write_text(SHAPE.replace("24", "12"))
    (tmp_path / "more" / "small.yml").write_text(SHAPE)
    (tmp_path / "t.csv").write_text(
        f"{HEADER}a,0,own.yaml,64,20,8\nb,1,small,64,20,4\nc,2,gpt3-1.3b,64,20,8\nd,3,own.yaml,64,5,8\n"
    )
    return tmp_path


Told = Callable[..., tuple[int, str]]


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    """The exit code of a command, and what it says on stderr."""

    def call(*arguments: str) -> tuple[int, str]:
        code = main([*arguments])
        return code, capsys.readouterr().err

    return call


def problems(name: str, *search: str, trace: str = "t2.csv") -> str:
    """What reading a trace says of one job of this model, after file, line and column."""
    Path(trace).write_text(f"{HEADER}a,0,{name},64,20,8\n")
    with pytest.raises(TableError) as caught:
        read_trace(trace, models=Models(Path(trace).parent, search))
    start = f"{trace}:2: model={name}: "
    assert str(caught.value).startswith(start)
    return str(caught.value).removeprefix(start)


def test_a_run_of_own_models_is_proved_without_their_files(here: Path, told: Told) -> None:
    assert told("trace", "check", "t.csv", "--model-path", "mine")[0] == 0
    assert told("run", "t.csv", *RUN, "--model-path", "mine", "--out", "out")[0] == 0
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
        code, said = told("check", "out", "--trace", "elsewhere/t.csv", *more)
        assert code == 0, said
    assert told("report", "out")[0] == 0


def test_an_edit_of_a_model_counts_in_the_same_process(here: Path) -> None:
    """Jobs that a program makes may name any file. Twice the layers take nearly twice the time."""
    jobs = [Job("a", 0.0, model=str(here / "own.yaml"), global_batch=64, iterations=20, gpus=8)]
    first = clustersim.run(jobs, "fifo", cluster="n1g8", overheads=None)
    (here / "own.yaml").write_text(SHAPE.replace("24", "48"))
    second = clustersim.run(jobs, "fifo", cluster="n1g8", overheads=None)
    assert 1.7 < second.summary["makespan_s"] / first.summary["makespan_s"] < 2.1
    assert list(first.manifest["models"]) == [str(here / "own.yaml")]
    shipped = [Job("a", 0.0, model="gpt3-1.3b", global_batch=64, iterations=20, gpus=8)]
    assert clustersim.run(shipped, "fifo").manifest["models"] == {}


def test_names_in_two_places_are_errors_that_name_both(here: Path) -> None:
    assert (
        problems("small", "mine", "more") == "is in mine/small.yaml and in more/small.yml; rename one of them"
    )
    shutil.copy("own.yaml", "mine/gpt3-1.3b.yaml")
    said = problems("gpt3-1.3b", "mine")
    assert said == "is in the shipped models and in mine/gpt3-1.3b.yaml; rename one of them"
    Path("t2.csv").write_text(f"{HEADER}a,0,gpt3-13b,64,20,8\n")
    assert read_trace("t2.csv", models=Models("", ["mine"])), "a conflict of names that no job uses is none"


def test_an_unknown_name_is_told_where_to_look(here: Path) -> None:
    assert "did you mean small" in problems("smal", "mine")
    assert "a folder (--model-path) may state others" in problems("quite-another")
    assert "there is no file gone.yaml" in problems("gone.yaml")
    with pytest.raises(UserError, match="--model-path gone: cannot be read: No such file"):
        Models("", ["gone"])


@pytest.mark.parametrize("name", ["../secret/key.yaml", "/etc/passwd.yaml", "mine/../../x.yaml", "link.yaml"])
def test_a_path_cannot_leave_the_folder_of_the_trace(here: Path, name: str) -> None:
    (here / "sub").mkdir()
    (here / "secret" / "key.yaml").write_text("password: swordfish\n")
    (here / "sub" / "link.yaml").symlink_to(here / "secret" / "key.yaml")
    said = problems(name, trace="sub/t.csv")
    assert said.startswith("leads out of the folder of the trace; name the model without ending")


@pytest.mark.parametrize(
    "content", ["password: swordfish\n", "swordfish", "a: [swordfish", "layers: swordfish\n"]
)
def test_errors_quote_nothing_of_a_file_that_a_trace_names(here: Path, content: str) -> None:
    (here / "key.yaml").write_text(content)
    said = problems("key.yaml")
    assert said == "is not the file of a model; `itertime models show key.yaml` says why"
    (here / "mine" / "key.yaml").write_text(content)
    assert "key.yaml" in problems("key", "mine"), "the user names this folder"


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
    (here / "sub").mkdir()
    (here / "sub" / "out.yaml").write_text("extends: ../own.yaml\nseq_len: 4096\n")
    with pytest.raises(UserError, match=r"is not the file of a model; `itertime models show .*out.yaml`"):
        Models(here / "sub").find("out.yaml")
    (here / "pool.yaml").write_text("extends: loop.yaml\n")
    (here / "loop.yaml").write_text("extends: pool.yaml\n")
    with pytest.raises(UserError, match="is not the file of a model"):
        Models(here).find("pool.yaml")


def test_recorded_models_are_what_was_read(here: Path) -> None:
    models = Models(here, ["mine"])
    own, small = models.find("own.yaml"), models.find("small")
    again = Models.recorded(json.loads(json.dumps(models.document())))
    assert (again.find("own.yaml"), again.find("small")) == (own, small)
    assert again.document() == models.document()
    assert again.find("gpt3-1.3b") == load_model("gpt3-1.3b")
    assert again.find("nowhere") is None


@pytest.mark.parametrize(
    "stated",
    [1, {}, {"files": []}, {"spec": {}, "files": []}, {"spec": {"layers": 1e999}, "files": []},
     {"spec": {"name": "x", "gone": 1}, "files": [{}]}, {"spec": [], "files": 3}],
)  # fmt: skip
def test_a_forged_manifest_is_an_error_of_the_user(stated: object) -> None:
    with pytest.raises(UserError, match=r"manifest.json: models: x is not stated as a model"):
        Models.recorded({"x": stated})
    assert Models.recorded([]).document() == {}


def test_a_cell_of_a_grid_depends_on_the_files_of_its_models(here: Path, told: Told) -> None:
    (here / "g.yaml").write_text(
        "set: {trace: t.csv, cluster: n1g8, model_path: [mine]}\nmatrix: {policy: [fifo]}\n"
    )
    assert "1 of 1 cells done (0 cached)" in told("grid", "g.yaml")[1]
    assert "1 of 1 cells exist" in told("grid", "g.yaml")[1]
    (here / "mine" / "small.yaml").write_text(SHAPE.replace("24", "36"))
    assert "1 of 1 cells done (0 cached)" in told("grid", "g.yaml")[1]
    code, said = told("check", "g/cells", "--replay")
    assert code == 0, said


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


def test_a_table_of_lengths_is_a_file_of_its_model(bert: Path, told: Told) -> None:
    assert told("run", "b.csv", *RUN, "--out", "out")[0] == 0
    (files,) = (
        m["files"] for m in json.loads((bert / "out" / "manifest.json").read_text())["models"].values()
    )
    assert files == [{"path": name, "sha256": sha256(bert / name)} for name in ("bert.yaml", "mine.csv")]
    (bert / "bert.yaml").unlink()
    for more in ([], ["--replay"]):
        assert told("check", "out", *more)[0] == 0
    (bert / "mine.csv").write_text(LENGTHS.replace("300", "301"))
    assert told("report", "out")[0] == 0
    code, said = told("check", "out", "--replay")
    assert code == 2
    assert "the lengths of model bert.yaml, mine.csv, are not those that the run read" in said


def test_an_edit_of_lengths_counts_in_the_same_process(bert: Path) -> None:
    job = Job("a", 0.0, model="bert.yaml", global_batch=256, iterations=20, gpus=8, plan_options=OPTIONS)
    times = []
    for count in ("300", "10"):
        (bert / "mine.csv").write_text(LENGTHS.replace("300", count))
        times.append(clustersim.run([job], "fifo", cluster="n1g8", overheads=None).summary["makespan_s"])
    assert times[0] < 0.6 * times[1]


@pytest.mark.parametrize(
    ("lengths", "content"),
    [("mine.csv", "tokens,sequences\n64,swordfish\n"), ("mine.csv", "tokens,sequences\n64,1\n700,1\n"),
     ("mine.csv", ""), ("gone.csv", LENGTHS), ("wikipedia-511", LENGTHS), ("../secret/l.csv", LENGTHS),
     ("/etc/passwd.csv", LENGTHS), ("link.csv", LENGTHS)],
)  # fmt: skip
def test_lengths_that_cannot_be_used_are_those_of_no_model(bert: Path, lengths: str, content: str) -> None:
    """Neither does a trace from elsewhere reach a file out of its folder, nor is one quoted."""
    (bert / "sub").mkdir()
    (bert / "secret" / "l.csv").write_text(LENGTHS)
    (bert / "sub" / "link.csv").symlink_to(bert / "secret" / "l.csv")
    (bert / "sub" / "mine.csv").write_text(content)
    (bert / "sub" / "bert.yaml").write_text(BERT.replace("mine.csv", lengths))
    said = problems("bert.yaml", trace="sub/t.csv")
    assert said == "is not the file of a model; `itertime models show sub/bert.yaml` says why"
    (bert / "sub" / "mine.csv").write_text(LENGTHS)
    (bert / "sub" / "bert.yaml").write_text(BERT)
    Path("sub/t.csv").write_text(f"{HEADER}a,0,bert.yaml,64,20,8\n")
    assert read_trace("sub/t.csv")
