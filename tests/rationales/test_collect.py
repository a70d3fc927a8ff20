"""Where rationales come from, which problem each belongs to, and whether it agrees with the answer. What `check` counts."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tables import each_row

from cirf.errors import CirfError
from cirf.rationales.check import check
from cirf.rationales.collect import agrees_with, closes_with, collect, gather, may_reach, stated_answer
from cirf.recipe import schema
from cirf.records import Problem
from cirf.tasks import get
from cirf.tasks.loading.questions import question_key
from cirf.tasks.loading.unusable import Tolerance, listed
from cirf.tasks.own_rows import rows_in_memory


def section(*files: str, **keys) -> schema.Rationales:
    return schema.Rationales(files=files, **keys)


def test_the_data_sets_own_solution(problems, tasks) -> None:
    found = collect(problems, section(source="dataset"), None, tasks)
    assert [(row.problem, row.source, row.sample) for row in found.rationales] == [("sums/train/a", "dataset", 0)]
    assert {row.problem: row.reason for row in found.dropped} == dict.fromkeys(
        ["sums/train/b", "sums/train/c", "picks/train/d"], "no rationale"
    )
    assert found.report["dataset"]["rows"] == 1


def test_rows_find_their_problem_by_question_or_id(problems, tasks, write) -> None:
    path = write(
        "r.jsonl",
        [
            {"question": "Ann has 3 pens and buys 5. How many pens has she?", "rationale": "no"},
            {"question": "Q: Ann has 3 pens and buys 4, how many  PENS has she", "rationale": "by question"},
            {"id": "sums/train/b", "rationale": "by id"},
            {"id": "c", "rationale": "by the id's last part"},
            {"id": "zz", "question": "Where do fish live?", "rationale": "by question, id unknown"},
            {"question": "Bob eats 25 of 10 pies. How many are left?", "rationale": "another number"},
        ],
    )
    found = collect(problems, section(path, source="files"), None, tasks)
    assert {row.problem: row.text for row in found.rationales} == {
        "sums/train/a": "by question",
        "sums/train/b": "by id",
        "sums/train/c": "by the id's last part",
        "picks/train/d": "by question, id unknown",
    }
    counts = found.report["files"][path]
    assert (counts["rows"], counts["matched"], counts["unmatched"]) == (6, 4, 2)
    assert counts["first_unmatched"] == [f"{path}, line 1", f"{path}, line 6"]


def test_question_key_keeps_numbers_apart() -> None:
    assert question_key("It is 2.5, or 1,000?") == question_key("it is 2.5  or 1,000")
    assert question_key("It is 2.5") != question_key("It is 25")


def test_names_are_looked_up_in_the_data_folder(problems, tasks, write, tmp_path: Path) -> None:
    write("data/one.jsonl", [{"id": "a", "rationale": "one"}])
    write("data/rationales/two.teacher.jsonl", [{"id": "b", "rationale": "two"}])
    found = collect(problems, section("one", "two.teacher", source="files"), str(tmp_path / "data"), tasks)
    assert [(row.text, row.source) for row in found.rationales] == [("one", "one"), ("two", "two.teacher")]
    with pytest.raises(CirfError, match=r"rationales\.files: no file three .*data/rationales/three.*--data"):
        collect(problems, section("three"), str(tmp_path / "data"), tasks)


def test_files_go_first_and_per_problem_limits(problems, tasks, write) -> None:
    path = write("r.jsonl", [{"id": "a", "rationale": f"text {number}"} for number in (1, 2)])
    one = collect(problems, section(path), None, tasks)
    assert [row.text for row in one.rationales] == ["text 1"]
    assert one.report["surplus"] == 2
    three = collect(problems, section(path, per_problem=3), None, tasks)
    assert [(row.sample, row.source) for row in three.rationales] == [(0, "r"), (1, "r"), (2, "dataset")]


def test_other_answers_are_dropped_or_kept(problems, tasks, write) -> None:
    rows = [
        {"id": "a", "rationale": "so 8 pens", "answer": 8},
        {"id": "b", "rationale": "Thus 7.50 are left", "answer": "7.50"},
        {"id": "c", "rationale": "6 * 5 = 31. The answer is 31.", "answer": "30"},
        {"id": "d", "rationale": "They swim.\n#### B"},
    ]
    path = write("r.jsonl", rows)
    dropped = collect(problems, section(path), None, tasks)
    assert {row.problem: (row.source, row.agrees) for row in dropped.rationales} == {
        "sums/train/a": ("dataset", True),  # the second best takes the place of the dropped one
        "sums/train/b": ("r", True),
        "picks/train/d": ("r", True),
    }
    assert [(row.problem, row.reason) for row in dropped.dropped] == [
        ("sums/train/a", "another answer"),
        ("sums/train/c", "another answer"),
    ]
    kept = collect(problems, section(path, check="keep"), None, tasks)
    assert {row.problem: row.agrees for row in kept.rationales}["sums/train/c"] is False
    assert kept.report["agrees"] == {"agree": 2, "differ": 2}


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("3 + 4 = 7\n#### 7", "7"),
        ("So it is \\( \\boxed{12} \\).", "12"),
        ("Thus, the final answer is **7 pens**.", "7"),
        ("The answer is 3 + 4 = 7.", "7"),
        ("The answer is: \n\n\\[\n1{,}200\n\\]", "1200"),
        ("She has 7 pens.", None),
        ("3 + 4 = 7", None),
        ("The answer must be a number above 3.", None),
        ("The answer is the sum of 3 and 4.", None),
        ("The answer is:\n- 17 in the first\n- 8 in each", None),
    ],
)
def test_stated_numbers(text: str, stated: str | None, problems, tasks) -> None:
    assert stated_answer(text, problems[0], tasks["sums"]) == stated


@pytest.mark.parametrize(
    ("kind", "text", "answer", "agrees"),
    [
        ("text", "Answer: Paris (France)", "Paris", True),
        ("text", "**Answer:** green – because of chlorophyll", "green", True),
        ("text", "The answer is −5 points (a drop).", "-5", True),
        ("text", "Answer: 60000 s", "6000", False),
        ("text", "Answer: Nicely done", "Nice", False),
        ("text", "Answer: 12 eggs, of course", "12", True),
        ("text", "Answer: CO2, i.e. carbon dioxide", "CO2", True),
        ("text", "Answer: Gus is not right", "Gus", False),
        ("text", "Answer: Paris or London", "Paris", False),
        ("text", "Answer: 5 - 3", "5", False),
        ("text", "Answer: 6 000", "6", False),
        ("text", "Answer: 3 hours 20 minutes", "3 hours", False),
        ("number", "Answer: it drops to 5", "-5", False),
        ("number", "Answer: 200 (200 dollars profit)", "-200", False),
        ("number", "Answer: a loss of 200", "-200", True),
        ("number", "Answer: 200", "-200", False),
    ],
)
def test_more_than_the_answer_is_no_other_answer(kind, text: str, answer: str, agrees: bool, tasks) -> None:
    task, problem = replace(tasks["sums"], answer=kind), Problem("sums/train/m", "sums", "What is it?", answer)
    said = stated_answer(text, problem, task)
    assert said is not None and task.equal(said, problem) is agrees


OTHERWISE = [
    ("5", "The obvious answer is 100. But each machine takes 5 minutes. So it takes 5 minutes."),
    ("47", "The intuitive answer is 24. That's wrong, as it doubles each day. On day 47 it is half."),
    ("0.05", "The immediate answer is 10 cents. But then the bat is $1, so the ball is $0.05."),
    ("9", "At first I say the answer is 17 - 9 = 8. All but nine die, so 9 stay."),
    ("no", "Assume the answer is yes. Then 12 > 15, which is absurd. So no."),
    ("yes", "Some say the answer is no. However, it is even: yes."),
    ("Paris", "The answer is not London. It's Paris."),
    ("Rome", "The tempting answer is Milan. But the seat of government is in Rome."),
    ("5", "So the answer is x = 5, y = 7. We want x."),
    ("1000000", "The answer is 1 million."),
    ("2500", "The answer is 2.5 thousand."),
    ("33.3", "The answer is 33.333..."),
    ("0.6667", "The answer is 0.67."),
    ("0.25", "The answer is 25%."),
    ("0.5", "The answer is 50 percent."),
    ("-3", "The net result is a loss of 3."),
    ("-20", "The answer is $20 overdrawn."),
    ("-2", "So the total is 2 degrees below zero."),
    ("-7", "The answer is minus 7."),
    ("May 4, 2024", "The answer is 4 May 2024."),
    ("2024-03-01", "The answer is March 1, 2024."),
    ("1st of June 1999", "The answer is June 1, 1999."),
    ("14:30", "The answer is 2:30 pm."),
    ("10:00 pm", "The answer is 22:00."),
    ("09:05", "The answer is 9:05 a.m."),
    ("3 h 20 min", "The answer is 3 hours and 20 minutes."),
    ("2 hours", "The answer is 120 minutes."),
    ("12 km", "The answer is 12 kilometers."),
    ("7 litres", "The answer is 7 l."),
    ("17th century", "The answer is the seventeenth century."),
    ("second floor", "The answer is the 2nd floor."),
    ("twenty-one days", "The answer is 21 days."),
    ("cat, dog", "The answer is dog and cat."),
    ("color", "The answer is 'color' in American spelling."),
    ("Beethoven", "The answer is Ludwig van Beethoven."),
    ("New York City", "The answer is New York."),
    ("Marie Curie", "The answer is Curie."),
    ("None", "The answer is that the function returns None."),
]
OTHER = [
    ("100", "The obvious answer is 100. So the answer is 5."),
    ("6", "The answer is 5. So it takes 5 minutes."),
    ("A", "The answer is B, as A is wrong. Option A is not round."),
    ("3.14", "The answer is 3.24."),
    ("7", "The answer is minus 7."),
    ("5", "The answer is a loss of 6."),
    ("May 4, 2024", "The answer is 5 April 2024."),
    ("9 am", "The answer is 21:00."),
    ("10 kg", "The answer is 10 g."),
    ("cat", "The answer is cat and dog."),
    ("dog", "The answer is cat, dog."),
    ("[3, 5]", "The answer is [5, 3]."),
    ("x - y", "The answer is y - x."),
    ("3 cats and 2 dogs", "The answer is 2 cats and 3 dogs."),
    ("very positive", "The answer is positive."),
    ("positive", "The answer is very positive."),
    ("Rome", "The answer is Milan. It is not Rome."),
]


@pytest.mark.parametrize(("answer", "text", "kept"), [(*row, True) for row in OTHERWISE] + [(*row, False) for row in OTHER])
def test_a_row_stays_whose_rationale_says_its_answer_last_or_otherwise(answer: str, text: str, kept: bool) -> None:
    choices = {"choices": ["round", "square", "flat"]} if answer == "A" else {}
    task, [problem] = rows_in_memory([{"question": "What is it?", "answer": answer, "rationale": text, **choices}], "mine")
    assert (agrees_with(text, None, problem, task) is not False) is kept
    assert bool(gather([problem], section(), None, {"mine": task}).rationales) is kept


@pytest.mark.parametrize(
    ("right", "text", "kept"),
    [
        ("B", "The tempting answer is C. But sound carries no photons, so B.", True),
        ("C", "Many would say the answer is A. Actually it lies on the ground, so it is flat.", True),
        ("A", "The answer is B at first sight, but (A) has no corners.", True),
        ("A", "The answer is B. A square has four corners.", False),
        ("C", "The answer is B. C is wrong.", False),
    ],
)
def test_an_option_that_is_named_behind_another_answer_is_no_other(right: str, text: str, kept: bool) -> None:
    row = {"question": "Which?", "choices": ["round", "square", "flat"], "answer": right, "rationale": text}
    task, [problem] = rows_in_memory([row], "mine")
    assert (agrees_with(text, None, problem, task) is not False) is kept


@pytest.mark.parametrize("piece", ["The answer is 5. ", "one and ", "The answer is not ", "12:30 pm, ", "May 4 ", "loss of 3 "])
def test_agreement_takes_time_linear_in_the_text(piece: str) -> None:
    for answer in ("7", "May 5"):
        task, [problem] = rows_in_memory([{"question": "What?", "answer": answer}], "mine")
        text = f"The answer is 8. {piece * 5_000}"
        start = time.perf_counter()
        agrees_with(text, None, problem, task)
        assert time.perf_counter() - start < 10


@pytest.mark.parametrize(
    ("text", "agrees"),
    [
        ("Step 1: 80 + 6 = 86 minutes.", True),
        ("She counts. So the result is 86 minutes.", True),
        ("The correct answer would be 86.", True),
        ("Then 80 + 6 = 86 billion miles.", True),  # the question may ask for billions
        ("80 + 6 = 87 minutes", None),  # another number, but perhaps not the last word
        ("So it takes 80 + 6 = 87 minutes.", False),
        ("Step 1: add\nStep 2: Therefore, the total is 87 minutes.", False),
        ("The correct answer would be 87.", False),
        ("So 80 + 6 = 86. So that is 86 + 1 = 87 with the driver.", None),  # the right number is in the text
        ("So it is more than 80.", None),
        ("So it takes 86.4 minutes.", None),  # rounded
        ("So it takes 17 200/2 = 8 600 seconds.", None),  # thousands set apart by spaces
        ("So it takes 5160 seconds.", None),  # in another unit
        ("So 2 * 3 = 6 cats and 3 * 4 = 12 dogs.", None),  # the last addition is not said
        ("So they add up.", None),
        ("87 minutes.", None),
    ],
)
def test_numbers_without_an_anchor(text: str, agrees: bool | None, tasks) -> None:
    problem = Problem("sums/train/m", "sums", "How many minutes?", "86", rationale=text)
    assert closes_with(text, problem, tasks["sums"]) is agrees
    found = gather([problem], section(), None, tasks)
    assert [row.agrees for row in found.rationales] == ([] if agrees is False else [agrees])


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("Thus, the answer is **B**.", "B"),
        ("Final answer: (C)", "C"),
        ("The correct answer is B. water, as they swim.", "B"),
        ("The answer is water.", "B"),
        ("The answer is:\n\n**A. tree**", "A"),
        ("The answer is a place with water.", None),
        ("The answer is A place to swim.", None),
        ("Of the above choices, only water fits.", None),
    ],
)
def test_stated_options(text: str, stated: str | None, problems, tasks) -> None:
    assert stated_answer(text, problems[3], tasks["picks"]) == stated


def test_same_question_with_other_choices_goes_where_it_agrees(tasks, write) -> None:
    twins = [
        Problem("picks/train/x", "picks", "Where do fish live?", "A", choices=("sea", "sky")),
        Problem("picks/train/y", "picks", "Where do fish live?", "B", choices=("sky", "lake")),
    ]
    row = {"question": "Where do fish live?", "rationale": "In the lake.", "answer": "B"}
    found = collect(twins, section(write("r.jsonl", [row]), source="files"), None, tasks)
    assert [row.problem for row in found.rationales] == ["picks/train/y"]
    named = collect(twins, section(write("s.jsonl", [{**row, "id": "x"}]), source="files", check="keep"), None, tasks)
    assert [row.problem for row in named.rationales] == ["picks/train/x"]


def test_duplicates_are_reported(problems, tasks, write) -> None:
    path = write(
        "r.jsonl", [{"id": "a", "rationale": "same"}, {"id": "b", "rationale": "same"}, {"id": "a", "rationale": "same "}]
    )
    found = collect(problems, section(path, source="files", per_problem=5), None, tasks)
    assert len(found.rationales) == 2
    assert found.report["files"][path]["first_duplicates"] == [f"{path}, line 3"]
    assert ("sums/train/a", "duplicate") in [(row.problem, row.reason) for row in found.dropped]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (['{"question": "x", '], r"line 1: not valid JSON"),
        ([{"question": "x"}], r"line 1: no field `rationale`"),
        ([{"question": "x", "rationale": " "}], r"line 1: `rationale` is empty"),
        ([{"question": "x", "rationale": 3}], r"line 1: `rationale` is a number, expected a string"),
        ([{"rationale": "t"}], r"line 1: neither `question` nor `id`"),
        ([{"question": ["x"], "rationale": "t"}], r"line 1: `question` is a list"),
        ([{"id": "a", "question": q, "rationale": "t"} for q in "xy"], r"line 2: duplicate id a, .* on line 1"),
        ([], r"the file is empty"),
    ],
)  # fmt: skip
def test_malformed_files_are_named(rows, message: str, problems, tasks, write) -> None:
    path = write("bad.jsonl", rows)
    with pytest.raises(CirfError, match=rf"bad\.jsonl.*{message}"):
        collect(problems, section(path), None, tasks)


def test_malformed_rows_are_let_pass_as_the_tolerance_says_with_their_true_lines(problems, tasks, write) -> None:
    path = write("r.jsonl", ["", '{"id": ', {"id": "a"}, {"id": "b", "rationale": "so 7.5"}, {"rationale": "t"}])
    for tolerance in (Tolerance(0, looking=True), Tolerance(0.75)):
        found = gather(problems, section(path, source="files"), None, tasks, tolerance)
        assert [row.problem for row in found.rationales] == ["sums/train/b"]
        assert found.unusable == tolerance.files
        assert [(row.file, row.line, row.stage) for row in listed(found.unusable, "rationales")] == [
            ("r.jsonl", line, "rationales") for line in (2, 3, 5)
        ]
        assert found.report["reasons"]["not valid JSON"] == 1 and found.report["unusable"][0]["rows"] == 4
    with pytest.raises(
        CirfError, match=r"3 of 4 rows \(75 %\) cannot be used, more than problems\.max_unusable_share: 0\.5 allows"
    ):
        collect(problems, section(path, source="files"), None, tasks, tolerance=Tolerance(0.5))
    with pytest.raises(CirfError, match="the file is empty"):
        gather(problems, section(write("e.jsonl", [])), None, tasks, Tolerance(1))


def test_nothing_found_is_one_clear_sentence(problems, tasks, write) -> None:
    path = write("r.jsonl", [{"question": "Something else?", "rationale": "t"}])
    with pytest.raises(CirfError, match=r"no rationale for any of 4 training problems \(no rationale: 4\).*rationales\.files"):
        collect(problems, section(path, source="files"), None, tasks)
    assert gather(problems, section(path, source="files"), None, tasks).rationales == []
    with pytest.raises(CirfError, match=r"rationales\.files: empty"):
        collect(problems, section(source="files"), None, tasks)


def test_blank_solution_and_unknown_task_and_twin_ids(tasks) -> None:
    blank = Problem("p", "sums", "How many?", "1", rationale="  ")
    assert [row.reason for row in gather([blank], section(), None, tasks).dropped] == ["empty rationale"]
    with pytest.raises(CirfError, match=r"problem p: its task other is not in problems\.tasks"):
        gather([Problem("p", "other", "How many?", "1", rationale="t")], section(), None, tasks)
    with pytest.raises(CirfError, match="problem p: duplicate id"):
        gather([blank, blank], section(), None, tasks)


def test_a_formula_states_the_answer_in_any_notation() -> None:
    problem = Problem("1", "", "Where?", "( 3, \\frac{\\pi}{2} )")
    task = rows_in_memory([{"question": "Where?", "answer": problem.answer}], "mine")[0]
    assert stated_answer("So it is $\\boxed{\\left( 3, \\frac{\\pi}{2} \\right)}.$", problem, task) is not None
    assert task.equal(stated_answer("It is $\\boxed{\\left( 3, \\frac{\\pi}{2} \\right)}.$", problem, task) or "", problem)


def test_a_name_with_initials_states_the_answer_whole() -> None:
    task, [problem] = rows_in_memory([{"question": "Who wrote it?", "answer": "Philip K. Dick"}], "mine")
    assert stated_answer("So the answer is Philip K. Dick. It came out in 1968.", problem, task) == "Philip K. Dick"
    assert stated_answer("So the answer is plan B. It came out in 1968.", problem, task) == "plan B"


def words(text: str) -> int:
    return len(text.split())


def run(problems, tasks, rationales=None, segments=None):
    return check(problems, rationales or schema.Rationales(), segments or schema.Segments(), schema.Results(), tasks, words)


def test_counts_by_hand(tasks) -> None:
    problems = [
        Problem("a", "sums", "How many?", "7", rationale="Step 1: she has 3\nStep 2: then 3 + 4 = 7"),
        Problem("b", "sums", "How many more?", "5", rationale="no marks here"),
        Problem("c", "sums", "How many less?", "5"),
        Problem("d", "picks", "Where?", "B", choices=("tree", "water"), rationale="Step 1: the answer is B"),
    ]
    found = run(problems, tasks, segments=schema.Segments(by="ordinal"))
    sums = found.tasks["sums"]
    assert (sums.problems, sums.usable, sums.rationales) == (3, 1, 2)
    assert sums.unusable == {"no rationale": 1, "no segment": 1}
    assert sums.share_segmentable == 0.5
    assert sums.rationale_tokens == words(problems[0].rationale) + 1 == 14
    assert sums.trace_tokens == 2 + 2 + 1 + 1 + 1  # delimiters, codes, one result, answer, end
    assert sums.speedup == 2.0
    assert found.total.problems == 4
    assert found.total.usable == 2
    assert found.total.steps["mean"] == 1.5
    assert list(found.tasks) == ["sums", "picks"]
    assert json.loads(json.dumps(found.to_dict()))["total"]["usable"] == 2


def test_nothing_usable_is_reported_not_raised(tasks) -> None:
    found = run([Problem("c", "sums", "How many?", "5")], tasks)
    assert found.total.unusable == {"no rationale": 1}
    assert (found.total.rationale_tokens, found.total.trace_tokens, found.total.speedup) == (None, None, None)
    assert found.total.share_segmentable is None


@pytest.mark.parametrize("kept", [1, 2])
def test_a_problem_with_one_good_rationale_is_usable(kept: int, tasks, write) -> None:
    path = write("r.jsonl", [{"id": "a", "rationale": "no marks"}, {"id": "a", "rationale": "Step 1: 3 + 4 = 7"}])
    problems = [Problem("a", "sums", "How many?", "7")]
    rationales = schema.Rationales(files=(path,), per_problem=kept)
    found = run(problems, tasks, rationales, schema.Segments(by="ordinal"))
    assert found.total.usable == kept - 1
    assert found.total.unusable == ({"no segment": 1} if kept == 1 else {})


@each_row(
    ("task", "answer", "choices", "text"),
    [
        ("gsm8k", "12", None, "I can't be sure of a short way, so I count.\nThere are 12."),
        ("gsm8k", "12", None, "Sorry, Ann said, and gave 3 of 15 back.\nThat leaves twelve."),
        ("gsm8k", "36", None, "Ann has three dozen eggs."),
        ("gsm8k", "125", None, "That comes to one hundred and twenty-five."),
        ("gsm8k", "12", None, "Das macht zw\u00f6lf."),
        ("gsm8k", "12", None, "\u4e00\u5171\u6709\u5341\u4e8c\u4e2a\u3002"),
        ("commonsense_qa", "B", ("10", "12"), "\u56e0\u6b64\u9009B\u3002"),
        ("commonsense_qa", "B", ("10", "12"), "3*4 is twelve."),
        ("commonsense_qa", "B", ("$1,000", "$1,200"), "It costs 1200 dollars."),
        ("commonsense_qa", "B", ("1/4", "1/2"), "So it is \\frac{1}{2} of them."),
        ("commonsense_qa", "B", ("Paris.", "London."), "So it is London then"),
    ],
)
def test_what_names_the_answer_in_another_form_may_reach_it(
    task: str, answer: str, choices: tuple[str, ...] | None, text: str
) -> None:
    problem = Problem("train-0", task, "Which is it?", answer, choices)
    assert may_reach(text, problem, get(task))
    assert not may_reach("Let us see what is there.\nThen we", problem, get(task))
    assert not may_reach(f"I'm sorry, but I can't help with that. {text}", problem, get(task))
