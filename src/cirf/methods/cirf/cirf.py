"""CIRF: a functional token for every step, with the results of all, some or none of them, then the bare answer.

A target reads ``<cirf_016>48<cirf_023>72</cirf>72`` (paper 3.3, eq. 13-14); with its first result pruned (3.4)
``<cirf_016><cirf_023>72</cirf>72``. The prompt ends with the opening delimiter ``<cirf>`` (``vocabulary.opening``).

Also traces whose functional tokens encode something else, or nothing: controls for the effect of the codes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from cirf.compression.search import Selector
from cirf.errors import CirfError
from cirf.lm.prompt import stop_ids
from cirf.lm.vocabulary import is_closed, read_trace, token_names, write_trace
from cirf.methods.base import Method, at_head_of_answer
from cirf.methods.prose.cot import CalculatorSettings, calculates, calculating
from cirf.recipe.schema import Evaluate, Recipe, Section, Whole, key, with_defaults
from cirf.records import Example, Trace
from cirf.tasks.task import Task
from cirf.text.subjects import subjects, with_next_subject

if TYPE_CHECKING:
    from cirf.lm.decoding.generate import Steer
    from cirf.lm.decoding.trace_grammar import Steering


Codes = Literal["learned", "shuffled", "single", "ordinal"]


def recoded(traces: Sequence[Trace], codes: Codes, size: int, seed: int) -> list[Trace]:
    """The traces with ``codes`` in place of the ``size`` learned ones; results and lengths are unchanged.

    ``shuffled`` permutes the codes of all steps by the seed, so that each is used as often as before;
    ``single`` is code 0 everywhere; ``ordinal`` is 0, 1, 2, ... along a trace, the last code for all steps beyond it.
    """
    match codes:
        case "learned":
            return list(traces)
        case "single":
            return [replace(trace, codes=(0,) * len(trace.codes)) for trace in traces]
        case "ordinal":
            return [replace(trace, codes=tuple(min(index, size - 1) for index in range(len(trace.codes)))) for trace in traces]
    every = [code for trace in traces for code in trace.codes]
    random.Random(f"codes {seed}").shuffle(every)
    dealt = iter(every)
    return [replace(trace, codes=tuple(next(dealt) for _ in trace.codes)) for trace in traces]


class FormSettings(Section):
    """How answers are constrained to the form of traces; it needs no training (`cirf.lm.decoding.trace_grammar`)."""

    grammar: bool = key(
        False,
        "Constrain answers to the form of traces: one span of functional tokens and results, then the answer. Any other setting "
        "here implies it.",
    )
    budget: Whole | None = key(
        None,
        "Most functional tokens of an answer; where the model would write one more, the trace is closed. Null: no limit.",
        unit="tokens",
    )
    results: bool = key(True, "Whether results are written between functional tokens.")
    result_tokens: Whole | None = key(None, "Most tokens of one result; null: no limit.", unit="tokens")
    result_cost: float = key(
        0.0, "Penalty on starting a result, between all results (0) and none.", unit="nats", ge=0, allow_inf_nan=False
    )
    at_most: dict[Whole, Whole] = key(
        {}, "Most times that single functional tokens are written in an answer, by their codes; 0 forbids one: {7: 0, 3: 2}."
    )

    def steering(self) -> Steering:
        """The steering; the grammar always applies."""
        from cirf.lm.decoding.trace_grammar import Steering

        limits = self.model_dump(include=set(FormSettings.model_fields) - {"grammar", "at_most"})
        return Steering(**limits, at_most=tuple(sorted(self.at_most.items())))


class TraceSettings(CalculatorSettings, FormSettings):
    """How answers are steered: their form, and a calculator."""


class CirfSettings(TraceSettings):
    """The form of a step in a trace, and how answers are steered."""

    codes: Codes = key(
        "learned",
        "The functional token of a step. learned: its code. The others are controls that separate the effect of the codes "
        "from that of the tokens: shuffled: the code of a random step; single: the same for all (results alone, "
        "K = 1); ordinal: the step's place in its trace.",
    )
    start: Literal["backbone", "sft_cot"] = key(
        "backbone",
        "The start of fine-tuning. sft_cot: the model of sft_cot, trained to write the same rationales in words; "
        "it costs both trainings.",
    )
    subjects: bool = key(
        False,
        "Write a step's subject before its functional token, except for the first step, if it is a word of the "
        "question: `heads ann<cirf_010>tails`. Lists longer than in training are then completed more often.",
    )


def formed(settings: Section) -> bool:
    """Whether settings, also a user's own, constrain answers to the form of traces."""
    known = FormSettings.model_fields
    return any(getattr(settings, name, field.default) != field.default for name, field in known.items())


class CirfFull(Method):
    """Functional tokens with all their results."""

    name = "cirf_full"
    summary = "functional tokens with the result of every step, then the answer (CIRF Full)"
    trained = True
    functional = True
    caps = ("max_trace_tokens",)
    Settings: ClassVar[type[TraceSettings]] = CirfSettings
    answering = frozenset(TraceSettings.model_fields)
    quiet = frozenset({"at_most", "codes", "start", "subjects", *CalculatorSettings.model_fields})

    def __init__(self, recipe: Recipe, settings: Any = None) -> None:
        super().__init__(recipe, settings)
        self._names = token_names(recipe.codebook.codes, recipe.vocabulary.delimiters)
        self._opened = recipe.vocabulary.opening == "prompt"
        if getattr(self.settings, "start", "backbone") != "backbone":
            self.start = self.settings.start
        self.steered = formed(self.settings) or calculates(self.settings)

    def check(self, recipe: Recipe) -> None:
        """``CirfError`` for a conflicting start, for subjects in traces that pruning reads, and for a calculator without
        results."""
        if calculates(self.settings) and (isinstance(self, CirfBare) or not getattr(self.settings, "results", True)):
            raise CirfError(f"variants.{self.name}.settings.calculator: it writes no results to compute; remove it")
        if self.name == CirfFull.name and getattr(self.settings, "subjects", False):
            raise CirfError(f"variants.{self.name}.settings.subjects: pruning uses its traces; give the variant another name")
        if self.start is not None and self.name == CirfFull.name:
            raise CirfError(f"variants.{self.name}.settings.start: other methods start from it; give the variant another name")

    def retrace(self, traces: Sequence[Trace]) -> list[Trace]:
        return recoded(traces, self.settings.codes, len(self._names.codes), self._seed)

    def target(self, example: Example) -> str:
        trace = example.trace
        if getattr(self.settings, "subjects", False):
            named = subjects(example.segments, example.problem.question)
            trace = replace(trace, results=with_next_subject(trace.results, named))
        written = write_trace(trace, self._names)
        return written.removeprefix(self._names.start) if self._opened else written

    def settle(self, tokenizer: Any, training: bool) -> None:
        if self._opened:
            tokenizer.chat_template = at_head_of_answer(tokenizer.chat_template, self._names.start)

    def well_formed(self, output: str) -> bool | None:
        return is_closed(output, self._names)

    def set_aside(self, output: str) -> tuple[str, str]:
        """As of any method, unless ``<think>`` is the delimiter of its traces."""
        return ("", output) if self._names.start == "<think>" else super().set_aside(output)

    def read(self, output: str) -> tuple[str, str]:
        return read_trace(output, self._names)

    def cap(self, task: Task, section: Evaluate) -> int:
        return section.max_trace_tokens + task.cap

    def steer(self, model: Any, tokenizer: Any) -> Steer:
        counted = calculating(tokenizer) if calculates(self.settings) else tuple
        if not formed(self.settings):
            return counted
        from cirf.lm.decoding.trace_grammar import SteeringProcessor

        how, stops = self.settings.steering(), stop_ids(model, tokenizer)
        return lambda: (SteeringProcessor(how, self._names, tokenizer, stops), *counted())

    @property
    def _unsaid(self) -> set[str]:
        """Also those of the form, if it is not used."""
        return super()._unsaid | (set() if formed(self.settings) else set(FormSettings.model_fields))

    @property
    def asked_by(self) -> dict[str, Any]:
        """As of any method; settings of the form are reported at their defaults, too."""
        keys = set(FormSettings.model_fields) - super()._unsaid
        form: dict[str, Any] = self.settings.model_dump(mode="json", include=keys)
        return form | super().asked_by


class _Greedy(CirfFull):
    """Without the results that greedy pruning takes out."""

    pruning: Selector | None = "greedy"


class CirfZero(_Greedy):
    """Without the results whose removal costs the answer nothing."""

    name = "cirf_zero"
    summary = "functional tokens without the results that the answer's likelihood does not need (γ = 0)"


class CirfFast(_Greedy):
    """Without results whose removal costs the answer little (CIRF Fast)."""

    name = "cirf_fast"
    summary = "functional tokens without results that the answer needs little (CIRF Fast, γ = 0.1)"


class CirfFaster(_Greedy):
    """Without results whose removal costs the answer more, but not much (CIRF Faster)."""

    name = "cirf_faster"
    summary = "functional tokens without results that the answer needs somewhat (CIRF Faster, γ = 0.2)"


class CirfLean(CirfFull):
    """Without results that are not worth their tokens, measured by the loss of the whole trace."""

    name = "cirf_lean"
    summary = "functional tokens without results that are not worth their tokens, by the loss of the whole trace"
    pruning: Selector | None = "joint"


class CirfBare(CirfFull):
    """Functional tokens alone."""

    name = "cirf_bare"
    summary = "functional tokens without any result"

    def target(self, example: Example) -> str:
        trace = example.trace
        return super().target(replace(example, trace=replace(trace, results=("",) * len(trace.codes))))


class CirfSubjects(CirfFull):
    """The subject of a step before its functional token."""

    name = "cirf_subjects"
    summary = "functional tokens with results, each after the subject of the step"
    Settings = with_defaults(CirfSettings, subjects=True)


class CirfAfterCot(CirfFull):
    """Functional tokens, learned by a model that has learned the rationales in words."""

    name = "cirf_after_cot"
    summary = "cirf_full, fine-tuned from the model of sft_cot"
    Settings = with_defaults(CirfSettings, start="sft_cot")


class CirfSubjectsAfterCot(CirfFull):
    """Both: subjects, learned by a model that has learned the rationales in words."""

    name = "cirf_subjects_after_cot"
    summary = "cirf_subjects, fine-tuned from the model of sft_cot"
    Settings = with_defaults(CirfSettings, start="sft_cot", subjects=True)
