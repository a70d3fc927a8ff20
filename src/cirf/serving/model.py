"""A saved model for inference, with the number format, device and caps of the recipe in its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cirf.assets import is_local
from cirf.assets.hub import snapshot
from cirf.codebook.functions import find_model, functions_of, steps_of
from cirf.lm.prompt import stop_ids
from cirf.lm.vocabulary import TokenNames, opened_by_prompt, token_names
from cirf.methods.prose.cot import ANSWER_MARK, calculating
from cirf.recipe.load import load
from cirf.recipe.schema import Backbone, Evaluate
from cirf.store.integrity import check_model
from cirf.store.paths import user_path

if TYPE_CHECKING:
    from cirf.lm.decoding.generate import Steer
    from cirf.lm.decoding.prefix_cache import Prefiller
    from cirf.lm.decoding.trace_grammar import Steering

LONGEST_ANSWER = 64
"""Tokens of an answer, on top of the cap of a trace."""


@dataclass(frozen=True)
class Answer:
    """The parts of an output: the ``reasoning`` before the answer (a trace without its delimiters, or prose), the steps of a
    trace, and the answer itself."""

    reasoning: str
    steps: Sequence[Mapping[str, Any]]
    answer: str


@dataclass(frozen=True)
class ServedModel:
    """A model with everything needed for inference.

    ``functions``: the functions of its functional tokens, ``names``: their names; empty and ``None`` for a model without any;
    ``opened``: its prompts end with the opening delimiter. ``cap``: most tokens of an output; ``context``: most tokens of prompt
    and output together; ``limits`` and ``seed`` as its recipe has them. ``at_most``, ``together``: limits of codes in every
    answer (`cirf.lm.decoding.trace_grammar.Steering`).
    """

    name: str
    model: Any
    tokenizer: Any
    functions: Mapping[str, Any]
    names: TokenNames | None
    opened: bool
    thinking: Prefiller | None
    cap: int
    context: int
    limits: Evaluate
    seed: int
    at_most: Mapping[int, int] = field(default_factory=dict)
    together: tuple[tuple[tuple[int, ...], int], ...] = ()

    def steer(self, how: Steering | None, calculator: bool = False) -> Steer:
        """What makes the processors that steer an answer; ``tuple`` if no steering is requested or possible."""
        counted = calculating(self.tokenizer) if calculator else tuple
        if (how is None and not self.at_most and not self.together) or self.names is None:
            return counted
        from cirf.lm.decoding.trace_grammar import Steering, SteeringProcessor, limited

        how = limited(how or Steering(), self.at_most, self.together)

        names = self.names
        return lambda: (SteeringProcessor(how, names, self.tokenizer, stop_ids(self.model, self.tokenizer)), *counted())

    def read(self, text: str, cut: bool = False) -> Answer:
        """An output, taken apart; ``cut``: a cap cut it off."""
        from cirf.serving.reading import read_output

        if self.names is None:
            prose, _, answer = text.rpartition(ANSWER_MARK)  # all is answer without the mark
            return Answer(prose.strip(), (), answer.strip())
        trace, answer = read_output(text, self.names, self.opened, cut)
        return Answer(trace, steps_of(trace, self.functions), answer)


def load_served(model: str | Path, trust: bool = False) -> ServedModel:
    """Load a model: a run's folder (its CIRF model), a model's folder, a hub id or ``bundled:NAME``.

    Its name is that of its folder. ``trust``: code that comes with the model may run; the recipe in its folder, which is from
    wherever the model is from, has no say in that. ``CirfError`` where there is none, or it is damaged.
    """
    from cirf.cpu.packed import settle
    from cirf.lm import backbone
    from cirf.methods.saved import saved_beginnings

    path = user_path(model)
    may_be_hub = str(model).count("/") == 1 and not is_local(str(model))  # owner/name
    elsewhere = isinstance(model, str) and not path.exists() and (model.startswith("bundled:") or may_be_hub)
    if elsewhere:
        folder = Path(backbone.locate(model)) if str(model).startswith("bundled:") else snapshot(str(model))
    else:
        folder = find_model(path)
    functions = functions_of(folder)
    recipe = load(str(path / "recipe.yaml")) if (path / "recipe.yaml").is_file() else None
    section, limits, seed = (recipe.backbone, recipe.evaluate, recipe.seed) if recipe else (Backbone(), Evaluate(), 0)
    section = section.model_copy(update={"trust_remote_code": trust})
    source = str(folder)
    check_model(folder.resolve())
    tokenizer = backbone.load_tokenizer(source, section)
    loaded = backbone.load_model(source, section, training=None)
    backbone.check_vocabulary(loaded.config, tokenizer, source)
    settle(loaded, section.attn_implementation)
    config = loaded.config.get_text_config(decoder=True)
    context = next((int(found) for key in ("max_position_embeddings", "n_positions") if (found := getattr(config, key, 0))), 2048)
    called = str(model).rpartition(":")[2] if elsewhere else path.resolve().name
    names = token_names(functions["size"], functions["delimiters"]) if functions else None
    cap = limits.max_trace_tokens + LONGEST_ANSWER if functions else limits.max_new_tokens
    opened, thinking = names is not None and opened_by_prompt(tokenizer, names), saved_beginnings(folder, loaded, tokenizer)
    cap = min(cap, limits.max_completion_tokens or cap)
    return ServedModel(called, loaded, tokenizer, functions, names, opened, thinking, cap, context, limits, seed)
