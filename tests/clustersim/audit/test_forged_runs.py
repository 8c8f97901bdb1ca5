"""Falsified runs, and every rule that notices (`forgeries/`): its first violation, word for word."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from clustersim.records import Run
from tests.clustersim.audit.forged import Forgery, audited, forge, sound_run

pytestmark = pytest.mark.usefixtures("small_blocks", "equal_hashes")

FILES = {
    file.stem: yaml.safe_load(file.read_text(encoding="utf-8"))
    for file in sorted(Path(__file__).parent.glob("forgeries/*.yaml"))
}
CASES = [(name, number) for name, document in FILES.items() for number in range(len(document["forgeries"]))]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Each file's run and its folder, by the name of the file."""

    @cache
    def made(name: str) -> tuple[Run, Path]:
        folder = tmp_path_factory.mktemp(name)
        run = sound_run(FILES[name]["run"], folder)
        assert all("not proved" in rule for rule in audited(run, folder))
        return run, folder

    return made


@pytest.mark.parametrize(("name", "number"), CASES)
def test_a_forgery_is_noticed_by_these_rules(sound: Any, name: str, number: int) -> None:
    run, folder = sound(name)
    forgery: Forgery = FILES[name]["forgeries"][number]
    assert audited(forge(run, forgery), folder) == (forgery["finds"] or {})
