"""Power, clocks and temperature of a GPU while a kernel runs: from NVML, from nvidia-smi, or not at all."""

from __future__ import annotations

import importlib
import math
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from types import TracebackType
from typing import Any

PERIOD_S = 0.05
NVML_POWER_INSTANT = 186  # NVML_FI_DEV_POWER_INSTANT; the plain reading is a mean over a second on H100
SMI_QUERIES = ("power.draw.instant", "power.draw")  # drivers before 530 know the second only
SMI_COMMON = "power.limit,clocks.sm,clocks.mem,temperature.gpu"
SMI_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Reading:
    """One sample, or the mean of several; None for what the device does not tell."""

    power_w: float | None = None
    power_limit_w: float | None = None
    sm_mhz: float | None = None
    memory_mhz: float | None = None
    temperature_c: float | None = None


@dataclass(frozen=True)
class Meter:
    """A way to read a device's power: its name, and the function that takes one sample."""

    name: str
    read: Callable[[], Reading]


def meter_of(address: str) -> tuple[Meter | None, str]:
    """The first meter that works for the GPU at `address`, and why there is none ("" if there is one)."""
    reasons = []
    for make in (nvml_meter, smi_meter):
        try:
            meter = make(address)
            if meter.read() != Reading():
                return meter, ""
            reasons.append(f"{meter.name} reads nothing")
        except Exception as error:  # whatever a driver's library raises, timing goes on without power
            reasons.append(str(error) or type(error).__name__)
    return None, "; ".join(reasons)


def nvml_meter(address: str) -> Meter:
    """NVML through the module `pynvml` (package nvidia-ml-py). Raises whatever the module raises."""
    nvml: Any = importlib.import_module("pynvml")
    nvml.nvmlInit()
    if address.startswith("GPU-"):
        handle = nvml.nvmlDeviceGetHandleByUUID(address.encode())
    elif ":" in address:
        handle = nvml.nvmlDeviceGetHandleByPciBusId(address.encode())
    else:
        handle = nvml.nvmlDeviceGetHandleByIndex(int(address or 0))

    def asked(function: str, *arguments: int, scale: float = 1.0) -> float | None:
        try:
            return float(getattr(nvml, function)(handle, *arguments)) * scale
        except Exception:  # not supported by this device, this driver or this module
            return None

    def instant_w() -> float | None:
        try:
            value = nvml.nvmlDeviceGetFieldValues(handle, [NVML_POWER_INSTANT])[0]
            watts = float(value.value.uiVal) * 1e-3 if value.nvmlReturn == 0 else 0.0
        except Exception:
            return None
        return watts or None

    def read() -> Reading:
        return Reading(
            power_w=instant_w() or asked("nvmlDeviceGetPowerUsage", scale=1e-3),
            power_limit_w=asked("nvmlDeviceGetEnforcedPowerLimit", scale=1e-3),
            sm_mhz=asked("nvmlDeviceGetClockInfo", 1),
            memory_mhz=asked("nvmlDeviceGetClockInfo", 2),
            temperature_c=asked("nvmlDeviceGetTemperature", 0),
        )

    return Meter("nvml", read)


def smi_meter(address: str) -> Meter:
    """The program nvidia-smi. Raises OSError if it is missing or knows none of the queries."""
    program = shutil.which("nvidia-smi")
    if program is None:
        raise OSError("neither pynvml nor nvidia-smi is installed")
    command = [program, "--format=csv,noheader,nounits", "-i", address or "0"]

    def ask(query: str) -> Reading | None:
        arguments = [*command, f"--query-gpu={query},{SMI_COMMON}"]
        process = subprocess.run(
            arguments, capture_output=True, text=True, timeout=SMI_TIMEOUT_S, check=False
        )
        return _parsed(process.stdout) if process.returncode == 0 else None

    for query in SMI_QUERIES:
        reading = ask(query)
        if reading is not None and reading.power_w is not None:
            return Meter("nvidia-smi", lambda query=query: ask(query) or Reading())  # type: ignore[misc]
    raise OSError("nvidia-smi tells no power")


def _parsed(text: str) -> Reading:
    """The reading in a line of nvidia-smi; "[N/A]" and the like are None."""
    lines = text.strip().splitlines()
    values: list[float | None] = []
    for word in lines[0].split(",") if lines else []:
        try:
            values.append(float(word))
        except ValueError:
            values.append(None)
    names = [field.name for field in fields(Reading)]
    return Reading(**dict(zip(names, values, strict=False)))


@dataclass
class Watch:
    """Samples a meter in a thread while a `with` block runs; `mean` is the mean of what it read.

    Without a meter every field of `mean` is None. A sample that fails is left out.
    """

    meter: Meter | None
    period_s: float = PERIOD_S
    readings: list[Reading] = field(default_factory=list)
    _end: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Watch:
        if self.meter is not None:
            self._thread = threading.Thread(target=self._sample, name="power", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join(timeout=2 * SMI_TIMEOUT_S)

    def _sample(self) -> None:
        assert self.meter is not None
        while not self._end.is_set():
            began = time.perf_counter()
            with suppress(Exception):
                self.readings.append(self.meter.read())
            self._end.wait(max(self.period_s - (time.perf_counter() - began), 0.001))

    @property
    def mean(self) -> Reading:
        return Reading(
            **{
                column.name: _mean([getattr(r, column.name) for r in self.readings])
                for column in fields(Reading)
            }
        )


def _mean(values: Sequence[float | None]) -> float | None:
    samples = [value for value in values if value is not None and math.isfinite(value)]
    return round(sum(samples) / len(samples), 1) if samples else None
