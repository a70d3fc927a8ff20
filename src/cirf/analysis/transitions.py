"""Which function follows which, in training traces and in what the model wrote.

A trace of codes 5, 16, 5 has the transitions (start, 5), (5, 16), (16, 5), (5, end). A transition's lift is how much more
often it comes than if each code followed whatever was before it: share of the pair over the product of the shares of its
two halves. The uncertainty of the next code, its entropy in bits, given the code before it and not given it, shows how much of a
trace's order is determined by the codes.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import fmean, stdev
from typing import Any

import numpy as np

from cirf.analysis.accuracy import FUNCTIONAL
from cirf.analysis.analysis import Analysis, AnalysisResult, MissingInputError
from cirf.analysis.source import Run, Source, read_codes
from cirf.pictures.canvas import SOFT, canvas
from cirf.pictures.table import Column, Table

START, END = "start", "end"
State = int | str
_MOST = 40  # rows of the table of pairs
_DRAWN = 24  # codes of the picture
_SHUFFLES = 100
_PAIRS = (
    Column("where", "Traces"),
    Column("before", "Before"),
    Column("before_label", "Operation"),
    Column("after", "After"),
    Column("after_label", "Operation"),
    Column("count", "Times", "count"),
    Column("share", "Of what follows", "share"),
    Column("lift", "Lift", "number"),
)
_ENTROPY = (
    Column("where", "Traces"),
    Column("traces", "Traces counted", "count"),
    Column("transitions", "Transitions", "count"),
    Column("entropy", "Entropy of the next, bits", "number"),
    Column("conditional", "Given the one before, bits", "number"),
    Column("shuffled", "The same, codes shuffled within traces, mean", "number"),
    Column("shuffled_sd", "Standard deviation of the shuffles", "number"),
)


def make(source: Source) -> AnalysisResult:
    """The most frequent transitions, the entropies, and a picture of the training traces'."""
    run = source.first(lambda one: any(one.training_codes.values()))
    sequences = {"training": [codes for codes in run.training_codes.values() if codes]}
    if not sequences["training"]:
        raise MissingInputError("the run has no codes yet; make the stage `codebook` first (an archive has no codes)")
    if answered := _answered(run):
        sequences["answers"] = answered
    labels = {row["code"]: row["label"] for row in run.data["codebook"]["codes"]}
    pairs = [row for where, found in sequences.items() for row in _pair_rows(where, count_pairs(found), labels)]
    entropies = [_entropy_row(where, found) for where, found in sequences.items()]
    notes = [
        *source.notes(run),
        "With few traces for many codes the entropy given the code before is too low by chance alone: what it is to be"
        f" compared with is that of the same traces with the codes of each shuffled, the mean of {_SHUFFLES} shuffles.",
    ]
    picture = _picture(count_pairs(sequences["training"]), labels)
    tables = (
        Table("transitions", f"The {_MOST} most frequent transitions between functions.", _PAIRS, pairs),
        Table("entropy", "How sure the next function is.", _ENTROPY, entropies),
    )
    return AnalysisResult(tables, {"transitions": picture}, notes)


def _answered(run: Run) -> list[list[int]]:
    """The codes of each answer of the first functional method that was evaluated."""
    for method in FUNCTIONAL:
        rows = [row for table in run.answers(method).values() for row in table] if method in run.methods else []
        found = [[code for code, _ in read_codes(row["output"]) if code is not None] for row in rows]
        if kept := [codes for codes in found if codes]:
            return kept
    return []


def count_pairs(sequences: Iterable[Sequence[int]]) -> Counter[tuple[State, State]]:
    """How often each code follows each, with what traces begin and end with."""
    chains: Iterable[list[State]] = ([START, *codes, END] for codes in sequences)
    return Counter(pair for chain in chains for pair in pairwise(chain))


def _halves(pairs: Counter[tuple[State, State]]) -> tuple[Counter[State], Counter[State]]:
    """How often each state comes first in a pair, and how often second."""
    before, after = Counter[State](), Counter[State]()
    for (first, second), count in pairs.items():
        before[first] += count
        after[second] += count
    return before, after


def entropies(pairs: Counter[tuple[State, State]]) -> tuple[float, float]:
    """Entropy in bits of what comes next, and of what comes next given what was before."""
    (before, after), total = _halves(pairs), pairs.total()
    plain = math.fsum(-count / total * math.log2(count / total) for count in after.values())
    given = math.fsum(-count / total * math.log2(count / before[first]) for (first, _), count in pairs.items())
    return plain, given


def _entropy_row(where: str, sequences: Sequence[Sequence[int]]) -> dict[str, Any]:
    pairs = count_pairs(sequences)
    plain, given = entropies(pairs)
    shuffled = shuffled_entropies(sequences)
    return {
        "where": where,
        "traces": len(sequences),
        "transitions": pairs.total(),
        "entropy": plain,
        "conditional": given,
        "shuffled": fmean(shuffled),
        "shuffled_sd": stdev(shuffled),
    }


def shuffled_entropies(sequences: Iterable[Sequence[int]], times: int = _SHUFFLES) -> list[float]:
    """The entropy given the code before, of traces with the codes of each in random order, for each of some shuffles. The order
    of the traces is no matter, that of the codes in each neither."""
    ordered = sorted(sorted(codes) for codes in sequences)
    states, codes = np.unique(np.concatenate(ordered), return_inverse=True)
    size, lengths = len(states) + 1, np.array([len(one) for one in ordered])
    trace = np.repeat(np.arange(len(ordered)), lengths)
    places = np.arange(len(codes)) + trace + 1  # an edge mark before each trace, and one after the last
    generator = np.random.default_rng(0)
    chain = np.full(len(codes) + len(ordered) + 1, size - 1)
    found = []
    for _ in range(times):
        chain[places] = codes[np.lexsort((generator.random(len(codes)), trace))]
        counts = np.unique(chain[:-1] * size + chain[1:], return_counts=True)
        pairs = Counter({(int(pair) // size, int(pair) % size): int(times) for pair, times in zip(*counts, strict=True)})
        found.append(entropies(Counter[tuple[State, State]](pairs))[1])
    return found


def _pair_rows(where: str, pairs: Counter[tuple[State, State]], labels: dict[int, str]) -> list[dict[str, Any]]:
    (before, after), total = _halves(pairs), pairs.total()
    ordered = sorted(pairs.items(), key=lambda item: (-item[1], str(item[0])))[:_MOST]
    return [
        {
            "where": where,
            "before": str(first),
            "before_label": _label(first, labels),
            "after": str(second),
            "after_label": _label(second, labels),
            "count": count,
            "share": count / before[first],
            "lift": count * total / (before[first] * after[second]),
        }
        for (first, second), count in ordered
    ]


def _label(state: State, labels: dict[int, str]) -> str:
    return labels.get(state, "") if isinstance(state, int) else ""


def _picture(pairs: Counter[tuple[State, State]], labels: dict[int, str]) -> str:
    """Rows: before, columns: after, the darker the larger the share of what follows; the most frequent codes."""
    often = _halves(pairs)[0]
    codes = sorted((state for state in often if isinstance(state, int)), key=lambda code: (-often[code], code))[:_DRAWN]
    rows: list[State] = [START, *codes]
    columns: list[State] = [*codes, END]
    shares = np.array([[pairs[first, second] / often[first] if often[first] else 0.0 for second in columns] for first in rows])
    with canvas(7.4, 6.6, "transitions") as (figure, out):
        axes = figure.add_subplot()
        axes.grid(False)
        drawn = axes.imshow(shares, cmap="Blues", vmin=0, vmax=float(shares.max()))
        axes.set_xticks(range(len(columns)), [str(state) for state in columns], rotation=90, fontsize=7.5)
        axes.set_yticks(range(len(rows)), [f"{_label(state, labels)} {state}".strip() for state in rows], fontsize=7.5)
        axes.set_xlabel("next")
        bar = figure.colorbar(drawn, ax=axes, shrink=0.7, label="share of what follows")
        bar.ax.tick_params(labelsize=8, labelcolor=SOFT)
        best = sorted(pairs.items(), key=lambda item: (-item[1], str(item[0])))[:5]
        summary = "; ".join(f"{second} after {first}: {count} times" for (first, second), count in best)
        out.append(f"Which function follows which in training traces, the {len(codes)} most frequent. {summary}")
    return out[0]


ANALYSIS = Analysis(
    "transitions",
    "Which function follows which",
    "How often each function follows each, and how much is known of the next one when the one before it is.",
    "codes; for answers an evaluation of a functional method",
    make,
)
