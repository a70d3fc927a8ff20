"""Answers: batched decoding for accuracy, one at a time for latency.

Every function takes a `Decoding`, which says how tokens are chosen, and decodes by `_decode`; they differ in what they decode
together and in what they return.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch

from cirf.cpu.memory import enough
from cirf.lm.backbone import positions
from cirf.lm.decoding.prefix_cache import PrefilledPrompts, Prefiller, SharedPrompts
from cirf.lm.decoding.rounds import OnStep, RoundCriterion, batches, generate_in_rounds
from cirf.lm.decoding.sampling import NO_VOTE, draw, drawing
from cirf.lm.prompt import encode, stop_ids

Steer = Callable[[], Sequence[Any]]
"""Makes the logits processors of one batch (see `cirf.lm.decoding.trace_grammar`); ``tuple``: none."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """How the tokens of answers are chosen; the defaults are greedy. The model's own generation settings (sampling, penalties)
    are not used."""

    temperature: float = 0.0
    """0 is greedy: the likeliest token. Else tokens are drawn at this temperature."""
    top_p: float = 1.0
    """Tokens are drawn from the nucleus of this probability, of 0 to 1; 1: from the whole vocabulary."""
    seed: int = 0
    """Of the random numbers. Every answer has its own, seeded by this, its prompt and its number: it is the same answer in
    every batch, up to rounding."""
    prefixes: Prefiller | None = None
    """Computes the beginning of prompts by other means: a shared part once for all, or thoughts of the model; ``None``: prompts
    are read token by token."""
    steer: Steer = tuple
    """Makes the logits processors of a batch; they come before the drawing."""

    def processors(self, model: Any, draws: Sequence[str]) -> list[Any]:
        """The logits processors of a batch: those of ``steer``, and at a temperature the drawing, which a text of ``draws`` a
        row seeds."""
        return [*self.steer(), *drawing(model, self.temperature, self.top_p, draws)]


GREEDY = Decoding()
"""The likeliest token each time, from the prompt alone."""


@dataclass(frozen=True, slots=True)
class Output:
    """What a model wrote after one prompt. ``text`` is decoded without the end token but with functional tokens; ``ids`` are all
    generated ids and ``tokens`` their number, the end token included; ``truncated``: the cap was reached before an end token."""

    text: str
    tokens: int
    truncated: bool
    ids: tuple[int, ...]


class TimedOutput(NamedTuple):
    """One answer with its times: seconds from the prompt's text to the end, and to the first token. ``ids`` are all generated
    ids, the end token included."""

    tokens: int
    seconds: float
    first_token_seconds: float | None
    text: str
    truncated: bool
    ids: tuple[int, ...] = ()


def generate(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[str],
    cap: int,
    decoding: Decoding = GREEDY,
    batch_size: int = 32,
    seeds: Sequence[int] | None = None,
) -> list[Output]:
    """Outputs of rendered prompts, in their order.

    Prompts are decoded in fixed batches of like length, the longest first (so that memory runs out at once or never), padded on
    the left; of equal length where padding changes what the model answers. A sampled answer is none of `sample_many`'s.

    Args:
        prompts: rendered by ``prompt_text``; nothing is added to them.
        cap: most tokens of an output, the end token included.
        decoding: how tokens are chosen.
        batch_size: prompts decoded together.
        seeds: one per prompt, in place of that of ``decoding``.

    ``CirfError``: no memory for a batch.
    """
    encoded = [encode(tokenizer, prompt) for prompt in prompts]
    order = sorted(range(len(prompts)), key=lambda i: (-len(encoded[i]), i))
    stops = stop_ids(model, tokenizer)
    own_seeds = [decoding.seed] * len(prompts) if seeds is None else seeds
    draws = [draw(seed, prompt, NO_VOTE) for seed, prompt in zip(own_seeds, prompts, strict=True)]
    outputs: dict[int, Output] = {}
    sets = [[order[place] for place in places] for places in batches(model, [encoded[i] for i in order])]
    for batch in [own[start : start + batch_size] for own in sets for start in range(0, len(own), batch_size)]:
        with enough(f"out of memory with {len(batch)} prompts at once; lower evaluate.batch_size"):
            written = _decode(model, [encoded[i] for i in batch], cap, stops, decoding, [draws[i] for i in batch])
        outputs |= {i: output_of(tokenizer, ids, stops) for i, ids in zip(batch, written, strict=True)}
    return [outputs[i] for i in range(len(prompts))]


def continue_generation(
    model: Any, tokenizer: Any, begun: PrefilledPrompts, cap: int, written: Sequence[Sequence[int]], never: Sequence[int] = ()
) -> list[Output]:
    """Greedy outputs of one batch of rows that were begun already. ``written`` [b]: ids at the end of each row that count as the
    model's own: they are part of its output, and of its cap. ``never``: ids that may not follow. ``CirfError``: no memory for the
    batch."""
    from transformers import SuppressTokensLogitsProcessor

    stops = stop_ids(model, tokenizer)
    left, room = cap - min(map(len, written)), positions(model)
    left = max(1, left if room is None else min(left, room + 1 - max(map(len, begun.prompts))))
    with enough(f"out of memory with {len(written)} prompts at once; lower evaluate.batch_size"):
        forbid = [SuppressTokensLogitsProcessor([*never], model.device)] if never else []
        made = _generate(model, begun.prompts, left, stops, begun, forbid)
    return [output_of(tokenizer, [*before, *ids][:cap], stops) for before, ids in zip(written, made, strict=True)]


def generate_one(
    model: Any, tokenizer: Any, prompt: str, cap: int, decoding: Decoding = GREEDY, on_text: Callable[[str], None] | None = None
) -> TimedOutput:
    """One answer at batch 1 with its times, tokenising and decoding included: that of `generate` for this prompt.

    ``on_text`` is given the text so far as it grows, for showing an answer while it is written. The time holds what
    the ``prefixes`` of ``decoding`` have not kept yet (see `Prefiller.prepare`).
    """
    stops = stop_ids(model, tokenizer)
    made: list[int] = []
    first: float | None = None

    def step(rows: Sequence[int], tokens: Sequence[int]) -> list[bool]:
        nonlocal first
        first = time.perf_counter() if first is None else first
        if on_text is not None:
            made.extend(tokens)
            on_text(output_of(tokenizer, made, stops).text)
        return [False]

    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)
    started = time.perf_counter()
    ids = encode(tokenizer, prompt)
    (written,) = _decode(model, [ids], cap, stops, decoding, [draw(decoding.seed, prompt, NO_VOTE)], step)
    output = output_of(tokenizer, written, stops)
    seconds = time.perf_counter() - started
    first_token = None if first is None else first - started
    return TimedOutput(output.tokens, seconds, first_token, output.text, output.truncated, output.ids)


def sample_many(
    model: Any, tokenizer: Any, prompt: str, cap: int, count: int, decoding: Decoding, first: int = 0
) -> list[Output]:
    """The answers ``first`` to ``first + count - 1`` to one prompt, sampled in one batch; the prompt is computed once and its
    cache shared by all.

    An answer does not depend on how many others are drawn with it (up to the rounding of another batch size), and further ones
    can be drawn later. Temperature 0 is greedy: all answers are alike. Of the prompt, ``prefixes`` may hold the beginning.
    ``CirfError``: no memory.
    """
    ids, stops = encode(tokenizer, prompt), stop_ids(model, tokenizer)
    draws = [draw(decoding.seed, prompt, number) for number in range(first, first + count)]
    shared = replace(decoding, prefixes=SharedPrompts(model, decoding.prefixes))
    with enough(f"out of memory with {count} sampled answers at once; ask for fewer votes"):
        written = _decode(model, [ids] * count, cap, stops, shared, draws)
    return [output_of(tokenizer, own, stops) for own in written]


def follow(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[list[int]],
    cap: int,
    on_step: OnStep,
    decoding: Decoding = GREEDY,
    draws: Sequence[str] = (),
) -> None:
    """Answer encoded prompts in one batch, each row as if alone, and pass every token to ``on_step`` as it is generated.

    Greedily, or at a temperature each row with its own random numbers, seeded by its text in ``draws`` (see `draw`) and not by
    the seed of ``decoding``: it is the answer that `sample_many` gives. ``on_step`` may end rows before their time; ``cap`` is
    for those that it does not. ``CirfError``: no memory for the batch.
    """
    with enough(f"out of memory with {len(prompts)} prompts at once; send shorter ones, or fewer"):
        _decode(model, prompts, cap, stop_ids(model, tokenizer), decoding, draws, on_step)


def output_of(tokenizer: Any, ids: list[int], stops: Collection[int]) -> Output:
    """What the ids written after a prompt say, up to the first of ``stops``."""
    end = next((index for index, token in enumerate(ids) if token in stops), None)
    body = ids if end is None else ids[:end]
    text = tokenizer.decode(body, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    count = len(ids) if end is None else end + 1
    return Output(text, count, end is None, tuple(ids[:count]))


def _decode(
    model: Any,
    prompts: Sequence[list[int]],
    cap: int,
    stops: list[int],
    decoding: Decoding,
    draws: Sequence[str],
    on_step: OnStep | None = None,
) -> list[list[int]]:
    """Ids written after encoded prompts, all in one batch where the model allows that, up to ``cap`` or the first of ``stops``.
    ``draws``: what seeds each one's random numbers; ``on_step`` receives every token with the place of its prompt. A model with a
    bounded number of positions writes as much as is left of them; a longer prompt loses its beginning."""
    written: dict[int, list[int]] = {}
    room = positions(model, 0 if decoding.prefixes is None else decoding.prefixes.besides)
    if room is not None:
        prompts = [ids[-room:] for ids in prompts]
    caps = [cap if room is None else min(cap, room + 1 - len(ids)) for ids in prompts]
    sets = [[place for place in set_ if caps[place] == most] for set_ in batches(model, prompts) for most in sorted({*caps})]
    for places in filter(None, sets):
        own = [prompts[place] for place in places]
        begun = None if decoding.prefixes is None else decoding.prefixes.begin(own)
        processors = decoding.processors(model, [draws[place] for place in places] if draws else ())
        rows = None if on_step is None else RoundCriterion(len(own), partial(_renumbered, on_step, places))
        written |= zip(places, _generate(model, own, caps[places[0]], stops, begun, processors, rows), strict=True)
    return [written[place] for place in range(len(prompts))]


def _renumbered(on_step: OnStep, places: Sequence[int], rows: Sequence[int], tokens: Sequence[int]) -> Sequence[bool]:
    """Call ``on_step`` with the rows' places in a larger batch."""
    return on_step([places[row] for row in rows], tokens)


def _generate(
    model: Any,
    prompts: list[list[int]],
    cap: int,
    stops: list[int],
    begun: PrefilledPrompts | None = None,
    processors: Sequence[Any] = (),
    rows: RoundCriterion | None = None,
) -> list[list[int]]:
    """Ids written after a batch of encoded prompts, of which ``begun`` may hold the beginnings."""
    from transformers import GenerationConfig

    prompts, heads = (prompts, [0] * len(prompts)) if begun is None else (begun.prompts, begun.heads)
    filled = _padded(prompts, heads)
    padded = torch.tensor([[stops[0] if token is None else token for token in row] for row in filled], device=model.device)
    mask = torch.tensor([[int(token is not None) for token in row] for row in filled], device=model.device)
    settings = GenerationConfig(  # type: ignore[no-untyped-call]
        do_sample=False, num_beams=1, max_new_tokens=cap, eos_token_id=stops, pad_token_id=stops[0]
    )
    saved = model.generation_config
    model.generation_config = settings  # else the model's own file fills what is not set here: penalties, top-k
    try:
        with torch.inference_mode():  # positions follow from the mask inside of `generate`
            return generate_in_rounds(model, padded, mask, settings, processors, None if begun is None else begun.cache, rows)
    finally:
        model.generation_config = saved


def _padded(prompts: Sequence[list[int]], heads: Sequence[int]) -> list[list[int | None]]:
    """Rows of one length: a prompt's first ``heads`` tokens and the others, each part filled up on its left with ``None``."""
    first = max(heads)
    rest = max(len(ids) - head for ids, head in zip(prompts, heads, strict=True))
    return [
        [None] * (first - head) + [*ids[:head]] + [None] * (rest - len(ids) + head) + [*ids[head:]]
        for ids, head in zip(prompts, heads, strict=True)
    ]
