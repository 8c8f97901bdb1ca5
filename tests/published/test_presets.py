"""The bundled presets come out of the published data again, and the page has their distances."""

from pathlib import Path

import pytest

from experiments.presets import PAGE, SOURCES, table_of, text_of, with_table
from traces.workload import FOLDER

RENEW = "python -m experiments.presets ../shared/data"


LONG = {"philly": pytest.mark.long}  # 70,060 jobs


@pytest.mark.parametrize("name", [pytest.param(n, marks=LONG.get(n, ())) for n in SOURCES])
def test_a_preset_comes_out_again(name: str, shared_dir: Path) -> None:
    kept = (FOLDER / f"{name}.preset.yaml").read_text(encoding="utf-8")
    assert text_of(name, shared_dir / "data") == kept, RENEW


@pytest.mark.parametrize("name", ["helios", "acme-kalos", "acme-seren"])
def test_the_page_has_its_distances(name: str, shared_dir: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_table(page, name, table_of(name, shared_dir / "data")) == page, RENEW


def test_a_table_takes_the_place_of_the_one_before() -> None:
    page = "# x\n\n## `a`\n\n| old |\n\n## `b`\n\n| b |\n\nend\n"
    assert with_table(page, "a", "| new |\n") == page.replace("old", "new")
