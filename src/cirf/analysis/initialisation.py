"""The effect of how codes are found and how their tokens are initialised: accuracy by code initialiser and first embeddings.

The paper's row of random codes and random embeddings repeats the digits of its `random` representation. Both readings are shown:
random codes with random first rows, and codes of noise, the column `representation`.

Whether steps are balanced over the codes in every epoch is a separate column: rebalanced, k-means and random codes end up as
evenly used as balanced ones, so only runs with `codebook.reassign: nearest` show the effect of balance.
"""

from __future__ import annotations

from cirf.analysis import ablation
from cirf.analysis.ablation import Ablation
from cirf.analysis.analysis import Analysis, AnalysisResult
from cirf.analysis.source import Run, Source
from cirf.pictures.table import Column

_CODES, _ROWS, _REPRESENTATION = "codebook.initialiser", "vocabulary.init", "codebook.representation"
_EPOCHS, _FINAL = "codebook.reassign", "codebook.assign"
_EMBEDDING = {"codebook": "trained", "words": "words", "random": "random"}
_READINGS = ("mean_centered", "random")


def _values(run: Run) -> tuple[str, ...] | None:
    """Other representations have a separate table."""
    representation = str(run.key(_REPRESENTATION))
    if representation not in _READINGS:
        return None
    return str(run.key(_CODES)), _EMBEDDING[str(run.key(_ROWS))], representation, _assignment(run)


def _assignment(run: Run) -> str:
    """How training steps get their codes, in the epochs and at the end; runs from before this option were balanced."""
    epochs, final = (str(run.key(key) or "sinkhorn") for key in (_EPOCHS, _FINAL))
    return epochs if epochs == final else f"{epochs}, at the end {final}"


_ABLATION = Ablation(
    "initialisation",
    "Accuracy by initialiser of the codes and by first rows of their tokens, in-domain tasks.",
    {
        _CODES: Column("initialiser", "First codes"),
        _ROWS: Column("embedding", "First embeddings"),
        _REPRESENTATION: Column("representation", "Representation"),
        _EPOCHS: Column("assignment", "Assignment"),
    },
    _values,
    ("sinkhorn", "trained", "mean_centered", "sinkhorn"),
    "initialisation",
    (_FINAL,),
)


def make(source: Source) -> AnalysisResult:
    found = ablation.make(source, _ABLATION)
    note = (
        "The paper's row `random x random` has the digits of its `random` representation; it does not say which was run. Here the"
        " two are separate rows: random first codes with random first embeddings, and representation `random`."
    )
    return AnalysisResult(found.tables, found.pictures, [*found.notes, note])


ANALYSIS = Analysis(
    "initialisation",
    "First codes and first embeddings",
    "Accuracy by the codes' initialisation (balanced, k-means, random) and whether tokens start at the codes or at random rows.",
    "a sweep over `codebook.initialiser`, `codebook.reassign` and `vocabulary.init` with evaluations of a functional method",
    make,
    "Table codebook init",
)
