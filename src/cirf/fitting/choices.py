"""Settings for a user's rows: all thresholds of `cirf init`, and its decisions.

Each decision is a `Choice`: a recipe's key, its value, and the reason in words, with the number that it comes from.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from cirf.fitting.cost import Room, in_words, updates_of
from cirf.fitting.facts import Facts
from cirf.rationales.check import TaskCheck, mostly_by_function
from cirf.recipe.schema import Finetune
from cirf.recipe.yaml import inline, scalar

_WIDTH = 118


@dataclass(frozen=True, slots=True)
class Choice:
    """A recipe's key by its dotted path (a number is a place in a list), its value, and the reason."""

    key: str
    value: Any
    why: str


def draft(header: Sequence[str], choices: Sequence[Choice]) -> str:
    """The recipe of these choices as YAML, each with its reason, in their order; keys of one section must be adjacent::

    # Made by hand.
    codebook:
      size: 32  # 1,140 steps: 35 a functional token
    """
    return "".join(f"{line}\n" for line in (*(f"# {line}" for line in header), *_lines(choices)))


def _lines(choices: Sequence[Choice]) -> Iterator[str]:
    before: list[str] = []
    for choice in choices:
        *above, name = choice.key.split(".")
        opened = len([*takewhile(lambda pair: pair[0] == pair[1], zip(before, above, strict=False))])
        mark = ""
        for depth, part in enumerate(above):
            if depth < opened:
                continue
            if part.isdigit():
                mark = "- "
            else:
                yield f"{'  ' * depth}{part}:"
        before, indent = above, "  " * len(above)
        line = f"{indent.removesuffix('  ') + mark if mark else indent}{name}: {inline(choice.value)}"
        commented = f"{line}  # {choice.why}"
        if len(commented) <= _WIDTH:
            yield commented
        else:
            yield f"{indent.removesuffix('  ') if mark else indent}# {choice.why}"
            yield line


METHODS = ("cirf_full", "sft_cot", "direct_sft")
"""Functional tokens first, then their comparisons: prose, and answers alone."""

WHY_THESE = "functional tokens; prose to reach; bare answers to beat. For accuracy alone add terse_subjects, without tokens"

TEST_SHARE, TEST_MOST, TEST_FEWEST = 0.2, 200, 20
"""Of the rows, for the test: 200 questions distinguish 10 points, fewer than 20 show nothing."""

TEST_LARGEST_SHARE = 0.3
"""The largest share of the test with few rows."""

HELD_OUT = 50
"""Questions held out of training, to see whether a model learns (`evaluate.check_questions`)."""

HELD_OUT_SHARES = (0.05, 0.15)
"""The smallest and largest share of the training questions to hold out."""

FEW_ROWS, HELD_OUT_OF_FEW = 300, 0.1
"""Below this many rows at most this share is held out: training needs them more."""

STEPS_A_TOKEN, SMALLEST, LARGEST = 25, 8, 64
"""Fewest steps per functional token, and the fewest and most functional tokens."""

OPTION_BY_OPTION = 0.5
"""Share of the rationales cut by options from which on they count as going through these one by one."""

OPENING_WORDS = 4
"""Words of a step cut by function that are embedded: codes of these agree best with labelled functions."""

CALCULATING = 0.1
"""Share of the steps with a calculation from which on results keep it: worth 11 points where a small model calculates."""

BATCHES = (8, 4, 2)
"""Rows a forward pass: the first of them that makes enough updates of few rows."""

ACCUMULATION = ((1_000, 1), (3_000, 2))
"""Forward passes per update below this many training rows, so that an epoch over few rows makes enough updates."""

ACCUMULATION_ELSE = 4

LEARNING_RATES = ((300_000_000, 4e-4), (1_000_000_000, 2e-4), (4_000_000_000, 1e-4))
"""Peak learning rates below this many parameters: the smaller the model, the higher."""

LEARNING_RATE_ELSE, LEARNING_RATE_UNKNOWN = 5e-5, 1e-4

FEW_UPDATES, STEADY_BETA2 = 1_000, 0.95
"""Below this many updates Adam's second moment decays faster: the default remembers more updates than there are."""

TEXT_MARGIN, TRACE_MARGIN, COUNTED_IN_WORDS = 1.25, 1.5, 1.3
"""Factors of caps over the longest row, and an additional one if words are counted without the model's tokenizer."""

TRACE_FEWEST = 32
"""The smallest cap of a trace."""

STEPS_GUESSED = 3
"""Steps a rationale that is not written yet."""

TEACHER = "bundled:qwen2.5-coder-1.5b-instruct"
"""The writer of rationales if no row has one."""


def test_share(rows: int) -> Choice:
    wanted = max(round(TEST_SHARE * rows), TEST_FEWEST)
    most = max(1, int(TEST_LARGEST_SHARE * rows))
    taken = min(wanted, TEST_MOST, most)
    if taken == TEST_MOST:
        why = f"of {rows:,} rows; {TEST_MOST} are enough to distinguish methods by 10 points"
    elif taken == round(TEST_SHARE * rows):
        why = f"a fifth of {rows:,} rows"
    else:
        why = f"of {rows:,} rows; a test of few questions shows little"
    return Choice("problems.tasks.0.test", taken, why)


def held_out(rows: int, tested: int) -> Choice:
    rest = max(1, rows - tested)
    low, high = HELD_OUT_SHARES
    share = round(min(max(HELD_OUT / rest, low), high if rows >= FEW_ROWS else HELD_OUT_OF_FEW), 2)
    why = f"{max(1, round(share * rest)):,} of {rest:,} questions are not trained on, to see whether a model learns"
    return Choice("problems.validation", share, why)


def answer(facts: Facts) -> Choice:
    if facts.kind == "latex":
        return Choice("problems.tasks.0.answer", "latex", f"the {facts.answers:,} answers are formulas, compared by value")
    words = {"number": "numbers", "option": "options", "yesno": "yes or no", "text": "text"}[facts.kind]
    if facts.kind == "text":
        first = f": see line {facts.other}" if facts.other is not None else ""
        why = f"the {facts.answers:,} answers are not all numbers, options or yes/no{first}"
        return Choice("problems.tasks.0.answer", "text", why)
    rest = facts.answers - facts.alike
    more = f"; the other {rest:,} cannot be used" if rest else ""
    return Choice("problems.tasks.0.answer", facts.kind, f"{facts.alike:,} of {facts.answers:,} answers are {words}{more}")


def segments(facts: Facts) -> list[Choice]:
    names = {"ordinal": "step numbers", "line": "lines", "sentence": "sentences", "option": "options", "function": "function"}
    rules = sorted(facts.found.rules.items(), key=lambda item: -item[1])
    counts = ", ".join(f"{count:,} by {names.get(rule, rule)}" for rule, count in rules)
    few = "2 steps or more" if "function" in facts.found.rules else "2 to 10 steps"
    chosen = [Choice("segments.by", facts.by, f"cuts {counts}; {facts.few_steps:.0%} have {few}")]
    if facts.through_options >= OPTION_BY_OPTION:
        why = f"{facts.through_options:.0%} of the rationales go through the options one by one: one step for all of them"
        chosen.append(Choice("segments.options", "together", why))
    return chosen


def embeddings(facts: Facts) -> list[Choice]:
    """The parts of a step that are not embedded, so that its token encodes its function."""
    chosen = []
    if _thinks(facts):
        chosen.append(Choice("embeddings.words", OPENING_WORDS, "the first words show what a step does: wait, let me check"))
    if facts.kind != "option":
        return chosen
    chosen.append(Choice("embeddings.choices", "mask", "a token should not encode the option of a step"))
    if facts.through_options >= OPTION_BY_OPTION:
        chosen.append(Choice("embeddings.closing", "drop", "else last steps get tokens of their own, for their closing lines"))
    return chosen


def codebook(steps: int, guessed: bool = False) -> Choice:
    wanted = max(1, steps // STEPS_A_TOKEN)
    size = min(max(1 << (wanted.bit_length() - 1), SMALLEST), LARGEST, max(1, steps))
    about = "about " if guessed else ""
    return Choice("codebook.size", size, f"{about}{steps:,} steps to train on: {steps // size:,} a functional token")


def results(facts: Facts) -> list[Choice]:
    chosen = []
    if _thinks(facts):
        chosen.append(Choice("results.values", "used", "a step of thinking may calculate several values that later ones use"))
    share = f"{facts.found.calculated:.0%} of the steps calculate"
    if facts.found.calculated < CALCULATING:
        why = f"read from the steps by rule; {1 - facts.found.share_results_empty:.0%} have a result"
        return [Choice("results.by", "rule", why), *chosen]
    return [
        *chosen,
        Choice("results.working", "keep", f"{share}, and a small model calculates better if it writes 48/2=24 than 24"),
    ]


def _thinks(facts: Facts) -> bool:
    """Whether most rationales are cut by function."""
    return mostly_by_function(facts.found.rules, facts.found.usable)


def suited(section: Finetune, rows: int) -> Finetune:
    """A section with the batches of `cirf init` for ``rows`` training rows, where it has those of the schema."""
    default = Finetune()
    if (section.batch_size, section.gradient_accumulation_steps) != (default.batch_size, default.gradient_accumulation_steps):
        return section
    chosen = {choice.key.rpartition(".")[2]: choice.value for choice in finetune(rows, None, "")}
    return section.model_copy(update={name: chosen[name] for name in ("batch_size", "gradient_accumulation_steps")})


def finetune(rows: int, parameters: int | None, model: str, room: Room | None = None) -> list[Choice]:
    """How the models are trained; with ``room``, in batches that fit into memory."""
    gradient_accumulation_steps = next((passes for below, passes in ACCUMULATION if rows < below), ACCUMULATION_ELSE)
    tried = [
        (batch, updates_of(Finetune(batch_size=batch, gradient_accumulation_steps=gradient_accumulation_steps), rows))
        for batch in BATCHES
    ]
    batch, made = next((pair for pair in tried if not pair[1].too_few), tried[-1])
    small = "lower it where memory is short" if batch == BATCHES[0] else f"{BATCHES[0]} make too few updates of {rows:,} rows"
    an_update = batch * gradient_accumulation_steps
    if room is not None and (fits := room.batch(batch, room.traces)) < batch:
        small, batch = room.reason(batch, room.traces), fits
        gradient_accumulation_steps = an_update // batch
    rate = LEARNING_RATE_UNKNOWN
    size = f"the size of {scalar(model)} is not known"
    if parameters is not None:
        rate = next((rate for below, rate in LEARNING_RATES if parameters < below), LEARNING_RATE_ELSE)
        size = f"for {in_words(parameters)} parameters; smaller models take a higher one"
    chosen = [
        Choice("finetune.adaptation", "lora", "adapters need a fraction of the memory; they are merged into the saved model"),
        Choice("finetune.epochs", "auto", f"{rows:,} rows: {made.passes:g} passes, {made.updates:,} updates"),
        Choice("finetune.batch_size", batch, f"rows a forward pass; {small}"),
        Choice(
            "finetune.gradient_accumulation_steps",
            gradient_accumulation_steps,
            f"{an_update} rows an update: {rows:,} training rows are {_amount(rows)}",
        ),
        Choice("finetune.learning_rate", rate, size),
    ]
    if room is not None and (fits := room.batch(batch, room.prose)) < batch:
        smaller = {"batch_size": fits, "gradient_accumulation_steps": an_update // fits}
        chosen.append(Choice("finetune.overrides", {"sft_cot": smaller}, f"prose is longer: {room.reason(batch, room.prose)}"))
    if made.updates // 10 < Finetune().warmup_steps:
        chosen.append(Choice("finetune.warmup_steps", max(1, made.updates // 10), f"a tenth of {made.updates:,} updates"))
    if made.updates < FEW_UPDATES:
        chosen.append(Choice("finetune.adam_beta2", STEADY_BETA2, f"steadier than 0.999 over {made.updates:,} updates"))
    return chosen


def _amount(rows: int) -> str:
    return "few" if rows < ACCUMULATION[0][0] else "some" if rows < ACCUMULATION[1][0] else "many"


def longest_row(tokens: int) -> list[Choice]:
    """How long a row may be, where the longest one would be dropped by the default."""
    default: int = Finetune().max_length
    if tokens <= default:
        return []
    return [Choice("finetune.max_length", _up(tokens, 128), f"the longest row may have {tokens:,} tokens")]


def caps(found: TaskCheck, exact: bool) -> list[Choice]:
    more, about = (1.0, "") if exact else (COUNTED_IN_WORDS, "about ")
    prose, trace = found.rationale_tokens_longest, found.trace_tokens_longest
    max_new_tokens = _up(prose * TEXT_MARGIN * more + 8, 16)
    max_trace_tokens = max(TRACE_FEWEST, _up(trace * TRACE_MARGIN * more, 8))
    return [
        Choice("evaluate.max_new_tokens", max_new_tokens, f"the longest rationale has {about}{prose:,} tokens"),
        Choice("evaluate.max_trace_tokens", max_trace_tokens, f"the longest trace has {about}{trace:,} tokens"),
    ]


def budget(found: TaskCheck) -> Choice:
    """How many functional tokens an answer may have: one more than any row. A model that looks for a result that fits goes on
    until it is truncated; closed there, it still gives an answer."""
    most = found.steps_longest
    why = f"the longest trace has {most} functional tokens; a longer one is closed after {most + 1}"
    return Choice("variants", {METHODS[0]: {"settings": {"budget": most + 1}}}, why)


def _up(tokens: float, unit: int) -> int:
    return unit * math.ceil(tokens / unit)
