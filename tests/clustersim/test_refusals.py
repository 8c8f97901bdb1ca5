"""What is said of wrong inputs, word for word (`refusals/`)."""

from pathlib import Path

import pytest

from tests.refusals import Refusal, load, refused

REFUSALS = dict(load(Path(__file__).with_name("refusals")))


@pytest.mark.parametrize("name", REFUSALS)
def test_a_wrong_input_is_named(name: str, tmp_path: Path) -> None:
    entry: Refusal = REFUSALS[name]
    assert refused(entry, tmp_path.resolve()) == (entry["inputs"]["raises"], entry["inputs"]["says"])
