"""The page on runs on H100: its laws, its counts, and that the page in the repository is whole."""

from __future__ import annotations

import importlib.util
import sys

import numpy as np
import pytest

from tests.places import ROOT


@pytest.fixture(scope="module")
def h100():
    for name in ("accuracy", "h100_laws", "h100"):  # the last imports the others
        if name not in sys.modules:
            spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            spec.loader.exec_module(module)
    return sys.modules["h100"]


@pytest.fixture
def columns(h100):
    """Runs over nodes with a pipeline and without, some of them in sight of the fit."""
    rng = np.random.default_rng(0)
    count = 300
    return h100.Columns(
        measured=np.ones(count),
        gpus=rng.choice([16, 32, 64, 128], count),
        tp=rng.choice([1, 2, 4, 8, 16], count),
        pp=rng.choice([1, 2, 4, 8], count),
        layers=rng.choice([2, 4, 8, 16], count),
        slots=rng.choice([8, 32, 128], count),
        zero=rng.choice([0, 1], count),
        fitted_on=rng.random(count) < 0.5,
    )


def test_laws_are_found_from_runs_that_keep_them(h100, columns):
    """Whatever kind each run is of, which the fit is not told."""
    true = h100.Laws(4e-3, 3e-3, 0.3)
    rng = np.random.default_rng(1)
    predicted = columns.slots * columns.layers * 6e-3
    kinds = np.stack(list(true.kinds(predicted, columns).values()))
    measured = kinds[rng.integers(0, 4, len(predicted)), np.arange(len(predicted))]
    runs = h100.replace(columns, measured=measured * np.exp(rng.normal(0, 0.02, len(predicted))))
    found = h100.laws(predicted, runs)
    assert found.layer_s + 8 * found.rank_s == pytest.approx(true.layer_s + 8 * true.rank_s, rel=0.05)
    assert found.send_s == pytest.approx(true.send_s, rel=0.05)


def test_laws_spare_runs_without_a_pipeline_over_nodes(h100, columns):
    law, predicted = h100.Laws(1.0, 1.0, 1.0), np.ones(len(columns.tp))
    spared = (columns.pp == 1) | (columns.tp == 1)
    assert (law.slow_layers(predicted, columns)[spared] == 1).all()
    assert (law.slow_layers(predicted, columns)[~spared] > 1).all()
    assert (law.slow_sends(columns)[columns.pp == 1] == 0).all()


def test_every_run_over_nodes_is_counted_once(h100, columns):
    law, predicted = h100.Laws(4e-3, 3e-3, 0.3), columns.slots * columns.layers * 6e-3
    runs = h100.replace(columns, measured=law.slow_layers(predicted, columns))
    rows = np.ones(len(predicted), bool)
    lines = h100.behaviour(law.kinds(predicted, runs), runs, rows).splitlines()[2:]
    counts = {line.split("|")[1].strip(): int(line.split("|")[2]) for line in lines}
    assert sum(counts.values()) == int((runs.pp > 1).sum())
    assert counts["none of these"] == counts["slow sends"] == 0
    assert counts["as predicted"] > 0
    assert counts["slow layers"] > 0
    memory = np.where(runs.zero == 0, 80e9, 10e9)
    shares = h100.slow_sends_by(law.kinds(predicted, runs), runs, memory).splitlines()[2:]
    assert [line.split("|")[3].strip() for line in shares[:3]] == ["0.0", "-", "0.0"]


def test_a_run_loses_what_is_known_of_its_software_and_gets_it_back_step_by_step(h100, shared_dir):
    table = h100.read_table(shared_dir / "data" / "iterations" / f"{h100.NAME}.csv")
    runs = h100.RunSet.of(list(table)[:40])
    for run in runs.runs:
        state = h100.bare(run)
        assert not state.plan.broken_rules(state.model)
        assert state.model.ffn_hidden == 4 * state.model.hidden
        for change in h100.STEPS.values():
            state = change(state, run)
        assert state == run


def test_the_page_in_the_repository_is_whole(h100):
    text = (ROOT / "docs" / "h100.md").read_text()
    assert "<!--" not in text
    for step in h100.STEPS:
        assert text.count(f"| {step} |") == 2
    assert "refused" in text
