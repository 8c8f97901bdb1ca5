"""No file steers the terminal: control characters reach stderr escaped, whichever library speaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.cli import main
from itertime.errors import printable

RED = "\x1b[31mRED"


def errors_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) in (2, 3)
    text = capsys.readouterr().err
    assert not [char for char in text if not char.isprintable() and char != "\n"]
    assert "\\x1b[31mRED" in text
    return text


def test_what_pyarrow_says_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"{RED}.parquet"
    path.write_bytes(b"PAR1" + RED.encode() + b"PAR1")
    assert "is not a Parquet file" in errors_of(capsys, "trace", "check", str(path))


@pytest.mark.parametrize("char", ["\x00", "\x07", "\x1b", "\x7f", "\x9b", "\u202e", "\udc80"])
def test_every_control_character_is_escaped(char: str) -> None:
    assert printable(f"a{char}b\n\tc").isascii()
    assert char not in printable(f"a{char}b")
    assert printable("één\n\t日本") == "één\n\t日本"
    assert "\n" not in printable("a\nb", kept="")
