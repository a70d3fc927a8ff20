"""Rationales in a few words (SemCoT's short ones): by a language model, or by a rule that keeps the words that matter most.

A worked example, six words of two steps::

    "48/2 = 24 clips in May.\\n48+24 = 72 clips in all."   ->   "48/2 = 24 48+24 = 72"
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cirf import recipe
from cirf.errors import CirfError
from cirf.files import RowLog
from cirf.progress import SILENT, Progress
from cirf.rationales.endpoints import ask
from cirf.rationales.importance.rules import Rules
from cirf.rationales.importance.scorer import Reasoned
from cirf.rationales.importance.shorten import shorten
from cirf.rationales.importance.words import word_spans
from cirf.rationales.requests import Answer, Request
from cirf.rationales.templates import fill, read_template
from cirf.records import Problem, Steps

TEMPLATE = ("brief", ("question", "rationale", "words"), "the shipped prompt for short rationales")


@dataclass(frozen=True, slots=True)
class Brief:
    """A rationale in a few words on one line, and who wrote it: ``llm``, ``llm, cut`` (it wrote too many) or ``rule``."""

    text: str
    by: str


def briefly(steps: Sequence[Steps], problems: Mapping[str, Problem], words: int) -> list[Brief]:
    """Every rationale by the rule: its ``words`` most important words, in their order."""
    texts = ["\n".join(row.segments) for row in steps]
    return [
        Brief(text, "rule")
        for text in _cut(
            texts, [problems[row.problem].question for row in steps], [problems[row.problem].answer for row in steps], words
        )
    ]


def briefly_by_model(
    steps: Sequence[Steps],
    problems: Mapping[str, Problem],
    words: int,
    section: recipe.ResultWriter,
    log: RowLog,
    seed: int,
    progress: Progress = SILENT,
) -> list[Brief]:
    """Every rationale by a language model, of the servers that also write results; ``log`` keeps the answers, and only what it
    lacks is asked for. Too many words are cut by the rule, which also writes where there is no answer.

    ``CirfError`` where no server is named or they have several models, or as `ask` does.
    """
    models = {endpoint.model for endpoint in section.endpoints}
    if len(models) != 1:
        raise CirfError(
            "results.writer.endpoints: "
            + (
                "empty although a model is to shorten rationales; name one server"
                if not models
                else "all must have the same model"
            )
        )
    template = read_template(None, *TEMPLATE)
    model = models.pop()
    requests = [_request(row, problems[row.problem], words, template, model, section, seed) for row in steps]
    answers, _ = ask(requests, section, log, progress, "short rationales")
    said = [_line(answers.get(request.key)) for request in requests]
    questions, golds = zip(*((problems[row.problem].question, problems[row.problem].answer) for row in steps), strict=True)
    cut = _cut(said, questions, golds, words)
    rule = briefly(steps, problems, words)
    return [
        fallback if not text else Brief(text, "llm" if text == whole else "llm, cut")
        for whole, text, fallback in zip(said, cut, rule, strict=True)
    ]


def _request(
    row: Steps, problem: Problem, words: int, template: str, model: str, section: recipe.ResultWriter, seed: int
) -> Request:
    values = {"question": problem.question, "rationale": "\n".join(row.segments), "words": str(words)}
    number = int.from_bytes(hashlib.sha256(f"{seed}/brief/{row.problem}/{row.sample}".encode()).digest()[:4], "big") >> 1
    messages = (("user", fill(template, values)),)
    return Request(model, messages, number, section.temperature, section.top_p, section.max_tokens)


def _line(answer: Answer | None) -> str:
    return "" if answer is None else " ".join(answer.text.split())


def _cut(texts: Sequence[str], questions: Sequence[str], answers: Sequence[str], most: int) -> list[str]:
    """Texts on one line, of those with more than ``most`` words the most important ones."""
    asked = [Reasoned(question, text, answer, "") for question, text, answer in zip(questions, texts, answers, strict=True)]
    made = []
    for text, words in zip(texts, Rules().score(asked), strict=True):
        kept = text if len(words) <= most else shorten(text, words, most / len(words), lambda left: len(word_spans(left))).text
        made.append(" ".join(kept.split()))
    return made
