"""Settings: what `--set` understands, and how mistakes are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.runs import RunConfig
from itertime.errors import UserError


def make(*assignments: str, **values: Any) -> RunConfig:
    return RunConfig.make(list(assignments), **{"policy": "fifo", **values})


def test_defaults() -> None:
    config = make()
    assert (config.cluster, config.system, config.placement, config.seed) == (
        "n128g8",
        "dgx-a100-80gb",
        "pack",
        0,
    )
    assert (config.planner, config.overheads, config.params, config.until_s) == (None, {}, {}, None)


@pytest.mark.parametrize(
    ("assignment", "field", "value"),
    [
        ("cluster=n4g8", "cluster", "n4g8"),
        ("until_s=1e5", "until_s", 1e5),
        ("until_s=3600", "until_s", 3600.0),
        ("overheads.launch_s=10", "overheads", {"launch_s": 10.0}),
        ("overheads=null", "overheads", None),
        ("overheads={launch_s: 1, scale: 2}", "overheads", {"launch_s": 1.0, "scale": 2.0}),
        ("policy.guard_s=2", "params", {"guard_s": 2}),
        ("params.guard_s=2.5", "params", {"guard_s": 2.5}),
        ("policy.names=[a, b]", "params", {"names": ["a", "b"]}),
        ("price_usd_per_gpu_h=0", "price_usd_per_gpu_h", 0.0),
        (" seed = 7 ", "seed", 7),
        ("estimates.sigma=0.5", "estimates", {"sigma": 0.5}),
        ("policy.text=a=b", "params", {"text": "a=b"}),
    ],
)
def test_assignments(assignment: str, field: str, value: Any) -> None:
    assert getattr(make(assignment), field) == value


def test_assignments_add_up_and_the_last_one_counts() -> None:
    config = make("overheads.launch_s=1", "overheads.scale=2", "overheads.launch_s=3", "seed=1", "seed=2")
    assert config.overheads == {"launch_s": 3.0, "scale": 2.0}
    assert config.seed == 2


def test_configs_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        make().seed = 3  # type: ignore[misc]


@given(st.text(max_size=40))
@settings(deadline=None)
def test_arbitrary_text_ends_in_a_config_or_one_clear_error(text: str) -> None:
    try:
        config = make(text)
    except UserError:
        return
    assert isinstance(config, RunConfig)


def test_numbers_as_people_write_them(tmp_path: Path) -> None:
    """YAML 1.1 takes 1e3 for text."""
    assert RunConfig.make(["policy.guard_s=1e3"], policy="elasticflow").params == {"guard_s": 1000.0}
    within = RunConfig.make(["policy.x=[100, 1e9, -1.5E-3, {a: .5e1}, 1e, e9, '1e9']"], policy="mine").params
    assert within == {"x": [100, 1e9, -1.5e-3, {"a": 5.0}, "1e", "e9", "1e9"]}
    (tmp_path / "plan.yaml").write_text("calendar: [{at_s: 1e3, remove: 1}]\n")
    assert RunConfig.make([f"calendar={tmp_path}/plan.yaml"], policy="fifo").calendar[0]["at_s"] == 1000.0
