"""The page of analyses in a real browser: it fits its window, its tables have the layout of tables, its points show numbers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import tinyrun
from browser import Browser

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="opens the page in chromium"),
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    found = Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def address(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    run = shutil.copytree(finished, tmp_path_factory.mktemp("analysed") / "run")
    assert tinyrun.cirf("analyze", run).code == 0
    return (run / "analysis" / "index.html").as_uri()


@pytest.mark.parametrize("width", [390, 800, 1200])
def test_the_page_fits_its_window_and_its_tables_are_whole(browser: Browser, address: str, width: int) -> None:
    browser.open(address, width=width)
    assert browser.run("document.documentElement.scrollWidth") == width
    browser.run("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert browser.run("document.querySelectorAll('table').length") > 5
    # Every part of a table is below the previous one, at its left edge; on a phone some have no head.
    apart = """[...document.querySelectorAll('table')].filter(table => {
        const parts = [...table.children].filter(one => one.offsetHeight).map(one => one.getBoundingClientRect());
        return parts.some((one, at) => at && (one.top < parts[at - 1].bottom - 1 || Math.abs(one.left - parts[0].left) > 1));
    }).map(table => table.innerText.slice(0, 60))"""
    assert browser.run(apart) == []
    assert browser.errors == []


@pytest.fixture(scope="module")
def of_a_sweep(analysed: Path) -> str:
    return (analysed / "index.html").as_uri()


def test_long_names_of_runs_leave_the_next_column_in_sight_on_a_phone(browser: Browser, of_a_sweep: str) -> None:
    browser.open(of_a_sweep, width=390)
    cell = "document.querySelector('table[data-table=geometry-geometry] td.long + td').getBoundingClientRect()"
    assert browser.run(f"{cell}.width") > 0 and browser.run(f"{cell}.right") <= 390


def test_a_point_shows_its_numbers_to_mouse_and_keyboard(browser: Browser, of_a_sweep: str) -> None:
    browser.open(of_a_sweep)
    tip = "(t => t.hidden ? null : t.textContent)(document.getElementById('tip'))"
    for section in ("codebook_size", "geometry", "scaling"):
        points = f"[...document.querySelector('#{section} svg').querySelectorAll('.mark.point')]"
        last = f"{points}.filter(one => one.getBoundingClientRect().height > 4).at(-1)"  # nothing covers it
        summary = browser.run(f"({last}.id = '{section}-last', {last}.dataset.description)")
        browser.hover(f"#{section}-last")
        assert browser.run(tip) == summary
        browser.hover("h1")
        assert browser.run(tip) is None
        browser.run(f"document.getElementById('{section}-last').focus()")
        assert browser.run(tip) == summary
        browser.run("document.activeElement.blur()")
    assert browser.errors == []


def test_a_bar_and_a_point_that_have_the_focus_show_it(browser: Browser, of_a_sweep: str) -> None:
    browser.open(of_a_sweep)
    browser.press("Tab")  # as somebody does who has no mouse
    for shape in (" use", " > path"):
        mark = f"document.querySelector('#codebook_size svg .mark.point{shape}')"
        width = f"getComputedStyle({mark}).strokeWidth"
        assert browser.run(width) != "4px"
        browser.run(f"{mark}.closest('.mark').focus()")
        assert browser.run(width) == "4px"


def test_every_filter_has_a_name_of_its_own(browser: Browser, of_a_sweep: str) -> None:
    browser.open(of_a_sweep)
    names = browser.run("[...document.querySelectorAll('[data-filter]')].map(one => one.ariaLabel)")
    assert len(names) > 2 and len(set(names)) == len(names)


def test_rows_are_filtered_and_sorted(browser: Browser, of_a_sweep: str, runs: dict[str, str]) -> None:
    browser.open(of_a_sweep)
    rows = "[...document.querySelectorAll('table[data-table=geometry-geometry] > tbody > tr')].filter(row => !row.hidden)"
    total = browser.run(f"{rows}.length")
    browser.click("[data-filter=geometry-geometry]")
    browser.type("question, raw")
    shown = browser.run(f"{rows}.map(row => row.textContent)")
    assert 0 < len(shown) < total and all("raw" in text.lower() or "question" in text.lower() for text in shown)
    summary = browser.run("document.querySelector('[data-count=geometry-geometry]').textContent")
    assert summary == f"{len(shown)} of {total} rows"
    head = "document.querySelector('table[data-table=geometry-geometry] th:first-child')"
    column = f"{rows}.map(row => row.cells[0].textContent)"
    before = browser.run(column)
    assert before != sorted(before)
    for turn, reverse in (("ascending", False), ("descending", True)):
        browser.run(f"{head}.querySelector('.sort').click()")
        assert browser.run(f"{head}.ariaSort") == turn
        assert browser.run(column) == sorted(before, reverse=reverse)
    assert browser.errors == []


def test_the_reports_of_the_runs_are_a_click_away(browser: Browser, of_a_sweep: str, runs: dict[str, str]) -> None:
    browser.open(of_a_sweep)
    found = browser.run("[...document.querySelectorAll('header a')].map(link => [link.textContent, link.href])")
    assert sorted(name for name, _ in found) == sorted(runs.values())
    browser.open(found[0][1])
    assert browser.run("document.title").startswith("CIRF report") and browser.errors == []


def test_without_a_script_the_page_is_whole_and_offers_nothing_that_needs_one(browser: Browser, of_a_sweep: str) -> None:
    browser.open(of_a_sweep, scripts=False)
    assert browser.run("(all => all.length > 2 && all.every(one => one.hidden))([...document.querySelectorAll('.live')])")
    assert browser.run("document.querySelectorAll('svg .mark title').length") > 10  # the browser's own tooltips
