"""From segments to codes: embeddings and codebooks (paper 3.2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cirf.distributed import Share
from cirf.errors import CirfError
from cirf.progress import SILENT
from cirf.stages.context import Context
from cirf.store.files import write_rows


def embeddings(context: Context, work: Path) -> dict[str, Any]:
    """One vector a segment (eq. 4), and one a question where the representation needs it. Processes share the chunks."""
    from cirf.assets import resolve
    from cirf.codebook.embedding import embed
    from cirf.codebook.tensor_file import save_rows
    from cirf.codebook.wording import wording, wordings
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
        asked = [wording(problems[steps.problem].question, section) for steps in rows]
        tensors["questions"] = embed(asked, section, folder, device, scratch / "questions", progress, share)
    if share.main:
        save_rows(work / "embeddings.safetensors", tensors, section.dtype)
    return {"rows": len(texts), "width": tensors["segments"].shape[1]}


def codebook(context: Context, size: int, work: Path) -> dict[str, Any]:
    """Learn K codes of the backbone's width and name each segment's (eq. 5-10)."""
    import numpy as np

    from cirf.codebook.centering import mean_of, represent
    from cirf.codebook.codebook import Codebook, train
    from cirf.codebook.rows import Picked
    from cirf.codebook.tensor_file import open_rows
    from cirf.codebook.wording import WORDING
    from cirf.lm.backbone import pick_device

    section = context.recipe.codebook.model_copy(update={"size": size})
    width = context.width
    device = pick_device(context.recipe.backbone.device)
    training_ids = {problem.id for problem in context.train()}
    steps = [(row.problem, row.sample, len(row.segments)) for row in context.steps()]  # without the texts, for there may be many
    lengths = np.array([length for _, _, length in steps])
    groups = np.repeat(np.arange(len(steps)), lengths)
    in_training = np.repeat(np.array([problem in training_ids for problem, _, _ in steps]), lengths)
    tensors, _ = open_rows(context.folder.folder("embeddings") / "embeddings.safetensors")
    vectors, questions, scratch = tensors["segments"], tensors.get("questions"), work / "scratch" / "represented"
    embedder = context.recipe.embeddings.model_dump(include={"model", "revision", *WORDING})
    if section.reuse:
        book = Codebook.load(Path(section.reuse))
        book.check(width=width, embedder=embedder, size=size, representation=section.representation)
        kind, single_step, known = book.representation, book.single_step, book.corpus_mean
        represented = represent(
            vectors, groups, kind, single_step, context.recipe.seed, questions, corpus_mean=known, scratch=scratch
        )
        codes = book.encode(represented.vectors)
        report: dict[str, Any] = {"reused": section.reuse, "single_steps": represented.single_steps}
    else:
        chosen = np.flatnonzero(in_training)
        kind, single_step = section.representation, section.single_step
        known = mean_of(Picked(vectors, chosen))
        represented = represent(
            vectors, groups, kind, single_step, context.recipe.seed, questions, corpus_mean=known, scratch=scratch
        )
        try:
            book, assigned, report = train(
                Picked(represented.vectors, chosen), width, section, context.recipe.seed, work, context.progress, device
            )
        except CirfError as error:
            raise CirfError(f"codebook-{size}: {error}") from None
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
