"""Where sentences end, in prose about numbers: not in ``3.5``, ``$1.50``, ``No. 4``, ``e.g.`` or ``J. Smith``.

Full-width stops end a sentence anywhere.
"""

import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_END = re.compile(r"(?<![.!?])[.!?]+[\"'”’)\]]*(?=\s)|[。！？｡]+[\"'”’」』）\])]*(?=.)")
_INK = re.compile(r"\S")
_NEAR = 200  # characters on either side of a stop that are read, so that the work is linear in the line's length
_STARTER = re.compile(r"[\"'“‘(\[]*(?:[A-Z0-9$€£¥√]|[-+][\d$]|[b-z] (?:[=<>]|is\b)|[a-j]\) )|[^\W\d_a-z]")
_OPENER = re.compile(
    r"(?:Of|The|He|She|It|So|In|This|That|These|They|There|Then|We|If|Therefore|Thus|Hence|However|But|And|An|Since|After|Before|When|To|For|At|On|"
    r"Each|Now|Next|Finally|Because|Also|Both|All|Only|Among|From|His|Her|Its|Their)\b"
)
_INITIAL = r"(?<= [A-Z]\.)(?<!\bis [A-Z]\.)(?<!\b(?:option|choice|answer) [A-Z]\.)"
BETWEEN_SENTENCES = re.compile(rf"(?<=[.!?])(?<!\bRs\.)(?!{_INITIAL}\s+(?!{_OPENER.pattern})[A-Z])\s+|\n+")
"""Between two sentences, also where the second opens in lower case; not within ``Philip K. Dick``."""
_INITIALS = re.compile(r"(?:[A-Za-z]\.)+[A-Za-z]")  # e.g, i.e, p.m, U.S: the last stop is the match's own
_NEVER = _words("mr mrs ms dr prof st mt jr sr vs etc e.g i.e cf approx ca dept gen gov hon rev capt col lt sgt messrs")
_BEFORE_NUMBER = _words(
    "no nos fig figs eq eqs ex p pp vol ch sec art nr ref tab pg jan feb mar apr jun jul aug sep sept oct nov dec rs"
)
_UNITS = _words("in ft oz lb lbs hr hrs min mins sec secs cm mm km kg qt pt gal yd yds mi mph am pm a.m p.m")
_LABELLED = _words("option choice answer plan type class group team part case grade vitamin letter is or and be")
_LIST_NUMBER = re.compile(r"\(?\d{1,2}")


_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")  # scripts that put no blanks between words


def whole_words(pattern: str, text: str) -> str:
    """A pattern that matches as whole words what ``pattern``, of the words ``text``, does; in scripts without blanks anywhere."""
    return pattern if _UNSPACED.search(text) else rf"(?<!\w)(?:{pattern})(?!\w)"


def sentences(text: str) -> tuple[str, ...]:
    """The sentences of a text, in order, stripped, none empty; a line's end always ends one."""
    found: list[str] = []
    for line in text.split("\n"):
        start = 0
        for match in _END.finditer(line):
            if match.start() >= start and _ends(line, start, match):
                found.append(line[start : match.end()].strip())
                start = match.end()
        found.append(line[start:].strip())
    return tuple(sentence for sentence in found if sentence)


def _ends(line: str, start: int, match: re.Match[str]) -> bool:
    if match[0][0] in "。！？｡":  # these end sentences and nothing else, and no space follows them
        return True
    following = _INK.search(line, match.end())
    rest = line[following.start() : following.start() + _NEAR] if following else ""
    if not _STARTER.match(rest):
        return False
    if match[0][0] != ".":
        return True
    before = line[max(start, match.start() - _NEAR) : match.start()]
    if match[0].startswith(".."):
        return rest[0].isupper()
    if not before or before[-1].isspace():
        return False
    word = _last_word(before)
    head = before[: len(before) - len(word)]
    token = word.lstrip("(\"'“‘[").casefold()
    if token in _NEVER:
        return False
    if rest[0].isdigit() and token in _BEFORE_NUMBER:
        return False
    if token in _UNITS:  # "5 ft. Tom": most likely the sentence ends; "at 3 p.m. He": it does
        return rest[0].isupper()
    alone = not head or head.isspace()
    if _LIST_NUMBER.fullmatch(token) and alone:  # "1. Add the numbers": a mark, not a sentence
        return False
    if len(token) == 1 and token.isalpha():
        return not _is_initial(head, word) or (not alone and _OPENER.match(rest) is not None)
    return not _INITIALS.fullmatch(token) or (word[-1].isupper() and _OPENER.match(rest) is not None)


def _last_word(text: str) -> str:
    found = text.rsplit(None, 1)
    return found[-1] if found else ""


def _is_initial(before: str, letter: str) -> bool:
    """Whether a single letter with a stop is part of a name (``George W. Bush``) or of a list (``A. roof``)."""
    if not letter.isupper():
        return False
    previous = _last_word(before)
    if not previous:
        return True
    if re.fullmatch(r"[A-Z]\.", previous):  # "H. W. Bush"
        return True
    word = previous.strip("(\"'“‘[,")
    if len(word) < 2 or word.casefold() in _LABELLED or previous.endswith((".", ":", ",")):
        return False
    return word[0].isupper() or letter[-1] not in "ABCDEFGH"
