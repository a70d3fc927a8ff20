"""The effect of what is quantised: accuracy by representation of a step."""

from __future__ import annotations

from functools import partial

from cirf.analysis import ablation
from cirf.analysis.ablation import Ablation
from cirf.analysis.analysis import Analysis
from cirf.pictures.table import Column

_KEY = "codebook.representation"
_ABLATION = Ablation(
    "representation",
    "Accuracy by representation of a step, in-domain tasks.",
    {_KEY: Column("representation", "Representation")},
    lambda run: (str(run.key(_KEY)),),
    ("mean_centered",),
    "representation",
)


ANALYSIS = Analysis(
    "representation",
    "Representation of a step",
    "Accuracy with codes of noise, of bare segments, of segments minus their question, or minus their rationale's mean.",
    "a sweep over `codebook.representation` with evaluations of a functional method",
    partial(ablation.make, ablation=_ABLATION),
    "Table representation accuracy",
)
