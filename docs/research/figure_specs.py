"""The tables of figures whose answers were not kept: what a command printed once, in ``results/figures.json``.

An entry of the file has the name of its table, or a topic of sentences (`told`); the ``command`` that printed it or its
``setup``; the ``machine`` where it is known; the number ``n`` of questions (or one for each benchmark); and ``rows``, or figures
of its own. Counts (``right``, ``well_formed``, ...) are of ``n``: one number, one a seed or method, or one a benchmark.
Accuracies and their intervals are computed from them. ``interval`` is that of a paired difference in points, which counts alone
do not give; ``more`` is how many more the first has right, where only that is known.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from docs.research.result_tables import ROOT, TITLES, Cell, Line, Table, Trained, bounds, text

from cirf.statistics import wilson

FILE = ROOT / "results" / "figures.json"
SHOWN = "Figures only (`results/figures.json`)"
KEPT = f"{SHOWN}; answers were not kept."
FILES = ("Llama-8B", "Qwen-14B")
"""The files of labelled thinking traces, by the model that wrote them."""

Row = Mapping[str, Any]
Show = Callable[[Row], str]


@cache
def figures() -> dict[str, Any]:
    """The entries of ``results/figures.json`` by table."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def rows(table: str) -> list[dict[str, Any]]:
    """The rows of an entry, each with what is the same for all, such as the number of questions; or the entry itself."""
    found = figures()[table]
    return [{**found, **row} for row in found.get("rows", [{}])]


def row(table: str, label: str = "") -> dict[str, Any]:
    """The row of an entry with a label."""
    return next(one for one in rows(table) if one.get("label", "") == label)


def told(table: str, words: str, label: str = "") -> Callable[[], str]:
    """Words filled with the figures of a row, and with what `derived` computes of them."""
    return lambda: words.format(**row(table, label), **derived(row(table, label)))


def derived(found: Row) -> dict[str, Any]:
    """Of a pair the accuracies in ``percent``, and ``less``, their difference with its interval."""
    if "interval" not in found:
        return {}
    low, high = found["interval"]
    strong = found.get("significant", low * high > 0)
    if "auroc" in found:
        return {"less": area_bounds(found["auroc"], low, high, strong)}
    right, n = found.get("right", (found.get("more", 0), 0)), found["n"]
    less = bounds((right[0] - right[1]) / n, low / 100, high / 100, strong=strong)
    return {"percent": [f"{100 * count / n:.1f}" for count in right], "less": less, "apart": less.partition(" ")[0].strip("*+-")}


def area_bounds(value: float, low: float, high: float, strong: bool) -> str:
    """A difference in AUROC with its interval."""
    return f"**{value:.2f}** [{low:.2f}, {high:.2f}]" if strong else f"{value:.2f} [{low:.2f}, {high:.2f}]"


def printed(table: str, head: str, columns: Mapping[str, Show], caption: str) -> Table:
    """A table with a line for each row of the entry, read when it is filled."""

    def lines() -> list[Line]:
        shown = [(row["label"], tuple(show(row) for show in columns.values())) for row in rows(table)]
        return [Line(label, Trained("", ()), texts=cells) for label, cells in shown]

    cells: dict[str, Cell] = {title: text(place) for place, title in enumerate(columns)}
    return Table(table, head, cells, lines, caption)


def several(found: Any) -> list[Any]:
    """The figures of a cell: one, or those by benchmark or by seed."""
    return [*found.values()] if isinstance(found, Mapping) else found if isinstance(found, list) else [found]


def accuracy(row: Row) -> str:
    """Accuracy over all questions, of all seeds, in percent with Wilson's interval."""
    seeds = len(row["right"]) if isinstance(row["right"], list) else 1
    right, n = sum(several(row["right"])), seeds * sum(several(row["n"]))
    return bounds(right / n, *wilson(right, n), sign="")


def percent(key: str, of: str = "n", style: str = ".1f") -> Show:
    """A count as a percentage; of one a seed, each."""

    return lambda row: ", ".join(f"{100 * count / row[of]:{style}}" for count in several(row.get(key, [])))


def percent_on(task: str) -> Show:
    """Accuracy on one of several benchmarks in percent."""
    return lambda row: f"{100 * row['right'][task] / row['n'][task]:.1f}"


def number(key: str, style: str = "", between: str = ", ") -> Show:
    """A figure as it is, or several; nothing where a row has none."""

    return lambda row: between.join(format(value, style) for value in several(row.get(key, [])))


def above_first(table: str) -> Show:
    """The difference to the first row in points, computed from the counts; with the interval that was printed."""

    def cell(row: Row) -> str:
        if "interval" not in row:
            return ""
        difference = (row["right"] - rows(table)[0]["right"]) / row["n"]
        low, high = row["interval"]
        return bounds(difference, low / 100, high / 100, strong=row.get("significant", False))

    return cell


def strong(show: Show) -> Show:
    """Bold in the row of the defaults."""
    return lambda row: f"**{show(row)}**" if row.get("default") else show(row)


LEFT_OPEN = printed(
    "left-open",
    "change to the base",
    {
        "codes used (perplexity)": lambda row: f"{row['codes']} ({row['perplexity']})",
        "accuracy, %": accuracy,
        "tokens": number("tokens"),
        "− base": above_first("left-open"),
    },
    f"{KEPT} One training each on one core of an AMD EPYC (the table above is from another machine); n = 360, Wilson intervals, "
    "McNemar's exact test, bold: p < 0.05.",
)
SYNTHETIC = printed(
    "synthetic",
    "method",
    {
        "accuracy by seed, % (n = 200)": percent("right"),
        "all (n = 600)": accuracy,
        "tokens": number("tokens", between=" to "),
        "seconds": number("seconds", between=" to "),
    },
    f"{KEPT} Wilson intervals.",
)
REAL_ROWS = printed(
    "real-rows",
    "method",
    {
        "accuracy, %": accuracy,
        **{TITLES[task]: percent_on(task) for task in ("gsm8k", "svamp", "multiarith", "coin_flip", "commonsense_qa")},
        "tokens": number("tokens"),
        "seconds": number("seconds"),
    },
    f"{KEPT} n = 690 (GSM8K 100, SVAMP 400, MultiArith 90, Coin Flip 50, CommonsenseQA 50), Wilson intervals.",
)
FORM = printed(
    "form",
    "rows",
    {
        "start": strong(number("start")),
        "rate": strong(lambda row: f"× {row['rate']}"),
        "well-formed, %": percent("well_formed", style=".0f"),
        "truncated, %": percent("truncated", style=".0f"),
        "validation loss": strong(number("loss", ".3f", "; ")),
    },
    f"{KEPT} Bold: the default.",
)


def always(row: Row) -> str:
    """What the commonest answer alone would have, in percent, where it is known."""
    return f" {100 * row['always'] / row['n']:.1f}" if "always" in row else ""


FEW_ROWS_KINDS = printed(
    "few-rows-kinds",
    "backbone",
    {
        "300 rows of": number("data"),
        "method": number("method"),
        "accuracy, %": lambda row: "; ".join([accuracy(row), *([row["note"] + always(row)] if "note" in row else [])]),
        "tokens": number("tokens"),
        "well-formed, %": percent("well_formed"),
    },
    f"{KEPT} Wilson intervals.",
)


def agreed(file: str) -> Show:
    """F1 of boundaries with its interval, where it has one."""

    def cell(row: Row) -> str:
        low_high = row.get("interval", {}).get(file)
        return f"{row['f1'][file]:.3f}" + (f" [{low_high[0]:.3f}, {low_high[1]:.3f}]" if low_high else "")

    return cell


CUTS = printed(
    "cuts",
    "cut by",
    {file: agreed(file) for file in FILES},
    f"{SHOWN}. Intervals: bootstrap over traces.",
)


def ami(name: str, file: str) -> str:
    """Agreement with the labels of 8 and of 16 codes, or of a way of naming steps that has no number of codes."""
    found = {row["label"]: row["ami"][file] for row in rows("cut-codes")}
    sizes = [f"{name}, K={size}" for size in (8, 16)]
    return ", ".join(f"{found[label]:.3f}" for label in (sizes if sizes[0] in found else [name]))


def ways() -> list[Line]:
    """A line for each way of naming steps: what was embedded, what the codes are by, and the agreement in each file."""
    kinds = {"whole step": "raw", "whole step, centred": "centred", "**first four words, centred**": "4 words, centred"}
    named = [("classes of opening words, by rule", "", "opening words"), ("place in the trace", "", "place in the trace")]
    for label, kind in reversed(kinds.items()):
        named = [(label, "`cirf`", f"ours, {kind}"), ("", "k-means", f"k-means, {kind}"), *named]
    return [Line(label, Trained("", ()), texts=(by, *(ami(name, file) for file in FILES))) for label, by, name in named]


CUT_CODES = Table(
    "cut-codes",
    "embedded",
    {"codes by": text(), **{f"{file}: 8, 16 codes": text(place) for place, file in enumerate(FILES, 1)}},
    ways,
    f"{SHOWN}. Means of two seeds.",
)


def verdict(row: Row) -> str:
    """The differences to other settings in points, with the intervals that were printed; or words."""
    found = []
    for one in row.get("differences", []):
        task, other = one["task"], rows("settings")[one["to"]]
        difference = (row["right"][task] - other["right"][task]) / row["n"][task]
        low_high = [end / 100 for end in one.get("interval", [])]
        found.append(f"{TITLES[task]} {bounds(difference, *low_high) if low_high else f'{100 * difference:+.1f}'}")
    return ", ".join(found) or row.get("note", "")


SETTINGS = printed(
    "settings",
    "setting",
    {
        "Coin Flip, % (n = 100)": percent_on("coin_flip"),
        "CommonsenseQA, % (n = 120)": percent_on("commonsense_qa"),
        "tokens": number("tokens"),
        "verdict": verdict,
    },
    f"{KEPT} †: by code that was not kept. Wilson intervals are about ±10 and ±9 points.",
)
PRUNED = printed(
    "pruning-530",
    "method",
    {
        "results kept, %": number("kept"),
        "accuracy, %": accuracy,
        "MultiArith, %": percent("multiarith", "n_multiarith"),
        "tokens": number("tokens"),
    },
    f"{KEPT} n = 400 (MultiArith 90), Wilson intervals.",
)
LIMITS = printed(
    "limits",
    "setting",
    {"accuracy, %": accuracy, "tokens": number("tokens")},
    f"{KEPT} n = 180, Wilson intervals.",
)


def times_first(row: Row) -> str:
    return f"{row['seconds'] / rows('training-cost')[0]['seconds']:.2f}"


COSTS_OF_TRAINING = printed(
    "training-cost",
    "method",
    {
        "seconds per 1,000 examples": number("seconds", ","),
        "relative": times_first,
        "forward passes a step": number("passes"),
        "positions an example": number("positions"),
    },
    f"{SHOWN}. 64 rows, two epochs, two cores, the faster of two rounds.",
)


def wrong_states(label: str) -> str:
    """How many states are wrong, in each run. Archives have the accuracy alone."""
    found = row("states", label)
    return ", ".join(f"{wrong} of {all_}" for wrong, all_ in zip(found["wrong"], found["states"], strict=True))


def correct_traces(label: str) -> str:
    return number("correct")(row("states", label))


FIGURE_TABLES = (
    *(LEFT_OPEN, SYNTHETIC, REAL_ROWS, FORM, FEW_ROWS_KINDS, CUTS, CUT_CODES),
    *(SETTINGS, PRUNED, LIMITS, COSTS_OF_TRAINING),
)
