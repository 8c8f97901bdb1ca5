"""What is said of wrong recipes, tables, presets, logs and options, word for word (`refusals/`)."""

from pathlib import Path
from typing import Any

import pytest

from tests.refusals import Refusal, load, refused
from tests.traces.importing import import_log
from traces.editing import Scaling, TraceSelection, scaled, sliced
from traces.job import Job
from traces.logs import Selection
from traces.synthetic import Recipe, generate, instances_of, read_needs

REFUSALS = dict(load(Path(__file__).with_name("refusals")))


@pytest.mark.parametrize("name", REFUSALS)
def test_a_wrong_input_is_named(name: str, tmp_path: Path) -> None:
    entry: Refusal = REFUSALS[name]
    assert refused(entry, tmp_path.resolve()) == (entry["inputs"]["raises"], entry["inputs"]["says"])


# Calls of the files, with the values that a text can state


def generated(**columns: Any) -> None:
    generate(Recipe(**{"jobs": 200, "rules": "none", **columns}))


def instances(path: Path) -> None:
    instances_of(read_needs(path))


def part_of(jobs: list[Job], **part: Any) -> None:
    sliced(jobs, TraceSelection(**part))


def scaled_jobs(jobs: list[Job], **scaling: Any) -> None:
    scaled(jobs, Scaling(**scaling))


def imported_part(path: Path, **part: Any) -> None:
    import_log(path, selection=Selection(**part))
