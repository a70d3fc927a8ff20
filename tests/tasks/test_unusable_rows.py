"""Rows that cannot be used: dropped and listed up to a share of their file, above which a run stops; repeated options."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tables import each_row

from cirf.errors import CirfError
from cirf.recipe.schema import Problems
from cirf.tasks.loading.load import LoadedProblems, load_problems
from cirf.tasks.loading.unusable import Tolerance, listed
from cirf.tasks.own_rows import read_split
from cirf.tasks.parsing.answers import parse_answer


def write(path: Path, rows: Sequence[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), encoding="utf-8")
    return path


def pens(count: int) -> list[Any]:
    return [{"question": f"Eva has {n} pens and gets 3. How many?", "answer": n + 3} for n in range(count)]


def load(train: Path, test: Path | None = None, **keys: Any) -> LoadedProblems:
    entry = {"task": "jsonl", "name": "pens", "train_file": str(train)} | ({"test_file": str(test)} if test else {})
    return load_problems(Problems.model_validate({"tasks": [entry], "validation": 0.0, **keys}), 1)


def spoilt(rows: list[Any], *places: int) -> list[Any]:
    return [{"question": "no more"} if place in places else row for place, row in enumerate(rows)]


def test_a_few_are_dropped_counted_and_listed(tmp_path: Path) -> None:
    rows = spoilt(pens(60), 7, 30)
    rows[41] = "{"
    loaded = load(write(tmp_path / "mine.jsonl", rows), write(tmp_path / "test.jsonl", pens(5)))
    (file,) = loaded.unusable
    assert file.dropped == (
        "mine.jsonl: 3 of 60 rows cannot be used and are dropped: the field answer is missing (2: lines 8, 31), "
        "not valid JSON (1: line 42)"
    )
    assert [(row.file, row.line, row.reason) for row in listed(loaded.unusable, "problems")] == [
        ("mine.jsonl", 8, "the field answer is missing"),
        ("mine.jsonl", 31, "the field answer is missing"),
        ("mine.jsonl", 42, "not valid JSON"),
    ]
    assert loaded.report["dropped"] == {
        "the field answer is missing": 2,
        "not valid JSON": 1,
        "question is also in the test": 5,
    }
    assert [(summary["file"], summary["rows"], summary["unusable"]) for summary in loaded.report["unusable"]] == [
        ("mine.jsonl", 60, 3)
    ]
    assert json.loads(json.dumps(loaded.report)) == loaded.report


def test_the_others_keep_their_ids(tmp_path: Path) -> None:
    clean = load(write(tmp_path / "a" / "mine.jsonl", pens(60)), write(tmp_path / "test.jsonl", pens(1)))
    rows = spoilt(pens(60), 7)
    rows[3] = "["
    found = load(write(tmp_path / "b" / "mine.jsonl", rows), tmp_path / "test.jsonl")
    wanted = {problem.id: problem.question for problem in clean.train}
    assert {problem.id: problem.question for problem in found.train} == {
        name: question for name, question in wanted.items() if name not in ("pens/train/3", "pens/train/7")
    }


def test_above_the_bound_the_run_stops_and_names_the_key(tmp_path: Path) -> None:
    mine = write(tmp_path / "mine.jsonl", spoilt(pens(50), 4, 9, 14, 19, 24, 29))
    with pytest.raises(CirfError) as caught:
        load(mine)
    assert str(caught.value) == (
        f"{mine}: 6 of 50 rows (12 %) cannot be used, more than problems.max_unusable_share: 0.05 allows: the field answer "
        "is missing (6: lines 5, 10, 15, ...); fix them, or raise problems.max_unusable_share"
    )
    assert len(load(mine, max_unusable_share=0.12).unusable[0].errors) == 6  # the bound itself is allowed
    with pytest.raises(CirfError, match=r"more than problems\.max_unusable_share: 0\.11 allows"):
        load(mine, max_unusable_share=0.11)
    with pytest.raises(CirfError, match=r"mine\.jsonl, line 5: the field answer is missing; every row"):
        load(mine, max_unusable_share=0)


def test_every_file_is_held_to_the_bound_by_itself(tmp_path: Path) -> None:
    train = write(tmp_path / "train.jsonl", pens(200))
    test = write(tmp_path / "test.jsonl", spoilt(pens(10), 2))
    with pytest.raises(CirfError, match=r"test\.jsonl: 1 of 10 rows \(10 %\) cannot be used"):
        load(train, test)
    assert [file.file for file in load(train, test, max_unusable_share=0.1).unusable] == ["test.jsonl"]


def test_nothing_usable_is_said_as_such_whatever_the_bound(tmp_path: Path) -> None:
    with pytest.raises(CirfError, match=r"no usable row: not valid JSON \(2: lines 1, 2\)"):
        load(write(tmp_path / "mine.jsonl", ["{", "{"]), max_unusable_share=1)
    write(tmp_path / "multiarith" / "train.jsonl", [{"question": "q"}, {"final_ans": "3"}])
    section = Problems.model_validate({"tasks": [{"task": "multiarith"}], "data": str(tmp_path), "max_unusable_share": 1})
    with pytest.raises(CirfError, match=r"multiarith/train\.jsonl: no usable row: the column"):
        load_problems(section, 1)


def test_published_rows_are_let_pass_alike(tmp_path: Path) -> None:
    rows: list[Any] = [{"question": f"Ann has {n} pens and buys 2. How many?", "final_ans": str(n + 2)} for n in range(40)]
    whole = [row["question"] for row in rows]
    rows[5], rows[9] = "{", {"question": "q", "final_ans": "none"}
    write(tmp_path / "multiarith" / "train.jsonl", rows)
    write(tmp_path / "multiarith" / "test.jsonl", [{"question": "What is 1 and 1?", "final_ans": "2"}])
    section = Problems.model_validate({"tasks": [{"task": "multiarith"}], "data": str(tmp_path), "validation": 0.0})
    loaded = load_problems(section, 1)
    assert [(row.file, row.line, row.reason) for row in listed(loaded.unusable, "problems")] == [
        ("multiarith/train.jsonl", 6, "not valid JSON"),
        ("multiarith/train.jsonl", 10, "not a row of multiarith"),
    ]
    assert {problem.id: problem.question for problem in loaded.train} == {
        f"multiarith/train/{place}": question for place, question in enumerate(whole) if place not in (5, 9)
    }
    with pytest.raises(CirfError, match=r"train\.jsonl: 1 of 40 rows \(2\.5 %\) .* 0\.02 allows: .*line 6: not valid JSON \("):
        load_problems(section.model_copy(update={"max_unusable_share": 0.02}), 1)


@pytest.mark.parametrize("allowed", [0.0, 0.05])
@pytest.mark.parametrize(
    ("task", "file", "good", "bad"),
    [
        ("multiarith", "train", {"question": "Ann has 1 pen.", "final_ans": "1"}, {"question": "q", "final_ans": "none"}),
        ("multiarith", "test", {"question": "Ann has 1 pen.", "final_ans": "1"}, {"question": "q", "final_ans": None}),
        ("multiarith", "train", {"question": "Ann has 1 pen.", "final_ans": "1"}, {"question": " ", "final_ans": "2"}),
        ("gsm8k", "train", {"question": "Ann has 1 pen.", "answer": "1 + 1 = 2\n#### 2"}, {"question": "q", "answer": "no mark"}),
    ],
)
def test_rows_that_are_malformed_as_published_stop_no_run(
    tmp_path: Path, task: str, file: str, good: dict[str, str], bad: dict[str, Any], allowed: float
) -> None:
    for split in ("train", "test"):
        rows = [good | {"question": f"{split}: Ann has {place} pens."} for place in range(3)]
        write(tmp_path / task / f"{split}.jsonl", [rows[0], bad, *rows[1:]] if split == file else rows)
    data = {"tasks": [{"task": task}], "data": str(tmp_path), "validation": 0.0, "max_unusable_share": allowed}
    loaded = load_problems(Problems.model_validate(data), 1)
    assert (len(loaded.train), len(loaded.test[task])) == (3, 3)
    assert [(row.file, row.line) for row in listed(loaded.unusable, "problems")] == [(f"{task}/{file}.jsonl", 2)]
    assert sum(loaded.report["dropped"].values()) == 1
    of_file = loaded.train if file == "train" else loaded.test[task]
    assert [problem.id for problem in of_file] == [f"{task}/{file}/{place}" for place in (0, 2, 3)]


JUNK = st.sampled_from(
    ["{", "[1]", {"question": "q"}, {"answer": "1"}, {"question": " ", "answer": "1"}, {"question": "q", "answer": None}]
)


@given(junk=st.lists(st.tuples(st.integers(0, 30), JUNK), max_size=12), allowed=st.sampled_from((0.05, 0.2, 0.5, 1.0)))
@example(junk=[(0, "{"), (2, "[1]")], allowed=0.2)
@example(junk=[(0, "{"), (1, "[1]")], allowed=0.2)
def test_every_row_is_kept_or_reported(tmp_path_factory: pytest.TempPathFactory, junk: list[Any], allowed: float) -> None:
    folder = tmp_path_factory.mktemp("rows")
    rows = pens(30)
    for place, row in junk:
        rows.insert(place, row)
    tolerance = Tolerance(allowed)
    section = Problems.model_validate(
        {"tasks": [{"task": "jsonl", "name": "pens", "train_file": str(write(folder / "mine.jsonl", rows))}], "validation": 0.0}
    )
    try:
        loaded = load_problems(section, 1, tolerance)
    except CirfError as error:
        assert len(junk) / len(rows) > allowed and "problems.max_unusable_share" in str(error) and "\n" not in str(error)
        return
    assert len(junk) / len(rows) <= allowed
    assert len(loaded.train) + len(loaded.test["pens"]) == 30
    assert len(listed(loaded.unusable, "problems")) == len(junk)
    assert all(rows[row.line - 1] in [one for _, one in junk] for row in listed(loaded.unusable, "problems"))


PICK = {
    "question": "How far does a tram at 30 km/h go in two hours?",
    "choices": ["15 km", "60 km", "15 km", "90 km"],
    "answer": "B",
}


def test_wrong_options_may_occur_twice(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.jsonl", [PICK, PICK | {"answer": "60 km"}])
    problems = read_split(path, "option")
    assert [problem.answer for problem in problems] == ["B", "B"]
    assert problems[0].choices == ("15 km", "60 km", "15 km", "90 km")


@pytest.mark.parametrize("answer", ["A", "C", "(c)", "15 km", " 15  km "])
def test_the_right_option_may_not(tmp_path: Path, answer: str) -> None:
    path = write(tmp_path / "mine.jsonl", [PICK | {"answer": answer}])
    with pytest.raises(CirfError, match=r"line 1: the right option, '15 km', occurs twice; reword or remove the other one"):
        read_split(path, "option")


def test_options_that_differ_in_case_are_different(tmp_path: Path) -> None:
    row = {"question": "Which genotype is heterozygous?", "choices": ["AA", "Aa", "aa"]}
    path = write(tmp_path / "mine.jsonl", [row | {"answer": "B"}, row | {"answer": "Aa"}])
    assert [problem.answer for problem in read_split(path, "option")] == ["B", "B"]
    path = write(tmp_path / "other.jsonl", [row | {"choices": ["Bb", "bb", "b"], "answer": "BB"}])
    with pytest.raises(CirfError, match="line 1: answer 'BB' is the text of several options; write the letter"):
        read_split(path, "option")


@each_row(
    ("text", "letter"),
    [
        ("B", "B"),
        ("60 km", "B"),
        ("#### 60 km", "B"),
        ("15 km", None),  # the text of two options
        ("The answer is 15 km.", None),
        ("The answer is C. 15 km", "C"),
        ("The answer is C, 15 km.", "C"),
        ("The answer is C: 15 km", "C"),
        ("#### C, 60 km", None),
    ],
)
def test_an_answer_by_the_text_of_a_repeated_option_settles_on_none(text: str, letter: str | None) -> None:
    assert parse_answer("option", text, PICK["choices"]) == letter
