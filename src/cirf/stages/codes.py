"""From segments to codes: embeddings and codebooks (paper 3.2).

The choice of K (``codebook.size: auto``): short fine-tunings with codebooks of several sizes, judged by answers to held-out
questions.

The paper chooses K "based on the validation accuracy" (A.2). No test question is read here.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cirf.distributed import Share, is_main, settled
from cirf.errors import CirfError
from cirf.methods import SCORED_BY, get
from cirf.progress import SILENT
from cirf.recipe.schema import Finetune, Recipe
from cirf.stages import data, models, scores
from cirf.stages.context import Context
from cirf.store.files import to_json, write_atomic, write_rows

if TYPE_CHECKING:
    from cirf.codebook.centering import Representation


def embeddings(context: Context, work: Path) -> dict[str, Any]:
    """One vector a segment (eq. 4), and one a question where the representation needs it. Processes share the chunks."""
    from cirf.assets import resolve
    from cirf.codebook.embedding import embed, wording, wordings
    from cirf.codebook.rows import save_rows
    from cirf.lm.backbone import pick_device

    section = context.recipe.embeddings
    folder = resolve(section.model, context.progress)
    device = pick_device(context.recipe.backbone.device)
    share, scratch = Share.of_launch(), work / "scratch"
    progress = context.progress if share.main else SILENT
    problems = {problem.id: problem for problem in [*context.train(), *context.validation()]}
    rows = context.steps()
    texts = [text for steps in rows for text in wordings(steps.segments, section, problems[steps.problem].choices)]
    tensors = {"segments": embed(texts, section, folder, device, scratch / "segments", progress, share)}
    if context.recipe.codebook.representation == "question_centered":
        question_texts = [wording(problems[steps.problem].question, section) for steps in rows]
        tensors["questions"] = embed(question_texts, section, folder, device, scratch / "questions", progress, share)
    if share.main:
        save_rows(work / "embeddings.safetensors", tensors, section.dtype)
    return {"rows": len(texts), "width": tensors["segments"].shape[1]}


def codebook(context: Context, size: int, work: Path) -> dict[str, Any]:
    """Learn K codes of the backbone's width and name each segment's (eq. 5-10). Processes share the training."""
    import numpy as np

    from cirf.codebook.centering import mean_of, represent
    from cirf.codebook.codebook import Codebook, train
    from cirf.codebook.embedding import WORDING
    from cirf.codebook.rows import Picked, open_rows
    from cirf.lm.backbone import pick_device

    section = context.recipe.codebook.model_copy(update={"size": size})
    share = Share.of_launch()
    width = context.width
    device = pick_device(context.recipe.backbone.device)
    training_ids = {problem.id for problem in context.train()}
    steps = [(row.problem, row.sample, len(row.segments)) for row in context.steps()]  # without the texts, for there may be many
    lengths = np.array([length for _, _, length in steps])
    groups = np.repeat(np.arange(len(steps)), lengths)
    in_training = np.repeat(np.array([problem in training_ids for problem, _, _ in steps]), lengths)
    tensors, _ = open_rows(context.folder.folder("embeddings") / "embeddings.safetensors")
    vectors, scratch = tensors["segments"], work / "scratch" / "represented"
    embedder = context.recipe.embeddings.model_dump(include={"model", "revision", *WORDING})
    seed, questions = context.recipe.seed, tensors.get("questions")
    if section.reuse:
        if not share.main:
            return {}
        book = Codebook.load(Path(section.reuse))
        book.check(width=width, embedder=embedder, size=size, representation=section.representation)
        kind, single_step, known = book.representation, book.single_step, book.corpus_mean
        represented = represent(vectors, groups, kind, single_step, seed, questions, corpus_mean=known, scratch=scratch)
        codes = book.encode(represented.vectors)
        report: dict[str, Any] = {"reused": section.reuse}
    else:
        chosen = np.flatnonzero(in_training)
        kind, single_step, known = section.representation, section.single_step, mean_of(Picked(vectors, chosen))
        centred = partial(represent, vectors, groups, kind, single_step, seed, questions, corpus_mean=known, scratch=scratch)
        represented = _for_all(centred, vectors.shape, scratch, share)
        try:
            progress = context.progress if share.main else SILENT
            picked = Picked(represented.vectors, chosen)
            book, assigned, report = train(picked, width, section, context.recipe.seed, work, progress, device, share)
        except CirfError as error:
            raise CirfError(f"codebook-{size}: {error}") from None
        if not share.main:
            return {}
        book = book.described(corpus_mean=represented.corpus_mean, embedder=embedder)
        codes = book.encode(represented.vectors)
        codes[chosen] = assigned
    report["single_steps"] = represented.single_steps
    book.save(work, report | {"usage": np.bincount(codes[in_training], minlength=size).tolist()})
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    rows = [
        {"problem": problem, "sample": sample, "codes": codes[bounds[i] : bounds[i + 1]].tolist()}
        for i, (problem, sample, _) in enumerate(steps)
    ]
    write_rows(work / "codes.jsonl", rows)
    return {"rows": len(codes), "codes": size}


def _for_all(represent: Callable[[], Representation], shape: tuple[int, ...], file: Path, share: Share) -> Representation:
    """What is quantised. If it is too large for memory, the main process writes the ``file``, and the others read it."""
    import numpy as np

    from cirf.codebook.centering import Representation
    from cirf.codebook.rows import FileRows, on_disk

    made = represent() if share.main or not on_disk(shape) else None
    share.settled(lambda: None)
    return made or Representation(FileRows(file, (shape[0], shape[1])), np.empty(0, np.float32), 0)


CHOICE = "codebook-size"
"""The stage that chooses."""


def traces(context: Context, size: int, work: Path) -> dict[str, Any]:
    """The functional form of every solution by the codebook of one size."""
    return data.traces(replace(context, recipe=with_codebook_size(context.recipe, size)), work)


def trial(context: Context, size: int, work: Path) -> dict[str, Any]:
    """Fine-tune `SCORED_BY` for a few updates with K = ``size``, let it answer the first held-out questions greedily, and keep
    their rows and ``scores.json``; its model is thrown away. ``CirfError`` where no question is held out, or the training
    diverges."""
    from cirf.lm.training.trainer import DivergedError

    recipe = with_codebook_size(context.recipe, size)
    budget = recipe.codebook.size_trials
    held_out = context.held_out(budget.questions)
    if not held_out:
        raise CirfError("codebook.size: auto, but no question is held out to choose by; raise problems.validation or give a size")
    models.release(context)
    here = replace(context, recipe=recipe, loaded={}, traced=traced(size))
    model = work / "scratch" / "model"
    if not settled(lambda: (model / "functions.json").is_file()):  # the file written last
        method = get(SCORED_BY, recipe)
        short = _short(recipe, len(here.examples(method)[0]), budget.steps)
        try:
            models.finetune(here, SCORED_BY, short, model, f"{SCORED_BY}/K={size}", trial=True)
        except DivergedError as error:
            raise CirfError(f"codebook.size: the trial of {size} diverged ({error}); lower finetune.learning_rate") from None
    if is_main():
        shutil.copyfile(model / "history.json", work / "history.json")
    answering = replace(here, recipe=recipe.model_copy(update={"models": {SCORED_BY: str(model)}}), loaded={})
    section = recipe.evaluate.model_copy(update={"temperature": 0.0, "runs": 1})
    found = scores.answer(answering, SCORED_BY, section, held_out, work / "answers", Share.of_launch())
    models.release(answering)
    return {"rows": found.overall.n}


def choose(context: Context, sizes: Sequence[int], work: Path) -> dict[str, Any]:
    """The size whose trial answered most held-out questions rightly, the smallest of equal ones: ``sizes.json`` with all."""
    rows = []
    for size in sorted(sizes):
        overall = context.report(f"sized/{size}", "answers/scores.json")["overall"]
        rows.append({"size": size} | {name: overall[name] for name in ("accuracy", "interval", "n", "tokens", "unparsed")})
    best = max(rows, key=lambda row: row["accuracy"])
    write_atomic(work / "sizes.json", to_json({"chosen": best["size"], "sizes": rows}))
    curve = ", ".join(f"K = {row['size']}: {row['accuracy']:.1%}" for row in rows)
    low, high = best["interval"]
    note = (
        f"chose K = {best['size']} (95 % interval {low:.1%} to {high:.1%}); accuracy on {best['n']} held-out questions: {curve}"
    )
    return {"rows": len(rows), "notes": [note]}


def chosen(context: Context) -> int:
    """The size that the finished stage chose."""
    return int(context.report(CHOICE, "sizes.json")["chosen"])


def with_codebook_size(recipe: Recipe, size: int) -> Recipe:
    return recipe.model_copy(update={"codebook": recipe.codebook.model_copy(update={"size": size, "chosen": True})})


def traced(size: int) -> str:
    """The stage of the traces by the codebook of one size."""
    return f"sized-traces/{size}"


def _short(recipe: Recipe, rows: int, steps: int) -> Finetune:
    """The training of a trial: ``steps`` updates, or the whole training where that has fewer."""
    method = get(SCORED_BY, recipe)
    whole = recipe.finetune.resolved(SCORED_BY, method.training).settled(rows)
    epochs = min(float(whole.epochs), steps / max(1, whole.an_epoch(rows)))
    return recipe.finetune.alone(SCORED_BY, whole.learning_rate, epochs)
