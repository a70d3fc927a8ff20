"""How well functional tokens can be predicted, and from what: a step's place, what came before it, the question, the step.

A model writes a functional token before it writes the step's result. What it cannot know by then raises its loss, whatever its
size: codes that depend on a step's wording are unpredictable for it, and a balanced assignment gives some codes arbitrarily. So
simple classifiers, trained on some questions and evaluated on others, estimate what can be known: the loss of one that sees
the step's own vector is about the irreducible part, and the loss of those that see only earlier text is an upper bound for a good
model.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cirf.analysis.accuracy import FUNCTIONAL
from cirf.analysis.analysis import Analysis, AnalysisResult, MissingInputError
from cirf.analysis.source import Run, Source
from cirf.pictures.canvas import Dot, draw_dots
from cirf.pictures.table import Column, Table
from cirf.statistics import interval, left_out
from cirf.store.files import load_object

_FOLDS = 5
_MOST = 6000  # steps that are used, of whole rationales drawn by a seed: classifiers of hundreds of codes are slow
_STRENGTHS = (0.03, 0.3, 3.0)
_PLACES = 8
_WORDS = 2000
_BEFORE = "task, place, code before"
_COLUMNS = (
    Column("known", "What is known"),
    Column("loss", "Loss of the code, nats", "number", bounds=True),
    Column("right", "Predicted right", "share"),
    Column("steps", "Steps", "count"),
    Column("questions", "Questions", "count"),
)


@dataclass(frozen=True)
class StepTable:
    """The steps of training rationales: ``codes`` [M]; ``places`` [M] from 0; ``before`` [M], the code of the step
    before or K for none; ``questions`` and ``tasks`` [M], numbered; ``texts``, a question each; ``vectors`` [M x d], the
    quantised vectors, if available."""

    codes: np.ndarray
    places: np.ndarray
    before: np.ndarray
    questions: np.ndarray
    tasks: np.ndarray
    texts: Sequence[str | None]
    vectors: np.ndarray | None


def make(source: Source) -> AnalysisResult:
    """A row for each kind of information, the trained models' own losses, and a picture of both."""
    run = source.first(lambda one: one.problems and any(one.codes.values()))
    size = int(run.key("codebook.size") or 0)
    if run.training_codes and not (run.problems and run.codes):
        raise MissingInputError("codes with their questions")
    if len({question for (question, _), codes in run.training_codes.items() if codes}) < 2 * _FOLDS:
        raise MissingInputError(f"too few training questions have codes, {2 * _FOLDS} are needed (an archive keeps none)")
    steps = gather(run, size)
    rows: list[dict[str, Any]] = [{"known": f"nothing (1 of {size})", "loss": math.log(size), "right": 1 / size} | _counts(steps)]
    for known, features in what_is_known(steps, size).items():
        losses, right = predicted(features, steps.codes, steps.questions, size)
        rows.append({"known": known, **_mean(losses, steps.questions), "right": float(right.mean())} | _counts(steps))
    for method, loss in _models(run).items():
        rows.append({"known": f"{method} after training", "loss": loss})
    notes = [
        *source.notes(run),
        f"Logistic regressions, each evaluated only on questions that it was not trained on ({_FOLDS} parts), with the best of"
        f" {len(_STRENGTHS)} strengths of its penalty; intervals: jackknife over groups of questions, the classifiers as they"
        " are. The step itself: the vector that was quantised. After training: the model's prediction from all text before the"
        " token, on its validation rows, without interval; rows that know less should be above it.",
    ]
    lines = [(row["known"], [Dot(row["loss"], row.get("loss_low"), row.get("loss_high"))]) for row in rows]
    picture = draw_dots("predictability", "Loss of the functional token", "nats; lower is better", lines, "number")
    table = Table("predictability", "How well functional tokens are predicted, by what is known.", _COLUMNS, rows)
    return AnalysisResult((table,), {"predictability": picture}, notes)


def gather(run: Run, size: int) -> StepTable:
    """The training steps of a run and the information about them."""
    from cirf.codebook.centering import mean_of, represent
    from cirf.codebook.rows import Picked, open_rows

    path = run.file("embeddings", "embeddings.safetensors")
    vectors = None if path is None else open_rows(path)[0].get("segments")
    begins = np.cumsum([0, *(len(codes) for codes in run.codes.values())])
    kept = [(place, where) for place, where in enumerate(run.codes) if where[0] in run.problems and run.codes[where]]
    order = np.random.default_rng(0).permutation(len(kept))
    taken, count = list[int](), 0
    for place in order.tolist():
        taken.append(place)
        count += len(run.codes[kept[place][1]])
        if count >= _MOST:
            break
    chosen = [kept[place] for place in sorted(taken)]
    lengths = [len(run.codes[where]) for _, where in chosen]
    codes = [run.codes[where] for _, where in chosen]
    tasks = {name: place for place, name in enumerate(sorted({row["task"] for row in run.problems.values()}))}
    names = {name: place for place, name in enumerate(dict.fromkeys(where[0] for _, where in chosen))}
    seen = None
    if vectors is not None and len(vectors) == begins[-1]:
        groups = np.repeat(np.arange(len(run.codes)), [len(codes) for codes in run.codes.values()])
        kind, single = run.key("codebook.representation"), run.key("codebook.single_step")
        if kind in ("mean_centered", "raw"):
            rows = np.concatenate([np.arange(begins[place], begins[place + 1]) for place, _ in chosen])
            training = np.concatenate([np.arange(begins[place], begins[place + 1]) for place, _ in kept])
            mean = mean_of(Picked(vectors, training))  # as for the codebook: without the held-out questions
            seen = represent(Picked(vectors, rows), groups[rows], kind, single, 0, corpus_mean=mean).vectors[:]
    each = np.repeat(np.arange(len(chosen)), lengths)
    return StepTable(
        codes=np.concatenate(codes),
        places=np.concatenate([np.arange(length) for length in lengths]),
        before=np.concatenate([[size, *one[:-1]] for one in codes]),
        questions=np.array([names[where[0]] for _, where in chosen])[each],
        tasks=np.array([tasks[run.problems[where[0]]["task"]] for _, where in chosen])[each],
        texts=[run.problems[name].get("question") for name in names],
        vectors=seen,
    )


def what_is_known(steps: StepTable, size: int) -> Mapping[str, np.ndarray]:
    """Features [M x f] by the information they carry."""
    place = np.eye(_PLACES)[np.minimum(steps.places, _PLACES - 1)]
    before, task = np.eye(size + 1)[steps.before], np.eye(int(steps.tasks.max()) + 1)[steps.tasks]
    found = {
        "how often each comes": np.zeros((len(steps.codes), 0)),
        "place of the step": place,
        "code before": before,
        _BEFORE: np.hstack([task, place, before]),
    }
    words = _question_words(steps.texts)
    if words is not None:
        found["these and the question's words"] = np.hstack([task, place, before, words[steps.questions]])
    if steps.vectors is not None:
        spread = float(steps.vectors.std()) or 1.0
        found["the step itself"] = steps.vectors / spread
    return found


def predicted(features: np.ndarray, codes: np.ndarray, questions: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Loss in nats [M] of each step's code and whether it was the likeliest [M], predicted by a classifier that saw no step of
    its question; of several strengths of the penalty the one with the lowest mean loss."""
    from sklearn.model_selection import GroupKFold
    from threadpoolctl import threadpool_limits

    parts = list(GroupKFold(_FOLDS).split(features, codes, questions))
    with threadpool_limits(1):  # where the minimisation stops depends on the order of sums
        tried = [_held_out(features, codes, size, parts, strength) for strength in (_STRENGTHS if features.shape[1] else (1.0,))]
    return min(tried, key=lambda found: float(found[0].mean()))


def _held_out(
    features: np.ndarray, codes: np.ndarray, size: int, parts: Sequence[tuple[np.ndarray, np.ndarray]], strength: float
) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.linear_model import LogisticRegression

    losses, right = np.zeros(len(codes)), np.zeros(len(codes), dtype=bool)
    for train, test in parts:
        counts = np.bincount(codes[train], minlength=size) + 1.0  # no code is impossible
        chances = np.tile(counts / counts.sum(), (len(test), 1))
        if features.shape[1] and len({*codes[train].tolist()}) > 1:
            model = LogisticRegression(C=strength, max_iter=300).fit(features[train], codes[train])
            unseen = np.setdiff1d(np.arange(size), model.classes_)
            chances[:, model.classes_] = (1 - chances[:, unseen].sum(axis=1, keepdims=True)) * model.predict_proba(features[test])
        losses[test] = -np.log(chances[np.arange(len(test)), codes[test]])
        right[test] = chances.argmax(axis=1) == codes[test]
    return losses, right


def _mean(losses: np.ndarray, questions: np.ndarray) -> dict[str, Any]:
    """The mean loss with its interval, questions left out by groups."""
    mean, each = float(losses.mean()), [losses[questions == question] for question in range(int(questions.max()) + 1)]
    without = left_out(each, lambda kept: [float(np.concatenate(kept).mean())])
    low, high = interval(mean, [found for (found,) in without])
    return {"loss": mean, "loss_low": low, "loss_high": high}


def _counts(steps: StepTable) -> dict[str, int]:
    return {"steps": len(steps.codes), "questions": int(steps.questions.max()) + 1}


def _models(run: Run) -> dict[str, float]:
    """The last validation loss of the functional tokens of each method that was trained on these codes."""
    found = {}
    for method in FUNCTIONAL:
        path = run.file(f"models/{method}", "history.json")
        if method == "cirf_self":  # the codes of its rows are those that a model chose
            continue
        if path is None or run.key(f"variants.{method}.settings.codes"):
            continue
        history = load_object(path) or {}
        losses = [row["code_loss"] for row in history.get("validation", ()) if "code_loss" in row]
        if losses:
            found[method] = float(losses[-1])
    return found


def _question_words(texts: Sequence[str | None]) -> np.ndarray | None:
    """Tf-idf of the questions' words [Q x w]; ``None`` where a text is missing."""
    if any(not text for text in texts):
        return None
    from sklearn.feature_extraction.text import TfidfVectorizer

    try:
        found: np.ndarray = TfidfVectorizer(min_df=2, max_features=_WORDS, sublinear_tf=True).fit_transform(texts).toarray()
    except ValueError:  # no word occurs in two questions
        return None
    return 3 * found  # a row has length 1: as much weight as three of the other features


ANALYSIS = Analysis(
    "predictability",
    "How well functional tokens are predicted",
    "What a model could predict of the next functional token from the text before it, and what it does predict.",
    "codes of at least ten training questions",
    make,
)
