"""The settings of a site from its configuration, as the controller reads the values, and what is not
modelled.

Source: slurm.conf(5). Where slurm.conf is read in place of what the controller prints: PriorityMaxAge,
PriorityDecayHalfLife and PriorityCalcPeriod are of whole minutes, and more seconds make one minute more (a
PriorityCalcPeriod of 00:00:05 is printed as 00:01:00).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from math import ceil
from typing import Any

from clustersim.sites.slurm import Settings
from clustersim.sites.units import seconds_of, weights_of
from clustersim.sites.vocabulary import FOLLOWED_OPTIONS, PLUGINS, PREEMPT_MODES
from itertime.errors import UnknownName
from itertime.io import shown

from .configuration import Configuration
from .parameters import (
    CLOCK_ONLY,
    FOLLOWED,
    FOLLOWED_PRIORITY_FLAGS,
    IRRELEVANT,
    UNMODELLED,
    UNMODELLED_OPTIONS,
    UNMODELLED_SELECTION,
)

__all__ = ["settings_of", "unmodelled_of"]

_CRED_EXPIRE_S = 120
_WHOLE = re.compile(r"-?\d{1,18}")
_VERSION = "22.05"


def settings_of(configuration: Configuration) -> Settings:
    """The settings that a configuration states, with Slurm's defaults for the others. UserError names the
    parameter, its value and the file with the line.
    """
    values: dict[str, Any] = {}
    for name in FOLLOWED:
        if name in ("ClusterName", "AuthInfo") or configuration.stated(name) is None:
            continue
        try:
            values[name] = _READ.get(name, _whole)(configuration.stated(name) or "")
        except ValueError as error:
            raise configuration.fault(name, str(error)) from None
    for name in PLUGINS:
        plugin = values.setdefault(name, FOLLOWED[name])
        if plugin not in PLUGINS[name]:
            raise configuration.fault(name, str(UnknownName("plugin", plugin, PLUGINS[name])))
    expire = re.search(r"cred_expire=(\d{1,9})", configuration.stated("AuthInfo") or "")
    values["requeue_delay"] = (float(expire[1]) if expire else _CRED_EXPIRE_S) + 1.0
    return Settings(**values)


def _whole(text: str) -> int:
    if not _WHOLE.fullmatch(text) or text.startswith("-"):
        raise ValueError("must be a whole number" + (" from 0" if text.startswith("-") else ""))
    return int(text)


def _dampening(text: str) -> int:
    if _whole(text) < 1:
        raise ValueError("must be a whole number from 1")
    return int(text)


def _words(text: str) -> tuple[str, ...]:
    return tuple(
        word for word in (part.strip() for part in text.split(",")) if word.lower() not in ("", "none")
    )


def _upper_words(text: str) -> tuple[str, ...]:
    return tuple(word.upper() for word in _words(text))


def _lower_words(text: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in _words(text))


def _yes(text: str) -> bool:
    if text.lower() not in ("yes", "no", "1", "0", "true", "false"):
        raise ValueError("must be Yes or No")
    return text.lower() in ("yes", "1", "true")


def _minutes(text: str) -> float:
    """Seconds, of whole minutes, as the controller keeps them; 0 for none."""
    return 60.0 * ceil((seconds_of(text) or 0.0) / 60)


def _time(text: str) -> float:
    return seconds_of(text) or 0.0


def _plain_seconds(text: str) -> float:
    return seconds_of(text, 1.0) or 0.0


def _over_time(text: str) -> float:
    seconds = seconds_of(text)
    return 1e12 if seconds is None else seconds


def _mode(text: str) -> str:
    for word in _upper_words(text):
        if word not in PREEMPT_MODES:
            raise ValueError(str(UnknownName("mode", word, PREEMPT_MODES)))
    return ",".join(_upper_words(text)) or "OFF"


def _options(text: str) -> dict[str, int | float | bool | str]:
    """The names in SchedulerParameters with their values: numbers, text, or True for a flag."""
    options: dict[str, int | float | bool | str] = {}
    for word in _words(text):
        name, equals, value = word.partition("=")
        number = bool(_WHOLE.fullmatch(value))
        if FOLLOWED_OPTIONS.get(name) is not None and not number:
            raise ValueError(
                f"{name}={shown(value)} must be a whole number, as in {name}={FOLLOWED_OPTIONS[name]}"
            )
        options[name] = int(value) if number else value if equals else True
    return options


_READ: dict[str, Callable[[str], Any]] = {
    "SchedulerType": str.lower,
    "SchedulerParameters": _options,
    "SelectType": str.lower,
    "SelectTypeParameters": _upper_words,
    "PriorityType": str.lower,
    "PriorityFlags": _upper_words,
    "PriorityMaxAge": _minutes,
    "PriorityDecayHalfLife": _minutes,
    "PriorityCalcPeriod": _minutes,
    "PriorityFavorSmall": _yes,
    "FairShareDampeningFactor": _dampening,
    "PriorityWeightTRES": weights_of,
    "PreemptType": str.lower,
    "PreemptMode": _mode,
    "PreemptParameters": _options,
    "PreemptExemptTime": _time,
    "AccountingStorageEnforce": _lower_words,
    "OverTimeLimit": _over_time,
    "KillWait": _plain_seconds,
}
"""How the value of a parameter is read; all others are whole numbers."""


def unmodelled_of(configuration: Configuration, settings: Settings) -> list[str]:
    """A sentence for each parameter that differs from its default and that no simulation here follows."""
    return [*_parameters(configuration), *_parts(settings)]


def _parameters(configuration: Configuration) -> Iterator[str]:
    version = configuration.stated("SLURM_VERSION") or _VERSION
    if not version.startswith(_VERSION):
        yield f"SLURM_VERSION={shown(version)}: the rules and defaults here are those of {_VERSION}"
    followed = {name.lower() for name in FOLLOWED}
    by_key = {name.lower(): entry for name, entry in UNMODELLED.items()}
    for key, name in configuration.names.items():
        value, plain = configuration.values[key], key.partition("[")[0]
        if plain in by_key:
            if value.lower() not in by_key[plain].neutral:
                yield f"{name}={shown(value)}: {by_key[plain].consequence}"
        elif plain not in followed and plain not in IRRELEVANT and not configuration.printed:
            close = get_close_matches(plain, [*followed, *by_key, *IRRELEVANT], n=1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            yield f"{name}={shown(value)}: is no parameter of Slurm {_VERSION}{hint}, and is left out"
    for entry in (*configuration.lines.get("downnodes", []), *configuration.lines.get("frontendname", [])):
        yield f"{entry.where}: the line is left out; state is what scontrol show node says"


def _parts(settings: Settings) -> Iterator[str]:
    """Of the settings that are followed, the values that are not."""
    for name, value in settings.SchedulerParameters.items():
        assignment = f"SchedulerParameters={name}{'' if value is True else f'={value}'}"
        if name in UNMODELLED_OPTIONS:
            yield f"{assignment}: {UNMODELLED_OPTIONS[name]}"
        elif name not in FOLLOWED_OPTIONS and name.lower() not in CLOCK_ONLY:
            close = get_close_matches(name, [*FOLLOWED_OPTIONS, *UNMODELLED_OPTIONS, *CLOCK_ONLY], n=1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            yield f"{assignment}: is no parameter of Slurm {_VERSION}{hint}, which ignores it"
    for word in settings.SelectTypeParameters:
        if word in UNMODELLED_SELECTION:
            yield f"SelectTypeParameters={word}: {UNMODELLED_SELECTION[word]}"
    for word in settings.PriorityFlags:
        if word not in FOLLOWED_PRIORITY_FLAGS:
            yield f"PriorityFlags={word}: priorities are computed without it here"
    if settings.SelectType == "select/linear":
        yield "SelectType=select/linear: jobs get whole nodes in Slurm, and their GPUs alone here"
    if {"SUSPEND", "GANG"} & set(settings.PreemptMode.split(",")):
        yield f"PreemptMode={settings.PreemptMode}: no job is suspended, nor are GPUs shared by turns here"
