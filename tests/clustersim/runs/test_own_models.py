"""Models of the user: a trace names their files, the run folder keeps them, and proofs need no file."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import clustersim
from itertime.errors import TableError
from itertime.io import sha256
from itertime.spec import Models, load_model
from tests.printed import Call
from traces import Job
from traces.native import read_trace

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
