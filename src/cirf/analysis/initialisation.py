"""Does it matter how codes are found and where their tokens begin: accuracy by code initialiser and first embeddings.

The paper's row of random codes and random embeddings repeats the digits of its `random` representation. Both readings are told:
random codes with random first rows, and codes of noise, the column `representation`.
"""

from __future__ import annotations

from cirf.analysis import ablation
from cirf.analysis.ablation import Ablation
from cirf.analysis.analysis import Analysis, Found
from cirf.analysis.source import Run, Source
from cirf.analysis.table import Column

_CODES, _ROWS, _REPRESENTATION = "codebook.initialiser", "vocabulary.init", "codebook.representation"
_EMBEDDING = {"codebook": "trained", "words": "words", "random": "random"}
_READINGS = ("mean_centered", "random")


def _values(run: Run) -> tuple[str, ...] | None:
    """Other representations have a table of their own."""
    representation = str(run.key(_REPRESENTATION))
    if representation not in _READINGS:
        return None
    return str(run.key(_CODES)), _EMBEDDING[str(run.key(_ROWS))], representation


_ABLATION = Ablation(
    "initialisation",
    "Accuracy by initialiser of the codes and by first rows of their tokens, in-domain tasks.",
    {
        _CODES: Column("initialiser", "First codes"),
        _ROWS: Column("embedding", "First embeddings"),
        _REPRESENTATION: Column("representation", "Representation"),
    },
    _values,
    ("sinkhorn", "trained", "mean_centered"),
    "initialisation",
)


def make(source: Source) -> Found:
    """See `ablation.make`."""
    found = ablation.make(source, _ABLATION)
    note = (
        "The paper's row `random x random` has the digits of its `random` representation; which was run it does not say. Here the"
        " two are rows of their own: random first codes with random first embeddings, and representation `random`."
    )
    return Found(found.tables, found.pictures, [*found.notes, note])


ANALYSIS = Analysis(
    "initialisation",
    "First codes and first embeddings",
    "Accuracy by how the codes were begun (balanced, k-means, random) and whether tokens begin at the codes or at random rows.",
    "a sweep over `codebook.initialiser` and `vocabulary.init` with evaluations of a functional method",
    make,
    "Table codebook init",
)
