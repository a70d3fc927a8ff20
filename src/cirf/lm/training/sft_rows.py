"""Training rows as text that stock trainers read: a prompt and a completion.

A trainer such as TRL's encodes ``prompt + completion`` as a tokenizer does by default and puts the end token behind it. So that
it learns from the very ids that we train on, a prompt leaves out the beginning that the tokenizer puts there by itself, and a
completion holds no added token but those it may. Which token ends a turn is to be said to it: `cirf.lm.prompt.end_token`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from cirf.lm.prompt import sanitise
from cirf.lm.training.batches import Row


def sft_rows(rows: Sequence[Row], tokenizer: Any, keep: Collection[int] = ()) -> list[dict[str, str]]:
    """``prompt`` and ``completion`` of each row; ``keep`` are the added tokens that belong in a completion, as in `tokenise`."""
    beginning = _beginning(tokenizer)
    return [{"prompt": row.prompt.removeprefix(beginning), "completion": sanitise(row.target, tokenizer, keep)} for row in rows]


def _beginning(tokenizer: Any) -> str:
    """What the tokenizer puts before a text by itself; usually nothing."""
    first = tokenizer("").input_ids[:1]
    return str(tokenizer.bos_token) if first and first == [tokenizer.bos_token_id] else ""
