"""Splits long prose of reasoning models at turns of thought, and classifies pieces by their opening words.

A worked example, a piece and its function a line::

    Okay, there are 48 clips in April and half of that in May. So 48 / 2 = 24.     plan
    Wait, is it half of April, or of both months?                                  reconsider
    Let me check: half as many as in April. So 24 is right.                        check
    Therefore the total is 48 + 24 = 72.                                           conclude

The words are English. Texts in other languages are cut at paragraphs and at sentence ends, where a piece is long enough.
"""

import re
from collections.abc import Iterator
from itertools import islice

from cirf.text.sentences import sentences

ENOUGH = 150  # characters of a piece and the next sentence; then the sentence opens another, unless its first words continue it
_FUNCTIONS = {
    "check": r"(?:(?:so|now|okay|ok|wait|but),? )*(?:(?:let me|let['’]s|i(?:['’]ll| will| should| need to| can)?|to),? )?"
    r"(?:just |quickly )*(?:double[- ]?check|re-?check|verify|check|confirm|make sure|be sure|test)(?:ing)?",
    "alternative": r"alternatively|another|or (?:maybe|perhaps)|what if|on the other hand|instead|a different",
    "reconsider": r"(?:(?:but|oh|hmm|no),? )?wait|but|however|actually|hold on|oh|on second thought|well|not sure",
    "uncertain": r"(?:so )?(?:maybe|perhaps)|i(?:['’]m not| am not|['’]m confused| wonder| think| guess)",
    "example": r"for (?:example|instance)|suppose|let['’]s say|(?:so,? )?(?:if i|imagine)",
    "recall": r"i (?:remember|recall|know)|i['’]ve|since|given|this|also",
    "conclude": r"therefore|thus|hence|(?:that|which) means|in (?:summary|conclusion|total)|overall|finally"
    r"|so,? (?:the (?:final )?answer|in total)|(?:the )?final answer",
    "plan": r"okay|ok|alright|first(?:ly)?|second(?:ly)?|next|now|looking|i(?:['’](?:m|ll|d))?|yeah",
}
_OPENS = re.compile(rf"[\W_]{{0,9}}(?:{'|'.join(f'(?P<{name}>{words})' for name, words in _FUNCTIONS.items())})(?!['’]?\w)", re.I)
_CARRIES_ON = re.compile(r"\W{0,9}(?:hmm+|because|then|similarly|let me|so (?:the|that|he|she|it|they))(?!['’]?\w)", re.I)
_TURNS = re.compile(
    r"(?:^|(?<=[.!?]\s))[\W_]{0,3}(?:(?:but|oh|hmm|no),? )?"
    r"(?:wait|hmm+|alternatively|hold on|actually|let me (?:double-?check|check|verify|think|see|try)|okay|maybe)(?!['’]?\w)",
    re.I | re.M,
)
_CONCLUDES = re.compile(r"\W{0,9}so(?!['’]?\w)", re.I)


def function_of(piece: str) -> str:
    """The function of a piece, by its first words: ``check``, ``alternative``, ``reconsider``, ``uncertain``, ``example``,
    ``recall``, ``conclude``, ``plan``, or ``work`` without such words."""
    opened = _OPENS.match(piece)
    return (opened and opened.lastgroup) or ("conclude" if _CONCLUDES.match(piece) else "work")


def turns(text: str, count: int) -> bool:
    """Whether a text thinks aloud: whether ``count`` of its sentences open with *wait*, *hmm*, *alternatively*, *let me
    check*."""
    return sum(1 for _ in islice(_TURNS.finditer(text), count)) == count


def pieces(text: str, shortest: int, longest: int) -> tuple[str, ...]:
    """The pieces of a text, in order, none empty; joined they give it back, apart from white space.

    A piece ends where a paragraph does, where the next sentence opens with words such as *wait*, *alternatively*, *let me check*,
    or at a sentence end where it and the next sentence have `ENOUGH` characters. An introduction of a list or formula stays
    with it. No piece has more than ``longest`` characters; one of fewer than ``shortest`` is joined to a neighbour if that
    leaves neither too long. The work is linear in the length of the text.
    """
    found: list[str] = []
    held: list[str] = []
    size = 0
    for before, sentence in _sentences(text, longest):
        if held and (size + len(sentence) >= longest or (size >= shortest and _begins(before, sentence, held[-1], size))):
            _add(found, "".join(held), shortest, longest)
            held, size = [], 0
        mark = "\n" if before.startswith("\n") else before
        held += [mark, sentence] if held else [sentence]
        size += len(held[-1]) + (1 if len(held) > 1 else 0)
    if held:
        _add(found, "".join(held), shortest, longest)
    return tuple(found)


def _add(found: list[str], piece: str, shortest: int, longest: int) -> None:
    """Append a piece, or join it to the last one if either is too short and both fit in one."""
    if found and min(len(piece), len(found[-1])) < shortest and len(found[-1]) + len(piece) < longest:
        found[-1] += "\n" + piece
    else:
        found.append(piece)


def _begins(before: str, sentence: str, last: str, size: int) -> bool:
    """Whether a sentence begins a piece, by the separator from the ``last`` one and the ``size`` of the piece so far."""
    if _OPENS.match(sentence):
        return True
    first = sentence[0]
    if before == "\n\n" and last.endswith((".", "!", "?")):
        return first.isalnum()  # no formula
    if before == "\n\n":  # nor an item of a list
        return first.isalpha() and not first.islower() and not last.endswith((":", ","))
    return before == " " and size + len(sentence) >= ENOUGH and _CARRIES_ON.match(sentence) is None


def _sentences(text: str, longest: int) -> Iterator[tuple[str, str]]:
    """The sentences of a text, each with its separator from the one before: a blank, a line's end or a paragraph's. One of more
    than ``longest`` characters is cut at its blanks."""
    before = ""
    for line in text.split("\n"):
        if not line.strip():
            before = "\n\n" if before else ""
        for sentence in sentences(line):
            while len(sentence) > longest:
                blank = sentence.rfind(" ", 1, longest + 1)
                place = blank if blank > 0 else longest
                yield before, sentence[:place]
                before, sentence = " ", sentence[place:].lstrip()
            yield before, sentence
            before = " "
        before = "\n" if before == " " else before
