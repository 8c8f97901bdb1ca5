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


class FakeNvml:
    """Answers of an H200 under load. `instant`: whether the driver knows the momentary power."""

    def __init__(self, instant: bool):
        self.instant = instant
        self.asked: list[Any] = []

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes) -> str:
        self.asked.append(uuid)
        return "handle"

    def nvmlDeviceGetFieldValues(self, handle: str, fields: list[int]) -> list[Any]:
        if not self.instant:
            raise RuntimeError("Not Supported")
        return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=698_500))]

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return 512_000

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: str) -> int:
        return 700_000

    def nvmlDeviceGetClockInfo(self, handle: str, kind: int) -> int:
        return {1: 1410, 2: 3201}[kind]

    def nvmlDeviceGetTemperature(self, handle: str, kind: int) -> int:
        raise RuntimeError("Not Supported")


@pytest.mark.parametrize(("instant", "watts"), [(True, 698.5), (False, 512.0)])
def test_nvml(monkeypatch: pytest.MonkeyPatch, instant: bool, watts: float) -> None:
    nvml = FakeNvml(instant)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    meter, why = meter_of("GPU-abc")
    assert meter is not None
    assert (meter.name, why, nvml.asked) == ("nvml", "", [b"GPU-abc"])
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
