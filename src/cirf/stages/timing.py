"""Latency: the methods of a run in turn, one question at a time."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cirf.methods import get
from cirf.stages import scores
from cirf.stages.context import Context
from cirf.stages.models import load, release, source_of, template_of
from cirf.store.files import to_json, write_atomic

if TYPE_CHECKING:
    from cirf.methods.base import Method


def latency(context: Context, work: Path) -> dict[str, Any]:
    """Time single questions from prompt to last token, the methods taking turns."""
    from cirf.evaluation.latency import measure

    recipe = context.recipe
    methods = {name: get(name, recipe) for name in recipe.methods if name not in recipe.evaluate.endpoints}
    bench = LoadedModels(context, methods)
    timings = measure(methods, context.tasks, context.test(), bench, recipe.evaluate, recipe.seed, context.progress, work=work)
    bench.release()
    write_atomic(work / "timings.json", to_json(timings))
    return {"rows": len(timings["rows"])}


class LoadedModels:
    """The models of a run's methods in memory, for `cirf.evaluation.latency`.

    Methods that answer with the same checkpoint share one model. All models are held at once if, all being as large as the
    first, they take at most half of the memory that was free before; else one at a time. The openings of a method's prompts are
    computed before the clock starts, as on a server that caches them.
    """

    def __init__(self, context: Context, methods: Mapping[str, Method]) -> None:
        release(context)
        self.context, self.methods = context, methods
        self.prefixes: dict[str, Any] = {}
        self.sources = {name: str(source_of(context, name)) for name in methods}
        self.held: dict[str, tuple[Any, Any]] = {}
        self.templates: dict[str, str] = {}
        self.growth: int | None = None

    @cached_property
    def groups(self) -> list[list[str]]:
        """Methods by checkpoint, in the recipe's order."""
        found: dict[str, list[str]] = {}
        for name, source in self.sources.items():
            found.setdefault(source, []).append(name)
        return list(found.values())

    @cached_property
    def together(self) -> bool:
        """Whether all models are held at once; loads the first one to find out."""
        return bool(self.loading["together"])

    @cached_property
    def loading(self) -> dict[str, Any]:
        """The number and bytes of the models, the free memory, and what follows from it."""
        from cirf.cpu.memory import free_memory
        from cirf.lm.backbone import pick_device

        free = free_memory(pick_device(self.context.recipe.backbone.device))
        first = self.groups[0][0]
        self.load_model(self.sources[first])
        weights = self._weights(first)
        count = len(self.groups)
        together = count == 1 or (free is not None and 2 * count * weights <= free)
        return {"together": together, "models": count, "weights_bytes": weights, "free_bytes": free}

    def facts(self) -> dict[str, Any]:
        """The setup of a time: engine, device, threads and number format."""
        import torch
        import transformers

        from cirf.cpu.number_formats import computed_in
        from cirf.environment import processor
        from cirf.lm.backbone import pick_device

        section = self.context.recipe.backbone
        device = pick_device(section.device)
        return {
            "engine": f"transformers {transformers.__version__}, torch {torch.__version__}",
            "device": f"{device} ({processor(device)})",
            "threads": section.threads or torch.get_num_threads(),
            "dtype": computed_in(section.dtype, device),
        }

    def load(self, methods: Sequence[str]) -> None:
        """Have these methods' models in memory, and no others unless all fit."""
        wanted = {self.sources[name] for name in methods}
        if not self.together:
            for source in self.held.keys() - wanted:
                del self.held[source]
            self.prefixes = {name: kept for name, kept in self.prefixes.items() if self.sources[name] in wanted}
            self._clean()
        for source in dict.fromkeys(self.sources[name] for name in methods):
            self.load_model(source)

    def render(self, method: str, prompt: str) -> str:
        """The chat template around a user's turn."""
        from cirf.lm.backbone import prompt_text

        source = self.sources[method]
        tokenizer = self.held[source][1]
        tokenizer.chat_template = template_of(self.context, method, source, tokenizer, self.templates[source])
        return prompt_text(tokenizer, prompt)

    def one(self, method: str, prompt: str, cap: int, run: int = 0) -> Any:
        """One answer at batch 1, drawn by the seed of a sampled run."""
        from cirf.lm.decoding import generate as decode

        section = self.context.recipe.evaluate
        model, tokenizer = self.held[self.sources[method]]
        prefixes = self._prefixes(method, prompt)
        before = allocated_memory(model)
        steer = self.methods[method].steer(model, tokenizer)
        decoding = decode.Decoding(section.temperature, section.top_p, self.context.run_seed(run), prefixes, steer)
        timed = decode.generate_one(model, tokenizer, prompt, cap, decoding)
        self.growth = None if before is None else peak_memory(model) - before
        return timed

    def memory(self, method: str) -> dict[str, int | None]:
        """Bytes of the weights, and on a GPU of what the last answer took besides.

        On a CPU the process's memory is shared by all models, and memory freed after one answer is kept for the next, so it
        cannot be split by method.
        """
        return {"weights_bytes": self._weights(method), "growth_bytes": self.growth}

    def release(self) -> None:
        self.held.clear()
        self.prefixes.clear()
        self._clean()

    def _prefixes(self, method: str, prompt: str) -> Any:
        """What keeps the openings of a method's prompts, that of ``prompt`` computed; ``None`` where they have none."""
        if method not in self.prefixes:
            source = self.sources[method]
            self.prefixes[method] = scores.beginnings(self.methods[method], self.context.tasks, *self.held[source], source)
        if self.prefixes[method] is not None:
            self.prefixes[method].prepare([prompt])
        return self.prefixes[method]

    def load_model(self, source: str) -> None:
        if source not in self.held:
            self.held[source] = load(self.context, source)
            self.templates[source] = self.held[source][1].chat_template

    def _weights(self, method: str) -> int:
        from cirf.cpu.memory import weight_bytes

        models = [self.held[self.sources[method]][0]]
        if (guide := getattr(self.prefixes.get(method), "guide", None)) is not None:
            models.append(guide)
        return sum(map(weight_bytes, models))

    def _clean(self) -> None:
        import torch

        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def allocated_memory(model: Any) -> int | None:
    """Bytes allocated on a model's GPU, its peak counter reset; ``None`` elsewhere."""
    if model.device.type != "cuda":
        return None
    import torch

    torch.cuda.reset_peak_memory_stats(model.device)
    return int(torch.cuda.memory_allocated(model.device))


def peak_memory(model: Any) -> int:
    import torch

    return int(torch.cuda.max_memory_allocated(model.device))
