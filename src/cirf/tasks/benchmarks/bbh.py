"""BIG-Bench Hard: 27 tasks that language models found hard (Suzgun et al., 2023). For evaluation only, without examples.

The form of an answer depends on the task, the subset here: most have options, which follow the question; the others are
named in ``KINDS``.
"""

import re
from collections.abc import Mapping
from typing import Any

from cirf.records import AnswerKind, Problem
from cirf.tasks.parsing.answers import normalise_text, parse_answer
from cirf.tasks.steps import produced
from cirf.tasks.task import HubPart, HubSource, LeftOutError, Task

KINDS: Mapping[str, AnswerKind] = {
    "boolean_expressions": "truth",
    "causal_judgement": "yesno",
    "dyck_languages": "brackets",
    "formal_fallacies": "validity",
    "multistep_arithmetic_two": "number",
    "navigate": "yesno",
    "object_counting": "number",
    "sports_understanding": "yesno",
    "web_of_lies": "yesno",
    "word_sorting": "list",
}
"""The kinds of answers that are not options."""

SUBSETS = (
    *KINDS,
    "date_understanding", "disambiguation_qa", "geometric_shapes", "hyperbaton", "logical_deduction_five_objects",
    "logical_deduction_seven_objects", "logical_deduction_three_objects", "movie_recommendation", "penguins_in_a_table",
    "reasoning_about_colored_objects", "ruin_names", "salient_translation_error_detection", "snarks", "temporal_sequences",
    "tracking_shuffled_objects_five_objects", "tracking_shuffled_objects_seven_objects",
    "tracking_shuffled_objects_three_objects",
)  # fmt: skip

_OPTION = re.compile(r"\(([A-Z])\)\s*(.*)")


def read_row(row: Mapping[str, Any]) -> Problem:
    """``input`` and ``target``; ``config`` is the subset. Lettered options leave the question and become ``choices``."""
    subset, question, target = row["config"], row["input"].strip(), row["target"].strip()
    if subset not in SUBSETS:
        raise ValueError(f"config: {subset!r} is not a task of BBH")
    kind = KINDS.get(subset, "option")
    choices = None
    if kind == "option":
        question, choices = split_options(question)
        named = [chr(65 + index) for index, choice in enumerate(choices) if normalise_text(choice) == normalise_text(target)]
        is_letter = len(target.strip("()")) == 1
        answer = parse_answer("option", target, choices) if is_letter else named[0] if len(named) == 1 else None
        if answer is None:
            raise LeftOutError("the published answer is none of its options")
    else:
        answer = parse_answer(kind, target)
    if answer is None:
        raise ValueError(f"target: {target!r} cannot be read as {kind}")
    return Problem(id="", task="", question=question, answer=answer, choices=choices, subset=subset)


def split_options(text: str) -> tuple[str, tuple[str, ...]]:
    """The question and the texts of its options, ``(A) ...`` in order, a line each below ``Options:``; else ``ValueError``."""
    question, mark, below = text.rpartition("Options:")
    found = [_OPTION.fullmatch(line.strip()) for line in below.strip().splitlines()]
    choices = tuple(match[2].strip() for match in found if match is not None)
    letters = "".join(match[1] for match in found if match is not None)
    if not mark or len(choices) < max(2, len(found)) or letters != "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[: len(letters)]:
        raise ValueError("input: no list of options from (A) on below `Options:`")
    return question.strip(), choices


TASK = Task(
    name="bbh",
    title="BIG-Bench Hard",
    summary="27 tasks of many kinds, scored one by one too; evaluation only",
    answer="option",
    rule=produced,
    version=9,
    row=read_row,
    licence="mit",
    hub=HubSource("lukaemon/bbh", splits={"test": tuple(HubPart("test", config=name) for name in sorted(SUBSETS))}),
    cap=128,  # word_sorting asks for up to 20 rare words, 170 characters: about 80 tokens, more where each has a line
    kinds=KINDS,
)
