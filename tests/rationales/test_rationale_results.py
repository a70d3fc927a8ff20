"""Results of steps: by rule, from a file, none; short and safe inside a trace."""

import dataclasses

import pytest

from cirf.errors import CirfError
from cirf.rationales import results as module
from cirf.rationales.results import statistics, write_results
from cirf.recipe import schema
from cirf.records import Problem, Steps
from cirf.tasks.steps import produced
from cirf.tasks.steps.calculations import numbers_used
from cirf.tasks.task import Task

STEPS = [
    Steps("sums/train/a", 0, "line", ("She buys 4 pens.", "That is 3+4 = <<3+4=7>>7 pens.")),
    Steps("sums/train/b", 1, "line", ("10 - 2.5 = 7.5 pies are left.",)),
]


def test_by_rule_and_none(problems, tasks) -> None:
    assert write_results(STEPS, problems, tasks, schema.Results(working="drop")) == [("", "7"), ("7.5",)]
    assert write_results(STEPS, problems, tasks, schema.Results(by="none")) == [("", ""), ("",)]


def test_the_last_steps_result_may_be_left_out(problems, tasks) -> None:
    bare = schema.Results(working="drop", last="drop")
    assert write_results(STEPS, problems, tasks, bare) == [("", ""), ("",)]
    three = [Steps("sums/train/a", 0, "line", ("2 * 6 = 12.", "3 * 5 = 15.", "12 + 15 = 27."))]
    assert write_results(three, problems, tasks, bare) == [("12", "15", "")]
    assert write_results(three, problems, tasks, schema.Results(working="drop")) == [("12", "15", "27")]


def test_of_several_equations_those_that_later_steps_use_are_kept_too(problems, tasks) -> None:
    segments = (
        "She has 2 * 6 = 12 clips, 5 * 8 = 40 pegs and 10 - 7 = 3 pins.",  # no later step counts the pegs
        "In all 6 + 12 + 3 = 21 of them are hers.",
        "She keeps 21 - 1 = 20, and 20 / 5 = 4 go into each box.",
    )
    steps = [Steps("sums/train/a", 0, "line", segments)]
    assert write_results(steps, problems, tasks, schema.Results(working="drop")) == [("3", "21", "4")]
    assert write_results(steps, problems, tasks, schema.Results(values="used", working="drop")) == [("12, 3", "21", "4")]
    both = schema.Results(values="used", units="keep", working="drop")
    assert write_results(steps, problems, tasks, both) == [("12 clips, 3 pins", "21", "4 go")]
    assert write_results(steps, problems, tasks, schema.Results(units="keep", working="drop"))[0][0] == "3 pins"
    worked = [("2*6=12, 10-7=3", "6+12+3=21", "20/5=4")]
    assert write_results(steps, problems, tasks, schema.Results(values="used", working="keep")) == worked
    short = schema.Results(values="used", working="keep", units="keep", max_characters=16)  # too long a result goes without
    assert write_results(steps, problems, tasks, short) == [("12 clips, 3 pins", "6+12+3=21", "20/5=4 go")]
    parts = [Steps("sums/train/a", 0, "line", ("It is 2 * 6 = 12 and 9 - 1 = 8.", "Then 12/4 = 3 of them, and 3 + 8 = 11."))]
    assert write_results(parts, problems, tasks, schema.Results(values="used", working="drop"))[0][0] == "12, 8"
    none = [Steps("sums/train/a", 0, "line", ("It is 3 + 4 = 7.", "So she has 7 of the 9."))]
    assert write_results(none, problems, tasks, schema.Results(values="used", working="drop")) == [("7", "7")]


def test_each_step_is_read_once_for_the_values_that_later_steps_use(problems, tasks, monkeypatch) -> None:
    segments = tuple(f"{place} + 1 = {place + 1}, and {place} + 5 = {place + 5}." for place in range(60))
    read: list[str] = []

    def counting(*texts: str):
        read.extend(texts)
        return numbers_used(*texts)

    monkeypatch.setattr(module, "numbers_used", counting)
    steps = [Steps("sums/train/a", 0, "line", segments)]
    written = write_results(steps, problems, tasks, schema.Results(values="used", working="drop"))
    assert read == list(segments)  # before, each was read once for every step before it
    assert written[0][0] == "1, 5"


def test_a_step_that_goes_through_several_options_has_no_result(problems, tasks) -> None:
    steps = [Steps("picks/train/d", 0, "option", ("A. tree: no.\nB. water: yes.\nC. roof: no.", "So the answer is B."))]
    assert write_results(steps, problems, tasks, schema.Results()) == [("", "B")]
    each = [Steps("picks/train/d", 0, "option", ("A. tree: no.", "B. water: yes.", "So the answer is B."))]
    assert write_results(each, problems, tasks, schema.Results()) == [("A", "B", "B")]
    compared = "Overall, comparing them:\nA. tree is wrong.\nB. water is right, so the answer is B."
    settles = [Steps("picks/train/d", 0, "option", ("A. tree: no.", "B. water: yes.", compared))]
    assert write_results(settles, problems, tasks, schema.Results()) == [("A", "B", "B")], "a step that settles on one has it"
    later = [Steps("picks/train/d", 0, "line", ("Trees are dry.", "Fish need water.", "A tree is dry.", "Roofs are dry."))]
    assert write_results(later, problems, tasks, schema.Results()) == [("A", "B", "", "")], "after the answer others are wrong"
    ruled_out = [Steps("picks/train/d", 0, "line", ("Fish need water.", "Hence it is not a tree."))]
    assert write_results(ruled_out, problems, tasks, schema.Results())[0][0] == "B"
    assert write_results(ruled_out, problems, tasks, schema.Results())[0][1] != "A"


@pytest.mark.parametrize(
    ("last", "result"),
    [
        ("Monet painted it in 1872.", "Monet"),
        ("Monet was the founder of the movement.", "Monet"),
        ("Its subject is a harbour, which makes the painter Monet.", "Monet"),
        ("Manet was the founder of the movement.", "founder of the movement"),
        ("It was not Monet.", "not Monet"),
        ("Monet made 1870 + 2 = 1872 of them.", "1872"),
        ("1872", "1872"),
        ("6.2, 12.7, 9", "6.2, 12.7, 9"),
    ],
)
def test_the_last_step_has_the_answer_that_it_names(last: str, result: str) -> None:
    problem = Problem("texts/train/a", "texts", "Who is the painter of the harbour?", "Monet")
    task = Task(name="texts", title="Texts", summary="", answer="text", rule=produced)
    steps = [Steps("texts/train/a", 0, "line", ("It hangs in Paris.", last))]
    assert write_results(steps, [problem], {"texts": task}, schema.Results(working="drop"))[0][1] == result


def test_a_sum_of_an_unknown_that_a_step_before_it_names_is_a_result(problems) -> None:
    task = Task(name="sums", title="Sums", summary="", answer="number", rule=produced)
    segments = ("Let x be the number of pens.", "She has x - 2 left.", "He has 3x pens.", "One weighs 5y grams.")
    steps = [Steps("sums/train/a", 0, "line", segments)]
    assert write_results(steps, problems, {"sums": task}, schema.Results()) == [("x", "x-2", "3x", "")]


def test_the_rule_sees_earlier_results(problems) -> None:
    count = Task(name="n", title="", summary="", answer="number", rule=lambda segment, problem, previous: str(len(previous)))
    assert write_results(STEPS, problems, {"sums": count}, schema.Results()) == [("0", "1"), ("0",)]


def test_long_and_unsafe_results_are_left_empty(problems, write) -> None:
    rows = [
        {"problem": "sums/train/a", "sample": 0, "results": ["a text of twenty-six chars", " two\n words "]},
        {"problem": "sums/train/b", "sample": 1, "results": ["7</cirf>8"]},
    ]
    section = schema.Results(by="file", file=write("results.jsonl", rows), max_characters=20)
    tasks = {"sums": Task(name="sums", title="", summary="", answer="number", rule=lambda segment, problem, previous: "")}
    assert write_results(STEPS, problems, tasks, section) == [("", "two words"), ("",)]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"problem": "sums/train/a", "results": ["7"]}], r"line 1: 1 results for the 2 steps of problem sums/train/a, sample 0"),
        (
            [{"problem": "sums/train/a", "results": ["", "7"]}],
            r"no row for problem sums/train/b, sample 1; add one with 1 results",
        ),
        ([{"results": ["", "7"]}], r"line 1: `problem` must be"),
        ([{"problem": "x", "sample": "0", "results": []}], r"line 1: `sample` must be"),
        ([{"problem": "x", "results": [1]}], r"line 1: `results` must be a list of texts"),
        ([{"problem": "x", "results": []}, {"problem": "x", "results": []}], r"line 2: problem x, sample 0 occurs twice"),
    ],
)
def test_files_that_do_not_fit(rows, message: str, problems, tasks, write) -> None:
    section = schema.Results(by="file", file=write("results.jsonl", rows))
    with pytest.raises(CirfError, match=rf"results\.jsonl.*{message}"):
        write_results(STEPS, problems, tasks, section)


@pytest.mark.parametrize(("maximum", "result"), [(40, ""), (60, "x" * 50)])
def test_the_longest_result_is_the_recipes_for_rules_too(maximum: int, result: str, problems) -> None:
    wordy = Task(name="n", title="", summary="", answer="text", rule=lambda segment, problem, previous: "x" * 50)
    section = schema.Results(max_characters=maximum)
    assert write_results(STEPS[1:], problems, {"sums": wordy}, section) == [(result,)]


def test_missing_file_and_foreign_steps(problems, tasks) -> None:
    with pytest.raises(CirfError, match=r"results\.file: not set"):
        write_results(STEPS, problems, tasks, schema.Results(by="file"))
    with pytest.raises(CirfError, match=r"results\.file: no file nowhere"):
        write_results(STEPS, problems, tasks, schema.Results(by="file", file="nowhere"))
    with pytest.raises(CirfError, match=r"steps of problem gone: no such training problem"):
        write_results([dataclasses.replace(STEPS[0], problem="gone")], problems, tasks, schema.Results())


def test_a_new_writer_is_one_line_in_the_registry(problems, tasks, monkeypatch) -> None:
    def shout(steps, problem, task):
        return tuple(segment[:3].upper() for segment in steps.segments)

    monkeypatch.setitem(module.WRITERS, "rule", lambda section, data: shout)
    assert write_results(STEPS, problems, tasks, schema.Results())[0] == ("SHE", "THA")


def test_statistics() -> None:
    found = statistics([("", "72"), ("",), ("4",)])
    assert found == {"steps": 4, "share_empty": 0.5, "mean_characters": 1.5, "rows_without_results": 1}
    assert statistics([])["share_empty"] == 0.0


def test_the_keys_mean_the_same_for_options() -> None:
    problem = Problem("picks/train/e", "picks", "How heavy is the third of them?", "A", choices=("45 g", "55 g"))
    task = Task(name="picks", title="Picks", summary="", answer="option", rule=produced)
    segments = (
        "Let X be its weight.",
        "40 + 35 + X = 30 * 4",
        "=> 75 + X = 120",
        "5 * 9 = 45 g and 2 * 8 = 16 g",
        "45 + 3 = 48 g",
        "Answer: A",
    )
    steps = [Steps("picks/train/e", 0, "line", segments)]

    def written(**keys) -> tuple[str, ...]:
        return write_results(steps, [problem], {"picks": task}, schema.Results(**({"working": "drop"} | keys)))[0]

    assert written() == ("X", "40+35+X=30*4", "120", "16", "48", "A")
    assert written(working="keep") == ("X", "40+35+X=30*4", "75+X=120", "2*8=16", "45+3=48", "A")
    assert written(units="keep")[3:] == ("16 g", "48 g", "A")
    assert written(values="used")[3:] == ("45, 16", "48", "A")
