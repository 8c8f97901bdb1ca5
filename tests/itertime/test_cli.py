"""The commands: their JSON contracts, exit codes and error lines."""

from __future__ import annotations

import subprocess
import sys
import time

SEARCH = ["search", "--model", "megatron-18.4b", "--system", "dgx-a100-80gb", "--global-batch", "256"]


def test_help_is_quick():
    start = time.perf_counter()
    run = subprocess.run(
        [sys.executable, "-m", "itertime.cli", "--help"], capture_output=True, text=True, check=True
    )
    assert time.perf_counter() - start < 3  # 0.5 s is the aim; a busy machine is slower
    assert "predict" in run.stdout
    code = "import sys, itertime.cli; print({'numpy', 'scipy', 'pandas', 'pydantic'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


def test_a_prediction_starts_without_scipy():
    """Importing it takes about as long as all else of a prediction's start."""
    code = "import sys, itertime.prediction; print({'scipy', 'pandas', 'matplotlib'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


def test_output_is_the_same_under_any_hash_seed(tmp_path):
    command = [sys.executable, "-m", "itertime.cli", *SEARCH, "--max-gpus", "32"]
    outputs = set()
    for seed in ("0", "1"):
        run = subprocess.run(
            command, capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed, "PATH": ""}
        )
        outputs.add(run.stdout.split("ms\n")[1])
    assert len(outputs) == 1
