"""The study of overheads, failures and contention: its page is what its runs give; a few runs anew."""

import numpy as np
import pytest

from experiments import overheads_study as study
from tests.places import ROOT
from tests.tables import table_rows


def test_the_page_is_made_from_the_runs() -> None:
    results = study.read_csv(study.FOLDER / "runs.csv")
    assert (ROOT / "experiments" / "OVERHEADS.md").read_text(encoding="utf-8") == study.page(results)
    assert study.as_csv(results) == (study.FOLDER / "runs.csv").read_text(encoding="utf-8")
    cells = {(r.setting, r.policy, r.seed) for r in results}
    assert (
        len(cells)
        == len(results)
        == len(study.SETTINGS) * len(study.POLICIES) * len({r.seed for r in results})
    )


@pytest.mark.parametrize(("setting", "policy", "seed"), table_rows("runs come out again"))
def test_runs_come_out_again(setting: str, policy: str, seed: int) -> None:
    """Within 1e-6: numpy may round otherwise elsewhere; schedules are the same."""
    results = study.read_csv(study.FOLDER / "runs.csv")
    (recorded,) = [r for r in results if (r.setting, r.policy, r.seed) == (setting, policy, seed)]
    again = study.simulate(setting, policy, seed)
    for name in ("finished", "rejected", "restarts", "interruptions"):
        assert getattr(again, name) == getattr(recorded, name)
    for name in ("jct_mean_s", "makespan_s", "deadline_met_ratio", "gpu_useful_ratio", "lost_gpu_h"):
        assert getattr(again, name) == pytest.approx(getattr(recorded, name), rel=1e-6)


def test_costs_by_hand() -> None:
    """Two seeds: 110 against 100 and 130 against 100: +20 %, and t = 12.706 for one degree of freedom."""

    def result(setting: str, seed: int, value: float) -> object:
        return study.Result(setting, "fifo", seed, 1, 0, value, 1.0, value / 200, 0.5, 0.0, 0, 0)

    results = [result("a", 0, 110.0), result("b", 0, 100.0), result("a", 1, 130.0), result("b", 1, 100.0)]
    half_width = 12.706 * np.std([10.0, 30.0], ddof=1) / np.sqrt(2)
    assert study.cost_percent(results, "jct_mean_s", "fifo", "a", "b") == f"+20.0 ± {half_width:.1f} %"
    assert (
        study.cost_points(results, "deadline_met_ratio", "fifo", "a", "b")
        == f"+10.0 ± {half_width / 2:.1f} pp"
    )
    same = [result(s, seed, v) for seed in (0, 1) for s, v in (("a", 150.0), ("b", 100.0))]
    assert study.cost_percent(same, "jct_mean_s", "fifo", "a", "b") == "**+50.0 ± 0.0 %**"
