"""Uses of functional tokens: as a confidence score, to route questions to prose, to sample plans alone, to call operations.

    python -m docs.research.uses confidence ROWS [--run RUN] [--methods cirf_full terse]
    python -m docs.research.uses votes ROWS
    python -m docs.research.uses route ROWS [--fast cirf_full] [--slow sft_cot]
    python -m docs.research.uses cascade ARCHIVE [ARCHIVE] --tasks gsm8k svamp [--fast cirf_full] [--slow sft_cot]
    python -m docs.research.uses agreement ARCHIVE ARCHIVE [ARCHIVE] --tasks gsm8k svamp [--fast cirf_subjects]
    python -m docs.research.uses operations RUN [--method cirf_full]

ROWS are answers with log-probabilities of tokens (`docs.research.recorded`).

- ``confidence``: AUROC of scores of a trace, with bootstrap intervals over questions; differences are paired. ``--run`` gives the
  training traces for the score of transitions.
- ``votes``: pass@k, majority and plans for each way of sampling.
- ``route``: the trace answers, or prose if a score of the trace is below a limit. The limit is the best one that uses at most
  half of prose's tokens on the other half of the questions.
- ``cascade``: the same from archives, which have no scores, by the length of the trace. Several archives are seeds.
  ``--slow-archive`` is the archive of prose, if it is another one.
- ``agreement``: two or three trainings of the fast method. The third is asked if the first two disagree, and prose if all
  differ. The mean over the orders; prose's archive is the first one.
- ``operations``: in how many steps the token's commonest operation in training is the one that the model writes. If tokens called
  their operations, only traces in which all steps agree could stay right.

The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from docs.research.over_runs import archived
from docs.research.recorded import read
from scipy.stats import rankdata

from cirf.analysis.source import read_codes
from cirf.statistics import compare, describe_difference, mean

Rows = Sequence[Mapping[str, Any]]
Vector = np.ndarray[Any, Any]
DRAWS = 2000
_EDGE = (-1, -2)  # before the first code and after the last one
_SMOOTH = 0.1


def auroc(right: Vector, score: Vector) -> float:
    """The probability that a right item scores above a wrong one; ties count half. nan if all are right or all wrong."""
    ones = int(right.sum())
    if not 0 < ones < len(right):
        return float("nan")
    return float((rankdata(score)[right].sum() - ones * (ones + 1) / 2) / (ones * (len(right) - ones)))


def within(right: Vector, score: Vector, group: Vector) -> float:
    """AUROC over pairs within a group, so that differences between benchmarks do not count."""
    parts = [group == one for one in np.unique(group)]
    pairs = [int(right[part].sum()) * int((~right[part]).sum()) for part in parts]
    found = [auroc(right[part], score[part]) for part, weight in zip(parts, pairs, strict=True) if weight]
    return float(np.average(found, weights=[weight for weight in pairs if weight])) if found else float("nan")


def drawn(count: int, values: Callable[[Vector], Sequence[float]], seed: int = 0) -> list[tuple[float, float, float]]:
    """Each of ``values`` over all items, given by their indices, with the ends of its 95 % bootstrap interval."""
    generator = np.random.default_rng(seed)
    several = np.array([values(generator.integers(0, count, count)) for _ in range(DRAWS)])
    ends = np.nanquantile(several, (0.025, 0.975), axis=0).T
    return [(one, float(low), float(high)) for one, (low, high) in zip(values(np.arange(count)), ends, strict=True)]


def bigrams(codes: Sequence[Sequence[int]], known: Sequence[Sequence[int]] | None) -> Vector:
    """Mean log-probability of each trace's transitions, estimated from ``known`` traces with 0.1 added to each count. ``None``:
    estimated from all other traces."""
    chains = [[_EDGE[0], *one, _EDGE[1]] for one in codes]
    basis = chains if known is None else [[_EDGE[0], *one, _EDGE[1]] for one in known]
    pairs = Counter(pair for chain in basis for pair in pairwise(chain))
    before = Counter(first for chain in basis for first in chain[:-1])
    kinds = len({code for chain in basis for code in chain})
    found = []
    for chain in chains:
        own, alone = (Counter(pairwise(chain)), Counter(chain[:-1])) if known is None else (Counter(), Counter())
        logs = [
            np.log((pairs[pair] - own[pair] + _SMOOTH) / (before[pair[0]] - alone[pair[0]] + _SMOOTH * kinds))
            for pair in pairwise(chain)
        ]
        found.append(float(np.mean(logs)))
    return np.array(found)


def scores(rows: Rows, known: Sequence[Sequence[int]] | None) -> dict[str, Vector]:
    """Confidence scores of each row; larger is more confident. Scores of functional tokens exist only if a method has some;
    otherwise the mean log-probability of line breaks replaces them. A row without such tokens has the lowest score."""

    def of(letters: str, how: Callable[[Sequence[float]], float], key: str = "logp") -> Vector:
        found = []
        for row in rows:
            values = [value for kind, value in zip(row["kinds"], row[key], strict=False) if kind in letters]
            found.append(how(values) if values else math.nan)
        scored = np.array(found)
        return np.where(np.isnan(scored), np.nanmin(scored) if np.isfinite(scored).any() else 0.0, scored)

    marks = "f" if any("f" in row["kinds"] for row in rows) else "m"
    found = {
        "answer": of("a", sum),
        "trace, sum": of("fmra", sum),
        "trace, mean": of("fmra", mean),
        "trace, least": of("fmra", min),
        "results, sum": of("r", sum),
        "results, least": of("r", min),
        "functional, mean": of(marks, mean),
        "functional, sum": of(marks, sum),
        "functional, least": of(marks, min),
        "functional, entropy": -of(marks, mean, "entropy"),
        "length": -np.array([float(row["tokens"]) for row in rows]),
    }
    if marks == "f":
        codes = [[code for code, _ in read_codes(row["output"]) if code is not None] for row in rows]
        return found | {"transitions": bigrams(codes, known)}
    return {name.replace("functional", "line breaks"): value for name, value in found.items()}


def combined(right: Vector, found: Mapping[str, Vector], names: Sequence[str], fold: Vector) -> Vector:
    """The scores combined by logistic regression, fitted on the other folds."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    inputs, out = np.column_stack([found[name] for name in names]), np.zeros(len(right))
    for one in np.unique(fold):
        held = fold == one
        model = make_pipeline(StandardScaler(), LogisticRegression()).fit(inputs[~held], right[~held])
        out[held] = model.decision_function(inputs[held])
    return out


PLAIN = ("answer", "results, sum", "results, least", "length")
FUNCTIONAL = ("functional, mean", "functional, sum", "functional, least", "functional, entropy", "transitions")


def confidence(rows: Rows, known: Sequence[Sequence[int]] | None, methods: Sequence[str]) -> dict[str, Any]:
    """AUROCs by method, and the differences between one method's scores and between the two methods' traces."""
    by = {name: {row["id"]: row for row in rows if row["method"] == name} for name in methods}
    items = [item for item in by[methods[0]] if all(item in one for one in by.values())]
    fold = np.array([zlib.crc32(item.encode()) % 5 for item in items])
    right = {name: np.array([by[name][item]["correct"] for item in items]) for name in methods}
    found = {name: scores([by[name][item] for item in items], known) for name in methods}
    for name, own in found.items():
        own["plain, fitted"] = combined(right[name], own, PLAIN, fold)
        if "transitions" in own:
            own["all, fitted"] = combined(right[name], own, PLAIN + FUNCTIONAL, fold)
    columns = [(name, score) for name in methods for score in found[name]]
    first = methods[0]
    gaps = [((first, "functional, mean"), (first, "answer")), ((first, "all, fitted"), (first, "plain, fitted"))]
    gaps += [((first, "trace, sum"), (other, "trace, sum")) for other in methods[1:]]
    gaps += [((first, "functional, mean"), (first, "trace, sum"))]
    gaps = [gap for gap in gaps if gap[0][1] in found[first]]

    def values(places: Vector) -> list[float]:
        one = {(name, score): auroc(right[name][places], found[name][score][places]) for name, score in columns}
        return [*one.values(), *(one[a] - one[b] for a, b in gaps)]

    summary = drawn(len(items), values)
    table = {f"{name}: {score}": row for (name, score), row in zip(columns, summary, strict=False)}
    apart = {" ".join((*a, "-", *b)): row for (a, b), row in zip(gaps, summary[len(columns) :], strict=True)}
    shares = {name: float(one.mean()) for name, one in right.items()}
    return {"n": len(items), "right": shares, "auroc": table, "differences": apart}


def sampled(rows: Rows) -> dict[str, Any]:
    """By method and way: pass@k, majority, best by the trace's mean log-probability, plans, answers and tokens. Also the
    difference of each way's pass@k and majority to the last method with all tokens sampled."""
    groups: dict[tuple[str, str], dict[str, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        groups[row["method"], row["way"]][row["id"]].append(row)
    items = [item for item in next(iter(groups.values())) if all(item in group for group in groups.values())]
    found: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    for key, group in groups.items():
        own = found[key] = defaultdict(dict)
        for item in items:
            votes = group[item]
            given = [vote["parsed"] for vote in votes if vote["parsed"] is not None]
            most = max(given, key=lambda answer: (given.count(answer), -given.index(answer)), default=None)
            best = max(votes, key=lambda vote: mean([*vote["logp"], 0.0]))
            own["pass@k"][item] = float(any(vote["correct"] for vote in votes))
            own["majority"][item] = float(any(vote["correct"] for vote in votes if vote["parsed"] == most))
            own["best"][item] = float(best["correct"])
            own["one"][item] = mean([float(vote["correct"]) for vote in votes])
            own["plans"][item] = float(len({tuple(code for code, _ in read_codes(vote["output"])) for vote in votes}))
            own["answers"][item] = float(len(set(given)))
            own["tokens"][item] = float(sum(vote["tokens"] for vote in votes))
    table = {" ".join(key): {name: mean(list(one.values())) for name, one in own.items()} for key, own in found.items()}
    last = (rows[-1]["method"], "all")
    gaps = {
        f"{' '.join(key)} - {' '.join(last)}, {name}": compare(own[name], found[last][name])
        for key, own in found.items()
        for name in ("pass@k", "majority", "best")
        if key != last
    }
    return {"n": len(items), "table": table, "differences": gaps}


def route(right: Vector, tokens: Vector, score: Vector, limit: float) -> tuple[Vector, Vector]:
    """Verdicts and tokens if the slow method answers all questions with a score below ``limit``. ``right`` and ``tokens``
    [2 x questions] are those of the fast and the slow method; if both write, the tokens of both count."""
    asked = score < limit
    return np.where(asked, right[1], right[0]), tokens[0] + asked * tokens[1]


def chosen(right: Vector, tokens: Vector, score: Vector, most: float) -> float:
    """The limit of `route` with the most right answers at no more than ``most`` mean tokens."""
    limits = [-np.inf, *np.unique(score), np.inf]
    able = [(*(float(part.mean()) for part in route(right, tokens, score, limit)), limit) for limit in limits]
    return float(max((one for one in able if one[1] <= most), key=lambda one: (one[0], -one[1]), default=able[0])[2])


def gains(right: Vector, tokens: Vector, draws: int = 20) -> dict[float, float]:
    """Points of `route` above the slow method at half of its tokens, by AUROC of a simulated signal.

    The signal has normal scores for right and for wrong traces, independent of the slow method.
    """
    generator, found = np.random.default_rng(0), {}
    asked = min(max(0.5 - tokens[0].mean() / tokens[1].mean(), 0.0), 1.0)  # questions that the slow method may answer too
    for area in (0.5, 0.6, 0.7, 0.8, 0.9, 0.9999):
        apart, made = 2**0.5 * NormalDist().inv_cdf(area), []
        for _ in range(draws):
            score = generator.normal(size=right.shape[1]) + apart * right[0]
            made.append(route(right, tokens, score, float(np.quantile(score, asked)))[0].mean())
        found[round(area, 2)] = float(np.mean(made) - right[1].mean())
    return found


def halves(items: Sequence[str], right: Vector, tokens: Vector, score: Vector) -> tuple[Vector, Vector]:
    """`route` on each half of the items with the limit `chosen` on the other half, at half of the slow method's tokens."""
    half = np.array([zlib.crc32(item.encode()) % 2 for item in items])
    made, spent = np.zeros(len(items)), np.zeros(len(items))
    for held in (half == 0, half == 1):
        limit = chosen(right[:, ~held], tokens[:, ~held], score[~held], tokens[1, ~held].mean() / 2)
        made[held], spent[held] = route(right[:, held], tokens[:, held], score[held], limit)
    return made, spent


def routed(rows: Rows, fast: str, slow: str) -> dict[str, Any]:
    """For each score of the fast method's traces: the AUROC, and of `route` the share of slow answers, accuracy, tokens and the
    difference to the slow method."""
    quick, prose = ({row["id"]: row for row in rows if row["method"] == name} for name in (fast, slow))
    items = [item for item in quick if item in prose]
    right = np.array([[by[item]["correct"] for item in items] for by in (quick, prose)])
    tokens = np.array([[by[item]["tokens"] for item in items] for by in (quick, prose)], dtype=float)
    if not items:
        raise SystemExit(f"no question has answers of both {fast} and {slow}")
    prose_right = dict(zip(items, right[1].astype(float).tolist(), strict=True))
    summary: dict[str, Any] = {"n": len(items), "right": right.mean(axis=1).tolist(), "tokens": tokens.mean(axis=1).tolist()}
    summary |= {"either": float(right.any(axis=0).mean()), "by": {}}
    for name, score in scores([quick[item] for item in items], None).items():
        made, spent = halves(items, right, tokens, score)
        gap = compare(dict(zip(items, made.tolist(), strict=True)), prose_right)
        summary["by"][name] = {
            "auroc": auroc(right[0], score),
            "asked": float((spent > tokens[0]).mean()),
            "right": float(made.mean()),
            "tokens": float(spent.mean()),
            "difference": gap,
        }
    return summary


def signals(quick: Rows, right: Vector, group: Vector) -> dict[str, tuple[float, float, float]]:
    """AUROC within a benchmark of the signals that an archive holds, with its interval."""
    codes = [[code for code, _ in read_codes(row.get("output", "")) if code is not None] for row in quick]
    found = {"length": -np.array([float(row["tokens"]) for row in quick])}
    found |= {"transitions": bigrams(codes, None)} if any(codes) else {}

    def values(at: Vector) -> list[float]:
        return [within(right[at], score[at], group[at]) for score in found.values()]

    return dict(zip(found, drawn(len(quick), values), strict=True))


def cascade(pairs: Sequence[tuple[Path, Path]], fast: str, slow: str, tasks: Sequence[str]) -> dict[str, Any]:
    """The cascade in each pair of runs of the ``fast`` and ``slow`` method, and over all pairs with each question's mean."""
    summary: dict[str, Any] = {"runs": {}}
    ours, theirs = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    for run, other in pairs:
        quick, prose = (
            {f"{task}/{row['id']}": row for task in tasks for row in archived(folder).answers(method)[task]}
            for folder, method in ((run, fast), (other, slow))
        )
        items = sorted(quick.keys() & prose.keys())
        right = np.array([[rows[item]["correct"] for item in items] for rows in (quick, prose)])
        tokens = np.array([[rows[item]["tokens"] for item in items] for rows in (quick, prose)], dtype=float)
        made, spent = halves(items, right, tokens, -tokens[0])
        for item, own, its in zip(items, made.tolist(), right[1].tolist(), strict=True):
            ours[item].append(float(own))
            theirs[item].append(float(its))
        summary["runs"][run.name] = {
            "n": len(items),
            "right": [*right.mean(axis=1).tolist(), float(made.mean())],
            "tokens": [*tokens.mean(axis=1).tolist(), float(spent.mean())],
            "auroc": signals([quick[item] for item in items], right[0], np.array([item.partition("/")[0] for item in items])),
            "either": float(right.any(axis=0).mean()),
            "gains": gains(right, tokens),
        }
    both = [item for item in ours if len(ours[item]) == len(pairs)]
    gap = compare({item: mean(ours[item]) for item in both}, {item: mean(theirs[item]) for item in both})
    share = [sum(row["tokens"][place] for row in summary["runs"].values()) for place in (2, 1)]
    return summary | {"share_of_tokens": share[0] / share[1], "difference": gap.to_dict()}


def agreed(keys: Vector, right: Vector, tokens: Vector, order: Sequence[int]) -> tuple[Vector, Vector, Vector]:
    """Verdicts and tokens of three trainings asked in ``order``, and where all differ. There the first one's answer is given.
    ``keys``, nan where there is no answer, ``right`` and ``tokens`` are [3 x questions]."""
    first, second, third = (keys[place] for place in order)
    early, late = first == second, (third == first) | (third == second)
    made = np.where(~early & late, right[order[2]], right[order[0]])
    spent = tokens[order[0]] + tokens[order[1]] + np.where(early, 0, tokens[order[2]])
    return made, spent, ~early & ~late


def agreement(runs: Sequence[Path], prose: Path, fast: str, slow: str, tasks: Sequence[str]) -> dict[str, Any]:
    """Two or three trainings that vote: alone, with prose where all differ, and so at no more than half of prose's tokens."""
    several = [{f"{task}/{row['id']}": row for task in tasks for row in archived(run).answers(fast)[task]} for run in runs]
    last = {f"{task}/{row['id']}": row for task in tasks for row in archived(prose).answers(slow)[task]}
    items = sorted(set(last).intersection(*several))
    for run, one in zip(runs, several, strict=True):
        if not any("answer_key" in one[item] for item in items):
            raise SystemExit(f"{run}: no answer keys of {fast}")
    keys = np.array([[one[item].get("answer_key", math.nan) for item in items] for one in several])
    right = np.array([[one[item]["correct"] for item in items] for one in several])
    tokens = np.array([[one[item]["tokens"] for item in items] for one in several], dtype=float)
    if len(runs) == 2:  # a third that costs nothing and has no answer
        keys, right, tokens = (
            np.vstack([part, [empty] * len(items)]) for part, empty in ((keys, math.nan), (right, False), (tokens, 0))
        )
    slow_right = np.array([last[item]["correct"] for item in items])
    slow_tokens = np.array([last[item]["tokens"] for item in items], dtype=float)
    ways: dict[str, list[tuple[Vector, Vector]]] = {"one training": list(zip(right, tokens, strict=True))[: len(runs)]}
    ways |= {"votes alone": [], "prose where all differ": [], "the same at half": []}
    for order in ((0, 1, 2), (1, 2, 0), (2, 0, 1)) if len(runs) == 3 else ((0, 1, 2), (1, 0, 2)):
        made, spent, apart = agreed(keys, right, tokens, order)
        both, cost = np.array([made, slow_right]), np.array([spent, slow_tokens])
        ways["votes alone"].append((made, spent))
        ways["prose where all differ"].append(route(both, cost, np.where(apart, -1.0, 1.0), 0.0))
        ways["the same at half"].append(halves(items, both, cost, np.where(apart, -spent, np.inf)))
    prose_right = dict(zip(items, slow_right.astype(float).tolist(), strict=True))
    summary: dict[str, Any] = {
        "n": len(items),
        "single": right[: len(runs)].mean(axis=1).tolist(),
        "slow": float(slow_right.mean()),
        "ways": {},
    }
    for name, found in ways.items():
        made = np.mean([one for one, _ in found], axis=0)
        summary["ways"][name] = {
            "right": float(made.mean()),
            "share of tokens": float(np.mean([spent for _, spent in found]) / slow_tokens.mean()),
            "difference": compare(dict(zip(items, made.tolist(), strict=True)), prose_right),
        }
    return summary


def operators(result: str) -> list[str]:
    """The operators of a calculation such as ``2*6=12``, in order; none where it is no calculation."""
    left, equals, _ = result.rpartition("=")
    return re.findall(r"(?<=[\d)%])\s*([-+*/])", left) if equals else []


def operations(traces: Rows, answers: Rows) -> dict[str, Any]:
    """How often a step's operation is the one that is commonest for its code in the training traces, and the difference in
    accuracy if only right answers of which all steps agree stay right."""
    known = defaultdict[int, Counter[str]](Counter)
    for trace in traces:
        for code, result in zip(trace["codes"], trace["results"], strict=True):
            known[code].update(operators(result))
    commonest = {code: counts.most_common(1)[0][0] for code, counts in known.items() if counts}
    steps = single = agree = 0
    right, kept = dict[str, float](), dict[str, float]()
    for row in answers:
        written = [
            (code, found) for code, result in read_codes(row["output"]) if code is not None and (found := operators(result))
        ]
        fits = [found == [commonest.get(code)] for code, found in written]
        steps, single, agree = steps + len(fits), single + sum(len(found) == 1 for _, found in written), agree + sum(fits)
        right[row["id"]] = float(row["correct"])
        kept[row["id"]] = float(row["correct"] and all(fits))
    if not steps:
        raise SystemExit("no step of the answers is a calculation")
    shares = {"one operation": single / steps, "the token's": agree / steps}
    return {"n": len(answers), "steps": steps} | shares | {"difference": compare(kept, right)}


def show_confidence(summary: Mapping[str, Any]) -> None:
    """The tables of `confidence`."""
    print(f"n = {summary['n']}, right: {', '.join(f'{name} {share:.1%}' for name, share in summary['right'].items())}")
    for part in ("auroc", "differences"):
        for name, (value, low, high) in summary[part].items():
            print(f"{name}: {value:{'+' if part == 'differences' else ''}.3f} [{low:.3f}, {high:.3f}]")


def show_votes(summary: Mapping[str, Any]) -> None:
    """The tables of `sampled`."""
    print(f"n = {summary['n']}")
    for name, row in summary["table"].items():
        print(f"{name}: " + ", ".join(f"{key} {value:.3f}" if value <= 1 else f"{key} {value:.1f}" for key, value in row.items()))
    for name, row in summary["differences"].items():
        print(describe_difference(row, *name.rpartition(", ")[0].split(" - ")) + f" by {name.rpartition(', ')[2]}")


def show_routed(summary: Mapping[str, Any], fast: str, slow: str) -> None:
    """The table of `routed`."""
    both = "; ".join(
        f"{name} {summary['right'][k]:.1%}, {summary['tokens'][k]:.1f} tokens" for k, name in enumerate((fast, slow))
    )
    print(f"n = {summary['n']}; {both}; either right {summary['either']:.1%}")
    for name, row in summary["by"].items():
        print(
            f"{name}: AUROC {row['auroc']:.3f}, {row['asked']:.0%} asked, {row['right']:.1%} right, {row['tokens']:.1f} tokens; "
            f"{describe_difference(row['difference'], 'cascade', slow)}"
        )


def show_cascade(summary: Mapping[str, Any]) -> None:
    """The lines of `cascade`."""
    for name, row in summary["runs"].items():
        answers = zip(("fast", "slow", "cascade"), row["right"], row["tokens"], strict=True)
        print(
            f"{name}: n = {row['n']}; " + "; ".join(f"{one} {right:.1%}, {tokens:.1f} tokens" for one, right, tokens in answers)
        )
        areas = ", ".join(f"{key} {value:.3f} [{low:.3f}, {high:.3f}]" for key, (value, low, high) in row["auroc"].items())
        would = ", ".join(f"{area} {100 * gain:+.1f}" for area, gain in row["gains"].items())
        print(f"    either right {row['either']:.1%}; AUROC: {areas}; points above slow at half of its tokens, by AUROC: {would}")
    print(f"cascade, {summary['share_of_tokens']:.2f} of the tokens: {summary['difference']['sentence']}")


def show_agreement(summary: Mapping[str, Any], slow: str) -> None:
    """The lines of `agreement`."""
    single = ", ".join(f"{share:.1%}" for share in summary["single"])
    print(f"n = {summary['n']}; the trainings {single}; {slow} {summary['slow']:.1%}")
    for name, row in summary["ways"].items():
        print(
            f"{name}: {row['right']:.1%} right at {row['share of tokens']:.2f} of the tokens; "
            f"{describe_difference(row['difference'], 'it', slow)}"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    part = parts.add_parser("confidence")
    part.add_argument("rows", type=Path)
    part.add_argument("--run", type=Path)
    part.add_argument("--methods", nargs="+", default=["cirf_full", "terse"])
    part = parts.add_parser("votes")
    part.add_argument("rows", type=Path)
    part = parts.add_parser("route")
    part.add_argument("rows", type=Path)
    part.add_argument("--fast", default="cirf_full")
    part.add_argument("--slow", default="sft_cot")
    part = parts.add_parser("cascade")
    part.add_argument("runs", nargs="+", type=Path)
    part.add_argument("--slow-archive", nargs="+", type=Path)
    part.add_argument("--fast", default="cirf_full")
    part.add_argument("--slow", default="sft_cot")
    part.add_argument("--tasks", nargs="+", required=True)
    part = parts.add_parser("agreement")
    part.add_argument("runs", nargs="+", type=Path)
    part.add_argument("--slow-archive", type=Path)
    part.add_argument("--fast", default="cirf_subjects")
    part.add_argument("--slow", default="sft_cot")
    part.add_argument("--tasks", nargs="+", required=True)
    part = parts.add_parser("operations")
    part.add_argument("run", type=Path)
    part.add_argument("--method", default="cirf_full")
    asked = parser.parse_args(arguments)
    if asked.part == "cascade":
        pairs = list(zip(asked.runs, asked.slow_archive or asked.runs, strict=True))
        summary = cascade(pairs, asked.fast, asked.slow, asked.tasks)
        show_cascade(summary)
    elif asked.part == "route":
        summary = routed(read(asked.rows), asked.fast, asked.slow)
        show_routed(summary, asked.fast, asked.slow)
        summary |= {"by": {name: row | {"difference": row["difference"].to_dict()} for name, row in summary["by"].items()}}
    elif asked.part == "agreement":
        if len(asked.runs) not in (2, 3):
            parser.error("agreement takes two or three archives")
        summary = agreement(asked.runs, asked.slow_archive or asked.runs[0], asked.fast, asked.slow, asked.tasks)
        show_agreement(summary, asked.slow)
        summary |= {"ways": {name: row | {"difference": row["difference"].to_dict()} for name, row in summary["ways"].items()}}
    elif asked.part == "operations":
        answers = [row for path in sorted((asked.run / "evaluation" / asked.method).glob("*.jsonl")) for row in read(path)]
        summary = operations(read(asked.run / "traces" / "traces.jsonl"), answers)
        shares = ", ".join(f"{key} {summary[key]:.1%}" for key in ("one operation", "the token's"))
        print(f"n = {summary['n']}; {summary['steps']} calculating steps: {shares}")
        print(describe_difference(summary["difference"], "called by tokens, at most", "as written"))
        summary["difference"] = summary["difference"].to_dict()
    elif asked.part == "votes":
        summary = sampled(read(asked.rows))
        show_votes(summary)
        summary |= {"differences": {name: row.to_dict() for name, row in summary["differences"].items()}}
    else:
        traces = read(asked.run / "traces" / "traces.jsonl") if asked.run else []
        summary = confidence(read(asked.rows), [row["codes"] for row in traces] or None, asked.methods)
        show_confidence(summary)
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
