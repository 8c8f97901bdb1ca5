"""The report: its numbers, words and looks, and that no text of a trace becomes markup or code."""

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest

from clustersim.analysis import summarise
from clustersim.cluster import Cluster
from clustersim.export.run_figures import line_style, marker_of
from clustersim.records import JobRecord, Run, Snapshot
from clustersim.report import group_runs, render_report
from clustersim.report.charts import charts
from clustersim.report.frame import MOST_POINTS, packed
from clustersim.report.frame.looks import DARK, LIGHT, POLICIES, look_of, looks_of
from clustersim.report.headline import headline_rows
from clustersim.report.numbers import difference, duration
from clustersim.report.runs import named, pairs
from clustersim.report.sections import commands
from clustersim.report.sentences import caution, notes, verdict
from clustersim.runs import list_policies
from tests.places import ROOT
from tests.tables import TABLES, table_rows

CLUSTER = Cluster(nodes=2, gpus_per_node=8)
EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)></title>\"'&{{ 7*7 }}"


def job(number: int, jct_s: float | None, *, deadline_s: float | None = None, **rest: Any) -> JobRecord:
    """Job `number`, submitted at 10 x number on 4 GPUs; rejected if `jct_s` is None."""
    submit_s = 10.0 * number
    nothing = JobRecord(
        job_id=f"j{number}", tenant="t", model="", state="rejected", submit_s=submit_s, start_s=None,
        finish_s=None, jct_s=None, queue_s=None, wait_s=0.0, gpus=4, gpu_seconds=0.0, overhead_gpu_s=0.0,
        isolated_s=None, deadline_s=deadline_s, deadline_met=None if deadline_s is None else False,
        preemptions=0, resizes=0, restarts=0, migrations=0, lost_s=0.0, reason="declined by the policy",
    )  # fmt: skip
    if jct_s is None:
        return replace(nothing, **rest)
    finished = replace(
        nothing, state="finished", start_s=submit_s + 1, finish_s=submit_s + jct_s, jct_s=jct_s, queue_s=1.0,
        wait_s=1.0, gpu_seconds=4 * (jct_s - 1), isolated_s=jct_s / 2, reason="",
        deadline_met=None if deadline_s is None else submit_s + jct_s <= deadline_s,
    )  # fmt: skip
    return replace(finished, **rest)


def run(
    policy: str, jobs: Sequence[JobRecord], *, planner: str = "vtrain", seed: int = 0, **manifest: Any
) -> Run:
    snapshots = [Snapshot(j.submit_s + 1, 4 + i % 5, 4, 1, i % 7) for i, j in enumerate(jobs)]
    end_s = max([snapshots[-1].time_s, *(j.finish_s for j in jobs if j.finish_s is not None)])
    summary = summarise(jobs, snapshots, CLUSTER, end_s=end_s, events=3 * len(jobs))
    known = {
        "seed": seed, "command": ["/opt/bin/clustersim", "compare", "my trace.csv"], "placement": "pack",
        "oracle_used": False, "result_hash": "ab" * 32, "timings": {"wall_s": 1.5, "policy_wall_s": 0.25},
    }  # fmt: skip
    return Run(policy, planner, CLUSTER, list(jobs), [], snapshots, summary, {**known, **manifest})


SLOW = run("fifo", [job(0, 100.0), job(1, 300.0, deadline_s=400.0), job(2, 200.0, deadline_s=100.0)])
FAST = run("srtf", [job(0, 100.0), job(1, 150.0, deadline_s=400.0), job(2, 50.0, deadline_s=100.0)])
CHOOSY = run("picky", [job(0, 90.0), job(1, None, deadline_s=400.0), job(2, 210.0, deadline_s=100.0)])


class Page(HTMLParser):
    """The elements of a page: tags, attributes, scripts by type, text outside scripts and styles."""

    def __init__(self, html: str):
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[str, str]] = []
        self.text = ""
        self._inside = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append((dict(attrs).get("type") or "", ""))

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            kind, text = self.scripts[-1]
            self.scripts[-1] = (kind, text + data)
        elif self._inside != "style":
            self.text += data

    def packed(self) -> list[str]:
        """What is in the packed script elements: the page's data."""
        letters = [text for kind, text in self.scripts if kind == "text/plain"]
        return [gzip.decompress(base64.b64decode(text, validate=True)).decode() for text in letters]

    def data(self) -> Any:
        return json.loads(self.packed()[0])


# Numbers


def test_no_deadline_met_is_shown_and_not_left_out() -> None:
    late = run("late", [job(0, 100.0, deadline_s=1.0)])
    headline = headline_rows([late], None)
    texts = {c.key: cell.text for c, cell in zip(headline.columns, headline.rows[0].cells, strict=True)}
    assert texts["deadline_met_ratio"] == "0.0"


@pytest.mark.parametrize(("seconds", "text"), table_rows("durations"))
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("kind", "value", "base", "text"), table_rows("differences"))
def test_differences(kind: str, value: float, base: float, text: str) -> None:
    assert difference(kind, value, base) == text


# Words


def test_ratios_are_written_out_on_their_axes() -> None:
    axis = charts(group_runs([SLOW, FAST]))["chart-slowdown"].panels[0].y
    assert dict(axis.ticks or ())[0.5] == "0.5×"


def test_verdict_averages_over_seeds() -> None:
    runs = [replace(one, manifest={**one.manifest, "seed": s}) for one in (SLOW, FAST) for s in (1, 2)]
    assert "(−50.0 %)" in verdict(runs, "fifo")[0]
    assert caution(runs).startswith("One trace, 2 seeds")
    assert [row.label for row in headline_rows(runs, "fifo").rows][:2] == ["fifo, seed 1", "fifo, seed 2"]
    assert [row.is_baseline for row in headline_rows(runs, "fifo").rows] == [True, True, False, False]


def test_verdicts() -> None:
    other, hopeless = run("srtf", [job(5, 1.0)]), run("never", [job(0, None)])
    assert "not over the same jobs" in verdict([SLOW, other], "fifo")[0]
    assert verdict([SLOW], None)[0].startswith("fifo finished 3 of 3 jobs: mean JCT 3.33 min")
    assert verdict([hopeless], None) == ["never finished none of 1 job."]
    several = verdict([run("fifo", [job(0, 5.0)]), hopeless], "fifo")
    assert "No policy finished a job that fifo finished" in several[0]
    render_report([hopeless])


def test_a_third_policy_changes_no_pair() -> None:
    """Pairs are over the jobs that both finished, so a policy that declines jobs spoils no other pair."""
    two, three = (headline_rows(runs, "fifo") for runs in ([SLOW, FAST], [SLOW, FAST, CHOOSY]))
    jct = [[cell.difference for cell in (row.cells[0] for row in table.rows)] for table in (two, three)]
    assert jct == [["", "−50.0 %"], ["", "−50.0 %", "±0.0 %"]]  # of CHOOSY: 90 + 210 against 100 + 200
    assert [row.cells[1].text for row in three.rows] == ["3", "3", "2"]
    told = verdict([SLOW, FAST, CHOOSY], "fifo")
    assert told[0] == verdict([SLOW, FAST], "fifo")[0]
    assert "over the 3 jobs that both finished" in told[0]
    assert told[1].startswith("picky finished 2 jobs of those that fifo finished")


def test_commands_are_ready_for_a_shell() -> None:
    module = run("m", [job(0, 5.0)], command=["/x/clustersim/__main__.py", "run", "a;b.csv"])
    told = commands([SLOW, FAST, module])
    assert told == ["clustersim compare 'my trace.csv'", "python -m clustersim run 'a;b.csv'"]


# Charts


def test_completion_curve_counts_what_never_finished() -> None:
    curve = charts(group_runs([CHOOSY]))["chart-jct"].series[0]
    assert curve.x == [90.0, 90.0, 210.0]  # a rise from 0 at the first
    assert curve.y == pytest.approx([0.0, 100 / 3, 200 / 3], rel=1e-4)


def test_series_are_thinned_and_keep_the_time_average() -> None:
    many = run("many", [job(i, 5.0 + i) for i in range(9000)])
    groups = group_runs([many, replace(many, policy="again")])
    for chart in charts(groups, pairs(groups, "many")).values():
        for series in chart.series:
            assert len(series.x) == len(series.y) <= MOST_POINTS
    queue = charts(groups)["chart-queue"].series[0]
    gaps = [b - a for a, b in pairwise(queue.x)]
    drawn = sum(gap * y for gap, y in zip(gaps, queue.y, strict=False)) / (queue.x[-1] - queue.x[0])
    end_s = max(j.finish_s for j in many.jobs if j.finish_s is not None)
    times = [*(s.time_s for s in many.snapshots), end_s]
    exact = (
        sum((b - a) * s.pending for a, b, s in zip(times, times[1:], many.snapshots, strict=False)) / end_s
    )
    assert drawn == pytest.approx(exact, rel=1e-3)


# The page


@pytest.fixture(scope="module")
def page() -> tuple[str, Page]:
    jobs = [job(0, 80.0), job(1, 70.0, job_id=EVIL, model=EVIL, tenant=EVIL), job(2, None, reason=EVIL)]
    trace = {"path": EVIL, "sha256": EVIL}
    evil = run(EVIL, jobs, planner=EVIL, command=["clustersim", EVIL], params={EVIL: EVIL}, trace=trace)
    evil = replace(evil, summary={**evil.summary, "covers": EVIL, "jct_mean_s": EVIL})
    html = render_report([SLOW, evil, FAST], title=EVIL)
    return html, Page(html)


def test_hostile_text_is_text(page: tuple[str, Page]) -> None:
    _, parsed = page
    names = [tag for tag, _ in parsed.tags]
    assert names.count("script") == 2
    assert "img" not in names
    assert not [attrs for _, attrs in parsed.tags for name in attrs if name.startswith("on")]
    assert parsed.text.count("<script>alert(1)</script>") > 10
    assert "&{{ 7*7 }}" in parsed.text


def test_packed_data_is_letters_and_digits_and_keeps_everything(page: tuple[str, Page]) -> None:
    _, parsed = page
    data = next(text for kind, text in parsed.scripts if kind == "text/plain")
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", data)
    assert EVIL in parsed.data()["jobs"]["tenants"]
    assert parsed.data()["runs"][1]["label"] == EVIL
    hostile = {"</script>": "<!-- <script>&amp;", "ü\u2028": [1, None, 2.5]}
    assert json.loads(gzip.decompress(base64.b64decode(packed(hostile)))) == hostile
    assert packed(hostile) == packed(hostile)


def test_only_the_page_s_own_scripts_may_run(page: tuple[str, Page]) -> None:
    _, parsed = page
    policy = (
        next(attrs["content"] for tag, attrs in parsed.tags if tag == "meta" and "http-equiv" in attrs) or ""
    )
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert directives["default-src"] == "'none'"
    plain = [text for kind, text in parsed.scripts if not kind]
    assert len(plain) == 1
    digest = hashlib.sha256(plain[0].encode()).digest()
    assert directives["script-src"] == f"'sha256-{base64.b64encode(digest).decode()}'"


def test_nothing_is_fetched(page: tuple[str, Page]) -> None:
    html, parsed = page
    links = [
        value for _, attrs in parsed.tags for name, value in attrs.items() if name in ("src", "href", "data")
    ]
    assert links
    assert all((link or "").startswith("#") for link in links)
    style = html[html.index("<style>") : html.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style


def test_links_have_targets_tables_have_captions_and_regions_take_focus(page: tuple[str, Page]) -> None:
    _, parsed = page
    ids = [attrs["id"] for _, attrs in parsed.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {(attrs["href"] or "")[1:] for tag, attrs in parsed.tags if tag == "a"} <= set(ids)
    names = [tag for tag, _ in parsed.tags]
    assert names.count("table") == names.count("caption") > 8
    scrolling = [attrs for _, attrs in parsed.tags if "scroll" in (attrs.get("class") or "").split()]
    assert scrolling
    assert all(attrs.get("tabindex") == "0" and attrs.get("aria-label") for attrs in scrolling)
    assert {attrs["id"] for _, attrs in parsed.tags if attrs.get("class") == "chart"} == {
        c["id"] for c in parsed.data()["charts"]
    }


def test_a_large_comparison_stays_small() -> None:
    runs = [run(f"p{k}", [job(i, 5.0 + (i * 7919) % 1000) for i in range(10_000)]) for k in range(4)]
    assert len(render_report(runs).encode()) < 12e6


def test_an_imported_log_has_dates() -> None:
    """Its clock begins at 0, and its manifest states when that was."""
    dated = run("fifo", [job(0, 50.0), job(1, 90.0)], trace={"since_1970_s": 1772323200.0})
    assert "submitted and run on 2026-03-01 (UTC)" in render_report([dated])
    undated = run("fifo", [job(0, 50.0)], trace={"since_1970_s": True})
    assert "(UTC)" not in render_report([undated])


# What readers without one kind of cones see, linear RGB (Machado, Oliveira and Fernandes 2009, table 1)
SEEN = TABLES["what readers without one kind of cones see"]
# OKLab (Ottosson 2020)
TO_LMS = TABLES["OKLab from linear RGB"]
TO_LAB = TABLES["OKLab from cube roots"]


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


def test_a_look_does_not_depend_on_the_others() -> None:
    names = [info.name for info in list_policies()]
    for chosen in (names, names[::-1], names[10:13], ["mine", *names]):
        found = dict(zip(chosen, looks_of([(name, name) for name in chosen]), strict=True))
        assert all(found[name] == look_of(name) for name in chosen)


def test_looks_of_one_page_differ() -> None:
    both = [("fifo", "fifo (vtrain)"), ("fifo", "fifo (single)")]
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
    assert [curve.look for curve in drawn["chart-jct"].series] == looks
    assert [curve.look for curve in drawn["chart-pairs"].series] == looks[1:]


def test_of_many_policies_few_are_drawn_at_first_and_named() -> None:
    jobs = [[job(i, 50.0 + 10 * n + i) for i in range(12)] for n in range(44)]
    runs = [run(info.name, own) for info, own in zip(list_policies(), jobs, strict=False)]
    groups = group_runs(runs)
    base = len(groups) - 1
    drawn = charts(groups, pairs(groups, groups[base].label), baseline=groups[base].label, base=base)
    shown = [curve.name for curve in drawn["chart-jct"].series if not curve.quiet]
    assert shown == [group.label for group in (*groups[:7], groups[base])]  # the soonest, and the baseline
    assert len(drawn["chart-jct"].series) == len(groups)
    assert [panel.title for panel in drawn["chart-gpus"].panels] == shown
    for sentence in (*verdict(runs, groups[base].label), *notes(runs)):
        assert len(sentence) < 500
