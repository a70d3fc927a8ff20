"""Does a trained model work at all? Statistics of its answers to held-out training questions, and a sentence if it does not.

::

    Check(n=50, right=0.02, majority=0.24, truncated=0.72, well_formed=0.06, loops={"<cirf_028>": 31})
    -> "cirf_full is not trained enough to be used: only 6% of its answers to 50 held-out questions are well-formed
        and 72% are truncated (31 repeat '<cirf_028>'); ..."
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cirf.distributed import Share
from cirf.methods import get
from cirf.stages.context import Context
from cirf.stages.rewards import unchanged
from cirf.stages.scores import answer
from cirf.statistics import mean
from cirf.store.files import load_object, to_json, write_atomic
from cirf.store.jsonl import read_rows

if TYPE_CHECKING:
    from cirf.methods.base import Method

WELL_FORMED = 0.9
"""The smallest share of well-formed answers of a sufficiently trained model."""

USABLE = 0.5
"""The same, of a model whose settings complete the others."""

ENOUGH = 30
"""With fewer held-out questions a working model is often no better than the most frequent answer."""

_REPEATS, _LONGEST = 5, 60
"""Fewest repetitions of a text at the end of a loop; characters of that text."""

_ADVICE = (
    "train longer (finetune.epochs: auto, or more finetune.min_steps) or raise finetune.learning_rate or "
    "finetune.new_token_lr_multiplier; "
    "`cirf check` shows whether the results are empty"
)


@dataclass(frozen=True, slots=True)
class Check:
    """Shares over ``n`` held-out answers. ``majority``: the share that the most frequent training answer gets right;
    ``well_formed``: ``None`` for a method without a form; ``loops``: how many truncated answers end in a loop of a text.
    """

    n: int
    right: float
    majority: float
    truncated: float
    well_formed: float | None = None
    loops: Mapping[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def check(rows: Sequence[Mapping[str, Any]], majority: float) -> Check:
    """Statistics of the rows of an evaluation (`cirf.evaluation.harness`); ``ValueError`` if there are none."""
    loops = Counter(found for row in rows if row["truncated"] and (found := loop(row["output"])))
    formed = [row["well_formed"] for row in rows if "well_formed" in row]
    return Check(
        n=len(rows),
        right=mean([row["correct"] for row in rows]),
        majority=majority,
        truncated=mean([row["truncated"] for row in rows]),
        well_formed=mean(formed) if len(formed) == len(rows) else None,
        loops=dict(loops.most_common()),
    )


def loop(output: str) -> str:
    """The shortest text repeated five times or more at the end of an output; empty if there is none."""
    for length in range(1, min(_LONGEST, len(output) // _REPEATS) + 1):
        tail = output[-length:]
        if tail.strip() and output.endswith(tail * _REPEATS):
            start = max(tail.find("<"), 0)  # `028><cirf_` is `<cirf_028>`, from the opening of its first token
            return tail[start:] + tail[:start]
    return ""


def faults(name: str, found: Check, lifted: Mapping[str, Any] | None = None) -> list[str]:
    """A sentence if a model does not write the trained form, or is no better than the most frequent answer. ``lifted``: settings
    that complete a trace, without which the answers were written."""
    formed = 1.0 if found.well_formed is None else found.well_formed
    if formed < WELL_FORMED and lifted and formed >= USABLE:
        named = ", ".join(f"{key} {str(value).lower()}" for key, value in lifted.items())
        return [
            f"{name}: without its settings ({named}) {formed:.0%} of its answers to {found.n} held-out questions are "
            "well-formed; other engines need them too (docs/how-to/steering.md)"
        ]
    if formed < WELL_FORMED:
        cut = f" and {found.truncated:.0%} are truncated" if found.truncated else ""
        text, count = next(iter(found.loops.items()), ("", 0))
        looping = f" ({count} repeat {text!r})" if count else ""
        return [
            f"{name} is not trained enough to be used: only {formed:.0%} of its answers to {found.n} held-out questions are "
            f"well-formed{cut}{looping}; {_ADVICE}"
        ]
    if found.right <= found.majority and found.n >= ENOUGH:
        return [
            f"{name} answers no better than the most frequent answer: {found.right:.0%} of {found.n} held-out questions are "
            f"right, and always giving that answer gets {found.majority:.0%}; try more rows or a larger backbone.model"
        ]
    return []


def majority_share(training: Sequence[str], held_out: Sequence[str]) -> float:
    """The share of the held-out answers that are the most frequent training answer (the first of equally frequent ones)."""
    if not training or not held_out:
        return 0.0
    frequent = Counter(training).most_common(1)[0][0]
    return sum(answer == frequent for answer in held_out) / len(held_out)


def checking(context: Context, name: str, work: Path) -> dict[str, Any]:
    """Answer the first ``evaluate.check_questions`` held-out questions, greedily, and write ``check.json``; faults are notes.

    A model answers without its own settings that constrain the form, which would hide what it did not learn.
    """
    section = context.recipe.evaluate.model_copy(update={"temperature": 0.0, "runs": 1})
    held_out = context.held_out(section.check_questions)
    if not held_out:
        note = "no question is held out, so the model cannot be checked; raise problems.validation"
        write_atomic(work / "check.json", to_json({"n": 0, "faults": [], "note": note}))
        return {"rows": 0, "notes": [note]}
    method = get(name, context.recipe)
    lifted = _own_constraints(context, method)
    answer(_without(context, name, lifted), name, section, held_out, work, Share.of_launch())
    rows = [row for task in held_out for row in read_rows(work / f"{task}.jsonl")]
    training = context.train()
    share = sum(
        len(problems) * majority_share([p.answer for p in training if p.task == task], [p.answer for p in problems])
        for task, problems in held_out.items()
    ) / len(rows)
    found = check(rows, share)
    problems_found = [*_ended(context, name), *faults(name, found, lifted)]
    write_atomic(work / "check.json", to_json(found.to_dict() | {"faults": problems_found}))
    return {"rows": found.n, "notes": [f"WARNING: {line}" for line in problems_found]}


def _own_constraints(context: Context, method: Method) -> dict[str, Any]:
    """The recipe's settings that constrain the form of a method."""
    from cirf.methods.cirf.cirf import FormSettings

    variant = context.recipe.variants.get(method.name)
    if variant is None or not isinstance(method.settings, FormSettings):
        return {}
    return {key: value for key, value in variant.settings.items() if key in FormSettings.model_fields}


def _without(context: Context, name: str, settings: Mapping[str, Any]) -> Context:
    """The context with a recipe whose variant ``name`` has these settings no more."""
    if not settings:
        return context
    variant = context.recipe.variants[name]
    kept = {key: value for key, value in variant.settings.items() if key not in settings}
    variants = context.recipe.variants | {name: variant.model_copy(update={"settings": kept})}
    return replace(context, recipe=context.recipe.model_copy(update={"variants": variants}))


def _ended(context: Context, name: str) -> list[str]:
    """Why the training of the model that answers was ended early, where it was, and whether it came to nothing."""
    history = load_object(context.folder.folder(f"models/{name}") / "history.json") or {}
    return [*([history["ended"]] if "ended" in history else []), *unchanged(history)]
