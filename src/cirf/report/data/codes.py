"""The functional tokens of a run: the function of each, where it is written, and the accuracy of answers with it; and every
evaluated question with what each method answered, limited in size.

Which function follows which in the training traces is counted pair by pair. The traces ``3 7`` and ``3 3 7`` have five steps, of
which three follow another one::

    {"traces": 2, "pairs": [[3, 7, 2], [3, 3, 1]], "first": [[3, 2]], "last": [[7, 2]]}
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from cirf.analysis.source import is_functional, read_codes
from cirf.codebook.functions import UNUSED, evenly, label_codes, read_labels
from cirf.errors import CirfError
from cirf.evaluation.harness import Row
from cirf.statistics import mean, wilson
from cirf.store.files import load_object
from cirf.store.jsonl import read_rows
from cirf.store.view import RunView
from cirf.tasks.steps import strip_annotations

Data = dict[str, Any]
Answered = Mapping[str, Sequence[Row]]

SEGMENTS = 40  # most different steps of a code that are kept for the explorer
LENGTH = 400  # most characters of each of them
_ALL_SEGMENTS = 8000
_FEWEST = 8


def read_functions(run: RunView, recipe: Mapping[str, Any], model: str, per_code: int, answered: Answered) -> Data | None:
    """The codebook that ``model`` was trained with (else the first there is), code by code; ``None`` without any.

    Of a code: ``label``; ``count`` of the steps of training rationales that carry it, with their ``share``, ``tasks`` and
    ``distinct`` texts; ``examples``, ``per_code`` of these; ``segments``, ``[task, text]`` of up to ``SEGMENTS`` (fewer where
    the codes are very many), at even distances; ``written``, how often it occurs in ``answered``, the answers of ``model`` by
    task; ``answers``: see `code_accuracy`. Of all: ``transitions`` of the training traces (`count_transitions`),
    ``segments`` steps in all.
    """
    functions = load_object(run.at(f"models/{model}") / "functions.json") or {}
    if not (there := run.each("codebook-*")):
        return None
    wanted = f"codebook-{functions.get('size', recipe.get('codebook', {}).get('size'))}"
    folder = run.at(wanted if wanted in there else there[0])
    stored = load_object(folder / "codebook.json") or {}
    size = int(stored.get("size", folder.name.rpartition("-")[2]))
    steps, traces = _training_steps(run, folder, size)
    found = (code for table in answered.values() for row in table for code, _ in read_codes(row["output"]))
    written, right = Counter(code for code in found if code is not None), code_accuracy(answered)
    labels = _labels(functions, {code: [text for _, text in rows] for code, rows in steps.items()})
    labels |= read_labels(run.root, {code: len(rows) for code, rows in steps.items()})
    report = stored.get("report", {})
    total, total_written = sum(map(len, steps.values())), sum(written.values())
    used = sum(1 for rows in steps.values() if rows)
    kept = max(_FEWEST, min(SEGMENTS, _ALL_SEGMENTS // max(used, 1)))
    codes: list[Data] = []
    for code, rows in steps.items():
        distinct = list(dict.fromkeys(rows))
        tasks = Counter(task for task, _ in rows)
        codes.append(
            {
                "code": code,
                "label": labels[code],
                "count": len(rows),
                "share": len(rows) / total if total else 0.0,
                "written": written[code],
                "written_share": written[code] / total_written if total_written else 0.0,
                "tasks": dict(sorted(tasks.items(), key=lambda item: (-item[1], item[0]))),
                "examples": evenly(list(dict.fromkeys(text for _, text in rows)), per_code),
                "distinct": len(distinct),
                "segments": [[task, shorten(text, LENGTH)] for task, text in evenly(distinct, kept)],
                "answers": right.get(code),
            }
        )
    return {
        "size": size,
        "used": used,
        "segments": total,
        "written": total_written,
        "transitions": count_transitions(traces),
        "codes": sorted(codes, key=lambda row: (-row["count"], row["code"])),
        "settings": stored.get("settings", {}),
        "embedder": stored.get("embedder", {}),
        "losses": report.get("losses", {}),
        "numbers": {key: value for key, value in report.items() if isinstance(value, int | float)},
    }


def code_accuracy(answered: Answered) -> dict[int, Data]:
    """How often answers that hold a code are right: ``{"questions", "answers", "right", "interval"}`` by code. ``right`` is the
    mean over the questions with such an answer, of each the share of such answers that are right; ``interval`` is Wilson's,
    counting a question once. This is not the effect of a code: hard questions need other steps."""
    found: dict[int, dict[tuple[str, str], list[bool]]] = {}
    for task, rows in answered.items():
        for row in rows:
            for code in {code for code, _ in read_codes(row["output"]) if code is not None}:
                found.setdefault(code, {}).setdefault((task, row["id"]), []).append(bool(row["correct"]))
    by_code = {}
    for code, questions in sorted(found.items()):
        shares = [mean(marks) for marks in questions.values()]
        answers = sum(map(len, questions.values()))
        interval = wilson(min(sum(shares), len(shares)), len(shares))
        by_code[code] = {"questions": len(shares), "answers": answers, "right": mean(shares), "interval": list(interval)}
    return by_code


def shorten(text: str, length: int) -> str:
    return text if len(text) <= length else text[:length].rstrip() + "…"


def _training_steps(run: RunView, folder: Path, size: int) -> tuple[dict[int, list[tuple[str, str]]], list[list[int]]]:
    """Task and text of the steps of training rationales by code, and the training traces as codes."""
    stage = run.at("segments") / "segments.jsonl"
    texts_of = {(row["problem"], row["sample"]): row["segments"] for row in rows_in(stage)}
    tasks = {row["id"]: row["task"] for row in rows_in(run.at("problems") / "train.jsonl")}
    steps: dict[int, list[tuple[str, str]]] = {code: [] for code in range(size)}
    traces = []
    for row in rows_in(folder / "codes.jsonl"):
        texts = texts_of.get((row["problem"], row["sample"]), [])
        if len(texts) != len(row["codes"]):
            raise CirfError(f"{folder / 'codes.jsonl'}: the codes of {row['problem']!r} do not match its segments; run again")
        if row["problem"] in tasks:
            traces.append(row["codes"])
            for code, text in zip(row["codes"], texts, strict=True):
                steps[code].append((tasks[row["problem"]], strip_annotations(text)))
    return steps, traces


def rows_in(path: Path) -> list[Row]:
    return read_rows(path) if path.exists() else []


def _labels(functions: Mapping[str, Any], segments: Mapping[int, Sequence[str]]) -> dict[int, str]:
    """The labels that the model's ``functions.json`` holds, or new ones if its codes differ."""
    held = {int(code): row["label"] for code, row in functions.get("codes", {}).items()}
    if held.keys() != {code for code, texts in segments.items() if texts}:
        return label_codes(segments)
    return {code: held.get(code, UNUSED) for code in segments}


def count_transitions(traces: Iterable[Sequence[int]]) -> dict[str, Any]:
    """Of traces of codes, see above; ``traces`` counts those with a step. The most frequent come first, equals by number."""
    held = [codes for codes in traces if codes]
    pairs = Counter(pair for codes in held for pair in pairwise(codes))
    ends = {name: Counter(codes[place] for codes in held) for name, place in (("first", 0), ("last", -1))}
    ranked = [[before, after, count] for (before, after), count in sorted(pairs.items(), key=_rank)]
    return {"traces": len(held), "pairs": ranked} | {
        name: [[code, count] for code, count in sorted(counts.items(), key=_rank)] for name, counts in ends.items()
    }


def _rank(item: tuple[Any, int]) -> tuple[int, Any]:
    return -item[1], item[0]


LENGTHS = (4000, 2000, 1000, 500, 250)  # limits of a text in characters; the longest with which all questions fit is used
BUDGET = 3_000_000  # characters of all questions together
STEPS = 100  # most steps shown of a functional trace; only truncated ones have more
_AROUND = 60


def read_questions(test: Mapping[str, Mapping[str, Row]], rows: Mapping[str, Answered], budget: int = BUDGET) -> Data:
    """All questions that a method of ``rows`` answered, task by task, in the order of the test problems.

    ``test`` holds the problems by task and id; for a question without one its prompt is shown. A row reads ``{"task", "id",
    "question", "choices", "gold", "rationale", "answers": {method: {...}}}``, ``rationale`` being the benchmark's own. An answer
    is the method's first run: ``correct, parsed, truncated, tokens``, and ``codes`` ([[code, result], ...]) with ``answer`` of a
    functional trace, else ``output``; ``runs`` [right, of] where it was asked more than once. ``shown`` questions ``of`` all, at
    even distances, are in ``rows``; ``length``: the longest text; ``cut``: texts that had more.
    """
    by_question: dict[tuple[str, str], dict[str, list[Row]]] = {}
    for method, tables in rows.items():
        for task, table in tables.items():
            for row in table:
                by_question.setdefault((task, row["id"]), {}).setdefault(method, []).append(row)
    places = {(task, item): index for index, (task, item) in enumerate((task, item) for task in test for item in test[task])}
    last = len(places)
    order = sorted(by_question, key=lambda where: places.get(where, last))  # those without a problem keep their order
    made = [_question(task, item, test.get(task, {}).get(item), by_question[task, item]) for task, item in order]
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
