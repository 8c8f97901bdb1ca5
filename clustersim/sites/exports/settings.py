"""The settings of a site from its configuration, as the controller reads the values, and what is not
modelled.

Source: slurm.conf(5). Where slurm.conf is read in place of what the controller prints: PriorityMaxAge,
PriorityDecayHalfLife and PriorityCalcPeriod are of whole minutes, and more seconds make one minute more (a
PriorityCalcPeriod of 00:00:05 is printed as 00:01:00).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from math import ceil
from typing import Any

from pydantic import ValidationError

from clustersim.sites.slurm import Settings
from clustersim.sites.units import seconds_of, weights_of
from clustersim.sites.vocabulary import (
    CLOCK_ONLY,
    ENFORCED_WORDS,
    FOLLOWED_OPTIONS,
    PLUGINS,
    PREEMPT_MODES,
    PREEMPT_OPTIONS,
    RESET_PERIODS,
    SELECTION_WORDS,
    UNMODELLED_OPTIONS,
    UNMODELLED_SELECTION,
    option_fault,
)
from itertime.errors import UnknownName
from itertime.io import shown

from .configuration import Configuration
from .parameters import FOLLOWED, FOLLOWED_PRIORITY_FLAGS, IRRELEVANT, UNMODELLED
from .texts import complaint_of

__all__ = ["settings_of", "unmodelled_of"]

_CRED_EXPIRE_S = 120
_WHOLE = re.compile(r"-?\d{1,18}")
_VERSION = "22.05"


def settings_of(configuration: Configuration) -> Settings:
    """The settings that a configuration states, with Slurm's defaults for the others, and for those that
    Slurm 22.05 does not know. UserError names the parameter, its value and the file with the line.
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
    options = values.get("SchedulerParameters", {})
    values["SchedulerParameters"] = {
        name: value for name, value in options.items() if not option_fault(name, value)
    }
    for name, words in _WORDS.items():
        if name in values:
            values[name] = _kept(values[name], words)
    try:
        return Settings(**values)
    except ValidationError as error:
        raise configuration.fault(*complaint_of(error)) from None


_WORDS: dict[str, Sequence[str]] = {
    "SelectTypeParameters": SELECTION_WORDS,
    "AccountingStorageEnforce": ENFORCED_WORDS,
    "PreemptParameters": PREEMPT_OPTIONS,
}
"""Parameters of several words, and these words."""


def _kept(stated_words: Any, words: Sequence[str]) -> Any:
    """The words, or the options, that Slurm knows."""
    if isinstance(stated_words, dict):
        return {name: value for name, value in stated_words.items() if name in words}
    return tuple(word for word in stated_words if word in words)


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


def _period(text: str) -> str:
    if text.upper() not in RESET_PERIODS:
        raise ValueError(str(UnknownName("period", text.upper(), RESET_PERIODS)))
    return text.upper()


def _options(text: str) -> dict[str, int | float | bool | str]:
    """The names in SchedulerParameters with their values: numbers, text, or True for a flag."""
    options: dict[str, int | float | bool | str] = {}
    for word in _words(text):
        name, equals, value = word.partition("=")
        name = name.lower()
        number = bool(_WHOLE.fullmatch(value))
        options[name] = int(value) if number else value if equals else True
        if FOLLOWED_OPTIONS.get(name) is not None and not number:
            raise ValueError(option_fault(name, options[name]))
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
    "PriorityUsageResetPeriod": _period,
    "FairShareDampeningFactor": _dampening,
    "PriorityWeightTRES": weights_of,
    "PreemptType": str.lower,
    "PreemptMode": _mode,
    "PreemptParameters": _options,
    "PreemptExemptTime": _time,
    "AccountingStorageEnforce": _lower_words,
    "OverTimeLimit": _over_time,
    "KillWait": _plain_seconds,
    "Epilog": bool,
}
"""How the value of a parameter is read; all others are whole numbers."""


def unmodelled_of(configuration: Configuration, settings: Settings) -> list[str]:
    """A sentence for each parameter that differs from its default and that no simulation here follows."""
    return [*_parameters(configuration), *_options_of_schedulers(configuration), *_parts(settings)]


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
            hint = _close_to(plain, [*followed, *by_key, *IRRELEVANT])
            yield f"{name}={shown(value)}: is no parameter of Slurm {_VERSION}{hint}, and is left out"
    for entry in (*configuration.lines.get("downnodes", []), *configuration.lines.get("frontendname", [])):
        yield f"{entry.where}: the line is left out; state is what scontrol show node says"


def _options_of_schedulers(configuration: Configuration) -> Iterator[str]:
    """The names in SchedulerParameters that are not followed, and values that Slurm does not take."""
    for name, value in _options(configuration.stated("SchedulerParameters") or "").items():
        assignment = f"SchedulerParameters={name}{'' if value is True else f'={value}'}"
        if name in UNMODELLED_OPTIONS:
            yield f"{assignment}: {UNMODELLED_OPTIONS[name]}"
        elif name in FOLLOWED_OPTIONS:
            if fault := option_fault(name, value):
                yield f"{assignment}: {fault}; Slurm takes its default, {FOLLOWED_OPTIONS[name]}"
            elif value == -1 and name == "sched_interval":
                yield f"{assignment}: the main scheduler also looks at all jobs at its own interval here"
        elif name not in CLOCK_ONLY:
            hint = _close_to(name, [*FOLLOWED_OPTIONS, *UNMODELLED_OPTIONS, *CLOCK_ONLY])
            yield f"{assignment}: is no parameter of Slurm {_VERSION}{hint}, which ignores it"
    for parameter, words in _WORDS.items():
        text = configuration.stated(parameter)
        for word in () if text is None else _READ[parameter](text):
            if word not in words:
                hint = _close_to(word, words)
                yield f"{parameter}={shown(word)}: is no word of Slurm {_VERSION}{hint}, and is left out"


def _close_to(word: str, words: Iterable[str]) -> str:
    """A question for the word that may be meant; empty if none is like it."""
    close = get_close_matches(word, list(words), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _parts(settings: Settings) -> Iterator[str]:
    """Of the settings that are followed, the values that are not."""
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
