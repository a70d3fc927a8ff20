"""Free text: an answer of some words, and what counts of it."""

import re
import unicodedata
from fractions import Fraction

from cirf.tasks.parsing.anchors import anchors, outright
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


_AROUND = (("**", "**"), ("*", "*"), ("`", "`"), ('"', '"'), ("'", "'"), ("“", "”"), ("‘", "’"), ("„", "“"))
_CLOSED = re.compile(r"(?:(?<!\w\.)[^\W_]{3}|[\d*`\"'”’)])\.\Z")
_SHORTENED = re.compile(r"\b(?:inc|ltd|corp|etc|approx|dept|univ|est)\.\Z", re.I)
_FEW_WORDS = 4  # of an answer that ends in a full stop and is no sentence


def without_marks(text: str) -> str:
    """An answer without emphasis, marks of code or quotes around all of it, and a few words without their full stop."""
    text = text.strip()
    for before, after in _AROUND:
        inner = text[len(before) : len(text) - len(after)]
        if inner.strip() and text == f"{before}{inner}{after}" and not {before[0], after[0]} & {*inner}:
            return without_marks(inner)
    closed = _CLOSED.search(text, max(0, len(text) - 5)) and not _SHORTENED.search(text, max(0, len(text) - 9))
    return without_marks(text[:-1]) if closed and len(text.split()) <= _FEW_WORDS else text


_CODE = re.compile(r"```\w*\n((?:(?!```).)+?)\n?```", re.S)
_LISTED = re.compile(r"\s*[,;&>→]\s*(?:and\s)?|\s+and\s+", re.I)
_LETTERS = re.compile(r"[A-J](?:(?:\s*[,;&]\s*(?:and\s)?|\s+and\s+)[A-J])+")  # of options, in no order
_STATED = re.compile(r"[^\W\d][^\n.;]{0,80}?(?:\s(?:is|are|was|were)|\s?[:=])\s+(.+)", re.S)  # "The due date is May 1"
_UNSURE = re.compile(
    r"\b(?:not|or|nor|no|nobody|none|nothing|neither|never|cannot|hardly|but|except|if|unless|whether|unclear|unknown|doubt|false|wrong"
    r"|incorrect|opposite)\b|n[’']t\b",
    re.I,
)
_LEAD = re.compile(r"(?:(?P<place>in|on|at)\s+)?(?:(?:an?|the)\s+)?(?=.)", re.I)
_KEY = re.compile(r"A\s")  # "A minor"
COPULA = re.compile(r"(?:です|である|입니다|이다)\W*\Z")
_SYMBOLS = ((re.compile(r"\binfinity\b", re.I), "∞"), (re.compile(r"(?<![A-Za-z])pi\b", re.I), "π"))


def same_text(parsed: str, gold: str) -> bool:
    """Whether two texts are the same after ``normalise_text``, LaTeX, a leading article and the sentence that states it apart, or
    list the same (letters of options in any order), or are a number with its unit and the same number without one."""
    stated = None if _UNSURE.search(parsed) else _STATED.fullmatch(parsed)
    return _same(parsed, gold) or (stated is not None and _same(stated[1], gold))


def _same(parsed: str, gold: str) -> bool:
    places = [match["place"] for text in (parsed, gold) if (match := _LEAD.match(tidy(text))) and match["place"]]
    apart = len({place.casefold() for place in places}) == 2 or _KEY.match(gold)  # "in time" and "on time"
    for plainer in (str, tidy) if apart else (str, tidy, _essence):
        if normalise_text(plainer(parsed)) == normalise_text(plainer(gold)) != "":
            return True
    lists = [[normalise_text(each) for each in _LISTED.split(text)] for text in (parsed, gold)]
    if all(map(_LETTERS.fullmatch, (parsed, gold))) and lists[1] == sorted(lists[1]):
        lists = [sorted(each) for each in lists]
    if len(lists[1]) > 1 and lists[0] == lists[1]:
        return True
    one, other = map(_quantity, (parsed, gold))
    if one is None or other is None or _value(one) != _value(other):
        return False
    units = _unit(one), _unit(other)
    return units[0] == units[1] or (not all(units) and "percent" not in units)


def _essence(text: str) -> str:
    """A text without LaTeX, a leading article and a copula at its end, the same symbols for words."""
    if "\\" in text or text[:1] == text[-1:] == "$":
        text = re.sub(r"[$_]|(?<=[ cdkm]m|ft|in)\^(?=[23]\b)", "", normalise(text))
    for pattern, sign in _SYMBOLS:
        text = pattern.sub(sign, text)
    return _LEAD.sub("", COPULA.sub("", tidy(text)), count=1)


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
        clean = tidy(outright(anchor, said))
        if clean:
            return clean
    return tidy(lines[-1]) or None


def tidy(text: str) -> str:
    """Without quotation marks, emphasis and closing full stops."""
    text = " ".join(plain(text).split())
    while (barer := text.strip().strip('"“”‘’ ').rstrip(".。।").strip()) != text:
        text = barer
    return text
