"""Which words of a rationale matter, and the rationale with the others left out (TokenSkip, arXiv 2502.12067)."""

from cirf.methods.token_skip.registry import SCORERS, Kind, Setting, get, names
from cirf.methods.token_skip.scorer import Reasoned, Scorer
from cirf.methods.token_skip.shorten import Force, Shortened, shorten
from cirf.methods.token_skip.words import Word, word_spans

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
