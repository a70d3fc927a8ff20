"""Training rows as text that stock trainers read: a prompt and a completion.

A trainer such as TRL's encodes ``prompt + completion`` as a tokenizer does by default and appends the end token. To give it the
ids that we train on, prompts omit the prefix that the tokenizer adds itself, and completions contain no added tokens except those
allowed. The trainer must be given the token that ends a turn: `cirf.lm.prompt.end_token`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from cirf.lm.prompt import sanitise
from cirf.lm.training.batches import Row


def sft_rows(rows: Sequence[Row], tokenizer: Any, keep: Collection[int] = ()) -> list[dict[str, str]]:
    """``prompt`` and ``completion`` of each row; ``keep`` are the added tokens that belong in a completion, as in `tokenise`."""
    beginning = beginning_of(tokenizer)
    return [{"prompt": row.prompt.removeprefix(beginning), "completion": sanitise(row.target, tokenizer, keep)} for row in rows]


def beginning_of(tokenizer: Any) -> str:
    """What the tokenizer puts before a text by itself; usually nothing."""
    first = tokenizer("").input_ids[:1]
    return str(tokenizer.bos_token) if first and first == [tokenizer.bos_token_id] else ""
