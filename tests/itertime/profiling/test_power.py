"""Power meters: recorded answers of NVML and nvidia-smi, and devices that tell nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from itertime.profiling.collecting import power
from itertime.profiling.collecting.power import Meter, Reading, Watch, meter_of


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
