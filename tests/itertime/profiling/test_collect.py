"""`itertime profile collect`: a table of this machine's operators, how it goes on, and its refusals."""

import importlib
import importlib.util
import itertools
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from itertime.cli import main
from itertime.profiling.collecting import power
from itertime.profiling.collecting.bench import Unsupported
from itertime.profiling.collecting.cases import COLUMNS, GRIDS, ROW_KERNELS, CaseGrid, KernelCase
from itertime.profiling.collecting.collect import LEFT_OUT
from itertime.profiling.collecting.collectives import RankGroup, collective_times
from itertime.profiling.collecting.model_cases import model_cases
from itertime.profiling.collecting.power import Meter, Reading, Watch, meter_of
from itertime.spec import Plan, load_model, load_profile, load_system
from itertime.timeline import layer_kernels

COLLECT = "itertime.profiling.collecting.collect"
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed (the extra `profile`)"
)
# Smaller than the tiny grid, to keep the tests short.
SMALLEST = CaseGrid(
    (512,), (128, 256), (2,), (2,), (64,), (64, 128), (500,), (4096,), (2,), (), ("math", "flash3")
)


def arguments(output: Path, *more: str) -> list[str]:
    paced = ["--seconds", "0.002", "--warm-up", "0"]
    return ["profile", "collect", "--device", "cpu", "--grid", "tiny", "-o", str(output), *paced, *more]


@needs_torch
def test_collect_times_every_kind_of_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(GRIDS, "tiny", SMALLEST)
    assert main(arguments(tmp_path / "mine.csv.gz")) == 0
    captured = capsys.readouterr()
    assert "rows written to" in captured.out
    assert "power, clocks and temperature are not recorded: a CPU has none" in captured.err
    table = pd.read_csv(tmp_path / "mine.csv.gz")
    assert tuple(table.columns) == COLUMNS
    rows, missing = table[table.table != LEFT_OUT], table[table.table == LEFT_OUT]
    assert (rows.time_us > 0).all()
    assert rows.source.str.startswith("torch/").all()
    assert (rows["mode"] == "sustained").all()
    # Every kernel ran for the stated time, and its time is that of one run.
    assert (rows.seconds >= 0.002).all()
    assert (rows.seconds * 1e6 / rows.repeats / rows.time_us - 1).abs().max() < 1e-3
    gemm, attention, elementwise = (rows[rows.table == name] for name in ("gemm", "attention", "elementwise"))
    assert sorted(gemm.layout.unique()) == ["batched", "dw", "dw-fp32", "dx", "forward"]
    assert gemm[["m", "n", "k", "batch"]].notna().all(axis=None)
    assert set(attention.dir) == {"fwd", "fwd+bwd"}
    assert (attention.kv_heads < attention.heads).all()
    assert {*ROW_KERNELS, "adam", "cross_entropy"} == set(elementwise.op)
    assert set(elementwise[elementwise.op == "layernorm"].dir) == {"fwd", "bwd"}
    assert (elementwise.bytes >= 4 * elementwise.elements).all()
    assert set(rows[rows.table == "grouped"].impl) == {"loop"}
    assert missing.time_us.isna().all()
    for part in (
        "grouped: grouped_mm",
        "attention-flash3: flash3: the package",
        "collective: collectives need",
    ):
        assert missing.note.str.startswith(part).any(), part
    assert list(tmp_path.iterdir()) == [tmp_path / "mine.csv.gz"]


@needs_torch
def test_a_burst_times_single_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(GRIDS, "tiny", CaseGrid((64,), (128,), (), (), (), (), (), ()))
    assert main(arguments(tmp_path / "mine.csv", "--burst", "--repeats", "3")) == 0
    rows = pd.read_csv(tmp_path / "mine.csv")
    assert set(rows["mode"].dropna()) == {"burst"}
    assert set(rows.repeats.dropna()) == {3}


@needs_torch
def test_compiled_kernels_and_casts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each has a time, or its row says that this machine cannot compile."""
    monkeypatch.setitem(GRIDS, "tiny", CaseGrid((), (128,), (), (), (), (), (), (), (), (64,)))
    monkeypatch.setattr("itertime.profiling.collecting.cases.COMPILED", {"layernorm": (4, 6)})
    assert main(arguments(tmp_path / "mine.csv")) == 0
    rows = pd.read_csv(tmp_path / "mine.csv")
    compiled = rows[rows.impl == "compiled"]
    assert len(compiled) == 4
    assert (compiled.time_us.notna() | compiled.note.notna()).all()
    eager = rows[(rows.table == "cast") & (rows.impl == "eager")]
    assert dict(zip(eager.op, eager.bytes / eager.elements, strict=True)) == {"fp8": 3, "fp8+transpose": 4}


def case(name: int, prepare: Any) -> KernelCase:
    return KernelCase({"table": "gemm", "m": name}, prepare)


@needs_torch
def test_a_case_that_cannot_run_is_a_row_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def too_large(bench: object) -> None:
        raise RuntimeError("CUDA out of memory. Tried to allocate 3 GiB")

    def unknown(bench: object) -> None:
        raise Unsupported("no such kernel")

    module = sys.modules[COLLECT]
    monkeypatch.setattr(module, "cases_of", lambda grid: iter([case(7, too_large), case(8, unknown)]))
    assert main(arguments(tmp_path / "mine.csv")) == 0
    captured = capsys.readouterr()
    assert "left out, gemm: not enough memory: {'table': 'gemm', 'm': 7}" in captured.err
    assert captured.out == f"0 rows written to {tmp_path / 'mine.csv'}, 3 left out\n"
    notes = pd.read_csv(tmp_path / "mine.csv").note.tolist()
    assert notes[:2] == ["gemm: not enough memory", "gemm: no such kernel"]


@needs_torch
def test_a_killed_run_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[int] = []

    def kernel(name: int, dies: bool) -> Any:
        def prepare(bench: object) -> Any:
            ran.append(name)
            if dies:
                raise KeyboardInterrupt
            return lambda: None

        return case(name, prepare)

    output, journal = tmp_path / "mine.csv", tmp_path / "mine.csv.part"
    module = sys.modules[COLLECT]
    monkeypatch.setattr(module, "cases_of", lambda grid: iter([kernel(1, False), kernel(2, True)]))
    assert main(arguments(output)) == 130
    assert ran == [1, 2]
    assert not output.exists()
    with journal.open("ab") as file:  # the line that was being written when the power went
        file.write(b'[{"table": "gemm", "m": 2}, {"tab')
    monkeypatch.setattr(module, "cases_of", lambda grid: iter([kernel(1, False), kernel(2, False)]))
    assert main(arguments(output, "--seconds", "0.003")) == 2
    assert "an unfinished collection with seconds=0.002, not 0.003" in capsys.readouterr().err
    assert main(arguments(output)) == 0
    assert ran == [1, 2, 2]
    assert pd.read_csv(output).m.tolist()[:2] == [1, 2]
    assert not journal.exists()


def test_a_file_that_is_no_journal(tmp_path: Path) -> None:
    journal = importlib.import_module("itertime.profiling.collecting.journal").Journal
    path = tmp_path / "mine.csv.part"
    path.write_text('{"gpu": "a"}\nnonsense\n')
    with pytest.raises(Exception, match="is no unfinished collection; remove it"):
        journal(tmp_path / "mine.csv", {"gpu": "a"})
    path.write_text(json.dumps([1]) + "\n")
    with pytest.raises(Exception, match="an unfinished collection with gpu="):
        journal(tmp_path / "mine.csv", {"gpu": "a"})


@needs_torch
def test_collectives_between_two_processes() -> None:
    """gloo between CPUs stands for NCCL between GPUs."""
    cases = [{"op": operation, "bytes": 4096} for operation in ("all_reduce", "send_recv")]
    found = list(collective_times(RankGroup(2, "cpu", "gloo"), cases))
    assert [one for one, _ in found] == cases
    assert all(isinstance(seconds, float) and seconds > 0 for _, seconds in found), found


@needs_torch
def test_a_collective_that_fails_gives_the_reason_to_the_rest() -> None:
    found = list(
        collective_times(RankGroup(2, "cpu", "no-such-library"), [{"op": "all_reduce", "bytes": 4}] * 2)
    )
    assert len(found) == 2
    assert all("no-such-library" in str(reason) for _, reason in found)


def test_without_torch_the_error_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(arguments(tmp_path / "mine.csv")) == 2
    assert capsys.readouterr().err == (
        "error: torch is not installed, and measuring needs it; python -m pip install torch\n"
    )
    assert list(tmp_path.iterdir()) == []


# Power meters


def unsupported(*_: object) -> None:
    raise RuntimeError("Not Supported")


def recorded_nvml(instant: bool, asked: list[bytes]) -> SimpleNamespace:
    """Answers of an H200 under load. `instant`: whether the driver knows the momentary power."""
    momentary = [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=698_500))]
    return SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=asked.append,
        nvmlDeviceGetFieldValues=(lambda handle, fields: momentary) if instant else unsupported,
        nvmlDeviceGetPowerUsage=lambda handle: 512_000,
        nvmlDeviceGetEnforcedPowerLimit=lambda handle: 700_000,
        nvmlDeviceGetClockInfo=lambda handle, kind: {1: 1410, 2: 3201}[kind],
        nvmlDeviceGetTemperature=unsupported,
    )


@pytest.mark.parametrize(("instant", "watts"), [(True, 698.5), (False, 512.0)])
def test_nvml(monkeypatch: pytest.MonkeyPatch, instant: bool, watts: float) -> None:
    asked: list[bytes] = []
    monkeypatch.setitem(sys.modules, "pynvml", recorded_nvml(instant, asked))
    meter, why = meter_of("GPU-abc")
    assert meter is not None
    assert (meter.name, why, asked) == ("nvml", "", [b"GPU-abc"])
    assert meter.read() == Reading(watts, 700.0, 1410.0, 3201.0, None)


def smi(monkeypatch: pytest.MonkeyPatch, answers: dict[str, str]) -> list[list[str]]:
    """An nvidia-smi that knows the queries in `answers` and fails for others; the commands it got."""
    commands = []

    def run(command: list[str], **options: Any) -> SimpleNamespace:
        commands.append(command)
        query = command[-1].removeprefix("--query-gpu=").partition(",")[0]
        return SimpleNamespace(returncode=0 if query in answers else 2, stdout=answers.get(query, "usage"))

    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(power.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(power.subprocess, "run", run)
    return commands


def test_nvidia_smi_of_an_older_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = smi(monkeypatch, {"power.draw": "471.25, 700.00, 1395, 2619, [N/A]\n"})
    meter, _ = meter_of("0000:1b:00.0")
    assert meter is not None
    assert meter.name == "nvidia-smi"
    assert meter.read() == Reading(471.25, 700.0, 1395.0, 2619.0, None)
    assert all("0000:1b:00.0" in command for command in commands)


def test_a_device_that_tells_no_power(monkeypatch: pytest.MonkeyPatch) -> None:
    smi(monkeypatch, {"power.draw.instant": "[N/A], [N/A], 1395, 2619, 40\n"})
    meter, why = meter_of("0")
    assert meter is None
    assert "nvidia-smi tells no power" in why


def test_a_program_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    smi(monkeypatch, {})

    def hang(command: list[str], **options: Any) -> None:
        raise subprocess.TimeoutExpired("nvidia-smi", 5)

    monkeypatch.setattr(power.subprocess, "run", hang)
    assert meter_of("0")[0] is None


def test_the_mean_of_a_watch() -> None:
    recorded = iter([Reading(600.0, 700.0), Reading(None, 700.0), Reading(700.0, 700.0, 1400.0)])

    def read() -> Reading:
        found = next(recorded, None)
        if found is None:
            raise RuntimeError("GPU is lost")  # left out
        return found

    with Watch(Meter("recorded", read), period_s=0.001) as watch:
        deadline = time.monotonic() + 5
        while len(watch.readings) < 3 and time.monotonic() < deadline:
            time.sleep(0.001)
    assert watch.mean == Reading(power_w=650.0, power_limit_w=700.0, sm_mhz=1400.0)


def test_without_a_meter_nothing_is_known() -> None:
    with Watch(None) as watch:
        pass
    assert watch.mean == Reading()


@pytest.mark.parametrize("name", ["gpt3-175b", "llama2-7b"])
def test_the_grid_of_a_model_has_what_its_prediction_asks_for(name: str) -> None:
    """Every product and every attention of a layer, on each of two splits."""
    model, profile = load_model(name), load_profile("a100-80gb")
    tables = [case.columns for case in model_cases([model], (1, 4))]
    timed_products = {
        (*sorted((row["m"], row["n"])), row["k"], row["batch"]) for row in tables if row["op"] == "gemm"
    }
    timed_attention = {(row["batch"], row["heads"], row["seq"]) for row in tables if row["op"] == "attention"}
    for tp, micro_batch in ((1, 2), (4, 8)):
        plan = Plan(tp=tp, pp=1, dp=1, micro_batch=micro_batch, global_batch=micro_batch, recompute="none")
        rows, _ = layer_kernels(model, plan, load_system("dgx-a100-80gb"), profile)
        sizes = {row.shape: numbers(row.shape) for row in rows if row.kernel.startswith("gemm")}
        assert len(sizes) >= 9
        assert set(sizes.values()) <= timed_products
        assert model.attention == "core" or (micro_batch, model.heads // tp, 4096) in timed_attention


def numbers(shape: str) -> tuple[int, ...]:
    """m and n in rising order, since torch has dw transposed, k and batch of a product in a layer's list."""
    sizes = {name: int(number) for name, number in re.findall(r"(\w+) (\d+)", shape)}
    return *sorted((sizes["m"], sizes["n"])), sizes["k"], sizes.get("batch", 1)


@pytest.mark.parametrize(
    ("changes", "says"),
    [({"--for": "mixtral-8x7b"}, "experts=8"), ({"--for": "gpt3-175b", "--tp": "7"}, "--tp 7: must divide")],
)
@needs_torch
def test_a_model_without_a_grid_is_refused(
    changes: dict[str, str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(tmp_path / "mine.csv", *itertools.chain(*changes.items()))) == 2
    assert says in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
