"""Steps that compute several numbers, split so that each number has its own functional token and result::

"Shirts cost 2 * 8 = $16. Bags cost 2 * 10 = $20."  ->  "Shirts cost 2 * 8 = $16."  "Bags cost 2 * 10 = $20."
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from cirf.tasks.steps import numbers_in, worked_out
from cirf.text.normalise import normalise
from cirf.text.numerals import with_points
from cirf.text.sentences import sentences


def split_equations(steps: Sequence[tuple[str, str]], commas: bool = False) -> list[tuple[str, str]]:
    """Steps, each with and without calculator notes, cut between sentences that work out numbers not yet known.

    A sentence between two of them goes with the former if it repeats that number, else with the latter. A step that computes one
    number stays unchanged. ``commas``: they are written with decimal commas.
    """
    found: list[tuple[str, str]] = []
    for plain, noted in steps:
        groups = _groups(noted, commas)
        found += [(normalise(group), group) for group in groups] if len(groups) > 1 else [(plain, noted)]
    return found


def _groups(text: str, commas: bool) -> list[str]:
    groups: list[list[str]] = []
    waiting: list[str] = []  # sentences before the next number
    known: set[str] = set()
    last: set[Fraction] = set()
    for sentence in sentences(text):
        said = with_points(sentence) if commas else sentence
        values = worked_out(said)
        if not known.issuperset(values):
            groups.append([*waiting, sentence])
            waiting = []
            known.update(values)
            last = numbers_in(*values)
        elif groups and not waiting and numbers_in(said) & last:
            groups[-1].append(sentence)
        else:
            waiting.append(sentence)
    if groups:
        groups[-1] += waiting
    return [" ".join(group) for group in groups]
