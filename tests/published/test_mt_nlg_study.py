"""The cost study of MT-NLG 530B: its space, its arithmetic, its answer, and that its page is up to date."""

import csv
from pathlib import Path

import numpy as np
import pytest

from experiments import mt_nlg_cost as cost
from experiments.mt_nlg_cost import Study
from itertime import load_model, load_system, predict
from tests.places import ROOT

FOLDER = ROOT / "experiments"
RENEW = "python -m experiments.mt_nlg_cost --out experiments/mt_nlg, and copy its .md files to MT_NLG.md"


@pytest.fixture(scope="module")
def done() -> Study:
    return cost.study()


def test_space_is_every_allowed_shape_once(done: Study) -> None:
    plans = done.plans
    shapes = set(zip(plans.tp.tolist(), plans.dp.tolist(), plans.pp.tolist(), strict=True))
    wanted = {
        (tp, dp, pp)
        for tp in (4, 8, 16)
        for dp in range(1, 33)
        for pp in range(1, 106)
        if 1920 % dp == 0 and 105 % pp == 0
    }
    assert shapes == wanted
    assert len(plans) == len(wanted)


def test_batched_results_are_those_of_single_predictions(done: Study) -> None:
    model, system = load_model("mt-nlg-530b"), load_system("dgx-a100-80gb")
    for row in range(0, len(done.plans), 37):
        single = predict(model, done.plans.plan(row), system, memory_headroom=0.0)
        assert single.iteration_s == pytest.approx(done.evaluation.iteration_s[row], rel=1e-12)
        assert single.fits == done.fits[row]


def test_days_and_dollars_from_their_definition(done: Study) -> None:
    row = done.row((8, 8, 35))
    seconds = done.evaluation.iteration_s[row] * 270e9 / 1920 / 2048
    assert done.training_s[row] == pytest.approx(seconds)
    assert done.cost_usd[row] == pytest.approx(seconds / 3600 * 2240 * 5)
    half = cost.study(tokens=135e9, price_usd=10.0)
    assert half.cost_usd == pytest.approx(done.cost_usd)
    assert half.training_s * 2 == pytest.approx(done.training_s)


def test_a_cheaper_plan_needs_a_tenth_fewer_gpus(done: Study) -> None:
    """Published: Bang et al., MICRO 2024: (8, 12, 21) costs less than (8, 8, 35), with 10 % fewer GPUs."""
    before, after = done.row(cost.PUBLISHED[0]), done.row(cost.VTRAIN)
    assert done.fits[before]
    assert done.fits[after]
    assert done.plans.gpus[after] <= 0.9 * done.plans.gpus[before]
    assert done.cost_usd[after] < done.cost_usd[before]
    assert 1 < done.training_s[after] / done.training_s[before] < 1.1


def test_limits_of_the_cheapest_plan_hold(done: Study) -> None:
    limit = float(done.training_s[done.row((8, 12, 35))])
    found = done.cheapest(most_gpus=4000, most_s=limit)
    assert found is not None
    inside = done.fits & (done.plans.gpus <= 4000) & (done.training_s <= limit)
    assert inside[found]
    assert done.cost_usd[found] == done.cost_usd[inside].min()
    assert done.cheapest(most_gpus=8) is None


def test_front_is_what_no_fitting_plan_dominates(done: Study) -> None:
    for row in range(len(done.plans)):
        no_worse = (done.training_s <= done.training_s[row]) & (done.cost_usd <= done.cost_usd[row])
        better = (done.training_s < done.training_s[row]) | (done.cost_usd < done.cost_usd[row])
        assert done.front[row] == (done.fits[row] and not (done.fits & no_worse & better).any())


@pytest.fixture(scope="module")
def papers() -> tuple[Study, Study]:
    """The study by the rules of vTrain's artifact, and on a network that takes no time."""
    paper, unlimited = (
        cost.study(system=cost.VTRAIN_SYSTEM, rules="vtrain", nics=nics) for nics in (1.0, cost.UNLIMITED)
    )
    return paper, unlimited


def test_the_rules_of_the_paper_save_what_it_publishes(papers: tuple[Study, Study]) -> None:
    """Published: Bang et al., MICRO 2024: 4.3 % of the cost for about 6 % more time."""
    saved, longer, _ = cost.changes(papers[0])
    assert saved == pytest.approx(0.040, abs=0.002)
    assert longer == pytest.approx(0.0665, abs=0.003)
    assert cost.changes(papers[1])[0] < 0.015  # without what sends wait for


def test_page_and_table_are_up_to_date(done: Study, papers: tuple[Study, Study]) -> None:
    """Regression: experiments/MT_NLG.md and experiments/mt_nlg/."""
    own, (paper, unlimited) = cost.study(system=cost.VTRAIN_SYSTEM), papers
    tables = {
        "summary.md": cost.summary(done),
        "networks.md": cost.networks(done, own),
        "rules.md": cost.rules(done, own, paper, unlimited),
    }
    page = (FOLDER / "MT_NLG.md").read_text(encoding="utf-8")
    for name, text in tables.items():
        assert text == (FOLDER / "mt_nlg" / name).read_text(encoding="utf-8"), RENEW
        assert text in page, RENEW
    kept = (FOLDER / "mt_nlg" / "plans.csv").read_text(encoding="utf-8")
    head, *rows = csv.reader(kept.splitlines())
    now_head, *now = csv.reader(cost.plans_csv(done).splitlines())
    assert head == now_head
    assert np.array(rows, float) == pytest.approx(np.array(now, float), rel=1e-5, abs=1e-6), RENEW


def test_half_the_network_changes_the_cost_and_not_the_answer(done: Study) -> None:
    """vTrain's configuration has 800 Gb/s a node, a DGX A100 1,600."""
    assert load_system(cost.VTRAIN_SYSTEM).nic_bytes_per_s * 2 == load_system("dgx-a100-80gb").nic_bytes_per_s
    slower = cost.study(system=cost.VTRAIN_SYSTEM)
    assert (slower.evaluation.iteration_s > done.evaluation.iteration_s).mean() > 0.9
    assert slower.cost_usd[slower.row(cost.VTRAIN)] < slower.cost_usd[slower.row(cost.PUBLISHED[0])]


def test_a_site_slows_it_down(done: Study, tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(
        "name: site\nsource: made up\nprofile: a100-80gb\n"
        "gpus_per_node: 8\nnic_bytes_per_s: 50.0e+9\nnvlink_bytes_per_s: 300.0e+9\n"
        "site:\n  layer_overhead_s: 0.01\n"
    )
    slower = cost.study(site=str(site))
    row = done.row((8, 8, 35))
    added = slower.evaluation.iteration_s[row] - done.evaluation.iteration_s[row]
    # every stage of three layers is slower by 30 ms a micro-batch: 240 of them and 34 that fill the pipeline
    assert added == pytest.approx((240 + 34) * 3 * 0.01, rel=1e-6)
