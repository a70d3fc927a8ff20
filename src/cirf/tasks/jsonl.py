"""A user's own problems, one JSON object a line.

    {"question": "What is 3 + 4?", "answer": "7", "rationale": "3 + 4 = 7", "id": "sum-1"}
    {"question": "Which is a fruit?", "choices": ["apple", "chair"], "answer": "A"}

``question`` and ``answer`` are required. ``answer`` may be a string, a number or true/false; for options it is a letter or an
option's text. Other keys are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cirf.errors import CirfError
from cirf.recipe import TaskEntry
from cirf.records import AnswerKind, Problem
from cirf.store import read_rows
from cirf.tasks.answers import normalise_text, number_value, parse_answer
from cirf.tasks.numerals import number_text
from cirf.tasks.steps import calculated, concluded, option_discussed
from cirf.tasks.task import ResultRule, Task

_RULES: Mapping[AnswerKind, ResultRule] = {
    "number": calculated,
    "option": option_discussed,
    "yesno": concluded,
    "text": concluded,
}
_YES_NO = {"yes": "yes", "no": "no", "true": "yes", "false": "no"}
_MOST_CHOICES = 26


def build_task(entry: TaskEntry, data: str | None) -> Task:
    """The task of a jsonl entry: its answer kind as declared or as its rows show, and the result rule of that kind."""
    kind = entry.answer or infer_kind(_checked_rows(train_path(entry, data)))
    name = entry.name or entry.task
    return Task(name=name, title=name, summary=f"rows of {entry.train_file}", answer=kind, rule=_RULES[kind])


def read_train(entry: TaskEntry, kind: AnswerKind, data: str | None) -> list[Problem]:
    """The problems of ``train_file``, in order, with the file's own ids (or row numbers from 0) and no task."""
    return read_problems(train_path(entry, data), kind)


def read_test(entry: TaskEntry, kind: AnswerKind, data: str | None) -> list[Problem] | None:
    """The problems of ``test_file``; ``None`` where the recipe names none."""
    path = test_path(entry, data)
    return None if path is None else read_problems(path, kind)


def read_problems(path: Path, kind: AnswerKind) -> list[Problem]:
    """The problems of a file; ``CirfError`` names the file, line and field of the first row that does not fit."""
    rows = _checked_rows(path)
    problems, seen = [], dict[str, int]()
    for number, (line, row) in enumerate(rows):
        own = row.get("id")
        key = str(number) if own is None else str(own)
        if key in seen:
            raise CirfError(f"{path}, line {line}: id {key!r} stands already in line {seen[key]}; every id must be its own")
        seen[key] = line
        choices = row.get("choices")
        answer = _canonical(row["answer"], kind, choices, f"{path}, line {line}")
        problems.append(
            Problem(
                id=key,
                task="",
                question=row["question"].strip(),
                answer=answer,
                choices=tuple(choice.strip() for choice in choices) if choices else None,
                rationale=row["rationale"].strip() if row.get("rationale") is not None else None,
            )
        )
    return problems


def infer_kind(rows: Sequence[tuple[int, Mapping[str, Any]]]) -> AnswerKind:
    """What the answers are: options where every row has choices, else yes/no, else numbers, else text."""
    if all(row.get("choices") for _, row in rows):
        return "option"
    answers = [str(row["answer"]).strip() for _, row in rows]
    if all(answer.casefold() in _YES_NO for answer in answers):
        return "yesno"
    return "number" if all(number_value(answer) is not None for answer in answers) else "text"


def train_path(entry: TaskEntry, data: str | None) -> Path:
    """Where the training rows lie: ``train_file`` as given, else under the data folder; ``CirfError`` if none is named."""
    if entry.train_file is None:
        raise CirfError(f"problems.tasks: {entry.name or entry.task} is a jsonl task and needs train_file")
    return _find(entry.train_file, data)


def test_path(entry: TaskEntry, data: str | None) -> Path | None:
    """Where the test rows lie, or ``None`` where the recipe names no test file."""
    return None if entry.test_file is None else _find(entry.test_file, data)


def _find(name: str, data: str | None) -> Path:
    path = Path(name).expanduser()
    if not path.exists() and data is not None and (Path(data) / name).exists():
        return Path(data) / name
    return path


def _checked_rows(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """The rows of a file with their line numbers, each with well-formed fields."""
    rows = read_rows(path)
    if not rows:
        raise CirfError(f"{path}: holds no rows; write one JSON object with question and answer a line")
    with open(path, encoding="utf-8") as file:
        lines = [number for number, line in enumerate(file, 1) if line.strip()]
    numbered = list(zip(lines, rows, strict=True))
    for line, row in numbered:
        _check(row, f"{path}, line {line}")
    return numbered


def _check(row: Mapping[str, Any], where: str) -> None:
    for field in ("question", "answer"):
        if field not in row:
            raise CirfError(f"{where}: the field {field} is missing; every row needs question and answer")
    for field in ("question", "rationale"):
        value = row.get(field)
        if value is None and field == "rationale":
            continue
        if not isinstance(value, str):
            raise CirfError(f"{where}: {field} is {_kind(value)}, expected a string")
        if not value.strip():
            hint = "; leave the field out where there is none" if field == "rationale" else ""
            raise CirfError(f"{where}: {field} is empty{hint}")
    answer = row["answer"]
    if not isinstance(answer, (str, int, float)):
        raise CirfError(f"{where}: answer is {_kind(answer)}, expected a string, a number or true/false")
    if not str(answer).strip():
        raise CirfError(f"{where}: answer is empty")
    if row.get("id") is not None and (not isinstance(row["id"], (str, int)) or isinstance(row["id"], bool)):
        raise CirfError(f"{where}: id is {_kind(row['id'])}, expected a string or a whole number")
    _check_choices(row.get("choices"), where)


def _check_choices(choices: Any, where: str) -> None:
    if choices is None:
        return
    if not isinstance(choices, list) or not all(isinstance(choice, str) for choice in choices):
        raise CirfError(f"{where}: choices is {_kind(choices)}, expected a list of strings")
    if not 2 <= len(choices) <= _MOST_CHOICES:
        raise CirfError(f"{where}: choices holds {len(choices)} options, expected 2 to {_MOST_CHOICES}")
    if any(not choice.strip() for choice in choices):
        raise CirfError(f"{where}: choices holds an empty option")
    if len({normalise_text(choice) for choice in choices}) < len(choices):
        raise CirfError(f"{where}: choices holds the same option twice")


def _canonical(answer: Any, kind: AnswerKind, choices: Sequence[str] | None, where: str) -> str:
    text = str(answer).strip()
    if kind == "text":
        return text
    if kind == "option":
        return _option(text, choices, where)
    if kind == "yesno":
        if text.casefold() not in _YES_NO:
            raise CirfError(f"{where}: answer {text!r} is neither yes nor no")
        return _YES_NO[text.casefold()]
    value = number_value(text)
    if value is None:
        raise CirfError(f"{where}: answer {text!r} is not a number; mend it, or set answer: text for the task")
    return number_text(value)


def _option(text: str, choices: Sequence[str] | None, where: str) -> str:
    if choices is None:
        raise CirfError(f"{where}: the field choices is missing; the task's answers are options")
    by_text = [chr(65 + index) for index, choice in enumerate(choices) if normalise_text(choice) == normalise_text(text)]
    letter = parse_answer("option", text, choices) if len(text.strip("()[]. ")) == 1 else None
    found = {*by_text, *([letter] if letter else [])}
    if len(found) == 1:
        return found.pop()
    if found:
        raise CirfError(f"{where}: answer {text!r} is one option's letter and another option's text; reword the choices")
    letters = f"A to {chr(64 + len(choices))}"
    raise CirfError(f"{where}: answer {text!r} is not among the choices; write a letter from {letters} or an option's text")


def _kind(value: Any) -> str:
    names = {
        dict: "an object",
        list: "a list",
        str: "a string",
        bool: "true/false",
        int: "a number",
        float: "a number",
        type(None): "null",
    }
    return names.get(type(value), type(value).__name__)
