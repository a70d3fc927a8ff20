"""The options of a row, in the layouts that people and tools write them: each comes to a list of texts.

"choices": ["apple", "chair"], ["A) apple", "B) chair"], {"label": ["A", "B"], "text": [...]}, {"A": "apple", "B": "chair"},
    [{"key": "A", "value": "apple"}, ...], [{"text": "apple", "is_correct": true}, ...], beside "labels": [1, 0]
"options": as choices, or "a ) apple , b ) chair" columns A, B, ...; option_a, option_b, ...; opa, opb, ...; choice1, choice2, ...
"question": "Which is a fruit?\nA) apple\nB) chair", with a letter as answer
"distractor1": "chair", "Incorrect Answer 1": "chair", "distractors": ["chair"], beside the right option's text as answer
"""

import contextlib
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cirf.store.jsonl import RowError
from cirf.tasks.loading.targets import unhedged
from cirf.tasks.parsing.anchors import anchors, first_sentence, last_sentence
from cirf.tasks.parsing.answers import normalise_text, parse_answer
from cirf.tasks.parsing.options import CHOICE_IS, IS_RIGHT, listed_options, without_letters
from cirf.tasks.parsing.texts import bare_quantity, same_text, tidy
from cirf.tasks.parsing.thoughts import split_thoughts, unwrapped

_COLUMN = re.compile(r"(?P<series>|options?|choices?|opt?|ending|answer|sol|alternative)(?P<place>[a-j]|\d)")
_PREFIX = re.compile(r"\A[a-z]{1,3}_(?=[a-z]+_?[a-j\d]\Z)")  # of q_op1
_LETTER = re.compile(r"(?:option|choice)?\s*[(\[]?([A-Za-z])[)\].:]?", re.I)
_SAID_LETTER = re.compile(r"\W*(?:[Oo]ption\s+)?([A-J])\b[)\].:,;*]*((?P<why>\s+(?:because|since|as|for)\b)?.*)", re.S)
_REASON = re.compile(r"[,;]?\s+(?:because|since|as)\b", re.I)
_FENCES = re.compile(r"\$([^$]*)\$|\*\*|\\[()]")  # of formulas and emphasis
_FRONT = re.compile(r"\W*(?i:(?:the\s+)?(?:option|choice|letter)\s+)?\W*([A-J])\b(?!\s*[-−+*/=^<>_])([)\].:]?)")
_FORMULA = re.compile(r"[\\=<>^{}≤≥]|\w\s?[+*/]\s?\w|\d\s?[-−:]\s?\d")
_UNSURE = re.compile(r"\b(?:if|unless|might|would|could)\b", re.I)
_DIGITS, _WORD = re.compile(r"\d[\d.,]*"), re.compile(r"[^\W\d_]{2}")
_ALONE = re.compile(r"(?:(?:option|choice)\s+)?[(\[]?(\w+)[)\].:]?", re.I)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_FEWEST = 2
_LISTS = ("answers", "endings", "answer_choices", "candidates", "alternatives")
_LABELS, _TEXTS = ("label", "key", "id", "letter", "aid"), ("text", "value", "content", "option", "atext")
_WRONG = re.compile(r"(?:distractor|(?:incorrect|wrong)(?:answer|option|choice))s?\d?")
_FLAG = re.compile(r"(?:is_?)?(?:correct|right|answer)", re.I)
_LABEL_NAMES = re.compile(
    r"(?:label|class|category|gold|answer)_?(?:text|names?|str|string|words?|list|description)|labels|classes", re.I
)


def judged(row: Mapping[str, Any]) -> dict[str, Any]:
    """The ``choices`` and the ``answer`` of options that say which of them are right: by a flag each
    (``{"text": ..., "is_correct": true}``) or by ``labels``, here or in an object (TruthfulQA's); nothing for other options."""
    given = row.get("choices") or row.get("options")
    inside = next(
        (each for name, each in row.items() if isinstance(each, Mapping) and {"choices", "labels"} <= each.keys()), None
    )
    given, flags = (given, row.get("labels")) if inside is None else (inside["choices"], inside["labels"])
    if isinstance(given, list) and given and all(isinstance(each, Mapping) for each in given):
        flags = [next((value for name, value in each.items() if _FLAG.fullmatch(str(name))), None) for each in given]
    if row.get("answer") is not None or not isinstance(given, list) or not isinstance(flags, list) or len(flags) != len(given):
        return {}
    if inside is not None:  # TruthfulQA lists the right one first
        pairs = {str(text): flag for text, flag in zip(given, flags, strict=True)}
        given = _drawn(row, pairs)
        flags = [pairs[text] for text in given]
    right = [chr(65 + place) for place, flag in enumerate(flags) if flag in (True, 1)]
    return {"choices": given, "answer": ", ".join(right)} if right and all(flag in (0, 1) for flag in flags) else {}


def _drawn(row: Mapping[str, Any], texts: Iterable[str]) -> list[str]:
    """Options in an order drawn by their texts: the same in every run, and the right one's place is as often one as another."""
    return sorted(texts, key=lambda text: hashlib.sha256(f"{row.get('question')}{text}".encode()).digest())


def _with_wrong(row: Mapping[str, Any]) -> list[str]:
    """The right option and the wrong ones of columns that hold these apart, in a drawn order; empty with fewer than two wrong,
    and where wrong ones are single letters, which letters of options could be taken for."""
    if not _is_plain(row.get("answer")):
        return []
    named = {name: value for name, value in row.items() if _WRONG.fullmatch(re.sub(r"[\s_-]+", "", str(name).casefold()))}
    wrong = [
        str(each).strip()
        for value in named.values()
        for each in (value if isinstance(value, list) else [value])
        if _is_plain(each)
    ]
    right = str(row["answer"]).strip()
    found = {normalise_text(text): text for text in [*reversed(list(filter(None, wrong))), right]}  # each once
    return _drawn(row, found.values()) if len(found) > _FEWEST and not any(map(_LETTER.fullmatch, wrong)) else []


def with_choices(row: dict[str, Any], where: str) -> dict[str, Any]:
    """The row with its options as a list in ``choices``; unchanged where it has none. ``RowError`` where its answer is a letter
    and its options are in a form that is not read, or where it is the label of one option and the text of another."""
    given = _given(row)
    labels: list[str] = []
    if in_columns := given is None:
        labels, found = _in_columns(row, where)
    else:
        labels, found = _texts(given)
    if not found:
        found = _with_wrong(row) if not given else []
        if found:
            row["answer"] = chr(65 + found.index(str(row["answer"]).strip()))
        elif not given:
            found = _in_question(row)
    answer = str(row.get("answer", "")).strip()
    if not found:
        if given and row.get("choices") is None and _LETTER.fullmatch(answer):
            message = "its options are in a form that is not read; write them as a list of texts in choices"
            raise RowError(where, message, "its options are in a form that is not read")
        return row
    if in_columns and len(answer) > 1 and str(row.get(answer)).strip() in found:  # "option_2"
        answer = row["answer"] = str(row[answer]).strip()
    labels = [label.strip().strip("().:").casefold() for label in labels]
    if labels and sorted(labels) == [chr(97 + place) for place in range(len(found))]:
        found = [text for _, text in sorted(zip(labels, found, strict=True))]
    elif (alone := _ALONE.fullmatch(answer)) and labels.count(alone[1].casefold()) == 1:
        place = labels.index(alone[1].casefold())
        if any(text.strip() == answer for at, text in enumerate(found) if at != place):
            message = f"answer {answer!r} is one option's label and another option's text; write the right option's letter"
            raise RowError(where, message, "answer is one option's label and another option's text")
        row["answer"] = chr(65 + place)
    return row | {"choices": list(without_letters(found))}


def has_options(row: Mapping[str, Any]) -> bool:
    return bool(_given(row) or _in_columns(row)[1] or _with_wrong(row))


def _given(row: Mapping[str, Any]) -> Any:
    """The column of options, be it read or not. A list of another name counts where the answer is a letter or a place."""
    named = next((row[name] for name in ("choices", "options") if row.get(name) is not None), None)
    if named is None and (_LETTER.fullmatch(str(row.get("answer", "")).strip()) or _place(row) is not None):
        lists = (row[name] for name in _LISTS if isinstance(row.get(name), list))
        return next((each for each in lists if len(_texts(each)[1]) >= _FEWEST), None)
    return named


def by_index(rows: Sequence[tuple[int, dict[str, Any]]]) -> None:
    """Answers that are places of options become letters, where the rows settle from what they count: one has a 0, or one the
    number of its options, and none contradicts. Answers that most choices have as a text are no places."""
    indexed = [row for _, row in rows if row.get("choices") and isinstance(row["choices"], list)]
    places = [_place(row) for row in indexed]
    known = [place for place in places if place is not None]
    texts = sum(str(row.get("answer")).strip() in row["choices"] for row in indexed)
    if not known or len(known) < len(indexed) or 2 * texts >= len(indexed):
        return
    sizes = [len(row["choices"]) for row in indexed]
    from_zero, from_one = min(known) == 0, any(place == size for place, size in zip(known, sizes, strict=True))
    if from_zero == from_one:
        return
    for row, place, size in zip(indexed, known, sizes, strict=True):
        if from_one <= place < size + from_one:
            row["answer"] = chr(65 + place - from_one)


def by_name(rows: Sequence[tuple[int, dict[str, Any]]]) -> None:
    """Answers from a column ``label`` or ``gold`` that are the numbers of labels become their names, where another column has
    these: each row's (``label_text``) or, counted from 0, all of them (``label_names``)."""
    if not any(all(name in row and row[name] == row.get("answer") for _, row in rows) for name in ("label", "gold")):
        return
    numbered = [(row, place) for _, row in rows if not row.get("choices") and (place := _place(row)) is not None]
    if len(numbered) < len(rows):
        return
    for column in [name for name in (numbered[0][0] if numbered else ()) if _LABEL_NAMES.fullmatch(str(name))]:
        named: dict[int, set[str]] = {}
        for row, place in numbered:
            value = row.get(column)
            name = value[place] if isinstance(value, list) and place < len(value) else value
            named.setdefault(place, set()).add(name.strip() if isinstance(name, str) else "")
        names = {place: next(iter(each)) for place, each in named.items() if len(each) == 1}
        if len(names) == len(named) == len({*names.values()} - {""}) and not any(map(_NUMBER.fullmatch, names.values())):
            for row, place in numbered:
                row["answer"] = names[place]
            return


def are_labels(rows: Sequence[tuple[int, Mapping[str, Any]]]) -> bool:
    """Whether the answers are numbers of labels without names: a few whole numbers from a column ``label``."""
    places = {_place(row) for _, row in rows if "label" in row and row["label"] == row["answer"] and not row.get("choices")}
    return 1 < len(places) <= 10 and places == {*range(len(places))} and all(row.get("label") == row["answer"] for _, row in rows)


def _place(row: Mapping[str, Any]) -> int | None:
    answer = row.get("answer")
    if isinstance(answer, float) and answer.is_integer():
        answer = int(answer)
    text = "" if isinstance(answer, bool) else str(answer).strip()
    return int(text) if text.isdecimal() and len(text) <= 2 else None


def _texts(given: Any) -> tuple[list[str], list[str]]:
    """The labels and the texts of options; nothing in a form that is not read."""
    if isinstance(given, str) and given.lstrip().startswith(("[", "{")):
        with contextlib.suppress(ValueError, RecursionError):
            given = json.loads(given)
    if isinstance(given, Mapping):
        if isinstance(given.get("text"), list):
            return _both(list(given.get("label") or ()), given["text"])
        return _both(list(given), list(given.values()))
    if isinstance(given, list) and given and all(isinstance(each, Mapping) and _first(each, _TEXTS) for each in given):
        return _both([_first(each, _LABELS) or "" for each in given], [_first(each, _TEXTS) for each in given])
    if isinstance(given, list) and given and all(map(_is_plain, given)):
        return [], list(map(str, given))
    if isinstance(given, str):
        parts = given.strip().split("\n" if "\n" in given.strip() else "|")
        found = listed_options(given) or [part.strip() for part in parts if part.strip()]
        return [], list(found) if len(found) >= _FEWEST else []
    return [], []


def _first(each: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((each[name] for name in names if each.get(name) is not None), None)


def _both(labels: Sequence[Any], texts: Sequence[Any]) -> tuple[list[str], list[str]]:
    """Labels and texts of options without those that are null, as a table has them where rows have fewer options."""
    if labels and len(labels) != len(texts):
        return [], []
    kept = [place for place, text in enumerate(texts) if text is not None]
    if not all(_is_plain(texts[place]) for place in kept):
        return [], []
    return [str(labels[place]) for place in kept if labels], [str(texts[place]) for place in kept]


def _is_plain(value: Any) -> bool:
    return isinstance(value, (str, int, float)) and not isinstance(value, bool)


def _in_columns(row: Mapping[str, Any], where: str = "") -> tuple[list[str], list[str]]:
    """The texts of columns that count options: ``A``, ``B``, ...; ``option1``, ``option2``, ..., and their letters or digits
    where one between them is blank; ``RowError`` at ``where`` if that is the answer."""
    series: dict[str, dict[str, str]] = {}
    blank = set[tuple[str, str]]()
    lettered = _LETTER.fullmatch(str(row.get("answer", "")).strip())
    for name, value in row.items():
        match = _COLUMN.fullmatch(re.sub(r"[\s_-]+", "", _PREFIX.sub("", str(name).casefold())))
        if match is None or (not match["series"] and match["place"].isdigit()):
            continue
        if value is None or not str(value).strip():
            blank.add((match["series"] + ("1" if match["place"].isdigit() else "a"), match["place"]))
        if not _is_plain(value) or not str(value).strip():
            continue
        if not match["series"] and str(name).islower() and _NUMBER.fullmatch(str(value).strip()) and not lettered:
            continue  # a quantity of the question: "a": 3, "b": 4
        series.setdefault(match["series"] + ("1" if match["place"].isdigit() else "a"), {})[match["place"]] = str(value).strip()
    for name, places in series.items():
        first = min(places)
        if name == "answer1" and not lettered and (_place(row) is None or str(row["answer"]) in places.values()):
            continue  # several answers to the question
        found = [places[place] for place in sorted(places)]
        left_out = {place for series, place in blank if series == name and place < max(places)}
        run = "".join(sorted({*places, *left_out})) in "0123456789abcdefghij"
        if len(found) < _FEWEST or min(first, *left_out) not in "01a" or not run:
            continue
        said = lettered[1].casefold() if lettered else str(row.get("answer", "")).strip()
        if said in left_out and where:
            raise RowError(where, f"answer {said!r} is an option that is blank", "answer is an option that is blank")
        return (sorted(places) if left_out else []), found
    return [], []


def _in_question(row: Mapping[str, Any]) -> list[str]:
    """The options that a question lists, where the answer is one of their letters."""
    question, answer = row.get("question"), row.get("answer")
    if not isinstance(question, str) or not isinstance(answer, str):
        return []
    letter = _LETTER.fullmatch(answer.strip())
    found = listed_options(question)
    named = letter_and_text(answer, found) is not None if letter is None else ord(letter[1].upper()) - 65 < len(found)
    return list(found) if named else []


def chosen(row: Mapping[str, Any], text: str, found: str | None, where: str) -> str | None:
    """The answer of a text whose row has options: the letter of the one that is ``found`` in it or that its last anchor says by
    letter or text, else what is ``found``. Options that only the question lists count where the anchor says a letter alone, with
    its reason or with its option."""
    choices = with_choices({**row, "answer": ""}, where).get("choices")
    rest = unwrapped(split_thoughts(text)[1]) or text
    said = [each for _, each in unhedged(rest) or anchors(last_sentence(rest), CHOICE_IS, IS_RIGHT) if tidy(each)][-1:]
    if not choices:
        listed = listed_options(str(row.get("question", "")))
        letter = next(filter(None, (_letter_said(each, listed) for each in said)), None) if listed else None
        return letter or found
    if found is None:  # "So the iron is heavier."
        return parse_answer("option", rest, choices)
    within = re.compile(rf"(?<![\w.]){re.escape(found)}(?!\w)")
    lines = [each.split("\n")[0].strip() for each in said]
    whole = [each for each in lines if within.search(tidy(each)) or bare_quantity(tidy(each)) == found]  # not a corrected one
    for each in (*whole, *(first_sentence(each) for each in whole), found):
        for part in (each, _REASON.split(each, maxsplit=1)[0]):
            if not _LETTER.fullmatch(tidy(part)) and (place := _same_option(part, choices)) is not None:
                letter = chr(65 + place)
                return choices[place] if normalise_text(letter) in map(normalise_text, choices) else letter
    if _LETTER.fullmatch(found):
        return found
    return next(filter(None, (_named_option(each, choices) for each in (*whole, found))), found)


def _same_option(said: str, choices: Sequence[str]) -> int | None:
    """The place of the only option that is the same text, else of the only one of the same value (``28`` of ``28 beads``)."""
    said, *choices = (tidy(_FENCES.sub(r"\1", each)) for each in (said, *choices))
    if (place := letter_and_text(said, choices)) is not None:
        return place
    same = [normalise_text(each) == normalise_text(said) != "" for each in choices]
    if not any(same) and not ((front := _FRONT.match(said)) and front[2]):  # "B: 3", where A is 3
        same = [same_text(said, each) for each in choices]
    return same.index(True) if same.count(True) == 1 else None


def _named_option(said: str, choices: Sequence[str]) -> str | None:
    """The letter that a phrase begins with, or of the only option that it names, without a number at its beginning. A part of a
    formula is no option, and neither is a number of it; a phrase that only supposes names none."""
    said = _FENCES.sub(r"\1", first_sentence(said))
    letter = None if _UNSURE.search(said) else parse_answer("option", f"#### {said}", choices)
    if letter is None or ((front := _FRONT.match(said)) and front[1] == letter):
        return letter
    words, plainer = normalise_text(said), [normalise_text(choice) for choice in choices]
    option = plainer[ord(letter) - 65]
    if _FORMULA.search(said) or {*_DIGITS.findall(words)} != {*_DIGITS.findall(option)} or not _WORD.search(option):
        return None
    begins = re.match(rf"(?:(?:an?|the) )?{re.escape(option)}(?!\w)", words)
    if not begins and not _DIGITS.search(option):  # "a place with a group of homes" is no "home"
        return None
    return letter if parse_answer("option", f"#### {words}", plainer) == letter else None


def _letter_said(said: str, choices: Sequence[str]) -> str | None:
    """The capital letter that a text says alone, with the reason for it, or with its option's text."""
    match = _SAID_LETTER.match(said)
    if match is None or ord(match[1]) - 65 >= len(choices):
        return None
    rest = normalise_text(match[2])
    return match[1] if not rest or match["why"] or rest == normalise_text(choices[ord(match[1]) - 65]) else None


def letter_and_text(answer: str, choices: Sequence[str]) -> int | None:
    """The place of the option that an answer gives by letter and text: ``B. chair``."""
    found = re.fullmatch(r"[(\[]?([A-Za-z])[)\].:]+\s*(.+)", " ".join(answer.split()))
    place = ord(found[1].upper()) - 65 if found else len(choices)
    same = found and place < len(choices) and normalise_text(choices[place]) == normalise_text(found[2])
    return place if same else None
