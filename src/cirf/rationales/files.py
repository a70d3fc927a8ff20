"""Rationale files: their locations, the fields of a row, and the problem that a row belongs to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cirf.assets import data_folder
from cirf.assets.benchmarks import catalogue
from cirf.errors import CirfError
from cirf.records import Problem
from cirf.store.jsonl import Refused, RowError, sorting_out
from cirf.store.row_files import read_row_file
from cirf.tasks.loading.layouts import plain_row, type_name
from cirf.tasks.loading.questions import question_key


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a rationale file. ``where`` names file and line for messages; ``rationale`` may be thoughts and an explanation;
    ``answer`` is what the text ends in, if said."""

    where: str
    rationale: str
    question: str | None
    id: str | None
    answer: str | None


def find_file(name: str, data: str | None, what: str) -> Path:
    """The file meant by ``name``: as given, in the data folder (``None``: the one that ``cirf data get`` fills), in its
    ``rationales`` folder, with or without ``.jsonl``. Raises ``CirfError`` naming the key (``what``) and the places looked at."""
    mirror = data_folder() if data is None else Path(data)
    folders = [Path(), mirror, mirror / "rationales"]
    tried = [folder / f"{name}{ending}" for folder in folders for ending in ("", ".jsonl")]
    for path in tried:
        if path.is_file():
            return path
    places = ", ".join(str(path) for path in tried[::2])
    raise CirfError(
        f"{what}: no file {name} (looked for {places}, each also with .jsonl); correct the name, give --data DIR, or "
        + (
            "bring rows of your own or leave it out: `cirf data get` has no address of it"
            if any(file.by_hand and name.removesuffix(".jsonl") in file.names for file in catalogue())
            else "fetch a public file with `cirf data get`"
        )
    )


def read_rationales(path: Path, refused: Refused | None = None) -> list[Row]:
    """The rows of a rationale file; the first malformed one raises ``CirfError`` naming file, line, field and fix. A row holds
    ``rationale`` and at least one of ``question`` and ``id``; ``answer`` may be there. One id may occur in several rows (several
    samples) but only with one question. Malformed rows go to ``refused`` if it is given."""
    before = len(refused or ())
    rows: list[Row] = []
    first: dict[str, Row] = {}
    file = read_row_file(path, refused)
    for number, raw in file.rows:
        with sorting_out(refused):
            where = f"{path}, {file.word} {number}"
            row = _row(plain_row(raw, where, answered=False), where)
            other = first.setdefault(row.id, row) if row.id is not None else row
            asked = {question_key(one.question) for one in (row, other) if one.question is not None}
            if len(asked) > 1:
                there = other.where.rpartition(", ")[2]
                message = f"duplicate id {row.id}, with another question than on {there}; make ids unique"
                raise RowError(row.where, message, "its id occurs with another question already")
            rows.append(row)
    if not rows and len(refused or ()) == before:
        raise CirfError(f"{path}: the file is empty; give one JSON object a line with question and rationale")
    return rows


def _row(raw: Mapping[str, Any], where: str) -> Row:
    question, name, answer = (_optional(raw, field, where) for field in ("question", "id", "answer"))
    row = Row(where, _text(raw, "rationale", where), question, name, answer)
    if row.question is None and row.id is None:
        raise RowError(where, "neither `question` nor `id`; add the question's text so that the row can be matched")
    return row


class Matcher:
    """Finds the training problems that a row speaks of, by id and by question."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self._by_id: dict[str, Problem] = {}
        self._by_question: dict[str, list[Problem]] = {}
        self._by_source_id: dict[str, list[Problem]] = {}
        for problem in problems:
            if problem.id in self._by_id:
                raise CirfError(f"problem {problem.id}: duplicate id among the training problems; make ids unique")
            self._by_id[problem.id] = problem
            self._by_question.setdefault(question_key(problem.question), []).append(problem)
            self._by_source_id.setdefault(problem.id.split("/", 2)[-1], []).append(problem)  # TABLE/SPLIT/ROW

    def candidates(self, row: Row) -> list[Problem]:
        """The problems a row may speak of: those with its question (of them the one with its id), else the one with its id. A
        question in other words than the named problem's (options added, say) must share half of its words. An id may also be the
        last part of a problem's (``chal-2`` of ``svamp/train/chal-2``); without a question it must then be the only such."""
        named = self._by_id.get(row.id) if row.id is not None else None
        asked = self._by_question.get(question_key(row.question), []) if row.question is not None else []
        if named is not None and (named in asked or (not asked and _alike(named.question, row.question))):
            return [named]
        of_source = self._by_source_id.get(row.id, []) if row.id is not None else []
        if row.question is None:
            return of_source if len(of_source) == 1 else []
        return [problem for problem in asked if problem in of_source] or list(asked)


def _alike(question: str, other: str | None) -> bool:
    """Whether half of a question's words occur in another text; true without another text."""
    words = set(question_key(question).split())
    return other is None or 2 * len(words & set(question_key(other).split())) >= len(words)


def _text(raw: Mapping[str, Any], field: str, where: str) -> str:
    if field not in raw:
        raise RowError(where, f"no field `{field}`; add it or remove the row")
    value = raw[field]
    if not isinstance(value, str):
        raise RowError(
            where, f"`{field}` is {type_name(value)}, expected a string; write it in quotes", f"`{field}` is not a text"
        )
    if not value.strip():
        raise RowError(where, f"`{field}` is empty; fill it in or remove the row")
    return value


def _optional(raw: Mapping[str, Any], field: str, where: str) -> str | None:
    """A text that may be missing; numbers and booleans are taken as they read (an answer 72, an id 5, an answer true)."""
    value = raw.get(field)
    if value is None:
        return None
    if isinstance(value, bool) and field == "answer":
        return "yes" if value else "no"
    if isinstance(value, int | float) and not isinstance(value, bool) and field != "question":
        return str(value)
    return _text(raw, field, where)
