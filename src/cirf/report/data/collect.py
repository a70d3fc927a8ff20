"""All data of the report, collected from a run's folder into one dict: ``report.json``.

A worked example, cut short::

    {"name": "quickstart", "reference": "cirf_full",
     "methods": {"cirf_full": {"accuracy": 0.78, "n": 200, "interval": [0.72, 0.83], "tokens": 18.2, "latency_mean_s": 0.31,
                               "truncated": 0.0, "unparsed": 0.0, "tasks": {"coin_flip": {...the same...}}, ...}},
     "verdict": {"use": "cirf_full", "sentence": "use cirf_full: 78.0 % right with 18 tokens; ...", "n": 200, "majority": 0.26,
                 "against": {"method": "sft_cot", "difference": -0.02, "p": 0.4, "token_ratio": 7.2, ...}, ...},
     "comparisons": {"cot": {"n": 200, "difference": -0.03, "p": 0.31, "p_holm": 0.62, "speedup": 6.1, ...}},
     "codebook": {"size": 64, "used": 60, "codes": [{"code": 16, "label": "divides", "count": 311, ...}, ...], ...}, ...}

Parts that a run does not have (an untrained method's model, a run without codes) are missing or ``None``. For the codes, their
transitions and the questions see `cirf.report.data.codes`.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from cirf.compression.search import Path as Removals
from cirf.evaluation.harness import Row
from cirf.evaluation.protocols import PROTOCOLS, rows_asked
from cirf.rationales.segmentation import PAPER_SHARE_DROPPED
from cirf.report.advice import read_verdict, writes_tokens
from cirf.report.data.codes import read_functions, read_questions, rows_in
from cirf.report.data.measures import (
    as_trained,
    comparable,
    comparisons,
    facts,
    latency_of,
    numbers,
    read_settings,
    read_times,
    read_training,
    task_latency_of,
)
from cirf.store.files import load_object
from cirf.store.jsonl import read_rows
from cirf.store.view import RunView

Data = dict[str, Any]

REFERENCE = "cirf_full"  # the method the others are compared with, where the run has it


def collect(
    folder: Path,
    *,
    stages: Collection[str] | None = None,
    segments_per_code: int = 4,
    environment: Mapping[str, Any] | None = None,
) -> Data:
    """The data of a run's report.

    ``stages``: the names of those to report, which are done by the run's recipe; ``None``: all that are there.
    ``segments_per_code`` segments are given with every code; ``environment`` defaults to that of the run's start, or this
    machine's if there is no record. Raises ``CirfError`` if a file of the run is damaged.
    """
    run, recipe = RunView(folder, stages), _recipe(folder)
    rows = {name: _evaluation_rows(run.at(f"evaluation/{name}")) for name in _methods(run, recipe)}
    rows = {name: tables for name, tables in rows.items() if tables}
    reference = REFERENCE if REFERENCE in rows else next(iter(rows), None)
    latency = read_times(run, "latency")
    same = comparable(rows, reference)
    methods = {name: _method(run, name, tables, latency) | {"same_questions": same[name]} for name, tables in rows.items()}
    for name, tables in rows.items():
        methods[name]["functional"] = writes_tokens(name, recipe.get("variants", {}), tables)
    codebook = read_functions(run, recipe, REFERENCE, segments_per_code, rows.get(REFERENCE, {}))
    test = _test(run)
    problems = rows_in(run.at("problems") / "train.jsonl")
    training = {name: found for name in methods if (found := read_training(run.at(f"models/{name}")))}
    for name, found in training.items():
        found["settings"] = read_settings(run.at(f"models/{name}"))
    trained = {name: as_trained(recipe, found["settings"], name) for name, found in training.items()}
    origin = trained.get(reference or "", recipe)
    return {
        "name": recipe.get("name", folder.name),
        "notes": recipe.get("notes", ""),
        "seed": origin.get("seed"),
        "backbone": origin.get("backbone", {}).get("model"),
        "protocol": _protocol(run, recipe),
        "reference": reference,
        "methods": methods,
        "comparisons": comparisons(reference, rows, methods),
        "verdict": read_verdict(recipe, rows, methods, problems),
        "latency": facts(latency),
        "voting": read_voting(run, recipe, methods),
        "probes": {name: found for name in methods if (found := _json(run.at(f"probes/{name}") / "probes.json"))},
        "checks": {name: found for name in methods if (found := _json(run.at(f"checks/{name}") / "check.json"))},
        "training": training,
        "changed": [name for name, found in trained.items() if found != recipe],
        "codebook": codebook,
        "labels": {} if codebook else _labels_taken(recipe),
        "codebooks": compare_codebooks(run, recipe),
        "compression": read_compression(run, recipe),
        "left_out": run.left_out(),
        "examples": {name: output for name, tables in rows.items() if (output := _right_output(tables))},
        "questions": read_questions(test, rows),
        "data": _data(run, problems),
        "recipe": recipe,
        "environment": dict(environment) if environment is not None else _environment(folder),
    }


def _recipe(run: Path) -> Data:
    path = run / "recipe.yaml"
    if not path.exists():
        return {}
    from cirf.recipe.load import load

    return load(str(path)).model_dump(mode="json")


def _environment(run: Path) -> Data:
    from cirf.environment import describe

    found = load_object(run / "environment.json") or describe()
    return {key: value for key, value in found.items() if key not in ("cache", "bundled models")}


def _json(path: Path) -> Data:
    return load_object(path) or {}


def _methods(run: RunView, recipe: Mapping[str, Any]) -> list[str]:
    """The recipe's methods that have an evaluation, in its order; all that have one where it names none of them."""
    stages = [stage for stage in run.each("evaluation/*") if (run.at(stage) / "scores.json").is_file()]
    there = [stage.partition("/")[2] for stage in stages]
    names = [name for name in recipe.get("methods", ()) if name in there]
    return names + ([] if names else there)


def _evaluation_rows(folder: Path) -> dict[str, list[Row]]:
    names = list(_json(folder / "scores.json").get("tasks", ()))
    return {name: read_rows(folder / f"{name}.jsonl") for name in names}


def _test(run: RunView) -> dict[str, dict[str, Row]]:
    files = sorted((run.at("problems") / "test").glob("*.jsonl"))
    return {path.stem: {row["id"]: row for row in read_rows(path)} for path in files}


def _method(run: RunView, name: str, tables: Mapping[str, Sequence[Row]], latency: Mapping[str, Any]) -> Data:
    details = numbers(tables)
    return {
        **details,
        **latency_of(latency, name),
        "trained": bool(_json(run.at(f"evaluation/{name}") / "scores.json").get("trained", False)),
        "sampled": numbers(sampled) if (sampled := _evaluation_rows(run.at(f"sampled/{name}"))) else None,
        "caveats": _json(run.at(f"evaluation/{name}") / "stage.json").get("summary", {}).get("notes", []),
        "tasks": {task: row | task_latency_of(latency, name, task) for task, row in details["tasks"].items()},
    }


def _right_output(tables: Mapping[str, Sequence[Row]]) -> str | None:
    """The first output with a right answer, for the model's card."""
    return next((str(row["output"]) for table in tables.values() for row in table if row["correct"] and row["output"]), None)


def _protocol(run: RunView, recipe: Mapping[str, Any]) -> Data | None:
    """The protocol of test problems and sampling, and deviations of the test from it. ``partial``: tasks with fewer problems than
    the protocol names, or if it names all, than there are: ``[asked, named]``. ``cut``: tasks whose test is cut from their
    training file, which no protocol changes, with its size."""
    name = recipe.get("evaluate", {}).get("protocol", "own")
    if name not in PROTOCOLS:
        return None
    counts = _json(run.at("problems") / "problems.json").get("tasks", {})
    partial, cut = {}, {}
    for entry in recipe["problems"]["tasks"]:
        row = counts.get(entry["name"] or entry["task"])
        if row is None:
            continue
        there = row.get("available_test", row["test"])
        named = rows_asked(PROTOCOLS[name], entry["task"], row.get("available_train") == 0) or there
        if row.get("cut"):
            cut[entry["name"] or entry["task"]] = named = there
        if row["test"] < named:
            partial[entry["name"] or entry["task"]] = [row["test"], named]
    return {"name": name, "summary": PROTOCOLS[name].summary, "partial": partial, "cut": cut}


def _labels_taken(recipe: Mapping[str, Any]) -> dict[int, str]:
    """The codes' labels of saved models used by the run, if all that have any agree."""
    found = [_json(Path(folder) / "functions.json").get("codes") for folder in recipe.get("models", {}).values()]
    held = [{int(code): row["label"] for code, row in codes.items()} for codes in found if codes]
    return held[0] if held and all(one == held[0] for one in held) else {}


def _data(run: RunView, train: Sequence[Row]) -> Data:
    """Rows in, rows out, and why rows were dropped. Training and validation problems are those used: ``rows`` may draw few."""
    validation, test = rows_in(run.at("problems") / "validation.jsonl"), _test(run)
    rationales, segments = rows_in(run.at("rationales") / "rationales.jsonl"), rows_in(run.at("segments") / "segments.jsonl")
    lost = {stage: rows_in(run.at(stage) / "dropped.jsonl") for stage in ("problems", "rationales", "segments")}
    cut = _json(run.at("segments") / "report.json")
    used = {row["problem"] for row in segments} or {row["id"] for row in [*train, *validation]}
    lengths = [len(row["segments"]) for row in segments]
    reports = {
        "problems": _json(run.at("problems") / "problems.json"),
        **{stage: _json(run.at(stage) / "report.json") for stage in ("rationales", "segments", "results", "traces")},
        **{stage: _json(run.at(stage) / "report.json") for stage in run.each("prepared/*")},
    }
    return {
        "train": dict(Counter(row["task"] for row in train if row["id"] in used)),
        "validation": dict(Counter(row["task"] for row in validation if row["id"] in used)),
        "test": {name: len(rows) for name, rows in test.items()},
        "rationales": len(rationales),
        "segmented": len(segments),
        "cut": cut.get("kept", len(segments)),
        "segmentable": cut["kept"] / cut["rows"] if cut.get("rows") else None,
        "paper_segmentable": 1 - PAPER_SHARE_DROPPED,
        "steps": sum(lengths),
        "steps_mean": sum(lengths) / len(lengths) if lengths else None,
        "rules": dict(sorted(Counter(row["rule"] for row in segments).items())),
        "dropped": {
            stage: dict(sorted(Counter(row["reason"] for row in rows).items(), key=lambda item: (-item[1], item[0])))
            for stage, rows in lost.items()
        },
        "reports": reports,
    }


_REPORTED = ("perplexity", "column_imbalance", "disagreement")


def compare_codebooks(run: RunView, recipe: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row a codebook of the recipe, by size; empty where there are not two.

    ``used``: codes that are used by a step; ``least``: steps of the least used code; ``perplexity`` of the use;
    ``column_imbalance`` of the balanced assignment and its ``disagreement`` with the nearest code; ``autoencoder`` and
    ``vq``: last losses; ``trained``: whether models were trained with it; ``validation``: where K was chosen
    among them, the accuracy of its trial with ``interval`` and ``n``, else ``None``.
    """
    section = recipe.get("codebook", {})
    sizes = sorted({*section.get("sizes", ()), section.get("size")} - {None, "auto"})
    found = {size: load_object(run.at(f"codebook-{size}") / "codebook.json") for size in sizes}
    trials = {row["size"]: row for row in (load_object(run.at("codebook-size") / "sizes.json") or {}).get("sizes", ())}
    rows = []
    for size, details in found.items():
        if details is None:
            continue
        report = details.get("report", {})
        usage = report.get("usage", [])
        losses = report.get("losses", {})
        rows.append(
            {"size": size, "used": sum(1 for count in usage if count), "least": min(usage, default=0)}
            | {name: report.get(name) for name in _REPORTED}
            | {name: losses[name][-1]["total"] if losses.get(name) else None for name in ("autoencoder", "vq")}
            | {"trained": size == section.get("size"), "validation": trials.get(size)}
        )
    return rows if len(rows) > 1 else []


_POINTS = 60  # of the drawn curve


def read_compression(run: RunView, recipe: Mapping[str, Any]) -> dict[str, Any] | None:
    """The γ curve and the methods' traces; ``None`` where a run prunes nothing.

    ``thresholds``: a row a threshold of the recipe: ``gamma``, share of ``results`` kept, mean result ``tokens`` of a trace,
    share of traces left with functional tokens alone (``bare``). ``curve``: ``[gamma, share of results kept]``, up to where
    the search went. ``methods``: how each method's traces were pruned and how much is left.
    """
    found = {stage.partition("/")[2]: load_object(run.at(stage) / "report.json") for stage in run.each("compressed/*")}
    methods = {name: details for name, details in found.items() if details is not None}
    log = run.at("compression/greedy") / "compression.jsonl"
    if not log.exists():
        return {"thresholds": [], "curve": [], "methods": methods, "traces": None} if methods else None
    paths = [Removals.from_dict(row) for row in read_rows(log)]
    section = recipe.get("compression", {})
    thresholds = sorted({*section.get("gamma", ()), section.get("fast", 0.1), section.get("faster", 0.2)})
    counted = read_rows(path) if (path := run.at("traces") / "traces.jsonl").exists() else []
    results = sum(bool(result) for row in counted for result in row["results"]) or 1

    def kept(gamma: float) -> float:
        return 1 - sum(len(path.below(gamma)) for path in paths) / results

    rows = [
        {
            "gamma": gamma,
            "results": kept(gamma),
            "tokens": sum(path.tokens_without(path.below(gamma)) for path in paths) / max(1, len(paths)),
            "bare": sum(path.tokens_without(path.below(gamma)) == 0 for path in paths) / max(1, len(paths)),
        }
        for gamma in thresholds
    ]
    top = max(thresholds, default=0.0)
    curve = [[top * index / _POINTS, kept(top * index / _POINTS)] for index in range(_POINTS + 1)]
    return {
        "thresholds": rows,
        "curve": curve,
        "methods": methods,
        "traces": len(paths),
        "tokens": sum(path.tokens for path in paths) / max(1, len(paths)),
    }


def read_voting(run: RunView, recipe: Mapping[str, Any], methods: Collection[str]) -> Data | None:
    """``voting.json`` of the recipe's voting method. ``None`` without votes, or if that method or its comparison is not in
    ``methods``, those reported: it is an earlier recipe's. Raises ``CirfError`` for a damaged file."""
    name = recipe.get("evaluate", {}).get("voting", {}).get("method", "")
    found = load_object(run.at(f"voting/{name}") / "voting.json")
    return found if found and {name, found["against"]} - {None} <= set(methods) else None
