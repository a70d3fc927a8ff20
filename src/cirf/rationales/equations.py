"""Steps that work out several numbers, parted so that each has a functional token and a result of its own::

"Shirts cost 2 * 8 = $16. Bags cost 2 * 10 = $20."  ->  "Shirts cost 2 * 8 = $16."  "Bags cost 2 * 10 = $20."
"""

from __future__ import annotations

from collections.abc import Sequence

from cirf.rationales.normalise import normalise
from cirf.rationales.sentences import sentences
from cirf.tasks.steps import worked_out


def split_equations(steps: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Steps, each with and without calculator notes, cut after every sentence that works out a number not yet known.

    What follows the last such sentence of a step stays with it. A step that works out one number stays as it is.
    """
    found: list[tuple[str, str]] = []
    for plain, noted in steps:
        groups = _groups(noted)
        found += [(normalise(group), group) for group in groups] if len(groups) > 1 else [(plain, noted)]
    return found


def _groups(text: str) -> list[str]:
    groups: list[list[str]] = [[]]
    known: set[str] = set()
    for sentence in sentences(text):
        values = set(worked_out(sentence)) - known
        if values and any(set(worked_out(before)) for before in groups[-1]):
            groups.append([])
        groups[-1].append(sentence)
        known |= values
    return [" ".join(group) for group in groups]
