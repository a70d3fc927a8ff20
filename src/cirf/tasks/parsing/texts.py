"""Free text: an answer of some words, and what counts of it."""

import re
import unicodedata
from fractions import Fraction

from cirf.tasks.parsing.anchors import ENCLOSED, anchors, first_sentence
from cirf.tasks.parsing.numeric import number_value
from cirf.text.normalise import normalise
from cirf.text.numerals import plain, word_value

_APOSTROPHES = re.compile(r"['\u2019]")
_DASHES = re.compile(r"[\u2010-\u2015\u2212]")
_COMPOUND = re.compile(r"(?<=[^\W\d_])\s*-+\s*(?=[^\W\d_]{2})")  # well-known; not x-1, nor a-b
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_STOPS = re.compile(r"(?<!\d)\.|\.(?!\d)|(?<![^\W_])\*|\*(?![^\W_])")  # full stops and emphasis
_CLOCK = re.compile(r"(?<=\d) ?([ap])\.?m\b\.?")
_DATE_ZERO = re.compile(r"(?<![\d/])0(?=\d/\d{1,2}/\d{4})|(?<=\d/)0(?=\d/\d{4})")
_SIGNS = ".-%#&@*/\\"
_SPACED = re.compile(r"\s*([+*/=<>^])\s*|(?<=\w)\s+(-)\s+(?=\w)")


def normalise_text(text: str) -> str:
    """What counts of a text: case folded, one space between words, and no punctuation of sentences. Signs that mean something
    stay: ``C++``, ``x - 1``, ``-5``, ``3.5``, ``$5``, ``50%``. A text of signs alone stays whole."""
    found = _DATE_ZERO.sub("", _CLOCK.sub(r" \1m", " ".join(unicodedata.normalize("NFKC", text).casefold().split())))
    while re.search(r"[^\W_]", found) and (barer := _barer(found)) != found:
        found = barer
    return found


def _barer(text: str) -> str:
    text = _DASHES.sub("-", _APOSTROPHES.sub("", text))
    text = _COMPOUND.sub(" ", _THOUSANDS.sub("", text))
    text = _STOPS.sub(" ", text)
    kept = (" " if sign in "_`" or (unicodedata.category(sign)[0] == "P" and sign not in _SIGNS) else sign for sign in text)
    return _SPACED.sub(r"\1\2", " ".join("".join(kept).split()))  # of many spaces it would try every one


_UNIT = r"(?:(?![A-Z])[^\W\d_][\w°²³%/·.^-]*|[°%][\w°²³%/·.^-]*|[A-Z][A-Za-z]{0,2}|°[CF]|k[A-Z]\w?|[€£¥₹])"
_QUANTITY = re.compile(  # 17 cups, 5 km/h, $17, Rs. 17: units are small words or short, so "12 Angry Men" is none
    rf"(?P<before>[$€£¥₹]|Rs\.?|US\$|[A-Z]{{3}})?\s?(?P<number>[-+]?\d(?:[\d,]|['’](?=\d{{3}}))*(?:\.\d+)?(?:/\d+)?(?:\s?[×x*]\s?10\^-?\d{{1,2}}|e-?\d{{1,2}})?)"
    rf"\s*\(?(?P<unit>{_UNIT}(?:\s+{_UNIT}){{0,2}})?\)?\.?"
)

_NAMES = {"$": "dollar", "US$": "dollar", "USD": "dollar", "€": "euro", "EUR": "euro", "£": "pound", "GBP": "pound"}
_NAMES["%"] = "percent"


def bare_quantity(text: str) -> str:
    """The number of a text that is one with its unit (``28 beads``, ``Rs. 28``), unless that is a share; else the text."""
    found = _QUANTITY.fullmatch(text)
    return text if found is None or not (found["unit"] or found["before"]) or "percent" in _unit(found) else found["number"]


_CODE = re.compile(r"```\w*\n((?:(?!```).)+?)\n?```", re.S)
_LISTED = re.compile(r"\s*[,;&>→]\s*(?:and\s)?|\s+and\s+", re.I)
_STATED = re.compile(r"[^\n.;]{1,80}?(?:\s(?:is|are|was|were)|\s?[:=])\s+(.+)", re.S)  # "The due date is May 1"
_LEAD = re.compile(r"(?:(?:in|on|at)\s+)?(?:(?:an?|the)\s+)?(?=.)", re.I)
COPULA = re.compile(r"(?:です|である|입니다|이다)\W*\Z")


def same_text(parsed: str, gold: str) -> bool:
    """Whether two texts are the same after ``normalise_text``, LaTeX, a leading article and the sentence that states it apart, or
    list the same (of letters in any order), or are a number with its unit and the same number without one."""
    stated = _STATED.fullmatch(parsed)
    stated = None if re.search(r"\b(?:not|or|nor)\b|n[’']t\b", parsed, re.I) else stated
    return _same(parsed, gold) or (stated is not None and _same(stated[1], gold))


def _same(parsed: str, gold: str) -> bool:
    for plainer in (str, tidy, _essence):
        if normalise_text(plainer(parsed)) == normalise_text(plainer(gold)) != "":
            return True
    ours, theirs = ([normalise_text(each) for each in _LISTED.split(text)] for text in (parsed, gold))
    alike = sorted if all(len(each) == 1 and each.isalpha() for each in theirs) else list
    if len(theirs) > 1 and alike(ours) == alike(theirs):
        return True
    one, other = map(_quantity, (parsed, gold))
    if one is None or other is None or _value(one) != _value(other):
        return False
    units = _unit(one), _unit(other)
    return units[0] == units[1] or (not all(units) and "percent" not in units)


def _essence(text: str) -> str:
    """A text without LaTeX, a leading article and a copula at its end."""
    latex = "\\" in text or text[:1] == text[-1:] == "$"
    return _LEAD.sub("", COPULA.sub("", tidy(re.sub(r"[$_^]", "", normalise(text)) if latex else text)), count=1)


def _quantity(text: str) -> re.Match[str] | None:
    """A number with its unit, which may begin with a number word: ``seven cups``."""
    word, space, rest = text.strip().partition(" ")
    value = word_value(word)
    return _QUANTITY.fullmatch(plain(text).strip() if value is None else f"{value}{space}{rest}")


def _value(quantity: re.Match[str]) -> Fraction | str:
    """The number, or its text where that is in another notation, such as one with a decimal comma."""
    value = number_value(quantity["number"].replace("’", "'"))
    return quantity["number"] if value is None else value


def _unit(quantity: re.Match[str]) -> str:
    words = f"{quantity['before'] or ''} {quantity['unit'] or ''}".split()
    return " ".join(_NAMES.get(word, word.casefold().rstrip(".").removesuffix("s")) for word in words)


def block_of(text: str) -> str | None:
    """The code of a text that is one block of it and does not name an answer, or a text that is one list or object; else
    ``None``."""
    text = text.strip()
    if block := _CODE.fullmatch(text):
        return None if anchors(block[1]) else block[1]
    depth = 0
    for match in re.finditer(r"[\[{]|([\]}])", text) if text[:1] in ("[", "{") else ():
        depth += -1 if match[1] else 1
        if not depth:
            return text if match.end() == len(text) else None
    return None


def parse_text(text: str) -> str | None:
    """The anchored answer, else all of code or data, else the last line; ``None`` for nothing."""
    if (block := block_of(text)) is not None:
        return tidy(block)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return None
    for anchor, said in reversed(anchors(text)):
        clean = tidy(said if anchor in ENCLOSED else first_sentence(said))
        if clean:
            return clean
    return tidy(lines[-1]) or None


def tidy(text: str) -> str:
    """Without quotation marks, emphasis and closing full stops."""
    text = " ".join(plain(text).split())
    while (barer := text.strip().strip('"“”‘’ ').rstrip(".。।").strip()) != text:
        text = barer
    return text
