"""Conventions of sources: every name in the file exists, and every fact says where it is from."""

from __future__ import annotations

from dataclasses import fields

from itertime.calibration.conventions import CONVENTIONS, SiteConventions, conventions_of
from itertime.spec import (
    PRECISIONS,
    ModelSpec,
    Plan,
    list_frameworks,
    list_lengths,
    list_models,
    list_systems,
)


def names_of(kind: type) -> set[str]:
    return {field.name for field in fields(kind)}


def test_every_site_says_where_its_conventions_are_from() -> None:
    assert all(site.source for site in CONVENTIONS.sites.values())


def test_conventions_name_what_ships() -> None:
    sites = CONVENTIONS.sites.values()
    systems = {name for chip in CONVENTIONS.chips.values() for name in chip.systems.values()}
    systems |= {site.system for site in sites if site.system} | set(CONVENTIONS.bert.servers.values())
    assert systems <= set(list_systems())
    frameworks = {site.framework for site in sites if site.framework} | set(CONVENTIONS.software.values())
    assert frameworks <= set(list_frameworks())
    assert set(CONVENTIONS.precisions) <= set(PRECISIONS)
    assert {site.memory for site in sites if site.memory} <= set(CONVENTIONS.memories)
    assert CONVENTIONS.bert.model in list_models()
    assert CONVENTIONS.bert.lengths in list_lengths()


def test_conventions_set_fields_that_exist() -> None:
    for site in CONVENTIONS.sites.values():
        assert set(site.model) <= names_of(ModelSpec)
        assert set(site.plan) <= names_of(Plan)
        assert all(set(shape) <= names_of(ModelSpec) for shape in site.shapes.values())


def test_a_site_without_conventions_has_neutral_ones() -> None:
    assert conventions_of({"site": None}) == conventions_of({"site": "another"}) == SiteConventions()
