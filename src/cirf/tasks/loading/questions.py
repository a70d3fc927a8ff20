"""Whether two questions are the same."""

import re

_SPACE = re.compile(r"\s+")
_PREFIX = re.compile(r"^(?:q|question) ?: ")
_PUNCTUATION = re.compile(r"[;:!?\"'`\u2018\u2019\u201c\u201d]|(?<!\d)[.,]|[.,](?!\d)")


def exact_key(question: str) -> str:
    """The question up to case and white space: used to distinguish and split generated problems."""
    return " ".join(question.casefold().split())


def question_key(question: str) -> str:
    """The key of a question for leaks, duplicates and rationales: case, spacing, punctuation (but for a number's) and a leading
    ``Q:`` do not count. Data sets join their parts in several ways: ``... each round, how many`` is ``... each round How
    many``."""
    folded = _PREFIX.sub("", _SPACE.sub(" ", question).strip().casefold())
    return _SPACE.sub(" ", _PUNCTUATION.sub(" ", folded)).strip()
