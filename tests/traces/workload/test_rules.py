from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from itertime import load_model, load_system, make_planner
from itertime.errors import UserError
from itertime.io import sha256
from itertime.spec import Models
from tests.traces.planner import FakePlanner
from traces.workload import Rules, WorkMaker, deadline_factors, stream, work_maker
from traces.workload.rules import list_rules, load_rules


def content() -> dict[str, Any]:
    choice = {"model": "gpt3-13b", "global_batch": 64}
    return {"source": "test", "sizes": [{"gpus": [1, 4], "choices": [choice]}]}


def load(folder: Path, values: Any) -> Rules:
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(values))
    return load_rules(path)


@pytest.mark.parametrize("planner", ["vtrain", "data-parallel"])
def test_every_bundled_choice_has_a_plan_wherever_the_rules_use_it(planner: str) -> None:
    rules, plans = load_rules("llm-mix"), make_planner(planner, load_system("dgx-a100-80gb"))
    for rule in rules.sizes:
        for choice in rule.choices:
            counts = {rules.requested_gpus(n, choice) for n in range(rule.gpus[0], rule.gpus[1] + 1)}
            runs = plans.curve(load_model(choice.model), choice.global_batch, sorted(counts))
            assert set(runs) == counts, f"{choice} under {planner}"


def test_bundled_rules_make_8_to_512_gpus_of_1_to_64() -> None:
    assert list_rules() == ["llm-full", "llm-mix"]
    rules = load_rules("llm-mix")
    counts = [rules.requested_gpus(n, c) for n in range(1, 65) for c in rules.choices(n)]
    assert (min(counts), max(counts)) == (8, 512)
    assert all(n % 8 == 0 for n in counts)
    assert rules.choices(65) == ()
    last = rules.choose(1, np.nextafter(1.0, 0.0))
    assert last == rules.choices(1)[-1], "the last choice covers rounding errors"


def test_choices_are_drawn_in_proportion_to_their_weights(tmp_path: Path) -> None:
    values = content()
    values["sizes"][0]["choices"] = [
        {"model": name, "global_batch": 8, "weight": weight}
        for name, weight in (("gpt3-1.3b", 1), ("gpt3-6.7b", 2.5), ("gpt3-13b", 0.5))
    ]
    rules = load(tmp_path, values)
    uniform = (np.arange(4000) + 0.5) / 4000
    drawn = Counter(choice.model for u in uniform if (choice := rules.choose(2, float(u))))
    assert drawn == {"gpt3-1.3b": 1000, "gpt3-6.7b": 2500, "gpt3-13b": 500}
    assert rules.choose(5, 0.5) is None


def test_rules_may_choose_a_model_of_the_user(tmp_path: Path) -> None:
    values, folder = content(), tmp_path / "models"
    folder.mkdir()
    (folder / "own.yaml").write_text("extends: gpt3-1.3b\nlayers: 30\n")
    values["sizes"][0]["choices"][0]["model"] = "own"
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(values))
    with pytest.raises(UserError, match="unknown model 'own'"):
        load_rules(path)
    maker, source = work_maker(str(path), "vtrain", "dgx-a100-80gb", models=Models(search=[folder]))
    work = maker.work(4, 600.0, 0.5)
    assert not isinstance(work, str)
    plans = make_planner("vtrain", load_system("dgx-a100-80gb"))
    expected = plans.curve(load_model(str(folder / "own.yaml")), 64, [1, 2, 4])[4]
    assert (work.model, work.iteration_s) == ("own", expected.iteration_s)
    stated = {"path": str(folder / "own.yaml"), "sha256": sha256(folder / "own.yaml")}
    assert source["models"] == {"own": [stated]}
    (folder / "own.yaml").rename(folder / "gpt3-13b.yaml")
    values["sizes"][0]["choices"][0]["model"] = "gpt3-13b"
    path.write_text(yaml.safe_dump(values))
    with pytest.raises(UserError, match=r"choices\.0\.model=gpt3-13b: is in the shipped models and in "):
        load_rules(path, Models(search=[folder]))


def test_iterations_fill_the_logged_run_time() -> None:
    maker = WorkMaker(load_rules("llm-mix"), FakePlanner(limit=64))
    work = maker.work(32, 7200.0, 0.0)
    assert not isinstance(work, str)
    assert (work.model, work.gpus, work.iteration_s) == ("megatron-18.4b", 64, 1024 / 64)
    assert work.iterations * work.iteration_s == pytest.approx(7200.0, rel=1e-15)
    assert maker.work(64, 7200.0, 0.0) == "megatron-76.1b with global batch 1792 has no plan on 512 GPUs"
    assert maker.work(65, 7200.0, 0.0) == "no rule covers 65 GPUs"


def test_deadline_factors_are_uniform_for_the_share_that_has_them() -> None:
    deadlines = load_rules("llm-mix").deadlines
    assert deadlines is not None
    factors = deadline_factors(deadlines, seed=3, count=20_000)
    given = np.array([f for f in factors if f is not None])
    assert len(given) == 20_000
    # U(0.5, 1.5): mean 1, standard deviation 1/sqrt(12); 4 standard errors.
    assert abs(given.mean() - 1.0) < 4 / np.sqrt(12 * 20_000)
    assert 0.5 <= given.min() < 0.501
    assert 1.499 < given.max() < 1.5
    assert list(deadline_factors(None, 3, 2)) == [None, None]


def test_streams_differ_by_purpose_and_seed() -> None:
    first = stream(0, "models").random(4).tolist()
    assert first == stream(0, "models").random(4).tolist()
    assert first != stream(1, "models").random(4).tolist()
    assert first != stream(0, "deadlines").random(4).tolist()
