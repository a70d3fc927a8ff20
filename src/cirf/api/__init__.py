"""The method as Python functions; ``import cirf`` has them by the same names."""

from cirf.api.models import Answer, evaluate, extend_model, generate, load, save, train
from cirf.api.traces import TraceRow, cut_rationales, embed_steps, fit_codebook, label_codes, write_traces
from cirf.codebook.codebook import Codebook

__all__ = [
    "Answer",
    "Codebook",
    "TraceRow",
    "cut_rationales",
    "embed_steps",
    "evaluate",
    "extend_model",
    "fit_codebook",
    "generate",
    "label_codes",
    "load",
    "save",
    "train",
    "write_traces",
]
