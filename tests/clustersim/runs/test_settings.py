"""The declarations of settings fit what they name: fields, options, attributes of policies."""

from __future__ import annotations

from dataclasses import fields

import pytest
import typer

from clustersim import RunSetup
from clustersim.cli import app
from clustersim.commands.help.options import RunOptions
from clustersim.runs import SETTINGS, Entry, RunConfig, run
from clustersim.scheduler import Scheduler
from traces.job import Job


def test_every_setting_resolves_to_a_field_of_its_own() -> None:
    resolved = [setting.field for setting in SETTINGS.values() if setting.field]
    assert len(resolved) == len(set(resolved))
    assert set(resolved) < {field.name for field in fields(RunSetup)}


@pytest.mark.parametrize("command", ["run", "compare"])
def test_every_option_is_one_of_the_command(command: str) -> None:
    group = typer.main.get_command(app)
    options = {option for parameter in group.commands[command].params for option in parameter.opts}  # type: ignore[attr-defined]
    declared = {option for setting in SETTINGS.values() for option in (setting.option, setting.off_option)}
    assert declared - options <= {"", "--policy"}


def test_options_have_the_defaults_of_their_settings() -> None:
    options = vars(RunOptions())
    for name, setting in SETTINGS.items():
        if options.get(setting.parameter) is not None:
            assert options[setting.parameter] == RunConfig.model_fields[name].default, name


def test_policies_have_what_settings_leave_to_them() -> None:
    assert all(hasattr(Scheduler, name) for name, setting in SETTINGS.items() if setting.of_policy)


def test_a_manifest_has_the_entries_that_are_declared() -> None:
    stated = {
        "sharing": {"slowdown": 1.5},
        "variability": {"sigma": 0.1},
        "reservations": [{"at_s": 0, "for_s": 9, "nodes": "0", "tenants": ["a"]}],
    }
    manifests = [
        run([Job("a", 0.0, gpus=8, duration_s=60.0)], "fifo", cluster="n2g8", bound="none", **more).manifest
        for more in ({}, stated)
    ]
    for name, setting in SETTINGS.items():
        shown = [name in manifest for manifest in manifests]
        expected = {
            Entry.NEEDED: [True, True],
            Entry.ALWAYS: [True, True],
            Entry.IF_STATED: [False, name in stated],
            Entry.NO: [name in ("policy", "cluster", "bound")] * 2,
        }
        assert shown == expected[setting.entry], name
    assert manifests[1]["variability"] == {"sigma": 0.1, "classes": {}, "factors": {}}
