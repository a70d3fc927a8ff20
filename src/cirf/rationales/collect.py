"""Rationales collected from files and from the data set, checked against the answers.

A file's row finds its problem by id or by question::

    {"question": "Q: Natalia sold clips ...", "rationale": "Step 1: 48 / 2 = 24 ...", "answer": "72"}   ->  train-0, agrees

Of each problem the first ``per_problem`` rationales stay: files in the order given, each in its own order, then the data
set's own solution; or, where language models are the source, their answers sample by sample.

A rationale's answer is read only if the text states outright that it is the answer. Prose is full of numbers and of the word "a",
so guessed answers would drop good rationales. An anchored statement counts (``#### 72``, ``\\boxed{72}``, ``the answer is
72``), and of it only what can be read one way. Without one, the number that the last sentence works out may confirm the answer
(``80 + 6 = 86 minutes``), and may deny it only where the sentence is a conclusion (``So the result is 86 minutes``).
"""

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from operator import itemgetter
from pathlib import Path
from typing import Any

from cirf.errors import CirfError
from cirf.rationales.agreement import alike, doubtful, named_in, same_value
from cirf.rationales.files import Matcher, Row, find_file, read_rationales
from cirf.rationales.segmentation import clean_segments
from cirf.rationales.thoughts import left_out, rationale_of
from cirf.recipe import schema
from cirf.records import AnswerKind, Dropped, Problem, Rationale, TeacherRationale
from cirf.tasks.loading.unusable import Tolerance, Unusable
from cirf.tasks.parsing.anchors import denial
from cirf.tasks.parsing.answers import anchors, number_value
from cirf.tasks.parsing.numeric import in_full
from cirf.tasks.steps import calculated
from cirf.tasks.steps.calculations import UNITS, numbers_named
from cirf.tasks.task import Task
from cirf.text.normalise import normalise
from cirf.text.numerals import UNREAD, find_numbers, number_text, plain_numbers, with_points, with_signs
from cirf.text.sentences import BETWEEN_SENTENCES, sentences

_STAGE = "rationales"
_EXAMPLES = 3
_SHOWN = 60  # characters of an answer


@dataclass(frozen=True, slots=True)
class Collected:
    """The rationales in the order of the problems, what was dropped and why, counts by source and file, and the rows of files
    that could not be used."""

    rationales: list[Rationale]
    dropped: list[Dropped]
    report: dict[str, Any]
    unusable: list[Unusable]


@dataclass(slots=True)
class _Gathering:
    """The state so far: offered texts per problem, in order of preference."""

    offered: dict[str, list[tuple[str, str, bool | None, str | None]]]
    dropped: list[Dropped] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)
    """For the first few rationales with another answer than their question: both answers."""
    thoughts: list[tuple[int, int]] = field(default_factory=list)
    """Of texts whose thoughts are left out for an explanation, the words of both."""

    def rationale(self, text: str, part: schema.Part) -> str:
        if part == "auto" and (words := left_out(text)) is not None:
            self.thoughts.append(words)
        return rationale_of(text, part)

    def differs(self, where: str, problem: Problem, text: str, answer: str | None, task: Task) -> None:
        if len(self.differing) < _EXAMPLES:
            said = stated_answer(text, problem, task) or answer
            says = f"says `{said[:_SHOWN]}`" if said else f"ends `{' '.join(text.split())[-_SHOWN:]}`"
            self.differing.append(f"{where} has `{problem.answer[:_SHOWN]}`, its rationale {says}")

    def offer(self, problem: Problem, text: str, source: str, agrees: bool | None, prompt: str | None = None) -> bool:
        """Add a rationale; ``False`` if this very text of this problem is there already."""
        texts = self.offered[problem.id]
        if any(text.strip() == other.strip() for other, *_ in texts):
            return False
        texts.append((text, source, agrees, prompt))
        return True


def collect(
    problems: Sequence[Problem],
    section: schema.Rationales,
    data: str | None,
    tasks: Mapping[str, Task],
    taught: Sequence[TeacherRationale] = (),
    tolerance: Tolerance | None = None,
) -> Collected:
    """Rationales for the training problems (paper A.2, CoT Collection), at most ``section.per_problem`` a problem.

    ``data``: the folder of mirrored data sets, where files are looked for too; ``tasks``: table name to task; ``taught``: what
    language models wrote, for ``source: teacher``. A row's own ``answer``, and the answer its text states outright, are compared
    with the problem's; ``check: drop`` drops those that differ. Raises ``CirfError`` for a file that is missing, for one with
    more malformed rows than the ``tolerance`` allows (without one: for the first), and if not one rationale is left.
    """
    found = gather(problems, section, data, tasks, tolerance, taught)
    if problems and not found.rationales:
        reasons = ", ".join(f"{reason}: {count}" for reason, count in found.report["reasons"].items())
        advice = "name files whose questions are the training problems' in rationales.files, or add a `rationale` to the problems"
        if section.source == "teacher":
            advice = "try more rationales.teacher.samples, another prompt or model, or rationales.check=keep"
            if found.report["reasons"].get("truncated", 0) > len(problems) / 2:
                advice = "raise rationales.teacher.max_tokens, or ask for shorter answers in rationales.teacher.prompt"
        if found.report.get("differing"):
            reasons += f"; {found.report['differing'][0]}"
            advice = f"{advice}, or set rationales.check=keep" if section.source != "teacher" else advice
        none = f"no rationale for any of {len(problems)} training problems"
        raise CirfError(f"rationales.source={section.source}: {none} ({reasons}); {advice}")
    return found


def gather(
    problems: Sequence[Problem],
    section: schema.Rationales,
    data: str | None,
    tasks: Mapping[str, Task],
    tolerance: Tolerance | None = None,
    taught: Sequence[TeacherRationale] = (),
) -> Collected:
    """As ``collect``, but returns nothing instead of raising if nothing is found."""
    if section.source == "files" and not section.files:
        raise CirfError("rationales.files: empty although rationales.source is files; name one or set rationales.source=dataset")
    tolerance = tolerance or Tolerance(0)
    state = _Gathering({problem.id: [] for problem in problems})
    matcher = Matcher(problems)
    files: dict[str, dict[str, Any]] = {}
    if section.source in ("auto", "files"):
        for name in section.files:
            path = find_file(name, data, "rationales.files")
            refused = tolerance.begin()
            rows = read_rationales(path, refused)
            tolerance.settle(path.name, len(rows), refused)
            files[name] = _from_file(rows, path, matcher, state, section, tasks)
    dataset = _from_dataset(problems, state, section, tasks) if section.source in ("auto", "dataset") else None
    models = _from_teachers(problems, taught, state, section) if section.source == "teacher" else None
    touched = {row.problem for row in state.dropped}
    rationales: list[Rationale] = []
    for problem in problems:
        kept = state.offered[problem.id][: section.per_problem]
        rationales.extend(Rationale(problem.id, sample, *offered) for sample, offered in enumerate(kept))
        if not kept and problem.id not in touched:
            state.dropped.append(Dropped(problem.id, None, _STAGE, "no rationale"))
    report = _report(problems, rationales, state, files, dataset, models)
    report |= tolerance.report | {"reasons": dict(sorted((tolerance.reasons + Counter(report["reasons"])).items()))}
    return Collected(rationales, state.dropped, report, tolerance.files)


def _from_file(
    rows: Sequence[Row], path: Path, matcher: Matcher, state: _Gathering, section: schema.Rationales, tasks: Mapping[str, Task]
) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    unmatched: list[str] = []
    duplicates: list[str] = []
    for row in rows:
        counts["rows"] += 1
        candidates = matcher.candidates(row)
        if not candidates:
            counts["unmatched"] += 1
            unmatched.append(row.where)
            continue
        counts["matched"] += 1
        text = state.rationale(row.rationale, section.part)
        verdicts = [(one, agrees_with(text, row.answer, one, _task(tasks, one))) for one in candidates]
        problem, agrees = next((pair for pair in verdicts if pair[1]), verdicts[0])
        counts[_verdict(agrees)] += 1
        if agrees is False:
            state.differs(row.where, problem, text, row.answer, _task(tasks, problem))
        if agrees is False and section.check == "drop":
            state.dropped.append(Dropped(problem.id, None, _STAGE, "another answer"))
        elif not state.offer(problem, text, path.stem, agrees):
            duplicates.append(row.where)
            state.dropped.append(Dropped(problem.id, None, _STAGE, "duplicate"))
    return {
        "path": str(path),
        **{name: counts[name] for name in ("rows", "matched", "unmatched", "agree", "differ", "unread")},
        "duplicates": len(duplicates),
        "first_unmatched": unmatched[:_EXAMPLES],
        "first_duplicates": duplicates[:_EXAMPLES],
    }


def _from_dataset(
    problems: Sequence[Problem], state: _Gathering, section: schema.Rationales, tasks: Mapping[str, Task]
) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for problem in problems:
        if problem.rationale is None:
            continue
        counts["rows"] += 1
        if not problem.rationale.strip():
            state.dropped.append(Dropped(problem.id, None, _STAGE, "empty rationale"))
            continue
        text = state.rationale(problem.rationale, section.part)
        agrees = agrees_with(text, None, problem, _task(tasks, problem))
        counts[_verdict(agrees)] += 1
        if agrees is False:
            state.differs(problem.id, problem, text, None, _task(tasks, problem))
        if agrees is False and section.check == "drop":
            state.dropped.append(Dropped(problem.id, None, _STAGE, "another answer"))
        else:
            state.offer(problem, text, "dataset", agrees)
    return {name: counts[name] for name in ("rows", "agree", "differ", "unread")}


def _from_teachers(
    problems: Sequence[Problem], taught: Sequence[TeacherRationale], state: _Gathering, section: schema.Rationales
) -> dict[str, dict[str, int]]:
    """Offer the usable answers of teachers for ``problems``, surely right ones first; drop the rest with a reason."""
    by_id = {problem.id: problem for problem in problems}
    counts: dict[str, Counter[str]] = {}
    models = list(dict.fromkeys(row.model for row in taught))
    dealt = section.per_problem < len(models)

    def preference(row: TeacherRationale) -> tuple[bool, int, int]:
        """Right answers first. Where not every model's answer is kept, each model is the first for as many problems."""
        first = int.from_bytes(hashlib.sha256(row.problem.encode()).digest()[:4], "big") if dealt else 0
        return row.right is not True, row.sample, (models.index(row.model) + first) % len(models)

    for row in sorted(taught, key=preference):
        if row.problem not in by_id:
            continue
        count = counts.setdefault(row.model, Counter())
        count["rows"] += 1
        count[_verdict(row.right)] += 1
        fault = row.fault(section.check)
        if fault is not None:
            state.dropped.append(Dropped(row.problem, None, _STAGE, fault))
        elif not state.offer(by_id[row.problem], row.text, row.model, row.right, row.prompt):
            state.dropped.append(Dropped(row.problem, None, _STAGE, "duplicate"))
    return {model: {name: count[name] for name in ("rows", "agree", "differ", "unread")} for model, count in counts.items()}


def agrees_with(text: str, answer: str | None, problem: Problem, task: Task) -> bool | None:
    """Whether a rationale ends in the problem's answer, ``None`` where it states none that can be read. ``answer``: the answer in
    its row, which may be a copy of the true one, so the text counts."""
    if answer is not None:
        parsed = task.parse(answer, problem)
        if not (task.equal(answer, problem) or (parsed is not None and task.equal(parsed, problem))):
            return False
    stated, after = _stated(text, problem, task)
    if stated is not None:
        agrees = task.equal(stated, problem)
        unsure = not agrees and (
            named_in(after, problem, task) or (task.kind(problem) == "text" and doubtful(stated, problem.answer))
        )
        return None if unsure else agrees
    closing = closes_with(text, problem, task)
    return closing if closing is not None or answer is None else True


def _task(tasks: Mapping[str, Task], problem: Problem) -> Task:
    if problem.task in tasks:
        return tasks[problem.task]
    raise CirfError(f"problem {problem.id}: its task {problem.task} is not in problems.tasks ({', '.join(sorted(tasks))})")


def _verdict(agrees: bool | None) -> str:
    return "unread" if agrees is None else "agree" if agrees else "differ"


def unmatched(report: Mapping[str, Any], every: bool = False) -> list[str]:
    """A sentence for each file of rationales with rows that match no training question; ``report`` is `Collected`'s. ``every``:
    only for files with no other row, since a run may draw few of the questions that a file has rationales for."""
    return [
        f"{name}: {counts['unmatched']:,} of {counts['rows']:,} rows match no training question, "
        f"the first that of {counts['first_unmatched'][0].rpartition(', ')[2]}"
        for name, counts in report["files"].items()
        if counts["unmatched"] and not (every and counts["matched"])
    ]


def other_answers(report: Mapping[str, Any]) -> str | None:
    """A sentence on the rationales that end in another answer than their question has; ``report`` is `Collected`'s."""
    if not report.get("differing"):
        return None
    count = sum(part["differ"] for part in (*report["files"].values(), report["dataset"] or {"differ": 0}))
    plural = "rationales end" if count > 1 else "rationale ends"
    return f"{count:,} {plural} in another answer: {report['differing'][0]}; fix them, or set rationales.check=keep"


def without_thoughts(report: Mapping[str, Any]) -> list[str]:
    """A sentence on thoughts that are left out for the explanations after them; ``report`` is `Collected`'s."""
    if (found := report.get("thoughts_left_out")) is None:
        return []
    rows = f"{found['rows']:,} {'row has' if found['rows'] == 1 else 'rows have'}"
    return [
        f"{rows} thoughts that are left out, since an explanation follows them (mean words: {found['words']:,} of thoughts, "
        f"{found['explanation_words']:,} of explanation); rationales.part=thoughts takes the thoughts"
    ]


def _report(
    problems: Sequence[Problem],
    rationales: Sequence[Rationale],
    state: _Gathering,
    files: Mapping[str, Mapping[str, Any]],
    dataset: Mapping[str, int] | None,
    models: Mapping[str, Mapping[str, int]] | None,
) -> dict[str, Any]:
    more: dict[str, Any] = {"differing": state.differing} if state.differing else {}
    if state.thoughts:
        thoughts, explanations = (round(sum(words) / len(words)) for words in zip(*state.thoughts, strict=True))
        more["thoughts_left_out"] = {"rows": len(state.thoughts), "words": thoughts, "explanation_words": explanations}
    covered = {rationale.problem for rationale in rationales}
    offered = sum(len(texts) for texts in state.offered.values())
    return {
        "problems": len(problems),
        "problems_with_rationale": len(covered),
        "rationales": len(rationales),
        "surplus": offered - len(rationales),
        "sources": dict(sorted(Counter(rationale.source for rationale in rationales).items())),
        "agrees": dict(sorted(Counter(_verdict(rationale.agrees) for rationale in rationales).items())),
        "reasons": dict(sorted(Counter(row.reason for row in state.dropped).items())),
        "files": {name: dict(counts) for name, counts in files.items()},
        "dataset": dict(dataset) if dataset is not None else None,
        "models": dict(models) if models is not None else None,
        **more,
    }


_ANCHOR = re.compile(r"answer|\\boxed|####", re.I)
_ANSWER_LINE = re.compile(r"(?:^|\s)#### ?([^\n]+)\s*\Z")
_BOXED = re.compile(r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_ANNOUNCED = re.compile(
    r"\b(?:final |correct |right |best )?answer(?: (?:here|now|to (?:the|this) (?:question|problem)))?(?: ?:| is:?)"
    r"(?: |\n+(?=[^\n]+\Z))(?:therefore |thus |then |still )?(?=([^\n]{1,500}))"
    r"|\banswer to whether [^\n.]*? is (yes|no)\b",
    re.I,
)
_CONCLUDES = re.compile(
    r"^\W*(?:so|therefore|thus|hence|in total|altogether|in conclusion)\b"
    r"|\b(?:answer|result|total) (?:is|was|would be|will be|should be|comes to|equals)\b",
    re.I,
)
_UNSURE = re.compile(r"\b(?:above|below|over|under|than|least|most|between|if|not|would have)\b|\d \d{3}\b", re.I)
_SCALE = re.compile(r" (?:hundred|thousand|million|billion|trillion)$")  # often part of the question's unit
_LONGEST_TEXT = 80
_MOST = 200  # statements that are looked at
_NUMBER = re.compile(r"(?<![\w.])[-+]?[$€£]?\d[\d,]*(?:\.\d+)?(?:/\d+)?")
_LETTER = re.compile(r"(?:option |choice )?(?:[(\[]([A-Z])[)\]]|([A-Z])(?![\w']))")
_NO_SOLUTION = re.compile(
    r"\W*(?:<(?:!doctype|html|\?xml)\b|(?:i['’]?m |i am )(?:very |so )?sorry\b|sorry,? (?:but|i)\b|"
    r"i apologi[sz]e\b|as an ai\b|unfortunately,? i\b|i am (?:unable|not able) |i can(?:['’]t| ?not) (?:help|solve|answer)\b|"
    r"(?:please|could you|can you) (?:please )?(?:provide|share|clarify))",
    re.I,
)
_OTHER_NUMBERS = {"dozen", "hundred", "thousand", "million", "half", "pair", "both", "none", "nothing"}  # with another word
_NEGATIVE = re.compile(
    r"\b(?:loss(?: here)?|deficit|shortfall|debt|negative|minus|down|overdrawn|lost|loses?)\s(?:of\s|by\s)?[$€£]?\d"
    r"|\b\d[\d,.]*%?(?:\s\w+){0,2}?\s(?:loss|deficit|(?:in|of) debt|in the red|overdrawn|under par"
    r"|below (?:zero|freezing|sea level))\b"
    r"|^\W*\([$€£]?\d[\d,.]*\)\W*$",
    re.I,
)
_UNKNOWNS = re.compile(r"\b[A-Za-z]\s?=\s?[-\d]")
_STATED_UP_TO = re.compile(rf"(?:{BETWEEN_SENTENCES.pattern})|,?\s(?=but\b|however\b)")
_ARTICLE = re.compile(r"^[\s*\"'“‘]*(?:(?:an?|the)\s)?")
_NOTE = r"[.!*\s\"'”’]*\Z|[*\s]*\([^()]*\)[.!*\s]*\Z|,\sof\scourse\b"
_AFTER = re.compile(rf"{_NOTE}|\s[–—-]\s|,?\s(?:because|since|i\.e)(?=\W|\Z)")
_AFTER_NUMBER = re.compile(rf"(?:\s?(?!(?:and|or|to|is|x)\b)[a-z°%µ][a-z/²³°]*)?(?:{_NOTE})")
_YES_NO = re.compile(r"(?:yes|no|true|false)\b", re.I)


def stated_answer(text: str, problem: Problem, task: Task) -> str | None:
    """The canonical answer that a rationale states, by its last anchored statement; ``None`` where it states none readable."""
    return _stated(text, problem, task)[0]


def _stated(text: str, problem: Problem, task: Task) -> tuple[str | None, str]:
    """As `stated_answer`, with the text after the statement: *The obvious answer is 100. But it takes 5.*"""
    text, task = _in_points(text, problem, task)
    if not _ANCHOR.search(text):
        return None, ""
    if task.kind(problem) == "latex":
        return (task.parse(text, problem) if anchors(text) else None), ""
    line = _ANSWER_LINE.search(text)
    if line is not None:
        return task.parse(line[1].strip(), problem), ""
    plain = normalise(text)
    boxed = [(match.start() / max(1, len(text)), text, match, 1) for match in _BOXED.finditer(text)]
    announced = [(match.start() / max(1, len(plain)), plain, match, match.lastindex or 1) for match in _ANNOUNCED.finditer(plain)]
    for _, whole, match, group in sorted(boxed + announced, key=itemgetter(0), reverse=True)[:_MOST]:
        _, statement = denial(match[group])
        words = _readable(statement, task.kind(problem), problem) if statement else None
        if words is not None:
            ends = _STATED_UP_TO.search(whole, match.start(group)) if match.re is _ANNOUNCED else None
            return task.parse(words, problem), whole[ends.end() if ends else match.end(group) :]
    return None, ""


def may_reach(text: str, problem: Problem, task: Task) -> bool:
    """Whether a text that states no readable answer may come to the right one: no refusal; it names the number or option."""
    if _NO_SOLUTION.match(text):
        return False
    text, task = _in_points(text, problem, task)
    kind, right = task.kind(problem), number_value(problem.answer)
    numbers, words = _named(text)
    if UNREAD in plain_numbers(text) or words & _OTHER_NUMBERS or re.search(r"[^\W\d_a-zA-Z]", text):
        return True  # its numbers are not all read, such as those of another language
    if kind == "option" and problem.choices:
        values, said = _named(problem.choices[ord(problem.answer) - ord("A")])
        letter = re.search(rf"(?<![\\\w']){problem.answer}(?![\w'])", text)
        return bool(letter or not (values or said) or values & numbers or said & words)
    if kind != "number" or right is None:
        return True
    return any(abs(value - right) < 1 or any(value in (right * size, right / size) for size in UNITS) for value in numbers)


def _named(text: str) -> tuple[set[Fraction], set[str]]:
    """The numbers of a text, in digits or in a word, and its words of four letters or more."""
    plain = plain_numbers(normalise(text)).casefold()
    return numbers_named(plain), {*re.findall(r"[^\W\d_]{4,}", plain)}


def closes_with(text: str, problem: Problem, task: Task) -> bool | None:
    """Whether the last sentence comes to the problem's number; ``None`` where it comes to none, or to another that need not
    be the answer: the sentence is no conclusion or does not give it outright, the text holds the right number elsewhere, or
    the two differ by a unit or by rounding alone.
    """
    text, task = _in_points(text, problem, task)
    steps = clean_segments(text, "auto")[1] if task.kind(problem) == "number" else []
    right = number_value(problem.answer)
    if not steps or right is None:
        return None
    last = plain_numbers(sentences(steps[-1][0])[-1])
    concludes = _CONCLUDES.search(last) is not None
    found = _SCALE.sub("", calculated(last, problem, ()))
    numbers = sorted({number.value for number in find_numbers(last)})
    value = number_value(found) if found else numbers[0] if concludes and len(numbers) == 1 else None
    if value is None or UNREAD in last:
        return None
    if task.equal(number_text(value), problem):
        return True
    outright = (last.count("=") == 1 or numbers == [value]) and _UNSURE.search(last) is None
    elsewhere = any(number.value == right for number in find_numbers(plain_numbers(text)))
    negative = right < 0 < value and _NEGATIVE.search(last) is not None
    same = abs((-value if negative else value) - right) < 1 or any(value in (right * size, right / size) for size in UNITS)
    return False if concludes and outright and not elsewhere and not same else None


def _in_points(text: str, problem: Problem, task: Task) -> tuple[str, Task]:
    """A rationale with numbers in our notation, and the task to read it by."""
    if not task.decimal_commas or task.kind(problem) != "number":
        return text, task
    return with_points(text), replace(task, decimal_commas=False)


def _readable(statement: str, kind: AnswerKind, problem: Problem) -> str | None:
    """The part of a statement that can only be the answer, in a form that any reader takes for it; else ``None``."""
    if kind == "text" and "\\" in statement:
        return statement if len(statement) <= _LONGEST_TEXT else None
    plain = normalise(statement).strip(" \"'")
    first = BETWEEN_SENTENCES.split(plain, 1)[0].rstrip(".!?")
    if kind == "number":
        tail = in_full(with_signs(plain_numbers(first.rsplit("=", 1)[-1], answer=True)))
        found = {number.strip("$€£+").rstrip(",").replace(",", "") for number in _NUMBER.findall(tail)}
        if len(found) != 1 or UNREAD in tail or len(_UNKNOWNS.findall(first)) > 1:
            return None
        value, right = number_value(only := found.pop()), number_value(problem.answer)
        negative = value and value > 0 and right == -value and _NEGATIVE.search(first)
        return problem.answer if negative or (value is not None and same_value(tail, value, problem)) else only
    if kind == "option":
        letter = _LETTER.match(plain)
        article = letter and letter[2] == "A" and re.match(r" [a-z]", plain[letter.end() :])  # "A place to sit"
        if letter is not None and not article:
            return letter[1] or letter[2]
        choices = [choice.casefold() for choice in problem.choices or ()]
        return chr(ord("A") + choices.index(first.casefold())) if choices.count(first.casefold()) == 1 else None
    if kind == "yesno":
        word = _YES_NO.match(plain)
        return word[0] if word is not None else None
    if _begins_with(first, problem.answer) or alike(first, problem.answer):
        return problem.answer
    return first if len(first) <= _LONGEST_TEXT else None


def _begins_with(said: str, answer: str) -> bool:
    """Whether a statement is the answer and a note on it: ``Paris (France)``, ``green, because ...``; ``6000 s`` of a number."""
    stated, wanted = (_ARTICLE.sub("", normalise(text).casefold().replace("−", "-")).strip() for text in (said, answer))
    after = _AFTER if number_value(answer) is None else _AFTER_NUMBER
    return bool(wanted) and stated.startswith(wanted) and after.match(stated, len(wanted)) is not None
