"""Atomic writes replace whole files; YAML is data within limits, and errors name a line and a reason."""

import os
import stat
import time

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from itertime.errors import UnknownName, UserError, quoted, shown
from itertime.io import YamlError, check_repeated, parse_yaml, read_text, replacing, write_text, yaml_nodes


def test_only_a_file_is_replaced(tmp_path):
    """Replacing a device, a pipe, or a link to one, would destroy it."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    for path in (pipe, tmp_path / "link", tmp_path, ""):
        with pytest.raises(UserError, match="cannot be written: not a regular file"):
            write_text(path, "new")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert sorted(os.listdir(tmp_path)) == ["link", "pipe"]


def test_an_error_names_the_requested_file_and_not_the_temporary_one(tmp_path):
    (tmp_path / "file").write_text("old")
    path = tmp_path / "file" / "below.json"
    with pytest.raises(UserError) as caught:
        write_text(path, "new")
    assert str(caught.value) == f"{path}: cannot be written: Not a directory"


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o007])
def test_permissions_are_those_of_any_new_file(tmp_path, mask):
    before = os.umask(mask)
    try:
        write_text(tmp_path / "ours", "new")
        (tmp_path / "plain").write_text("new")
    finally:
        os.umask(before)
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("ours", "plain")}
    assert modes == {0o666 & ~mask}


def test_links_that_wait_at_guessed_names_are_not_followed(tmp_path):
    """In a folder that others may write to, a link at the name of a temporary file would be followed."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in (f".x.json.{os.getpid()}.tmp", ".x.json.tmp"):
        (tmp_path / name).symlink_to(victim)
    write_text(tmp_path / "x.json", "new")
    assert victim.read_text() == "precious"
    assert (tmp_path / "x.json").read_text() == "new"
    assert not (tmp_path / "x.json").is_symlink()


def test_two_writers_of_one_file_have_temporary_files_of_their_own(tmp_path):
    with replacing(tmp_path / "x") as one, replacing(tmp_path / "x") as other:
        assert one != other
        assert one.exists()
        assert one.parent == other.parent == tmp_path
        assert one.name.startswith(f".x.{os.getpid()}.")
    assert sorted(os.listdir(tmp_path)) == ["x"]


def test_only_files_of_limited_size_are_read(tmp_path):
    (tmp_path / "x").write_bytes(b"x" * 100)
    assert read_text(tmp_path / "x", 100) == "x" * 100
    with pytest.raises(UserError, match="x: has 100 bytes; such a file has at most 99"):
        read_text(tmp_path / "x", 99)
    with pytest.raises(UserError, match="null"):
        read_text(tmp_path / "nul\0", 100)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["without a mark", "with a byte order mark"])
def test_the_line_of_a_byte_that_is_no_text_is_named(tmp_path, mark):
    (tmp_path / "x").write_bytes(mark + b"a\nb\n\xff")
    with pytest.raises(UserError, match=r"x:3: byte 0xff is not UTF-8 text"):
        read_text(tmp_path / "x", 100)


def test_a_table_may_have_many_columns() -> None:
    """Comparing each name with each other would take hours."""
    check_repeated([str(number) for number in range(1_000_000)], "t.csv:1")
    check_repeated(["a", "", ""], "t.csv:1", {"a"})  # names that are not read may repeat


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
