"""Atomic writes replace whole files, and nothing but files."""

from __future__ import annotations

import os
import stat

import pytest

from itertime.errors import UserError
from itertime.io import check_repeated, read_text, replacing, write_text


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


@pytest.mark.parametrize("path", ["/dev/zero", "pipe", "folder", "large", "missing", "nul\0"])
def test_only_regular_files_of_limited_size_are_read(tmp_path, path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "large").write_bytes(b"x" * 101)
    (tmp_path / "small").write_bytes(b"x" * 100)
    assert read_text(tmp_path / "small", 100) == "x" * 100
    wrong = "regular file|has 101 bytes|directory|null"
    with pytest.raises(UserError, match=f"{wrong}|No such file"):
        read_text(tmp_path / path, 100)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["without a mark", "with a byte order mark"])
def test_the_line_of_a_byte_that_is_no_text_is_named(tmp_path, mark):
    (tmp_path / "x").write_bytes(mark + b"a\nb\n\xff")
    with pytest.raises(UserError, match=r"x:3: byte 0xff is not UTF-8 text"):
        read_text(tmp_path / "x", 100)


def test_names_that_are_not_read_may_repeat() -> None:
    check_repeated(["a", "", ""], "t.csv:1", {"a"})


def test_a_table_may_have_many_columns() -> None:
    """Comparing each name with each other would take hours."""
    check_repeated([str(number) for number in range(1_000_000)], "t.csv:1")
