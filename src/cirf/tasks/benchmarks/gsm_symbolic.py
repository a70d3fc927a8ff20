"""GSM-Symbolic: reasoning-gym's templates of grade-school problems with fresh names and numbers, and its worked solutions.

The templates follow GSM8K's *test* set. A model trained on this task must never be scored on GSM8K.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from cirf.records import Problem
from cirf.tasks.loading.generated import stream_seed
from cirf.tasks.parsing.answers import parse_answer
from cirf.tasks.steps import calculated
from cirf.tasks.task import Option, Task

_ROWS = 100_000  # the generator draws one template a row up front
_REQUEST = "Give the result as your final answer. Do not include units."  # the answer format is given elsewhere


@lru_cache(maxsize=8)
def _source(seed: int, difficulty: float) -> Any:
    from reasoning_gym import create_dataset

    return create_dataset("gsm_symbolic", seed=stream_seed("gsm_symbolic", seed), size=_ROWS, difficulty=difficulty)


def make(seed: int, index: int, options: Mapping[str, Any]) -> Problem | None:
    """Problem ``index`` of the stream; skipped where worked solution and answer disagree, or the solution is empty."""
    if index >= _ROWS:
        return None
    item = _source(seed, options["difficulty"])[index]
    solution, mark, final = item["metadata"]["answer_cot"].rpartition("####")
    answer = parse_answer("number", item["answer"])
    lines = [" ".join(line.split()) for line in solution.splitlines() if line.strip()]
    if answer is None or not mark or not lines or parse_answer("number", final) != answer:
        return None
    question = " ".join(item["question"].replace(_REQUEST, "").split())
    return Problem(id="", task="", question=question, answer=answer, rationale="\n".join(lines))


TASK = Task(
    name="gsm_symbolic",
    title="GSM-Symbolic (made)",
    summary="grade-school problems from templates of GSM8K's test set (never score GSM8K after training on it), made offline",
    answer="number",
    rule=calculated,
    version=7,
    licence="apache-2.0",
    make=make,
    options={"difficulty": Option(1.0, 1.0, 3.0, "Widens the ranges the numbers are drawn from.")},
)
