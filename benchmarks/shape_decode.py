"""Engines for decoding in `benchmarks.shape`: cirf's own functions, and static caches.

Every engine gets prompts of one length and generates a fixed number of tokens after each, greedily. No answer ends earlier
(`benchmarks.shape_model.never_end`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from benchmarks.shape_model import synchronise


class Engine(Protocol):
    """An engine for decoding."""

    name: str

    def write(self, prompts: Sequence[str], tokens: int) -> list[tuple[int, ...]]:
        """The generated ids, ``tokens`` after each prompt."""
        ...

    def forget(self) -> None:
        """Free all memory except the model's."""
        ...


class Own:
    """`cirf.lm.decoding.generate`: one answer at a time or a batch; the cache grows with the answer."""

    name = "cirf"

    def __init__(self, model: Any, tokenizer: Any) -> None:
        """Keep model and tokenizer."""
        self.model, self.tokenizer = model, tokenizer

    def forget(self) -> None:
        """Nothing to free."""

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
        """``room``: tokens that fit into the cache. All calls share one cache, since another one would need a new compilation."""
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
        """Free the cache and the code compiled for it."""
        import torch

        self.cache = None
        if hasattr(self.model, "_compiled_call"):
            del self.model._compiled_call
            torch.compiler.reset()


class Replayed:
    """A loop over a static cache: a step is captured once as a CUDA graph and replayed, without compilation.

    It never synchronises with the device: the next token goes into the buffer that the step reads. Without a GPU the step runs
    eagerly.
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
        """Capture a step, after warm-up steps on a side stream in which libraries allocate their workspaces."""
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
        """Free the graph, then the cache that it writes to."""
        synchronise(str(self.model.device))
        self.graph = self.cache = None


def encoded(model: Any, tokenizer: Any, prompts: Sequence[str]) -> Any:
    """Prompts of one length as ids [b x s] on the model's device."""
    import torch

    from cirf.lm.prompt import encode

    return torch.tensor([encode(tokenizer, prompt) for prompt in prompts], device=model.device)


def apart(model: Any, tokenizer: Any, prompts: Sequence[str], ours: Sequence[Any], theirs: Sequence[Any]) -> dict[str, Any]:
    """How often two engines generated the same tokens; otherwise the lead of the first one's token in nats where they differ.

    In 16 bits two implementations round differently, and an untrained model has many near ties. A lead of a few hundredths is
    harmless, one of several nats is a fault.
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
