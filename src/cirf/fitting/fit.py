"""A recipe fitted to a user's file: the decisions of `choices` in order, and notes for the user."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from cirf.errors import CirfError
from cirf.fitting import choices
from cirf.fitting.choices import Choice, draft
from cirf.fitting.cost import Room, in_hours, in_words, operations, speed, training_memory, updates_of
from cirf.fitting.facts import Facts, look
from cirf.rationales.check import CountTokens, TaskCheck, check, says_little
from cirf.recipe.load import parse
from cirf.recipe.schema import NAME, Backbone, Finetune, Recipe
from cirf.recipe.yaml import scalar
from cirf.store.hub_names import is_hub_name, short, stem
from cirf.tasks import resolve
from cirf.tasks.loading.load import load_problems

FEW = 50
"""Below this many usable rows a model learns at most the form of traces."""

SLOW = 3600
"""Seconds of training from which on a note says how long it takes."""

_LONGEST_NAME, _LEAST = 60, 2

_AROUND = 30
"""Tokens of a chat template around a question, about."""

_SMALL = "bundled:smollm2-135m-instruct"


@dataclass(frozen=True, slots=True)
class Fitted:
    """A recipe as YAML, and notes on problems."""

    text: str
    notes: tuple[str, ...]


def fit(recipe: Recipe, sizes: Mapping[str, int] | None, count: CountTokens, exact: bool, free: int | None = None) -> Fitted:
    """The recipe for a file, from one that names its ``train_file``, the backbone and, where there is one, the data folder.

    ``sizes`` of the backbone: its ``parameters`` or, where it is on this machine, all of `parameter_count`; ``None`` if unknown.
    ``count``: text to tokens, ``exact`` where by the backbone's tokenizer; ``free``: bytes of memory, if known. ``CirfError``
    where no recipe would work.
    """
    parameters = None if sizes is None else sizes["parameters"]
    file, model = recipe.problems.tasks[0].train_file or "", recipe.backbone.model
    facts = look(recipe, count)
    if facts.rows < _LEAST:
        raise CirfError(f"{file}: a single question cannot be trained on and tested with; {_instead(facts)}")
    chosen = _problems(facts, recipe, parameters)
    header = _header(facts, file)
    if facts.bare:
        chosen += _taught(facts)
        steps = choices.STEPS_GUESSED * _trained_on(draft(header, chosen))[0]
        rows = steps // choices.STEPS_GUESSED
        more = [choices.codebook(steps, guessed=True)]
        more += choices.finetune(rows, parameters, model)
    else:
        part = recipe.rationales.part
        chosen += [Choice("rationales.part", part, "as --part said")] if part != "auto" else []
        chosen += [*choices.segments(facts), *choices.embeddings(facts)]
        by_results = choices.results(facts)
        rows, found = _trained_on(draft(header, [*chosen, *by_results]), count)
        if found is None or not rows:
            usable = f"{facts.found.usable} usable {'row is' if facts.found.usable == 1 else 'rows are'}"
            raise CirfError(f"{file}: {usable} too few to train on and to test with; {_instead(facts)}")
        prose = facts.found.rationale_tokens_longest
        room = None
        if sizes is not None and "layers" in sizes and free is not None:
            needed = partial(_needed, recipe.backbone, sizes, facts.longest_question)
            room = Room(free, partial(needed, facts.found.trace_tokens_longest), partial(needed, prose))
        more = [choices.codebook(found.steps_total), *by_results, *choices.finetune(rows, parameters, model, room)]
        more += choices.longest_row(facts.longest_question + prose)
        more += choices.caps(facts.found, exact)
        more.append(choices.budget(found))
    text = draft(header, [*chosen, *more])
    fitted = parse(text)
    notes = [*_notes(facts, file, model, parameters, rows, fitted), *_slow(facts, fitted, sizes, rows)]
    return Fitted(text, tuple(notes))


def _instead(facts: Facts) -> str:
    """What to do about a file with too few usable rows: what `check` knows of the others, else to add some."""
    known = [f"left out: {facts.causes}"] if facts.causes else []
    if facts.unusable is not None:
        first = facts.unusable.errors[0]
        known += [f"{first.place}: {first.message}"] if first.message != first.reason else []
    known += [note for note in facts.notes if note.startswith("columns")]
    return "; ".join(known) or "add rows, some hundreds at best"


def _needed(backbone: Backbone, sizes: Mapping[str, int], question: int, target: int, batch: int) -> float:
    """Bytes of a training with ``batch`` rows a forward pass, of so many tokens of the longest question and target."""
    section = Finetune(batch_size=batch)
    return training_memory(backbone, section, sizes, question + target, target)


def _slow(facts: Facts, recipe: Recipe, sizes: Mapping[str, int] | None, rows: int) -> Sequence[str]:
    """A sentence where training by the recipe takes long on this machine. Only for a backbone whose configuration is there."""
    section, found = recipe.finetune, facts.found
    if facts.bare or sizes is None or "inside" not in sizes or found.trace_tokens is None or found.rationale_tokens is None:
        return []
    prompt, passes = facts.question_tokens + _AROUND, updates_of(section, rows).passes
    targets = [found.trace_tokens, found.rationale_tokens, 1.0]
    work = sum(operations(section, sizes, rows * passes * (prompt + target), rows * passes * target) for target in targets)
    seconds = work / speed(recipe.backbone, section, sizes, prompt + fmean(targets))
    if seconds < SLOW:
        return []
    smaller = "" if recipe.backbone.model == _SMALL else f"; --model {_SMALL} is faster, and less accurate"
    return [f"training takes about {in_hours(seconds)} on this machine at its present load{smaller}"]


def name_of(file: str) -> str:
    """A name for the recipe and its table that can name a folder, from the file's."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", stem(file))[:_LONGEST_NAME].lstrip(".-")
    return plain if re.fullmatch(NAME, plain) else "mine"


def _header(facts: Facts, file: str) -> list[str]:
    return [
        f"Written by `cirf init` for {scalar(short(file))}: {facts.rows:,} questions, {facts.found.usable:,} with a "
        "rationale to learn from.",
        "Each value has its reason next to it; `cirf recipes --schema` lists all other keys.",
        "Next: `cirf run FILE --dry-run` estimates time and memory, `cirf run FILE` trains and compares, `cirf ask` answers.",
    ]


def _problems(facts: Facts, recipe: Recipe, parameters: int | None) -> list[Choice]:
    entry = recipe.problems.tasks[0]
    name = name_of(entry.train_file or "")
    source = "the commit that is there now" if is_hub_name(entry.train_file or "") else "as given"
    size = "of unknown size" if parameters is None else f"{in_words(parameters)} parameters"
    tested = choices.test_share(facts.rows)
    chosen = [
        Choice("name", name, "from the file's name; the run is in runs/NAME"),
        Choice("methods", choices.METHODS, choices.WHY_THESE),
        Choice("backbone.model", recipe.backbone.model, size),
    ]
    if recipe.problems.data is not None:
        chosen.append(Choice("problems.data", recipe.problems.data, "as --data said"))
    if facts.unusable is not None and facts.unusable.share > recipe.problems.max_unusable_share:
        share = math.ceil(100 * facts.unusable.share) / 100
        note = f"{len(facts.unusable.errors):,} of {facts.unusable.rows:,} rows cannot be used; `cirf check` lists them"
        chosen.append(Choice("problems.max_unusable_share", share, note))
    return [
        *chosen,
        choices.held_out(facts.rows, int(tested.value)),
        Choice("problems.tasks.0.task", "jsonl", "rows of your own"),
        Choice("problems.tasks.0.name", name, "in tables"),
        Choice("problems.tasks.0.train_file", entry.train_file, f"{source}; test rows are held out from it"),
        *([Choice("problems.tasks.0.columns", entry.columns, "as --columns said")] if entry.columns else []),
        *([Choice("problems.tasks.0.delimiter", entry.delimiter, "as --delimiter said")] if entry.delimiter else []),
        choices.answer(facts),
        tested,
    ]


def _taught(facts: Facts) -> list[Choice]:
    """Rationales that a language model is to write."""
    endpoint = {"url": "local", "model": choices.TEACHER}
    return [
        Choice("rationales.source", "teacher", f"none of {facts.rows:,} rows has a rationale, so a language model writes them"),
        Choice("rationales.teacher.endpoints", [endpoint], "in this process; a server with a larger model is better"),
    ]


def _trained_on(text: str, count: CountTokens | None = None) -> tuple[int, TaskCheck | None]:
    """How many rows a recipe trains on, and with a counter of tokens what `check` finds of these."""
    recipe = parse(text)
    train = load_problems(recipe.problems, recipe.seed).train
    if count is None:
        return len(train), None
    tasks = resolve(recipe.problems)
    found = check(train, recipe.rationales, recipe.segments, recipe.results, tasks, count, recipe.problems.data).total
    return found.usable, found


def _notes(facts: Facts, file: str, model: str, parameters: int | None, rows: int, recipe: Recipe) -> Sequence[str]:
    notes = []
    if facts.bare:
        notes.append(
            f"{file}: no row has a rationale, so the recipe has {choices.TEACHER} write them; name a better model in "
            "rationales.teacher.endpoints, or add `rationale` to the rows"
        )
    elif rows < FEW:
        left = f"{facts.found.usable} usable rows leave {rows} to learn from"
        notes.append(f"{file}: {left}, which are too few; {FEW} are needed, 300 are better")
    lost = {reason: number for reason, number in facts.found.unusable.items() if number} if not facts.bare else {}
    if lost:
        why = "; ".join(f"{number:,} {reason}" for reason, number in lost.items())
        notes.append(f"{file}: of {facts.rows:,} questions {facts.found.usable:,} can be trained on (left out: {why})")
    notes += [f"{file}: {note}" for note in facts.notes]
    if facts.unusable is not None and facts.unusable.share > type(recipe.problems).model_fields["max_unusable_share"].default:
        notes.append(
            f"{file}: {len(facts.unusable.errors):,} of {facts.unusable.rows:,} rows cannot be used, which the recipe allows "
            f"(problems.max_unusable_share); `cirf check {file}` lists them"
        )
    if not facts.bare and says_little(facts.found.share_results_empty, facts.found.rules, facts.found.usable):
        notes.append(
            f"{file}: {facts.found.share_results_empty:.0%} of the steps have no result, so traces say little; "
            "write in each step what it finds"
        )
    if parameters is None:
        rate = recipe.finetune.learning_rate
        notes.append(f"{model}: not on this machine, and its name gives no size; finetune.learning_rate {rate:g} is a guess")
    if (made := updates_of(recipe.finetune, rows)).too_few:
        notes.append(f"{file}: {made.summary.removeprefix('updates: ')}")
    return notes
