"""Numbers with what they count: ``24`` in ``48 / 2 = 24 clips in May`` is ``24 clips``, ``40`` in ``5 * 8 = $40`` is ``$40``."""

from __future__ import annotations

import re

from cirf.tasks.numerals import find_numbers, number_text, plain
from cirf.tasks.steps import strip_annotations

_NOUN = re.compile(
    r"""\s?(?!(?:a|an|the|this|that|these|those|there|i|he|she|it|we|they|his|her|its|their|him|them|in|on|at|of|per|for|from|to
    |by|with|as|into|over|under|about|up|down|off|out|back|before|after|until|since|while|when|where|which|who|because|and|or
    |but|if|so|than|then|is|are|was|were|be|will|would|can|could|has|have|had|do|does|did|not|also|only|just|both|all|each
    |every|altogether|together|total|left|remaining|times|plus|minus|divided)(?![a-z'-]))([a-z][a-z'-]*)""",
    re.VERBOSE,
)
_COMPARES = frozenset(("more", "fewer", "less"))


def with_unit(number: str, step: str) -> str:
    """A number as results have it, with the noun after its last place in the step, or a dollar sign; alone without either."""
    text = plain(strip_annotations(step))
    for place in reversed([found for found in find_numbers(text) if number_text(found.value) == number]):
        words: list[str] = []
        at = place.end
        while match := _NOUN.match(text, at):
            words.append(match[1])
            at = match.end()
            if match[1] not in _COMPARES:
                break
        if words:
            return " ".join([number, *words])
        if "$" in text[place.start : place.end]:
            return f"${number}"
    return number
