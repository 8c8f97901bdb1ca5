"""Whatever features meet under whatever policy: audit and laws find nothing, every job ends, and relations
between runs hold.

A long run simulates a scene four to six times: as it is, with its rows shuffled, once for each relation that
it has, and some in a replay. The default run has one relation for every second scene.
"""

import csv
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tables import table_rows

from .cases import Case, shrunk
from .features import FEATURES
from .laws import broken_laws
from .relations import RELATIONS
from .scenes import BY_DEFAULT, POLICIES, Draw, check, drawn, pairs, recorded, routed

RESULTS = recorded()


@pytest.fixture(autouse=True, scope="module")
def curves_are_computed_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Many scenes have the same models and plans."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ITERTIME_CACHE", str(tmp_path_factory.mktemp("curves")))
        yield


def relations_in_turn(number: int) -> list[str]:
    """One relation for every second scene of a policy; each policy meets all of them."""
    policy_turn, policy = divmod(number, len(POLICIES))
    turn, has_none = divmod(policy_turn + policy, 2)
    return [] if has_none else [list(RELATIONS)[turn % len(RELATIONS)]]


@pytest.mark.parametrize("draw", BY_DEFAULT, ids=str)
def test_a_scene_keeps_every_law_and_its_result(draw: Draw, tmp_path: Path) -> None:
    command = f"python -m tests.fuzz.scenes {draw.number}"
    assert check(draw, tmp_path, relations_in_turn(draw.number)) == RESULTS[draw.number], command


@pytest.mark.parametrize("draw", list(routed()), ids=str)
def test_routing_goes_with_all_that_keeps_jobs_off_nodes(draw: Draw, tmp_path: Path) -> None:
    assert check(draw, tmp_path, relations_in_turn(draw.number))


@pytest.mark.long
@pytest.mark.parametrize("draw", list(pairs()), ids=str)
def test_every_pair_of_features_keeps_every_law(draw: Draw, tmp_path: Path) -> None:
    assert check(draw, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("draw", [drawn(number) for number in range(1000, 2500)], ids=str)
def test_many_scenes_keep_every_law(draw: Draw, tmp_path: Path) -> None:
    assert check(draw, tmp_path)


def test_every_policy_and_every_feature_occurs_by_default() -> None:
    assert {draw.policy for draw in BY_DEFAULT} == set(POLICIES)
    assert {name for draw in BY_DEFAULT for name in draw.features} == set(FEATURES)


# What holds the scenes to their laws


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with preemptions, deadlines and services."""
    folder = tmp_path_factory.mktemp("sound")
    check(Draw(35, "srtf", ("gpu types", "deadlines", "services", "overheads")), folder, [])
    return folder / "run"


@pytest.mark.parametrize(("law", "table", "row", "changes"), table_rows("cells that break a law"))
def test_a_law_notices_a_cell_that_breaks_it(
    law: str, table: str, row: dict[str, str], changes: dict[str, str], sound: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(sound, folder)
    with (folder / table).open(newline="") as file:
        rows = list(csv.DictReader(file))
    changed_row = next(cells for cells in rows if cells.items() >= row.items())
    changed_row.update(changes)
    with (folder / table).open("w", newline="") as file:
        writer = csv.DictWriter(file, list(changed_row))
        writer.writeheader()
        writer.writerows(rows)
    assert not list(broken_laws(sound))
    assert law in dict(broken_laws(folder))


def test_a_case_that_fails_becomes_small(tmp_path: Path) -> None:
    case = Case.of(Draw(53, "srtf", ("failures", "deadlines")).scene())
    needed = next(job.job_id for job in case.jobs if job.duration_s)

    def fails(candidate: Case) -> bool:
        jobs = {job.job_id: job for job in candidate.jobs}
        works = needed in jobs and (jobs[needed].gpus and jobs[needed].duration_s)
        return bool(works) and "failures" in candidate.settings and candidate.table == case.table

    small_case = shrunk(case, fails)
    assert [job.job_id for job in small_case.jobs] == [needed]
    assert list(small_case.settings) == ["failures"]
    assert len(case.jobs) > 1
    assert len(case.settings) > 1
    case.write(tmp_path)
    assert case.table
    assert Case.read(tmp_path).jobs == case.jobs
