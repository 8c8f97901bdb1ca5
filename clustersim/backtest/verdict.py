"""What a backtest lets one conclude: whether to trust the simulation of a site, for what, and why.

A simulation is trusted, by its score (`errors.score`) and its errors of waits,

| for | if |
|---|---|
| waits of single jobs | the score is at most 0.25, or below 1 and 1.5 times the noise floor |
| mean waits | the mean is at most 20 % off, and the distributions are at most 30 % of it apart |

A site whose jobs hardly wait tells nothing about waits: where the mean logged wait is below 1 % of the mean
run time, and below a minute, or fewer than 20 jobs are compared, there is nothing to judge.

The *noise floor* is the score that a repeated run of the site would have against its own log, which no
simulation can beat but by chance. Policies whose decisions depend on the phases of timers state these phases
(`Scheduler.timer_phases`); the floor is the median score of the simulations of different phases against each
other, in units of the log's mean wait where the simulated one is shorter. It leaves out other sources of
noise, so that a repeated run scores at least as much.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .logged import LoggedRun

__all__ = ["verdict_of"]

_SCORE, _FLOORS = 0.25, 1.5
_MEAN_SHARE, _DISTANCE_SHARE = 0.2, 0.3
_LEAST_WAIT_SHARE, _SHORT_WAIT_S, _LEAST_JOBS = 0.01, 60.0, 20


def verdict_of(
    log: LoggedRun, part: str, errors: Mapping[str, Any], floor: float | None = None, remedy: str = ""
) -> dict[str, Any]:
    """The verdict on the jobs of a part of a log with these errors (`errors.errors_of`), as JSON.

    `trusted_for`: a list of "waits of single jobs" and "mean waits"; empty if the simulation is not trusted.
    `sentence`: the verdict in words, with `remedy` if single jobs are not trusted. `noise_floor`: `floor`,
    in units of the log's mean wait where simulated waits are shorter.
    """
    floor = _in_logged_waits(floor, errors)
    trusted_for, why = [], ""
    if errors["jobs"] < _LEAST_JOBS:
        why = f"only {errors['jobs']} jobs can be compared"
    else:
        wait, value = errors["wait"], errors["score"]
        logged_s, run_s = wait["logged"]["mean_s"], float(log.run_s.mean())
        if logged_s < min(_SHORT_WAIT_S, _LEAST_WAIT_SHARE * run_s):
            why = f"the jobs hardly wait in the log ({logged_s:.3g} s on average), so that it shows no rule"
        else:
            if value <= max(_SCORE, min(_FLOORS * (floor or 0.0), 0.999)):
                trusted_for.append("waits of single jobs")
            off_s, apart_s = abs(wait["bias_s"]), wait["distance_s"]
            if off_s <= _MEAN_SHARE * logged_s and apart_s <= _DISTANCE_SHARE * logged_s:
                trusted_for.append("mean waits")
            why = _reasons(part, value, wait, floor)
    head = f"Trust it for {' and '.join(trusted_for)}" if trusted_for else "Do not trust it"
    but = ", not for waits of single jobs" if trusted_for == ["mean waits"] else ""
    return {
        "trusted_for": trusted_for,
        "sentence": f"{head}{but}, because {why}."
        + (f" {remedy}" if remedy and len(trusted_for) < 2 else ""),
        "noise_floor": floor,
    }


def _in_logged_waits(floor: float | None, errors: Mapping[str, Any]) -> float | None:
    """The noise floor, which is in simulated waits, in logged ones if these are longer: the phases of a site
    at which nearly no job waits are far apart in units of their own waits, which excuses no wrong score.
    """
    means_s = [(errors["wait"][side] or {}).get("mean_s", 0.0) for side in ("simulated", "logged")]
    return floor if floor is None or means_s[0] >= means_s[1] else floor * means_s[0] / means_s[1]


def _reasons(part: str, value: float, wait: Mapping[str, Any], floor: float | None) -> str:
    where = {"judged": " of the judged part"}.get(part, "")
    logged_s, simulated_s = wait["logged"]["mean_s"], wait["simulated"]["mean_s"]
    beside = "" if floor is None else f", where a repeated run would score about {floor:.2f}"
    return (
        f"the score{where} is {value:.2f} (0 is exact, 1 as good as if no job waited){beside}; "
        f"the mean wait is {simulated_s:.4g} s, logged {logged_s:.4g} s"
    )
