"""docs/models.md and docs/plan-options.md have the keys of the schema, and the examples load."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from itertime import ModelSpec, System, load_model, load_system
from itertime.io import keys_of
from itertime.spec import PlanOptions
from tests.places import ROOT

_spec = importlib.util.spec_from_file_location("keys", ROOT / "docs" / "keys.py")
assert _spec is not None
assert _spec.loader is not None
keys = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(keys)
PAGES = {name: (keys.DOCS / name).read_text(encoding="utf-8") for name in keys.PAGES}
PAGE = PAGES["models.md"]


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_fresh(name: str) -> None:
    assert keys.refreshed(name, PAGES[name]) == PAGES[name], "run python docs/keys.py"


def test_refreshing_replaces_a_table_that_is_old() -> None:
    assert keys.refreshed("models.md", PAGE.replace("`seq_len`", "`sequence`")) == PAGE


@pytest.mark.parametrize("kind", [ModelSpec, System, PlanOptions])
def test_every_key_has_a_meaning(kind: type) -> None:
    found = list(keys_of(kind))
    assert len(found) > 15
    assert [key.name for key in found if not key.text or not key.values] == []


def test_the_examples_load(tmp_path: Path) -> None:
    for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL):
        (tmp_path / text.split("\n")[0].removeprefix("# ")).write_text(text)
    model, system = load_model(str(tmp_path / "mine.yaml")), load_system(tmp_path / "cluster-a.yaml")
    assert (model.name, model.layers, model.hidden) == ("mine", 40, 4096)
    assert (system.nic_bytes_per_s, system.site.launch_s) == (200e9, 60e-6)
