"""A user's own file: what is accepted, what is inferred, and one clear line for each mistake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cirf.errors import CirfError
from cirf.recipe.schema import TaskEntry
from cirf.store.jsonl import by_reason
from cirf.tasks.loading.unusable import Tolerance
from cirf.tasks.own_rows import build_task, read_split, train_path
from cirf.tasks.own_rows import test_path as path_of_test


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), encoding="utf-8")
    return path


def entry(path: Path, **more: Any) -> TaskEntry:
    return TaskEntry.model_validate({"task": "jsonl", "train_file": str(path), **more})


SUM = {"question": "What is 3 + 4?", "answer": "7"}
PICK = {"question": "Which is a fruit?", "choices": ["chair", "apple"], "answer": "B"}


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        (["7", "1,200", "-3.5"], "number"),
        (["+6", "4", "-2"], "number"),
        (["+1.5", "+ 3"], "number"),
        (["minus 7", "7 below zero", "3"], "number"),
        (["7", "+ and -"], "text"),
        ([7, 3.5], "number"),
        (["yes", "No"], "yesno"),
        ([True, False], "yesno"),
        (["7", "Paris"], "text"),
        (["May 5"], "text"),
    ],
)
def test_the_kind_is_inferred(tmp_path: Path, answers: list[Any], kind: str) -> None:
    path = write(tmp_path / "d.jsonl", *({"question": f"q{i}", "answer": answer} for i, answer in enumerate(answers)))
    assert build_task(entry(path), None).answer == kind


def test_choices_make_options_and_letters_or_texts_are_answers(tmp_path: Path) -> None:
    path = write(tmp_path / "d.jsonl", PICK, {**PICK, "answer": "chair"}, {**PICK, "answer": "(b)"})
    task = build_task(entry(path, name="mine"), None)
    assert (task.name, task.answer) == ("mine", "option")
    assert [problem.answer for problem in read_split(path, "option")] == ["B", "A", "B"]


def test_signs_of_answers_are_read(tmp_path: Path) -> None:
    given = {"+6": "6", "+$1.50": "1.5", "minus 7": "-7", "7 below zero": "-7", "negative 2": "-2"}
    path = write(tmp_path / "d.jsonl", *({"question": f"q{i}", "answer": answer} for i, answer in enumerate(given)))
    assert [problem.answer for problem in read_split(path, "number")] == list(given.values())


def test_answers_become_canonical(tmp_path: Path) -> None:
    path = write(
        tmp_path / "d.jsonl",
        {"question": "a", "answer": "$1,200.00"},
        {"question": "b", "answer": 0.5},
        {"question": "c", "answer": "1/2"},
        {"question": "d", "answer": "2 3/4"},
    )
    assert [problem.answer for problem in read_split(path, "number")] == ["1200", "0.5", "1/2", "2 3/4"]
    path = write(tmp_path / "e.jsonl", {"question": "a", "answer": True}, {"question": "b", "answer": "NO"})
    assert [problem.answer for problem in read_split(path, "yesno")] == ["yes", "no"]


def test_decimal_commas_are_settled_by_the_file(tmp_path: Path) -> None:
    train = write(
        tmp_path / "d.jsonl",
        {"question": "a", "answer": "1.250", "rationale": "1,5 + 1.248,5 = 1.250"},
        {"question": "b", "answer": "-2,125 €", "rationale": "1{,}5 - 3,625 = -2,125"},
        {"question": "c", "answer": 1.125},
    )
    test = write(tmp_path / "e.jsonl", {"question": "d", "answer": "2.500"})  # 2500 by the other file
    both = entry(train, test_file=str(test))
    task = build_task(both, None)
    assert (task.answer, task.decimal_commas) == ("number", True)
    problems = read_split(train_path(both, None), "number", commas=True) or []
    assert [problem.answer for problem in problems] == ["1250", "-2.125", "1.125"]
    assert [problem.answer for problem in read_split(path_of_test(both, None), "number", commas=True) or ()] == ["2500"]
    said = ["Die Antwort: answer is 1.250,0 €.", "#### -2,125", "#### 1.125"]  # the last as a trained model writes it
    assert all(task.equal(task.parse(text, one) or "", one) for text, one in zip(said, problems, strict=True))
    assert task.result("Es sind 1,5 + 1.248,5 = 1.250 Stück.", problems[0], ()) == "1250"


def test_texts_with_decimal_commas_stay_as_they_are_and_are_compared_by_value(tmp_path: Path) -> None:
    path = write(
        tmp_path / "d.jsonl", {"question": "Wie lang?", "answer": "1,50 km"}, {"question": "Wie alt?", "answer": "3,5 h"}
    )
    task = build_task(entry(path), None)
    (problem, _) = read_split(path, task.answer)
    assert (task.answer, problem.answer, task.equal("1,5 km", problem)) == ("text", "1,50 km", True)
    commas = [{"question": f"{n} = ?", "answer": str(n), "rationale": f"1,2 and 3,4: 1,200 + {n} = 1,20{n}"} for n in range(3)]
    assert not build_task(entry(write(tmp_path / "e.jsonl", *commas)), None).decimal_commas  # lists, by the equations


def test_ids_rationales_and_blank_lines(tmp_path: Path) -> None:
    path = write(
        tmp_path / "d.jsonl",
        {**SUM, "id": "a", "rationale": " 3 + 4 = 7 "},
        "",
        {**SUM, "id": 9, "extra": [1]},
        {**SUM, "rationale": None},
    )
    problems = read_split(path, "number")
    assert [problem.id for problem in problems] == ["a", "9", "row-2"]
    assert [problem.rationale for problem in problems] == ["3 + 4 = 7", None, None]


def test_files_are_found_under_the_data_folder(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", SUM)
    write(tmp_path / "test.jsonl", {**SUM, "question": "other"})
    both = TaskEntry.model_validate({"task": "jsonl", "train_file": "train.jsonl", "test_file": "test.jsonl"})
    assert len(read_split(train_path(both, str(tmp_path)), "number") or ()) == 1
    test = read_split(path_of_test(both, str(tmp_path)), "number")
    assert test is not None and test[0].question == "other"
    assert path_of_test(TaskEntry.model_validate({"task": "jsonl", "train_file": "train.jsonl"}), str(tmp_path)) is None


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([SUM, "{not json"], "line 2: not valid JSON"),
        ([SUM, "[1, 2]"], "line 2: expected a JSON object"),
        (["", SUM, {"answer": "7"}], "line 3: the field question is missing"),
        ([{"question": "q"}], "line 1: the field answer is missing"),
        ([{"question": "  ", "answer": "7"}], "line 1: question is empty"),
        ([{"question": "q", "answer": " "}], "line 1: answer is empty"),
        ([{"question": 3, "answer": "7"}], "line 1: question is a number, expected a string"),
        ([{"question": ["q"], "answer": "7"}], "line 1: question is a list, expected a string"),
        ([{"question": "q", "answer": None}], "line 1: answer is null"),
        ([{"question": "q", "answer": {"a": 1}}], "line 1: answer is an object"),
        ([{**SUM, "rationale": ""}], "line 1: rationale is empty"),
        ([{**SUM, "rationale": 5}], "line 1: rationale is a number, expected a string"),
        ([{**SUM, "id": "x"}, SUM, {**SUM, "id": "x"}], "line 3: id 'x' occurs already in line 1"),
        ([{**SUM, "id": "row-1"}, SUM], "line 2: id 'row-1' occurs already in line 1"),
        ([{**SUM, "id": [1]}], "line 1: id is a list"),
        ([{**PICK, "answer": "pear"}], "line 1: answer 'pear' is not among the choices; write a letter from A to B"),
        ([{**PICK, "answer": "C"}], "line 1: answer 'C' is not among the choices"),
        ([{**PICK, "choices": "apple"}], "line 1: choices is a string, expected a list of strings"),
        ([{**PICK, "choices": ["apple"]}], "line 1: choices holds 1 options"),
        ([{**SUM, "answer": float("nan")}], "line 1: NaN is not JSON"),
        ([{**SUM, "answer": float("-inf")}], "line 1: -Infinity is not JSON"),
        ([{**PICK, "choices": ["apple", " "]}], "line 1: choices holds an empty option"),
        ([{**PICK, "choices": ["apple", "apple"]}], "line 1: the right option, 'apple', occurs twice"),
        ([{**PICK, "choices": ["B", "A"], "answer": "A"}], "line 1: answer 'A' is one option's letter and another option's text"),
        ([], "holds no rows"),
    ],
)
def test_a_mistake_gets_one_line_with_file_and_row(tmp_path: Path, rows: list[Any], message: str) -> None:
    path = write(tmp_path / "mine.jsonl", *rows)
    with pytest.raises(CirfError) as caught:
        read_split(path, build_task(entry(path), None).answer)
    said = str(caught.value)
    assert message in said
    assert str(path) in said
    assert "\n" not in said


def test_a_number_beyond_all_floats_is_no_answer(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"question": "q", "answer": 1e400}\n')
    with pytest.raises(CirfError, match="line 1: answer is inf"):
        read_split(path, build_task(entry(path), None).answer)


def test_declared_kinds_are_held_to(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.jsonl", SUM, {"question": "q", "answer": "Paris"})
    with pytest.raises(CirfError, match="line 2: answer 'Paris' is not a number"):
        read_split(path, build_task(entry(path, answer="number"), None).answer)
    with pytest.raises(CirfError, match="line 1: answer '7' is neither yes nor no"):
        read_split(path, build_task(entry(path, answer="yesno"), None).answer)
    with pytest.raises(CirfError, match="line 1: the field choices is missing"):
        read_split(path, build_task(entry(path, answer="option"), None).answer)
    assert build_task(entry(path, answer="text"), None).answer == "text"


def test_missing_file_and_missing_key(tmp_path: Path) -> None:
    with pytest.raises(CirfError, match=r"nowhere\.jsonl: no such file"):
        build_task(entry(tmp_path / "nowhere.jsonl"), None)
    with pytest.raises(CirfError, match="needs train_file"):
        build_task(TaskEntry.model_validate({"task": "jsonl"}), None)


def test_a_byte_order_mark_before_a_blank_line_is_let_pass(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(("\ufeff\n" + json.dumps(SUM) + "\n\n" + json.dumps({"question": "q"}) + "\n").encode())
    with pytest.raises(CirfError, match="line 4: the field answer is missing"):
        build_task(entry(path), None)
    looking = Tolerance(0, looking=True)
    assert [problem.answer for problem in read_split(path, "number", looking)] == ["7"]
    assert [error.where for error in looking.files[0].errors] == [f"{path}, line 4"]


def test_rows_that_cannot_be_used_are_gathered_where_it_only_looks(tmp_path: Path) -> None:
    rows = [SUM, "{", {**SUM, "id": "1", "answer": "x"}, {**SUM, "rationale": ""}, {**SUM, "id": "a"}, {**SUM, "id": "a"}, "{"]
    path = write(tmp_path / "mine.jsonl", *rows)
    looking = Tolerance(0, looking=True)
    assert len(read_split(path, "number", looking)) == 2
    assert by_reason(looking.files[0].errors) == {
        "not valid JSON": {"rows": 2, "first": [f"{path}, line 2", f"{path}, line 7"]},
        "answer is not a number": {"rows": 1, "first": [f"{path}, line 3"]},
        "its id occurs in an earlier row already": {"rows": 1, "first": [f"{path}, line 6"]},
        "rationale is empty": {"rows": 1, "first": [f"{path}, line 4"]},
    }
    assert build_task(entry(path, answer="number"), None).answer == "number"
    with pytest.raises(CirfError, match=r"no usable row: not valid JSON \(2: lines 1, 2\)"):
        read_split(write(tmp_path / "bad.jsonl", "{", "{"), "number", Tolerance(0.5))


def test_answers_with_latex_are_numbers_where_all_are_else_formulas(tmp_path: Path) -> None:
    def rows(*answers: str) -> Path:
        solved = [{"problem": f"q{n}", "solution": f"It is $\\boxed{{{a}}}$.", "answer": a} for n, a in enumerate(answers)]
        return write(tmp_path / "d.jsonl", *solved)

    numbers = rows(r"\frac{3}{4}", r"\$12", r"50\%", "$8$", r"\boxed{1{,}000}", r"2\frac12")
    assert build_task(entry(numbers), None).answer == "number"
    assert [problem.answer for problem in read_split(numbers, "number")] == ["0.75", "12", "50", "8", "1000", "2.5"]
    formulas = rows(r"\sqrt{2}", "x^2+1", r"\text{red}", r"12\text{ cm}", r"\boxed{\frac{3}{4}}", "5")
    task = build_task(entry(formulas), None)
    problems = read_split(formulas, task.answer)
    assert (task.answer, problems[4].answer) == ("latex", r"\frac{3}{4}")
    said = [r"\boxed{\sqrt 2}", "The answer is $1+x^2$.", r"\boxed{\text{red}}", "#### 12", "0.75", "5"]
    assert all(task.equal(task.parse(text, one) or "", one) for text, one in zip(said, problems, strict=True))
    marked = rows("$2x$", "$$5$$", "$5", "$5 or $6", "It is red.")
    assert [problem.answer for problem in read_split(marked, "text")] == ["2x", "5", "$5", "$5 or $6", "It is red"]
    prose = rows(r"It is $\sqrt{2}$ because the diagonal of a square is longer than a side.", "Another sentence in words, see?")
    assert build_task(entry(prose), None).answer == "text"
