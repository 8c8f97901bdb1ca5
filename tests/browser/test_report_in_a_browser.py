"""The report as a reader uses it, in Chromium: with a mouse, from the keyboard, on a phone, in the dark."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.conftest import EVIL, low_contrasts
from tests.clustersim.report.test_page import contrast

if TYPE_CHECKING:
    from playwright.sync_api import Page


TICKS = "([axis, span]) => charts.ticks(axis, charts.scale(axis, span, 0, 400), () => 40, 90)"
DAY_MS = 86_400_000
AXES: list[tuple[dict[str, Any], list[float], str]] = [
    ({}, [0, 101], "0|50|100"),
    ({}, [-0.07, 0.1], "\u22120.05|0.00|0.05|0.10"),
    ({}, [0, 12_345], "0|5,000|10,000"),
    ({"kind": "log"}, [0.5, 2000], "1|10|100|1,000"),
    ({"kind": "log"}, [15, 90], "20|50"),
    ({"ticks": [[5, "five"], [5.1, "close"], [9, "nine"], [11, "beyond"]]}, [0, 10], "five|nine"),
    ({"kind": "date"}, [0, DAY_MS], "00:00 Jan 1, 1970|06:00|12:00|18:00|00:00 Jan 2, 1970"),
    ({"kind": "date"}, [29 * DAY_MS, 33 * DAY_MS], "Jan 30 1970|Jan 31|Feb 1|Feb 2|Feb 3"),
    ({"kind": "date"}, [0, 500 * DAY_MS], "Jan 1 1970|Jul 1|Jan 1 1971"),
]
"""Ends of an axis of 400 pixels, and its ticks."""


def view(page: Page) -> list[int]:
    """What the timeline shows: from, to, first GPU, last GPU."""
    return [int(text) for text in (page.locator("#gantt-canvas").get_attribute("data-view") or "").split()]


def rows(page: Page) -> list[str]:
    return page.locator("#jobs-table tbody th").all_inner_texts()


def heads_of(page: Page, name: str) -> tuple[int, str]:
    """The position of a column of times in the table of jobs, and its unit."""
    heads = page.locator("#jobs-table thead th").all_inner_texts()
    position = next(i for i, head in enumerate(heads) if head.startswith(f"{name}, "))
    return position, heads[position].split(", ")[1].strip()


def count(page: Page) -> str:
    return page.locator("#jobs-count").inner_text()


def test_charts_are_drawn_heads_of_tables_explain_themselves_and_labels_stand_out(opened: Any) -> None:
    page = opened()
    for chart in ("chart-jct", "chart-pairs", "chart-time", "chart-gpus", "chart-queue", "chart-slowdown"):
        page.locator(f"#{chart}").scroll_into_view_if_needed()
        page.locator(f"#{chart} svg .series").first.wait_for(state="attached")
    assert page.locator("#chart-jct .series").count() == 2
    terms = page.locator("#results abbr").evaluate_all("all => all.map(one => [one.textContent, one.title])")
    assert ["Makespan", "Time from the first submission to the last finish"] in terms
    assert len(terms) >= 8
    # Labels have 4.5 to 1 (WCAG 2.2, relative luminance) on the darkest and the brightest colours.
    greys = [f"#{level:02x}{level:02x}{level:02x}" for level in range(0, 256, 5)]
    for colour in ("#dcb13c", "#b07d00", "#0072b2", "#e57fb0", "#8fd0f5", "#d55e00", *greys):
        label = page.evaluate("colour => page.readable(colour)", colour)
        assert contrast(label, colour) >= 4.5, colour
    for axis, span, texts in AXES:
        made = page.evaluate(TICKS, [axis, span])
        assert [" ".join(tick[1:]).strip() for tick in made] == texts.split("|"), (axis, span)
    assert page.evaluate("page.readable('#dcb13c')") == "#000000"
    assert page.evaluate("page.readable('#0072b2')") == "#ffffff"


def test_a_chart_tells_its_values_zooms_and_is_saved(opened: Any) -> None:
    page = opened()
    chart = page.locator("#chart-jct")
    chart.scroll_into_view_if_needed()
    plot, tip, whole = chart.locator("> svg"), chart.locator(".tip"), chart.get_by_text("Show all")
    box = plot.bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 150)
    assert re.fullmatch(r"fifo: [\d.]+ % within [\d.]+ (s|min|h)\nsrtf: [\d.]+ % within .*", tip.inner_text())
    drawn = chart.locator(".ticks text").all_text_contents()
    page.mouse.down()
    page.mouse.move(box["x"] + 400, box["y"] + 155, steps=3)
    page.mouse.up()
    assert chart.locator(".ticks text").all_text_contents() != drawn
    whole.click()
    assert chart.locator(".ticks text").all_text_contents() == drawn
    assert not whole.is_visible()
    page.locator("#chart-gpus > svg").focus()
    for key in ("ArrowRight", "ArrowRight", "+"):
        page.keyboard.press(key)
    assert page.locator("#chart-gpus").get_by_text("Show all").is_visible()
    page.keyboard.press("ArrowRight")
    told = page.locator("#chart-gpus .tip").inner_text().split("\n")
    assert told[0].endswith("since the first submission")
    assert [text.partition(":")[0] for text in told[1:]] == [
        "fifo",
        "allocated",
        "useful",
        "srtf",
        "allocated",
        "useful",
    ]
    page.keyboard.press("Escape")
    assert not page.locator("#chart-gpus .tip").is_visible()
    page.locator("#chart-slowdown").hover()
    with page.expect_download() as saving:
        page.locator("#chart-slowdown .save").click()
    picture = saving.value.path().read_text(encoding="utf-8")
    assert picture.startswith("<svg")
    assert "mean slowdown" in picture
    assert "var(" not in picture


def test_jobs_are_filtered_sorted_and_paged(opened: Any) -> None:
    page = opened()
    assert count(page) == "1 to 20 of 82"
    page.get_by_label("Later rows").click()
    assert count(page) == "21 to 40 of 82"
    page.get_by_label("Find").fill("llama2")
    assert count(page) == "1 to 13 of 13"
    page.get_by_label("Find").fill("no such thing")
    assert count(page) == "no such job"
    page.get_by_label("Find").fill("")
    page.get_by_label("State").select_option("rejected")
    assert rows(page) == ["too-large"]
    page.get_by_label("State").select_option("")
    head = page.get_by_role("button", name=re.compile("^JCT, "))
    head.click()  # the largest first
    column = heads_of(page, "JCT")[0]
    cells = page.locator(f"#jobs-table tbody tr td:nth-child({column + 1})").all_inner_texts()
    times = [float(cell.replace(",", "")) for cell in cells]
    assert times == sorted(times, reverse=True)
    assert page.locator("#jobs-table th[aria-sort=descending]").inner_text().startswith("JCT")


def test_policies_are_chosen_for_timeline_and_jobs_at_once_and_times_have_one_unit(opened: Any) -> None:
    """The unit of a column stands in its head, and numbers alone in its cells, under every policy."""
    page = opened()
    (queueing, unit), (completion, same) = heads_of(page, "First start after"), heads_of(page, "JCT")
    assert unit == same
    heads = page.locator("#jobs-table thead th").all_inner_texts()
    for policy in ("srtf", "fifo"):
        page.locator("#jobs fieldset").get_by_text(policy).click()
        assert page.locator("#jobs-table thead th").all_inner_texts() == heads
        for column in (queueing, completion):
            cells = page.locator(f"#jobs-table tbody tr td:nth-child({column + 1})").all_inner_texts()
            assert len(cells) == 20
            assert all(re.fullmatch(r"[\d,]+\.\d\d|<0\.01|–", cell) for cell in cells), cells
    page.get_by_label("Find").fill("script")  # runs at once for 600 s after a start of 30 s
    cell = page.locator(f"#jobs-table tbody tr td:nth-child({completion + 1})").first
    assert float(cell.inner_text()) == pytest.approx(630 / {"min": 60, "h": 3600}[unit], abs=0.05)
    page.locator("#timeline fieldset").get_by_text("srtf").click()
    assert page.locator("#jobs fieldset").get_by_label("srtf").is_checked()
    page.get_by_label("Find").fill("job-39")
    mine = page.locator("#jobs-table tbody tr").inner_text()
    page.locator("#jobs fieldset").get_by_text("fifo").click()
    assert page.locator("#timeline fieldset").get_by_label("fifo").is_checked()
    assert page.locator("#jobs-table tbody tr").inner_text() != mine


def test_a_job_tells_its_story_under_every_policy_and_by_its_address(opened: Any) -> None:
    """A hostile name is only a name."""
    page = opened()
    page.get_by_label("Find").fill("job-17")
    page.locator("#jobs-table tbody button").first.click()
    dialog = page.get_by_role("dialog")
    assert dialog.get_by_role("heading", name="Job job-17").is_visible()
    told = dialog.inner_text()
    assert "fifo" in told
    assert "srtf" in told
    assert told.count("started on") == 2
    assert re.search(r"overhead 3[0-9.]+ s", told)
    assert page.evaluate("location.hash") == "#job=job-17"
    page.keyboard.press("Escape")
    assert not dialog.is_visible()
    page.wait_for_url(lambda url: "#" not in url)  # the event of a closed dialog follows the key
    for name in ("job-3", EVIL):
        page.evaluate("name => { location.hash = '#job=' + encodeURIComponent(name); }", name)
        dialog = page.get_by_role("dialog")
        dialog.wait_for()
        assert dialog.get_by_role("heading", name=f"Job {name}").is_visible()
        dialog.get_by_role("button", name="Close").click()
        page.wait_for_url(lambda url: "#" not in url)  # the page takes the job out of its address
    page.evaluate("location.hash = '#job=no-such-job'")
    assert not page.get_by_role("dialog").is_visible()
    page.get_by_label("Find").fill("<script>")
    assert rows(page) == [EVIL]
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2  # the packed data, and ours


def test_the_timeline_is_dragged_zooms_moves_and_points(opened: Any) -> None:
    page = opened()
    canvas = page.locator("#gantt-canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    before = page.evaluate("scrollY")
    page.mouse.move(box["x"] + 400, box["y"] + 200)
    page.mouse.wheel(0, 40)  # not clicked yet: the page scrolls, the timeline stays
    page.wait_for_timeout(200)
    assert page.evaluate("scrollY") != before
    canvas.focus()
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 400, box["y"] + 200)
    page.mouse.wheel(0, -300)
    page.wait_for_timeout(100)
    zoomed = view(page)
    page.mouse.down()
    page.mouse.move(box["x"] + 300, box["y"] + 200, steps=4)
    page.mouse.up()
    assert view(page)[0] > zoomed[0]
    assert not page.get_by_role("dialog").is_visible()  # a drag is no click
    canvas.focus()
    page.keyboard.press("0")
    page.wait_for_timeout(50)
    whole = view(page)
    assert whole[2:] == [0, 64]
    page.get_by_label("Zoom in on time").click()
    zoomed = view(page)
    assert zoomed[1] - zoomed[0] < 0.7 * (whole[1] - whole[0])
    canvas.focus()
    page.keyboard.press("ArrowLeft")
    assert view(page)[0] < zoomed[0]
    page.keyboard.press("]")
    assert view(page)[3] - view(page)[2] == 32
    page.keyboard.press("0")
    assert view(page) == whole
    canvas.hover(position={"x": 60, "y": 20})
    page.locator("#gantt-tip").wait_for()
    pointed = canvas.get_attribute("data-job")
    canvas.click(position={"x": 60, "y": 20})
    assert page.get_by_role("heading", name=f"Job {pointed}").is_visible()


@pytest.mark.parametrize("dark", [False, True])
def test_dark_and_light(opened: Any, dark: bool) -> None:
    """The text of pages and tables stands out from its ground: at least 4.5:1 (WCAG 2.2, level AA)."""
    page = opened(dark=dark)
    assert not low_contrasts(page)
    brightness = "Math.max(...getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number))"
    assert (page.evaluate(brightness) < 64) == dark
    page.locator("#theme").click()
    assert (page.evaluate(brightness) < 64) == (not dark)
    page.locator("#chart-jct .ticks text").first.scroll_into_view_if_needed()
    assert not low_contrasts(page)


def test_nothing_is_wider_than_a_phone(opened: Any) -> None:
    page = opened(width=390, height=844, touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.locator("#jobs-table tbody button").first.click()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    box = page.get_by_role("dialog").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390


def test_the_keyboard_reaches_everything(opened: Any) -> None:
    page = opened()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the results"
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#results"
    page.locator("#gantt-canvas").focus()
    page.keyboard.press("0")
    page.keyboard.press("n")
    page.keyboard.press("n")
    page.locator("#gantt-tip").wait_for()
    page.keyboard.press("Enter")
    assert page.get_by_role("dialog").is_visible()
    page.keyboard.press("Enter")  # on "Close", where the focus is
    assert not page.get_by_role("dialog").is_visible()
    assert page.evaluate("document.activeElement.id") == "gantt-canvas"
