"""A user's own problems: JSON lines, a JSON list, CSV or Parquet, in any of the layouts of `cirf.tasks.loading.layouts`.

    {"question": "What is 3 + 4?", "answer": "7", "rationale": "3 + 4 = 7", "id": "sum-1"}
    {"question": "Which is a fruit?", "choices": ["apple", "chair"], "answer": "A"}

``question`` and ``answer`` are required. ``answer`` may be a string, a number or true/false; for options it is a letter or an
option's text. Other keys are ignored.
"""

import dataclasses
import math
import re
import stat
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

from cirf.assets.hub_rows import hub_file
from cirf.errors import CirfError
from cirf.recipe.schema import TaskEntry
from cirf.records import AnswerKind, Problem
from cirf.store.hub_names import is_hub_name
from cirf.store.jsonl import Refused, RowError, row_numbers, sorting_out
from cirf.store.paths import user_path
from cirf.store.row_files import RowFile, read_row_file
from cirf.tasks.loading.choices import are_labels, by_index, by_name, letter_and_text
from cirf.tasks.loading.layouts import JUDGEMENTS, passage_columns, paths, plain_row, type_name, unread_columns
from cirf.tasks.loading.unusable import Tolerance, Unusable
from cirf.tasks.parsing.answers import normalise_text, number_value, parse_answer
from cirf.tasks.parsing.latex import MARKED_UP, is_formula, tidy_latex
from cirf.tasks.steps import produced
from cirf.tasks.task import Task
from cirf.text.numerals import has_decimal_commas, number_text, with_points, with_signs, word_value

_YES_NO = {"yes": "yes", "no": "no", "true": "yes", "false": "no", "y": "yes", "n": "no", "t": "yes", "f": "no"}
_DIGITS = {"1": "yes", "0": "no"}  # only where the task says so
_LETTERS = ({"y", "n"}, {"t", "f"})
_MOST_CHOICES = 26
_FORMULAS = 0.9  # share of formulas, numbers and single words from which on answers are LaTeX
_POINT = re.compile(r"\s*-?(?:\d+\.\d{1,2}|0\.\d+)\s*")
_DOLLARS = re.compile(r"\$\$?([^$]+?)\$?\$")  # around a formula; "$5" is money
_PLUS = re.compile(r"\A\s*\+\s?(?=[$€£]?[\d.])")
_FRACTION = re.compile(r"-?(?:\d+ )?\d+/\d+")
_SCIENTIFIC = re.compile(r"-?\d[\d.]*\s?[×x*]\s?10\s?(?:\^\s?-?\d{1,2}|⁻?[⁰¹²³⁴-⁹]{1,2})")
_LETTER_ALONE = re.compile(r"(?:(?:option|choice)\s*)?[(\[]?[A-Za-z][)\].:]*", re.I)
_LETTER_AT_END = re.compile(r"\s\(([A-J])\)\.?\Z")
_SEVERAL_LETTERS = re.compile(r"[(\[]?[A-J][)\]]?(?:(?:\s?[,;/&+]\s?|\s+and\s+|,\s?and\s)[(\[]?[A-J][)\]]?)+")
_LOOKED_AT, _NAMED = 100, 6  # rows, to find columns that are not read, and how many of these are named
_FEW_SEVERAL = 0.05  # share of rows with several right options up to which the others have one
_KEPT = 2**23  # bytes of a file up to which its rows are kept in memory


_Numbered = Sequence[tuple[int, Mapping[str, Any]]]


@dataclasses.dataclass(frozen=True, slots=True)
class _Rows(RowFile):
    """Rows in the one layout, and whether their numbers have decimal ``commas``."""

    commas: bool = False


def build_task(entry: TaskEntry, data: str | None, lenient: bool = False, allowed: float = 0.0) -> Task:
    """The task of a jsonl entry: its answer kind as declared or detected from its rows, and the result rule of that kind.
    ``lenient``: unusable rows are ignored instead of raised; ``allowed``: the share of rows that may have an answer of another
    kind, which makes them unusable."""
    path, commas = _first_path(entry, data), False
    kind: AnswerKind | None = entry.answer
    if kind is None or path.exists():
        file = _read(path, [] if lenient or kind else None, entry.columns, delimiter=entry.delimiter)
        kind, commas = kind or kind_of(file.rows, allowed), file.commas
    return _task(entry.name or entry.task, kind, f"rows of {entry.train_file or entry.test_file}", commas)


def _task(name: str, kind: AnswerKind, summary: str, commas: bool) -> Task:
    return Task(name=name, title=name, summary=summary, answer=kind, rule=produced, version=19, decimal_commas=commas)


def rows_in_memory(rows: Sequence[Mapping[str, Any]], name: str, answer: AnswerKind | None = None) -> tuple[Task, list[Problem]]:
    """A task of that name and its problems, from rows as a file would hold them; rows without an id are numbered from 0.
    ``answer``: the kind of answers; ``None``: detected from the rows. ``CirfError`` names the first row that does not fit."""
    plain = [plain_row(row, f"{name}, row {number}") for number, row in enumerate(rows)]
    by_index(list(enumerate(plain)))
    by_name(list(enumerate(plain)))
    for number, row in enumerate(plain):
        _check(row, f"{name}, row {number}")
    commas = _in_our_notation(plain)
    kind = answer or infer_kind(list(enumerate(plain)))
    problems = [_problem(row, str(number), kind, f"{name}, row {number}") for number, row in enumerate(plain)]
    return _task(name, kind, "rows in memory", commas), [dataclasses.replace(problem, task=name) for problem in problems]


def read_split(
    path: Path | None,
    kind: AnswerKind,
    tolerance: Tolerance | None = None,
    columns: Mapping[str, str] | None = None,
    commas: bool | None = None,
    delimiter: Sequence[str] = (),
) -> list[Problem] | None:
    """The problems of a recipe's file, in order, with its own ids (or row numbers from 0) and no task; ``None`` without a file.

    ``columns``: maps its columns to ours (`cirf.recipe.schema.FIELDS`) if they are not detected; ``commas``: whether its numbers
    have decimal commas, ``None``: detected; ``delimiter``: what sets thoughts off. Without a ``tolerance`` ``CirfError`` names
    the file, line and field of the first row that does not fit; with one such rows are left out, and the others have the ids
    they would have anyway.
    """
    if path is None:
        return None
    tolerance = tolerance or Tolerance(0)
    refused = tolerance.begin()
    file = _read(path, refused, columns, commas, delimiter)
    places = _places(file, refused or ())
    problems, seen = [], dict[str, int]()
    for line, row in file.rows:
        with sorting_out(refused):
            where = f"{path}, {file.word} {line}"
            problem = _problem(row, places[line], kind, where)
            if (first := seen.setdefault(problem.id, line)) != line:
                message = f"id {problem.id[:80]!r} occurs already in {file.word} {first}; ids must be unique"
                raise RowError(where, message, "its id occurs in an earlier row already")
            problems.append(problem)
    tolerance.settle(path.name, len(problems), refused)
    return problems


def _places(file: _Rows, refused: Sequence[RowError]) -> dict[int, str]:
    """The id of each line's row that has none of its own, which is never like an id of the file's."""
    place = "row-{}" if any(row.get("id") is not None for _, row in file.rows) else "{}"
    return {line: place.format(number) for line, number in row_numbers([line for line, _ in file.rows], refused).items()}


def lines_of(entry: TaskEntry, data: str | None) -> dict[str, str]:
    """Where the rows of a jsonl entry's training file are, by their problems' ids: ``line 4``."""
    refused: Refused = []
    file = _read(_first_path(entry, data), refused, entry.columns, delimiter=entry.delimiter)
    places = _places(file, refused)
    return {str(places[line] if row.get("id") is None else row["id"]): f"{file.word} {line}" for line, row in file.rows}


def _problem(row: Mapping[str, Any], place: str, kind: AnswerKind, where: str) -> Problem:
    choices = row.get("choices")
    return Problem(
        id=place if row.get("id") is None else str(row["id"]),
        task="",
        question=row["question"].strip(),
        answer=_canonical(row["answer"], kind, choices, where),
        choices=tuple(choice.strip() for choice in choices) if choices else None,
        rationale=row["rationale"].strip() if row.get("rationale") is not None else None,
    )


def infer_kind(rows: _Numbered) -> AnswerKind:
    """The kind of answers: options if every row has choices, and more than a few of the answers are not several of them at once,
    else yes/no, else numbers, else formulas, else text."""
    if all(row.get("choices") for _, row in rows):
        several = sum(_SEVERAL_LETTERS.fullmatch(str(row["answer"]).strip()) is not None for _, row in rows)
        return "text" if several > _FEW_SEVERAL * len(rows) else "option"
    answers = [str(row["answer"]).strip() for _, row in rows]
    if all(map(_yes_or_no, answers)):
        letters = {answer.casefold() for answer in answers if len(answer) == 1}
        return "yesno" if not letters or any(letters <= pair for pair in _LETTERS) else "text"
    if all(_value(tidy_latex(answer)) is not None for answer in answers):
        return "text" if are_labels(rows) or _named(rows) else "number"
    formulas = any(MARKED_UP.search(_SCIENTIFIC.sub("", answer)) for answer in answers) and sum(
        map(is_formula, answers)
    ) >= _FORMULAS * len(answers)
    return "latex" if formulas else "text"


def _named(rows: _Numbered) -> bool:
    """Whether answers are number words that are names (*Seven*, a film): most rationales have them, with their capital throughout
    and not in digits."""
    names = 0
    if any(word_value(str(row["answer"])) is None for _, row in rows):
        return False
    for _, row in rows:
        answer, rationale = str(row["answer"]).strip(" ."), str(row.get("rationale"))
        found = {match[0] for match in re.finditer(rf"(?<!\w){re.escape(answer)}(?!\w)", rationale, re.I)}
        names += found == {answer} != {answer.lower()} and not re.search(rf"(?<![\d.,]){word_value(answer)}(?!\d)", rationale)
    return 2 * names > len(rows)


def kind_of(rows: _Numbered, allowed: float) -> AnswerKind:
    """As `infer_kind`, but up to a share ``allowed`` of the rows may have an answer of another kind."""
    if (kind := infer_kind(rows)) != "text":
        return kind
    most, alike = max(lines_by_kind(rows).items(), key=lambda item: len(item[1]))
    few = 0 < len(rows) - len(alike) <= allowed * len(rows)  # none: alone they are alike, together they are something else
    return most if few else kind


_KIND_WORDS = {"option": "have choices", "yesno": "have yes or no as answer", "number": "have a number as answer"}


def lines_by_kind(rows: _Numbered) -> dict[AnswerKind, list[int]]:
    """The lines of the rows whose answer, taken alone, is an option, yes or no, or a number; the others are left out."""
    kinds: dict[AnswerKind, list[int]] = {"option": [], "yesno": [], "number": []}
    for row in rows:
        if (kind := infer_kind([row])) in kinds:
            kinds[kind].append(row[0])
    return kinds


def kinds_of(entry: TaskEntry, data: str | None, allowed: float) -> tuple[AnswerKind, dict[AnswerKind, list[int]], list[int]]:
    """The kind of a jsonl entry's answers (`kind_of`), the lines of each kind by themselves, and of all rows."""
    rows = _read(_first_path(entry, data), [], entry.columns, delimiter=entry.delimiter).rows
    return kind_of(rows, allowed), lines_by_kind(rows), [line for line, _ in rows]


def _doubts(rows: _Numbered, allowed: float) -> str | None:
    """A sentence on answers that may mean something else than what they are read as, or are of several kinds. ``allowed``: the
    share of rows of another kind up to which they are dropped; with more of them all answers count as text."""
    kind, answers = kind_of(rows, allowed), {str(row["answer"]).strip(" .").casefold() for _, row in rows}
    if are_labels(rows):
        more = "set answer: yesno if they mean no and yes, " if answers == {"0", "1"} else ""
        written = "the answers are numbers of labels; write the labels' names in their place, so that a model sees what they mean"
        return f"{written} ({more}answer: number if they are counts)"
    if kind == "yesno" and answers in _LETTERS:
        return "the answers are letters, read as no and yes; if they are names, set answer: text"
    if kind == "number" and answers == {"0", "1"}:
        return "the answers are 0 and 1, read as numbers; if they mean no and yes, set answer: yesno"
    if kind == "text" and _named(rows):
        return "the answers are number words, read as names; if they are numbers, set answer: number"
    if infer_kind(rows) != "text":
        return None
    by_kind = lines_by_kind(rows)
    most, alike = max(by_kind.items(), key=lambda item: len(item[1]))
    there = {*alike}
    others = {line: normalise_text(str(row["answer"])) for line, row in rows if line not in there}
    if len(alike) <= len(rows) / 2:
        several = [f"{len(lines):,} {_KIND_WORDS[each]}" for each, lines in by_kind.items() if lines]
        mixed = len(several) > 1 and sum(map(len, by_kind.values())) == len(rows)
        advice = "so all answers count as text; make a file of each"
        return f"rows of several kinds ({', '.join(several)}), {advice}" if mixed else None
    if not others or (most == "yesno" and 2 * len({*others.values()}) <= len(others)):  # yes, no and maybe
        return None
    named = ", ".join(map(str, [*others][:3])) + (", ..." if len(others) > 3 else "")
    place = "lines" if len(others) > 1 else "line"
    details = f"{len(alike):,} of {len(rows):,} rows {_KIND_WORDS[most]}, those of {place} {named} have not"
    if len(others) <= allowed * len(rows):
        return f"{details} and are dropped"
    return f"{details}, so all answers count as text; fix them, or set `answer` of the task"


def row_notes(entry: TaskEntry, data: str | None, allowed: float = 0.0) -> list[str]:
    """For a jsonl entry without ``answer`` what is doubtful about its answers and what is not read, without unusable rows."""
    if entry.answer:
        return []
    file = _read(_first_path(entry, data), [], entry.columns, delimiter=entry.delimiter)
    return [*filter(None, [_doubts(file.rows, allowed)]), *file.notes]


def train_path(entry: TaskEntry, data: str | None) -> Path | None:
    """The path of the training rows: ``train_file`` as given, else under the data folder; ``None`` if just a test is named.
    ``CirfError`` if neither is."""
    if entry.train_file is None and entry.test_file is None:
        name = entry.name or entry.task
        raise CirfError(f"problems.tasks: {name} is a jsonl task and needs train_file (or, to test, test_file)")
    return None if entry.train_file is None else find_file(entry.train_file, data)


def _first_path(entry: TaskEntry, data: str | None) -> Path:
    path = train_path(entry, data) or test_path(entry, data)
    assert path is not None
    return path


def test_path(entry: TaskEntry, data: str | None) -> Path | None:
    """The path of the test rows, or ``None`` if the recipe names no test file."""
    return None if entry.test_file is None else find_file(entry.test_file, data)


def find_file(name: str, data: str | None) -> Path:
    """The file that a recipe names: as given, else in the data folder; of a data set of the hub the file that keeps its rows."""
    if is_hub_name(name):
        return hub_file(name)
    path = user_path(name)
    if not path.exists() and data is not None and (Path(data) / name).exists():
        return Path(data) / name
    return path


def _read(
    path: Path,
    refused: Refused | None,
    columns: Mapping[str, str] | None = None,
    commas: bool | None = None,
    delimiter: Sequence[str] = (),
) -> _Rows:
    """The rows of a file in the one layout, each with well-formed fields and their numbers as answers in our notation;
    ``CirfError`` if there is none. A small file that stays as it is is read once, since a run needs its rows several times."""
    how = (path, refused is not None, tuple((columns or {}).items()), commas, tuple(delimiter))
    try:
        state = path.stat()
        kept = stat.S_ISREG(state.st_mode) and state.st_size <= _KEPT and path.suffix != ".gz"
    except OSError:  # reading says what is wrong
        kept = False
    rows, bad = _kept(*how, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns) if kept else _sorted_out(*how)
    if refused is not None:
        refused += bad
    return rows


@lru_cache(maxsize=4)
def _kept(
    path: Path, lenient: bool, columns: Sequence[tuple[str, str]], commas: bool | None, delimiter: Sequence[str], *_: int
) -> tuple[_Rows, Refused]:
    return _sorted_out(path, lenient, columns, commas, delimiter)


def _sorted_out(
    path: Path, lenient: bool, columns: Sequence[tuple[str, str]], commas: bool | None, delimiter: Sequence[str]
) -> tuple[_Rows, Refused]:
    """The rows of a file, and if ``lenient`` the lines that are refused."""
    bad: Refused = []
    refused = bad if lenient else None
    rows = []
    file = read_row_file(path, refused)
    plain: list[tuple[int, dict[str, Any]]] = []
    for line, raw in file.rows:
        with sorting_out(refused):
            plain.append((line, plain_row(raw, f"{path}, {file.word} {line}", dict(columns), delimiter=delimiter)))
    by_index(plain)
    by_name(plain)
    for line, row in plain:
        with sorting_out(refused):
            _check(row, f"{path}, {file.word} {line}")
            rows.append((line, row))
    if not rows and bad:
        raise Unusable(str(path), len(bad), tuple(bad)).too_many(1.0)
    if not rows:
        raise CirfError(f"{path}: holds no rows; every row needs question and answer")
    seen = dict(rows[:_LOOKED_AT])
    looked_at = [(raw, seen[line]) for line, raw in file.rows[: 2 * _LOOKED_AT] if line in seen]
    unread, before = unread_columns(looked_at), passage_columns(looked_at)
    advice = "name one that belongs to the question or is the rationale with --columns context=... or rationale=..."
    advice += ", and leave out rows that one marks as wrong" if {*unread} & {*JUDGEMENTS} else ""
    notes = [f"columns that are not read: {_listed(unread)}; {advice}"] if unread else []
    if before:
        notes.append(f"before the question comes: {_listed(before)}; --columns question=question leaves it out")
    made = _Rows(file.word, rows, (*notes, *file.notes), _in_our_notation([row for _, row in rows], commas))
    return made, bad


def _in_our_notation(rows: Sequence[dict[str, Any]], commas: bool | None = None) -> bool:
    """Whether rows are written with decimal commas (``None``: to be found out). If so, answers that are numbers are changed to
    our notation, unless one of the answers has a decimal point."""
    if commas is None:
        fields = [[row.get("question"), row.get("rationale"), row.get("answer")] for row in rows]
        commas = has_decimal_commas(["\n".join(str(field) for field in each if isinstance(field, str)) for each in fields])
    if commas and not any(isinstance(row["answer"], str) and _POINT.fullmatch(row["answer"]) for row in rows):
        for row in rows:
            given = row["answer"]
            if isinstance(given, str) and not row.get("choices") and number_value(found := with_points(given)) is not None:
                row["answer"] = found
    return commas


def _check(row: Mapping[str, Any], where: str) -> None:
    for field in ("question", "rationale"):
        value = row.get(field)
        if value is None and field == "rationale":
            continue
        if not isinstance(value, str):
            reason = f"{field} is not a string"
            raise RowError(where, f"{field} is {type_name(value)}, expected a string{_part(value, field)}", reason)
        if not value.strip():
            hint = "; leave the field out where there is none" if field == "rationale" else ""
            raise RowError(where, f"{field} is empty{hint}")
    answer = row["answer"]
    if not isinstance(answer, (str, int, float)) or (isinstance(answer, float) and not math.isfinite(answer)):
        message = f"answer is {type_name(answer)}, expected a string, a number or true/false"
        raise RowError(where, message + _part(answer, "answer"), message)
    if not str(answer).strip():
        raise RowError(where, "answer is empty")
    if row.get("id") is not None and (not isinstance(row["id"], (str, int)) or isinstance(row["id"], bool)):
        raise RowError(where, f"id is {type_name(row['id'])}, expected a string or a whole number")
    _check_choices(row.get("choices"), where)


def _part(value: Any, field: str) -> str:
    """What to do about an object or a list where a text is expected."""
    if (parts := paths(value, field)) != [field]:
        return f"; name a part of it with --columns {field}=...: {_listed(parts)}"
    return "; write it as one text" if isinstance(value, list) else ""


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")


def _check_choices(choices: Any, where: str) -> None:
    if choices is None:
        return
    if not isinstance(choices, list) or not all(isinstance(choice, str) for choice in choices):
        raise RowError(where, f"choices is {type_name(choices)}, expected a list of strings")
    if not 2 <= len(choices) <= _MOST_CHOICES:
        message = f"choices holds {len(choices)} options, expected 2 to {_MOST_CHOICES}"
        raise RowError(where, message, "choices holds too few or too many options")
    if any(not choice.strip() for choice in choices):
        raise RowError(where, "choices holds an empty option")


def _canonical(answer: Any, kind: AnswerKind, choices: Sequence[str] | None, where: str) -> str:
    text = str(answer).strip()
    if kind == "text":
        return formula[1].strip() if (formula := _DOLLARS.fullmatch(text)) else text
    if kind == "latex":
        return tidy_latex(text) or text
    if kind == "option":
        return _option(text, choices, where)
    if kind == "yesno":
        if (said := _yes_or_no(text) or _DIGITS.get(text)) is None:
            raise RowError(where, f"answer {text!r} is neither yes nor no", "answer is neither yes nor no")
        return said
    value = _value(written := " ".join(tidy_latex(text).split()))
    if value is not None and ((value.denominator != 1 and _FRACTION.fullmatch(written)) or _SCIENTIFIC.fullmatch(written)):
        return written  # as the rationale has it: the question may ask for a mixed number, or for scientific notation
    if value is None:
        message = f"answer {text!r} is not a number; fix it, or set answer: text for the task"
        raise RowError(where, message, "answer is not a number")
    return number_text(value)


def _yes_or_no(answer: str) -> str | None:
    return _YES_NO.get(answer.casefold().rstrip(".! "))


def _value(answer: str) -> Fraction | None:
    """The value of an answer that is a number, in digits or in words."""
    if any(map(str.isdigit, answer)):
        return number_value(with_signs(_PLUS.sub("", answer)))
    spoken = word_value(answer)
    return None if spoken is None else Fraction(spoken)


def _option(text: str, choices: Sequence[str] | None, where: str) -> str:
    if choices is None:
        raise RowError(where, "the field choices is missing; the task's answers are options")
    spaced, details = [" ".join(choice.split()) for choice in choices], " ".join(text.split())
    by_text = [place for place, choice in enumerate(spaced) if choice == details] or [
        place for place, choice in enumerate(spaced) if normalise_text(choice) == normalise_text(text)
    ]
    letter = parse_answer("option", text, choices) if _LETTER_ALONE.fullmatch(text) else None
    if not by_text and (place := letter_and_text(details, spaced)) is not None:
        by_text = [place]
    if not by_text and letter is None and (closing := _LETTER_AT_END.search(text)):  # "6 squared, which is 36 (D)"
        letter = parse_answer("option", closing[1], choices)
    found = {*by_text, *([ord(letter) - 65] if letter else [])}
    if found and len({spaced[place] for place in found}) == 1:
        first = min(found)
        if spaced.count(spaced[first]) > 1:  # a model that picks the other one would be judged wrong
            message = f"the right option, {spaced[first][:80]!r}, occurs twice; reword or remove the other one"
            raise RowError(where, message, "the right option occurs twice")
        return chr(65 + first)
    if len(by_text) > 1:
        raise RowError(where, f"answer {text!r} is the text of several options; write the letter", "answer fits several options")
    if found:
        message = f"answer {text!r} is one option's letter and another option's text; reword the choices"
        raise RowError(where, message, "answer is one option's letter and another option's text")
    letters = f"A to {chr(64 + len(choices))}"
    if text.isdecimal():
        message = f"answer {text} is a number and none of the choices; write a letter from {letters}, or an option's text"
        raise RowError(where, message, "answer is a number; write the option's letter")
    message = f"answer {text!r} is not among the choices; write a letter from {letters} or an option's text"
    raise RowError(where, message, "answer is not among the choices")
