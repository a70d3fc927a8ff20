"""The measurements of a run: accuracies with their intervals, comparisons of methods, times and their setup, and the record of
each training and its settings, which come from the model's own record, since the run's recipe may have changed."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cirf.errors import CirfError
from cirf.evaluation.harness import Row, by_question, compare_rows, scores_from_rows
from cirf.recipe.schema import Override
from cirf.statistics import corrected, mean, mean_interval, mean_of_shares, spread
from cirf.store.files import hash_json, load_object
from cirf.store.view import RunView

Data = dict[str, Any]
Tables = Mapping[str, Sequence[Row]]


def numbers(tables: Tables) -> Data:
    """A method's numbers, recomputed from its rows: over all questions, the mean of the tasks, and by task.

    Intervals of accuracies are Wilson's, those of ``mean_of_tasks`` and of the tokens are bootstrapped over the questions within
    each task (`bootstrap`); a question counts once, however often it was asked. ``accuracy_sd`` and ``mean_of_tasks_sd`` are
    standard deviations over the runs; ``None`` for one run.
    """
    scores = scores_from_rows(tables)
    tokens = {task: list(by_question(rows, "tokens").values()) for task, rows in tables.items()}
    tasks = {}
    for task, score in scores.tasks.items():
        tasks[task] = score.to_dict() | {"accuracy_sd": _over(score.runs)} | _tokens_interval([tokens[task]])
    of_tasks = [mean(one) for one in zip(*(score.runs for score in scores.tasks.values()), strict=False)]
    return {
        **scores.overall.to_dict(),
        "accuracy_sd": _over(scores.overall.runs),
        **_tokens_interval(list(tokens.values())),
        "mean_of_tasks": scores.mean_of_tasks,
        "mean_of_tasks_sd": _over(of_tasks),
        "mean_of_tasks_interval": list(mean_of_shares([list(by_question(rows).values()) for rows in tables.values()])),
        "mean_of_tasks_truncated": mean([score.truncated for score in scores.tasks.values()]),
        "mean_of_tasks_unparsed": mean([score.unparsed for score in scores.tasks.values()]),
        "tasks": tasks,
    }


def _over(runs: Sequence[float]) -> float | None:
    return spread(runs) if len(runs) > 1 else None


def _tokens_interval(tasks: Sequence[Sequence[float]]) -> Data:
    interval = mean_interval(tasks)
    return {"tokens_interval": None if interval is None else list(interval)}


def questions(method: str, tables: Tables) -> set[tuple[str, str]]:
    """Task and id of every question that a method answered. ``CirfError`` if its runs have different questions, or a task has no
    rows."""
    found: set[tuple[str, str]] = set()
    advice = f"remove the folder evaluation/{method} and run again"
    for task, rows in tables.items():
        file = f"evaluation/{method}/{task}.jsonl"
        runs: dict[int, list[str]] = {}
        for row in rows:
            runs.setdefault(row["run"], []).append(row["id"])
        if not runs:
            raise CirfError(f"{file}: no rows in it; {advice}")
        first = set(next(iter(runs.values())))
        for run, ids in runs.items():
            if set(ids) != first or len(ids) != len(first):
                raise CirfError(f"{file}: run {run} answers other questions than the first, or one twice; {advice}")
        found |= {(task, name) for name in first}
    return found


def comparable(rows: Mapping[str, Tables], reference: str | None) -> dict[str, bool]:
    """Whether each method answered the same questions as the reference. Only such methods are compared: a difference on a shared
    subset would be of other questions than the accuracies shown with it."""
    sets = {name: questions(name, tables) for name, tables in rows.items()}
    return {name: reference is not None and found == sets[reference] for name, found in sets.items()}


def comparisons(reference: str | None, rows: Mapping[str, Tables], methods: Mapping[str, Data]) -> Data:
    """The reference against every other method that answered the same questions, p-values corrected by Holm for all of them."""
    if reference is None:
        return {}
    others = [name for name in methods if name != reference and methods[name]["same_questions"]]
    found = {name: compared for name in others if (compared := compare_rows(rows[reference], rows[name])) is not None}
    ours = methods[reference]
    return {name: {**compared.to_dict(), **ratios(ours, methods[name])} for name, compared in corrected(found).items()}


def ratios(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Data:
    """How many times fewer tokens and how many times faster a method is than another, and its share of the other's accuracy;
    ``None`` each if unknown."""
    return {
        "token_ratio": _ratio(theirs["tokens"], ours["tokens"]),
        "speedup": _ratio(theirs["latency_mean_s"], ours["latency_mean_s"]),
        "accuracy_ratio": _ratio(ours["accuracy"], theirs["accuracy"]),
    }


def _ratio(over: float | None, under: float | None) -> float | None:
    return over / under if over is not None and under else None


_LATENCY = {
    "latency_n": "n",
    "latency_mean_s": "mean_s",
    "latency_interval": "mean_s_interval",
    "latency_p50_s": "p50_s",
    "latency_p95_s": "p95_s",
    "latency_tokens": "tokens",
    "first_token_s": "first_token_s",
    "decode_s": "decode_s",
    "decode_tokens_per_s": "decode_tokens_per_s",
}
_MEMORY = ("weights_bytes", "growth_bytes", "peak_bytes")


def read_times(run: RunView, stage: str) -> Data:
    """``timings.json`` of ``latency`` without its rows; empty where there is none. Raises ``CirfError`` for a damaged file."""
    path = run.at(stage) / "timings.json"
    found = load_object(path) or {}
    if found and not isinstance(found.get("methods"), dict):
        raise CirfError(f"{path}: holds no times of methods; remove the folder {path.parent} to measure again")
    return {key: value for key, value in found.items() if key not in ("rows", "seconds")}


def facts(times: Mapping[str, Any]) -> Data:
    return {key: value for key, value in times.items() if key != "methods"}


def latency_of(times: Mapping[str, Any], method: str) -> Data:
    """A method's numbers over all tasks; ``None`` each where it was not timed."""
    found = times.get("methods", {}).get(method, {})
    return _named(found.get("overall", {})) | {key: found.get(key) for key in _MEMORY}


def task_latency_of(times: Mapping[str, Any], method: str, task: str) -> Data:
    return _named(times.get("methods", {}).get(method, {}).get("tasks", {}).get(task, {}))


def _named(summary: Mapping[str, Any]) -> Data:
    runs = summary.get("runs_s")
    return {ours: summary.get(theirs) for ours, theirs in _LATENCY.items()} | {"latency_sd_s": spread(runs) if runs else None}


def setting(facts: Mapping[str, Any]) -> str:
    """Engine, device, threads and number format in words, as shown with every figure and table of times."""
    if not facts:
        return ""
    threads = facts.get("threads")
    parts = [facts.get("engine"), facts.get("device"), f"{threads} thread{'s' if threads != 1 else ''}" if threads else None]
    return ", ".join(str(part) for part in (*parts, facts.get("dtype")) if part)


def read_training(folder: Path) -> dict[str, Any] | None:
    """A training for ``report.json``; ``None`` if the folder holds no ``history.json``.

    ``train`` and ``validation`` are ``[[update, loss], ...]`` with the mean loss of a target token, ``numbers`` the
    other numbers of the history (rows, updates, tokens, rates), ``functional_rows`` how far the functional tokens' rows
    moved, ``trials`` the learning rates the model was chosen among (empty where there was one), ``timings`` the numbers
    of ``timings.json`` (seconds, tokens a second), and ``notes`` for the user. For a training by reward the two
    curves are empty, and ``right`` holds ``[[update, share], ...]`` of right answers: ``sampled``, and greedy in ``validation``.
    """
    history = load_object(folder / "history.json")
    if history is None:
        return None
    losses, validation = history.get("losses", ()), history.get("validation", ())
    by_reward = any("reward" in row for row in losses)
    try:
        facts: dict[str, Any] = {
            "train": [] if by_reward else [[row["update"], row["loss"]] for row in losses],
            "validation": [] if by_reward else [[row["update"], row["loss"]] for row in validation],
            "numbers": _scalars(history) | _losses_of_parts(history.get("validation", ())),
            "functional_rows": history.get("functional_rows", []),
            "trials": (load_object(folder / "trials.json") or {}).get("trials", []),
            "timings": _scalars(load_object(folder / "timings.json") or {}),
            "notes": [str(history["curriculum"]["note"])] if "note" in history.get("curriculum", {}) else [],
        }
        if by_reward:
            parts = {"sampled": losses, "validation": validation}
            facts["right"] = {name: [[row["update"], row["right"]] for row in rows] for name, rows in parts.items()}
        return facts
    except (KeyError, TypeError):
        raise CirfError(f"{folder / 'history.json'}: not a training's history; remove {folder} and run again") from None


def _losses_of_parts(validation: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The validation loss of the answer alone, and of the functional tokens alone, before training and after it, where both were
    measured."""
    found: dict[str, float] = {}
    for name in ("answer_loss", "code_loss"):
        known = [row for row in validation if name in row]
        if len(known) > 1 and known[0]["update"] == 0:
            found |= {f"{name}_untrained": known[0][name], name: known[-1][name]}
    return found


def _scalars(value: dict[str, Any]) -> dict[str, Any]:
    return {key: inner for key, inner in value.items() if isinstance(inner, int | float | str)}


_HASH = re.compile(r"[0-9a-f]{64}")


def read_settings(folder: Path) -> dict[str, Any] | None:
    """The settings of a model's folder, as its ``stage.json`` has them; ``None`` where it has none. ``{"finetune": {...},
    "override": {...} or None, "seed", "backbone": {...}, "vocabulary": {...}}``, the last only for a functional method.
    ``backbone`` holds ``model`` where it is known by name (a folder may be known by hash only)."""
    section = (load_object(folder / "stage.json") or {}).get("section")
    if not isinstance(section, dict):
        return None
    backbone = dict(section.get("backbone") or {})
    content = backbone.pop("content", None)
    named = (load_object(folder / "functions.json") or {}).get("backbone")
    return section | {"backbone": {**_name(content), **({"model": named} if named else {}), **backbone}}


def _name(content: str | None) -> dict[str, str | None]:
    """A backbone's name from its identification in a stage's key; empty for a folder, which is identified by a hash."""
    from cirf.assets import ASSETS, published_hash
    from cirf.assets.catalogue import PREFIX

    bundled = {published_hash(PREFIX + asset): PREFIX + asset for asset in ASSETS}
    if content in bundled:
        return {"model": bundled[content]}
    if content is None or _HASH.match(content):
        return {}
    model, _, revision = content.partition("@")
    return {"model": model, "revision": revision or None}


def as_trained(
    recipe: Mapping[str, Any], settings: Mapping[str, Any] | None, method: str, codebook: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A run's recipe with the settings of ``method``'s actual training. ``settings`` is `read_settings`'s, ``codebook`` the part
    of ``report.json`` (for a method that uses it). Other keys are the recipe's."""
    found = dict(recipe)
    if settings and found:
        overrides = {name: keys for name, keys in found["finetune"]["overrides"].items() if name != method}
        if settings.get("override"):
            overrides[method] = Override.model_validate(settings["override"]).model_dump(mode="json")
        if not overrides.get(method, {}).get("learning_rate"):
            found["finetune"] = {**found["finetune"], "learning_rates": []}  # unless the model's own settings name them
        own = settings.get("finetune", {})
        found["finetune"] = {**found["finetune"], **own, "overrides": overrides}
        found["seed"] = settings.get("seed", found["seed"])
        found["backbone"] = {**found["backbone"], **settings.get("backbone", {})}
        if "vocabulary" in settings:  # published archives lack it: there the model wrote the opening delimiter
            found["vocabulary"] = {**found["vocabulary"], "opening": "written", **settings["vocabulary"]}
    if codebook and found:
        found["codebook"] = {**found["codebook"], **codebook["settings"]}
        found["embeddings"] = {**found["embeddings"], **codebook["embedder"]}
    return found


def seen_before(overlap: Mapping[str, Any]) -> list[str]:
    """Facts about models trained elsewhere, from the ``overlap`` of ``problems.json``: a sentence per task and run for all
    methods whose models were trained there, and one for those with unknown training data."""
    sentences = []
    same: dict[str, list[dict[str, Any]]] = {}
    for row in overlap.get("models", ()):
        same.setdefault(hash_json({**row, "methods": None}), []).append(row)
    for rows in same.values():
        row, who = rows[0], ", ".join(method for one in rows for method in one["methods"])
        if not row["known"]:
            sentences.append(f"{who}: the model's training data are unknown, so they were not searched for test questions")
        for task, found in row["tasks"].items():
            near = f"share {overlap['words']} words in a row with one that was"
            of = f"{row['questions']:,} questions of {', '.join(row['runs'])}"
            counts = f"{found['exact']:,} were trained on and {found['near']:,} {near}"
            sentences.append(f"{who}: of {found['test']:,} test questions of {task}, {counts} ({of})")
    return sentences
