"""A saved model as it is asked: by the number format, device and caps of the recipe that lies with it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cirf.analysis.functions import find_model, functions_of, steps_of
from cirf.recipe import Backbone, Evaluate
from cirf.recipe_io import load
from cirf.user_paths import user_path

if TYPE_CHECKING:
    from cirf.lm.decode import Steer
    from cirf.lm.drafts import Drafts
    from cirf.lm.prefix import Beginnings
    from cirf.lm.steering import Steering
    from cirf.lm.vocabulary import TokenNames

LONGEST_ANSWER = 64
"""Tokens of an answer, on top of the cap of a trace."""

_ROWS = 2000  # that guesses learn from: a second's work


@dataclass(frozen=True)
class Answer:
    """What was read in an output: the ``reasoning`` before the answer (a trace without its delimiters, or prose), the steps of a
    trace, and the answer itself."""

    reasoning: str
    steps: Sequence[Mapping[str, Any]]
    answer: str


@dataclass(frozen=True)
class Served:
    """A model with all that asking it needs.

    ``functions``: what its functional tokens stand for, and ``names`` what they are called; empty and ``None`` for a model
    without; ``opened``: its prompts end with the opening delimiter. ``drafts`` guess at what it writes. ``cap``: most tokens of
    an output; ``context``: most tokens of prompt and output together; ``limits`` and ``seed`` as its recipe has them.
    """

    name: str
    model: Any
    tokenizer: Any
    functions: Mapping[str, Any]
    names: TokenNames | None
    opened: bool
    thinking: Beginnings | None
    drafts: Drafts
    cap: int
    context: int
    limits: Evaluate
    seed: int

    def steer(self, how: Steering | None, calculator: bool = False) -> Steer:
        """What makes the processors that steer an answer; ``tuple`` where nothing is asked for, or nothing can be steered."""
        from cirf.methods.calculating import calculating

        counted = calculating(self.tokenizer) if calculator else tuple
        if how is None or self.names is None:
            return counted
        from cirf.lm.prompt import stop_ids
        from cirf.lm.steering import Steered

        names = self.names
        return lambda: (Steered(how, names, self.tokenizer, stop_ids(self.model, self.tokenizer)), *counted())

    def read(self, text: str, cut: bool = False) -> Answer:
        """An output, taken apart; ``cut``: a cap cut it off."""
        from cirf.methods.cot import ANSWER_MARK
        from cirf.serving.reading import read_output

        if self.names is None:
            prose, _, answer = text.rpartition(ANSWER_MARK)  # all is answer without the mark
            return Answer(prose.strip(), (), answer.strip())
        trace, answer = read_output(text, self.names, self.opened, cut)
        return Answer(trace, steps_of(trace, self.functions), answer)


def load_served(model: str | Path, trust: bool = False, int8: bool | None = None) -> Served:
    """Load a model: a run's folder (its CIRF model), a model's folder, a hub id or ``bundled:NAME``.

    It goes by its folder's name. ``trust``: code that comes with the model may run; the recipe in its folder, which is from
    wherever the model is from, has no say in that. ``int8``: so are its weights held, or not; ``None``: as the recipe says.
    ``CirfError`` where there is none, or it is damaged.
    """
    from cirf.lm import backbone
    from cirf.lm.int8 import settle_weights
    from cirf.lm.thinking import saved_beginnings
    from cirf.lm.vocabulary import opened_by_prompt, token_names

    path = user_path(model)
    elsewhere = isinstance(model, str) and not path.exists() and (model.startswith("bundled:") or _may_be_hub(model))
    folder = Path(backbone.locate(model)) if elsewhere else find_model(path)
    functions = functions_of(folder)
    recipe = load(str(path / "recipe.yaml")) if (path / "recipe.yaml").is_file() else None
    section, limits, seed = (recipe.backbone, recipe.evaluate, recipe.seed) if recipe else (Backbone(), Evaluate(), 0)
    section = section.model_copy(update={"trust_remote_code": trust})
    source = str(folder)
    tokenizer = backbone.load_tokenizer(source, section)
    loaded = backbone.load_model(source, section, training=None)
    settle_weights(loaded, limits.weights if int8 is None else "int8" if int8 else "saved", section.attention)
    config = loaded.config.get_text_config(decoder=True)
    context = next((int(found) for key in ("max_position_embeddings", "n_positions") if (found := getattr(config, key, 0))), 2048)
    called = str(model).rpartition(":")[2] if elsewhere else path.resolve().name
    names = token_names(functions["size"], functions["delimiters"]) if functions else None
    return Served(
        name=called,
        model=loaded,
        tokenizer=tokenizer,
        functions=functions,
        names=names,
        opened=names is not None and opened_by_prompt(tokenizer, names),
        thinking=saved_beginnings(folder, loaded, tokenizer),
        drafts=_drafts(folder, loaded, tokenizer),
        cap=limits.trace_cap + LONGEST_ANSWER if functions else limits.text_cap,
        context=context,
        limits=limits,
        seed=seed,
    )


def _drafts(folder: Path, model: Any, tokenizer: Any) -> Drafts:
    """Guesses that have learnt from the rows that a model was trained with, where they lie beside it."""
    from cirf.lm.drafts import Drafts
    from cirf.lm.prompt import encode, stop_ids
    from cirf.publishing.parcel import TRACES

    drafts, end = Drafts(tokenizer), stop_ids(model, tokenizer)[0]
    path = folder / TRACES
    with path.open(encoding="utf-8", errors="replace") if path.is_file() else nullcontext(()) as lines:
        for line in islice(lines, _ROWS):
            with suppress(ValueError, KeyError, TypeError):  # whatever else lies there is not learnt from
                row = json.loads(line)
                drafts.learn(encode(tokenizer, str(row["prompt"])), [*encode(tokenizer, str(row["completion"])), end])
    return drafts


def _may_be_hub(model: str) -> bool:
    """Whether a text looks like ``owner/name`` and not like a path."""
    return model.count("/") == 1 and not model.startswith((".", "/", "~"))
