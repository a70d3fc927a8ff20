"""Limits of functional tokens as the command line takes them: ``--forbid 7`` and ``--at-most 3=1``, and by function ``--forbid
check`` and ``--at-most check=2``: the tokens whose label has that word, all of them together at most twice."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cirf.errors import CirfError
from cirf.lm.decoding.trace_grammar import Steering, limited
from cirf.progress import printable

_CODE = re.compile(r"<?(?:cirf_)?(\d{1,6})>?")
_MOST_NAMED = 40  # labels


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """The most times of single ``codes``, and of the tokens whose labels have a word, together (``words``)."""

    codes: Mapping[int, int]
    words: tuple[tuple[str, int], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.codes or self.words)

    def steering(self, functions: Mapping[str, Any]) -> Steering:
        """The limits with the codes that a model's labels give for the words, each of which is printed to standard error with its
        codes. ``CirfError`` where no label has a word."""
        how = Steering(at_most=tuple(sorted(self.codes.items())))
        for word, most in self.words:
            labels = labelled(word, functions)
            listed = ", ".join(f"<cirf_{code:03d}> {label}" for code, label in labels.items())
            times = "never" if not most else f"{most} at most{', together' * (len(labels) > 1)}"
            print(printable(f"{word}: {times}: {listed}"), file=sys.stderr)
            how = limited(how, dict.fromkeys(labels, 0)) if not most else limited(how, {}, [(tuple(labels), most)])
        return how


def labelled(word: str, functions: Mapping[str, Any]) -> dict[int, str]:
    """The codes whose label has a word, or several one after another, and their labels; ``check`` is in *checks the total* and
    not in *checkers*. ``CirfError`` names the labels if there is none."""
    labels = {int(code): str(row["label"]) for code, row in functions.get("codes", {}).items()}
    pattern = re.compile(rf"(?<!\w)(?:{'|'.join(_forms(word))})(?!\w)", re.I)
    if found := {code: label for code, label in labels.items() if pattern.search(label)}:
        return found
    if not labels:
        raise CirfError(f"{word}: the functional tokens of this model have no labels; name codes, such as 7")
    there = sorted({*labels.values()})
    more = ", ... (`cirf codes` lists all)" if len(there) > _MOST_NAMED else ""
    raise CirfError(f"no functional token has {word!r} in its label; labels are {', '.join(there[:_MOST_NAMED])}{more}")


def _forms(word: str) -> list[str]:
    """Patterns of a word and of the forms that a verb has in labels: ``add``, ``adds``, ``added``, ``adding``."""
    whole, stem = re.escape(word), re.escape(word[:-1])
    more = {"e": [f"{whole}[sd]", f"{stem}ing"], "y": [f"{stem}ie[sd]", f"{whole}ing", f"{whole}s"]}
    return [whole, *more.get(word[-1].lower(), [f"{whole}(?:e?s|{re.escape(word[-1])}?(?:ed|ing))"])]


def limits_of(forbidden: Sequence[str], rationed: Sequence[str]) -> TokenLimits:
    """The limits of ``--forbid CODE`` and ``--at-most CODE=N``. A code is ``7``, ``cirf_007`` or ``<cirf_007>``; anything else
    with a letter is a word of a label. ``CirfError`` for what is neither, and for what is named twice."""
    codes: dict[int, int] = {}
    words: dict[str, int] = {}
    for option, text in [*(("--forbid", f"{one}=0") for one in forbidden), *(("--at-most", one) for one in rationed)]:
        read = re.fullmatch(r"([^=]+)=\s*(\d{1,6})", text.strip())
        name = " ".join(read[1].split()) if read else ""
        code = _CODE.fullmatch(name)
        if read is None or not (code or re.fullmatch(r"[^\W\d][\w' -]*", name)):
            example = "a code, such as 7, or a word of labels" if option == "--forbid" else "CODE=N or WORD=N, such as 3=2"
            raise CirfError(f"{option} {text.removesuffix('=0') if option == '--forbid' else text}: expected {example}")
        if (int(code[1]) in codes) if code else (name in words):
            raise CirfError(f"{option}: {f'code {int(code[1])}' if code else name} is named twice; name it once")
        if code:
            codes[int(code[1])] = int(read[2])
        else:
            words[name] = int(read[2])
    return TokenLimits(codes, tuple(words.items()))
