"""The page on accuracy: what its program writes, and that the page in the repository is whole."""

import dataclasses
import importlib.util
import json
import re
import sys
from types import SimpleNamespace

import pytest

from tests.places import ROOT, TABLES

SET = "a100_internevo_zero1"
DATA = TABLES.parent


def module(name):
    """A program of docs/, under its own name, by which the others import it."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


PROGRAMS = ("accuracy_tables", "accuracy_pictures", "accuracy_bert", "accuracy")
tables, pictures, bert, accuracy = (module(name) for name in PROGRAMS)


@pytest.fixture(scope="module")
def data():
    if not TABLES.exists():
        pytest.skip(f"{TABLES} is not here")
    return DATA


@pytest.fixture(scope="module")
def read(data):
    return lambda name: accuracy.read(accuracy.table_of(data, name))


def test_the_page_has_everything_for_some_sets(data, monkeypatch):
    monkeypatch.setattr(bert, "parts", lambda path: {})  # below
    text = accuracy.page(data, [SET, "h100_automodel_moe_bf16"], pictures=None)
    assert set(re.findall("<!-- (.+?) -->", text)) == {"bert", "bert_far", "bert_skipped", "bert_calibrated"}
    assert f"| {SET} | 27 | 27 |" in text
    assert "| h100_automodel_moe_bf16 | 6 | 6 |" in text
    assert "| H100, mixtures | 6 | 1 |" in text
    assert "| kind mixture | 6 |" in text
    assert "moe_dispatcher: taken as deepep" in text
    assert "zero_broadcast_s" in text
    assert "| pp 1 | 27 |" in text
    assert re.search(rf"\| {SET} \| 4.31 \| .* \| yes \|", text)


NODE = "one node of H100 SXM, all submitters"


@pytest.mark.parametrize("sites", [[NODE], pytest.param(list(bert.SITES), marks=pytest.mark.long)])
def test_the_page_has_mlperfs_bert(data, monkeypatch, sites):
    path = data / bert.TABLE
    if not path.exists():
        pytest.skip(f"{path} is not here")
    monkeypatch.setattr(bert, "SITES", {name: bert.SITES[name] for name in sites})
    parts = bert.parts(path)
    assert parts.keys() == {"bert", "bert_far", "bert_skipped", "bert_calibrated"}
    assert all(f"| {name} |" in parts["bert_calibrated"] for name in sites)
    assert "| A100 SXM; unpadded, stratified-exchanged; fp16 | 2 |" in parts["bert"]
    assert "| A100, all | 52 |" in parts["bert"]
    assert "- 15: the way of batching is not known" in parts["bert_skipped"]
    assert "Supermicro-SYS-420GP-TNAR+" in parts["bert_far"]
    assert f"| {NODE} | 17 |" in parts["bert_calibrated"]


def test_constants_that_calibrate_refuses_are_marked(data, monkeypatch):
    path = accuracy.table_of(data, SET)
    worse = accuracy.calibrate([path], ("launch_s",))
    time = dataclasses.replace(worse.time, held_out=2 * worse.time.neutral)
    refused = dataclasses.replace(worse, time=time)
    monkeypatch.setattr(accuracy, "calibrate", lambda *_, **__: refused)
    assert accuracy.chosen_anew([path]).endswith("| no: refused |")
    assert "; those of time refused |" in accuracy.calibrated([(SET, refused)])


def test_a_picture_is_the_same_on_every_run(read, tmp_path):
    pytest.importorskip("matplotlib")
    measured = read(SET)
    for name in ("one.svg", "two.svg"):
        pictures.draw("a100", [measured, measured], tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert b"measured, s per iteration" in (tmp_path / "one.svg").read_bytes()


def test_the_page_in_the_repository_is_whole():
    text = (ROOT / "docs" / "accuracy.md").read_text()
    assert "<!--" not in text
    for name in accuracy.SETS:
        assert f"| {name} |" in text
    for name in pictures.FAMILIES:
        assert f"(accuracy/{name}.svg)" in text
    drawn = {path.stem for path in (ROOT / "docs" / "accuracy").glob("*.svg")}
    assert drawn == set(pictures.FAMILIES)


def test_the_page_covers_every_table(data):
    names = {path.stem for each in accuracy.FOLDERS for path in (data / each).glob("*.csv")}
    assert set(accuracy.SETS) == names


@pytest.mark.parametrize("mixture", [False, True])
def test_every_set_is_in_one_picture(mixture):
    """Whatever its models are; those of ULTRASCALE are dense."""
    for name in set(accuracy.SETS) - ({accuracy.ULTRASCALE} if mixture else set()):
        each = SimpleNamespace(name=name, mixture=mixture)
        assert sum(member(each) for member in pictures.FAMILIES.values()) == 1, name


def test_errors_with_the_source_left_out_are_read_where_they_are_computed(read, tmp_path):
    assert tables.left_out(tmp_path / "missing.json") == {}
    path = tmp_path / "frameworks.json"
    files = {SET: {"rows": 27, "mape": 12.34, "bias": -5.67}}
    path.write_text(json.dumps({"constants": {}, "leave_one_out": {"internevo": {"files": files}}}))
    without = tables.left_out(path)
    assert without == files
    row = tables.zero_shot([read(SET)], without).splitlines()[-1]
    assert "| 12.3 | -5.7 |" in row
    assert tables.reached([read(SET)], without).splitlines()[-1].endswith("| 12.3 |")


def test_regret_is_that_of_the_plan_predicted_best(read):
    """Four groups of plans, and their mean: regret is never negative, being too optimistic may be."""
    text = accuracy.regret([read("a100_megatron_deepspeed")])
    rows = [[float(cell) for cell in line.split("|")[3:-1]] for line in text.splitlines()[2:]]
    assert len(rows) == 5
    assert [row[0] for row in rows[:4]] == [0.0, 9.4, 1.3, 0.6]
    for column in range(4):
        values = [row[column] for row in rows]
        assert values[4] == pytest.approx(sum(values[:4]) / 4, abs=0.1)
        assert column == 1 or min(values) >= 0


def test_the_headroom_refuses_runs_that_need_more_by_prediction(data):
    paths = [data / "iterations" / "a100_bigscience.csv"]
    others, every = accuracy.headroom(paths).splitlines()[2:]
    assert [cell.strip() for cell in every.split("|")[1:-1]] == ["all", "37", "0", "0", "0", "0"]
    assert accuracy.memory_stated(paths).endswith("| 23 | 7.0 | -5.2 | 0.99 | 1.07 | 1.13 | 8 of 21 |")
    assert others.startswith("| all others | 37 |")
