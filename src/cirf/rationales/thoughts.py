r"""The rationale in a text that people or models wrote: of thoughts and an answer the part that explains, and equations as lines.

Two worked examples::

    <think>4*8 = 32. Then 32-4 = 28.</think>The answer is 28.   ->   4*8 = 32. Then 32-4 = 28.
                                                                     #### 28
    <<4*8=32>> <<32-4=28>> #### 28                              ->   4*8=32
                                                                     32-4=28 #### 28
"""

import re

from cirf.recipe.schema import Part
from cirf.tasks.parsing.anchors import BOX, anchors, outright, states_answer_only
from cirf.tasks.parsing.texts import tidy
from cirf.tasks.parsing.thoughts import split_thoughts, unwrapped
from cirf.tasks.steps.calculations import worked_out
from cirf.text.normalise import normalise
from cirf.text.sentences import sentences

_NOTE = re.compile(
    r"<<([^<>\n]{0,300}?(?:=\s?(?P<value>-?[\d.,]{0,20}\d))?)>>(?:[$€£]?(?P=value)(?!\d))?"
)  # perhaps with its value again
_WORKED = re.compile(r"=\s*[$€£]?\s*<<")  # as in GSM8K: the equation is next to its note
_BETWEEN = re.compile(r"(?<=>>)[\s,;.]*(?=<<)")
_EQUATION = r"[^=;\n]{1,200}?=\s?[$€£]?-?\d[\d.,]*(?<![.,])"
_LINE = re.compile(rf"{_EQUATION}[;,.]?")
_NEXT = re.compile(rf"({_EQUATION})\s?(?:[;,.]\s|;|\s)\s*(?![+*/×÷=]|-\s)(?=\S)")  # not within "= 9 + 3 = 12"
_WORD = re.compile(r"[^\W\d_]{2,}")
_STEP = re.compile(r"\bstep\s*\d+", re.I)
_LONGEST_ANSWER = 200
_FEW = 3  # sentences


def rationale_of(text: str, part: Part = "auto") -> str:
    """The rationale that a text holds. A text without thoughts and bare notes is returned unchanged. After thoughts it is the
    following text, if that explains in some sentences, in two or three only if it calculates or the thoughts do not, and for
    ``explanation`` if it explains at all; else, and for ``thoughts``, the thoughts, ended by a line with the answer
    (``#### 28``). Calculator notes without other text are written out, one per line. Thoughts that break off are none."""
    thought, rest = split_thoughts(text)
    rest = unwrapped(rest)
    last = text.rstrip()[-1:]  # of thoughts that are closed, the mark's
    if thought and not rest and (last.isalpha() or last in ",:;") and re.search(r"(?<!\d)[.!?]\s|。", thought):
        return ""
    if not thought or _explains(rest, thought, part):
        return equations_written_out(rest)
    said = _answer(rest)
    said = "" if len(sentences(said)) > 1 else said  # an explanation
    return equations_written_out(f"{thought}\n#### {said}" if said else thought)


def _explains(rest: str, thought: str, part: Part) -> bool:
    """Whether what follows thoughts is the rationale."""
    explaining = [each for each in sentences(normalise(BOX.sub("", rest))) if not states_answer_only(each)]
    if part != "auto":
        return part == "explanation" and bool(explaining)
    return len(explaining) > _FEW or (len(explaining) > 1 and (bool(worked_out(rest)) or not worked_out(thought)))


def left_out(text: str) -> tuple[int, int] | None:
    """The words of the thoughts that ``auto`` leaves out of a text, and those of the explanation that it takes instead; ``None``
    where it leaves none out."""
    thought, rest = split_thoughts(text)
    rest = unwrapped(rest)
    return (len(thought.split()), len(rest.split())) if thought and _explains(rest, thought, "auto") else None


def equations_written_out(text: str) -> str:
    """The text with ``<<4*8=32>>`` written out where a rationale is made of such notes alone; equations alone on one line, such
    as ``4*8=32; 32-4=28``, get one line each."""
    if "<<" not in text:
        sums, mark, said = text.partition("####")
        if "=" not in sums or _WORD.search(sums):
            return text
        lines = _NEXT.sub(r"\1\n", sums.strip()).split("\n")
        alone = len(lines) > 1 and all(map(_LINE.fullmatch, lines))
        return "\n".join(lines) + (f"\n{mark}{said}" if mark else "") if alone else text
    if not _NOTE.search(text) or _WORKED.search(text):
        return text
    around = "\n".join(part for part in _NOTE.sub("\n", text).split("\n") if not states_answer_only(part))
    if _WORD.search(_STEP.sub("", around)):
        return text
    return _BETWEEN.sub("\n", _NOTE.sub(r"<<\1>>", text)).replace("<<", "").replace(">>", "")


def _answer(text: str) -> str:
    """The answer that a short text states; empty where it states none."""
    for kind, said in reversed(anchors(text)):
        if found := tidy(" ".join(outright(kind, said).split())):
            return found
    plain = tidy(" ".join(text.split()))
    return plain if len(plain) <= _LONGEST_ANSWER else ""
