"""One look for each policy, on every page and figure: a colour, a line style and a marker.

The look of a policy does not depend on the other policies of a page. There are more policies than colours
that readers can tell apart, so a look is a number, `style * 8 + colour`:

| part | values |
|---|---|
| colour | 8, each with a contrast of at least 3 with the page, far apart also for colour-blind readers |
| line | 8 kinds of dashes, by style: `DASHES` of `templates/charts.js` |
| marker | 8 shapes, number (colour + style) modulo 8 of `MARKERS` there |

`POLICIES` fixes the looks of registered policies. Policies that are often compared stand in one row of eight
there, or in different columns. All others have the last two styles, by a hash of their name.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

__all__ = ["DARK", "LIGHT", "POLICIES", "look_of", "looks_of", "palette_css"]

LIGHT = ("#053772", "#b5450d", "#27897e", "#7f0430", "#d17a17", "#2697f5", "#306273", "#803cb9")
"""The colours on white. Found by a search for the largest least distance (OKLab) of any two, as seen with
normal vision and by readers without red, green or blue cones (Machado et al., IEEE TVCG 15, 2009).
"""
DARK = ("#2aa3cb", "#ea6618", "#68f7a3", "#b36e7a", "#e6af2a", "#cdfffd", "#aec2db", "#8c6af3")
"""The same hues on a dark page."""

POLICIES = (
    "fifo", "srtf", "elasticflow", "vtrain-aware", "priced", "tiresias", "sia", "gavel-max-min",
    "smallest", "fifo-skip", "easy", "sjf", "srsf", "qssf", "conservative", "multifactor",
    "edf-admission", "gandiva", "round-robin", "gittins", "chronus", "edf", "priced-deadlines", "las",
    "themis", "gavel-ftf", "gavel-makespan", "gavel-throughput", "shockwave", "allox", "gandiva-fair", "drf",
    "optimus", "afs", "arena", "rubick", "hesrpt", "max-min", "unicron", "pal",
    "lucid", "muri", "quota", "hived", "slurm",
)  # fmt: skip
"""The place of a policy here is its look. A new policy is added at the end, so that no other one changes."""

_OTHERS = range(48, 64)


def look_of(policy: str) -> int:
    """The look of a policy by its name.

    >>> look_of("fifo"), look_of("fifo-skip"), look_of("mine.py:Mine") in range(48, 64)
    (0, 9, True)
    """
    if policy in POLICIES:
        return POLICIES.index(policy)
    return _OTHERS[sha256(policy.encode()).digest()[0] % len(_OTHERS)]


def looks_of(policies_and_labels: Sequence[tuple[str, str]]) -> list[int]:
    """The looks of (policy, label) on one page, where a policy may stand several times.

    The first entry of a registered policy has its look. Any other one whose look is taken gets the next free
    one of those for others; when these are used up, looks repeat.
    """
    registered = {
        policy: look_of(policy) for policy, _ in reversed(policies_and_labels) if policy in POLICIES
    }
    used_looks = set(registered.values())
    looks = []
    for policy, label in policies_and_labels:
        if policy in registered:
            looks.append(registered.pop(policy))
            continue
        first_choice = look_of(label if policy in POLICIES else policy) - _OTHERS.start
        free_looks = [_OTHERS[(first_choice + k) % len(_OTHERS)] for k in range(len(_OTHERS))]
        looks.append(next((look for look in free_looks if look not in used_looks), free_looks[0]))
        used_looks.add(looks[-1])
    return looks


def palette_css(dark: bool) -> str:
    """The colours as properties `--c0` to `--c7` of CSS."""
    return " ".join(f"--c{i}: {colour};" for i, colour in enumerate(DARK if dark else LIGHT))
