"""The page in headless Chromium, as somebody uses it: by mouse, by keyboard, on a laptop and on a phone."""

import shutil

import pytest
from browser import Browser
from test_explorer import HOSTILE, hostile

from cirf.report.page import ranked, render

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="opens the page in chromium"),
]

FOCUS = "document.activeElement"
OPEN = "document.getElementById('code-dialog').open"
FOUND = "document.getElementById('found').textContent"
SHOWN = "document.querySelector('#question .question').textContent"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    found = Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def address(html, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html, encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def page(browser, address):
    """The page, just opened on a laptop; afterwards its console has to be empty and nothing else fetched."""
    browser.open(address)
    yield browser
    assert browser.errors == []
    assert [url for url in browser.requests if not url.startswith("data:")] == [address]


@pytest.mark.parametrize("width", [1366, 390])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_fits_its_window_and_its_text_can_be_read(browser, address, width, dark):
    browser.open(f"{address}#code-3", width=width, dark=dark)
    assert browser.run(OPEN)
    for _ in range(2):
        assert browser.run("document.documentElement.scrollWidth") == width
        assert browser.run("[...document.querySelectorAll('dialog')].every(d => d.scrollWidth <= d.clientWidth)")
        assert browser.run(LOW_CONTRAST) == []
        browser.run("document.getElementById('code-dialog').close()")
    assert browser.errors == []


LOW_CONTRAST = """(() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (parts) => parts.slice(0, 3).map((p) => p / 255)
    .map((p) => p <= 0.04045 ? p / 12.92 : ((p + 0.055) / 1.055) ** 2.4)
    .reduce((sum, p, i) => sum + p * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const found = parse(getComputedStyle(at).backgroundColor);
      if (found.length < 4 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const bad = [];
  for (const element of document.querySelectorAll("body *")) {
    if (element.closest("svg, script") || !element.checkVisibility()) continue;
    if (![...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())) continue;
    const [low, high] = [light(parse(getComputedStyle(element).color)), light(ground(element))].sort((a, b) => a - b);
    if ((high + 0.05) / (low + 0.05) < 4.5) bad.push(element.tagName + ": " + element.textContent.slice(0, 40));
  }
  return bad;
})()"""


def test_no_column_is_cut_off_on_a_laptop(browser, address):
    browser.open(address, width=1100)
    over = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth).map(e => e.ariaLabel)"
    assert browser.run(over) == []


def test_a_token_opens_by_click_and_by_key_and_gives_the_focus_back(page, data):
    chip = "#traces .example a.chip"
    page.click(chip)
    assert page.run(OPEN) and page.run(f"{FOCUS}.id") == "code-title"
    code = int(page.run("location.hash").removeprefix("#code-"))
    summary = next(row for row in data["codebook"]["codes"] if row["code"] == code)
    text = page.run("document.getElementById('code-dialog').innerText").replace("\N{NO-BREAK SPACE}", " ")
    assert f"{summary['count']} steps" in text and f"{summary['written']} time" in text and summary["segments"][0][1] in text
    assert f"{100 * summary['answers']['right']:.1f} % right" in text
    page.press("Escape")
    assert page.until(f"!({OPEN}) && {FOCUS} === document.querySelector('{chip}') && location.hash === ''")
    page.press("Enter")
    assert page.run(OPEN)


def test_from_token_to_token_and_back_and_to_the_questions_with_it(page, data):
    page.run("location.hash = '#code-3'")
    page.run("new Promise(done => setTimeout(done, 100))")
    assert page.run("document.getElementById('code-title').textContent").startswith("Functional token 3 ")
    page.click("#code-body a.chip")
    other = page.run("location.hash")
    assert other not in ("", "#code-3") and page.run("!document.getElementById('code-back').hidden")
    page.click("#code-back")
    assert page.run("location.hash") == "#code-3" and page.run("document.getElementById('code-back').hidden")
    page.click("#code-traces")
    page.run("new Promise(done => setTimeout(done, 100))")
    summary = next(row for row in data["codebook"]["codes"] if row["code"] == 3)
    assert not page.run(OPEN) and page.run(FOUND) == f"{summary['answers']['questions']} of 80 questions shown"
    assert page.run(f"{FOCUS}.id") == "filter-code" and page.run(f"{FOCUS}.value") == "3"


def test_transitions_of_a_token_are_shown_in_full(page, data):
    page.run("location.hash = '#code-7'")
    page.run("new Promise(done => setTimeout(done, 100))")
    counts = page.run(
        "[...document.querySelectorAll('#code-body .columns section')].slice(0, 2).map(s => [...s.querySelectorAll('li')]"
        ".map(li => Number(li.innerText.replace(/,/g, '').match(/(\\d+) \\(/)[1])))"
    )
    summary = next(row for row in data["codebook"]["codes"] if row["code"] == 7)
    assert [sum(side) for side in counts] == [summary["count"]] * 2


def test_steps_of_a_token_are_filtered(page, data):
    summary = next(row for row in data["codebook"]["codes"] if row["code"] == 3)["segments"]
    bags = summary[0][1].partition(" ×")[0]
    page.run("location.hash = '#code-3'")
    page.run("new Promise(done => setTimeout(done, 100))")
    number = "document.querySelectorAll('#code-body .segments li').length"
    assert page.run(number) == len(summary)
    page.click("#code-body input")
    page.type(bags.lower())
    assert page.run(number) == sum(bags in text for _, text in summary) < len(summary)
    assert page.run(f"[...document.querySelectorAll('#code-body .segments li')].every(e => e.innerText.includes('{bags}'))")


def choose(page, field, value):
    page.run(
        f"(f => {{ f.value = '{value}'; f.dispatchEvent(new Event('input', {{bubbles: true}})); }})"
        f"(document.getElementById('filter-{field}'))"
    )


def number(page):
    return int(page.run(FOUND).split()[0])


def test_questions_are_filtered_as_counted_from_the_data(page, data):
    rows = data["questions"]["rows"]

    def among(name, mark):
        return sum(bool(mark(row["answers"][name])) for row in rows)

    assert number(page) == 80
    choose(page, "task", "svamp")
    assert number(page) == 40
    choose(page, "task", "")
    choose(page, "method", "cot")
    for verdict, mark in {
        "right": lambda answer: answer["correct"],
        "wrong": lambda answer: not answer["correct"] and answer["parsed"] is not None,
        "unread": lambda answer: answer["parsed"] is None,
        "cut": lambda answer: answer["truncated"],
    }.items():
        choose(page, "verdict", verdict)
        assert number(page) == among("cot", mark)
    choose(page, "verdict", "")
    choose(page, "method", "")
    choose(page, "code", "12")
    assert number(page) == among("cirf_full", lambda answer: any(code == 12 for code, _ in answer["codes"]))
    page.click("#explorer [type=reset]")
    page.run("new Promise(done => setTimeout(done, 50))")
    assert number(page) == 80
    page.click("#filter-differ")
    assert number(page) == sum(len({answer["correct"] for answer in row["answers"].values()}) == 2 for row in rows)
    page.click("#filter-differ")
    page.click("#filter-text")
    page.type("no such text")
    assert number(page) == 0 and "No question matches" in page.run("document.getElementById('question').innerText")


def test_arrow_keys_go_through_the_questions(page, data):
    rows = data["questions"]["rows"]
    assert rows[0]["question"] in page.run(SHOWN)
    page.click("[data-step='1']")
    assert rows[1]["question"] in page.run(SHOWN)
    page.press("ArrowRight")
    assert rows[2]["question"] in page.run(SHOWN)
    page.press("ArrowLeft")
    page.press("ArrowLeft")
    assert rows[0]["question"] in page.run(SHOWN) and page.run("!!document.activeElement.closest('#question')")
    page.click("#question-list [data-place='4']")
    page.press("ArrowDown")
    assert rows[5]["question"] in page.run(SHOWN) and page.run(f"{FOCUS}.dataset.place") == "5"
    assert page.run("document.querySelectorAll('#question .answer').length") == 4
    page.click("#filter-text")
    page.press("ArrowRight")
    assert rows[5]["question"] in page.run(SHOWN)


def test_the_list_of_questions_goes_on(page):
    assert page.run("document.querySelectorAll('#question-list [data-place]').length") == 60
    page.click("#question-list .more button")
    assert page.run("document.querySelectorAll('#question-list [data-place]').length") == 80
    assert page.run(f"{FOCUS}.dataset.place") == "60"


def column(page, place):
    return page.run(f"[...document.querySelectorAll('[aria-label=Methods] tbody tr')].map(r => r.cells[{place}].innerText)")


def test_tables_are_sorted_by_number_and_by_text_and_as_they_were(page, data):
    seconds = [row["latency_mean_s"] for row in ranked(data["methods"]).values()]
    as_they_were = column(page, 0)
    head = "[aria-label=Methods] th:nth-child({}) button"
    page.click(head.format(9))
    order = sorted(range(4), key=seconds.__getitem__)
    assert column(page, 0) == [as_they_were[place] for place in order]  # 90 ms before 0.31 s: by value, not by digits
    assert page.run("document.querySelector('[aria-label=Methods] th:nth-child(9)').ariaSort") == "ascending"
    page.press("Enter")
    assert column(page, 0) == [as_they_were[place] for place in reversed(order)]
    page.click(head.format(1))
    assert column(page, 0) == sorted(as_they_were, key=lambda text: text.partition("\n")[0].lower())
    assert page.run("document.querySelectorAll('[aria-label=Methods] [aria-sort]').length") == 1
    page.press("Enter")
    page.press("Enter")
    assert column(page, 0) == as_they_were


def test_methods_are_filtered_by_typing(page):
    rows = (
        "[...document.querySelectorAll('#methods tr[data-method]')].filter(r => r.checkVisibility()).map(r => r.dataset.method)"
    )
    page.click("[data-filter=methods]")
    page.type("cot")
    assert set(page.run(rows)) == {"cot", "sft_cot"}
    assert page.run("document.querySelector('[data-count=methods]').textContent") == "2 of 4 methods"
    page.type(", direct")
    assert set(page.run(rows)) == {"cot", "sft_cot", "direct_sft"}


def test_points_show_their_numbers_by_mouse_and_keyboard(page, data):
    point = "svg .mark.point[data-method=cot]"
    summary = page.run(f"document.querySelector('{point}').ariaLabel")
    assert summary.startswith(f"CoT, untrained (cot): {100 * data['methods']['cot']['accuracy']:.1f} % right")
    tip = "(t => t.hidden ? null : t.textContent)(document.getElementById('tip'))"
    assert page.run(tip) is None
    page.hover(point)
    assert page.run(tip) == summary
    page.hover("h1")
    assert page.run(tip) is None
    page.run(f"document.querySelector('{point}').focus()")
    page.run("new Promise(done => setTimeout(done, 100))")
    assert page.run(tip) == summary
    page.press("Escape")
    assert page.until(f"({tip}) == null")


@pytest.mark.parametrize(("width", "shown"), [(1400, "on-wide"), (400, "on-narrow")])
def test_the_picture_is_as_wide_as_the_page_and_its_text_can_be_read(browser, address, width, shown):
    browser.open(address, width=width)
    figure = "document.querySelector('figure.plot')"
    drawn = f"[...{figure}.querySelectorAll('svg')].filter(e => e.checkVisibility())"
    assert browser.run(f"{drawn}.length === 1 && {drawn}[0].parentElement.className") == shown
    assert browser.run(f"{figure}.offsetWidth === document.querySelector('main').clientWidth - {28 if width < 560 else 40}")
    least = f"Math.min(...[...{drawn}[0].querySelectorAll('text')].map(e => e.getBoundingClientRect().height))"
    assert browser.run(least) >= 10


def test_texts_of_strangers_do_not_run(browser, data, tmp_path):
    path = tmp_path / "hostile.html"
    path.write_text(render(hostile(data)), encoding="utf-8")
    browser.open(f"{path.as_uri()}#code-3")
    title = browser.run("document.title")
    assert browser.run(OPEN) and HOSTILE in browser.run("document.getElementById('code-body').textContent")
    browser.run("document.getElementById('code-dialog').close()")
    browser.click("[data-step='1']")
    assert HOSTILE in browser.run(SHOWN)
    browser.run("new Promise(done => setTimeout(done, 200))")
    assert browser.run("document.title") == title == "CIRF report: made-up"
    assert browser.run("document.querySelectorAll('img, script').length") == 2 and browser.errors == []
    assert [url for url in browser.requests if not url.startswith("data:")] == [f"{path.as_uri()}"]


def test_without_scripts_the_page_is_whole(browser, address):
    """What is written is there: the rows of the codes, the tables; what needs a script does not show."""
    browser.open(address, scripts=False)
    try:
        text = browser.run("document.body.innerText")
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
    assert "Filter methods" not in text and "All questions" not in text and "Find tokens" not in text
    assert "Questions and traces are shown by a script" in text
