"""Seconds of starts, restarts and periodic checkpoints: closed forms, limits, a walk through the cycles."""

import csv
from datetime import datetime
from math import exp, inf, sqrt
from pathlib import Path
from statistics import median

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from clustersim.failures import Failures
from clustersim.overheads import Cycle, Overheads, SharedStorage
from clustersim.overheads.overheads import PRESETS
from clustersim.overheads.shared_storage import fair_rates
from itertime.errors import UnknownName, UserError
from itertime.planning import DOWNTIMES, daly_interval_s, young_interval_s
from tests.places import SHARED


@pytest.mark.parametrize(("nodes", "bytes_per_s"), [(1, 2e9), (10, 20e9), (50, 100e9), (128, 100e9)])
def test_checkpoints_share_the_storage(nodes: int, bytes_per_s: float) -> None:
    """39.1e9 parameters x 14 bytes, saved and loaded at 2 GB/s per node, at most 100 GB/s in all."""
    assert Overheads().restart_s(39.1e9, nodes) == pytest.approx(30 + 2 * 39.1e9 * 14 / bytes_per_s)


def test_replaced_values() -> None:
    assert Overheads().with_values(launch_s=3, scale=2.0).start_s() == 6.0
    with pytest.raises(UnknownName, match="unknown overhead 'launch'; did you mean launch_s"):
        Overheads().with_values(launch=3.0)


PUBLISHED = yaml.safe_load(Path(__file__).with_name("published.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("preset", "gpus", "start_s", "restart_s"), PUBLISHED)
def test_presets_charge_what_was_published(preset: str, gpus: int, start_s: float, restart_s: float) -> None:
    overheads = Overheads.of({"preset": preset})
    assert overheads.start_s(gpus) == start_s
    assert overheads.restart_s(0.0, -(-gpus // 8), gpus) == restart_s
    if preset != "default":  # which alone knows the size of checkpoints
        assert overheads.restart_s(39.1e9, -(-gpus // 8), gpus) == restart_s


MEASURED_S = {8: 26.0, 64: 52.0, 1024: 66.0, 4096: 271.0, 4320: 424.0}
"""Medians of MLPerf Training's BERT, rounds v0.7 to v5.1, by GPUs."""


@pytest.mark.parametrize("gpus", MEASURED_S)
def test_starts_and_the_measured_medians(gpus: int) -> None:
    """By default they are near; the factor is less than the scatter at one size."""
    assert Overheads.of({"preset": "mlperf"}).start_s(gpus) == MEASURED_S[gpus]
    assert 1 / 1.7 < PRESETS["default"].start_s(gpus) / MEASURED_S[gpus] < 1.7


def test_pretraining_is_the_measured_run() -> None:
    """LLaMA-2 7B on 32 A100s of 4 nodes: 202 s to the first step, 33 s for a checkpoint."""
    overheads = Overheads.of({"preset": "pretraining"})
    assert overheads.start_s(32) == pytest.approx(202.0, abs=0.1)
    assert overheads.save_s(6.738e9, 4) == pytest.approx(33.0, rel=0.002)
    grown_s = overheads.start_s(4096) - overheads.start_s(64)
    assert grown_s == pytest.approx(271.0 - 52.0)  # as `mlperf`


def test_the_measured_run_says_so_itself() -> None:
    """The preset's two figures, from the events of the run."""
    path = SHARED / "data" / "clusters" / "zhejianglab" / "llama2-7b_32xA100_events.csv"
    if not path.exists():
        pytest.skip(f"needs {path}, which is not part of this project")
    with path.open(newline="", encoding="utf-8") as file:
        rows = [(datetime.fromisoformat(row["time_utc"]), row["event"], row) for row in csv.DictReader(file)]
    first = next(at for at, event, _ in rows if event == "pod_start")
    steps = {int(row["iteration"]): at for at, event, row in rows if event == "step"}
    step_s = median((steps[n + 1] - steps[n]).total_seconds() for n in range(1, 400))
    to_first_step_s = (steps[1] - first).total_seconds() - step_s
    saves_s = [
        (at - steps[int(row["iteration"])]).total_seconds()
        for at, event, row in rows
        if event == "checkpoint_saved"
    ]
    overheads = Overheads.of({"preset": "pretraining"})
    assert overheads.start_s(32) == pytest.approx(to_first_step_s, abs=1.0)
    assert overheads.save_s(6.738e9, 4) == pytest.approx(median(saves_s), rel=0.05)


def test_launch_points_are_linear_in_the_logarithm_of_the_gpus() -> None:
    overheads = Overheads(launch_s=1.0, launch_points=((4, 10.0), (16, 30.0)))  # 4 doubles twice to 16
    assert [overheads.start_s(n) for n in (1, 4, 8, 16, 512)] == [11.0, 11.0, 21.0, 31.0, 31.0]
    assert Overheads(**overheads.stated()) == overheads


def test_settings_of_a_preset_can_be_replaced() -> None:
    assert Overheads.of({}) == PRESETS["default"] == Overheads(launch_gpu_s=0.075)
    assert Overheads.of({"preset": "helios", "launch_s": 5.0}).start_s(1) == 12.0
    with pytest.raises(UnknownName, match="did you mean helios"):
        Overheads.of({"preset": "helois"})


def test_elasticflow_charges_more_on_large_clusters() -> None:
    small, large = (Overheads.of({"preset": "elasticflow"}, gpus) for gpus in (255, 256))
    assert (small.start_s(1), large.start_s(1)) == (4.0, 9.0)
    assert Overheads.of({"preset": "elasticflow", "launch_s": 1.0}, 256).start_s(1) == 3.0
    assert Overheads.of({}, 256) == Overheads.of({}, 255)


def test_starts_restarts_resizes_and_migrations() -> None:
    overheads = Overheads(launch_s=1.0, scheduling_s=2.0, plain_restart_s=4.0, resize_s=8.0, migrate_s=16.0)
    costs = [overheads.restart_s(0.0, 1, 1, kind) for kind in ("restart", "resize", "migrate")]
    assert (overheads.start_s(), *costs) == (3.0, 7.0, 15.0, 23.0)


def test_only_what_is_owed_of_a_save_and_an_existing_checkpoint_are_charged() -> None:
    overheads = Overheads(launch_s=1.0, plain_restart_s=4.0)
    costs = {
        (saves, loads): overheads.restart_s(0.0, 1, saves=saves, loads=loads)
        for saves in (0.0, 0.25, 1.0)
        for loads in (False, True)
    }
    assert costs == {
        (0.0, False): 1.0, (0.25, False): 1.5, (1.0, False): 3.0,
        (0.0, True): 3.0, (0.25, True): 3.5, (1.0, True): 5.0,
    }  # fmt: skip
    assert overheads.restart_s(0.0, 1, saves=0.0, loads=False) == overheads.start_s()
    model, nodes = 39.1e9, 8
    assert overheads.restart_s(model, nodes, 64, saves=0.0) == 1.0 + model * 14 / 16e9


@pytest.mark.parametrize(
    ("interval", "expected"),
    [("none", float("inf")), (600.0, 600.0), ("young", (2 * 15 * 3000) ** 0.5), ("daly", 290.08)],
)
def test_how_often_a_job_saves(interval: float | str, expected: float) -> None:
    cycle = Overheads(checkpoint_interval_s=interval).cycle(0.0, 1, 3000.0)
    assert cycle.interval_s == pytest.approx(expected, rel=1e-4)
    assert cycle.save_s == 15.0


def test_without_failures_the_formulas_never_save_and_free_saves_are_always_made() -> None:
    assert Overheads().cycle(7e9, 1).never
    assert Overheads().cycle(7e9, 1).saved_s(100.0) == 0.0
    assert Overheads.none().cycle(7e9, 1, 3600.0) == Cycle(0.0, 0.0)
    assert Overheads(scale=0.0, checkpoint_interval_s=60.0).cycle(7e9, 1, 3600.0) == Cycle(60.0, 0.0)


def test_storage_is_shared_or_not() -> None:
    with pytest.raises(UserError, match=r"overheads\.storage_shared=1: must be true or false"):
        Overheads(storage_shared=1)  # type: ignore[arg-type]
    assert Overheads(storage_shared=True).shares_load(7e9)
    assert not Overheads(storage_shared=True).shares_load(0.0)
    assert not Overheads().shares_load(7e9)


# Periodic checkpoints


SECONDS = st.floats(0.5, 50.0)


def walk(interval_s: float, save_s: float, elapsed_s: float) -> tuple[float, float]:
    """(seconds worked, seconds in the last complete save), cycle by cycle."""
    worked = saved = now = 0.0
    while now + interval_s + save_s <= elapsed_s:
        now += interval_s + save_s
        worked += interval_s
        saved = worked
    return worked + min(interval_s, elapsed_s - now), saved


@given(SECONDS, st.floats(0.0, 20.0), st.floats(0.0, 500.0))
def test_cycles_are_those_of_a_walk(interval_s: float, save_s: float, elapsed_s: float) -> None:
    cycle = Cycle(interval_s, save_s)
    boundary = elapsed_s / (interval_s + save_s)
    worked, saved = walk(interval_s, save_s, elapsed_s)
    assert cycle.worked_s(elapsed_s) == pytest.approx(worked, abs=1e-9)
    if abs(boundary - round(boundary)) > 1e-9:  # there rounding decides which cycle it is
        assert cycle.saved_s(elapsed_s) == pytest.approx(saved, abs=1e-9)
        assert cycle.offset_s(elapsed_s) == pytest.approx(
            elapsed_s - saved - (saved / interval_s) * save_s, abs=1e-6
        )


@given(SECONDS, st.floats(0.0, 20.0), st.floats(0.0, 500.0))
def test_work_is_done_at_elapsed_s_and_not_before(interval_s: float, save_s: float, work_s: float) -> None:
    """`elapsed_s` is the first time at which the work is done: a moment earlier it is not."""
    cycle = Cycle(interval_s, save_s)
    done_s = cycle.elapsed_s(work_s)
    assert cycle.worked_s(done_s) == pytest.approx(work_s, abs=1e-6)
    if work_s > 1e-3:
        assert cycle.worked_s(done_s - 1e-3) < work_s


def test_no_save_follows_the_last_interval() -> None:
    assert Cycle(10.0, 1.0).elapsed_s(30.0) == 32.0
    assert Cycle(0.1, 1.0).elapsed_s(0.3) == pytest.approx(2.3), "0.3 / 0.1 is a little less than 3"
    assert Cycle(10.0, 1.0).elapsed_s(0.0) == 0.0


def test_never_and_always_saving() -> None:
    never, always = Cycle(), Cycle(0.0, 0.0)
    assert (never.worked_s(7.0), never.saved_s(7.0), never.elapsed_s(7.0)) == (7.0, 0.0, 7.0)
    assert (always.worked_s(7.0), always.saved_s(7.0), always.elapsed_s(7.0)) == (7.0, 7.0, 7.0)


@pytest.mark.parametrize("mtbf_s", [600.0, 3600.0, 86_400.0])
def test_young_minimises_the_first_order_waste_and_daly_the_exact_one(mtbf_s: float) -> None:
    """The waste to first order is C/tau + tau/(2M) (Young 1974). The exact expected time per second of work
    is M e^{R/M} (e^{(tau+C)/M} - 1) / tau (Daly 2006, equation 20).
    """
    save_s = 60.0

    def first_order(tau: float) -> float:
        return save_s / tau + tau / (2 * mtbf_s)

    def exact(tau: float) -> float:
        return mtbf_s * (exp((tau + save_s) / mtbf_s) - 1) / tau

    young, daly = young_interval_s(save_s, mtbf_s), daly_interval_s(save_s, mtbf_s)
    assert young == sqrt(2 * save_s * mtbf_s)
    others = [young * k / 100 for k in range(20, 400)]
    assert first_order(young) <= min(map(first_order, others)) * (1 + 1e-12)
    assert exact(daly) <= min(map(exact, others)) * 1.002
    assert exact(daly) < exact(young)


def test_the_default_downtime_of_a_training_is_what_simulated_jobs_pay_by_default() -> None:
    overheads, downtime = PRESETS["default"], DOWNTIMES["default"]
    assert downtime.mtbf_gpu_h == Failures().mtbf_gpu_h
    pairs = [
        (downtime.restart_s, overheads.launch_s),
        (downtime.restart_gpu_s, overheads.launch_gpu_s),
        (downtime.checkpoint_bytes_per_parameter, overheads.checkpoint_bytes_per_parameter),
        (downtime.storage_node_bytes_per_s, overheads.storage_node_bytes_per_s),
        (downtime.storage_bytes_per_s, overheads.storage_bytes_per_s),
    ]
    assert all(ours == theirs for ours, theirs in pairs)


def test_limits_of_the_intervals() -> None:
    assert daly_interval_s(0.0, 100.0) == young_interval_s(0.0, inf) == 0.0
    assert daly_interval_s(10.0, inf) == young_interval_s(10.0, inf) == inf
    assert daly_interval_s(300.0, 100.0) == 100.0, "from C = 2 M on it is M"


# Shared storage


LIMITS = st.dictionaries(st.integers(0, 20), st.floats(0.1, 100.0), min_size=1, max_size=8)


@given(LIMITS, st.floats(0.1, 300.0))
def test_rates_are_max_min_fair(limits: dict[int, float], total: float) -> None:
    """No rate is above its limit, no bandwidth is unused, and a rate below its limit is the highest."""
    rates = fair_rates(limits, total)
    assert all(0 < rates[k] <= limits[k] for k in limits)
    assert sum(rates.values()) == pytest.approx(min(total, sum(limits.values())))
    for key, rate in rates.items():
        if rate < limits[key] * (1 - 1e-9):
            assert rate >= max(rates.values()) * (1 - 1e-9)


def run_out(storage: SharedStorage[str]) -> dict[str, float]:
    """When each load ends if no other load begins."""
    ends: dict[str, float] = {}
    while (first := storage.next_end()) is not None:
        ends[first[1]] = first[0]
        storage.end(first[1], first[0])
    return ends


def test_two_loads_by_hand() -> None:
    """100 bytes at 10/s alone for 4 s, at 5/s beside the other's 30 until t=10, then alone again. A load that
    is removed leaves its share to the other.
    """
    storage: SharedStorage[str] = SharedStorage(10.0)
    storage.begin("long", 100.0, 10.0, 0.0)
    storage.begin("short", 30.0, 10.0, 4.0)
    assert storage.remaining_s("long", 4.0) == 12.0
    assert run_out(storage) == {"short": 10.0, "long": 13.0}
    for name in "ab":
        storage.begin(name, 100.0, 10.0, 20.0)
    storage.end("b", 24.0)
    assert "b" not in storage
    assert run_out(storage) == {"a": 32.0}


@given(st.lists(st.tuples(st.floats(1, 100), st.floats(0.5, 20)), min_size=1, max_size=6), st.floats(1, 30))
def test_all_bytes_are_loaded_and_never_faster_than_alone(
    loads: list[tuple[float, float]], bandwidth: float
) -> None:
    storage: SharedStorage[str] = SharedStorage(bandwidth)
    for i, (size, limit) in enumerate(loads):
        storage.begin(str(i), size, limit, float(i))
    ends = run_out(storage)
    for i, (size, limit) in enumerate(loads):
        assert ends[str(i)] >= i + size / min(limit, bandwidth) - 1e-6
    assert (
        max(ends.values())
        <= len(loads) - 1 + sum(size / min(limit, bandwidth) for size, limit in loads) + 1e-6
    )
