"""Answers from a model in this process, for those who have no server."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from cirf import recipe
from cirf.rationales.calls import writable
from cirf.rationales.requests import Answer, Request


def answer_here(
    requests: Sequence[Request], endpoint: recipe.Endpoint, known: Collection[str], keep: Callable[[Request, Answer], None]
) -> None:
    """Answer with a model loaded into this process; ``keep`` gets each answer whose key is not among ``known``.

    Batches are cut from all requests, answered ones too, so that what a batch is rounded to does not depend on where an
    earlier run was killed.
    """
    from cirf.lm import backbone, decode
    from cirf.lm.packed import pack
    from cirf.lm.prompt import render, sanitise

    alike: dict[tuple[float, float, int], list[Request]] = {}
    for request in requests:
        alike.setdefault((request.temperature, request.top_p, request.max_tokens), []).append(request)
    size = endpoint.concurrency
    batches = [group[start : start + size] for group in alike.values() for start in range(0, len(group), size)]
    batches = [batch for batch in batches if any(request.key not in known for request in batch)]
    if not batches:
        return
    section = recipe.Backbone(model=endpoint.model)
    tokenizer = backbone.load_tokenizer(endpoint.model, section)
    model = backbone.load_model(endpoint.model, section)
    pack(model)
    for batch in batches:
        first = batch[0]
        prompts = [
            render(tokenizer, [{"role": role, "content": sanitise(text, tokenizer)} for role, text in request.messages])
            for request in batch
        ]
        seeds = [request.seed for request in batch]
        outputs = decode.generate(
            model, tokenizer, prompts, first.max_tokens, first.temperature, first.top_p, seeds, batch_size=size
        )
        for request, output in zip(batch, outputs, strict=True):
            if request.key not in known:
                keep(request, Answer(writable(output.text), "length" if output.truncated else "stop", output.tokens))
