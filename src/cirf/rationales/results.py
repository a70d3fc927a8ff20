"""The short result of each step (paper 3.3): by the task's rule, from a file, or none; in `writers`, by a language model.

A worked example: the steps ``("48 / 2 = 24 clips in May.", "48 + 24 = 72 clips in all.")`` have the results
``("24", "72")``. A step may have an empty result; a result that is long or holds trace tokens is left empty.

Another way of writing results is one function and one line in ``WRITERS``.

Numbers with what they count: ``24`` in ``48 / 2 = 24 clips in May`` is ``24 clips``, ``40`` in ``5 * 8 = $40`` is ``$40``. The
calculation that a number comes from: ``63-57=`` for the ``6`` of ``She has 63 games - 57 games = 6 games more``.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from cirf.errors import CirfError
from cirf.rationales.files import find_file
from cirf.recipe import schema
from cirf.records import Problem, Steps
from cirf.store.row_files import read_row_file
from cirf.tasks.parsing.anchors import anchors
from cirf.tasks.parsing.answers import number_value
from cirf.tasks.parsing.numeric import written_powers
from cirf.tasks.steps import answer_named, left_side, numbers_in, strip_annotations, worked_out
from cirf.tasks.steps.calculations import numbers_used
from cirf.tasks.steps.produced import only_mentioned
from cirf.tasks.task import Task
from cirf.text.discourse import function_of
from cirf.text.numerals import SCALES, evaluate, find_numbers, has_decimal_commas, number_text, plain_numbers, with_points
from cirf.text.step_marks import option_starts

_SPACE = re.compile(r"\s+")
_SAYS_LITTLE = re.compile(r"(?:1\d|20)\d\d|[^\d=,]*")  # beside the answer: a year, a phrase
_TRACE_TOKEN = re.compile(r"</?(?:cirf|think)\w*>")

ResultWriter = Callable[[Steps, Problem, Task], tuple[str, ...]]
"""The results of a rationale's steps, a text a step, which may be empty. The answer may be used, as in the paper's prompt."""


@dataclass(frozen=True, slots=True)
class RuleWriter:
    """Each step by the rule of its task, which sees the results before it.

    Independently of the final answer, a result that is a number keeps its noun with ``units`` (``21 pens``), and with ``working``
    the calculation or the equation it comes from (``6+12+3=21``, ``3X=21``), unless it would be longer than ``longest``
    characters. With ``used`` a step of several equations keeps, before its last value, those that a later step uses::

        "She has 2 * 6 = 12 clips and 6 - 3 = 3 pins."   "In all 6 + 12 + 3 = 21."     ->  "12, 3"   "21"
    """

    used: bool = False
    units: bool = False
    working: bool = False
    longest: int = 40

    def __call__(self, steps: Steps, problem: Problem, task: Task) -> tuple[str, ...]:
        """One result a step, by ``task.result``; none for a step that goes through several options (``segments.options``). Of a
        rationale cut by function a step has one only where it calculates or concludes, and finds another than the last; of
        other rationales the last step has the answer where it names it and works out nothing. Steps at the end that only mention
        another option than the answer have none."""
        segments = tuple(map(with_points, steps.segments)) if task.decimal_commas else steps.segments
        results: list[str] = []
        for index, segment in enumerate(segments):
            several = index == 0 and steps.rule == "option" and option_starts(segment, len(problem.choices or ()))
            concludes = worked_out(segment) or anchors(segment) or function_of(segment) == "conclude"
            silent = several or (steps.rule == "function" and not concludes)
            result = "" if silent else task.result(steps.segments[index], problem, tuple(results))
            again = steps.rule == "function" and result == next(filter(None, reversed(results)), "")
            results.append("" if again else result)
        if results and steps.rule != "function" and _SAYS_LITTLE.fullmatch(results[-1]) and not worked_out(segments[-1]):
            results[-1] = answer_named(segments[-1], problem) or results[-1]
        for index in reversed(range(len(results))):  # after the answer they say what it is not
            if results[index] and not only_mentioned(results[index], segments[index], problem):
                break
            results[index] = ""
        known = task.in_our_notation(problem).question
        listed = [result.split(", ") for result in results]  # the numbers that a result lists, else the result
        each = [[result] if None in map(number_value, parts) else parts for result, parts in zip(results, listed, strict=True)]
        values = _used(segments, each, known) if self.used else each
        return tuple(self._text(row, segment) for row, segment in zip(values, segments, strict=True))

    def _text(self, values: Sequence[str], segment: str) -> str:
        named = [with_unit(value, segment) if self.units else value for value in values]
        bare = ", ".join(named)
        if not self.working:
            return bare
        full = ", ".join(working(value, segment) + name for value, name in zip(values, named, strict=True))
        return full if len(full) <= self.longest else bare


def _used(segments: Sequence[str], results: Sequence[list[str]], question: str) -> list[list[str]]:
    """Of each step the values that later steps use, or its own later equations, and its result's."""
    known = numbers_in(question)
    each = [numbers_used(segment) for segment in segments]
    later = Counter(value for used in each for value in used)  # how many steps use a value, of those not yet passed
    full = []
    for segment, last, used in zip(segments, results, each, strict=True):
        later.subtract(used)
        found = Counter(number.value for number in find_numbers(plain_numbers(strip_annotations(segment))))
        values = {text: number_value(text) for text in worked_out(segment) if text not in last} if any(last) else {}
        kept = [
            text
            for text, value in values.items()
            if value is not None and value not in known and (later[value] or found[value] > 1)
        ]
        known |= {value for value in (*values.values(), *map(number_value, last)) if value is not None}
        full.append([*kept, *last])
    return full


def _from_file(section: schema.Results, data: str | None) -> ResultWriter:
    """Results written beforehand, by problem and sample; ``CirfError`` for a step without one."""
    if section.file is None:
        raise CirfError("results.file: not set although results.by is file; name a JSONL file with problem, sample and results")
    path = find_file(section.file, data, "results.file")
    rows: dict[tuple[str, int], tuple[str, tuple[str, ...]]] = {}
    file = read_row_file(path)
    for number, raw in file.rows:
        where = f"{path}, {file.word} {number}"
        problem, sample, results = raw.get("problem"), raw.get("sample", 0), raw.get("results")
        if not isinstance(problem, str):
            raise CirfError(f"{where}: `problem` must be a problem's id as a text; add it")
        if not isinstance(sample, int) or isinstance(sample, bool):
            raise CirfError(f"{where}: `sample` must be a whole number; 0 is the problem's first rationale")
        if not isinstance(results, list) or not all(isinstance(result, str) for result in results):
            raise CirfError(f"{where}: `results` must be a list of texts, one a step, empty where a step has none")
        if (problem, sample) in rows:
            raise CirfError(f"{where}: problem {problem}, sample {sample} occurs twice; remove one row")
        rows[problem, sample] = (where, tuple(results))

    def write(steps: Steps, problem: Problem, task: Task) -> tuple[str, ...]:
        wanted = f"problem {steps.problem}, sample {steps.sample}"
        if (steps.problem, steps.sample) not in rows:
            raise CirfError(f"{path}: no row for {wanted}; add one with {len(steps.segments)} results")
        where, results = rows[steps.problem, steps.sample]
        if len(results) != len(steps.segments):
            counts = f"{len(results)} results for the {len(steps.segments)} steps of {wanted}"
            raise CirfError(f"{where}: {counts}; give one result a step, empty where there is none")
        return results

    return write


def _by_rule(section: schema.Results) -> RuleWriter:
    return RuleWriter(section.values == "used", section.units == "keep", section.working == "keep", section.max_characters)


WRITERS: dict[str, Callable[[schema.Results, str | None], ResultWriter]] = {
    "rule": lambda section, data: _by_rule(section),
    # What its rows fall back to (cirf.rationales.writers); a language model writes bare values, so these are bare too.
    "llm": lambda section, data: _by_rule(section.model_copy(update={"working": "drop"})),
    "none": lambda section, data: lambda steps, problem, task: ("",) * len(steps.segments),
    "file": _from_file,
}
"""``results.by`` to the writer it means; called with the section and the data folder."""


def write_results(
    steps: Sequence[Steps],
    problems: Sequence[Problem],
    tasks: Mapping[str, Task],
    section: schema.Results,
    data: str | None = None,
) -> list[tuple[str, ...]]:
    """The results of every step, aligned: ``out[i][j]`` belongs to ``steps[i].segments[j]`` (paper 3.3).

    Pass the annotated steps (``Cut.annotated``) so that rules see calculator notes. A result of more than
    ``section.max_characters`` characters is left empty. Of a task written with decimal commas (`comma_tasks`) the rule reads
    ``1.350,5`` as 1350.5, and writes it so. Raises ``CirfError`` for a file that does not fit the steps.
    """
    writer = WRITERS[section.by](section, data)
    by_id = {problem.id: problem for problem in problems}
    commas = comma_tasks(tasks, problems, [(row.problem, "\n".join(row.segments)) for row in steps])
    read_by = {name: replace(task, decimal_commas=name in commas) for name, task in tasks.items()}
    written: list[tuple[str, ...]] = []
    for row in steps:
        problem = by_id.get(row.problem)
        if problem is None:
            advice = "no such training problem; cut the rationales of these problems again"
            raise CirfError(f"steps of problem {row.problem}: {advice}")
        results = writer(row, problem, read_by[problem.task])
        written.append(shortened(results, section))
    return written


def comma_tasks(tasks: Mapping[str, Task], problems: Sequence[Problem], worked: Sequence[tuple[str, str]]) -> set[str]:
    """The tasks whose texts are written with decimal commas: by the task itself, or by its questions and what was ``worked`` out,
    texts by problem. Answers do not count: they are in our notation already."""
    by_id = {problem.id: problem for problem in problems}
    texts: dict[str, list[str]] = {}
    for name, text in worked:
        if problem := by_id.get(name):
            texts.setdefault(problem.task, []).append(f"{problem.question}\n{text}")
    found = {task for task, each in texts.items() if has_decimal_commas(each)}
    return found | {name for name, task in tasks.items() if task.decimal_commas}


def shortened(results: Sequence[str], section: schema.Results) -> tuple[str, ...]:
    """Results in the form of a trace: those too long, or with the trace's own tokens, are left empty; with ``last: drop``
    the last step's is, too (paper eq. 3)."""
    lines = [_SPACE.sub(" ", result).strip() for result in results]
    kept = tuple("" if len(line) > section.max_characters or _TRACE_TOKEN.search(line) else line for line in lines)
    return (*kept[:-1], "") if section.last == "drop" and kept else kept


def statistics(results: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    """Counts over all results: steps, share empty, mean characters of those that are not."""
    flat = [result for row in results for result in row]
    filled = [len(result) for result in flat if result]
    return {
        "steps": len(flat),
        "share_empty": round(1 - len(filled) / len(flat), 4) if flat else 0.0,
        "mean_characters": round(sum(filled) / len(filled), 2) if filled else 0.0,
        "rows_without_results": sum(not any(row) for row in results),
    }


_NOUN = re.compile(
    r"""\s?(?!(?:a|an|the|this|that|these|those|there|i|he|she|it|we|they|his|her|its|their|him|them|in|on|at|of|per|for|from|to
    |by|with|as|into|over|under|about|up|down|off|out|back|before|after|until|since|while|when|where|which|who|because|and|or
    |but|if|so|than|then|is|are|was|were|be|will|would|can|could|has|have|had|do|does|did|not|also|only|just|both|all|each
    |every|altogether|together|total|left|remaining|times|plus|minus|divided)(?![a-z'-]))([a-z][a-z'-]*(?:/[a-z]+)?[²³]?)""",
    re.X,
)
_COMPARES = frozenset(("more", "fewer", "less"))


def with_unit(number: str, step: str) -> str:
    """A number as results have it, with the noun after its last place in the step, or a dollar sign; alone without either."""
    text = plain_numbers(strip_annotations(step))
    for place in reversed([found for found in find_numbers(text) if number_text(found.value) == number]):
        words: list[str] = []
        at = place.end
        while match := _NOUN.match(text, at):
            words.append(match[1])
            at = match.end()
            if match[1] not in _COMPARES:
                break
        if words:
            return " ".join([number, *words])
        if "$" in text[place.start : place.end]:
            return f"${number}"
    return number


_TOKEN = re.compile(
    r"""(?P<number>(?:(?:(?<![\w)\]}%.])(?<![\w)\]}%.]\s)|(?<=\b(?:is|to|of|at)\s)|(?<=\b(?:are|was)\s))-)?(?:\d(?:[\d,]*\d)?(?:\.\d+)?|\.\d+)(?:\s?%)?)
    |(?P<minus>(?<=[a-z]\s)-(?=\.?\d))
    |(?P<sign>[+*×·÷/-]|\^(?!\s?\(?-?\d+[a-z])|(?<=\d\s):(?=\s\d)|\b(?:plus|minus|times|multiplied\ by|divided\ by|x|of)\b)
    |(?P<root>√|\bsqrt(?=\s?\())|(?P<open>[(\[{])|(?P<close>[)\]}])
    |(?P<word>[a-z][\w'-]*(?:/[a-z]\w*[²³]?)?)|(?P<other>[^\s$£€¥₹°])""",
    re.X | re.I,
)
_SIGNS = {"×": "*", "·": "*", "÷": "/", ":": "/", "plus": "+", "minus": "-", "times": "*", "x": "*", "of": "*"}
_SIGNS |= {"multiplied by": "*", "divided by": "/"}
_DEBT = re.compile(r"(?<![\d)%])(?<![\d)%]\s)-([$£€¥₹])(?=\d)")
_BESIDE = re.compile(r"(?<![\w.])([\d.]+)\((?=[-\d])")
_NOTE = re.compile(r"\s?\([^\W\d_][^()\d=\n]+\)")  # "4 (people) + 8 (dogs)"
_WORDS = 3  # at most, between a number and the sign after it: "7 bags of rice + 2"


def working(number: str, step: str) -> str:
    """The calculation of ``number`` in a step, in digits and ``+-*/^√()%`` alone, with the equals sign; else the left side of
    an equation in unknowns that comes to it (``1555+X=``); else empty.

    The last such calculation counts. It need not be followed by an equals sign, but it has to come to the number; to its
    last decimal place where it has any. ``number`` is as results have it: ``6``, ``2.5``.
    """
    value = number_value(number)
    if value is None:
        return left_side(number, step)
    digits, _, scale = number.partition(" ")
    _, dot, decimals = digits.rstrip("%").partition(".")
    share = number.endswith("%") and "%" in plain_numbers(step)
    slack = Fraction(1, 2 * 10 ** len(decimals)) if dot else Fraction(0)
    wanted = {value, value / SCALES.get(scale, 1)}  # "512 + 498 = 1,010 thousand"
    text = _NOTE.sub("", plain_numbers(written_powers(strip_annotations(step))))
    text = _BESIDE.sub(r"\1*(", _DEBT.sub(r"\1-", text))
    fraction = ""  # what it comes to, written as a quotient: "= 1/4" behind "1/2 * 1/2"
    for terms in reversed(list(_calculations(text))):
        found = evaluate(terms) if not number.startswith("".join(terms)) else None  # "2*10" is a part of "2*10^3"
        away = [] if found is None else [abs(found - each) for each in wanted] + [abs(100 * found - value)] * share
        if min(away, default=slack + 1) <= slack:
            if len(terms) != 3 or not re.search(
                rf"(?:[=≈]|\bor|\bi\.e\.,?)\s?{terms[0]}\s?/\s?{terms[2]}(?!\d|[/.]\d|\s?[=*+-])", text
            ):
                return "".join(terms) + "="
            fraction = fraction or "".join(terms) + "="
    return fraction or left_side(number, step)


def _calculations(text: str) -> Iterator[list[str]]:
    """Every run of numbers, signs and brackets in which there is a sign. Words after a number are left out."""
    run: list[str] = []
    words = 0
    negative = ""
    for kind, term in [*_terms(text), ("end", "")]:
        valued = bool(run) and _is_value(run[-1])  # whether a sign may follow
        if kind == "minus" and not valued:  # "Then -1 + 9", where "12 pens -3" has a sign
            negative = term
            continue
        kind, term, negative = "sign" if kind == "minus" else kind, negative + term, ""
        if valued and words < _WORDS and (kind == "word" or (term == "of" and words)):
            words += 1
            continue
        unclosed = run.count("(") > run.count(")")
        if (
            (kind == "sign" and valued and (term != "^" or not words))
            or (kind in ("number", "open", "root") and not valued)
            or (kind == "close" and valued and unclosed)
        ):
            run.append(_SIGNS.get(term, term))
        else:
            yield from _whole(run)
            run = [term] if kind in ("number", "open", "root") else []
        words = 0


def _terms(text: str) -> Iterator[tuple[str, str]]:
    for match in _TOKEN.finditer(text):
        kind, term = str(match.lastgroup), match[0].casefold()
        if kind == "number":
            term = term.replace(",", "").replace(" ", "")
            term = f"0{term}" if term.startswith(".") else term
        yield kind, {"open": "(", "close": ")", "root": "√"}.get(kind, term)


def _is_value(term: str) -> bool:
    return term == ")" or term[-1].isdigit() or term[-1] == "%"


def _whole(run: list[str]) -> Iterator[list[str]]:
    """The calculation of a run, without signs at its end and brackets that are never closed."""
    while run and not _is_value(run[-1]):
        run = run[:-1]
    for _ in range(run.count("(") - run.count(")")):
        run.remove("(")
    if any(term in "+-*/^√" for term in run):
        yield run
