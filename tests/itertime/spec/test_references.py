"""Files that extend others, other units, and changes by KEY=VALUE."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from itertime import ModelSpec, Site, load_model, load_system
from itertime.errors import UserError
from itertime.spec import (
    load_framework,
    load_profile,
    model_of,
    model_reference,
    profile_of,
    profile_path,
    resolved_digest,
)

NODE = "name: node\nprofile: a100-80gb\ngpus_per_node: 8\nnvlink_bytes_per_s: 3e11\nsource: here\n"


def write(folder: Path, **files: str) -> Path:
    """Files `NAME.yaml` with these texts; the path of the first."""
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder / f"{next(iter(files))}.yaml"


def test_a_model_has_the_keys_of_the_one_that_it_extends(tmp_path: Path) -> None:
    path = write(tmp_path, mine="extends: base.yaml\nlayers: 4\n", base="extends: llama3-8b\nseq_len: 4096\n")
    model, whole = load_model(str(path)), load_model("llama3-8b")
    changed = {"name": "mine", "layers": 4, "seq_len": 4096, "parameters_published": ""}
    assert asdict(model) == asdict(whole) | changed
    assert [file.stem for file in model_reference(str(path)).files] == ["mine", "base", "llama3-8b"]
    assert [file.stem for file in model_reference(str(path)).user_files] == ["mine", "base"]


def test_names_and_published_counts_are_not_inherited(tmp_path: Path) -> None:
    path = write(tmp_path, mine="extends: base.yaml\n", base="extends: mixtral-8x7b\nname: given\n")
    model = load_model(str(path))
    assert (model.name, model.parameters_published, model.active_parameters_published) == ("mine", "", "")
    assert load_system(write(tmp_path, own="extends: dgx-h100\n")).name == "own"


def test_a_base_is_relative_to_the_file_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inner").mkdir()
    write(tmp_path / "inner", base="extends: dgx-h100\nnics_per_node: 4\n")
    path = write(tmp_path, mine="extends: inner/base.yaml\n")
    monkeypatch.chdir("/")
    assert load_system(path).nics_per_node == 4


def test_the_keys_of_a_site_are_merged_one_by_one(tmp_path: Path) -> None:
    base = f"{NODE}nic_gbps: 100\nsite: {{launch_us: 30, p2p_exposure: 0.5}}\n"
    path = write(tmp_path, mine="extends: base.yaml\nsite: {p2p_exposure: 1}\n", base=base)
    assert load_system(path).site == Site(launch_s=30e-6, p2p_exposure=1.0)


def test_a_chain_of_eight_files_is_the_longest(tmp_path: Path) -> None:
    files = {f"f{i}": f"extends: f{i + 1}.yaml\n" for i in range(7)}
    path = write(tmp_path, **files, f7="layers: 2\nhidden: 64\nheads: 4\nvocab: 100\nseq_len: 16\n")
    assert load_model(str(path)).layers == 2
    with pytest.raises(UserError, match="more than 8 files"):
        load_model(str(write(tmp_path, longer="extends: f0.yaml\n")))


@given(st.data())
def test_keys_may_be_spread_over_a_chain(data: st.DataObject) -> None:
    """However a model's keys are spread, and whatever bases state of keys that are stated again above."""
    keys: dict[str, Any] = {
        "layers": 4,
        "hidden": 64,
        "heads": 4,
        "vocab": 100,
        "seq_len": 16,
        "ffn_hidden": 96,
    }
    length = data.draw(st.integers(1, 5))
    home = {key: data.draw(st.integers(0, length - 1), label=key) for key in keys}
    with TemporaryDirectory() as folder:
        for i in range(length):
            own = {key: value for key, value in keys.items() if home[key] == i}
            hidden = {key: 8 for key in keys if home[key] < i and data.draw(st.booleans())}
            base = {"extends": f"{i + 1}.json"} if i + 1 < length else {}
            (Path(folder) / f"{i}.json").write_text(json.dumps({**own, **hidden, **base}))
        reference = model_reference(f"{folder}/0.json")
    assert model_of(reference) == ModelSpec(name="0", **keys)
    assert len(reference.files) == length


@given(st.floats(1e-3, 1e6), st.floats(0, 1e6))
def test_other_units_are_converted_once(gbps: float, us: float) -> None:
    changed = load_system(f"dgx-h100,nic_gbps={gbps!r},network_latency_us={us!r}")
    assert changed.nic_bytes_per_s == gbps * 1e9 / 8
    assert changed.network_latency_s == us / 1e6


def test_changes_behind_a_name_or_a_path(tmp_path: Path) -> None:
    path = write(tmp_path, mine="extends: dgx-h100\nnic_gbps: 8\n")
    changed = load_system(f"{path},site.launch_us=30,collective_algorithms=[tree],nic_gbps=16")
    assert (changed.nic_bytes_per_s, changed.site.launch_s) == (2e9, 30e-6)
    assert changed.collective_algorithms == ("tree",)
    assert changed.nvlink_bytes_per_s == load_system("dgx-h100").nvlink_bytes_per_s


def test_the_digest_is_of_what_is_resolved(tmp_path: Path) -> None:
    path = write(tmp_path, mine="extends: base.yaml\n", base="extends: dgx-h100\nnic_gbps: 8\n")
    before = resolved_digest(load_system(path))
    write(tmp_path, base="# a comment\nnic_gbps: 8.0\nextends: dgx-h100\n")
    assert resolved_digest(load_system(path)) == before
    write(tmp_path, base="extends: dgx-h100\nnic_gbps: 9\n")
    assert resolved_digest(load_system(path)) != before


def test_a_systems_files_lie_beside_it_or_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside, current = tmp_path / "beside", tmp_path / "current"
    beside.mkdir()
    current.mkdir()
    monkeypatch.chdir(current)
    mine = "extends: te\nname: {}\n"
    path = write(
        beside, node="extends: dgx-h100\nframework: mine.yaml\n", mine=mine.format("beside the system")
    )
    assert load_framework(load_system(str(path)).framework).name == "beside the system"
    (beside / "mine.yaml").unlink()
    write(current, mine=mine.format("in the current folder"))
    assert load_framework(load_system(str(path)).framework).name == "in the current folder"
    (beside / "own.json").write_text(profile_path("a100-80gb").read_text())
    path = write(beside, node="extends: dgx-h100\nprofile: own.json\n", child="extends: node.yaml\n")
    for file in (path, beside / "child.yaml"):
        assert profile_of(load_system(str(file))) == load_profile("a100-80gb")
