"""Damaged files: whatever a file holds, a command ends with an exit code of the contract and no traceback."""

import csv
import random
import shlex
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from clustersim.cli import main
from clustersim.runs import run
from itertime.cli import main as itertime
from itertime.spec.system import SYSTEMS
from tests.damage import ODD, damaged
from tests.folders import rehashed
from traces.job import Job
from traces.native import write_trace

JOBS = [
    Job("a", 0.0, gpus=8, duration_s=60.0, deadline_s=90.0, tenant="blue"),
    Job("llm", 5.0, model="megatron-1.7b", global_batch=64, iterations=10.0, gpus=4, min_gpus=2),
    Job("bert", 6.0, model="bert-large-wikipedia", global_batch=256, iterations=9.0, gpus=8,
        plan_options="batching=unpadded,balance=stratified,clipping=bucket"),
    Job("bits", 7.0, model="bert-large", global_batch=64, iterations=9.0, gpus=8,
        plan_options="compression=onebit-adam,warmup_share=0.25"),
]  # fmt: skip
FILES: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("damaged.yaml").read_text())
PROGRAMS = {"clustersim": main, "itertime": itertime}
RUN = ["--policy", "fifo", "--cluster", "n2g8", "--json"]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A valid file of each kind, and the folder of a run."""
    home = tmp_path_factory.mktemp("sound")
    for name in ("trace.csv", "trace.parquet"):
        write_trace(JOBS, home / name)
    for name, file in FILES.items():
        if "text" in file:
            (home / name).write_text(file["text"])
    shutil.copy(SYSTEMS / "dgx-a100-80gb.yaml", home / "system.yaml")
    shutil.copy(SYSTEMS.parent / "models" / "gpt3-1.3b.yaml", home / "model.yaml")
    run(home / "trace.csv", "srtf", cluster="n2g8", out=home / "run", failures={"mtbf_gpu_h": 50.0})
    return home


def crashes(
    name: str, sound: Path, home: Path, seeds: range, capfd: pytest.CaptureFixture[str]
) -> list[tuple[int, str, str]]:
    """Damage a file once per seed, with hashes made anew for every other one, and run its commands. Returns
    seed, command and end of stderr where a command did not end with an exit code for mistakes of users.
    """
    found = []
    content = (sound / name).read_bytes()
    shutil.copytree(sound, home, dirs_exist_ok=True)
    for seed in seeds:
        (home / name).write_bytes(damaged(content, random.Random(f"{name} {seed}")))
        if name.startswith("run/") and seed % 2:
            if name != "run/manifest.json":
                shutil.copy(sound / "run" / "manifest.json", home / "run")
            with suppress(
                ValueError, LookupError, TypeError, AttributeError, OSError
            ):  # no manifest any more
                rehashed(home / "run")
        for command in FILES[name]["commands"]:
            program, *words = shlex.split(command)
            code = PROGRAMS[program](words)
            said = capfd.readouterr().err
            if code not in (0, 2, 3, 4, 5) or "Traceback" in said:
                found.append((seed, command, said[-2000:]))
    return found


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_not_damaged_is_none(
    name: str, sound: Path, here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Else a damage would hide behind a mistake that every copy of the file has."""
    shutil.copytree(sound, here, dirs_exist_ok=True)
    codes = {
        command: PROGRAMS[command.split()[0]](shlex.split(command)[1:]) for command in FILES[name]["commands"]
    }
    assert set(codes.values()) == {0}, (codes, capfd.readouterr().err)


MANY = pytest.param(range(1000, 1300), marks=pytest.mark.long)


@pytest.mark.parametrize("seeds", [range(4), MANY], ids=["few", "many"])
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_a_mistake_of_the_user(
    name: str, seeds: range, sound: Path, here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = name.startswith("run/")
    assert not crashes(name, sound, here, seeds[:2] if folder and len(seeds) < 9 else seeds, capfd)


OPTIONS = ("batching=unpadded,balance=stratified-exchanged", "clipping=bucket,optimizer=lamb",
           "compression=onebit-adam,warmup_share=0.25", "workers=2,local_steps=8,outer=des-loc",
           "momentum_steps=4,workers=4,local_steps=2,outer=des-loc",
           "compression=topk,compression_density=0.5", "quantized_weights=true,secondary_shards=8",
           "weight_shards=2,gradient_shards=4,optimizer_shards=8")  # fmt: skip


def damaged_options(rng: random.Random) -> str:
    """Options with up to three changes: a part of other options, odd text, or a number in their place."""
    parts = rng.choice(OPTIONS).split(",")
    for _ in range(rng.randrange(4)):
        at, kind = rng.randrange(len(parts)), rng.randrange(4)
        key, _, value = parts[at].partition("=")
        odd = rng.choice([*ODD, "0", "1", "3", "1e9", "10" * 9, "none"])
        parts[at] = (f"{key}={odd}", f"{odd}={value}", rng.choice(rng.choice(OPTIONS).split(",")), odd)[kind]
        if rng.random() < 0.3:
            parts.append(rng.choice(rng.choice(OPTIONS).split(",")))
    return ",".join(parts)


def odd_option_crashes(seeds: range, home: Path, capfd: pytest.CaptureFixture[str]) -> list[object]:
    """Traces with damaged options, checked and run. Returns where a command ended in any other way than the
    contract says, or where the check let pass what the run refused.
    """
    found: list[object] = []
    for seed in seeds:
        rng = random.Random(f"options {seed}")
        rows = [["job_id", "submit_s", "model", "global_batch", "iterations", "gpus", "plan_options"]]
        for i in range(3):
            model = rng.choice(("bert-large", "bert-large-wikipedia", "gpt3-1.3b"))
            batch, gpus = rng.choice(("7", "64", "512")), rng.choice(("1", "8", "16"))
            rows.append([str(i), "0", model, batch, "5", gpus, damaged_options(rng)])
        with (home / "t.csv").open("w", newline="", encoding="utf-8", errors="replace") as file:
            csv.writer(file).writerows(rows)
        codes = [main(["trace", "check", "t.csv"]), main(["run", "t.csv", *RUN])]
        said = capfd.readouterr().err
        if codes not in ([0, 0], [3, 3]) or "Traceback" in said:
            found.append((seed, codes, rows, said[-2000:]))
    return found


@pytest.mark.parametrize("seeds", [range(20), MANY], ids=["few", "many"])
def test_odd_options_are_mistakes_of_the_user(
    seeds: range, here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert not odd_option_crashes(seeds, here, capfd)
