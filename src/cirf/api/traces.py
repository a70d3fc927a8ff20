"""From rationales to traces: steps, vectors, codes, results (paper 3.2 and 3.3).

Also the checks of the API's inputs, and the recipe's method that is equivalent to a script's model.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar

import numpy as np

from cirf.assets import resolve
from cirf.codebook import codebook as codebooks
from cirf.codebook import functions
from cirf.codebook.centering import represent
from cirf.codebook.codebook import Codebook
from cirf.codebook.embedding import embed, wordings
from cirf.errors import CirfError
from cirf.lm.backbone import pick_device
from cirf.methods import get
from cirf.methods.base import Method
from cirf.progress import for_terminal
from cirf.rationales.results import shortened, write_results
from cirf.rationales.segmentation import cut
from cirf.recipe import schema
from cirf.recipe.load import validated
from cirf.recipe.schema import Codebook as CodebookSection
from cirf.recipe.schema import Problems, Recipe, Section, TaskEntry, Variant, Vocabulary
from cirf.recipe.yaml import Document
from cirf.records import AnswerKind, Example, Problem, Rationale, Steps, Trace
from cirf.tasks import get as task_of
from cirf.tasks.own_rows import rows_in_memory
from cirf.tasks.task import Task
from cirf.text.normalise import normalise

Row = Mapping[str, Any] | Problem
"""A question: a mapping with ``question``, ``answer`` and where needed ``rationale``, ``choices`` and ``id``, or a record."""

_Item = TypeVar("_Item")
_Chosen = TypeVar("_Chosen", bound=Section)


def listed(items: Iterable[_Item], where: str, what: str) -> list[_Item]:
    """The items as a list; ``CirfError`` for a single text or mapping, and for none."""
    if isinstance(items, (str, Mapping, Problem)):
        raise CirfError(f"{where}: {what} must be a list; put a single one into brackets")
    found = list(items)
    if not found:
        raise CirfError(f"{where}: {what} is empty; give at least one")
    return found


def same_length(where: str, **lists: list[Any]) -> None:
    """``CirfError`` unless all lists are of one length."""
    if len({len(items) for items in lists.values()}) > 1:
        counts = ", ".join(f"{len(items)} {name}" for name, items in lists.items())
        raise CirfError(f"{where}: found {counts}; give one entry a row in each")


def field(row: object, name: str, where: str, number: int) -> Any:
    """A field of a row; ``CirfError`` if the row is none, ``None`` if it lacks the field."""
    if isinstance(row, Problem):
        return getattr(row, name)
    if isinstance(row, Mapping):
        return row.get(name)
    raise CirfError(f"{where}, row {number}: expected a dict with question and answer, found {type(row).__name__}")


def problems_of(rows: Iterable[Row], where: str, answer: AnswerKind | None = None) -> tuple[dict[str, Task], list[Problem]]:
    """The tasks of rows by name, and the rows as records, in order. Records keep the task that they name. ``answer`` is the kind
    of answers of mappings; ``None``: detected from the rows. ``CirfError`` names the first row that does not fit."""
    every = listed(rows, where, "rows")
    records = [row for row in every if isinstance(row, Problem)]
    if len(records) == len(every):
        return {name: task_of(name) for name in dict.fromkeys(row.task for row in records)}, records
    choices = [field(row, "choices", where, number) for number, row in enumerate(every)]
    if records:
        raise CirfError(f"{where}: rows mixes dicts and Problem records; give rows of one kind")
    plain = [{**row, "choices": list(own)} if own else row for row, own in zip(every, choices, strict=True)]  # type: ignore[dict-item]
    task, problems = rows_in_memory(plain, where, answer)  # type: ignore[arg-type]
    return {task.name: task}, problems


def settings(schema: type[_Chosen], given: Mapping[str, Any], where: str, without: Collection[str] = ()) -> _Chosen:
    """A section of a recipe from keyword arguments; ``CirfError`` for unknown keys, wrong values and the keys ``without``."""
    for key in given:
        if key in without:
            raise CirfError(f"{where}: {key} only has a meaning in recipes; leave it out")
    try:
        return validated(schema, dict(given), where, Document(dict(given)))
    except TypeError as error:  # values that JSON cannot represent
        raise CirfError(f"{where}: {error}") from None


_NAME = "script"


def functional_method(
    settings: Mapping[str, Any], size: int, delimiters: Literal["cirf", "think"] = "cirf", opened: bool = True
) -> Method:
    """CIRF with ``size`` functional tokens and these settings of the method; ``opened``: prompts hold the opening delimiter."""
    recipe = _recipe(
        codebook=CodebookSection(size=size),
        vocabulary=Vocabulary(delimiters=delimiters, opening="prompt" if opened else "written"),
        variants={_NAME: Variant(method="cirf_full", settings=dict(settings))},
    )
    return get(_NAME, recipe)


def plain_method() -> Method:
    """A method whose whole output is the answer."""
    return get("direct_sft", _recipe())


def _recipe(**sections: Any) -> Recipe:
    return Recipe(name=_NAME, problems=Problems(tasks=(TaskEntry(task="jsonl"),)), **sections)


Embed = Callable[[list[str]], Any]
"""Texts to vectors [n x d], such as ``SentenceTransformer.encode``."""


class TraceRow(TypedDict):
    """A training row: the prompt, the completion, and its parts (one code and one result per step)."""

    prompt: str
    completion: str
    answer: str
    steps: list[str]
    codes: list[int]
    results: list[str]


def cut_rationales(rationales: Iterable[str | Row], **segments: Any) -> list[list[str]]:
    """Cut worked solutions into steps::

        cut_rationales(["Step 1: 48 / 2 = 24.\\nStep 2: 48 + 24 = 72."])  ->  [["48 / 2 = 24.", "48 + 24 = 72."]]

    Args:
        rationales: texts, or rows with ``rationale`` and, where the question has options, ``choices``.
        **segments: keys of the recipe's ``segments``, such as ``by="sentence"`` or ``minimum=2``.

    Returns:
        The steps of each rationale, in order; none for one that does not fit. Calculator notes (``<<48/2=24>>``) stay in;
        `write_traces` reads them and `embed_steps` leaves them out.

    Raises:
        CirfError: no rationale at all, or none that can be cut.
    """
    where = "cut_rationales"
    chosen = settings(schema.Segments, segments, where)
    problems, texts = [], []
    for number, row in enumerate(listed(rationales, where, "rationales")):
        text = row if isinstance(row, str) else field(row, "rationale", where, number)
        if not isinstance(text, str) or not text.strip():
            raise CirfError(f"{where}, row {number}: there is no rationale; leave the row out")
        choices = None if isinstance(row, str) else field(row, "choices", where, number)
        problems.append(Problem(str(number), "", "", "", tuple(choices) if choices else None))
        texts.append(Rationale(str(number), 0, text, where))
    found = {row.problem: list(row.segments) for row in cut(texts, chosen, problems).annotated}
    return [found.get(problem.id, []) for problem in problems]


def embed_steps(
    steps: Iterable[Sequence[str]],
    model: str | Path | Embed = "bundled:all-minilm-l6-v2",
    *,
    device: str = "auto",
    **embeddings: Any,
) -> list[np.ndarray]:
    """One vector a step (eq. 4).

    Args:
        steps: of each rationale, as `cut_rationales` gives them.
        model: a sentence embedding model (hub id, folder or ``bundled:NAME``), or a function from n texts to vectors [n x d].
        device: of a model by name: ``auto`` or a torch device.
        **embeddings: keys of the recipe's ``embeddings``, such as ``numbers="mask"``.

    Returns:
        Of each rationale the vectors of its m steps, float32 [m x d].

    Raises:
        CirfError: no step, no such model, or vectors that are not finite.
    """
    where = "embed_steps"
    own = ("revision", "batch_size", "max_length") if callable(model) else ()
    chosen = settings(schema.Embeddings, embeddings, where, ("model", "dtype", "choices", *own))
    rows = [[normalise(step) for step in row] for row in listed(steps, where, "steps")]
    texts = [text for row in rows for text in wordings(row, chosen)]
    if not texts:
        raise CirfError(f"{where}: no rationale has a step; look at what cut_rationales gives")
    if callable(model):
        vectors = np.asarray(model(texts), dtype=np.float32)
    else:
        chosen = chosen.model_copy(update={"model": str(model)})
        progress = for_terminal()
        with tempfile.TemporaryDirectory() as work:
            kept = embed(texts, chosen, resolve(str(model), progress), pick_device(device), Path(work), progress)
            vectors = kept[np.arange(len(kept))]
    if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
        raise CirfError(f"{where}: the model gives {vectors.shape} for {len(texts)} texts, or numbers that are not finite")
    return np.split(vectors, np.cumsum([len(row) for row in rows])[:-1])


def fit_codebook(
    vectors: Iterable[np.ndarray], width: int, *, size: int = 64, seed: int = 1, device: str = "auto", **codebook: Any
) -> tuple[Codebook, list[list[int]]]:
    """Learn ``size`` functional codes from the vectors of steps, centred within their rationale (eq. 5-10).

    Args:
        vectors: of each rationale those of its m steps [m x d]; rationales without steps may be among them.
        width: of the codes: that of the language model's input embeddings.
        size: K, how many.
        **codebook: keys of the recipe's ``codebook``, such as ``vq_epochs=20`` or ``representation="raw"``.

    Returns:
        The codebook, and of each rationale the code of each step, 0 to K - 1. ``codebook.quantise(vectors)`` gives the codes
        of a new rationale, ``codebook.save(folder)`` and ``Codebook.load(folder)`` keep it.

    Raises:
        CirfError: fewer distinct steps than codes, vectors of several widths, or a training that diverges.
    """
    where = "fit_codebook"
    chosen = settings(schema.Codebook, codebook | {"size": size}, where, ("reuse", "sizes", "dimension"))
    rows = [np.asarray(row, np.float32) for row in listed(vectors, where, "vectors")]
    if any(row.ndim != 2 for row in rows) or len({row.shape[1] for row in rows if len(row)}) != 1:
        raise CirfError(f"{where}: vectors must be one array [steps x d] a rationale, all of one width d")
    lengths = [len(row) for row in rows]
    groups = np.repeat(np.arange(len(rows)), lengths)
    whole = np.concatenate([row for row in rows if len(row)])
    found = represent(whole, groups, chosen.representation, chosen.single_step, seed)
    with tempfile.TemporaryDirectory() as work:
        place, progress = Path(work), for_terminal()
        book, codes, _ = codebooks.train(found.vectors, width, chosen, seed, place, progress, pick_device(device))
    book = book.described(corpus_mean=found.corpus_mean, embedder={})
    return book, [part.tolist() for part in np.split(codes, np.cumsum(lengths)[:-1])]


def label_codes(steps: Iterable[Sequence[str]], codes: Iterable[Sequence[int]]) -> dict[int, str]:
    """A label of one to three words for every code, from the steps that carry it: ``{0: "adds", 3: "multiplies legs"}``."""
    by_code: dict[int, list[str]] = {}
    for code, step in _paired("label_codes", steps, codes):
        by_code.setdefault(code, []).append(step)
    return functions.label_codes(by_code)


def write_traces(
    rows: Iterable[Row],
    steps: Iterable[Sequence[str]],
    codes: Iterable[Sequence[int]],
    *,
    results: Iterable[Sequence[str]] | None = None,
    subjects: bool = False,
    answer: AnswerKind | None = None,
    **written: Any,
) -> list[TraceRow]:
    """The functional form of each rationale: a code and a short result a step, then the answer (eq. 13)::

        {"prompt": "What is 4 + 7 - 2?", "completion": "<cirf_003>11<cirf_000>9</cirf>9", "answer": "9", "steps": [...], ...}

    Args:
        rows: questions with their answers, in the order of ``steps`` and ``codes``. Rows without steps are left out.
        results: for each row the result of each step; ``None``: by rule. A long one is left empty.
        subjects: write each step's subject before its result.
        answer: the kind of answers of dicts (``number``, ``option``, ``yesno``, ``text``); ``None``: detected.
        **written: keys of the recipe's ``results``: ``working="keep"`` writes ``4+7=11``, ``"drop"`` writes ``11``.

    Raises:
        CirfError: a row that does not fit, or lists that do not match.
    """
    where = "write_traces"
    chosen = settings(schema.Results, written, where, ("by", "file", "writer"))
    tasks, problems = problems_of(rows, where, answer)
    own, numbers = [list(row) for row in steps], [[int(code) for code in row] for row in codes]
    given_results = None if results is None else [list(row) for row in results]
    same_length(where, rows=problems, steps=own, codes=numbers, **({} if given_results is None else {"results": given_results}))
    kept = [number for number, row in enumerate(own) if row]
    known = [Problem(str(n), p.task, p.question, p.answer, p.choices, None, p.subset) for n, p in enumerate(problems)]
    cuts = [Steps(str(n), 0, "option" if known[n].choices else "line", tuple(own[n])) for n in kept]
    found = (
        write_results(cuts, known, tasks, chosen)
        if given_results is None
        else [shortened(given_results[n], chosen) for n in kept]
    )
    method = functional_method({"subjects": subjects}, 1 + max((max(row, default=0) for row in numbers), default=0))
    traces: list[TraceRow] = []
    for n, short in zip(kept, found, strict=True):
        if not len(own[n]) == len(numbers[n]) == len(short):
            counts = f"{len(own[n])} steps, {len(numbers[n])} codes and {len(short)} results"
            raise CirfError(f"{where}, row {n}: {counts}; give one code and one result a step")
        plain = tuple(normalise(step) for step in own[n])
        example = Example(known[n], plain, Trace(str(n), 0, tuple(numbers[n]), short, known[n].answer))
        traces.append(
            TraceRow(
                prompt=method.training_prompt(example, tasks[known[n].task]),
                completion=method.target(example),
                answer=known[n].answer,
                steps=list(plain),
                codes=numbers[n],
                results=list(short),
            )
        )
    return traces


def steps_with_codes(traces: Iterable[Mapping[str, Any]], where: str) -> list[tuple[int, str]]:
    """Each step's code with its text, of all traces."""
    every = list(traces)
    return _paired(where, [row.get("steps", ()) for row in every], [row.get("codes", ()) for row in every])


def _paired(where: str, steps: Iterable[Sequence[str]], codes: Iterable[Sequence[int]]) -> list[tuple[int, str]]:
    texts, numbers = list(steps), list(codes)
    same_length(where, steps=texts, codes=numbers)
    if any(len(row) != len(own) for row, own in zip(texts, numbers, strict=True)):
        raise CirfError(f"{where}: a rationale has not as many codes as steps; give one code a step")
    return [(int(c), normalise(t)) for row, own in zip(texts, numbers, strict=True) for t, c in zip(row, own, strict=True)]
