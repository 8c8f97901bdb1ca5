"""`itertime profile`: show, check and compare profiles of GPUs, and measure operators for one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from itertime.commandline import brief, new_app, print_json
from itertime.errors import printable

from .options import (
    Attention,
    Cp,
    Dispatcher,
    Ep,
    Etp,
    Fp32Gradients,
    FrameworkName,
    Json,
    MicroBatch,
    ModelName,
    Options,
    Precision,
    Recompute,
    SeqLen,
    SequenceParallel,
    Settings,
    Tp,
    TpOverlap,
    model_of,
    numbers_of,
    option,
    system_of,
)

if TYPE_CHECKING:
    from itertime.profiling import Difference, ProfileFinding
    from itertime.spec import Evidence, Profile
    from itertime.timeline import LayerKernel

NAME, SHAPE = 18, 36  # columns of a kernel's name and of its shape
QUICK_SECONDS = 0.3
MOST_SECONDS = 600.0
FAILED = 2  # exit code of a profile that is not plausible: a configuration that cannot be used

ProfileName = Annotated[str, typer.Argument(help="A profile's name, or its JSON file.")]

profile_app = new_app("Show, check and compare profiles of GPUs, and measure one with torch.")


@profile_app.command()
def show(
    name: Annotated[
        str | None,
        typer.Argument(help="A profile's name, or its JSON file; default: all shipped ones."),
    ] = None,
    json: Json = False,
) -> None:
    """Show what is measured, fitted and assumed: sources, rows, errors, and the sizes that were measured."""
    from itertime.spec import list_profiles, load_profile

    profiles = [load_profile(profile_name) for profile_name in ([name] if name else list_profiles())]
    if json:
        print_json({"profiles": [_profile_document(profile) for profile in profiles]})
        return
    for profile in profiles:
        _print_profile(profile)


@profile_app.command()
def collect(
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The table to write (.csv or .csv.gz).", show_default=False)
    ],
    device: Annotated[str, option("--device", "cuda or cpu.")] = "cuda",
    grid: Annotated[str, option("--grid", "full (hours), quick, or tiny (a trial).")] = "full",
    quick: Annotated[bool, option("--quick", "As --grid quick --seconds 0.3.")] = False,
    models: Annotated[
        list[str] | None,
        option("--for", "Time what trainings of this model launch instead of a grid; repeatable."),
    ] = None,
    splits: Annotated[str, option("--tp", "Of --for: tensor-parallel ranks, for example 1,2.")] = "1",
    micro_batches: Annotated[
        str, option("--micro-batch", "Of --for: sequences of a micro-batch.")
    ] = "1,2,4,8",
    processes: Annotated[
        int, option("--processes", "Of --for on a CPU: cores that run each kernel at a time.", min=1)
    ] = 1,
    ranks: Annotated[
        str | None,
        option("--ranks", "Processes of collectives, for example 2; default: 2, 4, 8 ... GPUs, no cores."),
    ] = None,
    seconds: Annotated[float, option("--seconds", "How long each kernel is timed.")] = 0.5,
    warm_up: Annotated[float, option("--warm-up", "How long each runs before that.")] = 0.3,
    burst: Annotated[bool, option("--burst", "Single runs on a rested GPU instead.")] = False,
    repeats: Annotated[int, option("--repeats", "Single runs per kernel.", min=1)] = 20,
) -> None:
    """Time this machine's kernels under sustained load, with power; needs the extra `profile` (torch).

    A command that was interrupted goes on when it is repeated.
    """
    from itertime.errors import UserError
    from itertime.profiling import ModelGrid, Pace
    from itertime.profiling import collect as run
    from itertime.spec import load_model

    for name, value, minimum in (("--seconds", seconds, 1e-3), ("--warm-up", warm_up, 0.0)):
        if not minimum <= value <= MOST_SECONDS:
            raise UserError(f"{name}={value:g}: must be from {minimum:g} to {MOST_SECONDS:g} seconds")
    if quick:
        grid, seconds = "quick", min(seconds, QUICK_SECONDS)
    pace = Pace(None if burst else seconds, warm_up, repeats)
    groups = None if ranks is None else numbers_of("--ranks", ranks)
    splits_of_model, batches = numbers_of("--tp", splits), numbers_of("--micro-batch", micro_batches)
    for name, numbers, least in (
        ("--tp", splits_of_model, 1),
        ("--micro-batch", batches, 1),
        ("--ranks", groups or (2,), 2),
    ):
        if min(numbers) < least:
            raise UserError(f"{name}={min(numbers)}: must be at least {least}")
    timed_grid: str | ModelGrid = grid
    if models:
        timed_grid = ModelGrid(tuple(load_model(name) for name in models), splits_of_model, batches)
    rows, missing = run(device, timed_grid, pace, output, processes, groups)
    print(f"{rows} rows written to {output}" + (f", {missing} left out" if missing else ""))


@profile_app.command()
def check(name: ProfileName, json: Json = False) -> None:
    """Check that a profile is plausible: nothing beats the GPU, times rise with sizes, evidence is stated.

    The exit code is 2 if it has errors. Warnings alone leave it 0.
    """
    from itertime.profiling import check_profile
    from itertime.spec import load_profile

    profile = load_profile(name)
    findings = check_profile(profile)
    failed = any(finding.level == "error" for finding in findings)
    if json:
        rows = [finding._asdict() for finding in findings]
        print_json({"profile": profile.name, "ok": not failed, "findings": rows})
    else:
        _print_findings(profile, findings)
    if failed:
        raise typer.Exit(FAILED)


@profile_app.command()
def diff(first: ProfileName, second: ProfileName, json: Json = False) -> None:
    """Compare two profiles kernel by kernel at shapes of training: the second's time over the first's."""
    from itertime.profiling import compare_profiles, mean_ratios
    from itertime.spec import load_profile

    profiles = load_profile(first), load_profile(second)
    differences = compare_profiles(*profiles)
    means = mean_ratios(differences)
    if json:
        print_json(_differences_document(*profiles, differences, means))
    else:
        _print_differences(*profiles, differences, means)


@profile_app.command(
    cls=brief(
        ("--model", "--system", "--tp", "--micro-batch", "--seq-len", "--precision", "--json"),
        [("a layer of Llama 2 on an A100", "itertime profile layer a100-80gb --model llama2-7b")],
    )
)
def layer(
    name: ProfileName,
    model: ModelName,
    tp: Tp = 1,
    micro_batch: MicroBatch = 1,
    seq_len: SeqLen = None,
    attention: Attention = None,
    precision: Precision = "bf16",
    recompute: Recompute = "none",
    sequence_parallel: SequenceParallel = False,
    cp: Cp = 1,
    ep: Ep = 1,
    fp32_gradients: Fp32Gradients = False,
    etp: Etp = None,
    tp_overlap: TpOverlap = None,
    dispatcher: Dispatcher = "alltoall",
    options: Options = "",
    framework: FrameworkName = None,
    system: Annotated[
        str | None, option("--system", "Nodes and site; default: the first shipped one with this profile.")
    ] = None,
    settings: Settings = None,
    json: Json = False,
) -> None:
    """List the kernels of one layer: shape, seconds, share, achieved rate, and the limit that binds.

    Their sum is what `itertime predict` charges for a layer and micro-batch. GB/s of a collective: its buffer
    over its time. x: runs, times what framework and site multiply.
    """
    from itertime.spec import Plan, load_profile, parse_options, profile_of
    from itertime.timeline import layer_kernels

    spec = model_of(model, seq_len, attention, settings)
    machine = system_of(system or _system_with(name), settings, framework)
    profile = profile_of(machine) if machine.profile == name else load_profile(name)
    plan = Plan(
        tp=tp,
        pp=1,
        dp=ep,
        micro_batch=micro_batch,
        global_batch=micro_batch * ep,
        recompute=recompute,
        sequence_parallel=sequence_parallel,
        cp=cp,
        ep=ep,
        precision=precision,
        fp32_gradients=fp32_gradients,
        etp=etp,
        tp_overlap=tp_overlap,
        dispatcher=dispatcher,
        options=parse_options(options, "--options"),
    )
    rows, parts = layer_kernels(spec, plan, machine, profile)
    if json:
        print_json(_layer_document(rows, parts))
    else:
        _print_layer(rows, parts)


def _system_with(profile: str) -> str:
    """The name of the first shipped system with just this profile, no variant of its GPU; UserError if there
    is none.
    """
    from itertime.errors import UserError
    from itertime.spec import list_systems, load_profile, load_system, profile_of

    profile_name = load_profile(profile).name
    for name in list_systems():
        system = load_system(name)
        if system.profile == profile_name and profile_of(system) == load_profile(profile_name):
            return name
    raise UserError(f"profile {profile}: no shipped system has it; give --system")


def _profile_document(profile: Profile) -> dict[str, Any]:
    """A profile as `profile show --json` prints it."""
    facts = ("name", "gpu", "source", "peak_flops_per_s", "hbm_bytes_per_s", "memory_bytes", "launch_s")
    return {
        **{fact: getattr(profile, fact) for fact in facts},
        "parts": [vars(part) for part in profile.evidence],
    }


def _print_profile(profile: Profile) -> None:
    print(f"{profile.name}: {profile.gpu} ({profile.source})")
    print(f"{'':9} {'rows':>6} {'fit %':>6} {'held out %':>10}  part")
    for part in profile.evidence:
        error = [
            "-" if value is None else f"{value:.1f}"
            for value in (part.error_in_sample_pct, part.error_held_out_pct)
        ]
        print(f"{part.kind:9} {part.rows or '-':>6} {error[0]:>6} {error[1]:>10}  {part.part}")
        for line in (_measured(part), f"from {part.source}", part.note):
            if line:
                print(f"{'':37}{line}")
    print()


def _measured(part: Evidence) -> str:
    ranges = [f"{name} {low:g} to {high:g}" for name, (low, high) in part.measured.items()]
    return f"measured: {', '.join(ranges)}" if ranges else ""


def _print_findings(profile: Profile, findings: list[ProfileFinding]) -> None:
    for finding in findings:
        print(printable(f"{finding.level}: {finding.part}: {finding.text}"))
    errors = sum(finding.level == "error" for finding in findings)
    counts = f"{errors} errors, {len(findings) - errors} warnings" if findings else "plausible"
    print(printable(f"{profile.name}: {counts}"))


def _differences_document(
    base: Profile, compared: Profile, differences: list[Difference], means: dict[str, float]
) -> dict[str, Any]:
    """Two profiles as `profile diff --json` prints them; the ratio is the second's time over the first's."""
    kernels = [difference._asdict() | {"ratio": difference.ratio} for difference in differences]
    return {"first": base.name, "second": compared.name, "kernels": kernels, "mean_ratio": means}


def _print_differences(
    base: Profile, compared: Profile, differences: list[Difference], means: dict[str, float]
) -> None:
    head = (printable(base.name)[:12], printable(compared.name)[:12])
    print(f"{'microseconds':<46}{head[0]:>13}{head[1]:>13}{'ratio':>7}")
    group = ""
    for difference in differences:
        if difference.group != group:
            group = difference.group
            mean = means.get(group)
            heading = f"{mean:>72.2f} geometric mean" if mean else ""
            print(f"{group}{heading[len(group) :]}" if heading else group)
        times = [
            "-" if seconds is None else f"{seconds * 1e6:,.1f}"
            for seconds in (difference.first_s, difference.second_s)
        ]
        ratio = "-" if difference.ratio is None else f"{difference.ratio:.2f}"
        print(f"  {difference.kernel:<44}{times[0]:>13}{times[1]:>13}{ratio:>7}")


def _layer_document(rows: list[LayerKernel], parts: dict[str, float]) -> dict[str, Any]:
    """A layer as `profile layer --json` prints it."""
    total = sum(parts.values())
    kernels = []
    for row in rows:
        values = vars(row) | {"runs": row.runs, "share": row.seconds / total}
        values["pass"] = values.pop("pass_")
        kernels.append(values)
    return {"layer_s": total, "parts": parts, "kernels": kernels}


def _print_layer(rows: list[LayerKernel], parts: dict[str, float]) -> None:
    total = sum(parts.values())
    pass_name = ""
    for row in rows:
        if row.pass_ != pass_name:
            pass_name = row.pass_
            pass_s = sum(kernel.seconds for kernel in rows if kernel.pass_ == pass_name)
            print(f"{pass_name}: {pass_s * 1e6:,.1f} us, {pass_s / total:.1%}")
            print(f" {'kernel':<{NAME}}{'shape':<{SHAPE}}{'us':>9}{'x':>5}{'share':>7} rate, limit")
        runs = f"{row.runs:.2g}" if row.each_s else ""
        limit = f"{row.rate:.0f} {row.unit}, {row.limit}" if row.unit else row.limit
        name, shape = (
            row.kernel[:NAME],
            row.shape if len(row.shape) < SHAPE else row.shape.replace(" batch", " b"),
        )
        print(
            f" {name:<{NAME}}{shape:<{SHAPE}}{row.seconds * 1e6:>9,.1f}{runs:>5}"
            f"{row.seconds / total:>7.1%} {limit}"
        )
    print(f"one layer and micro-batch: {total * 1e6:,.1f} us")
