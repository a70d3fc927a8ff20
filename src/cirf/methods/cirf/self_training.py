"""Self-training: correct traces that a model of functional tokens sampled replace the traces that were made for it.

A model learns ``<cirf_016>48<cirf_023>72</cirf>72`` from a teacher's rationale, whose codes a codebook chose after the
fact. Asked the same training question several times it may write ``<cirf_004>48<cirf_023>72</cirf>72``, equally correct and with
codes that it could predict. A second model is trained on such traces: as many rows, each with the question's own answer. If no
sample is correct, the original trace stays.

Training the backbone again on correct samples follows STaR (Zelikman et al. 2022, arXiv 2203.14465). STaR's hints for questions
without a correct sample are not needed, because the teacher's trace is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, Literal

from cirf.errors import CirfError
from cirf.lm.vocabulary import TokenNames, parse_trace, token_names, write_trace
from cirf.methods.base import PreparationData
from cirf.methods.cirf.cirf import CirfBare, CirfFull, TraceSettings
from cirf.methods.registry import get, kind
from cirf.recipe.schema import Fraction, Positive, Recipe, key
from cirf.records import Example, Trace

Steps = tuple[tuple[int, str], ...]
"""A trace: each code with its result."""


class SelfSettings(TraceSettings):
    """Whose samples, how many, which of the right ones is kept, and how answers are steered."""

    of: str = key("cirf_full", "The method of functional tokens whose trained model is sampled.")
    samples: Positive = key(4, "Samples of every training question.")
    temperature: float = key(0.7, "Temperature of a sample.", gt=0)
    top_p: Fraction = key(0.95, "Top-p of a sample.")
    keep: Literal["likely", "short"] = key(
        "likely",
        "Which of a question's right traces is kept: the one written most often, or the one of the fewest tokens with its "
        "answer; of equal ones the first. Where a question has several rationales the next ones follow.",
    )


class CirfSelf(CirfFull):
    """Trained on correct traces of a model of the same kind."""

    name = "cirf_self"
    summary = "functional tokens, trained on correct traces sampled from an earlier model (self-training)"
    Settings = SelfSettings

    def check(self, recipe: Recipe) -> None:
        """``CirfError`` for samples of a method whose traces are other than those that rows without a right sample keep."""
        of = self.settings.of
        made = kind(of, recipe)[0]
        given = recipe.variants[of].settings if of in recipe.variants else {}
        whole = issubclass(made, CirfFull) and not issubclass(made, CirfBare) and not made.pruning
        if not whole or given.get("codes", "learned") != "learned" or given.get("subjects", False):
            advice = "let `of` name a method that does, such as cirf_full"
            raise CirfError(f"{self.name}: {of} does not write all results, and nothing else, after the learned codes; {advice}")

    def retrace(self, traces: Sequence[Trace]) -> list[Trace]:
        """The traces unchanged: rows without a right sample keep them."""
        return list(traces)

    def needs(self) -> tuple[str, ...]:
        return (self.settings.of,)

    def prepared_by(self, recipe: Recipe) -> dict[str, Any]:
        return {
            "sampled": get(self.settings.of, recipe).identity,
            "evaluate": recipe.evaluate.model_dump(include={"batch_size", *self.caps}),
            "backbone": recipe.backbone.model_dump(include={"attn_implementation", "empty_system"}),
        }

    def prepare(self, material: PreparationData) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """For every rationale the codes and results of the trace to learn, ``null`` where no sample is right, and how many
        samples were ``right``. Held-out questions get traces in the same way: a validation loss is one of such traces."""
        settings = self.settings
        answers = material.answers(settings.of, settings.samples, settings.temperature, settings.top_p)
        names = token_names(material.recipe.codebook.codes, material.recipe.vocabulary.delimiters)
        right = {problem: ranked(rows, names, settings.keep) for problem, rows in answers.items()}
        rows: list[dict[str, Any]] = []
        dealt: Counter[str] = Counter()
        for steps in material.steps:
            found = right[steps.problem]
            trace = found[dealt[steps.problem] % len(found)] if found else None
            dealt[steps.problem] += 1
            codes, results = (None, None) if trace is None else ([code for code, _ in trace], [result for _, result in trace])
            count = sum(row["correct"] for row in answers[steps.problem])
            row = {"problem": steps.problem, "sample": steps.sample, "codes": codes, "results": results, "right": count}
            rows.append(row)
        every = [row for some in answers.values() for row in some]
        details = {
            "of": settings.of,
            "samples": len(every),
            "right": round(fmean(row["correct"] for row in every), 4),
            "own": round(fmean(row["codes"] is not None for row in rows), 4),
            "different": round(fmean(map(len, right.values())), 4),
        }
        drawn = f"{details['right']:.1%} of {len(every)} samples are right"
        return rows, details | {"note": f"{details['own']:.1%} of the rows are traces of {settings.of}'s model; {drawn}"}

    def target(self, example: Example) -> str:
        """The trace that was kept, and the question's answer; the first one where none was."""
        made = example.prepared or {}
        if made.get("codes") is None:
            return super().target(example)
        trace = replace(example.trace, codes=tuple(made["codes"]), results=tuple(made["results"]))
        return super().target(replace(example, trace=trace))


def ranked(rows: Sequence[Mapping[str, Any]], names: TokenNames, keep: Literal["likely", "short"]) -> list[Steps]:
    """The different traces of a question's answers that are right, not truncated and well-formed (closed, and nothing
    but functional tokens of those that there are, each with its result), the one to keep first: by how often each was
    written, or by the tokens of its answer; of equal ones the one that was written first."""
    found = [(steps, row["tokens"]) for row in rows if (steps := _right(row, names)) is not None]
    if keep == "short":
        return list(dict.fromkeys(steps for steps, _ in sorted(found, key=lambda pair: pair[1])))
    return [steps for steps, _ in Counter(steps for steps, _ in found).most_common()]


def _right(row: Mapping[str, Any], names: TokenNames) -> Steps | None:
    steps = parse_trace(row["trace"])
    if not row["correct"] or row["truncated"] or not row.get("well_formed", True) or not steps:
        return None
    kept = tuple((code, result) for code, result in steps if code is not None and code < len(names.codes))
    written = Trace("", 0, tuple(code for code, _ in kept), tuple(result for _, result in kept), "")
    return kept if write_trace(written, names) == names.start + row["trace"] + names.end else None
