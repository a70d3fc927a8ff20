"""The report's pictures, as SVG text for the page, which gives them its own colours (`canvas.themed`)."""

from collections.abc import Mapping
from typing import Any

from cirf.analysis.names import BASELINE, describe, family, titles_of, variants_of
from cirf.analysis.tradeoff import WIDE, MethodPoint, PictureSize, draw, on_front
from cirf.pictures.canvas import INK, SOFT, canvas
from cirf.pictures.style import style
from cirf.report.data.measures import setting

_FIRST, _SECOND, _THIRD = (style(name, []).colour for name in ("cirf_full", "cot", "direct_sft"))

_AXES = {
    "latency": ("latency_mean_s", "seconds an answer, one question at a time", "s"),
    "tokens": ("tokens", "generated tokens an answer", ""),
}
"""Of each cost its key in the report, its label and its unit."""


def pareto_svg(data: Mapping[str, Any], axis: str = "tokens", size: PictureSize = WIDE) -> str | None:
    """Accuracy (with its Wilson interval) against what it costs: up and to the left is better. ``data`` is `collect.collect`'s
    dict. ``axis`` is ``latency`` (mean seconds an answer at batch 1) or ``tokens`` (mean generated tokens). The front is of
    methods that answered the same questions. ``None`` if there is nothing to draw."""
    key, label, unit = _AXES[axis]
    rows = {name: row for name, row in data["methods"].items() if row[key]}
    if not rows:
        return None
    titles, variants, verdict = titles_of(data), variants_of(data), data.get("verdict") or {}
    named = {BASELINE, verdict.get("use"), (verdict.get("against") or {}).get("method")}
    fair = [name for name, row in rows.items() if row["same_questions"]]
    front = dict(zip(fair, on_front([(rows[name]["accuracy"], rows[name][key]) for name in fair]), strict=True))
    spots = []
    for name, row in rows.items():
        share, low, high = (100 * value for value in (row["accuracy"], *row["interval"]))
        of = family(name, variants, row["functional"])
        called = name if titles[name] == name else f"{titles[name]} ({name})"
        description = f"{called}: {describe_method(row)}"
        changes = f". {describe(name, variants)}" if name in variants else ""
        place = (row[key], share, low, high)
        spots.append(MethodPoint(name, titles[name], description + changes, of, *place, bool(front.get(name)), name in named))
    of_what = f" ({setting(data['latency'])})" if axis == "latency" else ""
    points = "; ".join(f"{spot.title}: {spot.accuracy:.1f} % at {spot.cost:.3g}" for spot in spots)
    salt = f"pareto-{axis}" + ("" if size == WIDE else "-narrow")
    return draw(spots, salt, (label, "accuracy, %"), f"Accuracy against {label}{of_what}. {points}", unit=unit, size=size)


def describe_method(row: Mapping[str, Any]) -> str:
    """A method's numbers in words: accuracy with its interval, questions, tokens, and the time where there is one."""
    low, high = (100 * bound for bound in row["interval"])
    parts = [f"{100 * row['accuracy']:.1f} % right (95 % interval {low:.1f} to {high:.1f}, {row['n']} questions)"]
    parts.append(f"{row['tokens']:.1f} tokens an answer")
    if row.get("latency_mean_s") is not None:
        parts.append(f"{row['latency_mean_s']:.3g} s an answer")
    return ", ".join(parts)


def training_svg(data: Mapping[str, Any], by_reward: bool = False) -> str | None:
    """Training loss (thin) and validation loss (thick, with markers) of every trained method against updates; ``by_reward``: the
    shares of right answers of those trained by reward, sampled and in validation."""
    curves = {name: (row["train"], row["validation"]) for name, row in data["training"].items()}
    if by_reward:
        found = {name: row["right"] for name, row in data["training"].items() if "right" in row}
        curves = {name: (right["sampled"], right["validation"]) for name, right in found.items()}
    curves = {name: both for name, both in curves.items() if any(both)}
    if not curves:
        return None
    what = "share of right answers" if by_reward else "loss"
    with canvas(4.9, 3.5, "reward" if by_reward else "training") as (figure, out):
        axes = figure.add_subplot()
        summary, handles = [], []
        for name, (train, validation) in curves.items():
            look = style(name, list(data["methods"]), titles_of(data))
            for points, width, alpha, marker in ((train, 1.1, 0.6, ""), (validation, 2.2, 1.0, look.marker)):
                if points:
                    updates, values = zip(*points, strict=True)
                    drawn = axes.plot(updates, values, color=look.colour, linewidth=width, alpha=alpha, marker=marker)
            handles.append(drawn[0])
            last = (validation or train)[-1][1]
            summary.append(f"{look.title}: last {'validation' if validation else 'training'} {what} {last:.3g}")
        axes.set_ylim(bottom=0)
        axes.margins(x=0.02)
        names = [style(name, list(data["methods"]), titles_of(data)).title for name in curves]
        legend = {"frameon": False, "fontsize": 9, "labelcolor": "linecolor"}
        axes.legend(handles, names, loc="lower right" if by_reward else "upper right", **legend)
        axes.set_xlabel("updates")
        axes.set_ylabel(what if by_reward else "loss a target token")
        out.append("Training curves. " + "; ".join(summary))
    return out[0]


def codebook_svg(data: Mapping[str, Any]) -> str | None:
    """Losses of the codebook's two phases against epochs."""
    losses = (data["codebook"] or {}).get("losses", {})
    phases = {phase: rows for phase, rows in losses.items() if rows}
    if not phases:
        return None
    from matplotlib.ticker import MaxNLocator

    with canvas(4.9, 3.5, "codebook") as (figure, out):
        titles = {"autoencoder": "autoencoder", "vq": "with codes"}
        looks = {"total": (INK, "-"), "reconstruction": (_FIRST, "-")}
        looks |= {"codebook": (_SECOND, "--"), "commitment": (_THIRD, ":")}
        for index, (phase, rows) in enumerate(phases.items(), 1):
            axes = figure.add_subplot(1, len(phases), index)
            for name in rows[0]:
                if name in looks and not (phase == "autoencoder" and name == "reconstruction"):
                    colour, dash = looks[name]
                    axes.plot(range(1, len(rows) + 1), [row[name] for row in rows], dash, color=colour, linewidth=1.6, label=name)
            axes.set_title(titles.get(phase, phase), fontsize=10, color=SOFT, loc="left")
            axes.set_xlabel("epoch")
            axes.set_ylim(bottom=0)
            axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
            if index == len(phases):
                axes.legend(frameon=False, fontsize=8.5)
        figure.axes[0].set_ylabel("loss a segment")
        summary = "; ".join(f"{phase}: last {rows[-1]['total']:.3g}" for phase, rows in phases.items())
        out.append(f"Losses of the codebook by epoch. {summary}")
    return out[0]


def compression_svg(data: Mapping[str, Any]) -> str | None:
    """Share of results kept against the threshold, with the recipe's thresholds marked."""
    found = data["compression"]
    if not found or not found["curve"]:
        return None
    with canvas(4.9, 3.1, "compression") as (figure, out):
        axes = figure.add_subplot()
        gammas, kept = zip(*found["curve"], strict=True)
        axes.plot(gammas, [100 * share for share in kept], color=_FIRST, linewidth=2)
        for row in found["thresholds"]:
            axes.plot([row["gamma"]], [100 * row["results"]], "o", color=_FIRST, markersize=7, markeredgecolor="white")
            text = f"{100 * row['results']:.0f} %"
            axes.annotate(text, (row["gamma"], 100 * row["results"]), (4, 6), textcoords="offset points", color=INK, fontsize=9)
        axes.set_ylim(0, 105)
        axes.set_xlim(left=-0.02 * max(gammas), right=1.12 * max(gammas) or 1)
        axes.set_xlabel("threshold γ: most that a removal may add to the answer's loss, nats")
        axes.set_ylabel("results kept, %")
        rows = "; ".join(f"{100 * row['results']:.0f} % at {row['gamma']:g}" for row in found["thresholds"])
        out.append(f"Share of results kept by threshold. {rows}")
    return out[0]


def voting_svg(data: Mapping[str, Any]) -> str | None:
    """Accuracy of 1, 2, ... votes against generated tokens an answer, joined by a line; a separate point is the one answer that
    they are compared with."""
    found = data["voting"]
    if not found:
        return None
    titles, variants = titles_of(data), variants_of(data)
    points = [(found["method"], f"{row['votes']}", row) for row in found["curve"]]
    points += [(found["against"], titles[found["against"]], found["alone"])] if "alone" in found else []
    spots = []
    for method, title, row in points:
        share, low, high = (100 * value for value in (row["accuracy"], *row["interval"]))
        called = f"{titles[method]}, {title} vote{'s' * (title != '1')}" if "votes" in row else title
        of = family(method, variants, data["methods"][method]["functional"])
        place = (row["tokens"], share, low, high)
        spots.append(
            MethodPoint(method, title, f"{called}: {describe_method(row)}", of, *place, front="votes" in row, named=True)
        )
    described = "; ".join(f"{spot.title}: {spot.accuracy:.1f} % at {spot.cost:.3g} tokens" for spot in spots)
    labels = ("generated tokens an answer", "accuracy, %")
    return draw(spots, "voting", labels, f"Accuracy by number of votes of {titles[found['method']]}. {described}")
