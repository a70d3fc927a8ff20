"""The tables of the pages of results: lines, columns and captions. `docs.research.result_tables` fills them.

Those of figures without answers are in `docs.research.figure_specs`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np
from docs.research import over_runs, uses
from docs.research.figure_specs import FIGURE_TABLES, always, area_bounds, correct_traces, figures, row, rows, told, wrong_states
from docs.research.over_runs import answers, archived, training
from docs.research.recorded import read
from docs.research.result_tables import (
    ROOT,
    TITLES,
    Cell,
    Line,
    Table,
    Tasks,
    Trained,
    Words,
    accuracy,
    average,
    bounds,
    by_training,
    compared,
    each_training,
    less,
    p_holm,
    p_value,
    percent,
    percent_each,
    points,
    rate,
    seconds,
    share,
    shares,
    text,
    tokens,
    tokens_share,
    training_seconds,
    trial,
    validation,
)
from scipy.stats import spearmanr

from cirf.analysis import scaling_law
from cirf.analysis.source import Source, read_codes
from cirf.commands.analyze import open_runs
from cirf.export.archive import answer_key
from cirf.statistics import Comparison, compare, holm

FIVE: Tasks = ("gsm8k", "svamp", "multiarith", "coin_flip", "commonsense_qa")
OTHERS: Tasks = ("math500", "bbh", "strategyqa", "scienceqa")
COIN: Tasks = ("coin_flip",)
FOUR: Tasks = ("gsm8k", "svamp", "multiarith", "commonsense_qa")
THREE: Tasks = ("gsm8k", "svamp", "multiarith")
SMALL: Tasks = ("coin_flip", "svamp", "multiarith")
CHAIN: Tasks = ("chain_sum",)
GROUPS: dict[str, Tasks] = {"five": FIVE, "others": OTHERS, "coin": COIN, "four": FOUR, "three": THREE, "small": SMALL}
"""Names of groups of benchmarks in captions; in braces they become the number of questions."""

COMPARE = "compare-qwen2.5-0.5b"
SEEDS = (COMPARE, "compare-seed2-qwen2.5-0.5b", "compare-seed3-qwen2.5-0.5b")
GPU = ("compare-tests-qwen2.5-0.5b", "compare-tests-seed2-qwen2.5-0.5b", "compare-tests-seed3-qwen2.5-0.5b")
VALUES = "compare-values-qwen2.5-0.5b"
SELF = "compare-self-qwen2.5-0.5b"
FLOAT = "compare-float32-qwen2.5-0.5b"
BASELINES = "baselines-cpu"
ANALYSES = "analyses-cpu/variants/base"

THINKERS = ("pause", "coconut", "icot_si", "codi", "sem_cot", "sim_cot", "soft_cot")
ALL = (
    *(
        "cirf_subjects_after_cot_calculator",
        "sft_cot_calculator",
        "cirf_subjects_after_cot",
        "terse_subjects",
        "sft_cot",
        "cirf_subjects",
    ),
    *("terse_calculator", "cirf_after_cot", "cirf_self", "cirf_full_calculator", "terse", "single", "shuffled"),
    *("ordinal", "cirf_full", "token_skip", "cirf_lean", "cirf_faster", "cirf_fast", "cot", "pause", "direct_sft", "cirf_bare"),
    *("coconut", "icot_si", "codi", "chain_of_draft", "sem_cot", "sim_cot", "soft_cot", "direct"),
)


def of(key: str, *runs: str) -> Trained:
    """A method's answers in the given runs; by default in the comparison."""
    return Trained(key, runs or (COMPARE,))


def name(key: str, note: str = "") -> str:
    return f"`{key}`{note}"


def group(tasks: Tasks) -> str:
    """A placeholder in captions for the number of questions."""
    return "{" + next(key for key, value in GROUPS.items() if value == tasks) + "}"


def line(key: str, *runs: str, note: str = "") -> Line:
    return Line(name(key, note), of(key, *runs))


def pair(first: Trained, second: Trained, label: str = "") -> Line:
    return Line(label or f"{name(first.key)} − {name(second.key)}", first, second)


def by_task(tasks: Tasks, cell: Callable[[Tasks], Cell] = percent) -> dict[str, Cell]:
    """A column a task."""
    return {TITLES[task]: cell((task,)) for task in tasks}


def plus(first: Trained, second: Trained, tasks: Tasks = FIVE) -> str:
    """The first less the second in points: +4.5 or -4.5."""
    return points(tasks)(pair(first, second)).strip("*")


def apart(first: Trained, second: Trained, tasks: Tasks = FIVE) -> str:
    """How far the two are apart in points: 4.5."""
    return plus(first, second, tasks).strip("+-")


def gap(first: Trained, second: Trained, tasks: Tasks = FIVE) -> str:
    """The first less the second with the interval: +4.5 [1.3, 7.7]."""
    return less(tasks)(pair(first, second)).replace("*", "")


def verdict(first: Trained, second: Trained, tasks: Tasks = FIVE) -> str:
    return "significant" if compared(first, second, tasks).significant else "not significant"


def count(one: Trained, tasks: Tasks, key: str) -> int:
    """How many answers are ``correct``, ``truncated`` or ``unparsed``."""
    return sum(row[key] for run in one.folders for task in tasks for row in answers(run, one.key, task))


def loss(one: Trained, key: str = "") -> str:
    """The last validation loss: of functional tokens (``code_loss``), or of all that is written."""
    found = training(one.folders[0], one.key)
    return f"{found['numbers'][key] if key else found['validation'][-1][1]:{'.2f' if key else '.3f'}}"


def asked_of(one: Trained, tasks: Tasks = FIVE) -> int:
    """The number of questions."""
    return len(shares(one, tasks))


def written(one: Trained, *tasks: str) -> list[Any]:
    """The first training's answers, with their functional tokens and answer keys."""
    return [found for task in tasks for found in archived(one.folders[0]).answers(one.key)[task]]


def lengths(one: Trained, *tasks: str) -> list[int]:
    """How many functional tokens each answer has."""
    return [len(read_codes(found["output"])) for found in written(one, *tasks)]


def millions(key: str, style: str) -> str:
    return f"{training(of(key).folders[0], key)['numbers']['trainable_parameters'] / 1e6:{style}}"


COUNTED = (
    "n = 610 in-domain ({five} over three seeds), {others} out-of-domain; McNemar's exact or the sign-flip test, not corrected."
)


def findings(title: str, head: str, column: str, said: Mapping[str, Words], caption: str = COUNTED) -> Table:
    """A table of sentences, in which the numbers are those of the archives."""
    return Table(title, head, {column: text()}, [Line(label, CIRF, texts=(words,)) for label, words in said.items()], caption)


CIRF, SUBJECTS, TERSE_SUBJECTS = (of(key, *SEEDS) for key in ("cirf_full", "cirf_subjects", "terse_subjects"))
PROSE, DIRECT, COT, TERSE = of("sft_cot"), of("direct_sft"), of("cot"), of("terse")
PROSE_GPU = of("sft_cot", *GPU)
THREE_SEEDS = ", 3 seeds"

SUMMARY = Table(
    "summary",
    "method",
    {"what it writes": text(), "in-domain, %": accuracy(FIVE), "tokens": tokens(FIVE), "out-of-domain, %": accuracy(OTHERS)},
    [
        Line("`sft_cot`", PROSE, texts=("the rationale in words",)),
        Line("`terse_subjects` (3 seeds)", TERSE_SUBJECTS, texts=("subjects and results, no functional tokens",)),
        Line("`cirf_subjects` (3 seeds)", SUBJECTS, texts=("functional tokens, results, subjects",)),
        Line("`cirf_self`", of("cirf_self"), texts=("as `cirf_full`, learned from its own correct traces",)),
        Line("`terse`", TERSE, texts=("results only",)),
        Line("`cirf_full` (3 seeds)", CIRF, texts=("functional tokens and results (calculations)",)),
        Line("`token_skip`", of("token_skip"), texts=("half of the rationale's words",)),
        Line("`cirf_lean`", of("cirf_lean"), texts=("as `cirf_full`, pruned by our criterion",)),
        Line("`cirf_faster`", of("cirf_faster"), texts=("as `cirf_full`, pruned by the paper's",)),
        Line("`cot`", COT, texts=("prose, untrained",)),
        Line("`cirf_full`, values", of("cirf_full", VALUES), texts=("bare values as results, as in the paper",)),
        Line("`pause`", of("pause"), texts=("best method without written reasoning",)),
        Line("`direct_sft`", DIRECT, texts=("the answer at once",)),
        Line("`cirf_bare`", of("cirf_bare"), texts=("functional tokens only",)),
    ],
    "Accuracy with 95 % Wilson intervals; n = {five} questions in-domain and {others} out-of-domain. "
    "3 seeds: their mean. "
    "Tokens: generated tokens an answer, in-domain.",
)

METHODS = Table(
    "methods",
    "method",
    {
        "in-domain, %": accuracy(FIVE),
        "mean, %": average(FIVE),
        "tokens": tokens(FIVE),
        **by_task(FIVE),
        "out-of-domain, %": accuracy(OTHERS),
        "tokens, out": tokens(OTHERS),
        "unparsed, out, %": rate(OTHERS, "unparsed"),
    },
    [line(key) for key in ALL],
    "One training a method. n = {five} (GSM8K 120, SVAMP 150, MultiArith 120, Coin Flip 100, CommonsenseQA 120) and "
    "{others} questions; 95 % Wilson intervals. *mean*: of the five in-domain accuracies.",
)

PAIRS = Table(
    "pairs",
    "method",
    {
        "− `sft_cot`, in-domain": less(FIVE, PROSE),
        "− `direct_sft`, in-domain": less(FIVE, DIRECT),
        "− `direct_sft`, out-of-domain": less(OTHERS, DIRECT),
        "− `cot`, out-of-domain": less(OTHERS, COT),
    },
    [line(key) for key in ALL],
    "Points, paired on the same questions (n = {five} and {others}), first seeds; bold: p < 0.05 by McNemar's exact test, "
    "not corrected.",
)

TESTED = (
    ("cirf_full", "pause"),
    ("cirf_full", "direct_sft"),
    ("cirf_full", "cot"),
    ("cirf_full", "cirf_fast"),
    ("cirf_full", "cirf_faster"),
    ("cirf_subjects_after_cot", "cirf_full"),
    ("cirf_subjects", "cirf_full"),
    ("terse_subjects", "cirf_full"),
    ("sft_cot", "cirf_full"),
    ("cirf_after_cot", "cirf_full"),
    ("cirf_self", "cirf_full"),
    ("cirf_self", "cirf_lean"),
    ("cirf_full_calculator", "cirf_full"),
    ("cirf_lean", "cot"),
    ("cirf_lean", "cirf_fast"),
    ("sft_cot", "token_skip"),
    ("cirf_subjects_after_cot", "token_skip"),
    ("direct_sft", "soft_cot"),
    ("direct_sft", "sim_cot"),
    ("direct_sft", "sem_cot"),
    ("pause", "sim_cot"),
)
TESTED_OTHERS = (
    ("direct_sft", "token_skip"),
    ("cot", "token_skip"),
    ("direct_sft", "shuffled"),
    ("direct_sft", "cirf_subjects"),
    ("direct_sft", "cirf_full"),
    ("cot", "cirf_subjects"),
    ("terse_subjects", "cirf_subjects"),
)


def tested(title: str, found: tuple[tuple[str, str], ...], tasks: Tasks) -> Table:
    return Table(
        title,
        "pair",
        {"points": less(tasks), "p": p_value(tasks), "p, Holm": p_holm(COMPARE, tasks)},
        [pair(of(first), of(second)) for first, second in found],
        f"First seeds, n = {group(tasks)}, McNemar's exact test; *p, Holm*: corrected for all 465 pairs of the 31 methods.",
    )


SEED_LINES = [
    Line(name(key, f", seed {seed}"), of(key, run))
    for key in ("terse_subjects", "cirf_subjects", "cirf_full")
    for seed, run in enumerate(SEEDS, 1)
]
BY_SEED = Table(
    "seeds",
    "method",
    {
        "in-domain, %": accuracy(FIVE),
        "tokens": tokens(FIVE),
        **by_task(FIVE),
        "out-of-domain, %": accuracy(OTHERS),
        "unparsed, out, %": rate(OTHERS, "unparsed"),
        "accuracy / `sft_cot`": share(FIVE, PROSE),
    },
    SEED_LINES + [Line(name(one.key, THREE_SEEDS), one) for one in (TERSE_SUBJECTS, SUBJECTS, CIRF)],
    "n = {five} and {others} a seed. 95 % intervals: Wilson, shares bootstrap; `sft_cot` is its one training, on the "
    "questions of both "
    "(583, 584 and 580 for seed 2, seed 3 and three seeds).",
)

WITHOUT_CHOICE: Tasks = ("gsm8k", "svamp", "multiarith", "coin_flip")
SHARES = Table(
    "shares",
    "method",
    {
        "accuracy / `sft_cot`": share(FIVE, PROSE),
        "tokens / `sft_cot`": tokens_share(FIVE, PROSE),
        "without CommonsenseQA": share(WITHOUT_CHOICE, PROSE),
        "without Coin Flip": share(FOUR, PROSE),
    },
    [
        *(Line(name(one.key, THREE_SEEDS), one) for one in (TERSE_SUBJECTS, SUBJECTS, CIRF)),
        *(line(key) for key in ("cirf_subjects_after_cot", "cirf_after_cot", "cirf_self")),
        Line("`cirf_full`, values", of("cirf_full", VALUES)),
    ],
    "Of the mean of the benchmarks' accuracies; 95 % bootstrap intervals over questions, n = {five} (610 for one seed).",
)

RIVALS = (
    *("sft_cot", "direct_sft", "cot", *THINKERS, "token_skip", "terse", "single", "shuffled", "ordinal"),
    *("cirf_after_cot", "cirf_self", "cirf_subjects_after_cot"),
)


def over(title: str, tasks: Tasks) -> Table:
    """Each of the three methods with three seeds, less the others."""
    three = {name(one.key): one for one in (CIRF, SUBJECTS, TERSE_SUBJECTS)}
    others = [of(key) for key in RIVALS]

    def column(one: Trained) -> Cell:
        return lambda row: less(tasks, row.first)(Line(row.label, one))

    lines = [Line(name(other.key), other) for other in others]
    lines += [Line(name(other.key, THREE_SEEDS), other) for other in (CIRF, TERSE_SUBJECTS)]
    count = "580" if tasks == FIVE else group(tasks)
    return Table(
        title,
        "row",
        {key: column(one) for key, one in three.items()},
        lines,
        "Column minus row, in points: the mean of three seeds minus one training, unless the row says three. "
        f"n = {count}, sign-flip test; bold: p < 0.05.",
    )


def trainings() -> Table:
    """Differences of two methods by questions and by trainings; each line has its own benchmarks."""
    asked = (
        (SUBJECTS, CIRF, FIVE, "in-domain"),
        (SUBJECTS, CIRF, FOUR, "without Coin Flip"),
        (SUBJECTS, CIRF, COIN, "Coin Flip"),
        (TERSE_SUBJECTS, CIRF, FIVE, "in-domain"),
        (TERSE_SUBJECTS, SUBJECTS, FIVE, "in-domain"),
        (TERSE_SUBJECTS, SUBJECTS, FOUR, "without Coin Flip"),
        (TERSE_SUBJECTS, SUBJECTS, COIN, "Coin Flip"),
        (TERSE_SUBJECTS, SUBJECTS, OTHERS, "out-of-domain"),
    )
    lines = [pair(first, second, f"{name(first.key)} − {name(second.key)}, {summary}") for first, second, _, summary in asked]
    where = {row.label: tasks for row, (_, _, tasks, _) in zip(lines, asked, strict=True)}
    cells: dict[str, Callable[[Tasks], Cell]] = {"by question": less, "by training": by_training, "each seed": each_training}

    def column(cell: Callable[[Tasks], Cell]) -> Cell:
        return lambda row: cell(where[row.label])(row)

    return Table(
        "by-training",
        "difference",
        {key: column(cell) for key, cell in cells.items()},
        lines,
        "Points over three seeds. *By question*: paired sign-flip test, n = {five} in-domain. *By training*: Student's t "
        "over the three "
        "differences. Bold: p < 0.05.",
    )


CONTROLS = Table(
    "controls",
    "method",
    {
        "in place of a functional token": text(),
        "in-domain": less(FIVE, CIRF),
        "Coin Flip": less(COIN, CIRF),
        "CommonsenseQA": less(("commonsense_qa",), CIRF),
        "out-of-domain": less(OTHERS, CIRF),
    },
    [
        Line(name("terse"), TERSE, texts=("a line break",)),
        Line(name("single"), of("single"), texts=("the same token always",)),
        Line(name("shuffled"), of("shuffled"), texts=("the code of a random step",)),
        Line(name("ordinal"), of("ordinal"), texts=("the step's position",)),
        Line(name("cirf_bare"), of("cirf_bare"), texts=("itself, without results",)),
    ],
    "Points above `cirf_full` (three seeds); one training a control. n = 580, 100, 120, {others}; sign-flip "
    "test, bold: p < 0.05.",
)
VALUED = of("cirf_full", VALUES)


def best_and_worst(first: Trained, others: tuple[Trained, ...]) -> str:
    found = sorted((plus(first, other) for other in others), key=float)
    return f"{found[0]} to {found[-1]}"


TARGETS = findings(
    "targets",
    "target",
    "verdict",
    {
        "`cirf_full` at least 10 points above every latent method": lambda: (
            f"Met with calculations as results: {best_and_worst(CIRF, tuple(map(of, THINKERS)))} over three seeds. "
            f"Undecided with bare values: {gap(VALUED, of('pause'))}, one seed"
        ),
        "at least 0.85 of prose accuracy with at most 1/5 of its tokens": lambda: (
            f"Met by `cirf_subjects` in every seed. Undecided for `cirf_full`: {share(FIVE, PROSE)(Line('', CIRF))}; "
            f"{share(FIVE, of('sft_cot', *GPU[:2]))(Line('', of('cirf_full', *GPU[:2])))} with "
            f"{asked_of(of('sft_cot', *GPU[:2])) / asked_of(PROSE):.1f} times the questions. "
            f"Missed with bare values: {share(FIVE, PROSE)(Line('', VALUED))}"
        ),
        "`cirf_fast` and `cirf_faster` on the Pareto front of accuracy and tokens": (
            "`cirf_faster` is; `cirf_fast` is not; nor is `cirf_full`: `cirf_self` is above it"
        ),
        "votes as accurate as prose in at most 1/3 of its time": (
            "Met by 8 votes of `cirf_subjects_after_cot`; missed by `cirf_after_cot` ([votes](method.md#votes))"
        ),
    },
)


def leads(key: str) -> str:
    """How far prose leads on questions unlike those of training, and on all."""
    prose, other = row("near", "sft_cot"), row("near", key)
    return f"{100 * (prose['right'] - other['right']) / prose['n']:.1f} instead of {apart(of(key), PROSE)}"


def tried(run: str, learning_rate: float) -> float:
    """The validation loss of prose's short training."""
    return float(archived(ROOT / "results" / run).trials[PROSE.key][str(learning_rate)])


AGAINST = findings(
    "against",
    "finding",
    "verdict",
    {
        "`cirf_subjects` against `sft_cot`": lambda: (
            f"{gap(SUBJECTS, PROSE)}, {verdict(SUBJECTS, PROSE)}, nor is it in any seed; "
            f"{plus(SUBJECTS, PROSE, ('gsm8k',))} on GSM8K and {plus(SUBJECTS, PROSE, COIN)} on Coin Flip"
        ),
        "`cirf_full` against `sft_cot`": lambda: f"{gap(CIRF, PROSE)}; all on Coin Flip and GSM8K",
        "subjects": "better in every seed; the whole gain is Coin Flip",
        "seeds of `cirf_full`": lambda: (
            f"the third − the second: {gap(of('cirf_full', SEEDS[2]), of('cirf_full', SEEDS[1]))}; "
            f"{lengths(of('cirf_full', SEEDS[2]), 'coin_flip').count(3)} of its {asked_of(of('cirf_full', SEEDS[2]), COIN)} Coin "
            "Flip traces end after two of four people"
        ),
        "`token_skip`": lambda: (
            f"{apart(of('token_skip'), PROSE)} below prose with {tokens_share(FIVE, PROSE)(line('token_skip'))} of its tokens. "
            f"{count(of('token_skip'), FIVE, 'truncated')} of {asked_of(of('token_skip'))} answers run to the limit. Against "
            f"`cirf_full`, which has a quarter of its tokens, {verdict(of('token_skip'), CIRF)}: better on Coin Flip "
            f"({plus(of('token_skip'), CIRF, COIN)}), worse on MultiArith ({plus(of('token_skip'), CIRF, ('multiarith',))})"
        ),
        "parity is a mean of gains and losses": "without CommonsenseQA prose is ahead (table above)",
        "training questions similar to test questions": lambda: (
            f"{asked_of(PROSE) - figures()['near']['n']} of {asked_of(PROSE)} share 13 words in a row. Without them prose leads "
            f"`cirf_subjects` by {leads('cirf_subjects')} and `cirf_full` by {leads('cirf_full')} (`docs.research.near`; from a "
            "run: archives keep no questions)"
        ),
        "prose may be undertrained": lambda: (
            f"at 4e-4 its short trial is {tried(COMPARE, 2e-4) - tried('compare-rates-qwen2.5-0.5b', 4e-4):.3f} nats lower; a "
            "full training was not made"
        ),
    },
)


def lettered(key: str, letters: str) -> int:
    """How many answers on CommonsenseQA are one of the letters."""
    found = written(of(key), "commonsense_qa")
    return sum(one["answer_key"] in [answer_key(one["id"], letter) for letter in letters] for one in found)


QUESTIONS = findings(
    "control-questions",
    "question",
    "answer",
    {
        "Do tokens add accuracy over plain results?": lambda: (
            f"No: `terse` − `cirf_full` is {gap(TERSE, CIRF)}, `terse_subjects` − `cirf_subjects` {gap(TERSE_SUBJECTS, SUBJECTS)}"
        ),
        "Does it matter which code it is?": lambda: (
            "Not in-domain (`single`, `shuffled`). Out-of-domain random codes are "
            f"{apart(of('shuffled'), CIRF, OTHERS)} lower, one training"
        ),
        "Do codes do more than count steps?": lambda: (
            f"Not overall (`ordinal`). It answers B or C to {lettered('ordinal', 'BC')} of "
            f"{asked_of(of('ordinal'), ('commonsense_qa',))} CommonsenseQA questions, which is chance there"
        ),
        "Do tokens without results help?": lambda: (
            f"No: `cirf_bare` − `direct_sft` is {gap(of('cirf_bare'), DIRECT)} in-domain and "
            f"{gap(of('cirf_bare'), DIRECT, OTHERS)} out-of-domain; it is {apart(of('cirf_bare'), TERSE)} below `terse`"
        ),
        "Does it matter with bare values?": lambda: (
            f"No: `terse` with values {gap(of('terse', VALUES), VALUED)} in-domain, {gap(of('terse', VALUES), VALUED, OTHERS)} "
            "out-of-domain"
        ),
        "With subjects, where do tokens differ?": lambda: (
            "On Coin Flip, accuracy without tokens minus accuracy with them is "
            f"{each_training(COIN)(pair(TERSE_SUBJECTS, SUBJECTS))} by seed. On the other four it is "
            f"{plus(TERSE_SUBJECTS, SUBJECTS, FOUR)}, out-of-domain {plus(TERSE_SUBJECTS, SUBJECTS, OTHERS)}; none of it by "
            "training"
        ),
        "Does position or loss weight matter?": "No ([method](method.md#embeddings-position-and-weight-of-new-tokens))",
        "Not measured": "`terse` trained from the prose model",
    },
)


def coins(label: str, key: str, runs: tuple[str, ...]) -> Line:
    """A method's line; the figures without answers are those of the row of the same label."""
    return Line(label, of(key, *runs), texts=(partial(wrong_states, label), partial(correct_traces, label)))


SHORT = ("coin-flip-cpu/seed1", "coin-flip-cpu/seed2")
STATES = Table(
    "states",
    "method, by seed",
    {"right answers, %": percent_each(COIN), "wrong states": text(), "correct traces": text(1)},
    [
        coins("`cirf_subjects`", "cirf_subjects", SEEDS),
        coins("`terse_subjects`", "terse_subjects", SEEDS),
        coins("`cirf_subjects_after_cot`", "cirf_subjects_after_cot", SEEDS[:1]),
        coins("trained on 250 Coin Flip rows alone (seeds 1, 2): `cirf_subjects`", "cirf_subjects", SHORT),
        coins("same: `terse_subjects`", "terse_subjects", SHORT),
        coins("same: one token for all", "single_subjects", SHORT),
        coins("same: shuffled codes, seed 1", "shuffled_subjects", SHORT[:1]),
    ],
    "n = 100 a seed. States and traces: figures only (`results/figures.json`), since archives keep no text.",
)
TRACED = ("cirf_full", "cirf_subjects", "cirf_after_cot", "cirf_subjects_after_cot", "cirf_self")


def rates(keys: tuple[str, ...]) -> str:
    found = sorted((rate(OTHERS, "unparsed")(line(key)) for key in keys), key=int)
    return f"{found[0]} to {found[-1]} %"


OUTSIDE = findings(
    "outside",
    "finding",
    "verdict",
    {
        "untrained prose is best": lambda: (
            f"`cot` has {percent(OTHERS)(line('cot'))} %; `sft_cot` is {apart(PROSE, COT, OTHERS)} lower, `cirf_full` "
            f"{apart(CIRF, COT, OTHERS)}, `cirf_subjects` {apart(SUBJECTS, COT, OTHERS)}; for plain results (`terse`) the "
            f"difference is {verdict(TERSE, COT, OTHERS)}"
        ),
        "cause": lambda: (
            "answers in the form of the training benchmarks: numbers where yes or no is asked. Unparsed answers: "
            f"{rates(TRACED)} with tokens, {rates(('terse', 'terse_subjects'))} for plain results"
        ),
        "`cirf_subjects` is below `direct_sft`": lambda: (
            f"{gap(SUBJECTS, DIRECT, OTHERS)}, three seeds; for `cirf_full` the difference is {verdict(CIRF, DIRECT, OTHERS)}"
        ),
        "`token_skip`": lambda: (
            f"{apart(of('token_skip'), DIRECT, OTHERS)} below `direct_sft`: "
            f"{count(of('token_skip'), OTHERS, 'truncated')} of {asked_of(of('token_skip'), OTHERS)} answers are "
            f"truncated, {figures()['loops']['loops']} of them loops"
        ),
        "one training says little": lambda: (
            f"`cirf_full` has {percent_each(OTHERS)(Line('', CIRF))} % by seed; of {asked_of(CIRF, ('strategyqa',))} answers on "
            "StrategyQA "
            f"{', '.join(str(count(of('cirf_full', run), ('strategyqa',), 'unparsed')) for run in SEEDS)} are neither yes nor no"
        ),
        "pruned traces": lambda: (
            f"`cirf_lean` − `direct_sft` is {gap(of('cirf_lean'), DIRECT, OTHERS)}, `cirf_fast` "
            f"{gap(of('cirf_fast'), DIRECT, OTHERS)}, `cirf_faster` {gap(of('cirf_faster'), DIRECT, OTHERS)}"
        ),
    },
)

GPU_SEEDS = Table(
    "gpu",
    "method",
    {
        "in-domain, %": accuracy(FIVE),
        "mean, %": average(FIVE),
        "tokens": tokens(FIVE),
        **by_task(FIVE),
        "out-of-domain, %": accuracy(OTHERS),
    },
    [Line(name("sft_cot", f", seed {seed}"), of("sft_cot", run)) for seed, run in enumerate(GPU, 1)]
    + [Line(name("cirf_full", f", seed {seed}"), of("cirf_full", run)) for seed, run in enumerate(GPU[:2], 1)],
    "One H100; n = {five} and {others} questions, most of them not asked in the comparison. 95 % Wilson intervals.",
)
GPU_PAIRS = Table(
    "gpu-pairs",
    "`cirf_full` − `sft_cot`",
    {"in-domain": less(FIVE), **by_task(FIVE, less), "out-of-domain": less(OTHERS), "MATH-500": less(("math500",))},
    [pair(of("cirf_full", *GPU[:2]), of("sft_cot", *GPU[:2]), "seeds 1 and 2")],
    "Points on the H100; n = {five} and {others}, sign-flip test, bold: p < 0.05.",
)
AGAINST_PROSE = Table(
    "against-prose",
    "method",
    {
        "accuracy / `sft_cot`": share(FIVE, PROSE_GPU),
        "tokens / `sft_cot`": tokens_share(FIVE, PROSE_GPU),
        "in-domain": less(FIVE, PROSE_GPU),
        **by_task(FIVE, lambda tasks: less(tasks, PROSE_GPU)),
        "out-of-domain": less(OTHERS, PROSE_GPU),
    },
    [Line(name(one.key), one) for one in (CIRF, SUBJECTS, TERSE_SUBJECTS)],
    "Three seeds of each (CPU) minus three seeds of `sft_cot` (H100), in points. n = 580 and {others}, sign-flip test, bold: "
    "p < 0.05; shares "
    "with bootstrap intervals.",
)
MACHINES = Table(
    "machines",
    "same recipe elsewhere",
    {"in-domain": less(FIVE), "out-of-domain": less(OTHERS)},
    [
        pair(of("sft_cot", GPU[0]), PROSE, "`sft_cot`, H100"),
        pair(of("cirf_full", GPU[0]), of("cirf_full"), "`cirf_full`, H100"),
        pair(of("cirf_full", GPU[1]), of("cirf_full", SEEDS[1]), "`cirf_full`, H100, seed 2"),
        pair(of("sft_cot", FLOAT), PROSE, "`sft_cot`, Xeon, float32"),
        pair(of("cirf_after_cot", FLOAT), of("cirf_after_cot"), "`cirf_after_cot`, Xeon, float32"),
        pair(of("cirf_full", FLOAT), of("cirf_full"), "`cirf_full`, Xeon, float32"),
        pair(of("pause", FLOAT), of("pause"), "`pause`, Xeon, float32"),
        pair(of("cirf_full", SELF), of("cirf_full"), "`cirf_full`, Xeon, bfloat16"),
        pair(of("terse", SELF), TERSE, "`terse`, Xeon, bfloat16"),
    ],
    "Points above the comparison's training with the same rows and codes. n = {five} and {others}, McNemar's exact test, "
    "bold: p < 0.05.",
)
RATES = Table(
    "learning-rates",
    "method",
    {
        "1e-4": trial(1e-4, COMPARE),
        "2e-4": trial(2e-4, COMPARE),
        "4e-4": trial(4e-4, "compare-rates-qwen2.5-0.5b"),
    },
    [
        line(key)
        for key in (
            *(
                "direct_sft",
                "pause",
                "icot_si",
                "coconut",
                "codi",
                "sim_cot",
                "sft_cot",
                "token_skip",
                "terse",
                "cirf_full",
            ),
            *(
                "cirf_fast",
                "cirf_faster",
                "cirf_lean",
                "cirf_bare",
                "cirf_after_cot",
                "cirf_subjects_after_cot",
                "single",
                "ordinal",
                "shuffled",
            ),
        )
    ],
    "Validation loss after 94 updates, nats a token; 46 held-out rows; bold: the learning rate taken. Losses of different "
    "methods do not compare.",
)

HOST = of("cirf_full", SELF)
VALUE_TABLE = Table(
    "calculations",
    "method",
    {"in-domain, %": accuracy(FIVE), "tokens": tokens(FIVE), **by_task(FIVE), "out-of-domain, %": accuracy(OTHERS)},
    [
        Line("`cirf_full`, calculations", HOST),
        Line("`cirf_full`, values", of("cirf_full", VALUES)),
        Line("`terse`, values", of("terse", VALUES)),
    ],
    "One training each on one machine; n = {five} and {others}, 95 % Wilson intervals.",
)
VARIED = Table(
    "varied",
    "pair",
    {"in-domain": less(FIVE), **by_task(FIVE, points), "out-of-domain": less(OTHERS)},
    [
        pair(HOST, of("cirf_full", VALUES), "`cirf_full`: calculations − values"),
        pair(CIRF, of("cirf_full", VALUES), "`cirf_full` ³ − `cirf_full`, values"),
        pair(of("cirf_full", VALUES), of("terse", VALUES), "values: `cirf_full` − `terse`"),
        pair(of("cirf_full", VALUES), of("pause"), "values: `cirf_full` − `pause`"),
        pair(of("cirf_full", VALUES), PROSE, "values: `cirf_full` − `sft_cot`"),
        pair(SUBJECTS, CIRF, "`cirf_subjects` ³ − `cirf_full` ³"),
        pair(TERSE_SUBJECTS, TERSE, "`terse_subjects` ³ − `terse`"),
        pair(TERSE_SUBJECTS, SUBJECTS, "`terse_subjects` ³ − `cirf_subjects` ³"),
        pair(of("cirf_subjects_after_cot"), SUBJECTS, "`cirf_subjects_after_cot` − `cirf_subjects` ³"),
        pair(of("cirf_subjects_after_cot"), of("cirf_after_cot")),
        pair(of("cirf_subjects_after_cot"), PROSE),
        pair(of("cirf_after_cot"), CIRF, "`cirf_after_cot` − `cirf_full` ³"),
        pair(
            of("cirf_after_cot"), of("cirf_full", "compare-updates-qwen2.5-0.5b"), "`cirf_after_cot` − `cirf_full`, 1,500 updates"
        ),
        pair(of("cirf_after_cot"), PROSE),
        pair(of("cirf_full", "compare-updates-qwen2.5-0.5b"), HOST, "`cirf_full`: 1,500 − 750 updates"),
        pair(of("cirf_full", "compare-higher-rate-qwen2.5-0.5b"), HOST, "`cirf_full`: 4e-4 − 2e-4"),
        pair(of("cirf_self", SELF), HOST, "`cirf_self` − the `cirf_full` it learned from"),
        pair(of("cirf_self"), CIRF, "`cirf_self` − `cirf_full` ³"),
        pair(of("cirf_self"), of("cirf_full", "compare-updates-qwen2.5-0.5b"), "`cirf_self` − `cirf_full`, 1,500 updates"),
        pair(of("cirf_self"), PROSE),
        pair(of("cirf_self", SELF), of("self_results", SELF), "`cirf_self` − its rows without tokens"),
        pair(of("self_results", SELF), of("terse", SELF), "its rows without tokens − `terse`"),
        pair(of("cirf_fast"), CIRF, "`cirf_fast` − `cirf_full` ³"),
        pair(of("cirf_faster"), CIRF, "`cirf_faster` − `cirf_full` ³"),
        pair(of("cirf_faster"), of("cirf_fast")),
        pair(of("cirf_lean"), CIRF, "`cirf_lean` − `cirf_full` ³"),
        pair(of("cirf_lean"), of("cirf_fast")),
        pair(
            of("cirf_full", FLOAT), of("cirf_full", "compare-each-qwen2.5-0.5b"), "`cirf_full`: options in one step − a step each"
        ),
        pair(of("cirf_subjects_after_cot_calculator"), of("cirf_subjects_after_cot"), "calculator: `cirf_subjects_after_cot`"),
        pair(of("sft_cot_calculator"), PROSE, "calculator: `sft_cot`"),
        pair(of("terse_calculator"), TERSE, "calculator: `terse`"),
        pair(of("cirf_full_calculator"), of("cirf_full"), "calculator: `cirf_full`"),
    ],
    "Points, paired; ³: three seeds, otherwise one training. n = {five} in-domain (580 with ³) and {others}; McNemar's "
    "exact or the "
    "sign-flip test; bold: p < 0.05, not corrected. By benchmark n = 90 to 150.",
)
LONGER = of("cirf_full", "compare-updates-qwen2.5-0.5b")
AFTER, SUBJECTS_AFTER, ITSELF = of("cirf_after_cot"), of("cirf_subjects_after_cot"), of("cirf_self")
FAST, FASTER, LEAN = of("cirf_fast"), of("cirf_faster"), of("cirf_lean")
FROM_PROSE = findings(
    "from-prose",
    "finding",
    "verdict",
    {
        "`cirf_after_cot` above `cirf_full`": lambda: (
            f"{gap(AFTER, CIRF)}, with twice the updates; against as many updates {gap(AFTER, LONGER)}, {verdict(AFTER, LONGER)}"
            ". Words are not shown to be the cause"
        ),
        "with subjects": lambda: (
            f"a start from the prose model adds {gap(SUBJECTS_AFTER, SUBJECTS)}, {verdict(SUBJECTS_AFTER, SUBJECTS)}; on "
            f"CommonsenseQA {plus(SUBJECTS_AFTER, SUBJECTS, ('commonsense_qa',))}"
        ),
        "twice the updates": lambda: (
            f"{gap(LONGER, HOST)}, {verdict(LONGER, HOST)}; validation loss rises: {loss(HOST)} after two epochs, {loss(LONGER)} "
            "after four"
        ),
    },
)
SELF_FINDINGS = findings(
    "self-training",
    "finding",
    "verdict",
    {
        "above the `cirf_full` that wrote its samples": lambda: (
            f"{gap(of('cirf_self', SELF), HOST)}, without Coin Flip {gap(of('cirf_self', SELF), HOST, FOUR)}"
        ),
        "above three other seeds of `cirf_full`": lambda: (
            f"{gap(ITSELF, CIRF)}; by seed {', '.join(plus(ITSELF, of('cirf_full', run)) for run in SEEDS)}; after Holm's "
            "correction not significant"
        ),
        "against `sft_cot`": lambda: (
            f"{gap(ITSELF, PROSE)}, {verdict(ITSELF, PROSE)}, with {tokens_share(FIVE, PROSE)(line('cirf_self'))} of its tokens; "
            "lower on GSM8K and Coin Flip"
        ),
        "is it the updates?": lambda: f"not excluded: {gap(ITSELF, LONGER)} above `cirf_full` with 1,500 updates",
        "is it the tokens?": lambda: (
            f"no: the same rows without tokens (`self_results`) have {percent(FIVE)(line('self_results', SELF))} % and gain "
            f"{apart(of('self_results', SELF), of('terse', SELF))} over `terse`"
        ),
        "out-of-domain": lambda: (
            f"its rows without tokens are {apart(of('self_results', SELF), of('terse', SELF), OTHERS)} below `terse`; "
            f"`cirf_self` {apart(ITSELF, COT, OTHERS)} below untrained prose"
        ),
        "Coin Flip": told(
            "self-rows", "its traces still end early; {changed} of {of} rows changed, so its gain there is not explained"
        ),
        "not measured": "results sampled from a model without tokens; more seeds",
    },
)


def kept(key: str) -> str:
    return f"{archived(of(key).folders[0]).data['compression']['methods'][key]['results_kept']:,}"


PRUNING = findings(
    "pruning",
    "finding",
    "verdict",
    {
        "the paper's criterion": lambda: (
            f"`cirf_fast` − `cirf_full`: {gap(FAST, CIRF)}, `cirf_faster` {gap(FASTER, CIRF)}. It removes earlier results "
            f"that the last one makes look useless (`13-4=9` before `9*4=36`): {plus(FAST, CIRF, ('multiarith',))} and "
            f"{plus(FASTER, CIRF, ('multiarith',))} on MultiArith"
        ),
        "`cirf_lean` at one token more": lambda: (
            f"{gap(LEAN, FAST)} above `cirf_fast`, {gap(LEAN, FASTER)} above `cirf_faster`; not significant after correction "
            f"(Holm's p {p_holm(COMPARE, FIVE)(pair(LEAN, FAST))} and {p_holm(COMPARE, FIVE)(pair(LEAN, FASTER))})"
        ),
        "what `cirf_lean` loses": lambda: f"{gap(LEAN, CIRF)} to `cirf_full`, by GSM8K; nothing on MultiArith",
        "its weakness": told(
            "lean",
            "one price for all rows: {emptied} of {of} GSM8K rows lose every result; of {n} test questions answered "
            "without a result {right} is right",
        ),
        "results kept, of 4,117": lambda: f"{kept('cirf_fast')}, {kept('cirf_faster')} and {kept('cirf_lean')} (`cirf_lean`)",
    },
)


def span(key: str, style: str = ".3f") -> str:
    """The least and the largest of a column of the figures of reliance."""
    found = sorted((one[key] for one in rows("reliance") if "tokens" in one), key=abs)
    return f"{found[0]:{style}} to {found[-1]:{style}}"


LEARNED = findings(
    "token-questions",
    "question",
    "answer",
    {
        "Token loss on held-out rows?": lambda: (
            f"{loss(of('cirf_full', 'targets-cpu'), 'code_loss')} nats; "
            f"{loss(of('result_first', 'targets-cpu'), 'code_loss')} after its result; "
            f"{loss(of('weight_01', 'targets-cpu'), 'code_loss')} with weight 0.1, which also shortens traces"
        ),
        "Do faster rows help? (`finetune.new_token_lr_multiplier`)": told(
            "faster-rows",
            "0.5B: 10 gives {percent[0]} % against {percent[1]} ({less}); token loss stays {code_loss}. 135M, one epoch: loss "
            "{losses[0]:.2f} at 1, {losses[1]:.2f} at 10, {losses[2]:.2f} at 50",
        ),
        "Do rows collapse with long results, as the paper warns?": lambda: (
            f"No. From bare values to whole steps ({span('tokens', '.0f')} tokens a row) bias share is {span('bias')}, mean "
            f"cosine {span('cosine')}; before training {told('reliance', '{bias:.3f}, {cosine:.3f}', 'before training')()} "
            "(135M, 100 updates, `docs.research.reliance`)"
        ),
        "Do calculations with spaces help (`4 + 7 = 11`)?": told(
            "spaces",
            "No: on made sums {percent[0]} % against {percent[1]} ({less}, n = {n}, 135M), with a quarter more tokens",
        ),
        "Do results depend on the tokens?": lambda: (
            f"Yes: exchanging them costs the trace {span('results', '.1f')} nats. The answer does not: {span('answer', '.2f')}"
        ),
    },
    "The losses of the first row are from an archive; of the other rows figures only, answers were not kept.",
)
TOKEN_LOSS = Table(
    "token-loss",
    "method",
    {"validation loss of functional tokens": validation("code_loss")},
    [
        Line(name("cirf_full", THREE_SEEDS), CIRF),
        Line(name("cirf_subjects", THREE_SEEDS), SUBJECTS),
        *(
            line(key)
            for key in (
                "cirf_subjects_after_cot",
                "cirf_after_cot",
                "cirf_self",
                "cirf_fast",
                "cirf_faster",
                "cirf_lean",
                "cirf_bare",
            )
        ),
        Line("`cirf_full`, values", of("cirf_full", VALUES)),
        *(line(key) for key in ("shuffled", "ordinal", "single")),
    ],
    "Nats a functional token given the question and all before it, 46 held-out rows; guessing among 32 has 3.47.",
)
PLAIN = of("cirf_full", "tokens-cpu")
TOKEN_START = Table(
    "token-start",
    "before each result",
    {"accuracy, %": accuracy(THREE), **by_task(THREE), "tokens": tokens(THREE), "− `cirf_full`": less(THREE)},
    [
        pair(of("terse", BASELINES), PLAIN, "a line break (`terse`)"),
        pair(of("cirf_full", "tokens-cpu-like"), PLAIN, "one of 32, starting near a line break (`vocabulary.init_from_token`)"),
        pair(of("single", "tokens-cpu"), PLAIN, "the same token always (`codes: single`)"),
        pair(PLAIN, PLAIN, "one of 32 tokens (`cirf_full`)"),
        pair(of("result_first", "targets-cpu"), of("cirf_full", "targets-cpu"), "as `cirf_full`, the token after its result ²"),
        pair(of("weight_01", "targets-cpu"), of("cirf_full", "targets-cpu"), "as `cirf_full`, token loss weighted 0.1 ²"),
    ],
    "530 rows, 266 updates, seed 1; n = {three}, Wilson intervals, McNemar's exact test, bold: p < 0.05. ²: on another "
    "machine, minus the "
    "`cirf_full` of that machine.",
)

LATENT = Table(
    "latent",
    "method",
    {
        "in-domain, %": accuracy(FIVE),
        "− `direct_sft`": less(FIVE, DIRECT),
        "− `direct`": less(FIVE, of("direct")),
        "`cirf_full` ³ − it": lambda row: less(FIVE, row.first)(Line(row.label, CIRF)),
        "out-of-domain, %": accuracy(OTHERS),
    },
    [*(line(key) for key in THINKERS), Line("`sim_cot`, `reduction: mean`", of("sim_cot_mean", "compare-sim-mean-qwen2.5-0.5b"))],
    "One training each; n = {five} (580 with ³: three seeds) and {others}; Wilson intervals, McNemar's exact or the "
    "sign-flip test, "
    "bold: p < 0.05.",
)
ALL_BASELINES = (
    *(
        "terse",
        "terse_equations",
        "sft_cot",
        "token_skip_10",
        "token_skip_random",
        "cirf_full",
        "token_skip_07",
        "token_skip",
        "cot",
    ),
    *(
        "direct_sft",
        "filler",
        "pause",
        "icot_si",
        "pause_1",
        "chain_of_draft",
        "pause_10",
        "coconut",
        "codi",
        "soft_cot",
        "sem_cot",
    ),
    *("sim_cot", "direct"),
)
BASELINE_TABLE = Table(
    "baselines",
    "method",
    {
        "accuracy, %": accuracy(THREE),
        **by_task(THREE),
        "tokens": tokens(THREE),
        "seconds (p95)": seconds(),
        "− `direct_sft`": less(THREE, of("direct_sft", BASELINES)),
        "− `cirf_full`": less(THREE, of("cirf_full", BASELINES)),
    },
    [line(key, BASELINES) for key in ALL_BASELINES],
    "530 rows, 266 updates, seed 1; n = {three} (GSM8K 60, SVAMP 250, MultiArith 90), Wilson intervals, McNemar's exact test, "
    "bold: p < 0.05. "
    "Seconds: 30 questions a method, one at a time, two CPU cores.",
)

ANALYSED = of("cirf_full", ANALYSES)


def analysed(part: str, point: str) -> Trained:
    return of("cirf_full", f"analyses-cpu/{part}/{point}")


CODEBOOK = Table(
    "codebook",
    "setting",
    {"accuracy, %": accuracy(SMALL), "mean, %": average(SMALL), "− base": less(SMALL, ANALYSED)},
    lambda: [
        Line("base: K = 32, mean-centred, balanced first codes, embeddings at the codes", ANALYSED),
        Line("K = 8", analysed("sizes", "codebook.size=8")),
        Line("K = 128", analysed("sizes", "codebook.size=128")),
        Line(f"K = 512 ({of_512('per_code'):.1f} steps a code)", analysed("sizes", "codebook.size=512")),
        Line("steps minus their question", analysed("representations", "codebook.representation=question_centered")),
        Line("raw steps", analysed("representations", "codebook.representation=raw")),
        Line("noise", analysed("representations", "codebook.representation=random")),
        Line("first codes by k-means", analysed("initialisations", "codebook.initialiser=kmeans")),
        Line("random first codes", analysed("initialisations", "codebook.initialiser=random")),
        Line(
            "random first codes and embeddings", analysed("initialisations", "codebook.initialiser=random,vocabulary.init=random")
        ),
        Line("random embeddings", analysed("initialisations", "vocabulary.init=random")),
    ],
    "`cirf_full`, one training each; n = {small}, Wilson intervals, McNemar's exact test, bold: p < 0.05, not corrected. "
    "*mean*: of the three tasks.",
)


@cache
def code_analysis(part: str, title: str) -> list[dict[str, Any]]:
    """A table of the codes' analyses, which need more than an archive's answers."""
    path = ROOT / "results" / "analyses-cpu" / "analysis.json"
    tables = json.loads(path.read_text(encoding="utf-8"))[part]["tables"]
    return next(table["rows"] for table in tables if table["name"] == title)


def of_512(key: str) -> float:
    """The use of the largest codebook."""
    return float(code_analysis("codebook_size", "codebook_use")[-1][key])


def scaling() -> str:
    """Accuracy as a line of the tokens' logarithm."""
    fits = scaling_law.make(Source(open_runs(ROOT / "results" / "analyses-cpu"))).tables[0].rows
    fit = next(one for one in fits if one["against"] == "log2 tokens")
    slope = bounds(fit["slope"], fit["slope_low"], fit["slope_high"], sign="").replace(" ", " points a doubling ", 1)
    return slope + ", R² {r2:.2f} over {models} models, a trend: points deviate from it (p = {p_line:.3f})".format(**fit)


def noise() -> str:
    """The p-value of codes of noise, corrected for the three other representations."""
    kinds = [analysed("representations", f"codebook.representation={kind}") for kind in ("raw", "question_centered", "random")]
    return f"{holm([compared(one, ANALYSED, SMALL).p for one in kinds])[-1]:.2f}"


def clustered(key: str, representation: str = "mean_centered") -> float:
    """A measure of 32 codes against questions and tasks, by what is quantised."""
    rows = code_analysis("clustering", "clustering")
    found: float = next(row[key] for row in rows if (row["representation"], row["size"]) == (representation, 32))
    return found


def agreement_of_seeds() -> str:
    found = sorted(row["ami"] for row in code_analysis("stability", "agreement") if row["between"] == "seeds")
    return f"{found[0]:.2f} to {found[-1]:.2f}"


CODES = findings(
    "codes",
    "finding",
    "verdict",
    {
        "size": lambda: (
            f"8 to 128 codes do not differ; 512, with {of_512('per_code'):.1f} steps a code, are "
            f"{apart(analysed('sizes', 'codebook.size=512'), ANALYSED, SMALL)} lower; "
            f"{of_512('written_used'):.0f} of 512 are ever written"
        ),
        "what is quantised": "centred and raw steps do not differ in accuracy; the paper has 84.4 against 76.2 %",
        "noise": lambda: (
            f"{apart(analysed('representations', 'codebook.representation=random'), ANALYSED, SMALL)} lower, p = {noise()} "
            "corrected; the paper has 68.4 %"
        ),
        "initialisation": "no row differs after correction",
        "seeds 2 and 3": lambda: (
            f"{percent(SMALL)(Line('', analysed('seeds', 'seed=2')))} and "
            f"{percent(SMALL)(Line('', analysed('seeds', 'seed=3')))} % (seed 1: {percent(SMALL)(Line('', ANALYSED))}); their "
            f"codes agree with AMI {agreement_of_seeds()}"
        ),
        "mean-centring removes the question": lambda: (
            f"yes: AMI of code and question {clustered('ami'):.3f} centred, {clustered('ami', 'raw'):.3f} raw, "
            f"{clustered('ami', 'question_centered'):.3f} minus the question, {clustered('ami', 'random'):.3f} noise. On 530 "
            f"rows with Qwen † {told('codes-530', '{centred} against {raw}')()}"
        ),
        "it does not remove the task": lambda: (
            f"AMI of code and task {clustered('task_ami'):.3f} ({figures()['codes-530']['task']} on 530 rows †): data sets "
            "are worded differently"
        ),
        "one code throughout a rationale": lambda: (
            f"{100 * clustered('collapsed'):.0f} % centred, {100 * clustered('collapsed', 'raw'):.0f} % raw "
            f"({figures()['codes-530']['collapsed']} % on 530 rows †)"
        ),
        "geometry (bias share, mean cosine; paper in brackets) †": lambda: (
            "; ".join(
                "{label} {ours[0]:.3f}, {ours[1]:.3f} ({paper[0]:.3f}, {paper[1]:.3f})".format(**one) for one in rows("geometry")
            )
            + ". Rows hardly move in training"
        ),
        "codes are readable": "`divides`, `not flip`, `multiplies`, `adds`",
        "balance splits frequent steps": ("`Initial state: the coin is heads up` has three codes; no model can predict which"),
        f"predictability, of {np.log(32):.2f} nats": lambda: (
            f"{', '.join('{label} {nats:.2f}'.format(**one) for one in rows('predictability'))} †; `cirf_full` "
            f"{loss(ANALYSED, 'code_loss')}"
        ),
        "errors against length": lambda: "no correlation ({:.2f}, n = {}): the untrained model is nearly always wrong".format(
            spearmanr(lengths(ANALYSED, *SMALL), [not one["correct"] for one in written(of("direct", ANALYSES), *SMALL)])[0],
            asked_of(ANALYSED, SMALL),
        ),
        "accuracy against tokens (the paper's scaling law)": scaling,
        "learning rate †": told(
            "new-token-rate",
            "1e-4 with four times as much for new embeddings is {apart} above 4e-4 for all [{interval[0]}, {interval[1]}]",
        ),
        "stages shared by the sweep †": told("sweep-stages", "of {asked} stages {made} are made, {reused} reused"),
    },
    "n = 360, one training each, McNemar's exact test. †: figures only; answers were not kept.",
)
VARIANTS = Table(
    "variants",
    "method",
    {
        "accuracy, %": accuracy(SMALL),
        **by_task(SMALL),
        "tokens": tokens(SMALL),
        "seconds (p95)": seconds(),
        "− `cirf_full`": less(SMALL, ANALYSED),
    },
    [
        line(key, ANALYSES)
        for key in ("terse", "cirf_full", "cirf_zero", "sft_cot", "cirf_faster", "cirf_fast", "direct_sft", "direct")
    ],
    "SmolLM2-135M, one training each; n = {small} (Coin Flip 120, SVAMP 150, MultiArith 90), Wilson intervals, McNemar's "
    "exact test, bold: p < 0.05.",
)


def scaled() -> Table:
    sizes = {"small": "135M", "middle": "0.5B", "large": "1.5B"}
    every = ("cirf_full", "cirf_fast", "cirf_faster", "codi", "pause")
    lines = [
        pair(of(key, f"scaling-cpu/{size}/base"), of("pause", f"scaling-cpu/{size}/base"), f"{summary}: {name(key)}")
        for size, summary in sizes.items()
        for key in (every if size != "large" else ("cirf_full", "pause"))
    ]
    return Table(
        "scaling",
        "backbone and method",
        {"accuracy, %": accuracy(SMALL), **by_task(SMALL), "tokens": tokens(SMALL), "− `pause`": less(SMALL)},
        lines,
        "One pass over 1,030 rows, one training each; n = {small}, Wilson intervals, McNemar's exact test, bold: p < 0.05.",
    )


OUT = "out-of-domain-cpu"
OUT_OF_DOMAIN = Table(
    "out-of-domain",
    "1.5B",
    {
        "accuracy, %": accuracy(OTHERS),
        **by_task(OTHERS),
        "tokens": tokens(OTHERS),
        "unparsed, %": rate(OTHERS, "unparsed"),
        "− `pause`": less(OTHERS, of("pause", OUT)),
    },
    [line("cirf_full", OUT), line("pause", OUT)],
    "n = {others}, 50 a benchmark; Wilson intervals, McNemar's exact test, bold: p < 0.05.",
)


def few_rows(key: str, head: str, folder: str, methods: tuple[str, ...], against: tuple[str, ...], caption: Words) -> Table:
    """Methods trained on a few hundred rows of one file, each compared with those ``against`` it."""
    task = (folder.split("/")[-2],)
    cells = {"accuracy, %": accuracy(task), "tokens": tokens(task)}
    cells |= {f"− `{other}`": less(task, of(other, folder)) for other in against}
    return Table(key, head, cells, [line(method, folder) for method in methods], caption)


FEW_ROWS = few_rows(
    "few-rows",
    "135M, 300 rows of yes/no with facts",
    "few-rows-cpu/smollm2-135m-instruct/yesno-300/1",
    ("cirf_full", "terse", "direct_sft"),
    ("direct_sft",),
    lambda: (
        "One training each; n = 200, Wilson intervals, McNemar's exact test; always *no*:"
        + f"{next(always(one) for one in rows('few-rows-kinds') if one['data'].startswith('yes/no'))}."
    ),
)
FEW_TEXT = few_rows(
    "few-rows-text",
    "135M, 300 rows of free text",
    "few-rows-text-cpu/smollm2-135m-instruct/text-300/1",
    ("cirf_full", "terse", "direct_sft", "sft_cot"),
    ("direct_sft", "sft_cot"),
    "One training each; n = 200, Wilson intervals, McNemar's exact test. Each question lists five options.",
)
FEW_NUMBERS = few_rows(
    "few-rows-numbers",
    "135M, 300 rows of numbers",
    "few-rows-numbers-cpu/smollm2-135m-instruct/numbers-300/1",
    ("cirf_full", "terse", "direct_sft", "sft_cot"),
    ("direct_sft", "sft_cot"),
    "One training each; n = 200, Wilson intervals, McNemar's exact test, bold: p < 0.05.",
)
FEW_PROSE = few_rows(
    "few-rows-prose",
    "0.5B, 300 rows of numbers",
    "few-rows-cpu/qwen2.5-coder-0.5b-instruct/numbers-300/1",
    ("sft_cot", "cirf_full"),
    ("sft_cot",),
    "One training each (another `cirf_full` than above); n = 200, Wilson intervals, McNemar's exact test, bold: p < 0.05.",
)

LONG_PROSE = of("sft_cot", "long-thinking-cpu/keep-last-1")
LONG_THINKING = Table(
    "long-thinking",
    "taught",
    {
        "accuracy, %": accuracy(("train",)),
        "tokens": tokens(("train",)),
        "− whole thinking": less(("train",), LONG_PROSE),
    },
    [
        Line("thinking as prose", LONG_PROSE),
        Line("the same, `redundant: drop`", of("sft_cot", "long-thinking-cpu/drop-last-1")),
        Line("functional traces, `values: used`", of("cirf_full", "long-thinking-cpu/keep-used-1")),
        Line("the same, `redundant: drop`", of("cirf_full", "long-thinking-cpu/drop-used-1")),
        Line("functional traces, `values: last`", of("cirf_full", "long-thinking-cpu/keep-last-1")),
        Line("the same, `redundant: drop`", of("cirf_full", "long-thinking-cpu/drop-last-1")),
    ],
    "135M, 272 training rows, one training each; n = 500, Wilson intervals, McNemar's exact test, bold: p < 0.05.",
)


def reward_line(seed: int, start: str, variant: str) -> Line:
    run = f"reward-cpu/seed-{seed}"
    return Line(f"{seed}, {name(start)}", of(variant, run), of(start, run))


REWARD = Table(
    "reward",
    "seed, start",
    {
        "fine-tuned, %": lambda row: percent(CHAIN)(Line("", row.second or row.first)),
        "by reward, %": percent(CHAIN),
        "difference": less(CHAIN),
        "− prose by reward": lambda row: less(CHAIN, of("prose_by_reward", *row.first.runs))(row),
        "tokens": tokens(CHAIN),
        "updates": lambda row: f"{training(row.first.folders[0], row.first.key)['timings']['updates']}",
        "minutes": lambda row: f"{training(row.first.folders[0], row.first.key)['timings']['training_seconds'] / 60:.0f}",
    },
    [
        reward_line(seed, start, variant)
        for seed in (1, 2)
        for start, variant in (("cirf_full", "by_reward"), ("terse", "terse_by_reward"), ("sft_cot", "prose_by_reward"))
    ],
    "SmolLM2-135M, chains of three one-digit numbers, 160 rows; updates of 4 questions with 8 answers, on one core. n = 500, "
    "McNemar's exact test, bold: p < 0.05.",
)


def beside(method: str) -> Cell:
    """The accuracy of another method of the same run."""
    return lambda row: percent(CHAIN)(Line("", of(method, *row.first.runs)))


REWARD_CONTROLS = Table(
    "reward-controls",
    "seed",
    {
        "fine-tuned, %": beside("cirf_full"),
        "by reward, %": percent(CHAIN),
        "difference": less(CHAIN),
        "rewards at random, %": beside("shuffled"),
        "no reward, %": beside("constant"),
    },
    [Line(run[-1], of("by_reward", run), of("cirf_full", run)) for run in (f"reward-cpu/seed-{seed}" for seed in (1, 2, 3))],
    "SmolLM2-135M, chains of three one-digit numbers, 160 rows; 45 updates of 4 questions with 8 answers. n = 500, McNemar's "
    "exact test, bold: p < 0.05.",
)


@cache
def voted() -> dict[str, Any]:
    """Three trainings of `cirf_subjects` that vote, with prose where they differ."""
    return uses.agreement(SUBJECTS.folders, PROSE.folders[0], SUBJECTS.key, PROSE.key, FIVE)


@cache
def routed() -> dict[str, Any]:
    """A trace of `cirf_full`, or prose where the trace is long, in two trainings on the H100."""
    return uses.cascade([(run, run) for run in of("cirf_full", *GPU[:2]).folders], CIRF.key, PROSE.key, FIVE)


def vote(way: str) -> str:
    """A rule of votes less prose, in points, bold if p < 0.05."""
    found: Comparison = voted()["ways"][way]["difference"]
    low, high = found.interval
    return bounds(found.difference, low, high, strong=found.significant)


ALONE, ALL_DIFFER, HALF = "votes alone", "prose where all differ", "the same at half"
CASCADE = Table(
    "cascade",
    "rule",
    {
        "right, %": lambda row: f"{100 * voted()['ways'][row.texts[0]]['right']:.1f}",
        "tokens, share of prose's": lambda row: f"{voted()['ways'][row.texts[0]]['share of tokens']:.2f}",
        "− `sft_cot`, points": lambda row: vote(str(row.texts[0])),
    },
    [
        Line("one training, mean of three", SUBJECTS, PROSE, texts=("one training",)),
        Line("votes alone", SUBJECTS, PROSE, texts=(ALONE,)),
        Line("prose where all differ, most costly first, up to half", SUBJECTS, PROSE, texts=(HALF,)),
        Line("prose where all differ", SUBJECTS, PROSE, texts=(ALL_DIFFER,)),
    ],
    "n = {five} in-domain questions, mean of three orders; sign-flip test, bold: p < 0.05.",
)


@cache
def votes() -> dict[int, dict[str, Any]]:
    """What each number of votes of `cirf_subjects_after_cot` answers, with the seconds as a share of prose's; 0: prose."""
    found = archived(ROOT / "results" / COMPARE).data["voting"]
    took = {point["votes"]: point["mean_s"] for point in found["latency"]["votes"]}
    return {
        point["votes"]: point | {"time": took[point["votes"]] / took[0]}
        for point in [*found["curve"], {"votes": 0, **found["alone"]}]
    }


def voting(cell: Callable[[dict[str, Any]], str]) -> Cell:
    """A column of the table of votes; the line's first text is the number of votes."""
    return lambda row: cell(votes()[int(str(row.texts[0]))])


def against_prose(point: Mapping[str, Any]) -> str:
    if "against" not in point:
        return ""
    found = point["against"]
    low, high = found["interval"]
    return bounds(found["difference"], low, high, strong=found["significant"])


VOTES = Table(
    "votes",
    "votes",
    {
        "right, %": voting(lambda point: bounds(point["accuracy"], point["interval"][0], point["interval"][1], sign="")),
        "− `sft_cot`": voting(against_prose),
        "tokens": voting(lambda point: f"{point['tokens']:.0f}"),
        "time, share of `sft_cot`'s": voting(lambda point: f"{point['time']:.2f}"),
    },
    [
        *(Line(str(count), of("cirf_subjects_after_cot"), texts=(str(count),)) for count in (1, 4, 8, 16)),
        Line("`sft_cot`, one answer", PROSE, texts=("0",)),
    ],
    "n = 504, nine benchmarks; Wilson intervals; sign-flip test, bold: p < 0.05 after Holm's correction. "
    "Time: 36 questions, one at a time.",
)


def use(label: str, what: Words, first: Trained, second: Trained, tasks: Tasks, seeds: str, meaning: Words) -> Line:
    """A difference of two methods for the table of uses."""

    def effect() -> str:
        return less(tasks)(pair(first, second))

    return Line(label, first, texts=(what, effect, lambda: f"{compared(first, second, tasks).n:,}; {seeds}", meaning))


def other_use(label: str, *texts: Words) -> Line:
    return Line(label, CIRF, texts=texts)


def long_traces() -> str:
    low, high = routed()["difference"]["interval"]
    return bounds(routed()["difference"]["difference"], low, high)


def transitions() -> str:
    areas = [run["auroc"]["transitions"] for run in routed()["runs"].values()]
    return ", ".join(f"{value:.3f} [{low:.3f}, {high:.3f}]" for value, low, high in areas)


@cache
def recorded(name: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Recorded answers in ``results/recorded-cpu`` by method and question."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for one in read(ROOT / "results" / "recorded-cpu" / f"{name}.parquet"):
        found.setdefault(one["method"], {})[one["id"]] = one
    return found


def recorded_comparison(name: str, first: str, second: str) -> Comparison:
    """Two methods of recorded answers."""
    return compare(*({item: float(row["correct"]) for item, row in recorded(name)[key].items()} for key in (first, second)))


def recorded_gap(name: str, first: str, second: str) -> str:
    """The difference in accuracy of two methods of recorded answers."""
    gap = recorded_comparison(name, first, second)
    return bounds(gap.difference, *gap.interval, strong=gap.significant)


def over_seeds(first: Trained, second: Trained) -> str:
    """The difference on sums, of which each seed has others: a question of a seed counts once."""
    one, other = (
        {
            f"{run}/{item}": right
            for run in trained.folders
            for item, right in over_runs.over([run], trained.key, "chain_sum").items()
        }
        for trained in (first, second)
    )
    gap = compare(one, other)
    return bounds(gap.difference, *gap.interval, strong=gap.significant)


@cache
def areas_gap(name: str, first: str, second: str) -> str:
    """The difference in AUROC of two methods' traces of recorded answers."""
    items = [item for item in recorded(name)[first] if item in recorded(name)[second]]
    rows = [[recorded(name)[key][item] for item in items] for key in (first, second)]
    right = [np.array([row["correct"] for row in own]) for own in rows]
    score = [uses.scores(own, None)["trace, sum"] for own in rows]
    ((value, low, high),) = uses.drawn(
        len(items), lambda at: [uses.auroc(right[0][at], score[0][at]) - uses.auroc(right[1][at], score[1][at])]
    )
    return area_bounds(value, low, high, low * high > 0)


@cache
def asked(fast: str) -> dict[str, Any]:
    """Recorded answers, in prose where the probability of the results in the trace is low."""
    rows = [row for own in recorded("numbers").values() for row in own.values()]
    found = uses.routed(rows, fast, "sft_cot")
    way = found["by"]["results, sum"]
    low, high = way["difference"].interval
    gap = bounds(way["difference"].difference, low, high, strong=way["difference"].significant)
    return {"gap": gap, "share": way["tokens"] / found["tokens"][1]}


def nats(key: str) -> str:
    return f"{training(of(key).folders[0], key)['numbers']['code_loss']:.1f}"


def improbable(fast: str, what: str) -> str:
    return f"{what}, at {asked(fast)['share']:.2f} of its tokens"


def asked_gap(fast: str) -> str:
    return str(asked(fast)["gap"])


BOTH = ("cirf_full_calculator", "terse_calculator")
SUMS = "made-sums"
SUM_SEEDS = tuple(f"sums-cpu/seed-{seed}" for seed in (2, 3, 4, 5))
FOUR_SEEDS = of("cirf_full", *SUM_SEEDS), of("terse", *SUM_SEEDS)
BARE = tuple(f"sums-values-cpu/seed-{seed}" for seed in (2, 3, 4, 5))
BARE_SEEDS = of("cirf_full", *BARE), of("terse", *BARE)
BARE_SINGLE = of("single", *BARE)
USES = Table(
    "uses",
    "question",
    {"compared": text(), "effect [95 %]": text(1), "n; seeds": text(2), "verdict": text(3)},
    [
        other_use(
            *("1 Accuracy by rows", "`cirf_full` − `terse`, points: 203 rows *"),
            *(told("uses", "{less}", "203 rows"), "256; 1", "tokens worse"),
        ),
        other_use("", "254 rows †", told("uses", "{less}", "254 rows"), "200; 1", "not significant"),
        other_use("", "254 rows, trained again", lambda: recorded_gap("numbers", "cirf_full", "terse"), "600; 1", "tokens worse"),
        use("", "530 rows", of("cirf_full", BASELINES), of("terse", BASELINES), THREE, "1", "tokens worse"),
        other_use(
            "",
            "240 rows of synthetic sums (135M)",
            *(lambda: recorded_gap(SUMS, "cirf_full", "terse"), "500; 1"),
            lambda: f"not significant (p = {recorded_comparison(SUMS, 'cirf_full', 'terse').p:.2f})",
        ),
        other_use("", "the same, four other seeds *", lambda: over_seeds(*FOUR_SEEDS), "2,000; 4", "not significant"),
        other_use("", "the same, by training", lambda: by_training(CHAIN)(pair(*FOUR_SEEDS)), "4 trainings", "not significant"),
        other_use(
            "",
            "sums, bare values *",
            *(lambda: over_seeds(*BARE_SEEDS), "2,000; 4", "tokens better"),
        ),
        other_use("", "the same, by training", lambda: by_training(CHAIN)(pair(*BARE_SEEDS)), "4 trainings", "not significant"),
        other_use(
            "",
            "`cirf_full` − `single` *, by training",
            *(lambda: by_training(CHAIN)(pair(BARE_SEEDS[0], BARE_SINGLE)), "4 trainings", "codes help"),
        ),
        use(
            *("", "1,500 rows", CIRF, TERSE, FIVE, "3 and 1"),
            lambda: f"a gain above {100 * compared(CIRF, TERSE, FIVE).interval[1]:.1f} is excluded",
        ),
        other_use("", "9,450 rows; 1.5B", "", "", "not measured"),
        other_use(
            "2 Search",
            "samples that differ in functional tokens alone − samples of `terse`, pass@8 *",
            *(told("uses", "{less}", "pass@8"), "40; 1", "not significant"),
        ),
        other_use("", "the same, majority of 8 *", told("uses", "{less}", "majority"), "40; 1", "not significant"),
        other_use("", "beam over functional tokens; a verifier", "", "", "not measured"),
        other_use(
            "3 Confidence",
            "probability of functional tokens − of the answer, AUROC *",
            *(told("uses", "{less}", "functional − answer"), "256; 1", "tokens worse"),
        ),
        other_use(
            *("", "probability of the trace: `cirf_full` − `terse`, AUROC *"),
            *(told("uses", "{less}", "trace − trace"), "256; 1", "tokens worse"),
        ),
        other_use(
            "",
            "the same, 254 rows",
            *(lambda: areas_gap("numbers", "cirf_full", "terse"), "600; 1", "tokens worse"),
        ),
        other_use(
            "",
            "the same on synthetic sums (135M)",
            *(lambda: areas_gap(SUMS, "cirf_full", "terse"), "500; 1", "not significant"),
        ),
        other_use(
            "", "functional tokens added to all other scores, AUROC *", told("uses", "{less}", "all − plain"), "256; 1", "worse"
        ),
        other_use("", "unusual transitions, AUROC within a benchmark", transitions, "1,641; 2", "chance"),
        other_use(
            "",
            lambda: f"cascade: prose where the trace is long − `sft_cot`, at {routed()['share_of_tokens']:.2f} of its tokens *",
            long_traces,
            lambda: f"{routed()['difference']['n']:,}; 2",
            "+2 is excluded",
        ),
        *(
            other_use("", partial(improbable, fast, what), partial(asked_gap, fast), "600; 1", meaning)
            for fast, what, meaning in (
                ("cirf_full", "prose where the results are improbable − `sft_cot`, 254 rows *", "worse than prose"),
                ("terse", "the same with `terse` *", "not significant"),
            )
        ),
        other_use(
            "",
            "votes of three `cirf_subjects`, prose where all differ − `sft_cot` *",
            *(lambda: vote(ALL_DIFFER), "580; 3", "better than prose"),
        ),
        other_use(
            *("", "the same, at half of its tokens", lambda: vote(HALF), "580; 3"),
            lambda: f"not significant (p = {voted()['ways'][HALF]['difference'].p:.2f})",
        ),
        *(
            use(label, f"calculator − none: `{key}`", of(f"{key}_calculator"), of(key), FIVE, "1", "helps both")
            for label, key in (("4 Calculator", "cirf_full"), ("", "terse"))
        ),
        use("", "`cirf_full` − `terse`, both with it", of(BOTH[0]), of(BOTH[1]), FIVE, "1", "not significant"),
        other_use(
            "",
            "steps with the operation that their token names: synthetic sums (135M) †",
            *(told("uses", "{share} %", "operations"), "500; 1", "calling it by token would add nothing"),
        ),
        use(
            "5 Tokens without results",
            "`cirf_bare` − `direct_sft`",
            of("cirf_bare"),
            DIRECT,
            FIVE,
            "1",
            "+3 is excluded",
        ),
        other_use("", "warm-up with an attention mask", "", "", "not measured"),
        use(
            "6 Predictable codes",
            lambda: f"`cirf_full` ({nats('cirf_full')} nats) − `shuffled` ({nats('shuffled')})",
            *(CIRF, of("shuffled"), FIVE, "3 and 1", "not significant"),
        ),
        use(
            "",
            lambda: f"`cirf_full` − `single` ({nats('single')})",
            *(CIRF, of("single"), FIVE, "3 and 1", "not significant"),
        ),
        use("", "8 codes − 32 (135M)", analysed("sizes", "codebook.size=8"), ANALYSED, SMALL, "1", "not significant"),
        use(
            *(
                "7 Longer traces than in training",
                "`cirf_subjects` − `terse_subjects`, Coin Flip, by question",
                SUBJECTS,
                TERSE_SUBJECTS,
                COIN,
            ),
            *("3", lambda: f"p = {p_value(COIN)(pair(SUBJECTS, TERSE_SUBJECTS))}, not corrected"),
        ),
        other_use(
            "",
            "the same, by training",
            lambda: by_training(COIN)(pair(SUBJECTS, TERSE_SUBJECTS)),
            *("3 trainings", "not significant"),
        ),
    ],
    "Qwen2.5-Coder-0.5B unless a row says otherwise. Bold: the interval excludes 0, uncorrected. *580; 3 and 1*: three trainings "
    "of the first method, one of the second. *: specified beforehand. †: no archive. Nats: loss on functional tokens.",
)


@cache
def areas(name: str, method: str) -> dict[str, str]:
    """The AUROC of each score of a method's recorded traces, with its interval."""
    rows = list(recorded(name)[method].values())
    right, found = np.array([row["correct"] for row in rows]), uses.scores(rows, None)
    drawn = uses.drawn(len(rows), lambda at: [uses.auroc(right[at], score[at]) for score in found.values()])
    return {
        key.replace("line breaks", "functional"): f"{value:.2f} [{low:.2f}, {high:.2f}]"
        for key, (value, low, high) in zip(found, drawn, strict=True)
    }


def area(name: str, method: str) -> Cell:
    """A column of AUROCs; the line's first text is the score."""
    return lambda row: areas(name, method).get(str(row.texts[0]), "")


SCORES = Table(
    "scores",
    "score",
    {
        "`cirf_full`, word problems (0.5B)": area("numbers", "cirf_full"),
        "`terse`, word problems": area("numbers", "terse"),
        "`cirf_full`, synthetic sums (135M)": area(SUMS, "cirf_full"),
        "`terse`, synthetic sums": area(SUMS, "terse"),
    },
    [
        other_use("functional tokens (`terse`: line breaks)", "functional, mean"),
        other_use("answer", "answer"),
        other_use("length", "length"),
        other_use("whole trace", "trace, sum"),
        other_use("results alone", "results, sum"),
    ],
    "Bootstrap intervals; n = 600 and 500, one training each.",
)

FLAT = of("sim_cot_mean", "compare-sim-mean-qwen2.5-0.5b")
DIAGNOSES = Table(
    "diagnoses",
    "method",
    {"what was seen": text(), "cause, and how sure": text(1)},
    [
        other_use(
            "`pause`, `filler`",
            "level with `direct_sft`, with one, five or ten pauses or dots",
            "extra positions do not help here",
        ),
        other_use(
            "`coconut`",
            lambda: (
                f"level with `direct_sft`; good at CommonsenseQA ({percent(('commonsense_qa',))(line('coconut'))} %), poor at "
                "arithmetic"
            ),
            "six latent thoughts, few updates",
        ),
        other_use(
            "`codi`",
            lambda: f"level with `direct_sft`; {gap(of('codi'), of('pause'))} to `pause`",
            "trained at 1e-4, which its trials preferred; its paper makes five epochs at 8e-4",
        ),
        other_use(
            "`icot_si`",
            "level with `direct_sft`",
            "all of the rationale is gone when it answers, after 60 % of the updates; the CIRF paper trains it for ten epochs",
        ),
        other_use(
            "`sim_cot`",
            lambda: f"{apart(of('sim_cot'), DIRECT)} below `direct_sft`; {gap(of('sim_cot'), of('coconut'))} to `coconut`",
            lambda: (
                "its second loss is a sum over a step's tokens and outweighs the first: "
                f"{told('gradients', 'median gradient norm {sim_cot}, `coconut` {coconut}')()}, clipped to 1. With "
                f"`reduction: mean` it is {apart(FLAT, of('sim_cot'))} higher and level with `direct_sft`. "
                "One training each; the gradients of the two losses were not measured apart"
            ),
        ),
        other_use(
            "`soft_cot`",
            lambda: f"{apart(of('soft_cot'), DIRECT)} below `direct_sft`, level with the untrained `direct`",
            lambda: (
                f"frozen backbone; the trained map ({millions('soft_cot', '.1f')} million weights) teaches the form of an "
                "answer, not to calculate"
            ),
        ),
        other_use(
            "`sem_cot`",
            lambda: f"{apart(of('sem_cot'), DIRECT)} below `direct_sft`, level with `soft_cot` and `direct`",
            lambda: (
                f"frozen backbone; training its assistant ({millions('sem_cot', '.0f')} million weights) overfits: answer loss "
                "{:.2f} behind the map alone, {:.2f} and {:.2f} after one and two epochs. ".format(
                    *(found for _, found in training(of("sem_cot").folders[0], "sem_cot")["validation"])
                )
                + f"At the publication's 1e-5 not better (530 rows: {told('sem-cot-rate', '{less}')()})"
            ),
        ),
        other_use(
            "`token_skip`",
            lambda: f"{apart(of('token_skip'), PROSE)} below prose; loops out of domain",
            lambda: (
                "six ratios of 250 rows each are few: asked for all words it is still "
                f"{apart(of('token_skip_10', BASELINES), of('sft_cot', BASELINES), THREE)} below prose (530 rows). Random words "
                f"do not differ significantly ({gap(of('token_skip_random', BASELINES), of('token_skip', BASELINES), THREE)})"
            ),
        ),
        other_use("`chain_of_draft`, untrained", "half of `cot`", "its authors report the same of small models"),
        other_use(
            "`cot`, untrained",
            lambda: f"{percent(FIVE)(line('cot'))} %; truncated {rate(THREE, 'truncated')(line('cot', BASELINES))} % (530 rows)",
            "best out of domain",
        ),
        other_use(
            "`direct_sft`",
            lambda: f"{percent(FIVE)(line('direct_sft'))} %; arithmetic near zero",
            "a single pass does not calculate",
        ),
        other_use(
            "`sft_cot`",
            lambda: f"{percent(FIVE)(line('sft_cot'))} %",
            told("overfit", "learns what it is given: {right} of {n} of its own training questions (`docs.research.overfit`)"),
        ),
    ],
    COUNTED,
)

HELPS = findings(
    "helps",
    "change",
    "effect in-domain, points",
    {
        "results as calculations (`24*2=48`) instead of values (`48`)": lambda: gap(HOST, VALUED),
        "writing each step's subject": lambda: f"{gap(SUBJECTS, CIRF)}, all on Coin Flip",
        "self-training on correct traces": lambda: (
            f"{gap(of('cirf_self', SELF), HOST)}; against training twice as long {gap(ITSELF, LONGER)}, {verdict(ITSELF, LONGER)}"
        ),
        "a calculator while answering": lambda: (
            f"{plus(of('sft_cot_calculator'), PROSE)} for prose, {plus(of(BOTH[0]), of('cirf_full'))} for `cirf_full`"
        ),
        "eight [votes](research/method.md#votes) of `cirf_subjects_after_cot`, nine benchmarks": lambda: (
            f"{against_prose(votes()[8])} against prose, in {votes()[8]['time']:.2f} of its time"
        ),
        "[votes of three trainings](what-functional-tokens-are-good-for.md#a-cascade) of `cirf_subjects`, else prose": lambda: (
            f"{vote(ALL_DIFFER).replace('*', '')} against prose, at {voted()['ways'][ALL_DIFFER]['share of tokens']:.2f} "
            "of its tokens"
        ),
        "pruning by the whole trace's loss instead of the answer's": (
            "not significant after correction ([pruning](research/method.md#pruning))"
        ),
    },
    "n = 610, or {five} over three seeds; exact tests, not corrected.",
)

COSTS: dict[str, Words] = {
    "soft_cot": "",
    "direct_sft": "",
    "pause": "",
    "cirf_fast": told("before-training", "and {prune:,} to prune"),
    "cirf_after_cot": "",
    "cirf_faster": "",
    "cirf_full": "",
    "cirf_subjects_after_cot": "",
    "cirf_self": lambda: "after {:,.0f} for its first model and samples".format(
        training(HOST.folders[0], HOST.key)["timings"]["training_seconds"] + figures()["before-training"]["samples"]
    ),
    "single": "",
    "terse": "",
    "shuffled": "",
    "cirf_lean": "two cores",
    "sft_cot": "two cores",
    "cirf_bare": "two cores",
    "sem_cot": told("before-training", "two cores; after {assistant:,}"),
    "icot_si": "",
    "terse_subjects": "",
    "ordinal": "",
    "coconut": "",
    "cirf_subjects": "",
    "sim_cot": "two cores",
    "codi": "",
    "token_skip": "two cores",
}
"""Methods by the length of their training, with what an archive does not have."""
COST = Table(
    "cost",
    "method",
    {"seconds": training_seconds(), "note": text()},
    [Line(name(key), of(key), texts=(note,)) for key, note in COSTS.items()],
    "Seconds of one training; one core unless a note says otherwise. Machines and load differ.",
)


TABLES = (
    *(SUMMARY, METHODS, PAIRS, tested("holm", TESTED, FIVE), tested("holm-others", TESTED_OTHERS, OTHERS)),
    *(BY_SEED, SHARES, over("over-seeds", FIVE), over("over-seeds-others", OTHERS), trainings(), CONTROLS),
    *(TARGETS, AGAINST, QUESTIONS, STATES, OUTSIDE, FROM_PROSE, SELF_FINDINGS, PRUNING, LEARNED),
    *(HELPS, USES, SCORES, CASCADE, VOTES, DIAGNOSES, CODES),
    *(GPU_SEEDS, GPU_PAIRS, AGAINST_PROSE, MACHINES, RATES, VALUE_TABLE, VARIED, TOKEN_LOSS, TOKEN_START),
    *(LATENT, BASELINE_TABLE, CODEBOOK, VARIANTS, scaled(), OUT_OF_DOMAIN, COST),
    *(FEW_ROWS, FEW_TEXT, FEW_NUMBERS, FEW_PROSE, LONG_THINKING, REWARD, REWARD_CONTROLS),
    *FIGURE_TABLES,
)
