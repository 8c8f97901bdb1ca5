"""Systems and frameworks, shipped and of users, and what their values do; files that extend others."""

import dataclasses
import json
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from experiments.profiles.by_sheet import SHEETS
from itertime import ModelSpec, Plan, Site, load_model, load_system, predict
from itertime.errors import UserError
from itertime.io.mappings import LARGEST, SMALLEST
from itertime.spec import (
    Elementwise,
    Framework,
    System,
    list_profiles,
    list_systems,
    load_framework,
    load_profile,
    model_of,
    model_reference,
    profile_of,
    profile_path,
    resolved_digest,
)
from tests.tables import TABLES

GOOD = TABLES["a system of a user"]


def write(folder: Path, changes: dict[str, str | None]) -> Path:
    """A system file; a change of None removes the key."""
    values = {key: value for key, value in (GOOD | changes).items() if value is not None}
    path = folder / "mine.yaml"
    path.write_text("".join(f"{key}: {value}\n" for key, value in values.items()))
    return path


def test_shipped_systems_name_a_shipped_profile() -> None:
    a100 = ["a100-80gb-800g", "dgx-a100-40gb", "dgx-a100-80gb", "dgx-a800-80gb", "a800", "leonardo"]
    h100 = ["dgx-h100", "dgx-h200", "dgx-h800", "gh200", "h100-pcie", "marenostrum5", "p5-48xlarge"]
    b200 = ["dgx-b200", "dgx-b200-800g", "dgx-b300", "gb200-nvl72", "gb200-nvl72-800g", "gb300-nvl72"]
    cards = ["a100-pcie", "a100-pcie-40gb", "a30", "dell-dss8440"]
    v100 = ["dgx-v100", "v100-pcie-40gbe", "v100-pcie-qdr"]
    sheets = [path.stem for path in SHEETS.glob("*.yaml")]
    assert list_systems() == sorted([*v100, *a100, *cards, *h100, *b200, *sheets])
    for name in list_systems():
        system = load_system(name)
        assert system.name == name
        assert system.profile in list_profiles()
        assert system.site == Site()


def test_with_nic_changes_the_nics_only() -> None:
    system = load_system("dgx-a100-80gb")
    slower = system.with_nic(400)
    assert slower.nic_bytes_per_s == 50e9
    assert slower.nics_per_node == 2
    assert dataclasses.replace(slower, nic_bytes_per_s=system.nic_bytes_per_s, nics_per_node=8) == system


def test_a_users_own_file(tmp_path: Path) -> None:
    site = "{gemm_multiplier: 1.1, layer_overhead_s: 0.004}"
    system = load_system(write(tmp_path, {"site": site}))
    assert system == System(
        name="mine",
        profile="a100-80gb",
        gpus_per_node=8,
        nic_bytes_per_s=25e9,
        nvlink_bytes_per_s=300e9,
        source="the vendor's sheet",
        site=Site(gemm_multiplier=1.1, layer_overhead_s=0.004),
    )


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("x.yaml", "#" * 5_000_000, "has 5,000,000 bytes; such a file has at most 4,000,000"),
        ("x.yaml", "[" * 5000, r"x\.yaml: not valid YAML: its lists and mappings are nested too deeply"),
        ("x.json", "[" * 100_000, r"x\.json: not valid JSON: its lists and mappings are nested too deeply"),
    ],
    ids=["large", "deep YAML", "deep JSON"],
)
def test_a_file_too_large_to_be_a_system(tmp_path: Path, name: str, content: str, says: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=says):
        load_system(tmp_path / name)


@pytest.mark.parametrize(
    "field", [name for name, value in vars(load_system("p5-48xlarge")).items() if isinstance(value, float)]
)
@pytest.mark.parametrize("end", [SMALLEST, LARGEST])
def test_every_valid_system_predicts_a_finite_time(field: str, end: float) -> None:
    system = load_system("p5-48xlarge")
    try:
        extreme = dataclasses.replace(system, **{field: end}, nodes_per_leaf=1, nodes_per_spine=2)
    except ValidationError:
        return
    found = predict(load_model("llama2-7b"), Plan(16, 2, 2, 1, 64), extreme)
    assert 0 < found.iteration_s < float("inf")
    assert json.dumps(found.breakdown, allow_nan=False)


def test_nvlink_may_join_several_nodes(tmp_path: Path) -> None:
    tray = load_system(write(tmp_path, {"gpus_per_node": "4"}))
    rack = load_system(write(tmp_path, {"gpus_per_node": "4", "nvlink_domain": "72"}))
    assert (tray.domain_gpus, tray.domain_nodes) == (4, 1)
    assert (rack.domain_gpus, rack.domain_nodes) == (72, 18)
    assert tray.domain_nic_bytes_per_s == 25e9
    assert rack.domain_nic_bytes_per_s == 18 * 25e9


def test_a_system_states_a_variant_of_its_gpu(tmp_path: Path) -> None:
    """The 40 GB A100: 1,555 GB/s instead of 2,039."""
    plain = profile_of(load_system(write(tmp_path, {})))
    assert plain is profile_of(load_system("dgx-a100-80gb"))
    small = profile_of(load_system(write(tmp_path, {"hbm_bytes_per_s": "1555e9", "memory_bytes": "42e9"})))
    assert (small.hbm_bytes_per_s, small.memory_bytes) == (1555e9, 42e9)
    ratio = small.seconds(Elementwise(1e10, "layernorm", 4096)) / plain.seconds(
        Elementwise(1e10, "layernorm", 4096)
    )
    assert ratio == pytest.approx(2039 / 1555, rel=0.01)


H100 = load_system("dgx-h100")
LLAMA = load_model("llama3-8b")
SHARDED = Plan(tp=1, pp=1, dp=16, micro_batch=1, global_batch=64, zero_stage=3, recompute="none")
TENSOR = Plan(tp=8, pp=1, dp=1, micro_batch=1, global_batch=8, sequence_parallel=True, recompute="none")
PIPELINE = Plan(tp=2, pp=4, dp=1, micro_batch=1, global_batch=8, recompute="none")
NEUTRAL = Framework(name="neutral", source="a test")


def seconds(plan: Plan, **changes: object) -> float:
    framework = replace(NEUTRAL, **changes)  # type: ignore[arg-type]
    return predict(LLAMA, plan, H100, framework=framework).iteration_s


def test_the_neutral_framework_changes_nothing() -> None:
    shipped = load_framework("megatron")
    assert replace(shipped, name="neutral", source="a test") == NEUTRAL


def test_a_file_extends_a_shipped_framework(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("extends: te\nname: mine\ncontention: 0.5\n")
    mine = load_framework(str(file))
    assert mine == replace(load_framework("te"), name="mine", contention=0.5)
    system = replace(H100, framework=str(file))
    assert predict(LLAMA, SHARDED, system) == predict(LLAMA, SHARDED, H100, framework=mine)


def test_hidden_communication_slows_computation_by_the_stated_share() -> None:
    none, half, whole = (seconds(SHARDED, contention=share) for share in (0.0, 0.5, 1.0))
    assert none < half < whole
    assert whole - half == pytest.approx(half - none)
    parts = predict(LLAMA, SHARDED, H100, framework=replace(NEUTRAL, contention=1.0)).breakdown
    assert parts["contention"] == pytest.approx(whole - none)


def test_only_the_stated_share_of_overlapped_tensor_parallel_communication_is_exposed() -> None:
    def exposed(plan: Plan, **changes: object) -> float:
        framework = replace(NEUTRAL, **changes)  # type: ignore[arg-type]
        return predict(LLAMA, plan, H100, framework=framework).breakdown["tp_comm"]

    full = exposed(TENSOR)
    assert exposed(TENSOR, tp_exposed=0.25) == full  # a framework that hides nothing by default
    assert exposed(TENSOR, tp_exposed=0.25, tp_overlap=True) == pytest.approx(full / 4)
    assert exposed(replace(TENSOR, tp_overlap=True), tp_exposed=0.25) == pytest.approx(full / 4)
    assert exposed(replace(TENSOR, tp_overlap=False), tp_exposed=0.25, tp_overlap=True) == full
    whole = replace(TENSOR, sequence_parallel=False)
    assert exposed(whole, tp_exposed=0.25, tp_overlap=True) == exposed(whole) > 0


def test_overheads_add_up_by_layer_micro_batch_and_stage() -> None:
    layers, batches = LLAMA.layers, PIPELINE.microbatches
    assert seconds(TENSOR, layer_s=1e-3) - seconds(TENSOR) == pytest.approx(layers * 8 * 1e-3)
    assert seconds(TENSOR, iteration_s=0.5) - seconds(TENSOR) == pytest.approx(0.5)
    assert seconds(TENSOR, pipeline_layer_s=1.0, micro_batch_s=1.0) == seconds(TENSOR)
    # A pipeline of equal stages is as long as its micro-batches and the bubble of the others.
    more = seconds(PIPELINE, pipeline_layer_s=1e-3) - seconds(PIPELINE)
    assert more == pytest.approx((batches + 3) * layers / 4 * 1e-3, rel=1e-6)
    more = seconds(PIPELINE, micro_batch_s=1e-3) - seconds(PIPELINE)
    assert more == pytest.approx((batches + 3) * 1e-3, rel=1e-6)


def test_a_framework_with_a_fused_loss_saves_time_and_memory_as_a_model_does() -> None:
    by_model = predict(replace(LLAMA, fused_loss=True), SHARDED, H100, framework=NEUTRAL)
    by_framework = predict(LLAMA, SHARDED, H100, framework=replace(NEUTRAL, fused_loss=True))
    plain = predict(LLAMA, SHARDED, H100, framework=NEUTRAL)
    assert by_framework.iteration_s == by_model.iteration_s < plain.iteration_s
    assert by_framework.memory_bytes == by_model.memory_bytes < plain.memory_bytes


NODE = "name: node\nprofile: a100-80gb\ngpus_per_node: 8\nnvlink_bytes_per_s: 3e11\nsource: here\n"


def written(folder: Path, **files: str) -> Path:
    """Files `NAME.yaml` with these texts; the path of the first."""
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder / f"{next(iter(files))}.yaml"


def test_a_model_has_the_keys_of_the_one_that_it_extends(tmp_path: Path) -> None:
    path = written(
        tmp_path, mine="extends: base.yaml\nlayers: 4\n", base="extends: llama3-8b\nseq_len: 4096\n"
    )
    model, whole = load_model(str(path)), load_model("llama3-8b")
    changed = {"name": "mine", "layers": 4, "seq_len": 4096, "parameters_published": ""}
    assert asdict(model) == asdict(whole) | changed
    assert [file.stem for file in model_reference(str(path)).files] == ["mine", "base", "llama3-8b"]
    assert [file.stem for file in model_reference(str(path)).user_files] == ["mine", "base"]
    written(tmp_path, base="extends: llama3-8b\nseq_len: 64\n")  # it has changed
    assert load_model(str(path)).seq_len == 64


def test_names_and_published_counts_are_not_inherited(tmp_path: Path) -> None:
    path = written(tmp_path, mine="extends: base.yaml\n", base="extends: mixtral-8x7b\nname: given\n")
    model = load_model(str(path))
    assert (model.name, model.parameters_published, model.active_parameters_published) == ("mine", "", "")
    assert load_system(written(tmp_path, own="extends: dgx-h100\n")).name == "own"


def test_a_base_is_relative_to_the_file_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inner").mkdir()
    written(tmp_path / "inner", base="extends: dgx-h100\nnics_per_node: 4\n")
    path = written(tmp_path, mine="extends: inner/base.yaml\n")
    monkeypatch.chdir("/")
    assert load_system(path).nics_per_node == 4


def test_the_keys_of_a_site_are_merged_one_by_one(tmp_path: Path) -> None:
    base = f"{NODE}nic_gbps: 100\nsite: {{launch_us: 30, p2p_exposure: 0.5}}\n"
    path = written(tmp_path, mine="extends: base.yaml\nsite: {p2p_exposure: 1}\n", base=base)
    assert load_system(path).site == Site(launch_s=30e-6, p2p_exposure=1.0)


def test_a_chain_of_eight_files_is_the_longest(tmp_path: Path) -> None:
    files = {f"f{i}": f"extends: f{i + 1}.yaml\n" for i in range(7)}
    path = written(tmp_path, **files, f7="layers: 2\nhidden: 64\nheads: 4\nvocab: 100\nseq_len: 16\n")
    assert load_model(str(path)).layers == 2
    with pytest.raises(UserError, match="more than 8 files"):
        load_model(str(written(tmp_path, longer="extends: f0.yaml\n")))


@given(st.data())
def test_keys_may_be_spread_over_a_chain(data: st.DataObject) -> None:
    """However a model's keys are spread, and whatever bases state of keys that are stated again above."""
    keys: dict[str, Any] = TABLES["keys that may be spread over a chain"]
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
    path = written(tmp_path, mine="extends: dgx-h100\nnic_gbps: 8\n")
    changed = load_system(f"{path},site.launch_us=30,collective_algorithms=[tree],nic_gbps=16")
    assert (changed.nic_bytes_per_s, changed.site.launch_s) == (2e9, 30e-6)
    assert changed.collective_algorithms == ("tree",)
    assert changed.nvlink_bytes_per_s == load_system("dgx-h100").nvlink_bytes_per_s
    measured = load_system("a100-pcie").nvlink_slowdown  # holds for the links that it was measured with
    assert (measured, load_system("a100-pcie,nvlink_bytes_per_s=1e10").nvlink_slowdown) == (9.4, None)
    assert load_system("a100-pcie,nvlink_slowdown=7,nvlink_bytes_per_s=1e10").nvlink_slowdown == 7


def test_the_digest_is_of_what_is_resolved(tmp_path: Path) -> None:
    path = written(tmp_path, mine="extends: base.yaml\n", base="extends: dgx-h100\nnic_gbps: 8\n")
    before = resolved_digest(load_system(path))
    written(tmp_path, base="# a comment\nnic_gbps: 8.0\nextends: dgx-h100\n")
    assert resolved_digest(load_system(path)) == before
    written(tmp_path, base="extends: dgx-h100\nnic_gbps: 9\n")
    assert resolved_digest(load_system(path)) != before


def test_a_systems_files_lie_beside_it_or_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside, current = tmp_path / "beside", tmp_path / "current"
    beside.mkdir()
    current.mkdir()
    monkeypatch.chdir(current)
    mine = "extends: te\nname: {}\n"
    path = written(
        beside, node="extends: dgx-h100\nframework: mine.yaml\n", mine=mine.format("beside the system")
    )
    assert load_framework(load_system(str(path)).framework).name == "beside the system"
    (beside / "mine.yaml").unlink()
    for name in ("in the current folder", "changed there"):
        written(current, mine=mine.format(name))
        assert load_framework(load_system(str(path)).framework).name == name
    (beside / "own.json").write_text(profile_path("a100-80gb").read_text())
    path = written(beside, node="extends: dgx-h100\nprofile: own.json\n", child="extends: node.yaml\n")
    for file in (path, beside / "child.yaml"):
        assert profile_of(load_system(str(file))) == load_profile("a100-80gb")
    (beside / "own.json").write_text(profile_path("h100-80gb").read_text())  # it has changed
    assert profile_of(load_system(str(path))) == load_profile("h100-80gb")
