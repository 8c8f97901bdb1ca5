"""One look for each policy: fixed, far from the others for every reader, the same on pages and figures."""

from __future__ import annotations

import re
from itertools import combinations, pairwise

import numpy as np
import pytest

from clustersim.export.run_figures import line_style, marker_of
from clustersim.report import group_runs
from clustersim.report.charts import charts
from clustersim.report.frame.looks import DARK, DASHES, LIGHT, MARKERS, POLICIES, look_of, looks_of
from clustersim.report.headline import headline_rows
from clustersim.report.runs import named, pairs
from clustersim.report.verdict import notes, verdict
from clustersim.runs import list_policies
from tests.places import ROOT

from .test_page import job, run

# What readers without one kind of cones see, linear RGB (Machado, Oliveira and Fernandes 2009, table 1)
SEEN = {
    "all cones": np.eye(3),
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
               [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                 [-0.01182, 0.04294, 0.968881]],
    "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                [0.004733, 0.691367, 0.3039]],
}  # fmt: skip
# OKLab (Ottosson 2020)
TO_LMS = [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
          [0.0883024619, 0.2817188376, 0.6299787005]]  # fmt: skip
TO_LAB = [[0.210454255, 0.793617785, -0.004072047], [1.977998495, -2.428592205, 0.45059371],
          [0.025904037, 0.782771766, -0.808675766]]  # fmt: skip


def linear(colour: str) -> np.ndarray:
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """WCAG 2.2."""
    high, low = sorted((float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (one, other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(("palette", "paper"), [(LIGHT, "#ffffff"), (DARK, "#12161b")])
def test_colours_stand_out_and_differ_for_every_reader(palette: tuple[str, ...], paper: str) -> None:
    assert len(set(palette)) == 8
    assert min(contrast(colour, paper) for colour in palette) >= 3  # WCAG 2.2, 1.4.11: parts of graphics
    for matrix in map(np.array, SEEN.values()):
        lab = [
            TO_LAB @ np.cbrt(np.clip(TO_LMS @ np.clip(matrix @ linear(c), 0, 1), 0, None)) for c in palette
        ]
        assert min(np.linalg.norm(a - b) for a, b in combinations(lab, 2)) > 0.1  # 0.02 is just noticeable


CSS = (ROOT / "clustersim" / "report" / "templates" / "report.css").read_text()
THEMES = {"dark": CSS.partition("{% endmacro %}")[0], "light": CSS.partition(":root {")[2].partition("}")[0]}


def test_contrast_by_hand() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("ink", ["ink", "muted", "better", "worse", "link"])
@pytest.mark.parametrize("ground", ["paper", "card", "band"])
def test_text_stands_out(theme: str, ink: str, ground: str) -> None:
    """WCAG 2.2, success criterion 1.4.3: at least 4.5 to 1."""
    colours = dict(re.findall(r"--([a-z0-9_-]+): (#[0-9a-f]{6})", THEMES[theme]))
    assert contrast(colours[ink], colours[ground]) >= 4.5


def test_every_registered_policy_has_a_look_of_its_own() -> None:
    names = [info.name for info in list_policies()]
    looks = [look_of(name) for name in names]
    assert len(set(looks)) == len(names)
    assert set(POLICIES) <= set(names)
    drawn = {(look % 8, DASHES[look // 8], MARKERS[(look % 8 + look // 8) % 8]) for look in looks}
    assert len(drawn) == len(names)


def test_a_look_does_not_depend_on_the_others() -> None:
    names = [info.name for info in list_policies()]
    for chosen in (names, names[::-1], names[10:13], ["mine", *names]):
        found = dict(zip(chosen, looks_of([(name, name) for name in chosen]), strict=True))
        assert all(found[name] == look_of(name) for name in chosen)


def test_looks_of_one_page_differ() -> None:
    both = [("fifo", "fifo (3d)"), ("fifo", "fifo (single)")]
    several = [*both, ("a.py:A", "a"), ("b.py:B", "b"), ("srtf", "srtf")]
    looks = looks_of(several)
    assert len(set(looks)) == 5
    assert (looks[0], looks[4]) == (look_of("fifo"), look_of("srtf"))
    assert len(set(looks_of([(f"p{i}", f"p{i}") for i in range(16)]))) == 16
    assert len(looks_of([(f"p{i}", f"p{i}") for i in range(40)])) == 40


def test_figures_have_the_looks_of_pages() -> None:
    assert [line_style(look)["color"] for look in range(8)] == list(LIGHT)
    assert len({(line_style(look)["color"], str(line_style(look)["linestyle"])) for look in range(64)}) == 64
    assert len({marker_of(look) for look in range(8)}) == 8


def test_a_policy_has_its_look_in_all_parts_of_a_page() -> None:
    runs = [run(policy, [job(0, 50.0), job(1, 90.0)]) for policy in ("srtf", "mine", "las")]
    groups = group_runs(runs)
    looks = [look_of(policy) for policy in ("srtf", "mine", "las")]
    assert [row.series for row in headline_rows(runs, "srtf").rows] == looks
    assert [one.series for one in named(runs)] == looks
    drawn = charts(groups, pairs(groups, "srtf"), baseline="srtf")
    assert [one["series"] for one in drawn["chart-jct"].series] == looks
    assert [one["series"] for one in drawn["chart-pairs"].series] == looks[1:]


def test_of_many_policies_few_are_drawn_at_first_and_named() -> None:
    jobs = [[job(i, 50.0 + 10 * n + i) for i in range(12)] for n in range(44)]
    runs = [run(info.name, own) for info, own in zip(list_policies(), jobs, strict=False)]
    groups = group_runs(runs)
    base = len(groups) - 1
    drawn = charts(groups, pairs(groups, groups[base].label), baseline=groups[base].label, base=base)
    shown = [one["name"] for one in drawn["chart-jct"].series if not one["quiet"]]
    assert shown == [group.label for group in (*groups[:7], groups[base])]  # the soonest, and the baseline
    assert len(drawn["chart-jct"].series) == len(groups)
    rows = [drawn["chart-gpus"].layout[f"yaxis{i}"]["domain"] for i in range(1, 9)]
    assert all(low >= 0 and high - low > 0.05 for low, high in rows)
    assert all(above[0] > below[1] for above, below in pairwise(rows))
    assert "yaxis9" not in drawn["chart-gpus"].layout
    for sentence in (*verdict(runs, groups[base].label), *notes(runs)):
        assert len(sentence) < 500
