"""Steps of a long rationale that can be left out: those that repeat earlier ones, and those after its answer is settled.

A worked example, of a question whose answer is 72::

    So 48 + 24 = 72 clips in all.
    Wait, is it half of April? Half as many as in April, so yes.      settled
    Let me check: 72 - 48 = 24, and 24 is half of 48.                 settled
    So the answer is 72.                                              the last conclusion stays
    I am confident in it.                                             settled

The answer is settled where a step states it outright, or works it out and the next one checks or confirms it. A guess, a
supposition or a question settles nothing, and neither does what a later step takes back, states otherwise, or works on from:
apart from checks and other ways, no later step has a new number, or goes on with this one. A step stays if a later one that
stays uses a number that it brings in. A repetition has eight words or more, nearly all of which occur in earlier steps in the
same order; after the first three no word is new, and numbers occur only in known runs of four words. The work is linear.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import Any

from cirf.records import AnswerKind, Problem, Record
from cirf.tasks.parsing.anchors import anchors
from cirf.tasks.parsing.answers import equal_answers, number_value, parse_answer
from cirf.tasks.parsing.options import NEGATION
from cirf.tasks.steps import numbers_in, worked_out
from cirf.tasks.steps.calculations import CONCLUDES, numbers_named
from cirf.text.discourse import function_of
from cirf.text.sentences import BETWEEN_SENTENCES, whole_words

_WORD = re.compile(r"\d+(?:\.\d+)?|\w+|[-+*/=<>^]")
_DIGIT = re.compile(r"[\d₀-₉]")
_RUN, _FEWEST, _NEW, _OPENING = 4, 8, 0.2, 3
"""Words of a run that is compared, fewest words of a repetition, and of these the share of runs that may be new, and how many
words at the beginning (`Wait, so`)."""
_ASIDES = ("check", "alternative")
"""What may come to the answer again, and brings in numbers of its own."""
_GUESSES = re.compile(  # of a sentence: it settles nothing
    r"\?[\s\"'”’)*]*\Z|\b(?:maybe|perhaps|possibly|probably|presumably|might|(?:could|may) be|not sure|unsure|guess\w*|seems?"
    r"|(?<!even )if|unless|provided that|assum(?:e|es|ing)|suppos(?:e|es|ing)|let['’]s say"
    r"|(?:i|we)(?:['’]d)? (?:\w+ )?(?:think|believe|suspect|wonder))\b",
    re.I,
)
_TAKES_BACK = re.compile(  # "Wait, no.", "Hmm, that's not right."
    r"\W{0,9}(?:(?:hmm+|oh|but|wait|well|so|okay|and|no|actually)\b[\s,.!…—–-]{1,4}){0,4}"
    r"(?:(?<=wait, )no\b|(?<=wait )no\b|(?:that|this|it)(?:['’]s| is| was)? ?"
    r"(?:(?:not|n['’]t|can['’]t be|cannot be) (?:quite )?(?:right|correct|true)|wrong|incorrect)"
    r"|i (?:made|misread|misunderstood|miscalculated|forgot|overlooked|missed)\b|scratch that|oops)",
    re.I,
)
_CONFIRMS = re.compile(
    r"\b(?:yes|correct|(?:that|this|it|which)(?:['’]s| is| looks| seems) (?:right|fine|good)|match(?:es)?|checks? out|holds"
    r"|consistent|makes sense|same (?:answer|result|number|value))\b",
    re.I,
)
_SO = re.compile(r"[,;] (?:and )?(?:so|therefore|thus|hence) ", re.I)
_SMALL = re.compile(
    r"so|therefore|thus|hence|then|finally|that|means|which|it|its|s|is|are|was|were|be|been|must"
    r"|has|have|had|to|the|a|an|of|in|on|at|by|with|for|does|do|did|will|would|can|he|she|they"
    r"|him|her|them|his|their|only|left|indeed|again|now|also|and|as"
)
_STEM = 4  # letters: "arrives" for "arrive"


@dataclass(frozen=True, slots=True)
class Redundant(Record):
    """A step left out: its place among the steps of the rationale, why (``repeats``, ``settled``), what it did
    (`cirf.text.discourse.function_of`), and its text."""

    problem: str
    sample: int
    place: int
    why: str
    function: str
    text: str


def redundant(steps: Sequence[str], problem: Problem, sample: int = 0) -> list[Redundant]:
    """The steps of a rationale that can be left out, in order; never the last conclusion, and never all of them."""
    functions = [function_of(step) for step in steps]
    settled, last, outright = _settled(steps, functions, problem)
    concluding = [index for index, name in enumerate(functions) if name == "conclude"] or [len(steps) - 1]
    comes = last is not None and not outright and concluding[-1] > last and _comes_to(steps[concluding[-1]], problem)
    closing = concluding[-1] if last is None or comes else last
    gone = {index: "repeats" for index in _repeated(steps)}
    gone |= {} if settled is None else dict.fromkeys(range(settled + 1, len(steps)), "settled")
    gone.pop(closing, None)
    for index in _needed(steps, gone, problem):
        del gone[index]
    return [Redundant(problem.id, sample, index, gone[index], functions[index], steps[index]) for index in sorted(gone)]


def _needed(steps: Sequence[str], gone: Mapping[int, str], problem: Problem) -> list[int]:
    """Those of the steps left out that bring in a number which a step that stays uses."""
    numbers = [_numbers(step) for step in steps]
    first: dict[Fraction, int] = dict.fromkeys(_numbers(problem.question), -1)
    for index, each in enumerate(numbers):
        for number in each:
            first.setdefault(number, index)
    used: set[Fraction] = set()
    found = []
    for index in reversed(range(len(steps))):
        if index not in gone or any(first[number] == index for number in used & numbers[index]):
            used |= numbers[index]
            found += [index] if index in gone else []
    return found


def _numbers(text: str) -> set[Fraction]:
    return numbers_named(text) - {Fraction(1)}  # "one of them"


def _settled(steps: Sequence[str], functions: Sequence[str], problem: Problem) -> tuple[int | None, int | None, bool]:
    """The place of the step that settles the answer, that of the last one that states it, or else works it out (``None`` where
    none does), and whether one states it."""
    kind = _kind(problem)
    firm = [_firm(step) for step in steps]
    others = [place + 1 for place, step in enumerate(steps) if _says(step, kind, problem) is False]
    after = max(others + [place for place, step in enumerate(steps) if _TAKES_BACK.match(step)], default=0)
    says = [_says(text, kind, problem) for text in firm]
    stating = [place for place in range(after, len(steps)) if says[place] or _repeats_question(firm[place], problem)]
    working: list[int] = []
    made = [worked_out(text) for text in firm]
    known: dict[str, int] = {}
    for place, values in enumerate(made):
        for each in values:
            known.setdefault(each, place)
    if kind == "number":
        start = max(after, _last_that_goes_on(steps, functions, stating, problem))
        value = number_value(problem.answer)
        working = [place for place in range(start, len(steps)) if made[place] and number_value(made[place][-1]) == value]

    def confirmed(place: int) -> bool:
        """Whether the next step is a check, says that it is right, concludes with the number, or calculates all that again."""
        if place + 1 == len(steps) or functions[place + 1] in _ASIDES or _CONFIRMS.search(firm[place + 1]):
            return True
        again = place + 1 in working and all(known[each] <= place for each in made[place + 1])
        return again or (functions[place + 1] == "conclude" and _comes_to(steps[place + 1], problem))

    first = min([*stating[:1], *islice(filter(confirmed, working), 1)], default=None)
    return first, max(stating or working, default=None), bool(stating)


def _firm(step: str) -> str:
    """A step without the sentences that guess, suppose or ask."""
    sentences = BETWEEN_SENTENCES.split(step)
    kept = [sentence for sentence in sentences if not _GUESSES.search(sentence)]
    return step if len(kept) == len(sentences) else "\n".join(kept)


def _says(text: str, kind: AnswerKind, problem: Problem) -> bool | None:
    """Whether what a text says that the answer is is the problem's; ``None`` where it does not say so."""
    answer = parse_answer(kind, text, problem.choices) if anchors(text) else None
    return None if answer is None else equal_answers(kind, answer, problem.answer)


def _last_that_goes_on(steps: Sequence[str], functions: Sequence[str], stating: Sequence[int], problem: Problem) -> int:
    """The place of the last step, apart from checks and other ways, that has a new number or calculates with that of the answer;
    0 without one."""
    value = number_value(problem.answer)
    known = _numbers(problem.question)
    aside, last = False, 0
    for place, (step, function) in enumerate(zip(steps, functions, strict=True)):
        aside = function in _ASIDES or (aside and function not in ("reconsider", "plan"))
        numbers, made = _numbers(step), worked_out(step)
        uses = value in numbers and bool(made) and number_value(made[-1]) != value
        new = not known.issuperset(numbers) and (bool(made) or place not in stating)
        known |= numbers
        last = place if (uses or new) and not aside else last
        aside = aside and function != "conclude" and not _CONFIRMS.search(step)
    return last


def _repeats_question(text: str, problem: Problem) -> bool:
    """Whether a sentence that concludes chooses the option of the answer, or says what is asked with the answer, a text, in its
    place: ``So it is 10:50, which is option B``, ``So Carol owns the cat`` for ``Who owns the cat?``"""
    letter, choices = problem.answer, problem.choices or ()
    place = ord(letter) - ord("A") if choices and len(letter) == 1 else -1
    answer = choices[place] if 0 <= place < len(choices) else letter
    if not answer.strip() or _kind(problem) not in ("option", "text"):
        return False
    named = re.compile(whole_words(re.escape(answer.strip(" .")), answer), re.I)
    asked = BETWEEN_SENTENCES.split(problem.question.strip())[-1]
    words = {word[:_STEM] for word in _WORD.findall(asked.casefold())}
    for sentence in BETWEEN_SENTENCES.split(text):
        *_, said = _SO.split(sentence)
        if (said == sentence and not CONCLUDES.match(sentence)) or NEGATION.search(said):
            continue
        if choices and _chooses(said, letter, answer):
            return True
        rest = {word for word in _WORD.findall(named.sub(" ", said).casefold()) if not _SMALL.fullmatch(word)}
        if named.search(said) and not named.search(asked) and all(word[:_STEM] in words for word in rest):
            return True
    return False


def _chooses(said: str, letter: str, text: str) -> bool:
    option = rf"(?:the )?(?:(?:option|choice|answer) )?\W{{0,3}}(?-i:{letter})\b"
    closes = rf"\b(?:is|be|it['’]s|choose|pick|select|go with) {option}(?:\W{{0,4}}{re.escape(text)})?\W*\Z"
    return (
        re.search(rf"{closes}|\b{option}\W{{0,4}}is (?:the )?(?:only )?(?:right|correct|best|answer)\b", said, re.I) is not None
    )


def _comes_to(step: str, problem: Problem) -> bool:
    """Whether a step names the number of the answer, and works out no other: ``So the gross is 1,380.00.``"""
    value = number_value(problem.answer)
    if value is None or problem.choices or value not in numbers_in(step):
        return False
    made = worked_out(step)
    return not made or number_value(made[-1]) == value


def _kind(problem: Problem) -> AnswerKind:
    if problem.choices:
        return "option"
    if problem.answer in ("yes", "no"):
        return "yesno"
    return "number" if number_value(problem.answer) is not None else "text"


def _repeated(steps: Sequence[str]) -> set[int]:
    runs: set[tuple[str, ...]] = set()
    words: set[str] = set()
    found = set()
    for index, step in enumerate(steps):
        said = _WORD.findall(step.casefold())
        own = [tuple(said[at : at + _RUN]) for at in range(len(said) - _RUN + 1)]
        new = [run for run in own if run not in runs]
        same = len(new) <= _NEW * len(own) and not any(map(_DIGIT.search, map(" ".join, new)))  # 3 * 4 after 3 + 4 is new
        if len(said) >= _FEWEST and same and words.issuperset(said[_OPENING:]):
            found.add(index)
        runs.update(own)
        words.update(said)
    return found


def count_left_out(left_out: Sequence[Redundant], kept: Iterable[str], tokens: Callable[[str], int]) -> dict[str, Any]:
    """How many steps and tokens were left out of how many tokens in all, by reason and function."""
    counts: dict[str, dict[str, Counter[str]]] = {}
    for row in left_out:
        count = counts.setdefault(row.why, {}).setdefault(row.function, Counter())
        count.update(steps=1, tokens=tokens(row.text))
    gone = sum(count["tokens"] for by in counts.values() for count in by.values())
    return {
        "rationales": len({(row.problem, row.sample) for row in left_out}),
        "steps": len(left_out),
        "tokens": gone,
        "of_tokens": gone + sum(map(tokens, kept)),
        "by": {why: {name: dict(count) for name, count in sorted(by.items())} for why, by in sorted(counts.items())},
    }


def left_out_notes(summary: Mapping[str, Any]) -> list[str]:
    """Sentences on the steps left out, from the dict of `count_left_out`; none where there are none."""
    if not summary.get("tokens"):
        return []
    by = (f"{count['tokens']:,} {name} ({why})" for why, found in summary["by"].items() for name, count in found.items())
    share = summary["tokens"] / summary["of_tokens"]
    notes = [f"redundant: {summary['tokens']:,} of {summary['of_tokens']:,} tokens ({share:.0%}) are left out: {', '.join(by)}"]
    if likely := summary.get("log_likelihood"):
        notes.append(
            f"redundant: mean log-likelihood of the answer {likely['with']:.2f} with them, {likely['without']:.2f} without; "
            f"of {likely['rationales']} rationales, {likely['fell']} make it less than half as likely"
        )
    return notes
