"""What the scorers that ask a causal language model share: rows of prompt and rationale, and their batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from cirf.errors import CirfError
from cirf.lm.batches import Feature
from cirf.lm.prompt import encode
from cirf.progress import Progress
from cirf.rationales.importance.batching import batches
from cirf.rationales.importance.scorer import Reasoned
from cirf.rationales.importance.words import Span, Word, per_word, weighed, word_spans


@dataclass(frozen=True, slots=True)
class Read:
    """A row as ids. ``asked`` of them are the prompt; ``offsets`` tell where each of the others stands in the text after the
    prompt, which begins with the rationale. What is predicted starts at ``feature.start``."""

    feature: Feature
    asked: int
    offsets: list[Span]


def read(model: Any, tokenizer: Any, text: Reasoned, ending: str = "", predicted: int = 0) -> Read:
    """A rationale after its prompt, with ``ending`` behind it; tokens with a character at or after ``predicted`` are learned.

    Prompt and rationale are encoded apart, as they are in training.

    Raises:
        CirfError: no prompt, a tokenizer that does not tell where its tokens stand, or more tokens than the model takes.
    """
    if not tokenizer.is_fast:
        raise CirfError(f"{tokenizer.name_or_path}: its tokenizer does not tell where tokens stand in a text; use another model")
    prompt = encode(tokenizer, text.prompt)
    if not prompt:
        raise CirfError(f"the rationale {text.rationale[:60]!r} has an empty prompt; give it its question")
    encoded = tokenizer(text.rationale + ending, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    offsets = [(int(start), int(end)) for start, end in encoded.offset_mapping]
    start = next((place for place, (_, end) in enumerate(offsets) if end > predicted), len(offsets))
    ids = (*prompt, *encoded.input_ids)
    most = getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None)
    if most is not None and len(ids) > most:
        raise CirfError(
            f"the rationale {text.rationale[:60]!r} has {len(ids)} tokens with its prompt, but the model that scores it takes "
            f"{most}; leave it out"
        )
    return Read(Feature(ids, len(prompt) + start), len(prompt), offsets)


def score_rows(
    texts: Sequence[Reasoned],
    reading: Callable[[Reasoned], Read],
    compute: Callable[[list[Read]], list[list[float]]],
    by: Literal["mean", "sum"],
    batch_tokens: int,
    progress: Progress,
) -> list[list[Word]]:
    """The words of every text; ``compute`` gives each row's values, one for each of its ``offsets``.

    Texts are read and computed in batches of at most ``batch_tokens``, padding included. Those without words are not read.
    ``CirfError``: no memory for a batch, and as ``reading``.
    """
    spans = [word_spans(text.rationale) for text in texts]
    asked = [place for place, found in enumerate(spans) if found]
    rows = [reading(texts[place]) for place in asked]
    words: list[list[Word]] = [[] for _ in texts]
    with progress.task("importance", len(rows), "rationales") as advance:
        for batch in batches([len(row.feature.ids) for row in rows], batch_tokens):
            try:
                values = compute([rows[row] for row in batch])
            except torch.OutOfMemoryError:
                raise CirfError(f"no memory to score {len(batch)} rationales at once; score fewer tokens in a batch") from None
            for row, found in zip(batch, values, strict=True):
                place = asked[row]
                told = per_word(found, rows[row].offsets, spans[place], by)
                words[place] = weighed(texts[place].rationale, spans[place], told)
            advance(len(batch))
    return words
