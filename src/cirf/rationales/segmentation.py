"""A rationale cut into steps (paper 3.2).

A worked example, ``by="auto"``::

    To find the bill we count meals first.      (before the first mark: no step)
    Step 1: Count the meals                     -> "Count the meals\\n2 + 5 = 7"
    2 + 5 = 7
    Step 2: Multiply by the price               -> "Multiply by the price\\n7 * 8 = 56\\nConclusion: The bill was $56."
    7 * 8 = 56
    Conclusion: The bill was $56.

Choices made where the paper is silent:

- Text before the first mark is an announcement, not a step, unless ``auto`` cuts and it works something out.
- Text after the last step belongs to it, under its own heading (``Conclusion``, ``Final Answer``) too: a heading is no step.
  If lines or sentences are the steps, a heading goes with the text under it. Whatever the steps are, an answer at the end under
  its own heading or label (``Answer: 72``), and a last number that the step before it works out, belong to that step.
- A mark is removed from its step (the code replaces it); an option's letter stays, because it names the subject.
- ``#### 72`` at the end is the answer, not a step, on a line of its own or after the last step; so is a last line that is a
  box alone, after a whole sentence. Neither is an answer in front of its reasons (``The answer is B.``, ``Yes.``).
- *Let's think step by step* in front is no step. In lower-case text a stop between blanks ends a line.
- Long prose that thinks aloud is cut by function (`cirf.text.discourse`), even if it holds a numbered list somewhere.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from cirf.errors import CirfError
from cirf.rationales.redundancy import Redundant, redundant
from cirf.recipe import schema
from cirf.records import Dropped, Problem, Rationale, Steps
from cirf.tasks.steps import numbers_in, worked_out
from cirf.tasks.steps.states import HOLDS
from cirf.text.discourse import pieces, speaks, turns
from cirf.text.normalise import normalise
from cirf.text.numerals import has_decimal_commas, with_points
from cirf.text.sentences import sentences
from cirf.text.step_marks import Mark, carrying_out, closing_start, option_letter, option_starts, ordinal_marks, split_last_option

Rule = Literal["auto", "ordinal", "line", "sentence", "option", "function"]

LONG, TURNS = 800, 3
"""Characters and turns of thought (`wait`, `alternatively`) from which on ``auto`` cuts a rationale by function."""

PAPER_SHARE_DROPPED = 0.008  # share of the paper's rationales that did not fit its segmentation (A.2, CoT Collection)
_DEFAULTS = schema.Segments()
_ANSWER_LINE = re.compile(r"(?:^|\s)####[^\n]*\Z")
_ANSWER_FIRST = re.compile(  # "The answer is B." in front of the reasons for it
    r"\A\W*(?:(?:the\s+)?(?:(?:(?:correct|right|final|best)\s+)?(?:answer|ans)\b(?:\s+(?:option|choice))?"
    r"|(?:correct|right|best)\s+(?:option|choice))(?:\.?\s+is\b(?=[ \t]+[^\s:])|(?P<mark>(?:\s+is)?\s*[:=]|\.(?=\s)))\s*"
    r"(?P<said>(?:[^\n.!?]|i\.e\.){1,60}?)"
    r"|['(]?(?-i:[A-E])[')]?,?\s+i\.e\.,?\s[^\n.!?]{1,60}?|yes|no(?!\.\s*(?:of\b|\d))|true|false)(?:[.!]+\s+|\n\s*)(?=\S)",
    re.I,
)
_BOXED_LINE = re.compile(
    r"(?<=[.!?])\s{0,20}\n[\s$*]{0,20}(?:\\[(\[]\s{0,9})?\\boxed\s*\{(?:[^{}\n]|\{(?:[^{}\n]|\{[^{}\n]*\})*\}){1,200}\}[\s$*.]{0,20}(?:\\[)\]])?[\s.]*\Z"
)
_FEW_WORDS = 5
_BARE = re.compile(  # behind "Answer:", where whole sentences may follow: a letter, a number with its unit, two words
    r"\W*(?:\(?[A-Za-z](?:[):]|['\"]?\s*i\.e\.)\W.*|[-$€£]{0,2}\d[\d,./]*%?(?:\s+[a-z]+){0,2}|\S+(?:[ \t]\S+)?)\W*", re.I
)
_LETTER = re.compile(r"\W*[A-Za-z]\W*")
_LETS_THINK = re.compile(r"\A\W*(?:A:\s*)?let(?:['’]s| us) think\b[^.:\n]{0,30}step[- ]by[- ]step[^\w\n]{0,3}\s+(?=\S)", re.I)
_SPACED_STOP = re.compile(r"(?<=[\w)%])(?<!\brs)(?<!\bno)(?<!\b[a-wz]) \. ")  # MathQA's
_DESCRIBED = re.compile(r"(?:one|something|someone|somewhere|that|what|to|not)\b", re.I)
_HEADING = re.compile(r"[^\W\d_][^\s\d=.!?:]*(?:[ ][^\W\d_][^\s\d=.!?:]*){0,4}[ ]?:")
_INTRODUCES = re.compile(r"[^\n=]{1,200}(?::|\s(?:is|are|was|by|get|have|gives?|obtain|becomes|where|that|to|as|and))")
_GOES_ON = re.compile(r"[=≈]\s?(?![=>])\S")  # a line that begins so continues the formula before it
_TABLE_HEAD = re.compile(r"^(\|[^\n]*\|) *\n\n(?=\|[^\n]*\| *$)", re.M)  # a blank line is left of the rule below it
_LIST_NUMBER = re.compile(r"\n\d{1,2}[.)] ?\Z")  # the number of the next option
_AFTER_LIST = re.compile(r"\n?[^\W\d_][^\n:#*]*[.!]")  # a line of prose behind it
_BLANK_LINES = re.compile(r"\n{2,}")
_ANSWER_LABEL = re.compile(r"[^\w\n]{0,9}(?:(?:the|my)\s)?(?:(?:final|correct)\s)?(?:answer|ans)\b[^\w\n]*[-:=–—*][^\w\n]*", re.I)
_LABELLED = re.compile(rf"{_ANSWER_LABEL.pattern}\n?(?P<said>[^\n=]{{1,80}})", re.I)
_NUMBER_ALONE = re.compile(r"\W*\d[\d,./]*%?(?:\s[a-z]+)?\W*", re.I)

_CALCULATES = re.compile(r"(?<![A-Za-z])[0-9]%?\)?\s?[-+*/]\s?[$(]?[0-9][0-9.,]*\)?\s?=\s?[$]?-?[0-9]")


@dataclass(frozen=True, slots=True)
class Segmentation:
    """The segments of one rationale, none empty, and the rule that cut them; no segments where the rule does not fit."""

    rule: str
    segments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """All rationales cut: ``steps`` as people read them, ``annotated`` the same steps with calculator notes
    (``<<48/2=24>>``) left in for the rule that reads results, the rows dropped, the redundant steps left out, and counts."""

    steps: list[Steps]
    annotated: list[Steps]
    dropped: list[Dropped]
    redundant: list[Redundant]
    report: dict[str, Any]


def segment(text: str, by: Rule, choices: Sequence[str] | None = None, section: schema.Segments = _DEFAULTS) -> Segmentation:
    """Cut a rationale into steps (paper 3.2); any text is accepted and normalised first.

    ``by``: ``ordinal`` (marks ``Step k``, ``k.`` and their kin), ``line``, ``sentence``, ``option`` (one step an option
    and one for what concludes), ``function`` (see `cirf.text.discourse`; the ``section`` says how short and long) or ``auto``,
    which takes the first that fits: function where a long text thinks aloud, two ordinal marks, two options where the problem
    has ``choices``, function where lines or sentences would be more than a rationale may have, two lines, sentences. Calculator
    notes stay in the segments.
    """
    text = _LETS_THINK.sub("", _BOXED_LINE.sub("", text))
    text = _SPACED_STOP.sub(".\n", text) if text.islower() else text
    return _segment(_without_answer_first(normalise(text, annotations="keep"), choices or ()), by, choices, section)


def clean_segments(
    text: str, by: Rule, choices: Sequence[str] | None = None, section: schema.Segments = _DEFAULTS
) -> tuple[str, list[tuple[str, str]]]:
    """The rule that cut a rationale, and its steps, each without and with calculator notes; none empty."""
    found = segment(text, by, choices, section)
    return found.rule, [(plain, noted) for noted in found.segments if (plain := normalise(noted))]


def steps_of(
    text: str, section: schema.Segments, choices: Sequence[str] | None = None, commas: bool = False
) -> tuple[str, list[tuple[str, str]]]:
    """As ``clean_segments``, by the recipe's section; ``commas``: the text is written with decimal commas."""
    rule, steps = clean_segments(text, section.by, choices, section)
    gone, rest = _gone_through(steps) if rule == "option" and section.options == "together" else ([], steps)
    return rule, gone + (split_equations(rest, commas) if section.equations == "split" else rest)


def cut(rationales: Sequence[Rationale], section: schema.Segments, problems: Sequence[Problem]) -> Cut:
    """Cut every rationale; rows that do not fit are dropped and counted by reason, next to the paper's 0.8 % (A.2). Raises
    ``CirfError`` if there are rationales and none can be cut."""
    result = cut_all(rationales, section, problems)
    if rationales and not result.steps:
        reasons = ", ".join(f"{reason}: {count}" for reason, count in result.report["reasons"].items())
        first = rationales[0]
        raise CirfError(
            f"segments.by={section.by}: none of {len(rationales)} rationales can be cut into steps ({reasons}; see "
            f"problem {first.problem}); try segments.by=auto or wider segments.minimum and segments.maximum"
        )
    return result


def cut_all(rationales: Sequence[Rationale], section: schema.Segments, problems: Sequence[Problem]) -> Cut:
    """As ``cut``, but returns nothing instead of raising if nothing is left."""
    by_id = {problem.id: problem for problem in problems}
    steps: list[Steps] = []
    annotated: list[Steps] = []
    dropped: list[Dropped] = []
    left_out: list[Redundant] = []
    commas = has_decimal_commas([rationale.text for rationale in rationales])
    for rationale in rationales:
        problem = by_id.get(rationale.problem)
        rule, pairs = steps_of(rationale.text, section, problem.choices if problem else None, commas)
        gone: list[Redundant] = []
        if section.redundant == "drop" and rule == "function" and problem:
            gone = redundant([with_points(plain) if commas else plain for plain, _ in pairs], problem, rationale.sample)
            places = {row.place for row in gone}
            pairs = [pair for index, pair in enumerate(pairs) if index not in places]
        reason = _misfit(rationale.text, len(pairs), section.minimum, section.most(rule))
        if reason is not None:
            dropped.append(Dropped(rationale.problem, rationale.sample, "segments", reason))
            continue
        left_out += gone
        steps.append(Steps(rationale.problem, rationale.sample, rule, tuple(plain for plain, _ in pairs)))
        annotated.append(Steps(rationale.problem, rationale.sample, rule, tuple(noted for _, noted in pairs)))
    return Cut(steps, annotated, dropped, left_out, _report(steps, dropped, section))


def _misfit(text: str, count: int, fewest: int, most: int) -> str | None:
    if count == 0:
        return "no segment" if _ANSWER_LINE.sub("", normalise(text)).strip() else "empty rationale"
    if count < fewest:
        return "too few steps"
    return "too many steps" if count > most else None


def _report(steps: Sequence[Steps], dropped: Sequence[Dropped], section: schema.Segments) -> dict[str, Any]:
    rows = len(steps) + len(dropped)
    return {
        "by": section.by,
        "rows": rows,
        "kept": len(steps),
        "dropped": len(dropped),
        "share_dropped": round(len(dropped) / rows, 4) if rows else 0.0,
        "paper_share_dropped": PAPER_SHARE_DROPPED,
        "reasons": dict(sorted(Counter(row.reason for row in dropped).items())),
        "rules": dict(sorted(Counter(row.rule for row in steps).items())),
        "steps": spread([len(row.segments) for row in steps]),
    }


def spread(values: Sequence[float]) -> dict[str, float]:
    """Mean, median and 95th percentile (nearest rank); zeros for no values."""
    if not values:
        return {"mean": 0.0, "median": 0.0, "p95": 0.0}
    ordered = sorted(values)
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    high = ordered[max(0, -(-95 * len(ordered) // 100) - 1)]
    return {"mean": round(sum(ordered) / len(ordered), 3), "median": float(middle), "p95": float(high)}


def _segment(text: str, by: Rule, choices: Sequence[str] | None, section: schema.Segments) -> Segmentation:
    text = _ANSWER_LINE.sub("", text).rstrip()
    match by:
        case "ordinal":
            return Segmentation(by, _by_ordinal(text, ordinal_marks(text, words=True)))
        case "option":
            return Segmentation(by, _by_option(text, choices))
        case "line":
            return Segmentation(by, _with_answer(_under_headings(_lines(text))))
        case "sentence":
            parts = [part for line in _lines(text) for part in sentences(line)]
            return Segmentation(by, _with_answer(_under_headings(_with_their_option(parts, choices or ()))))
        case "function":
            return Segmentation(
                by, _with_answer(pieces(text, section.min_characters, section.max_characters), section.max_characters)
            )
    if len(text) >= LONG and turns(text, TURNS):
        return _segment(text, "function", choices, section)
    text = text[carrying_out(text) :]
    marks = ordinal_marks(text)
    segments = _by_ordinal(text, marks) if len(marks) >= 2 else ()
    # "1. A. walk: ..." numbers the options: the option rule also parts the conclusion from the last of them
    if len(segments) >= 2 and not (choices and all(map(option_letter, segments))):
        before = text[: marks[0].start]
        again = marks[0].number == 1 and bool(ordinal_marks(before))  # else the text before has the first of these steps
        superseded = again or _ABANDONED.search(before) is not None
        return Segmentation("ordinal", segments if superseded else (*_calculating(before), *segments))
    options = _by_option(text, choices) if choices else ()
    if len(options) >= 2:
        first = 0 if section.options == "together" else option_starts(text, len(choices or ()))[0]
        return Segmentation("option", (*_calculating(text[:first]), *options))
    if len(text) >= LONG and speaks(text, TURNS):
        return _segment(text, "function", choices, section)
    lines = _with_answer(_under_headings(_lines(text)))
    found = Segmentation("line", lines) if len(lines) >= 2 else _segment(text, "sentence", choices, section)
    many = len(text) >= LONG and len(found.segments) > section.most(found.rule)
    return _segment(text, "function", choices, section) if many else found


def _without_answer_first(text: str, choices: Sequence[str]) -> str:
    """The text without an answer in front, which may be a letter and the option's text (``B. Aspirin.``): a trace that gave it
    first would have the steps after it for nothing."""
    front = _ANSWER_FIRST.match(text)
    if front is None:
        return text
    said = front["said"] or ""
    few = len(said.split()) <= _FEW_WORDS and "=" not in said and (not front["mark"] or _BARE.fullmatch(said) is not None)
    if not few or _DESCRIBED.match(said) is not None:
        return text
    rest = text[front.end() :]
    texts = "|".join(re.escape(choice.strip(" .")) for choice in choices)
    again = re.match(rf"(?:{texts})(?:\.\s+|\s*\n\s*)(?=\S)", rest, re.I) if texts and _LETTER.fullmatch(said) else None
    return rest[again.end() :] if again else rest


def _by_ordinal(text: str, marks: Sequence[Mark]) -> tuple[str, ...]:
    if not marks:
        return ()
    ends = [mark.start for mark in marks[1:]] + [len(text)]
    parts = [text[mark.end : end] for mark, end in zip(marks, ends, strict=True)]
    last = parts[-1].strip()
    if len(parts) > 1 and text[marks[0].start] in "(123456789" and not any(map(_BLANK_LINES.search, parts[:-1])):
        item, _, after = last.partition("\n\n")
        closes = closing_start(last)
        if _AFTER_LIST.fullmatch(after) and closes == len(last):
            parts[-1:] = [item, after]
        elif len(HOLDS.findall(last[:closes])) > 1:  # the last state: "Ann: red, Bo: blue" before "At the end, Bo has ..."
            parts[-1:] = [last[:closes], last[closes:]]
    return _tidy(parts)


_ABANDONED = re.compile(  # what a text before numbered steps ends with, if they replace it
    r"(?:\b(?:attempt|try) \d+\W*"
    r"|\b(?:that|this|it)(?: is| was|['’]s) (?:wrong|incorrect|not right|a mistake)\b[^.!?\n=]*[.!?:]?\s*"
    r"|\b(?:redo|start(?:ing)? (?:over|again))\b[^.!?\n=]*[.!?:]?\s*)\Z",
    re.I,
)


def _calculating(text: str) -> tuple[str, ...]:
    """A text as a step, if it works something out from numbers."""
    return _tidy([text]) if _CALCULATES.search(normalise(text)) else ()


def _by_option(text: str, choices: Sequence[str] | None) -> tuple[str, ...]:
    starts = option_starts(text, len(choices) if choices else None)
    if not starts:
        return ()
    parts = [_LIST_NUMBER.sub("", text[start:end]) for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]
    return _tidy([*parts[:-1], *split_last_option(parts[-1])])


def _gone_through(steps: list[tuple[str, str]]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The steps that go through options one by one as a single one, and what concludes after them."""
    count, last = 0, ""
    while count < len(steps) and (letter := option_letter(steps[count][0])) > last:
        count, last = count + 1, letter
    if not count:
        return [], steps
    plain, noted = zip(*steps[:count], strict=True)
    return [("\n".join(plain), "\n".join(noted))], steps[count:]


def _with_their_option(parts: Sequence[str], choices: Sequence[str]) -> list[str]:
    """Sentences, an option's text with the letter before it: *The answer is D. Graves disease.*"""
    texts, found = {choice.strip(" .").casefold() for choice in choices}, list(parts)
    for place in range(len(found) - 1, 0, -1):
        if found[place].strip(" .").casefold() in texts and re.search(r"(?<!\w)[A-J]\.\Z", found[place - 1]):
            found[place - 1 : place + 1] = [f"{found[place - 1]} {found[place]}"]
    return found


def _lines(text: str) -> list[str]:
    """The lines of a text, none empty; those that continue a formula, and the first row of a table, go with the one before."""
    lines: list[str] = []
    heads = {match[1] for match in _TABLE_HEAD.finditer(text)}
    for line in filter(None, map(str.strip, text.split("\n"))):
        if lines and lines[-1] in heads:
            lines[-1] += f"\n{line}"
        elif lines and _GOES_ON.match(line):
            lines[-1] += f" {line}"
        else:
            lines.append(line)
    return lines


def _under_headings(parts: Sequence[str]) -> tuple[str, ...]:
    """Lines or sentences, each with the headings and the lines that introduce it above it; a heading at the end goes with the
    one before it."""
    found: list[str] = []
    heads: list[str] = []
    for part in parts:
        heads.append(part)
        if not (_HEADING.fullmatch(part) or _INTRODUCES.fullmatch(part)):
            found.append("\n".join(heads))
            heads = []
    if heads:
        found[-1:] = ["\n".join([*found[-1:], *heads])]
    return tuple(found)


def _with_answer(parts: Sequence[str], longest: int | None = None) -> tuple[str, ...]:
    """Steps, the last one with what only repeats the answer after it, unless it would have more than ``longest`` characters."""
    found = list(parts)
    if len(found) > 2 and _ANSWER_LABEL.fullmatch(found[-2]):  # "=== ANSWER ===" above it
        found[-2:] = ["\n".join(found[-2:])]
    if len(found) > 1 and _only_answers(found[-1], found[-2]):
        joined = "\n".join(found[-2:])
        found[-2:] = [joined] if longest is None or len(joined) <= longest else found[-2:]
    return tuple(found)


def _only_answers(text: str, before: str) -> bool:
    """Whether a step only repeats the answer: under a heading or label, or as a number that the one before it works out."""
    labelled = _LABELLED.fullmatch(text)
    if labelled and len(labelled["said"].split()) <= _FEW_WORDS:
        return True
    values = worked_out(before)[-1:]
    return bool(values) and _NUMBER_ALONE.fullmatch(text) is not None and numbers_in(text) == numbers_in(*values)


def _tidy(parts: Sequence[str]) -> tuple[str, ...]:
    return tuple(tidy for part in parts if (tidy := _BLANK_LINES.sub("\n", part).strip()))


def split_equations(steps: Sequence[tuple[str, str]], commas: bool = False) -> list[tuple[str, str]]:
    """Steps, each with and without calculator notes, cut between sentences that work out numbers not yet known. A sentence
    between two of them goes with the former if it repeats that number, else with the latter. A step that computes one number
    stays unchanged. ``commas``: they are written with decimal commas."""
    found: list[tuple[str, str]] = []
    for plain, noted in steps:
        groups = _groups(noted, commas)
        found += [(normalise(group), group) for group in groups] if len(groups) > 1 else [(plain, noted)]
    return found


def _groups(text: str, commas: bool) -> list[str]:
    groups: list[list[str]] = []
    waiting: list[str] = []  # sentences before the next number
    known: set[str] = set()
    last: set[Fraction] = set()
    for sentence in sentences(text):
        said = with_points(sentence) if commas else sentence
        values = worked_out(said)
        if not known.issuperset(values):
            groups.append([*waiting, sentence])
            waiting = []
            known.update(values)
            last = numbers_in(*values)
        elif groups and not waiting and numbers_in(said) & last:
            groups[-1].append(sentence)
        else:
            waiting.append(sentence)
    if groups:
        groups[-1] += waiting
    return [" ".join(group) for group in groups]
