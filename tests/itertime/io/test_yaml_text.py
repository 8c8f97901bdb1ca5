"""YAML is data within limits: what aliases stand for is bounded, and errors name a line and a reason."""

from __future__ import annotations

import time

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from itertime.errors import UnknownName, quoted, shown
from itertime.io import YamlError, parse_yaml, yaml_nodes


def bomb(levels: int, width: int = 9) -> str:
    """Lists of the same list: `width ** levels` values in some hundred bytes."""
    lists = [f"&a0 [{', '.join(['x'] * width)}]"]
    lists += [f"&a{i} [{', '.join([f'*a{i - 1}'] * width)}]" for i in range(1, levels)]
    return f"[{', '.join(lists)}]"


@pytest.mark.parametrize("read", [parse_yaml, yaml_nodes])
@pytest.mark.parametrize(
    "text",
    [
        bomb(20),
        bomb(9),
        f"a: &t {'y' * 100_000}\nb: [{', '.join(['*t'] * 100)}]",  # long text by reference
        "a: &a {k: v}\n" + "\n".join(f"b{i}: &b{i} {{l: *a, r: *a}}" for i in range(1)) + f"\nc: {bomb(12)}",
    ],
)
def test_what_aliases_stand_for_has_a_limit(read, text):
    began = time.process_time()
    with pytest.raises(YamlError, match="aliases stand for more than 8,000,000"):
        read(text)
    assert time.process_time() - began < 2


def test_mappings_that_share_mappings_have_the_same_limit():
    lines = ["a0: &a0 {k: v}"]
    lines += [f"a{i}: &a{i} {{l: *a{i - 1}, r: *a{i - 1}}}" for i in range(1, 40)]
    with pytest.raises(YamlError, match="aliases stand for") as caught:
        parse_yaml("\n".join(lines))
    assert 20 < caught.value.line < 30  # 2 ** 22 times two values


def test_an_alias_that_contains_itself_is_refused():
    with pytest.raises(YamlError, match="nested too deeply"):
        parse_yaml("a: &a [1, *a]")


def test_aliases_within_the_limit_stand_for_their_values():
    assert parse_yaml("a: &x [1, 2]\nb: *x") == {"a": [1, 2], "b": [1, 2]}
    assert parse_yaml(bomb(3)) == yaml.safe_load(bomb(3))


@pytest.mark.parametrize(("depth", "sound"), [(64, True), (65, False)])
def test_depth_has_a_limit_also_through_aliases(depth, sound):
    plain = "[" * depth + "]" * depth
    half = depth // 2
    shared = f"- &a {'[' * half}{']' * half}\n- {'[' * (depth - half - 1)}*a{']' * (depth - half - 1)}"
    for text in (plain, shared):
        if sound:
            parse_yaml(text)
        else:
            with pytest.raises(YamlError, match="nested too deeply"):
                parse_yaml(text)


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"]), max_size=9)
DATA = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@given(DATA)
def test_plain_data_is_read_as_it_was_written(data):
    """Texts are quoted: 1e3 without quotes is a number, and PyYAML writes the text so."""
    assert parse_yaml(yaml.safe_dump(data, default_style='"')) == data


@given(DATA | st.integers() | st.binary())
def test_values_in_messages_are_short(value):
    assert len(quoted(value)) <= 70
    assert len(shown(value)) <= 70


def test_values_in_messages_never_expand():
    shared: list = ["x"]
    for _ in range(100):
        shared = [shared] * 9
    assert len(quoted(shared)) <= 63
    assert quoted(1 << 20_000) == "<a whole number of 20,001 bits>"
    assert quoted("a'b") == '"a\'b"'
    assert shown("a\x1bb") == "'a\\x1bb'"
    assert len(str(UnknownName("policy", "y" * 100_000, ["fifo", "srtf"]))) < 200
