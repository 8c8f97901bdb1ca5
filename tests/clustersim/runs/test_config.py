"""Settings: what `--set` understands, and how mistakes are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.runs import RunConfig
from itertime.errors import UnknownName, UserError


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


@pytest.mark.parametrize(
    ("assignment", "text"),
    [
        ("seed", r"--set 'seed': write NAME=VALUE"),
        ("=3", r"write NAME=VALUE"),
        ("overheads= ", r"--set 'overheads= ': the value is missing; write null for none"),
        ("a..b=3", r"write NAME=VALUE"),
        (".b=3", r"write NAME=VALUE"),
        ("a.b.c=3", r"nested one level deep"),
        ("policy.a.b=3", r"nested one level deep"),
        ("seed=[1", r"--set 'seed=\[1': the value is not valid YAML"),
        ("policy.x=!!python/object:os.system {}", r"not valid YAML"),
        ("policy.day=2020-13-45", r"not valid YAML"),
        ("policy.deep=" + "[" * 5000, r"not valid YAML"),
        ("seed=-1", r"setting seed=-1: .*greater than or equal to 0"),
        ("seed=1.5", r"setting seed=1\.5"),
        ("seed=lots", r"setting seed='lots'"),
        ("seed.x=1", r"setting seed="),
        ("seed=true", r"setting seed=True: must be a number, not true or false"),
        ("seed=[1]", r"setting seed=\[1\]: must be a whole number$"),
        ("until_s=true", r"setting until_s=True: must be a number, not true or false"),
        ("until_s=2024-05-01", r"setting until_s=datetime.date\(2024, 5, 1\): must be a number$"),
        ("placement=7", r"setting placement=7: must be text; put it in quotes"),
        ("calendar=3", r"setting calendar=3: must be a list of entries, or a file FILE.yaml"),
        ("quotas=3", r"setting quotas=3: is set part by part"),
        ("failures=llama3", r"setting failures='llama3': is set part by part: NAME.PART=VALUE"),
        ("failures.preset=[llama3]", r"unknown preset of failures"),
        ("overheads.preset={a: 1}", r"unknown preset of overheads"),
        (f"seed={'x' * 999}", r"setting seed='x{60}\.\.\.': must be a whole number"),
        ("until_s=.nan", r"setting until_s=nan"),
        ("until_s=.inf", r"setting until_s=inf"),
        ("until_s=-5", r"setting until_s=-5"),
        ("price_usd_per_gpu_h=-1", r"setting price_usd_per_gpu_h=-1"),
        ("overheads.launch_s=fast", r"overheads\.launch_s='fast': must be a number from 0"),
        ("overheads.preset=polux", r"unknown preset of overheads 'polux'; did you mean pollux"),
        ("estimates=3", r"setting estimates=3: is set part by part"),
        ("estimates.sigma=-1", r"sigma=-1: of the errors of stated work, must be a number from 0 to 10"),
        ("estimates.sigma=.nan", r"sigma=nan: .*must be a number from 0 to 10"),
        ("estimates.sigma=true", r"sigma=True: .*must be a number from 0 to 10"),
        ("estimates.sgma=1", r"unknown parameter of estimates 'sgma'; did you mean sigma"),
        ("quotas.red=-1", r"quotas\.red=-1: must be a whole number"),
        ("quotas.red=1.5", r"quotas\.red=1\.5: must be a whole number"),
        ("overheads=3", r"setting overheads=3"),
        ("cluster.nodes=4", r"setting cluster="),
        ("cluster=4", r"setting cluster=4"),
        ("params=3", r"setting params=3"),
        ("policy.x=.inf", r"setting params=.*finite"),
        ("policy.day=2020-01-01", r"setting params=.*must be finite numbers, text"),
    ],
)
def test_mistakes_are_named(assignment: str, text: str) -> None:
    with pytest.raises(UserError, match=text) as caught:
        make(assignment)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


def test_unknown_settings_suggest() -> None:
    with pytest.raises(UnknownName, match="unknown setting 'clutser'; did you mean cluster"):
        make("clutser=n4g8")
    with pytest.raises(UnknownName, match="unknown setting 'polices'"):
        make(polices="x")


def test_no_overheads_and_an_overhead_contradict() -> None:
    with pytest.raises(UserError, match=r"'overheads\.launch_s=10': contradicts --no-overheads"):
        make("overheads.launch_s=10", overheads=None)
    assert make(overheads=None).overheads is None


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


def test_the_policy_is_not_a_setting() -> None:
    with pytest.raises(UserError, match="name the policy with --policy"):
        RunConfig.make(["policy=srtf"], policy="fifo")


def test_numbers_as_people_write_them(tmp_path: Path) -> None:
    """YAML 1.1 takes 1e3 for text."""
    assert RunConfig.make(["policy.guard_s=1e3"], policy="elasticflow").params == {"guard_s": 1000.0}
    within = RunConfig.make(["policy.x=[100, 1e9, -1.5E-3, {a: .5e1}, 1e, e9, '1e9']"], policy="mine").params
    assert within == {"x": [100, 1e9, -1.5e-3, {"a": 5.0}, "1e", "e9", "1e9"]}
    (tmp_path / "plan.yaml").write_text("calendar: [{at_s: 1e3, remove: 1}]\n")
    assert RunConfig.make([f"calendar={tmp_path}/plan.yaml"], policy="fifo").calendar[0]["at_s"] == 1000.0
    with pytest.raises(UserError, match="finite"):
        RunConfig.make(["policy.x=[1e999]"], policy="mine")
