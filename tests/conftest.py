"""What all tests share: the published data, and that no test depends on the speed of the machine."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.places import SHARED

# A slow or busy machine is no fault of what is tested.
settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")
# Programs started in the background by a script ignore Ctrl-C, and so would those that tests send it to.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["ITERTIME_CACHE"] = "off"  # tests of the cache have folders of their own


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Published measurements, logs and schedules; skips the test where they are missing."""
    if not (SHARED / "data").is_dir():
        pytest.skip(f"no published measurements at {SHARED / 'data'}")
    return SHARED


@pytest.fixture(scope="session")
def shared_reference() -> Path:
    """Completion times that other simulators compute; skips the test where they are missing."""
    folder = SHARED / "reference"
    if not folder.is_dir():
        pytest.skip(f"no reference schedules at {folder}")
    return folder


@pytest.fixture(scope="session")
def shared_traces() -> Path:
    """The folder of published job logs; skips the test where it is missing."""
    folder = SHARED / "data" / "traces"
    if not folder.is_dir():
        pytest.skip(f"no published job logs at {folder}")
    return folder
