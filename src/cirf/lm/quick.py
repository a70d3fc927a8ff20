"""One answer, several tokens a pass: guesses at what comes next are checked together, and those that are right stand.

A pass over a few tokens costs what a pass over one does as long as the weights have to come from memory (speculative decoding;
Leviathan, Kalman and Matias 2023, here with guesses in place of a second model). A guess never decides anything: at every place
the token is the one that the model gives the highest score there, as without guesses. Guesses of two are checked like this::

    written: <cirf> <cirf_016> 48 /       guessed: 2 =
    one pass over   / 2 =                 it says: 2 = 2        all three stand
    one pass over   2 4 <cirf_023>        it says: 4 </cirf> .  the 4 stands and </cirf>; what came of <cirf_023> is dropped
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

import torch

from cirf.lm.prefix import Begun, is_plain

WIDTH = 4
"""Most tokens of a pass: the last one written, and guesses."""


class Guesses(Protocol):
    """What guesses at the tokens to come."""

    def guess(self, prompt: Sequence[int], written: Sequence[int], count: int) -> list[int]:
        """Up to ``count`` tokens that may come behind ``written``, the answer so far to ``prompt``."""
        ...


@torch.inference_mode()
def write(
    model: Any,
    prompt: Sequence[int],
    cap: int,
    stops: Collection[int],
    guesses: Guesses,
    processors: Sequence[Any] = (),
    told: Callable[[int], bool] = lambda token: False,
    begun: Begun | None = None,
    width: int = WIDTH,
) -> list[int] | None:
    """The ids written greedily after one prompt: at most ``cap``, up to and with the first of ``stops``.

    ``processors`` change the scores, once for each token that is written; ``told`` is given each token and may end the answer.
    ``begun`` holds the prompt's beginning, and the prompt as it is then. ``None`` where the model keeps its past in a way that
    cannot be cut back to what stands.
    """
    ids, cache = list(prompt), None
    if begun is not None:
        ids, cache = begun.prompts[0], begun.cache
        if not is_plain(cache):
            return None
    start = 0 if begun is None else begun.heads[0]
    given = torch.tensor([ids[start:]], device=model.device)
    made = model(input_ids=given, past_key_values=cache, use_cache=True, logits_to_keep=1)
    cache, scores = made.past_key_values, made.logits[0]  # [1 x vocabulary]
    if not is_plain(cache):
        return None
    read = cache.get_seq_length()
    written: list[int] = []
    guessed: list[int] = []
    while True:
        for place, row in enumerate(scores):
            token = _choice(row, [*ids, *written], processors, model.device)
            written.append(token)
            if told(token) or token in stops or len(written) == cap:
                return written
            if place == len(guessed) or token != guessed[place]:
                break
        if wrong := cache.get_seq_length() - (read + len(written) - 1):
            cache.crop(-wrong)
        guessed = guesses.guess(ids, written, min(width, cap - len(written)) - 1)
        given = torch.tensor([[written[-1], *guessed]], device=model.device)
        scores = model(input_ids=given, past_key_values=cache, use_cache=True).logits[0]


def _choice(row: torch.Tensor, so_far: Sequence[int], processors: Sequence[Any], device: Any) -> int:
    """The token with the highest of the scores [vocabulary]."""
    if not processors:
        return int(row.argmax())
    scores = row.float()[None]
    seen = torch.tensor([so_far], device=device)
    for processor in processors:
        scores = processor(seen, scores)
    return int(scores.argmax())
