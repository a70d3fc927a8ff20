"""Answers: batched decoding for accuracy, one at a time for latency."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch

from cirf.errors import CirfError
from cirf.lm.decoding.prefix_cache import Beginnings, Begun
from cirf.lm.decoding.rounds import OnStep, Watch, batches, generate_in_rounds, is_movable, past_of, take_rows
from cirf.lm.decoding.sampling import NO_VOTE, draw, drawing
from cirf.lm.prompt import encode, stop_ids

Steer = Callable[[], Sequence[Any]]
"""Makes the logits processors of one batch (see `cirf.lm.decoding.trace_grammar`); ``tuple``: none."""


@dataclass(frozen=True, slots=True)
class Output:
    """What a model wrote after one prompt.

    ``text`` is decoded without the end token but with functional tokens; ``ids`` are all generated ids and ``tokens``
    their number, the end token included; ``truncated``: the cap was reached before an end token.
    """

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
    temperature: float = 0.0,
    top_p: float = 1.0,
    seed: int | Sequence[int] = 0,
    batch_size: int = 32,
    done: Callable[[int], None] = lambda count: None,
    prefixes: Beginnings | None = None,
    steer: Steer = tuple,
) -> list[Output]:
    """Outputs of rendered prompts, in their order.

    Prompts are decoded in fixed batches of like length, the longest first (so that memory runs out at once or never),
    padded on the left; of equal length where padding changes what the model answers. The model's own generation settings
    (sampling, penalties) are not used: ``temperature`` 0 is greedy, else an answer is sampled from the nucleus ``top_p`` by
    its own random numbers, seeded by ``seed`` (one for all, or one per prompt) and its prompt: it is the same in every batch up
    to rounding, and none of `sample_many`'s.

    Args:
        prompts: rendered by ``prompt_text``; nothing is added to them.
        cap: most tokens of an output, the end token included.
        done: called after each batch with the number of prompts it answered.
        prefixes: computes the beginning of prompts by other means: a shared part once for all, or thoughts of the model;
            ``None``: prompts are read token by token.
        steer: makes the logits processors of a batch.

    Raises:
        CirfError: no memory for a batch.
    """
    encoded = [encode(tokenizer, prompt) for prompt in prompts]
    order = sorted(range(len(prompts)), key=lambda i: (-len(encoded[i]), i))
    stops = stop_ids(model, tokenizer)
    seeds = [seed] * len(prompts) if isinstance(seed, int) else seed
    draws = [draw(own, prompt, NO_VOTE) for own, prompt in zip(seeds, prompts, strict=True)]
    outputs: dict[int, Output] = {}
    sets = [[order[place] for place in places] for places in batches(model, [encoded[i] for i in order])]
    for batch in [own[start : start + batch_size] for own in sets for start in range(0, len(own), batch_size)]:
        ids = [encoded[i] for i in batch]
        try:
            begun = None if prefixes is None else prefixes.begin(ids)
            processors = [*steer(), *drawing(model, temperature, top_p, [draws[i] for i in batch])]
            written = _generate(model, ids, cap, stops, begun=begun, processors=processors)
        except torch.OutOfMemoryError:
            raise CirfError(f"no memory to decode {len(batch)} prompts at once; lower evaluate.batch_size") from None
        outputs |= {i: output_of(tokenizer, ids, stops) for i, ids in zip(batch, written, strict=True)}
        done(len(batch))
    return [outputs[i] for i in range(len(prompts))]


def go_on(model: Any, tokenizer: Any, begun: Begun, cap: int, written: Sequence[Sequence[int]]) -> list[Output]:
    """Greedy outputs of one batch of rows that were begun already.

    ``written`` [b]: ids at the end of each row that count as the model's own: they are part of its output, and of its cap.

    Raises:
        CirfError: no memory for the batch.
    """
    stops = stop_ids(model, tokenizer)
    left = max(1, cap - min(map(len, written)))
    try:
        made = _generate(model, begun.prompts, left, stops, begun=begun)
    except torch.OutOfMemoryError:
        raise CirfError(f"no memory to decode {len(written)} prompts at once; lower evaluate.batch_size") from None
    return [output_of(tokenizer, [*before, *ids][:cap], stops) for before, ids in zip(written, made, strict=True)]


def generate_one(
    model: Any,
    tokenizer: Any,
    prompt: str,
    cap: int,
    temperature: float = 0.0,
    top_p: float = 1.0,
    seed: int = 0,
    on_text: Callable[[str], None] | None = None,
    prefixes: Beginnings | None = None,
    steer: Steer = tuple,
) -> TimedOutput:
    """One answer at batch 1 with its times, tokenising and decoding included.

    ``on_text`` is given the text so far as it grows, for showing an answer while it is written. The time holds what
    ``prefixes`` have not kept yet (see `Beginnings.prepare`).
    """
    watch = _Watch(tokenizer, on_text, stop_ids(model, tokenizer))
    _synchronise(model)
    started = time.perf_counter()
    ids = encode(tokenizer, prompt)
    begun = None if prefixes is None else prefixes.begin([ids])
    processors = [*steer(), *drawing(model, temperature, top_p, [draw(seed, prompt, NO_VOTE)])]
    written = _generate(model, [ids], cap, watch.stops, watch, begun=begun, processors=processors)[0]
    output = output_of(tokenizer, written, watch.stops)
    seconds = time.perf_counter() - started
    first = None if watch.first is None else watch.first - started
    return TimedOutput(output.tokens, seconds, first, output.text, output.truncated, output.ids)


def sample_many(
    model: Any,
    tokenizer: Any,
    prompt: str,
    cap: int,
    count: int,
    temperature: float,
    top_p: float,
    seed: int,
    first: int = 0,
    prefixes: Beginnings | None = None,
    steer: Steer = tuple,
) -> list[Output]:
    """The answers ``first`` to ``first + count - 1`` to one prompt, sampled in one batch; the prompt is computed once and its
    cache shared by all.

    Every answer has its own random numbers, seeded by ``seed``, the prompt and the answer's number. So it is the
    same answer however many others are drawn with it (up to the rounding of another batch size), and further
    ones can be drawn later. ``temperature`` 0 is greedy: all answers are alike. Of the prompt ``prefixes`` may hold the
    beginning. ``CirfError``: no memory.
    """
    stops = stop_ids(model, tokenizer)
    draws = [draw(seed, prompt, first + place) for place in range(count)]
    rows = _sampled(model, tokenizer, prompt, cap, temperature, top_p, draws, stops, prefixes, steer)
    return [output_of(tokenizer, row, stops) for row in rows]


def sample_until(
    model: Any,
    tokenizer: Any,
    prompt: str,
    cap: int,
    count: int,
    temperature: float,
    top_p: float,
    seed: int,
    enough: Callable[[Mapping[int, Output]], bool],
    prefixes: Beginnings | None = None,
    steer: Steer = tuple,
) -> tuple[dict[int, Output], int]:
    """The answers of `sample_many`, by number, that were finished when ``enough`` said so; and the number of tokens written,
    unfinished answers included.

    ``enough`` is called with all finished answers whenever one more is finished. ``CirfError``: no memory.
    """
    stops = stop_ids(model, tokenizer)
    made: list[list[int]] = [[] for _ in range(count)]
    finished: dict[int, Output] = {}
    over = False

    def step(rows: Sequence[int], tokens: Sequence[int]) -> list[bool]:
        nonlocal over
        before = len(finished)
        for row, token in zip(rows, tokens, strict=True):
            made[row].append(token)
            if token in stops or len(made[row]) == cap:
                finished[row] = output_of(tokenizer, made[row], stops)
        over = over or (len(finished) > before and enough(finished))
        return [over or row in finished for row in rows]

    draws = [draw(seed, prompt, place) for place in range(count)]
    _sampled(model, tokenizer, prompt, cap, temperature, top_p, draws, stops, prefixes, steer, step)
    return finished, sum(map(len, made))


def follow(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[list[int]],
    cap: int,
    on_step: OnStep,
    temperature: float = 0.0,
    top_p: float = 1.0,
    draws: Sequence[str] = (),
    prefixes: Beginnings | None = None,
    steer: Steer = tuple,
) -> None:
    """Answer encoded prompts in one batch, each row as if alone, and pass every token to ``on_step`` as it is generated.

    Greedily, or at a ``temperature`` each row with its own random numbers, seeded by its text in ``draws`` (see `draw`): it
    is the answer that `sample_many` gives. ``on_step`` may end rows before their time; ``cap`` is for those that it does not.

    Raises:
        CirfError: no memory for the batch.
    """
    stops = stop_ids(model, tokenizer)
    try:
        for places in batches(model, prompts):
            own = [prompts[place] for place in places]
            begun = None if prefixes is None else prefixes.begin(own)
            watch = Watch(len(own), partial(_renumbered, on_step, places))
            steered = [*steer(), *drawing(model, temperature, top_p, [draws[place] for place in places] if draws else ())]
            _generate(model, own, cap, stops, begun=begun, processors=steered, rows=watch)
    except torch.OutOfMemoryError:
        raise CirfError(f"no memory to decode {len(prompts)} prompts at once; send shorter ones, or fewer") from None


def _renumbered(on_step: OnStep, places: Sequence[int], rows: Sequence[int], tokens: Sequence[int]) -> Sequence[bool]:
    """Call ``on_step`` with the rows' places in a larger batch."""
    return on_step([places[row] for row in rows], tokens)


def output_of(tokenizer: Any, ids: list[int], stops: Collection[int]) -> Output:
    """What the ids written after a prompt say, up to the first of ``stops``."""
    end = next((place for place, token in enumerate(ids) if token in stops), None)
    body = ids if end is None else ids[:end]
    text = tokenizer.decode(body, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    count = len(ids) if end is None else end + 1
    return Output(text, count, end is None, tuple(ids[:count]))


def _shared(model: Any, ids: list[int], count: int, prefixes: Beginnings | None) -> Begun | None:
    """All but the prompt's last token, once for each of ``count`` rows; ``None`` where the model keeps another kind of cache."""
    begun = None if prefixes is None else prefixes.begin([ids])
    if begun is not None and not is_movable(begun.cache):
        return prefixes.begin([ids] * count) if prefixes is not None else None
    ids = begun.prompts[0] if begun else ids
    if len(ids) < 2 or count < 2:
        return begun
    start, cache = (begun.heads[0], begun.cache) if begun else (0, None)
    if start < len(ids) - 1:
        left = torch.tensor([ids[start:-1]], device=model.device)
        with torch.inference_mode():
            cache = past_of(model(input_ids=left, past_key_values=cache, use_cache=True, logits_to_keep=1))
    if not is_movable(cache):
        return None
    take_rows(cache, torch.zeros(count, dtype=torch.long, device=model.device))
    return Begun([ids] * count, [len(ids) - 1] * count, cache)


def _sampled(
    model: Any,
    tokenizer: Any,
    prompt: str,
    cap: int,
    temperature: float,
    top_p: float,
    draws: Sequence[str],
    stops: list[int],
    prefixes: Beginnings | None,
    steer: Steer,
    on_step: OnStep | None = None,
) -> list[list[int]]:
    """Ids of sampled answers to one prompt, one a text of ``draws``, which seeds it."""
    ids, count = encode(tokenizer, prompt), len(draws)
    written: dict[int, list[int]] = {}
    try:
        for places in batches(model, [ids] * count):
            processors = [*steer(), *drawing(model, temperature, top_p, [draws[place] for place in places])]
            watch = None if on_step is None else Watch(len(places), partial(_renumbered, on_step, places))
            begun = _shared(model, ids, len(places), prefixes)
            made = _generate(model, [ids] * len(places), cap, stops, begun=begun, processors=processors, rows=watch)
            written |= dict(zip(places, made, strict=True))
        return [written[place] for place in range(count)]
    except torch.OutOfMemoryError:
        raise CirfError(f"no memory to draw {count} answers at once; ask for fewer votes") from None


class _Watch:
    """A streamer in the sense of ``transformers``: sees every token as it is generated, the prompt first."""

    def __init__(self, tokenizer: Any, on_text: Callable[[str], None] | None, stops: list[int]) -> None:
        self.tokenizer, self.on_text, self.stops = tokenizer, on_text, stops
        self.first: float | None = None
        self.prompt_seen = False
        self.ids: list[int] = []

    def put(self, value: torch.Tensor) -> None:
        if not self.prompt_seen:
            self.prompt_seen = True
            return
        if self.first is None:
            self.first = time.perf_counter()
        if self.on_text is not None:
            self.ids += value.flatten().tolist()
            self.on_text(output_of(self.tokenizer, self.ids, self.stops).text)

    def end(self) -> None:
        """Nothing is held back."""


def _generate(
    model: Any,
    prompts: list[list[int]],
    cap: int,
    stops: list[int],
    watch: _Watch | None = None,
    begun: Begun | None = None,
    processors: Sequence[Any] = (),
    rows: Watch | None = None,
) -> list[list[int]]:
    from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList

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
        with torch.inference_mode():
            # Positions follow from the mask inside `generate`.
            if len(prompts) > 1:
                cache = None if begun is None else begun.cache
                return generate_in_rounds(model, padded, mask, settings, cap, stops, processors, cache, rows)
            made = model.generate(
                input_ids=padded,
                attention_mask=mask,
                generation_config=settings,
                streamer=watch,
                logits_processor=LogitsProcessorList(processors),
                stopping_criteria=StoppingCriteriaList([] if rows is None else [rows]),
                **({} if begun is None else {"past_key_values": begun.cache}),
            )
    finally:
        model.generation_config = saved
    written: list[list[int]] = made[:, padded.shape[1] :].tolist()
    return written


def _padded(prompts: Sequence[list[int]], heads: Sequence[int]) -> list[list[int | None]]:
    """Rows of one length: a prompt's first ``heads`` tokens and the others, each part filled up on its left with ``None``."""
    first = max(heads)
    rest = max(len(ids) - head for ids, head in zip(prompts, heads, strict=True))
    return [
        [None] * (first - head) + [*ids[:head]] + [None] * (rest - len(ids) + head) + [*ids[head:]]
        for ids, head in zip(prompts, heads, strict=True)
    ]


def _synchronise(model: Any) -> None:
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)
