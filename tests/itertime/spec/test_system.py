"""Systems: the shipped files, and errors in a user's file."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from itertime import Plan, load_model, predict
from itertime.errors import UserError
from itertime.io.mappings import LARGEST, SMALLEST
from itertime.spec import Elementwise, Site, System, list_profiles, list_systems, load_system, profile_of

GOOD = {
    "name": "mine",
    "profile": "a100-80gb",
    "gpus_per_node": "8",
    "nic_bytes_per_s": "25e9",  # which YAML 1.1 reads as text
    "nvlink_bytes_per_s": "300.0e+9",
    "source": "the vendor's sheet",
}


def write(folder: Path, changes: dict[str, str | None]) -> Path:
    """A system file; a change of None removes the key."""
    values = {key: value for key, value in (GOOD | changes).items() if value is not None}
    path = folder / "mine.yaml"
    path.write_text("".join(f"{key}: {value}\n" for key, value in values.items()))
    return path


def test_shipped_systems_name_a_shipped_profile() -> None:
    a100 = ["a100-80gb-800g", "dgx-a100-40gb", "dgx-a100-80gb", "dgx-a800-80gb", "a800", "leonardo"]
    h100 = ["dgx-h100", "dgx-h200", "h100-pcie", "marenostrum5", "p5-48xlarge"]
    b200 = ["dgx-b200", "dgx-b200-800g", "dgx-b300", "gb200-nvl72", "gb200-nvl72-800g", "gb300-nvl72"]
    cards = ["a100-pcie", "a100-pcie-40gb", "a30", "dell-dss8440"]
    v100 = ["dgx-v100", "v100-pcie-40gbe", "v100-pcie-qdr"]
    assert list_systems() == sorted([*v100, *a100, *cards, *h100, *b200])
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


def test_the_link_between_sites_is_stated_in_gb_per_s(tmp_path: Path) -> None:
    system = load_system(write(tmp_path, {"site_link_gbps": "10", "site_link_latency_us": "30000"}))
    assert (system.site_link_bytes_per_s, system.site_link_latency_s) == (1.25e9, 0.03)
    assert load_system("dgx-h100,site_link_gbps=100").site_link_bytes_per_s == 12.5e9
    assert load_system("dgx-h100").site_link_bytes_per_s is None


def test_rails_of_800_gb_per_s_serve_every_gpu() -> None:
    """A GPU of each of two racks sums 8 GB: on its own NIC, whatever its neighbours do."""
    for name in ("dgx-b200", "gb200-nvl72"):
        slow, fast = load_system(name), load_system(f"{name}-800g")
        assert fast.nic_bytes_per_s == 2 * slow.nic_bytes_per_s
        assert fast.gpu_nic_bytes_per_s * fast.gpus_per_node == fast.nic_bytes_per_s
