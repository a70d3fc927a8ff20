"""The subject of a step, as its question names it (``CirfSettings.subjects``).

A worked example. Of "A coin is heads up. mundt flips the coin. maytal does not flip the coin. Is it still heads up?" the steps
``("The coin is heads up.", "Mundt flips the coin, so it is tails up.", "Maytal does not flip it.")`` have the subjects
``("", "mundt", "maytal")``.
"""

import re
import unicodedata
from collections.abc import Sequence

_WORD = re.compile(r"[^\W\d_][\w'’-]*")
_LEAD = "and|finally|later|next|now|so|then"
_OPENING = re.compile(rf"[\W_]*(?:(?:{_LEAD})\b\W*)*+([^\W\d_][\w'’-]*)", re.I)
_LABEL = re.compile(r"\W*[^\W\d_][.):](?!\w)")  # of an option
_HEADING = re.compile(r"\A[\W_]*\w[^:.\n]{0,30}:(?=\s)")
_OWNED = re.compile(r"['’]s?\Z")

# Words that open a step and occur in questions without naming anything.
_LIST = (
    "a about after all also although altogether an and another any are as at because before both but by calculate can "
    "consider did do does during each either every few find finally first for from given had has have he her here hers his "
    "how however i if in initially into is it its last later less let many more most much my next no not now of off on once "
    "one only option or other our out over per she since so some second still than that the their them then there therefore "
    "these they third this those three through thus to total two under until up was we were what when where whether which "
    "while who whom whose why with would yes you your"
)
_COMMON = frozenset(_LIST.split())


def subjects(segments: Sequence[str], question: str) -> tuple[str, ...]:
    """One text a step: the word that it opens with, in the question's spelling, where the question has that word.

    Numbers, common words and the labels of options (``B.``) are none; a leading ``Then`` or ``So`` is passed over, and so is
    a heading such as ``Action:`` that opens with no such word; a possessive is its name. Words are compared without case,
    whichever apostrophe they have and however an accent is encoded. All are empty unless at least two steps have different
    ones, the first step's among them: what every step shares does not show the progress through a list of things.
    """
    spelled: dict[str, str] = {}
    for found in _WORD.findall(unicodedata.normalize("NFC", question)):
        word = _bare(found)
        spelled.setdefault(_folded(word), word)
    texts = ((segment, _HEADING.sub("", segment, count=1)) for segment in segments)
    made = tuple(_opening(segment, spelled) or _opening(rest, spelled) for segment, rest in texts)
    return made if len({subject for subject in made if subject}) > 1 else ("",) * len(made)


def with_next_subject(results: Sequence[str], subjects: Sequence[str]) -> tuple[str, ...]:
    """Results followed by the subject of the next step, which then comes before that step's functional token."""
    return tuple(f"{result} {after}" if after else result for result, after in zip(results, (*subjects, "")[1:], strict=True))


def _opening(text: str, spelled: dict[str, str]) -> str:
    found = None if _LABEL.match(text) else _OPENING.match(unicodedata.normalize("NFC", text))
    word = _folded(_bare(found[1])) if found else ""
    return "" if word in _COMMON else spelled.get(word, "")


def _folded(word: str) -> str:
    return word.replace("’", "'").casefold()


def _bare(word: str) -> str:
    return _OWNED.sub("", word)
