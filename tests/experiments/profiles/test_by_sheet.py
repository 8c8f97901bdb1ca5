"""Chips by data sheets: what ships, what a class assumes, and what is fitted to measured iterations."""

import dataclasses
from pathlib import Path

import pytest

from experiments.evidence.fit_chips import chip_document, chip_runs
from experiments.profiles.by_sheet import SHEETS, shipped_texts
from itertime import Plan, load_model, predict
from itertime.accuracy import CHIPS_TABLE
from itertime.io import read_mapping
from itertime.profiling import class_figures, profile_by_sheet, reached_share, read_sheet, write_system
from itertime.spec import load_profile, load_system
from itertime.spec.profile import FOLDER
from itertime.spec.system import SYSTEMS
from tests.places import ROOT

NAMES = sorted(path.stem for path in SHEETS.glob("*.yaml"))
PLAN = Plan(tp=1, pp=1, dp=8, micro_batch=1, global_batch=64, zero_stage=3, recompute="full")


@pytest.mark.parametrize("name", NAMES)
def test_the_shipped_files_are_those_of_the_sheets(name: str) -> None:
    system, profile = shipped_texts(name)
    assert (SYSTEMS / f"{name}.yaml").read_text() == system
    assert (FOLDER / f"{name}.json").read_text() == profile


def test_the_page_has_the_shipped_figures() -> None:
    page = (ROOT / "docs" / "systems.md").read_text()
    for name, entry in read_mapping(CHIPS_TABLE)["chips"].items():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        assert f"| {entry['rows']} | {entry['models']} | {entry['efficiency']:.2f} |" in row
    for entry in read_mapping(CHIPS_TABLE)["classes"].values():
        assert f"{entry['efficiency']:.2f} for" in page


def test_kernels_follow_peaks_and_bandwidths() -> None:
    sheet = dataclasses.replace(
        read_sheet(SHEETS / "h20.yaml")[0], peak_flops_per_s=989.4e12, fp8_flops_per_s=1979e12
    )
    h100, same = load_profile("h100-80gb"), profile_by_sheet("same", sheet)
    assert (same.gemm.tiles, same.grouped_gemm["bf16"].tiles) == (
        h100.gemm.tiles,
        h100.grouped_gemm["bf16"].tiles,
    )
    assert (same.chip_class, reached_share(same)) == ("", pytest.approx(reached_share(h100)))
    assert same.elementwise["gelu"].bytes_per_s == pytest.approx(
        h100.elementwise["gelu"].bytes_per_s * 4 / 3.352
    )
    tpu = profile_by_sheet("tpu", dataclasses.replace(read_sheet(SHEETS / "tpu-v6e.yaml")[0], efficiency=0.9))
    assert (tpu.chip_class, tpu.precisions) == ("tpu", ("bf16",))
    assert reached_share(tpu) == pytest.approx(0.9)


def test_an_interval_names_the_class_of_a_new_chip(tmp_path: Path) -> None:
    write_system("mine", "dgx-h100", SHEETS / "gaudi2.yaml", tmp_path / "mine.yaml")
    model = load_model("llama3-8b")
    mine, gaudi2 = (
        predict(model, PLAN, system) for system in (load_system(tmp_path / "mine.yaml"), "gaudi2")
    )
    assert "other chips of class systolic" in mine.interval_basis
    assert "2 runs of 1 model on gaudi2" in gaudi2.interval_basis
    assert mine.interval_s is not None
    assert gaudi2.interval_s is not None
    assert mine.interval_s[1] / mine.interval_s[0] > gaudi2.interval_s[1] / gaudi2.interval_s[0]
    reached = (
        read_mapping(CHIPS_TABLE)["chips"]["gaudi2"]["efficiency"] / class_figures("systolic").efficiency
    )
    assert mine.breakdown["gemm"] / gaudi2.breakdown["gemm"] == pytest.approx(reached, rel=0.02)


@pytest.mark.long
def test_the_shipped_figures_are_fitted_to_the_tables(shared_dir: Path) -> None:
    folder = shared_dir / "data" / "iterations_2026"
    names = ("other_accelerators", "mlperf50_lora", "mlperf51_lora")
    built = chip_document(chip_runs([folder / f"{name}.csv" for name in names]))
    shipped = read_mapping(CHIPS_TABLE)
    for kind in ("classes", "chips"):
        assert built[kind].keys() == shipped[kind].keys()
        for name, entry in built[kind].items():
            assert entry["efficiency"] == pytest.approx(shipped[kind][name]["efficiency"], rel=0.03)
            assert entry["range"] == pytest.approx(shipped[kind][name]["range"], rel=0.05)
