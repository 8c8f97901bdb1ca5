"""What `itertime profile` prints: evidence, findings, ratios, and the kernels of a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from itertime.errors import printable

if TYPE_CHECKING:
    from itertime.profiling import Difference, ProfileFinding
    from itertime.spec import Evidence, Profile
    from itertime.timeline import LayerKernel

__all__ = [
    "differences_document",
    "layer_document",
    "print_differences",
    "print_findings",
    "print_layer",
    "print_profile",
    "profile_document",
]

NAME, SHAPE = 18, 36  # columns of a kernel's name and of its shape


def profile_document(profile: Profile) -> dict[str, Any]:
    """A profile as `profile show --json` prints it."""
    facts = ("name", "gpu", "source", "peak_flops_per_s", "hbm_bytes_per_s", "memory_bytes", "launch_s")
    return {
        **{fact: getattr(profile, fact) for fact in facts},
        "parts": [vars(part) for part in profile.parts()],
    }


def print_profile(profile: Profile) -> None:
    print(f"{profile.name}: {profile.gpu} ({profile.source})")
    print(f"{'':9} {'rows':>6} {'fit %':>6} {'held out %':>10}  part")
    for part in profile.parts():
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


def print_findings(profile: Profile, findings: list[ProfileFinding]) -> None:
    for finding in findings:
        print(printable(f"{finding.level}: {finding.part}: {finding.text}"))
    errors = sum(finding.level == "error" for finding in findings)
    counts = f"{errors} errors, {len(findings) - errors} warnings" if findings else "plausible"
    print(printable(f"{profile.name}: {counts}"))


def differences_document(
    base: Profile, compared: Profile, differences: list[Difference], means: dict[str, float]
) -> dict[str, Any]:
    """Two profiles as `profile diff --json` prints them; the ratio is the second's time over the first's."""
    kernels = [difference._asdict() | {"ratio": difference.ratio} for difference in differences]
    return {"first": base.name, "second": compared.name, "kernels": kernels, "mean_ratio": means}


def print_differences(
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


def layer_document(rows: list[LayerKernel], parts: dict[str, float]) -> dict[str, Any]:
    """A layer as `profile layer --json` prints it."""
    total = sum(parts.values())
    kernels = []
    for row in rows:
        values = vars(row) | {"runs": row.runs, "share": row.seconds / total}
        values["pass"] = values.pop("pass_")
        kernels.append(values)
    return {"layer_s": total, "parts": parts, "kernels": kernels}


def print_layer(rows: list[LayerKernel], parts: dict[str, float]) -> None:
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
