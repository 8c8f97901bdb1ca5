"""Atomic writes replace whole files, and nothing but files."""

from __future__ import annotations

import os
import stat

import pytest

from itertime.errors import UserError
from itertime.io import write_text


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
