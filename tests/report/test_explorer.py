"""What the page's explorers work on: all questions within a size, and JSON that no text can break out of."""

import copy
import json
import re
from html.parser import HTMLParser

import pytest
import synthetic
from hypothesis import given, settings
from hypothesis import strategies as st

from cirf.report.data.codes import BUDGET, LENGTHS, STEPS, read_questions
from cirf.report.page import SECTIONS, render, written
from cirf.report.templates import to_script
from cirf.store.jsonl import read_rows

HOSTILE = "</script><script>document.title='ran'</script><!--<img src=x onerror=\"document.title='ran'\">\u2028&amp;"


class Scripts(HTMLParser):
    """The contents of a page's script elements, as a browser divides it."""

    def __init__(self, html):
        super().__init__()
        self.found, self.images, self._inside = [], 0, False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self._inside = tag == "script"
        self.images += tag == "img"
        if self._inside:
            self.found.append("")

    def handle_data(self, text):
        if self._inside:
            self.found[-1] += text

    def handle_endtag(self, tag):
        self._inside = False


def page_json(html):
    return json.loads(Scripts(html).found[0])


@settings(max_examples=10)
@given(st.recursive(st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_in_a_script_is_the_same_value_and_holds_no_markup(value):
    text = to_script(value)
    assert json.loads(text) == value
    assert not re.search("[<>&\u2028\u2029]", text)


def test_all_evaluated_questions_are_on_the_page(finished, data, html):
    summary = page_json(html)["questions"]
    assert len(summary) == data["questions"]["shown"] == data["questions"]["of"] == 80 and data["questions"]["cut"] == 0
    for task in ("coin_flip", "svamp"):
        problems = read_rows(finished / "problems" / "test" / f"{task}.jsonl")
        mine = [row for row in summary if row["task"] == task]
        assert [row["id"] for row in mine] == [row["id"] for row in problems]
        for name in synthetic.METHODS:
            for row, answered in zip(mine, read_rows(finished / "evaluation" / name / f"{task}.jsonl"), strict=True):
                answer = row["answers"][name]
                assert [answer[key] for key in ("correct", "parsed", "tokens", "truncated")] == [
                    answered[key] for key in ("correct", "parsed", "tokens", "truncated")
                ]
                if name == "cirf_full":
                    again = "".join(f"<cirf_{code:03d}>{result}" for code, result in answer["codes"])
                    assert answered["output"] == f"<cirf>{again}</cirf>{answer['answer']}"
                else:
                    assert answer["output"] == answered["output"]
    assert {bool(row["rationale"]) for row in summary if row["task"] == "svamp"} == {True}
    assert written(data) == sorted({code for row in summary for code, _ in row["answers"]["cirf_full"]["codes"]})


def row(number, output="4", run=0, correct=True):
    answer = {"answer": "4", "parsed": "4", "gold": "4", "correct": correct, "tokens": 3, "truncated": False}
    return {"id": f"q{number}", "run": run, "prompt": f"question {number}", "output": output} | answer


def test_several_runs_are_one_answer_with_its_count():
    summary = read_questions({}, {"cot": {"svamp": [row(1, "second", 1, False), row(1, "first"), row(1, "third", 2)]}})
    (only,) = summary["rows"]
    assert only["question"] == "question 1" and only["answers"]["cot"]["output"] == "first"
    assert only["answers"]["cot"]["runs"] == [2, 3]


def test_long_texts_are_cut_at_the_longest_length_that_fits_and_counted():
    rows = {"cot": {"svamp": [row(number, "x" * (5000 if number % 2 else 100)) for number in range(40)]}}
    assert read_questions({}, rows)["length"] == LENGTHS[0]
    summary = read_questions({}, rows, budget=50_000)
    assert summary["length"] == 2000 and summary["cut"] == 20 and summary["shown"] == summary["of"] == 40
    assert {len(one["answers"]["cot"]["output"]) for one in summary["rows"]} == {100, 2000}
    assert [one["answers"]["cot"].get("output_length") for one in summary["rows"]] == [None, 5000] * 20


def test_questions_beyond_the_budget_are_left_out_evenly():
    rows = {"cot": {task: [row(number, "x" * 9000) for number in range(300)] for task in ("a", "b")}}
    summary = read_questions({}, rows, budget=60_000)
    assert summary["of"] == 600 and summary["length"] == LENGTHS[-1] and 50 < summary["shown"] == len(summary["rows"]) < 200
    per_task = [sum(one["task"] == task for one in summary["rows"]) for task in ("a", "b")]
    assert abs(per_task[0] - per_task[1]) <= 1
    assert sum(len(one["answers"]["cot"]["output"]) for one in summary["rows"]) < 60_000 < BUDGET


def test_a_trace_that_ran_on_is_cut_by_steps():
    output = "<cirf>" + "<cirf_001>2" * (STEPS + 50)
    (only,) = read_questions({}, {"cirf_full": {"svamp": [row(1, output)]}})["rows"]
    assert len(only["answers"]["cirf_full"]["codes"]) == STEPS and only["answers"]["cirf_full"]["codes_length"] == STEPS + 50


def hostile(data):
    """The run's data with markup in every text that comes from strangers."""
    bad = copy.deepcopy(data)
    for question in bad["questions"]["rows"]:
        question |= {key: HOSTILE for key in ("question", "gold", "rationale")} | {"choices": [HOSTILE]}
        for answer in question["answers"].values():
            answer["parsed"] = answer["answer"] = HOSTILE
            if "codes" in answer:
                answer["codes"] = [[code, HOSTILE] for code, _ in answer["codes"]]
            else:
                answer["output"] = HOSTILE
    for code in bad["codebook"]["codes"]:
        code["label"] = HOSTILE
        code["tasks"] = {HOSTILE: 3}
        code["segments"] = [[HOSTILE, HOSTILE]]
    return bad


@pytest.mark.usefixtures("sketched")
def test_markup_in_texts_neither_ends_the_block_nor_becomes_elements(data):
    html = render(hostile(data))
    scripts = Scripts(html)
    assert len(scripts.found) == 2 and scripts.images == 0
    summary = json.loads(scripts.found[0])
    assert summary["questions"][0]["question"] == HOSTILE and summary["book"]["codes"][0]["label"] == HOSTILE


@pytest.mark.usefixtures("sketched")
def test_what_is_cut_or_left_out_is_on_the_page(data, html):
    assert "No text is shortened." in html
    cut = {**data, "questions": {**data["questions"], "of": 900, "length": 250, "cut": 7}}
    text = render(cut)
    assert "80 of 900 evaluated questions" in text and "7 texts are shortened, mostly to 250 characters" in text


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.id)
def test_every_section_is_in_the_contents_and_on_the_page(data, html, section):
    shown = bool(section.has(data))
    assert (f'<section id="{section.id}"' in html) == (f'<a href="#{section.id}">{section.title}</a>' in html) == shown
