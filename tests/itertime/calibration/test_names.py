"""Rows of other sources and models than any table here are read as meant, or skipped with a reason.

The runs are invented; their times are rough and not compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from itertime import Site, load_model
from itertime.calibration import validate
from itertime.calibration.conventions import (
    CONVENTIONS,
    SiteConventions,
    conventions_of,
    graphs_of,
    precision_of,
    published_names,
    system_of,
)
from itertime.calibration.measured_run import MeasuredRun, measured_run
from itertime.calibration.table import read_table
from itertime.spec import (
    PRECISIONS,
    ModelSpec,
    Plan,
    list_frameworks,
    list_lengths,
    list_models,
    list_systems,
)
from tests.effort import examples
from tests.iteration_table import table_of

PUBLISHED = yaml.safe_load(Path(__file__).with_name("names.yaml").read_text(encoding="utf-8"))
NODE, TRAY, RUN, DENSE, QWEN3, DEEPSEEK, GPT = PUBLISHED["rows"].values()
BRIDGE = {"framework": "Megatron-Bridge (Megatron Core, Transformer Engine)"}


def plan(tp: int, pp: int, dp: int, cp: int = 1, **others: Any) -> dict[str, Any]:
    degrees = {"tp": tp, "pp": pp, "dp": dp, "cp": cp, "gpus": tp * pp * dp * cp}
    return {**degrees, "sequence_parallel": tp > 1, **others}


def run_of(folder: Path, *parts: Mapping[str, Any]) -> MeasuredRun:
    row = {name: value for part in (RUN, *parts) for name, value in part.items()}
    (cells,) = read_table(table_of(row, folder))
    run = measured_run(cells, Site())
    run.plan.check(run.model)
    return run


@pytest.mark.parametrize(
    ("function", "meaning", "names"),
    [(function, *row) for function, table in PUBLISHED["aliases"].items() for row in table.items()],
)
def test_names_of_sources(function: str, meaning: str, names: str) -> None:
    """Of GPUs, precisions and CUDA graphs: all that is published for the same thing."""
    known = {"gpus": system_of, "precisions": precision_of, "cuda_graphs": lambda name: graphs_of(name, [])}
    assert {known[function](name) for name in names.split()} == {meaning}


def test_names_of_models() -> None:
    assert published_names("Qwen3-235B-A22B") == published_names("qwen3-235b") == ("qwen3-235b-a22b",)
    assert published_names("deepseek-v3-671b") == ("deepseek-v3",)
    assert published_names("Meta-Llama-3-8B") == ("llama3-8b",)
    assert published_names("") == published_names("an unpublished model") == ()


def test_modules_with_matrices_are_a_share_of_the_layers(tmp_path: Path) -> None:
    """By hand, the operations of a token in one layer, forward: attention's matrices, scores, MLP."""
    modules = {"recompute": "selective", "recompute_modules": "mlp"}
    run = run_of(tmp_path, NODE, DENSE, BRIDGE, plan(4, 4, 4), modules)
    attention = 2 * 8192 * 8192 + 2 * 8192 * 1024
    scores, mlp = 4096 * 8192, 3 * 8192 * 28672
    assert run.plan.recompute == "full"
    assert run.plan.recompute_fraction == pytest.approx(mlp / (attention + scores + mlp), rel=1e-12)
    both = run_of(
        tmp_path, NODE, QWEN3, BRIDGE, plan(1, 2, 32, ep=32), modules | {"recompute_modules": "moe"}
    )
    attention, experts = 2 * 4096 * (64 + 4) * 128, 8 * 3 * 4096 * 1536
    scores = 4096 * 64 * 128
    assert both.plan.recompute_fraction == pytest.approx(experts / (attention + scores + experts), rel=1e-12)
    assert any("share of layers" in text for text in both.assumed)


CELLS: dict[str, st.SearchStrategy[Any]] = {
    column: st.sampled_from(values) for column, values in PUBLISHED["cells"].items()
}
DEGREES = st.tuples(*map(st.sampled_from, ([1, 2, 3, 8], [1, 2, 5, 8], [1, 4, 32], [1, 2, 8])))
SOUND = st.tuples(
    st.sampled_from([NODE, TRAY, {**NODE, "gpu": "B200"}]),
    st.sampled_from(
        [
            {**DENSE, **plan(8, 4, 4, 2)},
            {**DENSE, **plan(4, 5, 8, interleave=4, global_batch=320)},
            {**QWEN3, **plan(2, 8, 16, ep=32, etp=1, interleave=3)},
            {**QWEN3, **plan(1, 1, 64, ep=64)},
            {**DEEPSEEK, **plan(1, 4, 64, ep=64, etp=1, interleave=4)},
            {**GPT, **plan(8, 35, 8, global_batch=1920)},
        ]
    ),
)
CHANGES = st.lists(st.sampled_from(sorted(CELLS)), max_size=4).flatmap(
    lambda names: st.fixed_dictionaries({name: CELLS[name] for name in names})
)


def check_answer(folder: Path, row: Mapping[str, Any]) -> None:
    result = validate(table_of(row, folder))
    if result.skipped:
        assert len(result.skipped[0].why) > 10
        return
    prediction = result.predicted[0].prediction
    assert math.isfinite(prediction.iteration_s)
    assert prediction.iteration_s > 0
    assert prediction.memory_bytes > 0
    for name, value in prediction.breakdown.items():
        assert math.isfinite(value), name
        assert value >= 0, name


@settings(
    max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cells=st.fixed_dictionaries(CELLS), degrees=DEGREES)
def test_any_row_is_predicted_or_skipped_with_a_reason(
    tmp_path: Path, cells: dict[str, Any], degrees: tuple[int, ...]
) -> None:
    check_answer(tmp_path, {**RUN, **plan(*degrees), **cells})


@settings(
    max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(sound=SOUND, changes=CHANGES)
def test_a_sound_row_with_other_cells_is_predicted_or_skipped_with_a_reason(
    tmp_path: Path, sound: tuple[dict[str, Any], dict[str, Any]], changes: dict[str, Any]
) -> None:
    node, run = sound
    check_answer(tmp_path, {**RUN, **node, **run, **BRIDGE, **changes})


def test_a_published_shape_without_its_name_is_said(tmp_path: Path) -> None:
    run = run_of(tmp_path, NODE, DEEPSEEK, {"model": ""}, plan(2, 8, 64, interleave=4, ep=64))
    assert run.model.dense_ffn_hidden == load_model("deepseek-v3").dense_ffn_hidden
    assert run.assumed == ("model: taken as deepseek-v3, whose shape it has",)


def names_of(kind: type) -> set[str]:
    return {field.name for field in fields(kind)}


def test_every_site_says_where_its_conventions_are_from() -> None:
    assert all(site.source for site in CONVENTIONS.sites.values())


def test_conventions_name_what_ships() -> None:
    sites = CONVENTIONS.sites.values()
    systems = {name for chip in CONVENTIONS.chips.values() for name in chip.systems.values()}
    systems |= {site.system for site in sites if site.system} | set(CONVENTIONS.bert.servers.values())
    assert systems <= set(list_systems())
    frameworks = {site.framework for site in sites if site.framework} | set(CONVENTIONS.software.values())
    assert frameworks <= set(list_frameworks())
    assert set(CONVENTIONS.precisions) <= set(PRECISIONS)
    assert {site.memory for site in sites if site.memory} <= set(CONVENTIONS.memories)
    assert CONVENTIONS.bert.model in list_models()
    assert CONVENTIONS.bert.lengths in list_lengths()


def test_conventions_set_fields_that_exist() -> None:
    for site in CONVENTIONS.sites.values():
        assert set(site.model) <= names_of(ModelSpec)
        assert set(site.plan) <= names_of(Plan)
        assert all(set(shape) <= names_of(ModelSpec) for shape in site.shapes.values())


def test_a_site_without_conventions_has_neutral_ones() -> None:
    assert conventions_of({"site": None}) == conventions_of({"site": "another"}) == SiteConventions()
