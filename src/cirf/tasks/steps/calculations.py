"""The number that a step works out: ``13`` in ``She eats 3, so 16 - 3 = 13 eggs are left.``"""

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from cirf.records import Problem
from cirf.tasks.parsing.answers import anchors, parse_answer
from cirf.tasks.parsing.numeric import without_superscripts
from cirf.text.numerals import (
    SCALES,
    UNREAD,
    Numeral,
    find_numbers,
    first_number,
    number_text,
    only_word_value,
    plain,
    plain_numbers,
    spread,
    with_signs,
    word_value,
)
from cirf.text.sentences import BETWEEN_SENTENCES

_NEAR = 80  # characters
_ANNOTATION = re.compile(r"<<([^<>]*)>>")
_EQUALS = re.compile(
    r"(?<![<>!])=|[≈≡]|\b(?:equals|is equal to)\b"
    r"|(?<=[0-9)])\s?(?:[+×*/÷-]|x|plus|minus|times|divided by)\s?[$(]*[0-9][0-9.,]*"
    r"[^.=\n]{0,30}?\b(?:is|are|gives|makes|leaves|yields|(?:comes|works)\s(?:out\s)?(?:to|at|as))\b"
    r"|(?:[0-9]\s?%|\bpercent|\b(?:half|thirds?|quarters?|fourths?|fifths?|tenths?)|/\s?[0-9]+)\sof\s(?:(?!which\b)[^.=\n]){1,40}?\b(?:is|are)\b"
    r"|\b[a-z] is\b"
    r"|[0-9]\s?(?:(?:more|further|extra|additional|other)\s)?(?:h|hrs?|hours?|min|minutes?)\b[^.=\n]{0,30}?"
    r"\b(?:is|gives|makes)(?=\s[0-9]{1,2}:[0-9]{2}(?![0-9:]))",  # "20 minutes is 10:50"
    re.I,
)
_LEAD = re.compile(
    r"\s*(?:(?:about|approximately|roughly|only|just|exactly|a total of)\s+)?"
    r"(?:(?:USD|EUR|GBP|CHF|INR|CAD|AUD|JPY)\s?|\+(?=[0-9]))?",
    re.I,
)
_UNSETTLED = re.compile(  # what follows a number that is only the first term of more
    r"(?:[ \t]*[A-Za-z]+){0,2}[ \t]*(?:[+×*/÷^]|-(?=\s|[0-9√]))[ \t]*[$({]*[ \t]*-?(?:[0-9√]|[A-Za-z](?![A-Za-z]))"
    r"|[ \t]*[+×*÷][ \t]*[A-Za-z]|[ \t]?x[ \t]?[$(]*[0-9]"
    r"|\([0-9A-Za-z√]|[ \t]*\(?[0-9][0-9.]*\)?[ \t]*[+×*/]"
    r"|[ \t]+(?:divided|plus|minus"  # "18 times a week" is an amount
    r"|times(?!\W*$|[.;,]\s|\s(?:per|each|every|in|on|an?\s(?:day|week|month|year|minute|hour|second))\b))\b"
    r"|\)[ \t]?(?:\([0-9A-Za-z]|\^)|[ \t]*[±∓][ \t]*(?:√|[0-9.]+\))"
    r"|[ \t]-[ \t](?!(?:so|done|correct|right|yes|no|not|exactly)\b)[a-z]+[ \t]*(?:$|[.,;)]|[+×*/-])"  # "220 - age"
    r"|(?![ckdmµ]?m[²³^]|(?:in|ft|yd|mi|km|s|h)[²³^])[a-z]{1,3}(?:[²³]|\^[23])"  # "0.5mv²"
    r"|(?:[A-Z][a-z]?){1,4}[0-9]"  # "2H2O"
    r"|(?<=1/2)(?!(?:[kmc]?[gml]|lb|oz|ft|in|mi|hr?|min|s|d)\b)[a-z]{1,3}\b"
)
_RATE = re.compile(
    r"\s?(?:[a-z]+\s)?[a-z]{1,9}\s?/\s?(?:h|hr|hour|s|sec|second|min|minute|day|week|month|year|km|kg|g|l|m|mile|person|piece)s?(?:[²³]|\b)"
    r"|\s?(?:[ckd]m|ft|feet|inch(?:es)?|yd|yards?|miles?|met(?:er|re)s?|units?|(?<=\s)(?:in|m|s))(?:\^[23]|[²³])(?!\w)",
    re.I,
)
_VARIABLE = re.compile(r"\s*(-?[0-9]{1,6}(?:\.[0-9]+)?)[ ]?([A-Z]|[xyzn])(?!\w|\s[0-9]|[\^²³])(?!\s*[+×*/-]\s*[0-9A-Za-z])")
_UNIT_LETTERS = "ABCFHJKLMNSTVW"  # "= 21 N" is a force, unless N is an unknown elsewhere
_GROUP = re.compile(  # a set, list, point or interval
    rf"\s*(\{{[^{{}}\n{UNREAD}]{{1,80}}\}}|\[[^][\n{UNREAD}]{{1,80}}\]|[(\[](?:[-+\w./√π∞ ]+,)+[-+\w./√π∞ ]+[)\]])"
    r"(?=\W*$|[.;]\s|,?\s+(?:which|so|and|has|with|of|is)\b|,\s)"
)
_MULTIPLE = re.compile(  # of pi or of a root: "25π", "2√3/3"
    r"\s*(-?[$]?(?:[0-9]+(?:\.[0-9]+|/[0-9]+)?)?\s?(?:π|pi\b|√\s?(?:[0-9]+(?:\.[0-9]+)?|\([^()\n]{1,12}\))(?:\s?π)?)(?:\s?/\s?[0-9]+(?!\.?[0-9]))?)"
    r"(?!\s?[+×*/^-]\s?\S|[\w(]|\s?r(?![A-Za-z]))"
)
_ROOT = r"(?:[0-9]+(?:\.[0-9]+)?)?√(?:[0-9]+(?![.]?[0-9])|\([^()\n]{1,12}\))"
_TERMS = rf"-?(?:{_ROOT}(?:\s?[+-]\s?(?:{_ROOT}|[0-9]+)){{1,2}}|[0-9]+\s?[+-]\s?{_ROOT}(?:\s?[+-]\s?(?:{_ROOT}|[0-9]+))?)"
_SURD = re.compile(  # "√3+1", "6(√2-1)", "(1+√5)/2"
    rf"\s*(-?[0-9]{{0,6}}\({_TERMS}\)(?:/[0-9]+)?|{_TERMS})(?!\s?[+×*/^-]\s?\S|[\w(]|\.[0-9])"
)
_EITHER = re.compile(r"\s*(±)\s?([0-9]+(?:\.[0-9]+)?|[0-9]*√[0-9]+)(?![\w(]|\.[0-9]|\s?[+*/×÷^])")
_TERM = r"\(?(?:[0-9][0-9.]*[A-Za-z]?|[A-Za-zα-ω])(?:\^[0-9]|[²³])?(?!\w)\)?"
_EQUATION = rf"-?{_TERM}(?:\s?[-+*×÷/]\s?{_TERM}){{0,9}}\s?=\s?[$€£]?-?[0-9]+(?:\.[0-9]+)?(?:/[0-9]+)?%?"
_SIDE_BY_SIDE = re.compile(  # "x = 3 or x = -2", "1/3 = 4/12 and 1/4 = 3/12"
    rf"(?<![\w)])(?<![-+*×÷/=]\s){_EQUATION}(?:(?:[,;]|,?\s(?:or|and))\s{_EQUATION}){{1,5}}(?=[.;!]?\s*(?:$|\n[^=]*\Z))"
)
_NAMES_A_VALUE = re.compile(
    r"^(?:[0-9]+\s)?[^\W\d]\w*(?:[ ]\w+){0,8}(?:(?<!\d):|:(?!\d))|\b(?<![:.])(?P<amount>[0-9.]+\s[a-z]+\s)(?:is|are)\b"
    r"|\bis(?=\s[0-9]{1,2}:[0-9])|\b(?:(?:the|its|their|his|her|our)\s[^.\n:]{1,80}?\b(?:is|are|was|equals|becomes)|from\s[^.\n]{1,80}?\s(?:is|are)"
    r"|\b(?:is|are|becomes?|gives?|yields?|leaves?|keeps?)(?=\s[\[{])|\w+\([^()\n]{0,40}\)\s(?:is|are)|^(?:so\s)?(?:that|this)\s(?:is|makes|equals)|\bit\s(?:is|equals)"
    r"|(?:starts?|begins?|ends?)\s(?:at|with)|becomes|outputs?|prints?|returns?|displays?)\b(?:\s(?:then|now|thus|therefore|still|also|at))?",
    re.I,
)
_ENDS = re.compile(  # of a clause, after a value and its unit
    r"(?:\sout\sof\s\d+)?(?:\s?(?!(?:more|less|fewer|times|of|and|or|to|than|while)\b)[^\W\d_][\w/·²³]*|\s?[%°€£¥][A-Z]?){0,3}"
    r"(?:\W*$|,\swhich\s|(?P<more>[,;]?\s(?:and|while|but)\s))",
    re.I,
)
_READ = 300  # characters of a sentence
_FRACTION = re.compile(r"-?(?:[0-9]+\s+)?[0-9]+/[0-9]+")
_PADDED = re.compile(r"0[0-9]+")  # a code, a string
_EXPONENT = re.compile(r"-?[0-9.]+e-?[0-9]{1,3}", re.I)
_SMALLEST, _LARGEST = Fraction(1, 10**5), 10**7  # of values whose exponent is worked out
_LIST_AT_END = re.compile(rf"(?::|->|→)\s*(\[[^][\n,{UNREAD}]{{1,40}},[^][\n{UNREAD}]{{1,60}}\])[.!;]?\s*$")
_ARROW_AT_END = re.compile(  # "sum 150; -20 => 130"
    r"(?:(?<=[0-9%)])|(?<=[0-9%)]\s))(?:[=-]>|[→⇒])\s*(?=-?\$?[0-9])(?=\S{1,20}(?:\s[^\W\d_]{1,12})?[.!;]?\s*$)"
)
_COLON_AT_END = re.compile(  # "12 + 6 = 18. Divide by 3: 6."
    r"(?<=[0-9][.;!]\s)[A-Z][a-z]{2,12}[\w %]{0,40}:\s(?=-?\$?[0-9])(?=\S{1,20}(?:\s[^\W\d_]{1,12})?[.!]?\s*\Z)"
)
_SUBTRACTION = re.compile(r"(?<![0-9.])([0-9][0-9,]*(?:\.[0-9]+)?)\s?-\s?\$?([0-9][0-9,]*(?:\.[0-9]+)?)\s*=\s*$")
_ARGUMENT = re.compile(r"[A-Za-z]\($")  # "4 * f(3)"
_SUPPOSED = re.compile(r"\W*if\b[^\n]{0,200}?(?:\bwould|['’]d)\b", re.I)
_WITHIN = r"(?:[^,;\n.!?]|[.!?](?=\S)|,(?=[0-9]))"  # a sentence's clause
_REASON = re.compile(  # "because 7 * 14 = 98"
    rf"(?:,?\s(?:because|since)|,\sas)\s[0-9$(](?:[^,;\na-z=.]|\.(?=\S)|,(?=[0-9]))*={_WITHIN}*"
)
_PREMISE = re.compile(  # "Since a = 3 and b = 4, the area is 12": what follows counts
    r"(?:\A|(?<=[.!?]\s)|(?<=\n))(?P<lead>[^\w\n]{0,5}(?:(?:so|and|but|now|then|also|next),?\s)?)"
    r"(?:since|because|as|with|using|given|if|when|for|knowing|[a-z]{3,12}ing)\s"
    r"(?:[^,;\n.!?=≈≡<>≤≥]|[.!?](?=\S)|,(?=[0-9]))*[=≈≡<>≤≥]"
    rf"{_WITHIN}*,\s(?:(?:and\s)?[^\s,;]{{1,12}}\s?=\s?[^\s,;]{{1,12}},\s)*(?:then\s)?(?=\S)",
    re.I,
)
_DROPS_TO = re.compile(  # "so the price drops to $60"
    r"[,;] so (?:the|it|that|this|his|her|their)\b[^.,;=\n]{0,60}?"
    r"\b(?:drops|falls|rises|goes|comes|increases|decreases|changes)\sto\s(?=\$?[0-9][0-9,.]*(?:\s[^\W\d_]+)?[.!]?\s*$)"
)
_SCIENTIFIC = re.compile(r"(-?[0-9.]+)\s?[×x*]\s?10\s?\^\s?\{?(-?[0-9]+)\}?")
_OPERAND = re.compile(r"(?:[+×*÷/^-]\s*[$(]*|\b(?:sqrt|log|ln)\s?\(?)\s*$")  # what precedes the last term of more
_LONE = re.compile(  # a sum that closes the step and is left to the reader
    r"(?<![\w.+×*÷/^-])(?<![+×*÷/^-]\s)[$(]*(?P<left>[0-9][0-9,]*(?:\.[0-9]+)?)(?:\s+[a-z]+){0,2}"
    r"(?:\s*(?P<sign>[+×*÷/])\s*|\s+(?P<minus>-)\s+)\$?(?P<right>[0-9][0-9,]*(?:\.[0-9]+)?)\)?(?:\s+[a-z]+){0,3}\s*[.!]?\s*$"
)
_UNREAD_FIRST = re.compile(rf"[\s$€£¥₹(~-]*(?:(?:about|approximately|only|just|exactly)\s)?[$€£¥₹-]?{UNREAD}", re.I)
_NO_AMOUNT = re.compile(  # of a number in words
    r"\b(?:half|third|quarter|most|least|than|under|over|below|above|between|about|around|nearly|almost)\b", re.I
)
_CLOCK = re.compile(r"\s*((?:\d{1,3}(?::\d{1,3}){1,3}|\d{1,2}(?=\s?[ap]\.?m\b))(?:\s?[ap](?:m\b|\.m\.?))?)(?![\d:])", re.I)
_PARTS = re.compile(  # of two units: "1 h 35 min", "5 feet 3 inches"; "3 remainder 2"
    r"\s*([0-9]+\s?(?:h|hrs?|hours?|min(?:ute)?s?|days?|weeks?|years?|ft|feet|foot|lbs?|pounds?|dollars?)"
    r"(?:\s|\sand\s|,\s)[0-9]+\s?(?:min(?:ute)?s?|s|secs?|seconds?|hours?|days?|weeks?|months?|in|inch(?:es)?|oz|ounces?|cents?)"
    r"|[0-9]{1,2}\s?h\s?[0-9]{2}(?![0-9:])|[0-9]+\s(?:(?:with\s)?(?:a\s)?remainder(?:\sof)?\s|rem?\s|r\s?)[0-9]+|[0-9]+\swith\s[0-9]+\sleft(?:\sover)?|[0-9]+\sBCE?)\b",
    re.I,
)
_N = r"-?[0-9.]*[0-9]"
_LISTED = re.compile(rf"{_N}(?:(?:, {_N}){{1,9}}(?![0-9]|[.,][0-9])(?:,? and {_N})?| and {_N})(?=[.;!]?\s*$)")
_GIVES = re.compile(
    r"\b(?:leaves?|leaving|gives?(?:\s+us)?|giving(?=\s[-$0-9])|makes?|making|"
    r"(?:comes?|works?) (?:out )?(?:to|at|as)|to get|rounds? (?:up |down |off )?to|amounts? to|adds? up to|ergibt|"
    r"result(?:s|ing)? in|totals?|yields?|"
    r"brings?\s[^.]{0,40}?\bto|outputs?|prints?|returns?|displays?|which is|left with|for a total of|remaining|"
    r"the (?:sum|total|difference|product|quotient|result|remainder) is)\s+"
    r"(?:(?!(?:less|more|\w+er|than|below|above|within|at)\b)\w+\s+){0,2}?(?=[$-]?[0-9])",
    re.I,
)
_RESTATED = re.compile(
    r"\b(?:which (?:is|makes|leaves|gives|(?:rounds|is rounded)(?: up| down| off)? to)|rounded(?: up| down| off)? to|"
    r"i\.e\.,?(?= [0-9.]+\s?%)|giving|leaving|making|(?<=, )so(?= [-$]?[0-9])|"
    r"so (?:\w+ ){1,3}(?:needs?|gets?|has|have|is|are))\s+"
    r"(?:about |approximately |only |exactly )?(?=[$-]?[0-9])",
    re.I,
)
CONCLUDES = re.compile(
    r"^[^\w\n]*(?:(?:so|thus|therefore|hence|finally|in total|in summary|altogether|in conclusion|conclusion|final answer|"
    r"this means|that means|daher|somit|folglich|insgesamt|donc|ainsi|au total|por (?:lo )?tanto|así que|en total|portanto|"
    r"quindi|dunque|entonces|logo|alors|deshalb|demnach|dus|więc|also (?=ist|sind|ja|nein|hat|gilt|beträgt|kostet)|"
    r"итак|значит|следовательно|таким образом)\b|所以|因此|综上|よって|したがって|इसलिए)",
    re.I | re.M,
)
_SHARE = re.compile(r"\b(?:half|thirds?|quarters?|fifths?|%|percent|part) of (?:the )?[$(]*$", re.I)
_UNKNOWN = re.compile(r"(?:[A-Za-z]| [A-Zxyzn])(?![A-Za-z'])")
_COEFFICIENT = re.compile(r"[0-9][a-z]\s?=\Z")  # "3a = 4b"
_BESIDE = re.compile(r"([abcdefijknopqrtuvwxyz])(?![\w'’²³^/])")  # not m, g, h, s, l: mostly units
_DENIED = re.compile(
    r"\b(?:is|are|was|were)(?:\snot|n['’]t)\s(?:[a-z]+\s){0,2}$|\b(?:less|more|greater|smaller)\sthan\s$"
    r"|\b(?:other\sthan|except(?:\sfor)?|besides|apart\sfrom|(?:is|are|was|be)\s(?:below|above|under))\s$"
    r"|(?<![\d)]\s)(?<![\d)])[<>]\s?$|[0-9)]\($",
    re.I,
)
ASKS = re.compile(r"\?[\s\"'”’)*]{0,3}\Z")
_REJECTED = re.compile(  # of a sentence: what it calculates is not so
    r"\b(?:wrongly|incorrectly|mistakenly|by\smistake|common\s(?:mistake|error)|misread|tempt(?:ed|ing)|forg[eo]t"
    r"|would\shave\sbeen|(?:most|many|some)\s(?:people|students)\s(?:would|will|say|answer|think|guess)|first\sthought)\b"
    r"|\bwould\sbe\b[^.\n]*\sif\b",
    re.I,
)
_SO = re.compile(r"(?<=[,;]) (?:and )?(?:so|therefore|thus|hence)\b", re.I)
_MARK = re.compile(r"^\s*(?:#+\s*)?(?:\*\*)?(?:step\s+\d+\s*[:.)-]*|\d{1,2}[.)](?=\s))\s*", re.I)


def strip_annotations(text: str) -> str:
    """The text without calculator annotations: ``48/2 = <<48/2=24>>24`` becomes ``48/2 = 24``."""
    return _ANNOTATION.sub("", text)


def asserted(segment: str) -> str:
    """A step without calculator notes, and without sentences that ask or tell what would be wrong."""
    text = strip_annotations(segment)
    if _REJECTED.search(text) is None and "?" not in text:
        return text
    starts = [0, *(gap.end() for gap in BETWEEN_SENTENCES.finditer(text))]
    sentences = [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]
    return "".join(each for each in sentences if not (ASKS.search(each.rstrip()) or _REJECTED.search(each)))


def numbers_in(*texts: str) -> set[Fraction]:
    """The values of all numbers in texts, calculator annotations apart."""
    return {number.value for text in texts for number in find_numbers(plain_numbers(strip_annotations(text)))}


def numbers_named(text: str) -> set[Fraction]:
    """The values of all numbers in a text, in digits or in a word such as *twenty-one*."""
    words = re.findall(r"[^\W\d_]+(?:-[^\W\d_]+)?", text)
    return numbers_in(text) | {Fraction(value) for word in words if (value := word_value(word)) is not None}


UNITS = (60, 100, 1000)
"""What the same amount differs by: hours and minutes, dollars and cents or shares and percentages, kilometres and metres."""


def numbers_used(*texts: str) -> set[Fraction]:
    """`numbers_named`, and both sides of a fraction: ``12/3`` uses 12 and 3."""
    text = "\n".join(texts)
    return numbers_named(text) | numbers_in(text.replace("/", " ; "))


def calculated(segment: str, problem: Problem, previous: tuple[str, ...]) -> str:
    """The number a step arrives at: that of ``written_out``, else of ``in_words``."""
    return written_out(segment) or in_words(segment, previous)


def in_words(segment: str, previous: tuple[str, ...], as_written: bool = False) -> str:
    """The number that a step without equations arrives at. In a sentence that concludes it is the last result, if that is said
    again, or an anchored answer; else the only number of a last sentence that concludes, or of what follows its *so*; else a
    number after words such as *leaves*; else the only number of a conclusion."""
    text = _with_numbers(segment)
    numbers = find_numbers(text)
    concludes = bool(CONCLUDES.search(text)) or bool(anchors(segment))
    last = next((result for result in reversed(previous) if result), "")
    if concludes and last and any(_short(number, text) == last and _stands_alone(text, number) for number in numbers):
        return last
    if anchors(segment):
        found = parse_answer("number", segment) or ""
        same = (_short(number, text, as_written) for number in numbers if as_written and number_text(number.value) == found)
        return next(same, found)
    if found := _consequence(text, as_written):
        return found
    for match in reversed(list(_GIVES.finditer(text))):
        number = _first(text, match.end())
        if number is not None and not _unsettled(text, number.end):
            listed = _LISTED.match(text, number.start)
            return listed[0] if listed else _short(number, text, as_written)
    if (
        concludes
        and _only_one(numbers, text)
        and not any(_unsettled(text, n.end) or _DENIED.search(_before(text, n)) for n in numbers)
    ):
        return _short(numbers[0], text, as_written)
    said = BETWEEN_SENTENCES.split(text.strip())[-1]
    word = only_word_value(said) if concludes and not numbers and _NO_AMOUNT.search(said) is None else None
    return "" if word is None else str(word)


def written_out(segment: str, as_written: bool = False) -> str:
    """The right side of a step's last calculator note, else a list or a value behind an arrow that closes the step, else the
    right side of its last worked-out equation that is no reason and no supposition.

    An equation whose right side is still to be worked out (``= 6 × 3``) has none, and a step whose last right side is a number
    that is not read (``= 12,5``) has none either; a number that closes the step after
    words such as *which is* counts more. ``as_written``: fractions and powers of ten stay so, else they are decimals.
    """
    for note in reversed(_ANNOTATION.findall(segment)):
        right = plain_numbers(note.rpartition("=")[2])
        numbers = find_numbers(right)
        if UNREAD in right:
            return ""
        if numbers:
            return _short(numbers[-1], "")
    text = _without_asides(_with_numbers(segment))
    if listed := _LIST_AT_END.search(text):
        return listed[1]
    if (several := _SIDE_BY_SIDE.search(text)) and (values := _side_by_side(several[0], as_written)):
        return values
    closing = (sign for pattern in (_ARROW_AT_END, _COLON_AT_END, _DROPS_TO) for sign in pattern.finditer(text))
    for sign in [*closing, *reversed(list(_EQUALS.finditer(text)))]:
        if _UNREAD_FIRST.match(text, sign.end()):  # an earlier equation is not what the step comes to
            return ""
        read = _listed_or_value if sign[0].endswith(" is") else _value_at  # "i is 0, 1, 2"
        if value := read(text, sign.end(), as_written)[0]:
            return _closing(text, as_written) or value
    return ""


def without_reasons(text: str) -> str:
    """A text without the equations that its sentences only reason from: ``the last digit is 4`` for ``As 2^10 = 1024, the last
    digit is 4``, ``The rest is 2`` for ``The rest is 2 because 7 * 14 = 98``."""

    def told(reason: re.Match[str]) -> str:
        """The reason of an amount said before it (``He has 12, because 3 * 4 = 12``) stays: it is how that is worked out."""
        before = text[max(0, reason.start() - _NEAR) : reason.start()]
        return reason[0] if "=" not in before and numbers_in(reason[0].rpartition("=")[2]) & numbers_in(before) else ""

    return _PREMISE.sub(r"\g<lead>", _REASON.sub(told, text))


def _without_asides(text: str) -> str:
    """A step `without_reasons`, and without what is supposed after a conclusion
    (``So it is 53. If Al came, it would be 54.``); whole where nothing is worked out then."""
    first, *rest = BETWEEN_SENTENCES.split(text)
    kept, concluded = [first], CONCLUDES.match(first) is not None
    for sentence in rest:
        if not (concluded and _SUPPOSED.match(sentence)):
            kept.append(sentence)
            concluded = concluded or CONCLUDES.match(sentence) is not None
    found = [without_reasons(sentence) for sentence in kept]
    said = " ".join(found)
    if found != [first, *rest] and any(_value_at(said, sign.end())[0] for sign in _EQUALS.finditer(said)):
        return said
    return text


def _side_by_side(equations: str, as_written: bool) -> str:
    """The values of several equations, named where they are those of several unknowns (``x=3, y=4``); empty where one goes on
    with the value of another."""
    first, *between, last = equations.split("=")
    parts = [part for side in between for part in re.split(r"[,;]?\s(?:(?:or|and)\s)?", side.strip(), maxsplit=1)]
    lefts, rights = [first.strip(), *parts[1::2]], [*parts[::2], last]
    values = [_value_at(right, 0, as_written)[0] for right in rights]
    terms = [numbers_in(left) for left in lefts]
    found = [numbers_in(value) - left for value, left in zip(values, terms, strict=True)]
    if not all(values) or any(terms[place] & set().union(*found[:place]) for place in range(len(terms))):
        return ""
    if any(left.isalpha() and left in "".join({*lefts[:place]} - {left}) for place, left in enumerate(lefts)):
        return ""  # "2x = 6 and x = 3"
    named = len(set(lefts)) > 1 and all(re.search("[A-Za-z]", left) for left in lefts)
    return ", ".join(f"{left.replace(' ', '')}={value}" if named else value for left, value in zip(lefts, values, strict=True))


def stated(segment: str) -> str:
    """The only amount that a step names, where it is no part of a sum: ``480`` in ``The pyramid is 480 feet tall.``"""
    text = _with_numbers(segment)
    numbers = find_numbers(text)
    if _only_one(numbers, text) and all(_stands_alone(text, number) for number in numbers):
        return _short(numbers[0], text)
    return ""


def first_stated(segment: str, known: set[Fraction], as_written: bool = False) -> str:
    """The only number of a step that is not ``known``, where it is no part of a sum: ``7`` in ``A week has 7 days.``"""
    text = _with_numbers(segment)
    new = [n for n in find_numbers(text) if n.value not in known and not re.search(r"\bnot\s$", _before(text, n))]
    if _only_one(new, text) and not any(_is_part(text, number) for number in new):
        return _short(new[0], text, as_written)
    return ""


def named_value(segment: str, as_written: bool = False) -> str:
    """What a step closes with as what something is, be it new or not: ``8`` in ``The greatest common divisor is 8.``,
    ``2 h 5 min`` in ``125 minutes is 2 h 5 min.``, ``19`` in ``Output: 19``, ``54, 48`` in ``The first is 54, the second 48.``"""
    last = BETWEEN_SENTENCES.split(_with_numbers(segment).strip())[-1][-_READ:]
    value, end = _listed_or_value(last, 0, as_written)
    if value and not last[end:].strip(" .;"):  # nothing else
        return value
    found: list[str] = []
    for lead in _NAMES_A_VALUE.finditer(last):
        value, end = _listed_or_value(last, lead.end(), as_written)
        ends = _ENDS.match(last, end)
        other = lead["amount"] and not (_PARTS.fullmatch(value) or _CLOCK.fullmatch(value) or CONCLUDES.match(last))
        if not value or ends is None or other:
            found = []
            continue
        found.append(value)
        if not ends["more"]:
            return ", ".join(found)
    return ""


def _listed_or_value(text: str, start: int, as_written: bool) -> tuple[str, int]:
    """As `_value_at`, or the numbers that a text ends with as a list."""
    listed = _LISTED.match(text, start + text.startswith(" ", start))
    return (listed[0], listed.end()) if listed else _value_at(text, start, as_written)


def plain_step(segment: str) -> str:
    """A step without calculator notes, emphasis, LaTeX wrapping and the mark that numbers it."""
    return _MARK.sub("", plain(strip_annotations(segment)))


def _with_numbers(segment: str) -> str:
    return with_signs(_MARK.sub("", plain_numbers(spread(without_superscripts(asserted(segment))))))


def worked_out(segment: str) -> tuple[str, ...]:
    """Every number that a step works out, in order: its annotations' and equations' right sides, each once."""
    noted = [find_numbers(plain_numbers(note.rpartition("=")[2])) for note in _ANNOTATION.findall(segment)]
    text = _with_numbers(segment)
    equations = (_value_at(text, sign.end())[0] for sign in _EQUALS.finditer(text))
    found = [_short(numbers[-1], "") for numbers in noted if numbers] or [value for value in equations if value]
    return tuple(dict.fromkeys(found))


def _consequence(text: str, as_written: bool) -> str:
    """The only number of the last sentence if that is a conclusion, or of the part after its *so*."""
    last = BETWEEN_SENTENCES.split(text.strip())[-1]
    so = list(_SO.finditer(last))
    said = last if CONCLUDES.match(last) else last[so[-1].end() :] if so else ""
    numbers = find_numbers(said)
    if _only_one(numbers, said) and not any(_is_part(said, number) for number in numbers):
        return _short(numbers[0], said, as_written)
    return ""


def _only_one(numbers: Sequence[Numeral], text: str) -> bool:
    return len({number.value for number in numbers}) == 1 and UNREAD not in text


def _is_part(text: str, number: Numeral) -> bool:
    """Whether a number is a term of something still to be worked out: of a sum, of ``4x``, ``45/9`` or ``half of 40``; or one
    that something is not."""
    before = _before(text, number)
    share = _SHARE.search(before) or _UNKNOWN.match(text, number.end) or _DENIED.search(before) or _ARGUMENT.search(before)
    return share is not None or _is_asked(text, number) or not _stands_alone(text, number)


def _is_asked(text: str, number: Numeral) -> bool:
    """Whether a number is a quotient to be worked out: ``35/5`` and ``9.6/3.1`` are, ``3/4`` is an amount."""
    written = text[number.start : number.end]
    return "/" in written and ("." in written or (abs(number.value) > 1 and number.value.denominator == 1))


def calculated_or_stated(segment: str, problem: Problem, previous: tuple[str, ...]) -> str:
    """What ``calculated`` finds, else the value of two terms that close the step (``so he has 3 * 18 pens``), else the one amount
    that the step states. For problems of a single operation: to choose its amounts among the misleading ones is most of the
    reasoning."""
    if found := calculated(segment, problem, previous):
        return found
    if (lone := _LONE.search(_with_numbers(segment))) and (value := _work_out(lone)):
        return value
    return stated(segment)


def _work_out(lone: re.Match[str]) -> str:
    """The value of a sum of two terms; empty where a fraction is an amount (``3/4``) or the value has no short form."""
    left, right = (Fraction(lone[name].replace(",", "")) for name in ("left", "right"))
    sign = lone["sign"] or lone["minus"]
    if sign in "/÷":
        value = left / right if right else Fraction(0)
        if abs(value) <= 1 or 100 % value.denominator:
            return ""
    else:
        value = left + right if sign == "+" else left - right if sign == "-" else left * right
    return number_text(value)


def _stands_alone(text: str, number: Numeral) -> bool:
    """Whether a number is an amount and not a term of a sum."""
    return not _unsettled(text, number.end) and not _OPERAND.search(_before(text, number))


def _before(text: str, number: Numeral) -> str:
    """The text right before a number, limited in length so that long texts take linear time."""
    return text[max(0, number.start - _NEAR) : number.start]


def _unsettled(text: str, end: int) -> bool:
    """Whether what follows a number makes it the first term of more; ``24 km/h`` is settled, ``24 / h`` is not."""
    rate = _RATE.match(text, end)
    return _UNSETTLED.match(text, rate.end() if rate else end) is not None


def _first(text: str, start: int) -> Numeral | None:
    number = first_number(text[start : start + _NEAR])
    return replace(number, start=number.start + start, end=number.end + start) if number else None


def _closing(text: str, as_written: bool) -> str:
    """A number that ends the step after *which is* and the like, at most three words before the end."""
    for match in _RESTATED.finditer(text):
        number = _first(text, match.end())
        if number is not None and re.fullmatch(r"(?:\s+\w+){0,3}\s*[.!]?\s*", text[number.end :]):
            return _short(number, text, as_written)
    return ""


def _value_at(text: str, start: int, as_written: bool = False) -> tuple[str, int]:
    """The value right behind a place in a text, and where it ends; empty where there is none, or one still to be worked out."""
    lead = _LEAD.match(text, start)
    at = lead.end() if lead else start
    for special in (_VARIABLE, _GROUP, _MULTIPLE, _SURD, _EITHER, _CLOCK, _PARTS):
        match = special.match(text, at)
        if match and special is _VARIABLE and re.search(rf"[0-9](?!{match[2]})[a-zA-Z]\s?=\s?$", text[max(0, at - 5) : at]):
            return "", at  # "10x = 4y"
        if match and not (special is _VARIABLE and _is_unit(match, text)):
            value = "".join(match.groups()).strip()
            return value.replace(" ", "") if special is _SURD else value, match.end()
    number = _first(text, at)
    if number is None or text[at : number.start].strip(" \t\n({") or _unsettled(text, number.end):
        return "", at
    if text[at : number.start].endswith("(") and (terms := _SUBTRACTION.search(text[max(0, start - _NEAR) : start])):
        left, right = (Fraction(term.replace(",", "")) for term in terms.groups())
        number = replace(number, value=-number.value) if left - right == -number.value else number  # "= (200)"
    beside = _BESIDE.match(text, number.end)
    if beside and (_is_alone(beside[1], text) or _COEFFICIENT.search(text, max(0, start - 6), start)):
        return "", at  # "2a", where a is an unknown and no unit
    return ("" if _is_asked(text, number) else _short(number, text, as_written)), number.end


def _is_unit(amount: re.Match[str], text: str) -> bool:
    """Whether the letter behind a number is a unit, such as in ``21 N``: it is nowhere else without a number before it."""
    letter = amount[2]
    if letter not in _UNIT_LETTERS or not amount[0][-2].isspace():
        return False
    chain = rf"(?:\A|[.:;,]\s){letter}\s?=(?:[^.,;:\n]|\.\d)*\Z"  # "V = IR = 11 V"
    return re.search(chain, text[: amount.start()]) is not None or not _is_alone(letter, text)


def _is_alone(letter: str, text: str) -> bool:
    """Whether a letter is somewhere in a text without a number before it."""
    return re.search(rf"(?<![\w'’/]){letter}(?![\w'’])", re.sub(rf"\d\s?{letter}\b|\({letter}\)", "", text)) is not None


def _short(number: Numeral, text: str, as_written: bool = False) -> str:
    """The number as short as can be; a word such as *million* stays a word, and a time (``9:20 am``, ``1 h 35 min``) whole."""
    if whole := _CLOCK.match(text, number.start) or _PARTS.match(text, number.start):
        return whole[1]
    written = text[number.start : number.end].strip()
    if _EXPONENT.fullmatch(written) and not _SMALLEST <= abs(number.value) < _LARGEST:
        return written
    if as_written and _PADDED.fullmatch(written):
        return written
    if as_written and number.value.denominator != 1 and _FRACTION.fullmatch(written):
        return " ".join(written.split())
    if (power := _SCIENTIFIC.fullmatch(written)) and (as_written or not _SMALLEST <= abs(number.value) < _LARGEST):
        return f"{power[1]}*10^{power[2]}"
    scale = re.search(r"(hundred|thousand|million|billion|trillion)\W*$", text[number.start : number.end])
    if scale:
        return f"{number_text(number.value / SCALES[scale[1]])} {scale[1]}"
    return number_text(number.value) + ("%" if number.percent else "")
