r"""Answers in LaTeX: found in ``\boxed{}``, after an anchor or between dollar signs, and compared by value.

math-verify decides whether two formulas are equal. Its timeout uses an alarm signal, which works only in the main thread and not
while C code runs. So a separate process does the work; it is started once, kept, and killed when a pair takes too long. The limit
is on processor time, so a verdict does not depend on the machine's load; there is a second, wider limit of wall time.
"""

import atexit
import contextlib
import json
import os
import re
import select
import subprocess
import sys
import threading
from functools import lru_cache
from pathlib import Path

from cirf.errors import CirfError
from cirf.tasks.parsing.anchors import ENCLOSED, anchors, first_sentence, settled
from cirf.tasks.parsing.numeric import number_value, parse_number, same_number
from cirf.text.numerals import plain

_FORMULA = re.compile(
    r"\$\$(.{1,2000}?)\$\$|\\\[(.{1,2000}?)\\\]|\\\((.{1,2000}?)\\\)|(?<![\\$])\$(?!\$)((?:[^$\\]|\\.){1,2000}?)(?<!\\)\$", re.S
)
_JOINED = re.compile(r"\s*(?:,|and|or|, and|, or)\s*", re.I)
_PROSE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}(?![A-Za-z]*\{)")
_FUNCTIONS = "sin cos tan cot sec csc log ln lg exp arcsin arccos arctan sqrt pi max min gcd lcm mod deg abs infty frac inf"
_NAMES = frozenset((*_FUNCTIONS.split(), "cm", "mm", "km"))
_TEXT = r"\\(?:text|mbox|textbf|textrm|textit|mathrm|mathbf|operatorname)"
_MARKUP = re.compile(rf"(?:{_TEXT}|\\begin|\\end)\s*\{{[^{{}}]*\}}")
_REMARK = re.compile(
    r"\b(?:not|un\w+|in(?:correct|consistent)|correct|right|wrong|clear|known|obvious|simple|complete|done|above|below|given|found|"
    r"reasonable|consistent|the same|as follows|i|we|you|it|no|none)\b",
    re.I,
)
_DENIES_A_WORD = re.compile(r"\W*(?:not|never)\b[^0-9$\\]*$", re.I)  # "the answer is not unique"
_LONGEST = 200  # characters of an answer without any delimiter
_FAR = 500  # characters after an anchor in which a number is looked for


def parse_latex(text: str) -> str | None:
    r"""The formula that is a text's answer, without delimiters; ``None`` if there is none.

    The last anchor that holds one: all of ``\boxed{x}``, of another anchor the formula it opens with, or all of it where it
    is no prose, or the number in it. Else the last formula set apart by ``$`` and the like in the last sentence that has
    one; else the text if it is a formula, a number or a word or two; else the number that ``parse_number`` reads.
    """
    said = [each for each in anchors(text) if each[0] in ENCLOSED or not _DENIES_A_WORD.match(each[1])]
    found, last_word = settled(said, lambda anchor, said: (tidy_latex(said) if anchor in ENCLOSED else _opening(said)) or None)
    if found or last_word:
        return found
    formulas = [match for match in _FORMULA.finditer(text) if tidy_latex(_inside(match))]
    if formulas:
        return tidy_latex(_inside(formulas[-1]))
    return _opening(text, alone=True) or parse_number(text)


def _inside(match: re.Match[str]) -> str:
    return next(part for part in match.groups() if part is not None)


def _opening(said: str, alone: bool = False) -> str | None:
    """The answer at the start of a line after an anchor. ``alone``: there is no other text, so all of it must be the answer."""
    formulas = list(_FORMULA.finditer(said))
    if formulas and not alone:
        parts, end = [_inside(formulas[0])], formulas[0].end()
        for match in formulas[1:]:
            if not _JOINED.fullmatch(said[end : match.start()]):
                break
            parts, end = [*parts, _inside(match)], match.end()
        return tidy_latex(", ".join(map(tidy_latex, parts))) or None
    sentence = tidy_latex(said if alone else first_sentence(said))
    bare = _MARKUP.sub("", sentence)
    words = [word for word in _PROSE.findall(bare) if word.lower() not in _NAMES]
    whole = sentence.count("{") == sentence.count("}")
    if sentence and whole and len(sentence) <= _LONGEST and (not words or _words_alone(sentence)):
        return sentence if re.search(r"\w", sentence) else None
    said = said[:_FAR]
    return None if alone else parse_number(f"#### {said}") or parse_number(f"The answer is {said}")


MARKED_UP = re.compile(r"\\[A-Za-z%$]|\^|\s*\$[^$]+\$\s*\Z")  # a command, a power, dollar signs around all of it


def is_formula(text: str) -> bool:
    return _opening(text, alone=True) is not None


def _words_alone(text: str) -> bool:
    """Whether a text is a word or two, such as *east*, and not a comment on an answer, such as *correct*."""
    return re.fullmatch(r"[A-Za-z][A-Za-z'’-]*(?: [A-Za-z'’-]+)?", text) is not None and _REMARK.search(text) is None


def tidy_latex(text: str) -> str:
    r"""A formula without delimiters, emphasis, space around it, a full stop after it, or a box around all of it."""
    text = " ".join(text.split())
    while True:
        bare = _ended(text.lstrip(" *`"))
        for opened, closed in (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]")):
            inner = bare[len(opened) : -len(closed)]
            if len(bare) > len(opened + closed) and bare.startswith(opened) and bare.endswith(closed) and opened not in inner:
                bare = inner if not inner.endswith("\\") else bare
        boxed = re.fullmatch(r"\\(?:boxed|fbox)\s*\{(.*)\}", bare)
        bare = boxed[1] if boxed else bare
        if bare == text:
            return text
        text = bare


def _ended(text: str) -> str:
    r"""Without the end of a sentence or a line; the full stops of ``\right.`` and ``3..`` stay. A loop over places, not texts."""
    end = len(text)
    while end and text[end - 1] in " *`\\.,;:":
        if text[end - 1] == "." and (text.endswith(r"\right", 0, end - 1) or re.match(r"\d\.", text[max(0, end - 3) : end - 1])):
            break
        end -= 1
    return text[:end]


_NO_SPACE = re.compile(r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|limits|qquad|quad)(?![A-Za-z])|\\[!,;: ]|[~\s]")
_UNIT = re.compile(r"(?<=[\w}).])" + _TEXT + r"\{[^{}]*\}(?:\^\{?\d\}?)?$")
_COMMAS = re.compile(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_NAMED = re.compile(r"(?:[A-Za-z]|\\[A-Za-z]+|[A-Za-z]\([A-Za-z]\))(?:=|\\in(?![A-Za-z]))(?=.)")
# A matrix, a union, a point, a name.
_NO_NUMBER = re.compile(r"\\begin|\\cup|^[(\[].*,.*[)\]]$|(?<![A-Za-z\\])[A-DF-HJ-Za-df-hj-z](?![A-Za-z])")
_BASE = re.compile(r"(?<=[0-9A-F])_(\d+)$")


def same_latex(parsed: str, gold: str) -> bool:
    r"""Whether two formulas are the same: spelt alike, the same number, or equal by algebra (math-verify, within a limit).

    Units, degrees, currency and percent signs do not count, nor a name before the value (``x = 5``, ``x \in [0, 1]``) or a
    numeral's base (``204_5``) that just one of the two has. Round and square ends of an interval are not the same.
    """
    ours, theirs = normal_latex(parsed), normal_latex(gold)
    if ours == theirs:
        return True
    if bool(_NAMED.match(ours)) != bool(_NAMED.match(theirs)) and ours.count("=") <= 1 and theirs.count("=") <= 1:
        ours, theirs = _NAMED.sub("", ours, 1), _NAMED.sub("", theirs, 1)
    bases = [_BASE.search(text) for text in (ours, theirs)]
    if any(bases):
        return not all(bases) and _BASE.sub("", ours) == _BASE.sub("", theirs)
    if ours == theirs or same_number(ours, theirs):
        return True
    if not ours or not theirs or all(number_value(text) is not None for text in (ours, theirs)):
        return False
    if any(number_value(one) is not None and _NO_NUMBER.search(other) for one, other in ((ours, theirs), (theirs, ours))):
        return False  # without the other process: most wrong answers end here
    if any(re.fullmatch(r"[a-z'()-]{2,}", text) for text in (ours, theirs)):  # words
        return ours.strip("()") == theirs.strip("()")
    ends = [text[0] + text[-1] for text in (ours, theirs)]
    if all(pair[0] in "([" and pair[1] in ")]" for pair in ends) and ends[0] != ends[1]:
        return False
    return same_formula(ours, theirs)


def normal_latex(text: str) -> str:
    """One canonical spelling of formulas that look the same on paper."""
    text = (
        re.sub(r"√\s?(\d+(?:\.\d+)?)|√\s?\(([^()]*)\)", r"\\sqrt{\1\2}", re.sub(r"[−–﹣－]", "-", tidy_latex(text)))
        .replace("\\\\", "\0")
        .replace("{,}", ",")
        .replace("√", r"\sqrt")
        .replace("π", r"\pi")
    )
    text = re.sub(r"\\[dtc]frac(?![A-Za-z])", r"\\frac", text)
    text = _UNIT.sub("", re.sub(rf"\s+(?={_TEXT[:2]})", "", text))
    whole = re.fullmatch(rf"{_TEXT}\{{([^{{}}]*)\}}", text)
    if whole or _words_alone(text):
        return " ".join((whole[1] if whole else text).split()).strip("(). ").replace(" ", "").casefold()
    text = re.sub(r"\^\s*\{?\s*\\circ\s*\}?|\\degree|°|\\?[$%€£]", "", text)
    text = re.sub(r"\\frac\s*(\w)\s*(\w)", r"\\frac{\1}{\2}", text)
    text = re.sub(r"\\sqrt\s*(\w)", r"\\sqrt{\1}", text)
    text = re.sub(r"\\(?:cdot|times)(?=[^A-Za-z])", "*", text)
    text = re.sub(r"(?<=\\)(?:leq|le)(?![A-Za-z])", "le", re.sub(r"(?<=\\)(?:geq|ge)(?![A-Za-z])", "ge", text))
    text = re.sub(r"(?<=[A-Za-z]) (?=[A-Za-z])", "{}", text)  # \pi r is not \pir
    text = _NO_SPACE.sub("", text)
    text = text.replace("{}", " ")
    text = re.sub(r"([_^])\{(.)\}", r"\1\2", text)
    text = re.sub(r"(?<![\d.])\.(?=\d)", "0.", text)
    if _COMMAS.fullmatch(text):
        text = text.replace(",", "")
    text = text.replace("\0", "\\\\")
    value = plain(text).strip()
    return value if number_value(value) is not None else text


LIMIT = 3.0  # seconds of processor time for one pair; one that needs more is not equal
_CLOCK = 5 * LIMIT
_START = 600.0  # seconds of wall time until the process is ready: a busy machine may take long to read sympy
_LONGEST_EQUATION = 600  # characters; a longer text is no answer
_WORKER = Path(__file__).with_name("symbolic_worker.py")


@lru_cache(maxsize=65_536)
def same_formula(parsed: str, gold: str) -> bool:
    """Whether two LaTeX formulas, without delimiters, are mathematically the same; ``False`` if that cannot be decided."""
    if max(len(parsed), len(gold)) > _LONGEST_EQUATION:
        return False
    return COMPARER.same(parsed, gold)


class _Comparer:
    """The process and the pipes to it. One pair at a time, from any thread."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None
        self.owner = 0

    def same(self, parsed: str, gold: str) -> bool:
        with self.lock:
            if self.process is None or self.owner != os.getpid() or self.process.poll() is not None:
                self.start()
            assert self.process is not None and self.process.stdin is not None
            answer = b""
            with contextlib.suppress(OSError):
                self.process.stdin.write(json.dumps([parsed, gold]).encode() + b"\n")
                self.process.stdin.flush()
                answer = self.line(_CLOCK)
            if not answer:
                self.stop()
            return answer == b"1\n"

    def start(self) -> None:
        if self.owner == os.getpid():
            self.stop()
        command = [sys.executable, "-P", str(_WORKER), str(LIMIT)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.owner = os.getpid()
        if self.line(_START) != b"ready\n":
            self.stop()
            raise CirfError(
                "the process that compares formulas does not start; see that `python -c 'import math_verify'` works, "
                "else pip install 'math-verify[antlr4_13_2]'"
            )

    def line(self, seconds: float) -> bytes:
        """The next line of the process; nothing if it ended or takes too long."""
        assert self.process is not None and self.process.stdout is not None
        there, _, _ = select.select([self.process.stdout], [], [], seconds)
        return self.process.stdout.readline() if there else b""

    def stop(self) -> None:
        if self.process is not None and self.owner == os.getpid():
            self.process.kill()
            for pipe in (self.process.stdin, self.process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            self.process.wait()
        self.process = None


COMPARER = _Comparer()
atexit.register(COMPARER.stop)
