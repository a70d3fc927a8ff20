"""The playground in headless Chromium, as somebody uses it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser
from running import Running, held
from test_serving_answers import alone

from cirf.lm.decoding.calculator import Calculator
from cirf.lm.decoding.trace_grammar import Steering
from cirf.serving.api import policy, render
from cirf.serving.model import ServedModel

in_chromium = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="opens the page in chromium"),
]

DONE = "document.getElementById('status').textContent === 'Answered.'"
READY = "!document.getElementById('ask').disabled"


def test_the_page_is_whole_and_its_policy_lets_only_its_own_script_run(server: Running) -> None:
    status, headers, body = server.send("GET", "/")
    html = body.decode()
    assert status == 200 and html == render() and headers["content-security-policy"] == policy(html)
    assert policy(html).startswith("default-src 'none'; script-src 'sha256-") and "unsafe" not in policy(html)
    assert html.count("<script>") == html.count("<style>") == 1
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|\sstyle=|\son\w+=|https?://", html)
    assert headers["x-frame-options"] == "DENY" and headers["x-content-type-options"] == "nosniff"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    found = Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture
def page(browser: Browser, server: Running) -> Iterator[Browser]:
    """The page, ready to be asked; afterwards its console has to be empty, and nobody else asked."""
    browser.open(server.url)
    browser.wait(READY)
    yield browser
    assert browser.errors == []
    assert all(url.startswith(server.url) or url.startswith("data:") for url in browser.requests)


def ask(page: Browser, text: str, **fields: str) -> None:
    for name, value in fields.items():
        page.run(f"document.getElementById('{name}').value = '{value}'")
    page.run("document.getElementById('question').value = ''; document.getElementById('question').focus()")
    page.type(text)
    page.press("Enter", control=True)


def shown(page: Browser, column: int, selector: str) -> str:
    found: str = page.run(
        f"[...document.querySelectorAll('.column')[{column}].querySelectorAll('{selector}')].map(e => e.textContent).join('|')"
    )
    return found


class TestInChromium:
    pytestmark = in_chromium

    def test_a_question_is_answered_by_both_with_labels_results_and_time(
        self, page: Browser, traces: ServedModel, prose: ServedModel
    ) -> None:
        ask(page, "What is 12 plus 7?", budget="3")
        page.wait(DONE)
        reasoning, content, tokens, _ = alone(traces, "What is 12 plus 7?", Steering(budget=3))
        steps = traces.read(f"<cirf>{reasoning}</cirf>{content}").steps
        assert steps and shown(page, 0, ".chip") == "|".join(
            f"{int(step['token'][6:-1])} {step['label']}" for step in steps if step["token"]
        )
        assert shown(page, 0, ".result") == "|".join(step["result"] for step in steps if step["result"])
        assert shown(page, 0, ".facts").startswith(f"{tokens} tokens in ")
        assert shown(page, 1, ".prose") == alone(prose, "What is 12 plus 7?")[1] and shown(page, 1, ".chip") == ""

    def test_tokens_appear_as_they_are_made_and_stopping_stops(self, page: Browser, traces: ServedModel) -> None:
        with held(traces) as gate:
            ask(page, "Hi?", budget="9")
            gate.allow(3)
            page.wait("document.querySelectorAll('.chip').length > 0")
            assert page.run("document.querySelectorAll('.column')[0].classList.contains('busy')")
            page.run("document.getElementById('stop').click()")
            page.wait("document.getElementById('status').textContent === 'Stopped.'")
            gate.allow(1)
        page.wait(READY)

    def test_results_can_be_left_out_and_options_are_put_by_letter(self, page: Browser, traces: ServedModel) -> None:
        page.run("document.getElementById('results').checked = false")
        ask(page, "Which?", options="cat\\ndog", budget="4")
        page.wait(DONE)
        wanted = alone(traces, "Which?\nA. cat\nB. dog", Steering(budget=4, results=False))
        assert shown(page, 0, ".result") == "" and shown(page, 0, ".final output") == (wanted[1] or "no answer was written")

    def test_a_calculator_is_asked_for(self, page: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
        calls: list[int] = []
        monkeypatch.setattr(Calculator, "__call__", lambda self, ids, scores: [calls.append(len(ids)), scores][1])
        ask(page, "Hi?")
        page.wait(DONE)
        assert not calls
        page.run("document.getElementById('calculator').checked = true")
        ask(page, "Hi?")
        page.wait(DONE)
        assert calls

    def test_what_is_typed_is_shown_as_text_and_errors_are_reported(self, page: Browser) -> None:
        ask(page, "<img src=x onerror=alert(1)>" * 40)
        page.wait(DONE)
        assert "send less" in shown(page, 0, ".fault") and page.run("document.images.length") == 0
        page.errors = [one for one in page.errors if "400" not in str(one)]  # what the console says of the answer's status

    def test_it_is_used_by_keyboard_alone(self, page: Browser) -> None:
        page.run("document.body.focus()")
        reached = []
        for _ in range(8):
            page.press("Tab")
            reached.append(page.run("document.activeElement.id || document.activeElement.tagName"))
        assert reached[:6] == ["question", "SUMMARY", "budget", "results", "calculator"]
        unnamed = "[...document.querySelectorAll('input, textarea')].filter(e => !e.labels.length).length"
        assert page.run(unnamed) == 0

    @pytest.mark.parametrize("width", [1200, 360])
    @pytest.mark.parametrize("dark", [False, True])
    def test_it_fits_its_window(self, browser: Browser, server: Running, tmp_path: Path, width: int, dark: bool) -> None:
        browser.open(server.url, width=width, dark=dark)
        browser.wait(READY)
        ask(browser, "What is 12 plus 7?", budget="6")
        browser.wait(DONE)
        assert browser.run("document.documentElement.scrollWidth") <= width
        ground = browser.run("getComputedStyle(document.body).backgroundColor")
        assert ground == ("rgb(18, 21, 27)" if dark else "rgb(246, 247, 249)") and browser.errors == []

    def test_where_a_key_is_needed_it_is_asked_for(self, browser: Browser, models: list[ServedModel]) -> None:
        with Running(models, key="0123456789abcdefXYZ") as running:
            browser.open(running.url)
            browser.wait("!document.getElementById('key-row').hidden")
            browser.run("document.getElementById('key').focus()")
            browser.type("0123456789abcdefXYZ")
            browser.press("Enter")
            browser.wait(READY)
            ask(browser, "Hi?", budget="2")
            browser.wait(DONE)
            assert " tokens in " in shown(browser, 0, ".facts")
