"""Every evaluated question with what each method answered, for the trace explorer, limited in size.

What does not fit is cut or left out, and reported: ``{"of": 690, "shown": 690, "length": 1000, "cut": 12, "rows": [...]}`` says
that all 690 questions are there and 12 texts end after 1000 characters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cirf.analysis.traces import is_functional, read_codes
from cirf.codebook.naming import evenly
from cirf.evaluation.harness import Row
from cirf.tasks.steps import strip_annotations

Data = dict[str, Any]
Tables = Mapping[str, Sequence[Row]]

LENGTHS = (4000, 2000, 1000, 500, 250)
"""Limits of a text in characters; the longest with which all questions fit is used."""

BUDGET = 3_000_000
"""Characters of all questions together."""

STEPS = 100
"""Most steps shown of a functional trace; only truncated ones have more."""

_AROUND = 60


def read_questions(test: Mapping[str, Mapping[str, Row]], rows: Mapping[str, Tables], budget: int = BUDGET) -> Data:
    """All questions that a method of ``rows`` answered, task by task, in the order of the test problems.

    ``test`` holds the problems by task and id; for a question without one its prompt is shown. A row reads ``{"task", "id",
    "question", "choices", "gold", "rationale", "answers": {method: {...}}}``, ``rationale`` being the benchmark's own. An
    answer is the method's first run: ``correct, parsed, truncated, tokens``, and ``codes`` ([[code, result], ...]) with
    ``answer`` of a functional trace, else ``output``; ``runs`` [right, of] where it was asked more than once.
    ``shown`` questions ``of`` all, at even distances, are in ``rows``; ``length``: the longest text; ``cut``: texts that had
    more.
    """
    asked: dict[tuple[str, str], dict[str, list[Row]]] = {}
    for method, tables in rows.items():
        for task, table in tables.items():
            for row in table:
                asked.setdefault((task, row["id"]), {}).setdefault(method, []).append(row)
    places = {(task, item): place for place, (task, item) in enumerate((task, item) for task in test for item in test[task])}
    last = len(places)
    order = sorted(asked, key=lambda where: places.get(where, last))  # those without a problem keep their order
    made = [_question(task, item, test.get(task, {}).get(item), asked[task, item]) for task, item in order]
    lengths = [_lengths(row) for row in made]
    sizes = {limit: sum(map(sum, ([min(n, limit) + _AROUND for n in texts] for texts in lengths))) for limit in LENGTHS}
    limit = next((limit for limit in LENGTHS if sizes[limit] <= budget), LENGTHS[-1])
    kept = evenly(made, max(1, len(made) * budget // sizes[limit])) if made and sizes[limit] > budget else made
    return {"of": len(made), "shown": len(kept), "length": limit, "cut": sum(_cut(row, limit) for row in kept), "rows": kept}


def _question(task: str, item: str, problem: Row | None, answers: Mapping[str, Sequence[Row]]) -> Data:
    first = next(iter(answers.values()))[0]
    problem = problem or {"question": first.get("prompt", ""), "answer": first["gold"]}
    rationale = problem.get("rationale")
    return {
        "task": task,
        "id": item,
        "question": problem["question"],
        "choices": problem.get("choices"),
        "gold": problem["answer"],
        "rationale": strip_annotations(rationale) if rationale else None,
        "answers": {method: _answer(rows) for method, rows in answers.items()},
    }


def _answer(rows: Sequence[Row]) -> Data:
    row = min(rows, key=lambda one: one["run"])
    shown = {key: row[key] for key in ("correct", "parsed", "truncated", "tokens")}
    if is_functional(row["output"]):
        shown |= {"codes": [list(pair) for pair in read_codes(row["output"])], "answer": row["answer"]}
    else:
        shown["output"] = row["output"].strip()
    if len(rows) > 1:
        shown["runs"] = [sum(1 for one in rows if one["correct"]), len(rows)]
    return shown


def _lengths(row: Mapping[str, Any]) -> list[int]:
    """The lengths of a question's texts."""
    answers = row["answers"].values()
    traces = [sum(len(result) + 10 for _, result in answer["codes"][:STEPS]) for answer in answers if "codes" in answer]
    texts = [row["question"], row["rationale"] or "", *(row["choices"] or ())]
    return traces + [len(text) for text in (*texts, *(answer.get("output", "") for answer in answers))]


def _cut(row: Data, limit: int) -> int:
    """Cut a question's long texts in place; how many those were."""
    cut = 0
    for held, key in [(row, "question"), (row, "rationale"), *((answer, "output") for answer in row["answers"].values())]:
        text = held.get(key)
        if text is not None and len(text) > limit:
            held[key], held[f"{key}_length"] = text[:limit], len(text)
            cut += 1
    for answer in row["answers"].values():
        codes = answer.get("codes", ())
        if len(codes) > STEPS or any(len(result) > limit for _, result in codes):
            answer["codes"] = [[code, result[:limit]] for code, result in codes[:STEPS]]
            answer["codes_length"] = len(codes)
            cut += 1
    return cut
