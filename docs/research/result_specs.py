"""The tables of the pages of results: lines, columns and captions. `docs.research.result_tables` fills them."""

from __future__ import annotations

from collections.abc import Callable

from docs.research.result_tables import (
    Cell,
    Line,
    Table,
    Tasks,
    Trained,
    accuracy,
    average,
    by_training,
    each_training,
    less,
    p_holm,
    p_value,
    percent,
    points,
    rate,
    seconds,
    share,
    text,
    tokens,
    tokens_share,
    training_seconds,
    trial,
    validation,
)

FIVE: Tasks = ("gsm8k", "svamp", "multiarith", "coin_flip", "commonsense_qa")
OTHERS: Tasks = ("math500", "bbh", "strategyqa", "scienceqa")
COIN: Tasks = ("coin_flip",)
FOUR: Tasks = ("gsm8k", "svamp", "multiarith", "commonsense_qa")
THREE: Tasks = ("gsm8k", "svamp", "multiarith")
SMALL: Tasks = ("coin_flip", "svamp", "multiarith")
GROUPS: dict[str, Tasks] = {"five": FIVE, "others": OTHERS, "coin": COIN, "four": FOUR, "three": THREE, "small": SMALL}
"""Names of groups of benchmarks in captions; in braces they become the number of questions."""

TITLES = {
    "gsm8k": "GSM8K",
    "svamp": "SVAMP",
    "multiarith": "MultiArith",
    "coin_flip": "Coin Flip",
    "commonsense_qa": "CommonsenseQA",
    "math500": "MATH-500",
    "bbh": "BIG-Bench Hard",
    "strategyqa": "StrategyQA",
    "scienceqa": "ScienceQA",
}

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
        "Column minus row, in points: the mean of three seeds less one training, unless the row says three. "
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
    "Three seeds of each (CPU) less three seeds of `sft_cot` (H100), in points. n = 580 and {others}, sign-flip test, bold: "
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
    "Validation loss after 94 steps, nats a token; 46 held-out rows; bold: the learning rate taken. Losses of different "
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
            of("cirf_after_cot"), of("cirf_full", "compare-updates-qwen2.5-0.5b"), "`cirf_after_cot` − `cirf_full`, 1,500 steps"
        ),
        pair(of("cirf_after_cot"), PROSE),
        pair(of("cirf_full", "compare-updates-qwen2.5-0.5b"), HOST, "`cirf_full`: 1,500 − 750 steps"),
        pair(of("cirf_full", "compare-higher-rate-qwen2.5-0.5b"), HOST, "`cirf_full`: 4e-4 − 2e-4"),
        pair(of("cirf_self", SELF), HOST, "`cirf_self` − the `cirf_full` it learned from"),
        pair(of("cirf_self"), CIRF, "`cirf_self` − `cirf_full` ³"),
        pair(of("cirf_self"), of("cirf_full", "compare-updates-qwen2.5-0.5b"), "`cirf_self` − `cirf_full`, 1,500 steps"),
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
    "530 rows, 266 steps, seed 1; n = {three}, Wilson intervals, McNemar's exact test, bold: p < 0.05. ²: on another "
    "machine, less the "
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
    "530 rows, 266 steps, seed 1; n = {three} (GSM8K 60, SVAMP 250, MultiArith 90), Wilson intervals, McNemar's exact test, "
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
    [
        Line("base: K = 32, mean-centred, balanced first codes, rows at the codes", ANALYSED),
        Line("K = 8", analysed("sizes", "codebook.size=8")),
        Line("K = 128", analysed("sizes", "codebook.size=128")),
        Line("K = 512 (6.9 steps a code)", analysed("sizes", "codebook.size=512")),
        Line("steps less their question", analysed("representations", "codebook.representation=question_centered")),
        Line("raw steps", analysed("representations", "codebook.representation=raw")),
        Line("noise", analysed("representations", "codebook.representation=random")),
        Line("first codes by k-means", analysed("initialisations", "codebook.initialiser=kmeans")),
        Line("random first codes", analysed("initialisations", "codebook.initialiser=random")),
        Line("random first codes and rows", analysed("initialisations", "codebook.initialiser=random,vocabulary.init=random")),
        Line("random rows", analysed("initialisations", "vocabulary.init=random")),
    ],
    "`cirf_full`, one training each; n = {small}, Wilson intervals, McNemar's exact test, bold: p < 0.05, not corrected. "
    "*mean*: of the three tasks.",
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

FEW = "few-rows-cpu/smollm2-135m-instruct/yesno-300/1"
FEW_TASK = ("yesno-300",)
FEW_ROWS = Table(
    "few-rows",
    "135M, 300 rows of yes/no with facts",
    {"accuracy, %": accuracy(FEW_TASK), "tokens": tokens(FEW_TASK), "− `direct_sft`": less(FEW_TASK, of("direct_sft", FEW))},
    [line(key, FEW) for key in ("cirf_full", "terse", "direct_sft")],
    "One training each; n = 200, Wilson intervals, McNemar's exact test; always *no*: 55.0.",
)

COSTS = {
    "soft_cot": "",
    "direct_sft": "",
    "pause": "",
    "cirf_fast": "and 821 to prune",
    "cirf_after_cot": "",
    "cirf_faster": "",
    "cirf_full": "",
    "cirf_subjects_after_cot": "",
    "cirf_self": "after 3,522 for its first model and samples",
    "single": "",
    "terse": "",
    "shuffled": "",
    "cirf_lean": "two cores",
    "sft_cot": "two cores",
    "cirf_bare": "two cores",
    "sem_cot": "two cores; after 17,389",
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
    *(GPU_SEEDS, GPU_PAIRS, AGAINST_PROSE, MACHINES, RATES, VALUE_TABLE, VARIED, TOKEN_LOSS, TOKEN_START),
    *(LATENT, BASELINE_TABLE, CODEBOOK, VARIANTS, scaled(), OUT_OF_DOMAIN, FEW_ROWS, COST),
)
