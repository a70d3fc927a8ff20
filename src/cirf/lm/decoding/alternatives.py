"""How sure a model was of each functional token that it wrote, and what else it might have written there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from cirf.lm.vocabulary import TokenNames


class Choice(NamedTuple):
    """A functional token at its ``place`` in an output, its probability, and the likeliest tokens there with theirs, itself left
    out; ``text`` of each as the tokenizer writes it."""

    place: int
    text: str
    probability: float
    others: tuple[tuple[str, float], ...]


@torch.inference_mode()
def choices(
    model: Any, tokenizer: Any, prompt: Sequence[int], written: Sequence[int], names: TokenNames, others: int = 3
) -> list[Choice]:
    """The model's probabilities for the functional tokens in ``written``, the ids it wrote after ``prompt``.

    One pass over both. Probabilities are conditioned on all earlier tokens, at temperature 1 and before any steering.
    """
    codes = set(tokenizer.convert_tokens_to_ids(list(names.codes)))
    places = [place for place, token in enumerate(written) if token in codes]
    if not places:
        return []
    ids = torch.tensor([[*prompt, *written]], device=model.device)
    rows = torch.tensor([len(prompt) + place - 1 for place in places], device=model.device)
    logits = model(input_ids=ids, use_cache=False, logits_to_keep=rows).logits[0].float()
    found = []
    for place, chances in zip(places, logits.softmax(dim=-1), strict=True):
        best = chances.topk(min(others + 1, len(chances)))
        listed = [(token, chance) for chance, token in zip(*map(torch.Tensor.tolist, best), strict=True)]
        rest = tuple((tokenizer.decode([token]), chance) for token, chance in listed if token != written[place])[:others]
        found.append(Choice(place, tokenizer.decode([written[place]]), float(chances[written[place]]), rest))
    return found
