"""Engines that `benchmarks.shape` decodes with: the project's own functions, and static caches by other ways.

Every engine is given prompts of one length and writes so many tokens after each, greedily; none of them ever ends before
(`benchmarks.shape_model.never_end`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from benchmarks.shape_model import synchronise


class Engine(Protocol):
    """Something that decodes."""

    name: str

    def write(self, prompts: Sequence[str], tokens: int) -> list[tuple[int, ...]]:
        """The ids written after each prompt, ``tokens`` of them each."""
        ...

    def forget(self) -> None:
        """Let go of all memory but the model's."""
        ...


class Own:
    """`cirf.lm.decoding.generate`: one answer at a time, or a batch in rounds; the cache grows with the answer."""

    name = "cirf"

    def __init__(self, model: Any, tokenizer: Any) -> None:
        """Hold on to them."""
        self.model, self.tokenizer = model, tokenizer

    def forget(self) -> None:
        """Nothing is kept."""

    def write(self, prompts: Sequence[str], tokens: int) -> list[tuple[int, ...]]:
        """As `Engine` says."""
        from cirf.lm.decoding import generate as decode

        if len(prompts) == 1:
            return [decode.generate_one(self.model, self.tokenizer, prompts[0], tokens).ids]
        outputs = decode.generate(self.model, self.tokenizer, prompts, tokens, batch_size=len(prompts))
        return [output.ids for output in outputs]


class Static:
    """transformers' ``generate`` with a static cache: on a GPU it compiles a step by itself and replays it as a CUDA graph."""

    name = "generate, static cache"

    def __init__(self, model: Any, tokenizer: Any, room: int, compiled: bool) -> None:
        """``room``: tokens that the cache has place for. One cache serves all calls: for another one a step is compiled anew."""
        from transformers import StaticCache

        self.model, self.tokenizer, self.compiled = model, tokenizer, compiled
        self.cache: Any = StaticCache(config=model.config, max_cache_len=room)
        self.name += ", compiled" if compiled else ""

    def write(self, prompts: Sequence[str], tokens: int) -> list[tuple[int, ...]]:
        """As `Engine` says."""
        import torch
        from transformers import GenerationConfig

        from cirf.lm.prompt import stop_ids

        ids, stops = encoded(self.model, self.tokenizer, prompts), stop_ids(self.model, self.tokenizer)
        settings = GenerationConfig(  # type: ignore[no-untyped-call]
            do_sample=False,
            max_new_tokens=tokens,
            eos_token_id=stops,
            pad_token_id=stops[0],
            disable_compile=not self.compiled,
        )
        self.cache.reset()
        saved = self.model.generation_config
        self.model.generation_config = settings
        try:
            with torch.no_grad():
                made = self.model.generate(
                    input_ids=ids,
                    attention_mask=torch.ones_like(ids),
                    generation_config=settings,
                    past_key_values=self.cache,
                )
        finally:
            self.model.generation_config = saved
        return [tuple(row) for row in made[:, ids.shape[1] :].tolist()]

    def forget(self) -> None:
        """Let go of the cache, and of what was compiled for it."""
        import torch

        self.cache = None
        if hasattr(self.model, "_compiled_call"):
            del self.model._compiled_call
            torch.compiler.reset()


class Replayed:
    """A loop of our own over a static cache: a step is recorded once as a CUDA graph and replayed, without compiling anything.

    Nothing in it waits for the device: the next token goes into the buffer that the step reads. Without a GPU the same step is
    computed anew each time.
    """

    name = "static cache"

    def __init__(self, model: Any, tokenizer: Any, batch: int, room: int) -> None:
        """Buffers for a batch of ``batch`` answers of at most ``room`` tokens, prompts included."""
        import torch
        from transformers import StaticCache

        self.model, self.tokenizer = model, tokenizer
        self.cache: Any = StaticCache(config=model.config, max_cache_len=room)
        self.token = torch.zeros(batch, 1, dtype=torch.long, device=model.device)
        self.graph: Any = None
        if model.device.type == "cuda":
            self.name += ", CUDA graph"

    def _step(self) -> None:
        logits = self.model(input_ids=self.token, past_key_values=self.cache, use_cache=True).logits
        self.token.copy_(logits[:, -1:].float().argmax(dim=-1))

    def _begin(self, ids: Any) -> None:
        self.cache.reset()
        logits = self.model(input_ids=ids, past_key_values=self.cache, use_cache=True, logits_to_keep=1).logits
        self.token.copy_(logits[:, -1:].float().argmax(dim=-1))

    def _record(self, ids: Any) -> None:
        """Record a step. What runs before it, on a stream of its own, has every library allocate what it needs."""
        import torch

        self._begin(ids)
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):
                self._step()
        torch.cuda.current_stream().wait_stream(aside)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self._step()

    def write(self, prompts: Sequence[str], tokens: int) -> list[tuple[int, ...]]:
        """As `Engine` says."""
        import torch

        ids = encoded(self.model, self.tokenizer, prompts)
        with torch.inference_mode():
            if self.graph is None and self.model.device.type == "cuda":
                self._record(ids)
            self._begin(ids)
            made = torch.empty(len(prompts), tokens, dtype=torch.long, device=self.model.device)
            made[:, :1] = self.token
            for place in range(1, tokens):
                if self.graph is None:
                    self._step()
                else:
                    self.graph.replay()
                made[:, place : place + 1] = self.token
            return [tuple(row) for row in made.tolist()]

    def forget(self) -> None:
        """Let go of the graph, and then of the cache that it writes to."""
        synchronise(str(self.model.device))
        self.graph = self.cache = None


def encoded(model: Any, tokenizer: Any, prompts: Sequence[str]) -> Any:
    """Prompts of one length as ids [b x s] on the model's device."""
    import torch

    from cirf.lm.prompt import encode

    return torch.tensor([encode(tokenizer, prompt) for prompt in prompts], device=model.device)


def apart(model: Any, tokenizer: Any, prompts: Sequence[str], ours: Sequence[Any], theirs: Sequence[Any]) -> dict[str, Any]:
    """How often two engines wrote the same, and of the others by how many nats the first one's token leads where they part.

    In 16 bits two ways of computing round otherwise, and a model that learned nothing has many near ties: a lead of a few
    hundredths is no fault, one of several nats is.
    """
    import torch

    leads = []
    for prompt, one, other in zip(prompts, ours, theirs, strict=True):
        place = next((i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), None)
        if place is None:
            continue
        head = encoded(model, tokenizer, [prompt])
        before = torch.cat([head, torch.tensor([one[:place]], device=head.device, dtype=head.dtype)], dim=1)
        with torch.inference_mode():
            logits = model(input_ids=before, logits_to_keep=1).logits[0, -1].float()
        leads.append(abs(float(logits[one[place]] - logits[other[place]])))
    return {"same": len(prompts) - len(leads), "of": len(prompts), "largest_lead": round(max(leads, default=0.0), 4)}
