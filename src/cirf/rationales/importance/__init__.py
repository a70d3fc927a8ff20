"""Which words of a rationale matter, and the rationale with the others left out (TokenSkip, arXiv 2502.12067)."""

from cirf.rationales.importance.registry import SCORERS, Kind, Setting, get, names
from cirf.rationales.importance.scorer import Reasoned, Scorer
from cirf.rationales.importance.shorten import Force, Shortened, shorten
from cirf.rationales.importance.words import Word, word_spans

__all__ = [
    "SCORERS",
    "Force",
    "Kind",
    "Reasoned",
    "Scorer",
    "Setting",
    "Shortened",
    "Word",
    "get",
    "names",
    "shorten",
    "word_spans",
]
