"""What every registered policy must pass."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

from clustersim.registry import find_policy, list_policies
from clustersim.testing import check_scheduler

NAMES = [info.name for info in list_policies()]


@pytest.mark.parametrize("name", NAMES)
def test_keeps_every_rule(name: str) -> None:
    check_scheduler(find_policy(name))


@pytest.mark.parametrize("name", NAMES)
def test_says_what_it_is(name: str) -> None:
    cls = find_policy(name)
    assert cls.__doc__
    assert cls.__module__.replace("policies.", "").replace("_", "-") == name, "one small file per policy"


@pytest.mark.parametrize("name", NAMES)
def test_its_examples_hold(name: str) -> None:
    module = import_module(find_policy(name).__module__)
    assert doctest.testmod(module).failed == 0
