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
_LEAD = (  # before the words that tell what a check or an alternative is: "Hmm, okay, but wait a minute, ..."
    r"(?:(?:hmm+|mmm|oh|ah|uh|okay|ok|alright|yes|yeah|no|wait|hold on|well|actually|however|but|so|now|and|then|next|finally"
    r"|again|(?:wait|just|hold on) a (?:minute|second|sec|moment)|just (?:in case|to be (?:\w+ )?(?:sure|safe|certain|thorough)))"
    r"\b[\s,.;:!…—–-]{1,4}){0,5}"
)
_WAY = (
    r"(?:\w+ )?(?:way|approach|method|idea|route|angle|perspective|interpretation|possibility|option|strategy|solution|formula"
    r"|thought)s?"
)
_I = (  # the subject of what is checked or tried
    r"(?:(?:let me|let['’]?s|let us|(?:maybe |perhaps )?(?:i|we)"
    r"(?:['’](?:ll|d)| will| would| should| could| can| might| must| need(?: to)?| have to| want to| better)+|to)[ ,]+)"
)
_ADVERBS = (
    r"(?:(?:also|just|quickly|briefly|carefully|really|actually|first|now|then|again|at least|try to|go back and|please),? )*"
)
_CHECK = (
    r"(?:(?:(?:double|triple|cross|re)[- ]?)?(?:check|verif[yi]|confirm|validat)(?:e|ing)?|mak(?:e|ing) sure|be sure"
    r"|plug(?:ging)?\b[^.?!\n]{0,20}\bback)"
)
_AGAIN = (
    r"(?:test|re-?(?:calculate|compute|do|count|examine|trace)|see (?:if|whether) (?:this|that|it|everything)"
    r"|(?:think|look|read|work|calculate|compute|add|count|do|run|go|try)\b[^.?!:\n]{0,40}?"
    r"\b(?:again|(?:once|one) more(?: time)?|a second time))"
)
_NOT_RIGHT = (
    r"(?:that|this|it)(?:(?:['’]s| is| was| does| can)?(?: not|n['’]t)| cannot| can['’]t)"
    r" (?:quite |be |seem )?(?:right|correct|true)"
)
_FUNCTIONS = {
    "check": rf"{_LEAD}(?:{_I}?{_ADVERBS}{_CHECK}|{_I}{_ADVERBS}{_AGAIN}"
    r"|just to (?:be (?:\w+ )?(?:sure|safe|certain|thorough)|make sure|confirm|verify|check)"
    r"|(?:just )?(?:as )?(?:an? )?(?:quick |final |small )?(?:sanity|double|cross)[- ]?check|(?:as )?a (?:quick |final )?check"
    r"|verification|(?:is|does|was|did) (?:this|that|it|everything)\b[^.?!,\n]{0,20}"
    r"\b(?:right|correct|make sense|work|hold|add up))",
    "alternative": rf"{_LEAD}(?:alternatively|(?:yet )?another {_WAY}|or(?=,)|or (?:maybe|perhaps)|what if|on the other hand"
    rf"|instead(?! of)|an? (?:different|alternative) {_WAY}"
    rf"|(?:{_I}{_ADVERBS}(?!put\b)[^.?!,\n]{{0,30}}?|(?:maybe|perhaps) there(?:['’]s| is| are) )"
    rf"\b(?:(?:an? )?(?:different|alternative|better|easier|simpler|quicker|other)|another|a second) {_WAY}"
    rf"|{_I}{_ADVERBS}[^.?!,\n]{{0,30}}?\b(?:differently|(?:the )?other way (?:a?round)))",
    "reconsider": r"(?:(?:but|oh|hmm+|no|okay|ok|so|and|well),? )*wait|but|however|actually|hold on|oh|on second thought|well"
    rf"|not sure|oops|scratch that|(?:hmm+,? |no,? |but )*{_NOT_RIGHT}"
    r"|(?:hmm+,? |no,? )*i (?:made|did|have made) (?:a|an|some) (?:\w+ )?(?:mistake|error)"
    r"|let me (?:reconsider|rethink|re-?read|start (?:over|again))",
    "uncertain": r"(?:(?:so|hmm+),? )?(?:maybe|perhaps)|(?:hmm+,? )?i(?:['’]m not| am not|['’]m confused| wonder| think| guess)",
    "example": r"for (?:example|instance)|suppose|let['’]s say|(?:so,? )?(?:if i|imagine)",
    "recall": r"i (?:remember|recall|know)|i['’]ve|since|given|this(?! means)|also",
    "conclude": r"therefore|thus|hence|(?:that|which|this) means|in (?:summary|conclusion|total)|overall|finally|consequently"
    r"|as a result|ultimately|all in all|it follows|putting (?:it|this|that|everything)(?: all)? together|and so"
    r"|(?:(?:yes|yeah|okay|ok|alright|hmm+),? )?so,? (?:the (?:final )?answer|in total)|(?:the )?final answer",
    "plan": r"okay|ok|alright|first(?:ly)?|second(?:ly)?|next|now|looking|i(?:['’](?:m|ll|d))?|yeah",
}
_OPENS = re.compile(rf"[\W_]{{0,9}}(?:{'|'.join(f'(?P<{name}>{words})' for name, words in _FUNCTIONS.items())})(?!['’]?\w)", re.I)
_CARRIES_ON = re.compile(r"\W{0,9}(?:hmm+|because|then|similarly|let me|so (?:the|that|he|she|it|they))(?!['’]?\w)", re.I)
_THINKS_ON = re.compile(  # within a paragraph: no new piece
    r"\W{0,9}(?:(?:hmm+,? )?let me (?:think|see|try)|hmm+(?!,? (?:but )?(?:wait|let me))|no, that|is (?:that|this|it))(?!\w)",
    re.I,
)
_TURNS = re.compile(
    r"(?:^|(?<=[.!?]\s))[\W_]{0,3}(?:(?:but|oh|hmm|no),? )?"
    r"(?:wait|hmm+|alternatively|hold on|actually|let me (?:double-?check|check|verify|think|see|try)|okay|maybe)(?!['’]?\w)",
    re.I | re.M,
)
_ALOUD = re.compile(
    r"(?:^|(?<=[.!?]\s))[\W_]{0,3}(?:(?:but|oh|hmm|no|so|now|okay|first|next),? ){0,3}"
    r"(?:wait|hmm+|alternatively|hold on|actually|let me [a-z]+|let['’]s see(?=[,.:…])|okay|alright|maybe)(?!['’]?\w)",
    re.I | re.M,
)
_MY_PLAN = re.compile(
    r"(?:^|(?<=[.!?]\s))[^.!?\n]{0,80}?\b(?-i:I)(?:['’](?:ll|m|d)| need| can| should| will| want| have to| could)\b", re.I | re.M
)
_SENTENCES, _FEW_LINES = 2.5, 2  # with fewer sentences a line, on average, and more lines than that, each line is a step
_CONCLUDES = re.compile(r"\W{0,9}so(?!['’]?\w)", re.I)
_HMM = re.compile(r"\W{0,9}h+mm+\b(?P<more>,\s+(?!hmm))?", re.I)


def function_of(piece: str) -> str:
    """The function of a piece, by its first words: ``check``, ``alternative``, ``reconsider``, ``uncertain``, ``example``,
    ``recall``, ``conclude``, ``plan``, or ``work`` without such words."""
    opened = _OPENS.match(piece)
    if opened:
        return str(opened.lastgroup)
    if hmm := _HMM.match(piece):
        return function_of(piece[hmm.end() :]) if hmm["more"] else "reconsider"
    return "conclude" if _CONCLUDES.match(piece) else "work"


def turns(text: str, count: int) -> bool:
    """Whether a text thinks aloud: whether ``count`` of its sentences open with *wait*, *hmm*, *alternatively*, *let me
    check*."""
    return sum(1 for _ in islice(_TURNS.finditer(text), count)) == count


def speaks(text: str, count: int) -> bool:
    """Whether a text thinks aloud in milder ways, in paragraphs and not a step a line: whether ``count`` of its sentences open
    with *let me*, *alright*, *wait*, or say what *I'll* do or *I need*."""
    prose = [len(sentences(line)) for line in text.split("\n") if line.strip()]
    if len(prose) > _FEW_LINES and sum(prose) < _SENTENCES * len(prose):
        return False
    return any(sum(1 for _ in islice(pattern.finditer(text), count)) == count for pattern in (_ALOUD, _MY_PLAN))


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
        # a short conclusion goes with the paragraph before it, what else is short with the next
        may_end = size >= shortest or (before == "\n\n" and function_of(held[0]) == "conclude")
        if held and (size + len(sentence) >= longest or (may_end and _begins(before, sentence, held[-1], size))):
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
    if _OPENS.match(sentence) and not (before == " " and _THINKS_ON.match(sentence)):
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
