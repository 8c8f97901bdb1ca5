"""What a job asked for when it was submitted: the options of `sbatch`, `srun` and `salloc`, as sacct's
`SubmitLine` repeats them.

Source: sbatch(1). The line is not quoted, so an option is read only ahead of the first word that is none: the
script, or the second word of `--wrap`.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import NamedTuple

from traces.native import whole

from .tres import Request, Tres

__all__ = ["NO_OPTIONS", "SubmitOptions", "begin_of", "submit_options", "submitted_request"]

_LETTERS = {
    "d": "dependency", "b": "begin", "a": "array", "p": "partition", "G": "gpus", "N": "nodes", "n": "ntasks",
}  # fmt: skip
_BARE_LETTERS = "HIOQsWXZkhVvlE"  # options of one letter without a value
_BARE = frozenset(
    (
        "parsable", "exclusive", "requeue", "no-requeue", "wait", "hold", "no-kill", "overcommit",
        "oversubscribe", "quiet", "verbose", "version", "help", "usage", "contiguous", "spread-job",
        "ignore-pbs", "test-only", "reboot", "get-user-env", "immediate", "label", "pty", "multi-prog",
        "disable-status", "exact", "overlap", "interactive", "mpi-combine", "no-shell", "propagate", "nice",
        "kill-on-bad-exit", "unbuffered",
    )
)  # fmt: skip
"""Long options whose value, if they take one, stands behind `=`."""

_WANTED = re.compile(
    r"\s-(?:-(?:dependency|begin|array|nice|partition[= ]\S*,)|[dba][ =\d\w]|p ?\S*,)", re.ASCII
)
_AFTER = re.compile(r"now(?:\+(\d+)([a-z]*))?", re.ASCII)
_CLOCK = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?", re.ASCII)
_UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_HOURS = {"midnight": 0, "elevenses": 11, "fika": 15, "noon": 12, "teatime": 16}


class SubmitOptions(NamedTuple):
    """Options as they were written, "" where they were not."""

    dependency: str = ""
    begin: str = ""
    nice: str = ""
    array: str = ""
    partition: str = ""
    gpus: str = ""
    gpus_per_node: str = ""
    gpus_per_task: str = ""
    gpus_per_socket: str = ""
    gres: str = ""
    nodes: str = ""
    ntasks: str = ""

    @property
    def array_limit(self) -> int | None:
        """The most tasks that may run at once: 2 of `0-5%2`."""
        limit = self.array.partition("%")[2]
        return (
            int(limit) if limit.isascii() and limit.isdigit() and 0 < len(limit) < 10 and int(limit) else None
        )


NO_OPTIONS = SubmitOptions()


def submit_options(line: str, with_gpus: bool = False) -> SubmitOptions:
    """The options of a submission that say when, where and how it may run; `with_gpus` also those of one that
    states nothing but its GPUs, which is most of them.

    >>> submit_options("sbatch -J a --array=0-5%2 -d afterok:3 --wrap exec sleep --begin=now").array_limit
    2
    """
    if not with_gpus and not _WANTED.search(line):
        return NO_OPTIONS
    options: dict[str, str] = {}
    words = iter(line.split()[1:])
    for word in words:
        if not word.startswith("-") or word in ("-", "--"):
            break
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            if not equals and name not in _BARE:
                value = next(words, "")
        else:
            name, value = _LETTERS.get(word[1], word[1]), word[2:].removeprefix("=")
            if not value and word[1] not in _BARE_LETTERS:
                value = next(words, "")
        options[name.replace("-", "_")] = value or ("100" if name == "nice" else "")
    return SubmitOptions(**{name: options[name] for name in SubmitOptions._fields if name in options})


def begin_of(text: str, submitted: datetime) -> datetime | None:
    """The earliest start that `--begin` states, on the clock of `submitted`; None for other text.

    >>> begin_of("now+2hours", datetime(2026, 3, 2, 8)).hour, begin_of("07:30", datetime(2026, 3, 2, 8)).day
    (10, 3)
    """
    if match := _AFTER.fullmatch(text):
        unit_s = _UNITS_S.get((match[2] or "")[:1])
        return None if unit_s is None else submitted + timedelta(seconds=int(match[1] or 0) * unit_s)
    clock = _CLOCK.fullmatch(text)
    if clock or text in _HOURS:
        hour, minute, second = (
            (int(number or 0) for number in clock.groups()) if clock else (_HOURS[text], 0, 0)
        )
        if hour > 23 or minute > 59 or second > 59:
            return None
        when = submitted.replace(hour=hour, minute=minute, second=second)
        return when if when >= submitted else when + timedelta(days=1)
    day = submitted.replace(hour=0, minute=0, second=0)
    if text in ("today", "tomorrow"):
        return day + timedelta(days=text == "tomorrow")
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def submitted_request(options: SubmitOptions, tres: Tres, nodes: int | None) -> Request:
    """The GPUs that the options of a submission ask for, of `nodes` nodes where they do not say how many.

    >>> submitted_request(SubmitOptions(gres="gpu:a100:4", nodes="2"), Tres(), None)[:2]
    (8, 'a100')
    """
    node_count = _count(options.nodes.partition("-")[0]) or nodes or 1
    for text, units in (
        (options.gpus, 1),
        (options.gres, node_count),
        (options.gpus_per_node, node_count),
        (options.gpus_per_task, _count(options.ntasks) or node_count),
        (options.gpus_per_socket, node_count),
    ):
        if text:
            request = tres.units(text if "gpu" in text or not text[0].isdigit() else f"gpu:{text}")
            if not request.gpus and text is not options.gres:
                request = tres.units(f"gpu:{text}")
            if request.gpus:
                return request._replace(gpus=request.gpus * units)
    return Request(0)


def _count(text: str) -> int:
    return whole(text) if text.isascii() and text.isdigit() else 0
