"""The page of a run's analyses in a real browser: it fits its window, and its tables lie as tables do."""

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
    # Every part of a table lies below the one before it, at its left edge; on a phone some have no head.
    apart = """[...document.querySelectorAll('table')].filter(table => {
        const parts = [...table.children].filter(one => one.offsetHeight).map(one => one.getBoundingClientRect());
        return parts.some((one, at) => at && (one.top < parts[at - 1].bottom - 1 || Math.abs(one.left - parts[0].left) > 1));
    }).map(table => table.innerText.slice(0, 60))"""
    assert browser.run(apart) == []
    assert browser.errors == []
