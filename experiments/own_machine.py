"""The method on the machine at hand: its kernels timed, a small GPT predicted in four forms, and trained.

    python -m experiments.own_machine

The program needs torch (extra `profile`), takes about seven minutes on two cores, and prints three tables;
`--page` writes them to `experiments/OWN_MACHINE.md`. Its steps:

1. `itertime profile collect` times what the model launches, alone on the machine and with a second process
   that runs the same kernel on the other core, and gloo's collectives between two processes.
2. A profile is made of either table (`experiments/profiles/collected/core.py`).
3. `itertime` predicts an iteration of one process, of two data-parallel ones, of a 1F1B pipeline of two
   stages, and of two tensor-parallel ones.
4. `experiments/train_forms.py` trains all four with torch, in turns, several times.

No time of an iteration enters a profile. On a machine with GPUs `--device cuda` does the same with NCCL; what
its profile lacks is that of `--base`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.output import make_folder, write_tables
from experiments.profiles.build import build
from experiments.profiles.collected import core_profile
from itertime.commandline import run_task
from itertime.errors import UserError
from itertime.io import write_text
from itertime.prediction import Prediction, predict
from itertime.profiling import ModelGrid, Pace, collect, render
from itertime.spec import ModelSpec, Plan, PlanOptions, Profile, System, load_profile
from itertime.spec.system import Site

HERE = Path(__file__).parent
PAGE, PROGRAM = HERE / "OWN_MACHINE.md", HERE / "train_forms.py"
PROCESSES = 2
MODEL = ModelSpec(
    name="small-gpt",
    layers=4,
    hidden=256,
    heads=4,
    vocab=4096,
    seq_len=256,
    vocab_multiple=1,
    attention="core",
    tied_embeddings=False,
)
MICRO_BATCH, GLOBAL_BATCH = 2, 8
# Degrees of tensor, pipeline and data parallelism of each form.
FORMS = {
    "single": ("one process", (1, 1, 1)),
    "data": ("data parallel", (1, 1, PROCESSES)),
    "pipeline": ("1F1B, two stages", (1, PROCESSES, 1)),
    "tensor": ("tensor parallel", (PROCESSES, 1, 1)),
}
ALONE, COMPANY = "alone", "in company"
WIDE_ERROR = 0.15
WAIT_S = 600.0  # for one training


@dataclass(frozen=True)
class Effort:
    """Seconds for which each kernel is timed, and trainings of each form with their iterations."""

    kernel_s: float
    rounds: int
    iterations: int


FULL, QUICK = Effort(0.2, 6, 6), Effort(0.02, 1, 2)


@dataclass
class Form:
    """A form of the training: predictions by the name of their profile, and what was measured of each round:
    seconds of iterations, and of the first process seconds on its CPU and in exchanges.
    """

    title: str
    degrees: tuple[int, int, int]
    predictions: dict[str, Prediction] = field(default_factory=dict)
    rounds_s: list[list[float]] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    exchanges_s: list[float] = field(default_factory=list)

    @property
    def processes(self) -> int:
        return int(np.prod(self.degrees))

    @property
    def profile_name(self) -> str:
        """The profile whose kernels ran under the conditions of this form."""
        return COMPANY if self.processes > 1 and COMPANY in self.predictions else ALONE

    @property
    def times_s(self) -> list[float]:
        return [seconds for times_s in self.rounds_s for seconds in times_s]

    @property
    def median_s(self) -> float:
        return statistics.median(self.times_s)

    def error(self, profile_name: str) -> float:
        """The predicted over the median of the measured seconds, less 1."""
        return self.predictions[profile_name].iteration_s / self.median_s - 1


def timed_tables(folder: Path, device: str, effort: Effort) -> dict[str, Path]:
    """The tables of the model's kernels, by the condition under which they were timed."""
    grid = ModelGrid((MODEL,), (1, PROCESSES), (MICRO_BATCH,))
    pace = Pace(effort.kernel_s, effort.kernel_s / 4, 1)
    on_gpu = device == "cuda"
    conditions = {ALONE: 1} if on_gpu else {ALONE: 1, COMPANY: PROCESSES}
    tables = {}
    for name, processes in conditions.items():
        tables[name] = folder / f"kernels-{name.replace(' ', '-')}.csv"
        ranks = None if on_gpu else (PROCESSES,) if processes > 1 or len(conditions) == 1 else ()
        collect(device, grid, pace, tables[name], processes, ranks)
    return tables


def core_profiles(tables: dict[str, Path]) -> dict[str, Profile]:
    """The profiles of a core. Collectives are always timed between two processes, so both have the same."""
    profiles = {name: core_profile(path, f"core {name}") for name, path in tables.items()}
    collectives = next(profile.collectives for profile in profiles.values() if profile.collectives)
    for name, profile in profiles.items():
        profiles[name] = _with(profile, collectives=collectives)
    return profiles


def _with(profile: Profile, **fields: Any) -> Profile:
    return Profile(**{name: getattr(profile, name) for name in profile.__dataclass_fields__} | fields)


def gpu_profiles(tables: dict[str, Path], chip: str, base: str) -> dict[str, Profile]:
    """The profile of a GPU, with what was not timed of the profile `base`."""
    path = tables[ALONE].with_suffix(".json")
    write_text(path, render(build(tables[ALONE], chip, base)))
    return {ALONE: load_profile(str(path))}


def predicted(degrees: tuple[int, int, int], profile: Profile, device: str) -> Prediction:
    """An iteration of a form. A core computes and copies in turns, so on a CPU nothing hides an exchange; nor
    does it wait for launches, which are a part of each kernel's time.
    """
    tp, pp, dp = degrees
    on_gpu = device == "cuda"
    plan = Plan(
        tp=tp,
        pp=pp,
        dp=dp,
        micro_batch=MICRO_BATCH,
        global_batch=GLOBAL_BATCH,
        recompute="none",
        precision="tf32" if on_gpu else "fp32",
        grad_overlap=on_gpu and dp > 1,
        options=PlanOptions(optimizer="fused-adam", clipping="none"),
    )
    system = System(
        name="this machine",
        profile=profile.name,
        gpus_per_node=PROCESSES,
        nic_bytes_per_s=1e9,  # one node: no bytes leave it
        nvlink_bytes_per_s=profile.nvlink_bytes_per_s or 1e9,
        nvlink_slowdown=1.0,  # the collectives are this machine's
        source="none",
        site=Site() if on_gpu else Site(launch_s=0.0, p2p_exposure=1.0, measured_over_predicted=(1.0, 1.0)),
    )
    return predict(MODEL, plan, system, profile)


def trained(form: str, processes: int, device: str, iterations: int) -> dict[str, list[float]]:
    """What the first process of a training prints. Raises UserError if a process fails."""
    names = ("layers", "hidden", "heads", "seq_len", "vocab")
    training = {name: getattr(MODEL, name) for name in names}
    training |= {"micro_batch": MICRO_BATCH, "global_batch": GLOBAL_BATCH}
    command = [sys.executable, str(PROGRAM), form, json.dumps(training)]
    command += ["--iterations", str(iterations), "--device", device]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    path = os.pathsep.join(filter(None, (str(HERE.parent), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {
        "PYTHONPATH": path,
        "WORLD_SIZE": str(processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }
    running = [
        subprocess.Popen(
            command,
            env=environment | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(processes)
    ]
    outputs = []
    try:
        outputs = [process.communicate(timeout=WAIT_S) for process in running]
    except subprocess.TimeoutExpired:
        raise UserError(f"{PROGRAM.name} {form}: no end after {WAIT_S:g} s") from None
    finally:
        for process in running:
            process.kill()
    for process, (_, complaint) in zip(running, outputs, strict=True):
        if process.returncode:
            last_line = complaint.strip().rpartition("\n")[2]
            raise UserError(f"{PROGRAM.name} {form}: {last_line}")
    result: dict[str, list[float]] = json.loads(outputs[0][0])
    return result


def study(device: str, effort: Effort, profiles: dict[str, Profile]) -> list[Form]:
    """All forms, predicted by every profile and then trained in turns."""
    forms = {name: Form(*described) for name, described in FORMS.items()}
    for form in forms.values():
        for name, profile in profiles.items():
            form.predictions[name] = predicted(form.degrees, profile, device)
    for place in range(effort.rounds):
        print(f"round {place + 1} of {effort.rounds}", file=sys.stderr)
        for name, form in forms.items():
            result = trained(name, form.processes, device, effort.iterations)
            form.rounds_s.append(result["times_s"])
            form.cpu_s += result["cpu_s"]
            form.exchanges_s += result["exchanges_s"]
    return list(forms.values())


def forms_table(forms: Sequence[Form]) -> Iterator[str]:
    """Predicted and measured seconds of an iteration, a line for each form."""
    names = list(forms[0].predictions)
    heads = [f"kernels {name}, s" for name in names]
    heads += ["measured, s", "10th to 90th percentile", "medians of rounds"]
    heads += ["CPU, s", "exchanges, s", "error"]
    yield "| form | " + " | ".join(heads) + " |"
    yield "|---|" + "---|" * len(heads)
    for form in forms:
        low, high = np.percentile(form.times_s, (10, 90))
        medians = [statistics.median(times_s) for times_s in form.rounds_s]
        cells = [f"{form.predictions[name].iteration_s:.3f} ({form.error(name):+.1%})" for name in names]
        cells += [f"{form.median_s:.3f}", f"{low:.3f} to {high:.3f}"]
        cells += [f"{min(medians):.3f} to {max(medians):.3f}", f"{statistics.median(form.cpu_s):.3f}"]
        cells += [f"{statistics.median(form.exchanges_s):.3f}"]
        error = form.error(form.profile_name)
        cells += [f"**{error:+.1%}**" + ("" if abs(error) <= WIDE_ERROR else " (above 15 %)")]
        yield f"| {form.title} | " + " | ".join(cells) + " |"


def parts_table(forms: Sequence[Form]) -> Iterator[str]:
    """Where the predicted milliseconds go, by the profile of each form's conditions."""
    breakdowns = [form.predictions[form.profile_name].breakdown for form in forms]
    parts = [part for part in breakdowns[0] if any(breakdown.get(part, 0.0) > 0 for breakdown in breakdowns)]
    yield "| predicted ms | " + " | ".join(form.title for form in forms) + " |"
    yield "|---|" + "---|" * len(forms)
    for part in parts:
        cells = [f"{breakdown.get(part, 0.0) * 1e3:.1f}" for breakdown in breakdowns]
        yield f"| {part} | " + " | ".join(cells) + " |"


def company_table(tables: dict[str, Path]) -> Iterator[str]:
    """How much longer kernels take while the other core runs the same one, by kind: the median kernel, and
    the fastest and slowest ratio.
    """
    columns = ["table", "op", "layout", "dir", "m", "n", "k", "batch", "rows", "cols"]
    times = []
    for name in (ALONE, COMPANY):
        rows = pd.read_csv(tables[name]).query("time_us > 0 and table != 'collective'")
        times.append(rows.assign(**{column: rows[column].astype(str) for column in columns}))
    alone, company = (rows.set_index(columns).time_us for rows in times)
    kernels = (company / alone).rename("ratio").reset_index()
    yield "| kernels | number | median | least | most |"
    yield "|---|---|---|---|---|"
    for name, kind_kernels in kernels.groupby("op"):
        ratio = kind_kernels["ratio"]
        cells = [
            str(len(kind_kernels)),
            *(f"{value:.2f}" for value in (ratio.median(), ratio.min(), ratio.max())),
        ]
        yield f"| {name} | " + " | ".join(cells) + " |"


def machine() -> str:
    """The machine in words."""
    model = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        lines = information.read_text().splitlines()
        model = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), model)
    load = os.getloadavg()[0]
    library = f"torch {version('torch')}" if find_spec("torch") else "no torch"
    return f"{os.cpu_count()} cores, {model}; {library}; load {load:.1f} before the first kernel."


def run_study(options: argparse.Namespace) -> None:
    """Time, predict, train, and print or write the tables."""
    effort = QUICK if options.quick else FULL
    described = machine()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        make_folder(folder)
        tables = timed_tables(folder, options.device, effort)
        if options.device == "cuda":
            profiles = gpu_profiles(tables, options.gpu, options.base)
        else:
            profiles = core_profiles(tables)
        forms = study(options.device, effort, profiles)
        written = {"machine": [described], "forms": forms_table(forms), "parts": parts_table(forms)}
        if COMPANY in tables:
            written["company"] = company_table(tables)
        lines = {name: list(table) for name, table in written.items()}
        if options.keep:
            measured = {form.title: {"rounds_s": form.rounds_s, "cpu_s": form.cpu_s} for form in forms}
            write_text(folder / "iterations.json", json.dumps(asdict(effort) | measured, indent=1) + "\n")
    if options.page:
        write_tables(PAGE, lines)
    else:
        print("\n\n".join("\n".join(table) for table in lines.values()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the study."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a trial, whose figures mean nothing")
    parser.add_argument("--page", action="store_true", help="write the tables to the page, not to stdout")
    parser.add_argument("--keep", type=Path, help="a folder for the timed kernels and iterations")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="cpu by default")
    parser.add_argument("--gpu", default="h200-141gb", help="of cuda: the GPU's name or YAML file")
    parser.add_argument("--base", default="h200-141gb", help="of cuda: the profile of what is not timed")
    options = parser.parse_args(arguments)
    return run_task(lambda: run_study(options))


if __name__ == "__main__":
    sys.exit(main())
