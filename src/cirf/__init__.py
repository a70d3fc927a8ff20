"""Turn chain-of-thought rationales into reusable functional tokens, and a model that reasons in them.

The Python API, in the order of the method (``examples/pipeline.py`` is all of it in one page)::

    steps = cirf.cut_rationales(rows)
    vectors = cirf.embed_steps(steps)
    codebook, codes = cirf.fit_codebook(vectors, width=model.config.hidden_size)
    traces = cirf.write_traces(rows, steps, codes)
    cirf.extend_model(model, tokenizer, codebook, traces)
    model, history = cirf.train(model, tokenizer, traces)
    answers = cirf.generate(model, tokenizer, ["What is 3 + 4?"])
    score = cirf.evaluate(model, tokenizer, test_rows)

A name is imported when it is first used, so ``import cirf`` takes no time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.2.0"

__all__ = [
    "Answer",
    "CirfError",
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

if TYPE_CHECKING:
    from cirf.api.models import Answer, evaluate, extend_model, generate, load, save, train
    from cirf.api.traces import TraceRow, cut_rationales, embed_steps, fit_codebook, label_codes, write_traces
    from cirf.codebook.codebook import Codebook
    from cirf.errors import CirfError
else:

    def __getattr__(name):
        """A name of the API, imported now and kept."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        modules = map(importlib.import_module, ("cirf.errors", "cirf.api.traces", "cirf.api.models"))
        found = next(getattr(module, name) for module in modules if hasattr(module, name))
        globals()[name] = found
        return found

    def __dir__():
        return sorted({*globals(), *__all__})
