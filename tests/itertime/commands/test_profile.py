"""`itertime profile`: what it shows."""

from __future__ import annotations

import json

import pytest

from itertime.cli import main
from itertime.spec import list_profiles, load_profile


def test_show_lists_every_part_of_every_profile(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "show", "--json"]) == 0
    profiles = json.loads(capsys.readouterr().out)["profiles"]
    assert [profile["name"] for profile in profiles] == list_profiles()
    for profile in profiles:
        parts = list(load_profile(profile["name"]).parts())
        assert [part["part"] for part in profile["parts"]] == [part.part for part in parts]
        assert {part["kind"] for part in profile["parts"]} == {"measured", "fitted", "assumed"}


def test_show_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "show", "a100-80gb"]) == 0
    out = capsys.readouterr().out
    assert "fitted     21198" in out
    assert "measured: m 512 to 32768" in out
    assert "from the bandwidth of elementwise" in out


def test_show_of_an_unknown_profile(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "show", "a100-80"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: unknown profile 'a100-80'; did you mean a100-80gb")
