r"""Reading an answer out of what a model wrote, and telling whether two answers are the same.

First the **anchored** answer: ``#### x``, ``\boxed{x}``, ``The answer is x``, ``Answer: x``; the last anchor that can be read
wins. A ``####`` line that holds no answer is a heading, and "the answer is clear" is no anchor. Without an anchor:

* number: of the last sentence with numbers the right side of its last equation, else its only bold
  number, else its last one;
* option: a text that is nothing but a letter (``c``, ``(C)``, ``C. anger``) or one option's text, or starts with a marked
  letter; else the only option that the last sentence names, unless it says "not";
* yes/no: the last clear *yes*, *no*, *true* or *false* ("no longer" and "yes or no" are not clear);
* text: the text itself if it is one line, else its last line.

What cannot be read is ``None``, which is not the same as wrong. No letter inside a word and no article is ever an option.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from fractions import Fraction

from cirf.records import AnswerKind
from cirf.tasks.numerals import Numeral, find_numbers, number_text, plain, word_value

_TOLERANCE = Fraction(1, 10**6)
_HASHES = re.compile(r"####[ \t]*([^\n]*)")
_BOXED = re.compile(r"\\boxed\s*\{")
_ANSWER_IS = re.compile(
    r"(?<!each )(?<!every )\banswer\b(?:\s+(?:choice|option))?\s*(?:\*\*)?\s*(?:\bis\b|:|=)\s*:?\s*(?=([^\n]*))", re.IGNORECASE
)
_ANSWER_TO_IS = re.compile(r"\banswer\s+(?:to|for|of|that|which)\s[^.:\n=]{0,160}?\bis\b\s*:?\s*(?=([^\n]*))", re.IGNORECASE)
_BEST_IS = re.compile(r"\b(?:answer|choice|option|fit)\b[^.:\n]{0,200}\bis:\s*(?=([^\n]*))", re.IGNORECASE)
_CHOOSE = re.compile(r"\b(?:choose|chose|pick|select|go with)\s+(?:option\s+|answer\s+|choice\s+)?(?=([^\n]*))", re.IGNORECASE)
_IS_RIGHT = re.compile(
    r"((?:\boption\s+|\bchoice\s+)?\(?\b[A-Z]\b\)?)\W{0,4}\s(?:is|would be) (?:the |clearly )?(?:correct|right|best|most)\b"
)
_SENTENCE_END = re.compile(r"(?<=[.!?])(?<![\s(*][A-Z]\.)[\"'”’)*]*\s+(?=[^\s])")
_ABOUT = re.compile(
    r"(?:[^\w$-]|\b(?:approximately|about|around|only|exactly|just|roughly|equal to|a total of|is|x|y|n)\b)*", re.IGNORECASE
)
_BOLD = re.compile(r"\*\*([^*\n]+)\*\*")
_OPERATION = re.compile(r"\s*(?:[+×÷*^]|-(?=\s))\s*[$(]?\s*[0-9]")
_NEGATION = re.compile(
    r"\b(?:not|never|cannot|unlike|rather than|instead of|neither|nor|wrong|incorrect|rule out|eliminate)\b|n[’']t\b",
    re.IGNORECASE,
)


def parse_answer(kind: AnswerKind, text: str, choices: Sequence[str] | None = None) -> str | None:
    """The canonical answer of that kind in ``text``; ``None`` if there is none that can be read safely."""
    if kind == "number":
        return _parse_number(text)
    if kind == "option":
        return _parse_option(text, choices)
    if kind == "yesno":
        return _parse_yesno(text)
    return _parse_text(text)


def equal_answers(kind: AnswerKind, parsed: str, gold: str) -> bool:
    """Whether two canonical answers are the same.

    Numbers by value, to 1e-6 (relative above 1); options and yes/no exactly; text after ``normalise_text``.
    """
    if kind == "number":
        ours, theirs = number_value(parsed), number_value(gold)
        if ours is None or theirs is None:
            return False
        return abs(ours - theirs) <= _TOLERANCE * max(Fraction(1), abs(theirs))
    if kind == "text":
        return normalise_text(parsed) == normalise_text(gold)
    return parsed == gold


def number_value(text: str) -> Fraction | None:
    """The value of a text that is one number and nothing else but a sign, currency, percent or full stop; else ``None``."""
    text = plain(text).strip().removesuffix(".")
    numbers = find_numbers(text)
    whole = len(numbers) == 1 and not text[: numbers[0].start].strip() and not text[numbers[0].end :].strip(" $€£¥₹")
    return numbers[0].value if whole else None


_APOSTROPHES = re.compile(r"['\u2019]")
_DASHES = re.compile(r"[\u2010-\u2015\u2212]")
_COMPOUND = re.compile(r"(?<=[^\W\d_])\s*-+\s*(?=[^\W\d_]{2})")  # well-known; not x-1, nor a-b
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_STOPS = re.compile(r"(?<!\d)\.|\.(?!\d)|(?<![^\W_])\*|\*(?![^\W_])")  # full stops and emphasis
_SIGNS = ".-%#&@*/\\"
_SPACED = re.compile(r"\s*([+*/=<>^])\s*|(?<=\w)\s+(-)\s+(?=\w)")


def normalise_text(text: str) -> str:
    """What counts of a text: case folded, one space between words, and no punctuation of sentences.

    Signs that mean something stay: ``C++``, ``x - 1``, ``-5``, ``3.5``, ``$5``, ``50%``. A text of signs alone stays whole.
    """
    told = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    while re.search(r"[^\W_]", told) and (barer := _barer(told)) != told:
        told = barer
    return told


def _barer(text: str) -> str:
    """One round of taking off what does not count."""
    text = _DASHES.sub("-", _APOSTROPHES.sub("", text))
    text = _COMPOUND.sub(" ", _THOUSANDS.sub("", text))
    text = _STOPS.sub(" ", text)
    kept = (" " if sign in "_`" or (unicodedata.category(sign)[0] == "P" and sign not in _SIGNS) else sign for sign in text)
    return " ".join(_SPACED.sub(r"\1\2", "".join(kept)).split())


def mentions(text: str, choices: Sequence[str]) -> list[tuple[int, int, int]]:
    """Where options' texts stand in ``text`` as whole words: ``(start, end, index)`` in order, longer options first.

    A leading article of an option may be missing, and a plural ``s`` may be there or not. Where one option's text lies
    inside another's, the longer one counts.
    """
    spans: list[tuple[int, int, int]] = []
    for index, choice in enumerate(choices):
        words = re.sub(r"^(?:an?|the)\s+(?=\S)", "", " ".join(choice.split()), flags=re.IGNORECASE)
        if not words:
            continue
        singular = words[:-1] if re.search(r"[^\Ws]{3}s$", words) else words
        pattern = r"\s+".join(re.escape(word) for word in singular.split(" "))
        found = re.finditer(rf"(?<!\w){pattern}(?:e?s)?(?!\w)", text, re.IGNORECASE)
        spans.extend((match.start(), match.end(), index) for match in found)
    outer = [
        s for s in spans if not any(o is not s and o[0] <= s[0] and s[1] <= o[1] and o[1] - o[0] > s[1] - s[0] for o in spans)
    ]
    return sorted(outer)


def anchors(text: str, *extra: re.Pattern[str]) -> list[tuple[str, str]]:
    """The anchored answers of a text, in order: ``(anchor, what it says)`` with anchor ``hashes``, ``boxed`` or ``phrase``."""
    found = [(match.start(1), "hashes", match[1]) for match in _HASHES.finditer(text)]
    for match in _BOXED.finditer(text):
        depth, end = 1, match.end()
        while end < len(text) and depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        if not depth:
            found.append((match.start(), "boxed", text[match.end() : end - 1]))
    for pattern in (_ANSWER_IS, _ANSWER_TO_IS, *extra):
        found.extend((match.start(1), "phrase", match[1]) for match in pattern.finditer(text))
    return [(kind, said) for _, kind, said in sorted(found)]


def _first_sentence(text: str) -> str:
    return _SENTENCE_END.split(text.strip(), 1)[0]


def _last_sentence(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return _SENTENCE_END.split(lines[-1].strip())[-1] if lines else ""


# Numbers


def _parse_number(text: str) -> str | None:
    for anchor, said in reversed(anchors(text)):
        value = _anchored_number(said, strict=anchor == "hashes")
        if value is not None:
            return number_text(value)
    for written in reversed([part for line in text.splitlines() for part in _SENTENCE_END.split(line)]):
        sentence = plain(written)
        numbers = find_numbers(sentence)
        if numbers:
            right = find_numbers(sentence.rpartition("=")[2]) if "=" in sentence else []
            bold = _bold_numbers(written)
            return number_text((right[0] if right else bold[-1] if len(bold) == 1 else numbers[-1]).value)
    word = word_value(text)
    return None if word is None else str(word)


def _anchored_number(said: str, strict: bool) -> Fraction | None:
    """The number an anchor names: an equation's right side, or the one at the front; unless ``strict``, also a total, one in
    bold, or the last of the sentence. ``None`` for an expression that was never worked out."""
    sentence = plain(_first_sentence(said))
    equation = "=" in sentence and bool(find_numbers(sentence.rpartition("=")[2]))
    if equation:
        sentence = sentence.rpartition("=")[2]
    numbers = find_numbers(sentence)
    if not numbers:
        word = word_value(sentence)
        return None if word is None else Fraction(word)
    first = numbers[0]
    if _OPERATION.match(sentence, first.end):
        return None
    lead = _ABOUT.match(sentence)
    if equation or (lead is not None and lead.end() >= first.start):
        return first.value
    if strict:  # a heading such as "#### Step 3"
        return None
    total = re.search(r"\b(?:total of|total is|in total)\s+(?=[$-]?[0-9])", sentence, re.IGNORECASE)
    if total is not None:
        return find_numbers(sentence[total.end() :])[0].value
    bold = _bold_numbers(said)
    return bold[-1].value if bold else numbers[-1].value


def _bold_numbers(text: str) -> list[Numeral]:
    return [number for piece in _BOLD.findall(text) for number in find_numbers(plain(piece))]


# Options


def _parse_option(text: str, choices: Sequence[str] | None) -> str | None:
    count = len(choices) if choices else 26
    for _, said in reversed(anchors(text, _BEST_IS, _CHOOSE, _IS_RIGHT)):
        letter = _option_at_front(_first_sentence(said), choices or (), count)
        if letter:
            return letter
    whole = plain(text).strip()
    letter = _letter_alone(whole, count) or _only_mention(whole, choices or (), whole=True)
    if letter:
        return letter
    marked = {m[1] for m in re.finditer(r"(?:^|\n)[ \t]*(?:[-•*]\s*)?\(?([A-Z])[).:](?=\s|$)|\(([A-Z])\)", whole)} - {None}
    front = re.match(r"\(?([A-Z])[).:](?=\s)", whole)
    if front and _in_range(front[1], count) and marked <= {front[1]}:
        return front[1]
    last = plain(_last_sentence(text))
    if _NEGATION.search(last):
        return None
    named = {found for m in re.finditer(r"\(([A-Z])\)|\b(?:[Oo]ption|[Cc]hoice) ([A-Z])\b", last) if (found := m[1] or m[2])}
    if named:
        return named.pop() if len(named) == 1 and all(_in_range(found, count) for found in named) else None
    return _only_mention(last, choices or (), whole=False)


def _in_range(letter: str, count: int) -> bool:
    return 0 <= ord(letter) - 65 < count


def _letter_alone(text: str, count: int) -> str | None:
    match = re.fullmatch(r"[\s(\[{\"'$]*([A-Za-z])[\s)\]}.:,\"'$!]*", text)
    letter = match[1].upper() if match else ""
    return letter if letter and _in_range(letter, count) else None


def _option_at_front(said: str, choices: Sequence[str], count: int) -> str | None:
    """The option that a text begins with: a letter of its own, or an option's own text."""
    said = plain(said).strip().lstrip("\"'“‘$*: ")
    alone = _letter_alone(said, count)
    if alone:
        return alone
    if re.match(r"not\b", said, re.IGNORECASE):
        return None
    said = re.sub(r"^(?:option|choice|letter)\s+", "", said, flags=re.IGNORECASE)
    match = re.match(r"\(([A-Za-z])\)|([A-Z])(?=[).:,;\]\"'”’]|\s*$|\s+-|\s*\(|\s+(?:because|since|is)\b)|([A-Z])(?=\s)", said)
    letter = next((part for part in match.groups() if part), "").upper() if match else ""
    rest = said[match.end() :] if match else said
    own = _mention_at_front(rest, choices)
    if letter and _in_range(letter, count) and match:
        bare = match[3] is not None  # "A roof": the letter or the article?
        if not bare or own == letter or (letter not in "AI" and own is None):
            return letter
    return _mention_at_front(said, choices) or _only_mention(said, choices, whole=False, negated=bool(_NEGATION.search(said)))


def _mention_at_front(text: str, choices: Sequence[str]) -> str | None:
    lead = re.match(r"\W*(?:(?:an?|the)\s+)?\W*", text, re.IGNORECASE)
    offset = lead.end() if lead else 0
    starts = {index for start, _, index in mentions(text, choices) if start <= offset}
    return chr(65 + starts.pop()) if len(starts) == 1 else None


def _only_mention(text: str, choices: Sequence[str], whole: bool, negated: bool = False) -> str | None:
    if whole:
        same = [index for index, choice in enumerate(choices) if normalise_text(choice) == normalise_text(text)]
        return chr(65 + same[0]) if len(same) == 1 else None
    named = {index for _, _, index in mentions(text, choices)}
    return chr(65 + named.pop()) if len(named) == 1 and not negated else None


# Yes and no

_CLEAR = re.compile(r"(?<![\w'’-])(yes|no|true|false)(?![\w'’-])", re.IGNORECASE)
_PAIR = re.compile(r"\b(?:yes|no|true|false)\s*(?:/|,?\s*(?:or|and|nor)\s)\s*[\"'“‘]?(?:yes|no|true|false)\b", re.IGNORECASE)
_CLOSED = re.compile(r"[\"'”’)\]}*]*\s*(?:[.,;:!?()\]–—-]|$)")
_STATEMENT = re.compile(r"\s+(?:the|it|it's|this|that|he|she|they|because|since|as|so|but)\b", re.IGNORECASE)
_OPENS = re.compile(r"[.!?:\n][\s\"'“‘*(]*$")
_DENIED = re.compile(r"\b(?:not|never|n't|isn't)\s+$", re.IGNORECASE)


def _clear_words(text: str) -> list[str]:
    pairs = [match.span() for match in _PAIR.finditer(text)]
    words = []
    for match in _CLEAR.finditer(text):
        word, end = match[1].casefold(), match.end()
        before = text[max(0, match.start() - 24) : match.start()]
        if any(start <= match.start() < stop for start, stop in pairs) or _DENIED.search(before):
            continue
        closed = bool(_CLOSED.match(text, end)) and not re.match(r"\.\s?[0-9]", text[end:])
        opens = bool(_OPENS.search(before)) or not text[: match.start()].strip(" \"'“‘*(")
        if word == "yes" or closed or (opens and (word != "no" or _STATEMENT.match(text, end))):
            words.append("yes" if word in ("yes", "true") else "no")
    return words


def _parse_yesno(text: str) -> str | None:
    for _, said in reversed(anchors(text)):
        words = _clear_words(_first_sentence(plain(said)))
        if words:
            return words[-1]
    words = _clear_words(plain(text))
    return words[-1] if words else None


# Text


def _parse_text(text: str) -> str | None:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return None
    for anchor, said in reversed(anchors(text)):
        clean = _tidy(said if anchor == "boxed" else _first_sentence(said))
        if clean:
            return clean
    return _tidy(lines[-1]) or None


def _tidy(text: str) -> str:
    text = plain(text).strip().strip('"“”‘’ ').strip()
    return text.removesuffix(".").strip()
