"""Whatever features meet under whatever policy: the audit finds nothing, and every job ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from .features import FEATURES
from .scenes import BY_DEFAULT, POLICIES, Draw, check, drawn, pairs, recorded, routed

RESULTS = recorded()


@pytest.mark.parametrize("draw", BY_DEFAULT, ids=str)
def test_a_scene_keeps_every_rule_and_its_result(draw: Draw, tmp_path: Path) -> None:
    assert check(draw, tmp_path) == RESULTS[draw.number], f"python -m tests.fuzz.scenes {draw.number}"


@pytest.mark.parametrize("draw", list(routed()), ids=str)
def test_routing_goes_with_all_that_keeps_jobs_off_nodes(draw: Draw, tmp_path: Path) -> None:
    check(draw, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("draw", list(pairs()), ids=str)
def test_every_pair_of_features_keeps_every_rule(draw: Draw, tmp_path: Path) -> None:
    check(draw, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("draw", [drawn(number) for number in range(1000, 2000)], ids=str)
def test_many_scenes_keep_every_rule(draw: Draw, tmp_path: Path) -> None:
    check(draw, tmp_path)


def test_every_policy_and_every_feature_occurs_by_default() -> None:
    assert {draw.policy for draw in BY_DEFAULT} == set(POLICIES)
    assert {name for draw in BY_DEFAULT for name in draw.features} == set(FEATURES)
