"""The page: one HTML file that needs nothing else, made from `collect.collect`'s dict and nothing more."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import yaml
from markupsafe import Markup

from cirf.analysis.names import BASELINE, base, describe, titles_of, variants_of
from cirf.analysis.tradeoff import NARROW
from cirf.pictures.canvas import themed
from cirf.pictures.style import FAMILIES, Style, every_style, family_style
from cirf.report.data.collect import REFERENCE
from cirf.report.data.measures import seen_before, setting
from cirf.report.plots import codebook_svg, compression_svg, pareto_svg, training_svg, voting_svg
from cirf.report.templates import colour, page_data, read_script, script_hash, template, to_script, variable
from cirf.statistics import Comparison, Interval, describe_difference

_MANY_TRUNCATED = 0.02
_OPEN_CODES = 16


class Section(NamedTuple):
    """A part of the page: its id and its title in the contents, its template, and whether a run has anything for it."""

    id: str
    title: str
    template: str
    has: Callable[[Mapping[str, Any]], Any] = lambda data: True


SECTIONS = (
    Section("methods", "Methods", "methods.html.j2"),
    Section("codes", "What the tokens mean", "codes.html.j2", lambda data: (data["codebook"] or {}).get("codes")),
    Section("compression", "Compression", "compression.html.j2", lambda data: data["compression"]),
    Section("traces", "Traces", "traces.html.j2", lambda data: data["questions"]["rows"]),
    Section("training", "Training", "training.html.j2", lambda data: data["training"] or (data["codebook"] or {}).get("losses")),
    Section("data", "Data", "data.html.j2"),
    Section("recipe", "Recipe", "recipe.html.j2"),
    Section("environment", "Environment", "environment.html.j2"),
)
"""The page from top to bottom: a further one is a line here and a template, which finds the report's data as ``data``."""


def render(data: Mapping[str, Any]) -> str:
    """The page's HTML. The same data gives the same bytes; nothing in it is fetched from anywhere."""
    filters = {one.__name__: one for one in (percent, number, tokens, seconds, words, size, p_value)}
    pictures = {
        "latency": pareto_svg(data, "latency"),
        "latency_narrow": pareto_svg(data, "latency", NARROW),
        "tokens": pareto_svg(data, "tokens"),
        "tokens_narrow": pareto_svg(data, "tokens", NARROW),
        "training": training_svg(data),
        "reward": training_svg(data, by_reward=True),
        "codebook": codebook_svg(data),
        "compression": compression_svg(data),
        "voting": voting_svg(data),
    }
    styles = looks(data)
    variables = {one.colour: variable(one.colour) for one in (*every_style(), *FAMILIES.values())}
    script = read_script("common.js", "page.js")
    return template("page.html.j2", filters).render(
        data=data,
        sections=[section for section in SECTIONS if section.has(data)],
        looks=styles,
        about={name: describe(name, variants_of(data)) for name in styles},
        ranked=ranked(data["methods"]),
        chosen=(data["verdict"] or {}).get("use") or data["reference"],
        colour=lambda name: colour(styles[name]),
        dark_colours=Markup(dark_colours()),
        page_data=Markup(to_script(page_data(data, styles, labels(data)))),
        script=Markup(script),
        script_hash=Markup(script_hash(script)),
        in_codebook={row["code"] for row in (data["codebook"] or {}).get("codes", ())},
        written=written(data),
        headline=headline(data),
        differences=differences(data),
        others=[styles[name].title for name, row in data["methods"].items() if not row["same_questions"]],
        setting=setting(data["latency"]),
        sampled={name: row["sampled"] for name, row in data["methods"].items() if row["sampled"]},
        vote_differences=vote_differences(data),
        training_setting=training_setting(data["environment"]),
        training_keys=training_keys(data),
        tasks=list(dict.fromkeys(task for row in data["methods"].values() for task in row["tasks"])),
        pictures={name: Markup(themed(svg, variables)) if svg else None for name, svg in pictures.items()},
        labels=labels(data),
        seen_before=seen_before(data["data"]["reports"]["problems"].get("overlap", {})),
        hue=hue,
        reference=REFERENCE,
        open_codes=_OPEN_CODES,
        recipe=yaml.safe_dump(data["recipe"], sort_keys=False, allow_unicode=True, width=110) if data["recipe"] else "",
    )


def looks(data: Mapping[str, Any]) -> dict[str, Style]:
    """Display name of every method, with the colour and marker of its family."""
    titles, variants = titles_of(data), variants_of(data)
    styles = {name: family_style(name, variants, row["functional"]) for name, row in data["methods"].items()}
    return {name: style._replace(title=titles[name]) for name, style in styles.items()}


def ranked(methods: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The methods by accuracy, of equally accurate ones the shorter first."""
    return dict(sorted(methods.items(), key=lambda item: (-item[1]["accuracy"], item[1]["tokens"])))


def dark_colours() -> str:
    """CSS that gives every colour of a method or family its other value where the page is dark; on paper it never is."""
    dark = {one.colour: one.dark for one in (*every_style(), *FAMILIES.values())}
    values = "".join(f"{variable(colour)}: {other}; " for colour, other in dark.items())
    return f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {values}}} }}\n"


def written(data: Mapping[str, Any]) -> list[int]:
    answers = (answer for row in data["questions"]["rows"] for answer in row["answers"].values())
    return sorted({code for answer in answers for code, _ in answer.get("codes", ()) if code is not None})


def labels(data: Mapping[str, Any]) -> dict[int, str]:
    found = {row["code"]: row["label"] for row in (data["codebook"] or {}).get("codes", ())}
    return found or {int(code): label for code, label in data.get("labels", {}).items()}


def training_setting(environment: Mapping[str, Any]) -> str:
    """What the times of the training are times of: versions and hardware that the run was begun on."""
    packages = environment.get("packages") or {}
    parts = [f"{name} {packages[name]}" for name in ("transformers", "torch") if name in packages]
    graphics = environment.get("accelerator")
    parts += [str(part) for part in (environment.get("cpu"), None if graphics in (None, "none") else graphics) if part]
    return ", ".join(parts)


def training_keys(data: Mapping[str, Any]) -> list[str]:
    """The numbers that any training has, in the order in which they come."""
    found = [key for row in data["training"].values() for part in ("numbers", "timings") for key in row[part]]
    return [key for key in dict.fromkeys(found) if key != "method"]


def headline(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the page says first: ``text``, two sentences on which method to use and what it costs, and ``notes`` that qualify
    them; ``None`` where nothing is evaluated."""
    verdict = data["verdict"]
    if verdict is None:
        return None
    titles = titles_of(data)
    if verdict["use"] is None:
        none = "No method can be recommended yet: none is significantly above always giving the most frequent answer"
        share = f"({percent(verdict['majority'])}, n = {verdict['n']:,})"
        best = verdict["best"] or next(iter(ranked(data["methods"])))
        row = data["methods"][best]
        accurate = f"{titles[best]}: {percent(row['accuracy'])} with {tokens(row['tokens'])} tokens an answer"
        return {"text": f"{none} {share}. The most accurate is {accurate}.", "notes": []}
    pair = verdict["against"]
    sentences = [_use(data, titles), _cost(data, pair, titles) if pair else _NOTHING_TO_COMPARE]
    return {"text": " ".join(sentences), "notes": _notes(data, titles)}


_NOTHING_TO_COMPARE = "There is nothing to compare it with: add sft_cot and direct_sft to methods."


def _use(data: Mapping[str, Any], titles: Mapping[str, str]) -> str:
    verdict = data["verdict"]
    row = data["methods"][verdict["use"]]
    low, high = (f"{100 * bound:.1f}" for bound in row["interval"])
    return (
        f"{'For now, use' if verdict['doubt'] else 'Use'} {titles[verdict['use']]}: {percent(row['accuracy'])} of {row['n']:,} "
        f"held-out questions right (95 % interval {low} to {high}), with {tokens(row['tokens'])} generated tokens an answer."
    )


def _cost(data: Mapping[str, Any], pair: Mapping[str, Any], titles: Mapping[str, str]) -> str:
    """The second sentence: tokens, time and accuracy against another method."""
    other, variants = data["methods"][pair["method"]], variants_of(data)
    named = f"{titles[pair['method']]}, {percent(other['accuracy'])} with {tokens(other['tokens'])} tokens"
    if base(pair["method"], variants) == BASELINE:
        against = f"Compared with prose trained on the same rows ({named})"
    elif base(data["verdict"]["use"], variants) == BASELINE:
        kind_of = "method with functional tokens" if other["functional"] else "other method"
        against = f"Compared with the most accurate {kind_of} ({named})"
    else:
        against = f"This run has no prose trained on the same rows (sft_cot); compared with {named}"
    parts = [f"it needs {times(pair['token_ratio'], 'fewer', 'more')} tokens" if pair["token_ratio"] else None]
    parts += [f"is {times(pair['speedup'], 'faster', 'slower')}" if pair["speedup"] else None]
    return f"{against}, {', '.join(filter(None, parts))} and its accuracy is {_apart(pair)}."


def _apart(pair: Mapping[str, Any]) -> str:
    points, (low, high) = 100 * pair["difference"], (100 * bound for bound in pair["interval"])
    words = f"{abs(points):.1f} points {'higher' if points > 0 else 'lower'}" if abs(points) >= 0.05 else "the same"
    return f"{words} (95 % interval {low:+.1f} to {high:+.1f}, {'' if pair['significant'] else 'not '}significant)"


def _notes(data: Mapping[str, Any], titles: Mapping[str, str]) -> list[str]:
    """What qualifies the headline: too few questions, traces that do not help, truncated answers."""
    verdict, found = data["verdict"], []
    if verdict["doubt"]:
        found.append(
            f"{titles[verdict['best']]} may be up to {100 * verdict['doubt']:.0f} points more accurate: "
            "too few questions to decide, test on more."
        )
    for warning in verdict["warnings"]:
        traced = titles[verdict["traced"]]
        if warning == "below_direct":
            direct = titles[verdict["at_once"]]
            found.append(f"{traced} is significantly less accurate than {direct}: its traces do not help here.")
        else:
            constant = f"always giving the most frequent answer ({percent(verdict['majority'])})"
            found.append(f"{traced} is not significantly above {constant}.")
    named = [verdict["use"], (verdict["against"] or {}).get("method")]
    cut = {name: data["methods"][name]["truncated"] for name in named if name}
    return found + [
        f"{titles[name]}: {percent(share)} of the answers were truncated; with a higher token limit more may be right."
        for name, share in cut.items()
        if share > _MANY_TRUNCATED
    ]


def differences(data: Mapping[str, Any]) -> list[str]:
    """One sentence for every method that the reference was compared with."""
    titles = looks(data)
    return [sentence(pair, titles[data["reference"]].title, titles[name].title) for name, pair in data["comparisons"].items()]


def vote_differences(data: Mapping[str, Any]) -> list[str]:
    """One sentence for every number of votes, where they are compared with one answer of another method."""
    found, titles = data["voting"] or {"curve": ()}, looks(data)
    rows = [row for row in found["curve"] if "against" in row]
    names = [f"{titles[found['method']].title} with {row['votes']} vote{'s' if row['votes'] > 1 else ''}" for row in rows]
    return [sentence(row["against"], name, titles[found["against"]].title) for row, name in zip(rows, names, strict=True)]


def sentence(pair: Mapping[str, Any], first: str, second: str) -> str:
    """A comparison of ``report.json`` in words."""
    fields = {key: pair[key] for key in Comparison._fields} | {"interval": Interval(*pair["interval"])}
    text = describe_difference(Comparison(**fields), first, second)
    for sign in ("=", "<"):
        text = text.replace(f" {sign} ", f"\N{NO-BREAK SPACE}{sign}\N{NO-BREAK SPACE}")
    return text[0].upper() + text[1:] + "."


def times(ratio: float | None, more: str, less: str) -> str | None:
    """A ratio in words, as "7.9 times fewer"; below 1 turned round, "1.3 times more"; ``None`` where it is not known."""
    if not ratio:
        return None
    if 0.95 <= ratio <= 1.05:
        return f"no {more}"
    value, word = (ratio, more) if ratio > 1 else (1 / ratio, less)
    return f"{value:.1f}\N{MULTIPLICATION SIGN} {word}" if value < 100 else f"{value:,.0f}\N{MULTIPLICATION SIGN} {word}"


def percent(share: float | None, digits: int = 1) -> str:
    return "–" if share is None else f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%"


def number(value: float | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def tokens(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def seconds(value: float | None) -> str:
    if value is None:
        return "–"
    if value < 0.1:
        return f"{1000 * value:.0f}\N{NO-BREAK SPACE}ms"
    if value < 100:
        return f"{value:.2f}\N{NO-BREAK SPACE}s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def size(value: float | None) -> str:
    if value is None:
        return "–"
    unit, name = (1e9, "GB") if value >= 1e9 else (1e6, "MB")
    return f"{value / unit:.3g}\N{NO-BREAK SPACE}{name}" if value < 1e12 else f"{value / 1e9:,.0f}\N{NO-BREAK SPACE}GB"


def p_value(value: float | None) -> str:
    return "–" if value is None else "<\N{NO-BREAK SPACE}0.001" if value < 0.001 else f"{value:.3f}"


def words(key: str) -> str:
    return str(key).replace("_", " ")


def hue(code: int) -> int:
    """A code's hue in degrees, neighbours far apart (golden angle); the number next to it identifies it without colour."""
    return round(code * 137.508) % 360
