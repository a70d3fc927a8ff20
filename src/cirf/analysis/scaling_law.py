"""Is accuracy linear in the cost of reasoning: the paper's conjecture about its variants, fitted and tested.

In the paper accuracy against latency is close to a line, which it conjectures to be a law. Here a line is fitted to the
functional methods of all runs on one backbone (variants, thresholds γ, sizes K), against seconds an answer and against the
logarithm of tokens.

A straight line through points whose heights are shares of the same questions: fit, and bootstrap bands over questions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cirf.analysis.accuracy import FUNCTIONAL, kind, shares
from cirf.analysis.analysis import Analysis, AnalysisResult, MissingInputError
from cirf.analysis.groups import distinct, file_name, model_names, put, settings
from cirf.analysis.pareto import COSTS, DOMAINS, Point, describe_point, on_same_questions, point_of, with_costs, without_answers
from cirf.analysis.source import Run, Source
from cirf.evaluation.harness import by_question
from cirf.pictures.canvas import SOFT, Mark, add, canvas, limits, marked, ticks
from cirf.pictures.style import style
from cirf.pictures.table import Column, Table
from cirf.statistics import NOISE, mean
from cirf.store.files import parse_json

LEAST = 4  # fewest points for a line: two always fit, and three hardly test it
_ALIKE = 0.1  # of token counts that differ by a smaller share a slope a doubling says nothing
_UNITS = {"tokens": "doubling of the tokens", "seconds": "second"}
_FITS = (
    Column("backbone", "Backbone"),
    Column("domain", "Domain"),
    Column("against", "Against"),
    Column("points", "Points", "count"),
    Column("models", "Trained models", "count"),
    Column("slope", "Slope, points a unit", "points", bounds=True),
    Column("intercept", "Intercept", "share"),
    Column("r2", "R²", "number"),
    Column("r2_out", "R², leave-one-out", "number"),
    Column("p_line", "p of a line", "number"),
    Column("reading", "Reading"),
)
_POINTS = (
    Column("backbone", "Backbone"),
    Column("domain", "Domain"),
    Column("run", "Run"),
    Column("method", "Method"),
    Column("size", "K", "number"),
    Column("gamma", "γ", "number"),
    Column("accuracy", "Accuracy, mean of tasks", "share", bounds=True),
    Column("tokens", "Tokens an answer", "number"),
    Column("seconds", "Time an answer", "seconds"),
    Column("residual_tokens", "Above the line of tokens, points", "points"),
    Column("residual_seconds", "Above the line of time, points", "points"),
)


def make(source: Source) -> AnalysisResult:
    """A fit per backbone, domain and cost, the points with their residuals, and a picture per fit."""
    fits: list[dict[str, Any]] = []
    rows: list[Point] = []
    pictures: dict[str, str] = {}
    notes: list[str] = []
    most, narrow = 0, False
    for (backbone, domain), group in _gathered(source).items():
        points, others = on_same_questions(group)
        most = max(most, len(points))
        if len(points) < LEAST:
            continue
        if others:
            notes.append(f"{backbone}, {DOMAINS[domain]}: {len(others)} points answered other questions and are left out.")
        for cost in COSTS:
            known, unknown = with_costs(points, cost)
            if len(known) < LEAST:
                continue
            values = [point[cost] for point in known]
            if cost == "tokens" and max(values) < (1 + _ALIKE) * min(values):
                notes.append(f"{backbone}, {DOMAINS[domain]}: the line against tokens is left out: {_CLOSE}.")
                narrow = True
                continue
            if (found := _fitted(known, cost)) is None:
                continue
            line, row = found
            fits.append({"backbone": backbone, "domain": domain, **row})
            notes.append(_sentence(backbone, DOMAINS[domain], cost, row))
            notes += [f"{backbone}, {DOMAINS[domain]}: {unknown}"] if unknown else []
            name = file_name(f"{backbone}-{domain}-{cost}")
            put(pictures, name, _picture(known, line, name, f"{backbone}, {DOMAINS[domain]}", cost))
        rows += points
    if not fits and narrow:
        raise MissingInputError(_CLOSE)
    if not fits:
        raise MissingInputError(
            f"it needs at least {LEAST} functional methods, of one run or several, that answered the same questions at differing"
            f" cost; found {most}"
        )
    notes.append(
        "Bands are 95 %, by bootstrap over questions, the same for all points. The p of a line is the probability of residuals"
        " as large if the truth were a line; a large one does not prove a line. Neither includes the variation between trainings"
        " of a model. Methods of one run share its codes, and some their model, so points are not independent. The law is"
        " the paper's conjecture from pictures; it gives no fit."
    )
    tables = (
        Table("scaling_law", "Accuracy as a linear function of cost.", _FITS, fits),
        Table("points", "Points that the lines go through.", _POINTS, [without_answers(point) for point in rows]),
    )
    return AnalysisResult(tables, pictures, notes)


_CLOSE = f"the models' token counts differ by less than {_ALIKE:.0%}".replace("%", " %")


def _gathered(source: Source) -> dict[tuple[str, str], list[Point]]:
    """Points by backbone and domain, each once: runs of the same settings, and evaluations reused from another run, count
    once."""
    found: dict[tuple[str, str], list[Point]] = {}
    runs = distinct(source.runs)
    names = model_names(runs)
    seen: dict[tuple[str, str, str], list[Point]] = {}
    for run in runs:
        place = json.dumps(settings(run), sort_keys=True)
        for domain in DOMAINS:
            for name in run.methods:
                if kind(run, name) not in FUNCTIONAL or (point := _point(run, name, domain)) is None:
                    continue
                point |= {"backbone": names[str(run.key("backbone.model"))], "_settings": place}
                others = seen.setdefault((str(run.key("backbone.model")), domain, name), [])
                if not any(_are_one(point, other) for other in others):
                    others.append(point)
                    found.setdefault((point["backbone"], domain), []).append(point)
    return found


def _are_one(point: Point, other: Point) -> bool:
    """Whether two points of a method are one evaluation."""
    answers = all(point[key] == other[key] for key in ("_correct", "_tokens", "gamma"))
    return answers and (point["_settings"] == other["_settings"] or point["_model"] == other["_model"])


def _model(run: Run, name: str) -> str:
    """Identifies the trained model of a method: its stage's key, else its folder. A variant may answer with the model of another
    method; a stage that one run took over from another has the same key."""
    name = str((run.recipe.get("variants", {}).get(name) or {}).get("model") or name)
    taken = run.recipe.get("models", {}).get(name)
    folder = run.shown.at(f"models/{name}") if taken is None else Path(taken)
    try:
        manifest = parse_json((folder / "stage.json").read_text(encoding="utf-8"))
        return str(manifest["key"])
    except (OSError, ValueError, KeyError, TypeError):
        return str((run.folder / "models" / name if taken is None else folder).resolve())


def _point(run: Run, name: str, domain: str) -> Point | None:
    tasks = [task for task in run.methods[name]["tasks"] if (task in run.trained_on) == (domain == "in")]
    if not tasks:
        return None
    tokens = {task: by_question(run.answers(name)[task], "tokens") for task in tasks}
    pruning = {"cirf_fast": run.key("compression.fast"), "cirf_faster": run.key("compression.faster"), "cirf_zero": 0.0}
    return point_of(run, name, tasks, domain) | {
        "run": run.name,
        "method": name,
        "size": run.key("codebook.size"),
        "gamma": pruning.get(kind(run, name)),
        "_model": _model(run, name),
        "_correct": shares(run, name, tasks),
        "tokens": mean([mean(list(values.values())) for values in tokens.values()]),
        "_tokens": tokens,
    }


def _table(points: Sequence[Point], key: str) -> list[np.ndarray]:
    tasks = points[0][key]
    return [np.array([[point[key][task][name] for name in values] for point in points]) for task, values in tasks.items()]


def _fitted(points: Sequence[Point], cost: str) -> tuple[LinearFit, dict[str, Any]] | None:
    """The line of a cost; ``None`` if all are equal. Residuals are written into the points."""
    values = [point[cost] for point in points]
    if min(values) <= 0 or max(values) - min(values) < 1e-9 * max(values):
        return None
    y = np.array([point["accuracy"] for point in points])
    drawn_y = drawn(_table(points, "_correct"))
    if cost == "tokens":  # drawn with the same seed: the same questions
        x, drawn_x = np.log2(values), np.log2(drawn(_table(points, "_tokens")))
    else:  # timed on separate questions
        x = np.array(values, dtype=float)
        drawn_x = np.broadcast_to(x, drawn_y.shape)
    questions = sum(len(values) for values in points[0]["_correct"].values())
    line = fit(x, y, drawn_x, drawn_y, 0.5 / questions)
    for point, place in zip(points, x, strict=True):
        point[f"residual_{cost}"] = point["accuracy"] - line.at(float(place))
    row = {
        "against": "log2 tokens" if cost == "tokens" else "seconds",
        "points": len(points),
        "models": len({point["_model"] for point in points}),
        **{key: getattr(line, key) for key in ("slope", "slope_low", "slope_high", "intercept", "r2", "r2_out", "p_line")},
    }
    return line, row | {"reading": _reading(row)}


def _reading(row: Mapping[str, Any]) -> str:
    if row["r2"] is None:
        return "all accuracies are equal: nothing to fit"
    bent = row["p_line"] is not None and row["p_line"] < NOISE
    if row["slope_low"] <= 0 <= row["slope_high"]:
        return "no slope other than zero, and no line: points deviate by more than chance" if bent else "no slope other than zero"
    if bent:
        return "a trend, but no line: points deviate by more than chance"
    if row["r2_out"] is None or row["r2_out"] <= 0:
        return "a trend that these questions cannot distinguish from a line, which predicts no point better than their mean"
    return "a trend that these questions cannot distinguish from a line"


def _sentence(backbone: str, domain: str, cost: str, row: Mapping[str, Any]) -> str:
    fits = "unknown, as all accuracies are equal" if row["r2"] is None else f"{row['r2']:.2f}"
    summary = "unknown" if row["p_line"] is None else f"= {row['p_line']:.2g} for a line"
    predicted = "" if row["r2_out"] is None else f" ({row['r2_out']:.2f} where each point is predicted from the others)"
    return (
        f"{backbone}, {domain}: {100 * row['slope']:+.1f} points a {_UNITS[cost]} (95 % {100 * row['slope_low']:+.1f} to"
        f" {100 * row['slope_high']:+.1f}), R² {fits}{predicted}, from {row['points']} points of {row['models']} models;"
        f" p {summary}: {row['reading']}."
    )


def _picture(points: Sequence[Point], line: LinearFit, name: str, title: str, cost: str) -> str:
    names = list(dict.fromkeys(point["method"] for point in points))
    with canvas(4.9, 4.1, f"law-{name}") as (figure, out):
        axes = figure.add_subplot()
        axes.set_title(title, loc="left", fontsize=10, color=SOFT)
        logarithmic = cost == "tokens"
        grid = 2 ** line.band[0] if logarithmic else line.band[0]
        limits(axes, [point[cost] for point in points], logarithmic)
        axes.fill_between(grid, 100 * line.band[1], 100 * line.band[2], color="#c9ced8", alpha=0.55, linewidth=0, zorder=0)
        axes.plot(grid, [100 * line.at(x) for x in line.band[0]], color="#7d8592", linewidth=1.6, zorder=1)
        marks: list[Mark] = []
        for point in points:
            look = style(point["method"], names)
            x, y = point[cost], 100 * point["accuracy"]
            ends = [100 * point["accuracy_low"], 100 * point["accuracy_high"]]
            axes.plot([x, x], ends, color=look.colour, linewidth=2, alpha=0.4, solid_capstyle="round")
            reach = add(marks, describe_point(f"{point['method']}, K = {point['size']}", point, cost), point["method"])
            axes.plot([x], [y], **look.point, markersize=7.5, markeredgecolor="white", zorder=3, gid=reach)
            if len({one["size"] for one in points}) > 1:
                axes.annotate(f"{point['size']}", (x, y), (6, 5), textcoords="offset points", fontsize=7.5, color=look.colour)
        for method in names:
            look = style(method, names)
            axes.plot([], [], label=look.title, **look.point)
        axes.set_ylim(-3, 103)
        ticks(axes, "latency" if cost == "seconds" else "tokens", logarithmic)
        axes.set_xlabel(COSTS[cost])
        axes.set_ylabel("accuracy, mean of tasks, %")
        figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
        summary = "; ".join(mark.description for mark in marks)
        out.append(f"Accuracy against {COSTS[cost]} with a line and its 95 % band, {title}. {summary}")
    return marked(out[0], marks)


ANALYSIS = Analysis(
    "scaling_law",
    "Scaling law",
    "The line that the paper conjectures: accuracy against tokens and time over variants, thresholds and K, with 95 % bands.",
    "evaluations of at least four functional methods or runs on one backbone; for times the stage `latency`",
    make,
)

DRAWS = 2000


@dataclass(frozen=True, slots=True, eq=False)
class LinearFit:
    """``y = intercept + slope x`` by least squares. ``r2``: share of the points' spread that it explains, ``None`` where they
    have none; ``r2_out``: the same where each point is predicted by a line through the others; ``slope_low``, ``slope_high`` and
    ``band`` [3 x g] (places across, lower end, upper end) are 95 % by the bootstrap; ``p_line``: see `lack_of_fit`."""

    intercept: float
    slope: float
    r2: float | None
    r2_out: float | None
    slope_low: float
    slope_high: float
    band: np.ndarray
    p_line: float | None

    def at(self, x: float) -> float:
        return self.intercept + self.slope * x


def drawn(tables: Sequence[np.ndarray], draws: int = DRAWS, seed: int = 0) -> np.ndarray:
    """Unweighted means of tasks of every point with questions resampled: [draws x P]. ``tables``: of each task the values [P x n]
    of its questions. A draw takes the same questions for every point, as all points answered the same."""
    generator = np.random.default_rng(seed)
    total = np.zeros((draws, len(tables[0])))
    for values in tables:
        count = values.shape[1]
        times = generator.multinomial(count, np.full(count, 1 / count), size=draws)
        total += times @ values.T / count
    means: np.ndarray = total / len(tables)
    return means


def fit(x: np.ndarray, y: np.ndarray, drawn_x: np.ndarray, drawn_y: np.ndarray, resolution: float) -> LinearFit:
    """The line through points x, y [P], and its bands from those of each draw [draws x P]. ``x`` must not be all equal.
    ``resolution``: half of what one more question adds to a height."""
    intercept, slope = _least_squares(x[None], y[None])
    rest = y - (intercept[0] + slope[0] * x)
    spread = float(((y - y.mean()) ** 2).sum())
    lever = 1 / len(x) + (x - x.mean()) ** 2 / ((x - x.mean()) ** 2).sum()
    alone = bool((lever > 1 - 1e-9).any())  # a point through which every line goes cannot be predicted
    predicted = None if alone else float(((rest / (1 - lever)) ** 2).sum())
    intercepts, slopes = _least_squares(drawn_x, drawn_y)
    grid = np.linspace(x.min(), x.max(), 41)
    low, high = np.quantile(intercepts[:, None] + slopes[:, None] * grid, (0.025, 0.975), axis=0)
    ends = np.quantile(slopes, (0.025, 0.975))
    return LinearFit(
        float(intercept[0]),
        float(slope[0]),
        1 - float((rest**2).sum()) / spread if spread > 0 else None,
        1 - predicted / spread if spread > 0 and predicted is not None else None,
        float(ends[0]),
        float(ends[1]),
        np.stack([grid, low, high]),
        lack_of_fit(rest, drawn_y - (intercepts[:, None] + slopes[:, None] * drawn_x), resolution),
    )


def lack_of_fit(rest: np.ndarray, drawn_rest: np.ndarray, resolution: float) -> float | None:
    """The probability of residuals as large if the points' true heights were on a line; ``None`` if they show no spread.

    ``rest`` [P]: the points' residuals; ``drawn_rest`` [draws x P]: those of each draw, whose deviations from ``rest`` show the
    effect of sampling questions. All points answer the same questions, so a draw shifts all points alike and the line absorbs it:
    residuals are more certain than single points' intervals suggest. The measure is the sum of squares, each residual in units of
    its own spread, of at least ``resolution``, as few draws may show no spread.
    """
    if np.abs(rest).max() < 1e-9:
        return None
    moved = drawn_rest - rest
    spread = np.maximum(np.sqrt((moved**2).mean(axis=0)), resolution)
    seen = float(((rest / spread) ** 2).sum())
    by_chance = ((moved / spread) ** 2).sum(axis=1)
    return float((1 + (by_chance >= seen).sum()) / (1 + len(by_chance)))


def _least_squares(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Intercepts and slopes of many lines at once: x, y [n x P] to [n] each; a line without spread in x is level."""
    across = x - x.mean(axis=1, keepdims=True)
    squares = (across**2).sum(axis=1)
    slope = np.divide((across * y).sum(axis=1), squares, out=np.zeros(len(y)), where=squares > 0)
    return y.mean(axis=1) - slope * x.mean(axis=1), slope
