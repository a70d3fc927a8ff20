"""Whether what a rationale says and the answer of its row are the same in other words.

``4 May 2024`` is ``2024-05-04``, ``the seventeenth century`` the ``17th century``, ``2:30 pm`` is ``14:30``, ``1 million`` is
1000000, and 33.333 is 33.3. `alike` is sure; `doubtful` is not, and then a row stays.
"""

import re
from fractions import Fraction
from functools import lru_cache

from cirf.records import Problem
from cirf.tasks.parsing.answers import mentions, number_value
from cirf.tasks.parsing.texts import tidy
from cirf.tasks.steps.calculations import UNITS, numbers_named
from cirf.tasks.task import Task
from cirf.text.normalise import normalise
from cirf.text.numerals import SCALES, find_numbers, number_text, with_digits
from cirf.text.sentences import BETWEEN_SENTENCES

_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_FORMS = (  # of units, without a plural's s
    "h hr hour|min minute|s sec second|km kilometer kilometre|m meter metre|cm centimeter centimetre|mm millimeter millimetre"
    "|kg kilogram kilo|g gram|mg milligram|l liter litre|ml milliliter millilitre|ft foot feet|in inch inche|lb pound £|oz ounce"
    "|dollar $|euro €|% percent"
)
_FOLDED = {form: forms.split()[0] for forms in _FORMS.split("|") for form in forms.split()}
_FOLDED |= {form: month for month in _MONTHS for form in (month, month[:3])} | {"sept": "september"}
_LEFT_OUT = frozenset(("a", "an", "the", "of", "and", "option", "choice"))
_ISO = re.compile(r"(?<![\d-])(\d{4})-(0?[1-9]|1[0-2])-(\d{1,2})(?![\d-])")
_DATE = re.compile(rf"\b(\d{{1,2}})\s(?:of\s)?({'|'.join(month[:3] + '[a-z]*' for month in _MONTHS)})\b")
_CLOCK = re.compile(r"(?<![\d:.])(1[0-2]|0?[1-9])(?::([0-5]\d))?\s?([ap])\.?m\b")
_ORDINAL = re.compile(r"(?<=\d)(?:st|nd|rd|th)\b")
_TOKEN = re.compile(r"\d[\d,]*(?:\.\d+)?(?::\d\d)*|[^\W\d_]+(?:['’][^\W\d_]+)*|[-−+*/=<>^%$€£#]")
_OTHERWISE = re.compile(  # says something else about a name in the same text
    r"\b(?:not|or|nor|no|none|neither|never|without|but|except|than|to|very|highly|slightly|partly|partially|mostly|almost|nearly"
    r"|half|more|less|least)\b|n['’]t\b",
    re.I,
)
_LIST = re.compile(r"[;/&]|\band\b|(?<!\w)\A(?!the\s)[^,]*,", re.I)
_OPERATORS = frozenset("-−+*/=<>^")
_PERCENT = re.compile(r"%|\bpercent", re.I)
_CLAUSE = re.compile(r"[,;]\s|(?<=[.!?])\s|\n")
_DENIES = re.compile(r"\b(?:not|never|cannot|unlike|than|instead|neither|nor|wrong|incorrect|false|ruled?|out)\b|n[’']t\b", re.I)
_LENGTHS = {"h": 3600, "min": 60, "s": 1}
_LONGEST = 200  # characters of a text that is compared


def alike(said: str, answer: str) -> bool:
    """Whether two texts are the same words in the same order, but for small words and the ways to write numbers and units."""
    return _words(said) == _words(answer) != ()


def doubtful(said: str, answer: str) -> bool:
    """Whether two texts may mean the same: the same words in another order, or a name and a longer form of it."""
    ours, theirs = _words(said), _words(answer)
    if not ours or not theirs or {*ours, *theirs} & _OPERATORS:
        return False
    if sorted(ours) == sorted(theirs):
        return sum(word[0].isdigit() for word in ours) < 2
    if None is not _seconds(ours) == _seconds(theirs):
        return True
    longer, shorter, text = (ours, theirs, said) if len(ours) > len(theirs) else (theirs, ours, answer)
    rest = _without(longer, shorter)
    if rest is None or any(word[0].isdigit() for word in longer) or len("".join(shorter)) < 2:
        return False
    named = longer is ours or tidy(said)[:1].isupper()
    return named and _OTHERWISE.search(" ".join(rest)) is None and _LIST.search(tidy(text)) is None


def same_value(said: str, value: Fraction, problem: Problem) -> bool:
    """Whether a statement of one number ``value`` is the problem's number: as a share for a percentage, with a word that
    multiplies it, or with more or fewer decimals."""
    right = number_value(problem.answer)
    if right is None or value == right:
        return right is not None
    if any(number.value == right for number in find_numbers(said)):
        return True
    shared = _PERCENT.search(said) is not None, _PERCENT.search(problem.question) is not None
    if (shared[0] and value == 100 * right) or (shared[1] and not shared[0] and 100 * value == right):
        return True
    places = [len(number_text(each).partition(".")[2]) for each in (value, right) if "/" not in number_text(each)]
    return len(places) == 2 and min(places) > 0 and abs(value - right) < Fraction(1, 10 ** min(places))


def named_in(text: str, problem: Problem, task: Task) -> bool:
    """Whether a text holds the problem's answer: its value, its option's letter or text where nothing denies it, or its words."""
    kind, right = task.kind(problem), number_value(problem.answer)
    if not text.strip():
        return False
    if right is not None and kind in ("number", "text"):
        sizes = {right, *(right * size for size in UNITS), *(right / size for size in UNITS)}
        return bool(sizes & numbers_named(normalise(text)))
    clauses = _CLAUSE.split(normalise(text))
    if kind == "option":
        letter = re.compile(
            rf"(?<![\w'’\\]){problem.answer}(?![\w'’])" + (r"(?=\)|[.,;:!?]|\s*$|\sis\b)" if problem.answer in "AI" else "")
        )
        place = ord(problem.answer) - ord("A")
        kept = [clause for clause in clauses if not _DENIES.search(clause)]
        named = {index for clause in kept for _, _, index in mentions(clause, problem.choices or ())}
        return place in named or any(map(letter.search, kept))
    if kind != "text":
        said = task.parse(text, problem)
        return said is not None and task.equal(said, problem)
    wanted = _words(problem.answer)
    return bool(wanted) and any(
        _without(_words(part), wanted) is not None and not _DENIES.search(part)
        for clause in BETWEEN_SENTENCES.split(normalise(text))
        for part in (clause, *_CLAUSE.split(clause))
    )


@lru_cache(maxsize=1024)
def _words(text: str) -> tuple[str, ...]:
    """What counts of a text, in order; nothing of a long one."""
    if len(text) > _LONGEST:
        return ()
    text = normalise(text).casefold()
    text = _ISO.sub(lambda date: f"{_MONTHS[int(date[2]) - 1]} {date[3]} {date[1]}", text)
    text = _CLOCK.sub(lambda time: f"{int(time[1]) % 12 + 12 * (time[3] == 'p')}:{time[2] or '00'}", text)
    text = _DATE.sub(r"\2 \1", _ORDINAL.sub("", with_digits(text)))
    found: list[str] = []
    for token in _TOKEN.findall(text):
        word = _FOLDED.get(token) or _FOLDED.get(token.removesuffix("s"), token)
        if token[0].isdigit():
            hours, *more = token.rstrip(",").replace(",", "").split(":")
            value = number_value(hours)
            word = ":".join([number_text(value) if value is not None else hours, *more])
        elif token in SCALES and found and (value := number_value(found[-1])) is not None:
            found[-1], word = number_text(value * SCALES[token]), ""
        if word and word not in _LEFT_OUT:
            found.append(word)
    return tuple(found)


def _seconds(words: tuple[str, ...]) -> Fraction | None:
    """The length of a time such as ``3 h 20 min``; ``None`` of anything else."""
    pairs = [(number_value(number), _LENGTHS.get(unit)) for number, unit in zip(words[::2], words[1::2], strict=False)]
    found = [number * length for number, length in pairs if number is not None and length is not None]
    return sum(found, Fraction(0)) if 2 * len(found) == len(words) else None


def _without(longer: tuple[str, ...], shorter: tuple[str, ...]) -> tuple[str, ...] | None:
    """The words of one text around those of another; ``None`` where these are not in it."""
    for place in range(len(longer) - len(shorter) + 1):
        if longer[place : place + len(shorter)] == shorter:
            return longer[:place] + longer[place + len(shorter) :]
    return None
