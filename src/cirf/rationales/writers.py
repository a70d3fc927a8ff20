"""Results written by a language model (paper 3.3), under three constraints: results and not derivations, only what later
steps use, as short as possible; a step may have none.

The model returns JSON with one text per step. An answer of another count, with a long text, or one that copies its step or that
nothing later uses is requested once more with the fault named. After that unused results are left empty; for any other fault the
task's rule writes the row. Both are marked.
"""

import hashlib
import json
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from cirf.endpoints.fleet import ask
from cirf.endpoints.requests import Answer, Request, fill, read_template
from cirf.errors import CirfError
from cirf.progress import SILENT, Progress
from cirf.rationales.results import WRITERS
from cirf.recipe import schema as recipe
from cirf.records import Problem, Steps
from cirf.store.files import RowLog
from cirf.tasks.parsing.answers import number_value
from cirf.tasks.steps import strip_annotations
from cirf.tasks.steps.calculations import UNITS, numbers_used
from cirf.tasks.task import Task

_DECODER = json.JSONDecoder()
_WORDS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|\w+")  # scripts without spaces: a sign a word
_CALCULATION = re.compile(r"\d\s*[-+*/\u00d7\u00f7\u2212].*=")
_TRACE_TOKEN = re.compile(r"</?\w+>")
_UNSEEN = "\u200b\u2060\ufeff"
_NOTHING = ("n/a", "null", "empty", "empty string")  # what models write for no result; "none" may be one
_TRIES = 500  # brackets looked at in an answer
_COPY, _MOST = 4, 0.6  # a shorter result may be all of a short step; a copy holds most of one
_CHANGES = (  # a step that turns a state into another of its group uses it, although it may not name it
    {"head", "tail"},
    {"on", "off"},
    {"up", "down"},
    {"open", "closed"},
    {"yes", "no", "true", "false"},
    {"odd", "even"},
    {"left", "right"},
    {"north", "east", "south", "west"},
    {"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"},
    {"january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december"},
)
_RATIOS = tuple(map(Fraction, (*UNITS, 3, 7, 12, 16, 24, 365)))  # of more units: feet, days, inches, ounces, hours
_STEM = 4  # letters: "mammal" is in "mammalian"
_DENIES = re.compile(r"\b(?:no|not|wrong|false|incorrect|out|excluded|ruled)\b|n[’']t\b", re.I)

PROMPT = ("results", ("steps", "count"), "results.writer.prompt")
"""The shipped prompt, its required placeholders, and the recipe's key for another."""


@dataclass(frozen=True, slots=True)
class Written:
    """The results of one rationale, and who wrote them: ``llm``, ``llm again`` (at the second try) or ``rule``. ``emptied``: how
    many of them nothing later used."""

    results: tuple[str, ...]
    by: str
    fault: str | None = None
    emptied: int = 0


def write_with_model(
    steps: Sequence[Steps],
    problems: Sequence[Problem],
    tasks: Mapping[str, Task],
    section: recipe.Results,
    log: RowLog,
    seed: int,
    progress: Progress = SILENT,
) -> list[Written]:
    """The results of every rationale, one text a step; ``log`` keeps every answer, and only missing ones are requested. Raises
    ``CirfError`` where no endpoint is named or they have several models, or as `ask` does."""
    writer = section.writer
    models = {endpoint.model for endpoint in writer.endpoints}
    if len(models) != 1:
        why = "all servers must have the same model" if models else "empty although results.by is llm; name one server"
        raise CirfError(f"results.writer.endpoints: {why}")
    template = read_template(writer.prompt, *PROMPT)
    if writer.prompt is None and section.last == "drop":  # the paper's second constraint, to the letter
        template = template.replace("later steps or the answer use", "later steps use")
    by_id = {problem.id: problem for problem in problems}
    plain = [tuple(strip_annotations(text) for text in row.segments) for row in steps]
    pairs = zip(steps, plain, strict=True)
    first = [_request(by_id[row.problem], texts, template, writer, seed, (row.problem, row.sample)) for row, texts in pairs]
    answers, refused = ask(first, writer, log, progress, "results")
    asked = [by_id[row.problem] for row in steps]
    read = [
        _read(answers.get(request.key), texts, section, problem)
        for request, texts, problem in zip(first, plain, asked, strict=True)
    ]
    second = {
        index: _again(request, answers[request.key], fault)
        for index, (request, (_, fault, _)) in enumerate(zip(first, read, strict=True))
        if fault is not None and request.key in answers
    }
    better, _ = ask(list(second.values()), writer, log, progress, "results, once more")
    rule = WRITERS["llm"](section, None)
    written = []
    for index, (row, problem) in enumerate(zip(steps, asked, strict=True)):
        (results, fault, emptied), by = read[index], "llm"
        if index in second:
            again = _read(better.get(second[index].key), plain[index], section, problem)
            if again[0] is not None:
                (results, _, emptied), by = again, "llm again"
            elif results is None:
                fault = again[1]
        if results is None:
            results, by, fault = rule(row, problem, tasks[problem.task]), "rule", refused.get(first[index].key, fault)
        written.append(Written(results, by, fault, emptied))
    return written


def _request(
    problem: Problem, texts: Sequence[str], template: str, section: recipe.ResultWriter, seed: int, row: tuple[str, int]
) -> Request:
    listed = "\n".join(f"{number}. {' '.join(text.split())}" for number, text in enumerate(texts, 1))
    values = {"question": problem.question, "answer": problem.answer, "steps": listed, "count": str(len(texts))}
    if problem.choices:
        options = (f"({chr(ord('A') + index)}) {text}" for index, text in enumerate(problem.choices))
        values["question"] = "\n".join((problem.question, *options))
    schema = {
        "type": "object",
        "properties": {"results": {"type": "array", "items": {"type": "string"}, "minItems": len(texts), "maxItems": len(texts)}},
        "required": ["results"],
        "additionalProperties": False,
    }
    number = int.from_bytes(hashlib.sha256(f"{seed}/results/{row[0]}/{row[1]}".encode()).digest()[:4], "big") >> 1
    messages = (("user", fill(template, values)),)
    model = section.endpoints[0].model
    return Request(model, messages, number, section.temperature, section.top_p, section.max_tokens, json.dumps(schema))


def _again(request: Request, answer: Answer, fault: str) -> Request:
    """The same question, with the first answer and its fault."""
    complaint = f"That cannot be used: {fault}. Reply again with the JSON alone."
    messages = (*request.messages, ("assistant", answer.text), ("user", complaint))
    return Request(request.model, messages, request.seed, request.temperature, request.top_p, request.max_tokens, request.schema)


def _read(
    answer: Answer | None, texts: Sequence[str], section: recipe.Results, problem: Problem
) -> tuple[tuple[str, ...] | None, str | None, int]:
    """The results in an answer, or ``None``; what is wrong with it, in words that a model understands; and how many results are
    left empty since nothing uses them, where nothing else is wrong."""
    if answer is None:
        return None, "there was no answer", 0
    entries = _entries(answer.text, len(texts))
    if entries is None:
        return None, 'it is not a JSON object {"results": [...]} with a list of texts', 0
    results = tuple(map(_as_text, entries))
    if len(results) != len(texts):
        return None, f"it has {len(results)} results, but there are {len(texts)} steps", 0
    for number, (result, text) in enumerate(zip(results, texts, strict=True), 1):
        if len(result) > section.max_characters:
            return None, f"result {number} is longer than {section.max_characters} characters", 0
        if _TRACE_TOKEN.search(result):
            return None, f"result {number} holds a tag in angle brackets", 0
        if repeats_step(result, text):
            return None, f"result {number} repeats step {number} instead of saying what it produced", 0
    if left := unused(results, texts, problem):
        kept = tuple("" if number in left else result for number, result in enumerate(results, 1))
        named = ", ".join(map(str, left))
        return kept, f"no later step uses what these steps produced, so their results must be empty: {named}", len(left)
    return results, None, 0


def _entries(text: str, count: int) -> list[Any] | None:
    """The list in a text's last JSON object with ``results``, or in its last JSON list; of several the
    last with ``count`` entries, if one has as many."""
    found: list[Any] | None = None
    for opening, wanted in (("{", dict), ("[", list)):
        place = text.find(opening)
        for _ in range(_TRIES):
            if place < 0:
                break
            try:
                made, end = _DECODER.raw_decode(text, place)
            except (ValueError, RecursionError):
                made, end = None, place + 1
            listed = made.get("results") if isinstance(made, dict) else made
            if isinstance(made, wanted) and isinstance(listed, list) and all(map(_is_entry, listed)):
                found = listed if found is None or len(listed) == count or len(found) != count else found
            place = text.find(opening, end)
        if found is not None:
            return found
    return None


def _is_entry(entry: Any) -> bool:
    if isinstance(entry, float):
        return math.isfinite(entry)
    return entry is None or (isinstance(entry, int | str) and not isinstance(entry, bool))


def _as_text(entry: Any) -> str:
    if isinstance(entry, float):
        entry = int(entry) if entry.is_integer() else entry
    if entry is None:
        return ""
    kept = (" " if unicodedata.category(sign) in ("Cc", "Cs") else sign for sign in str(entry) if sign not in _UNSEEN)
    text = " ".join("".join(kept).split())
    return "" if text.strip("()").lower() in _NOTHING else text


def repeats_step(result: str, step: str) -> bool:
    """Whether a result repeats the step: its calculation, or most of its words in the same form."""
    words, said = _WORDS.findall(result.lower()), _WORDS.findall(step.lower())
    inside = f" {' '.join(words)} " in f" {' '.join(said)} "
    return inside and bool(_CALCULATION.search(result) or (len(words) >= _COPY and len(words) >= _MOST * len(said)))


def unused(results: Sequence[str], texts: Sequence[str], problem: Problem) -> list[int]:
    """The steps, from 1, whose result nothing after them uses (the paper's second constraint); the last step has none after it.

    A result is used where one of its numbers, or of one without numbers a word or the option that it names, is in a later step or
    result or in the answer. The number may be rounded or of another unit there, or another may be worked out from it that is not
    known yet; a state may be changed; an option may be excluded, a letter or an unknown be a part of what follows.
    """
    options = {chr(ord("A") + index): text for index, text in enumerate(problem.choices or ())}
    ending = f"{problem.answer} {options.get(problem.answer, '')}"
    found = []
    for index, result in enumerate(results[:-1]):
        after = (*results[index + 1 :], ending)
        later = "\n".join((*texts[index + 1 :], *after))
        named = _named(f"{result} {options.get(result, '')}")
        if numbers := _numbers(result):
            known = _numbers(problem.question, *texts[: index + 1]) | {*map(Fraction, UNITS)}
            letters = {word for word in named if isinstance(word, str) and re.fullmatch(r"[^\W\d_]", word)}
            used = _calculated_with(numbers, known, _numbers(later)) or bool(letters & _named(later))
        else:
            part = not options and len(result) < _STEM and any(result.lower() in text.lower() for text in after)
            excludes = _DENIES.search(result) and named & _named(" ".join((*options, *options.values())))
            unread = re.search(r"\d", result)  # "√25"
            used = bool(named & _named(later) or part or excludes or unread)
        if result and not used:
            found.append(index + 1)
    return found


def _calculated_with(numbers: Set[Fraction], known: Set[Fraction], later: Set[Fraction]) -> bool:
    """Whether one of the numbers is among the later ones, or one that is not ``known`` yet can be worked out from it."""
    made = {worked for value in numbers for other in (*known, *_RATIOS) for worked in _worked_out(value, other)}
    shares = {value / 100 for value in numbers}
    return bool((numbers | shares) & later or _rounded(made) & _rounded(later - known))


def _numbers(*texts: str) -> set[Fraction]:
    return {abs(value) for value in numbers_used(*texts)}


def _worked_out(one: Fraction, other: Fraction) -> set[Fraction]:
    quotients = {one / other, other / one} if one and other else set()
    roots = {one**2, Fraction(math.sqrt(one))} if one < 10**12 else set()
    return {one, one + other, abs(one - other), one * other, one * other / 100} | quotients | roots


def _rounded(numbers: Iterable[Fraction]) -> set[Any]:
    return {round(value, 2) for value in numbers}


def _named(text: str) -> set[Any]:
    """The words of a text, and the groups of states that they are of."""
    said = {word.removesuffix("s") for word in _WORDS.findall(text.lower())}
    words = said | {word.removesuffix("ie").removesuffix("y") for word in said}
    words |= {word[: max(_STEM, len(word) - 3)] for word in words}
    return words | {index for index, group in enumerate(_CHANGES) if not said.isdisjoint(group)}


def compare_with_rule(
    written: Sequence[Written],
    steps: Sequence[Steps],
    problems: Sequence[Problem],
    tasks: Mapping[str, Task],
    section: recipe.Results,
) -> dict[str, float | None]:
    """Who wrote the rows, how many results nothing later used, and the share of steps where model and rule agree (of those that
    the model wrote)."""
    rule = WRITERS["llm"](section, None)
    by_id = {problem.id: problem for problem in problems}
    same = count = 0
    for row, made in zip(steps, written, strict=True):
        if made.by == "rule":
            continue
        problem = by_id[row.problem]
        for ours, theirs in zip(made.results, rule(row, problem, tasks[problem.task]), strict=True):
            count += 1
            same += _plain(ours) == _plain(theirs)
    rows = len(written) or 1
    return {
        "share_at_second_try": round(sum(made.by == "llm again" for made in written) / rows, 4),
        "share_fallen_back": round(sum(made.by == "rule" for made in written) / rows, 4),
        "unused_emptied": sum(made.emptied for made in written),
        "agreement_with_rule": round(same / count, 4) if count else None,
    }


def _plain(result: str) -> str | float:
    value = number_value(result)
    return float(value) if value is not None else result.strip().lower()
