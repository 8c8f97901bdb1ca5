"""Tables of pages have what the code has: settings, columns, formats and keys; and files that they show."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
import yaml

from clustersim.records import JOB_COLUMNS, EventRecord, PlanRecord, Snapshot
from docs import keys
from experiments import sample_log
from itertime import ModelSpec, System, load_model, load_system
from itertime.io import keys_of
from itertime.spec import PlanOptions
from tests.places import ROOT
from traces.logs import FORMATS
from traces.logs.formats.slurm import COMMAND
from traces.logs.named_columns import MEANINGS

DOCS = ROOT / "docs"
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "jobs.csv": JOB_COLUMNS,
    "events.csv": EventRecord._fields,
    "usage.csv": Snapshot._fields,
    "plans.csv": PlanRecord._fields,
}


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def rows_below(text: str, head: str) -> list[str]:
    """The rows of the table whose head starts like this, without the line below the head."""
    return text.partition(f"\n\n| {head} |")[2].split("\n\n")[0].splitlines()[2:]


def first_cells(rows: Iterable[str]) -> list[str]:
    return [name for row in rows for name in re.findall(r"`([\w.-]+)`", row.split("|")[1])]


@pytest.mark.parametrize("file", COLUMNS)
def test_columns_of_a_run(file: str) -> None:
    text = page("runs.md")
    head = re.search(rf"\n\n\| `{file}` \|(.*)\n", text)
    assert head is not None
    shared = re.findall(r"`(\w+)`", head[1])  # in the head of the table: what every row of it has
    assert sorted([*first_cells(rows_below(text, f"`{file}`")), *shared]) == sorted(COLUMNS[file])


def test_formats_of_logs() -> None:
    examples = dict(re.findall(r"^\| `([a-z-]+)` \| `(.*)` \|$", page("formats.md"), re.MULTILINE))
    assert sorted(examples) == sorted(FORMATS)
    assert all("clustersim trace import " in command for command in examples.values())
    assert examples["slurm"].startswith(COMMAND)
    traces = page("traces.md")
    assert [name for name in FORMATS if f"\n| `{name}` | " not in traces] == []
    assert [field for field in MEANINGS if f"`{field}`" not in traces] == []


def test_settings_and_keys_of_models_systems_and_plans() -> None:
    for name in keys.PAGES:
        assert keys.refreshed(name, page(name)) == page(name), "run python -m docs.keys"
    models = page("models.md")
    assert keys.refreshed("models.md", models.replace("`seq_len`", "`sequence`")) == models
    for kind in (ModelSpec, System, PlanOptions):
        found = list(keys_of(kind))
        assert len(found) > 15
        assert [key.name for key in found if not key.text or not key.values] == []


def test_files_shown_on_pages_are_those_beside_them(tmp_path: Path) -> None:
    sharing = page("sharing.md")
    for name in ("shared.csv", "chat.csv"):
        assert "".join(f"    {line}\n" for line in page(name).splitlines()) in sharing
    (shown,) = re.findall(r"^```yaml\n(.*?)^```$", page("fleets.md"), re.DOTALL | re.MULTILINE)
    assert yaml.safe_load(shown) == yaml.safe_load(page("sites.yaml"))
    assert sample_log.FILE.read_text(encoding="utf-8") == sample_log.text()
    for text in re.findall(r"```yaml\n(.*?)```", page("models.md"), re.DOTALL):
        (tmp_path / text.split("\n")[0].removeprefix("# ")).write_text(text)
    model, system = load_model(str(tmp_path / "mine.yaml")), load_system(tmp_path / "cluster-a.yaml")
    assert (model.name, model.layers, model.hidden) == ("mine", 40, 4096)
    assert (system.nic_bytes_per_s, system.site.launch_s) == (200e9, 60e-6)
