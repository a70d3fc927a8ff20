"""Everything the report tells, gathered from a run's folder into one dict: ``report.json``.

A worked example, cut short::

    {"name": "quickstart", "reference": "cirf_full",
     "methods": {"cirf_full": {"accuracy": 0.78, "n": 200, "interval": [0.72, 0.83], "tokens": 18.2, "latency_mean_s": 0.31,
                               "latency_p50_s": 0.29, "latency_p95_s": 0.46, "truncated": 0.0, "unparsed": 0.0,
                               "tasks": {"coin_flip": {...the same...}}, ...}},
     "verdict": {"use": "cirf_full", "sentence": "use cirf_full: 78.0 % right with 18 tokens; ...", "n": 200, "majority": 0.26},
     "comparisons": {"cot": {"n": 200, "difference": -0.03, "p": 0.31, "p_holm": 0.62, "speedup": 6.1, ...}},
     "codebook": {"size": 64, "used": 60, "segments": 5120, "written": 902,
                  "transitions": {"traces": 1005, "pairs": [[16, 23, 41], ...], "first": [[16, 97], ...], "last": [...]},
                  "codes": [{"code": 16, "label": "divides", "count": 311, "written": 58, "examples": [...],
                             "distinct": 309, "segments": [["gsm8k", "48 / 2 = 24 ..."], ...],
                             "neighbours": [[23, 0.41], ...],
                             "answers": {"questions": 52, "answers": 52, "right": 0.73, "interval": [0.6, 0.83]}}]},
     "questions": {"of": 690, "shown": 690, "length": 4000, "cut": 0,
                   "rows": [{"task": "gsm8k", "id": "gsm8k/test/0", "question": "...", "gold": "18", "answers":
                             {"cirf_full": {"correct": True, "codes": [[16, "18"]], "answer": "18", "tokens": 9, ...}}}]}, ...}

What the explorers of the page show: ``transitions``, which function follows which in the training traces; of a code
``segments``, the steps that carry it, up to 40 of its ``distinct`` ones, ``neighbours``, the codes nearest by cosine, and
``answers``, how often answers that hold it are right (`functions`, `transitions`, `neighbours`); ``questions``, all that were
evaluated, with what was cut or left out to keep them within a size (`questions`).

Parts that a run does not have (an untrained method's model, a run without codes) are missing or ``None``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from cirf.analysis.shown import Shown
from cirf.evaluation.harness import Row
from cirf.evaluation.protocols import PROTOCOLS, rows_asked
from cirf.files import load_object
from cirf.rationales.segmentation import PAPER_SHARE_DROPPED
from cirf.report.accuracies import comparable, comparisons, numbers
from cirf.report.advice import read_verdict
from cirf.report.codebooks import compare_codebooks
from cirf.report.compression import read_compression
from cirf.report.examples import pick_examples
from cirf.report.functions import read_functions
from cirf.report.questions import read_questions
from cirf.report.settings import as_trained, read_settings
from cirf.report.times import facts, latency_of, read_times, task_latency_of
from cirf.report.training import read_training
from cirf.report.voting import read_voting
from cirf.rows import read_rows

Data = dict[str, Any]

REFERENCE = "cirf_full"
"""The method the others are compared with, where the run has it."""

_REASONS = {"problems": "dropped", "rationales": "reasons", "segments": "reasons"}
"""Where a stage's report counts why rows were dropped."""


def collect(
    folder: Path,
    *,
    stages: Collection[str] | None = None,
    examples: int = 12,
    segments_per_code: int = 4,
    environment: Mapping[str, Any] | None = None,
) -> Data:
    """The data of a run's report.

    ``stages`` are the names of those to tell of, the ones that are done by the run's recipe; ``None``: all that lie there.
    ``examples`` test questions are shown with every method's output, ``segments_per_code`` segments with every code;
    ``environment`` defaults to the one that the run was begun in, or this machine's where it keeps none. Raises
    ``CirfError`` if a file of the run is damaged.
    """
    run, recipe = Shown(folder, stages), _recipe(folder)
    rows = {name: _evaluation_rows(run.at(f"evaluation/{name}")) for name in _methods(run, recipe)}
    rows = {name: tables for name, tables in rows.items() if tables}
    reference = REFERENCE if REFERENCE in rows else next(iter(rows), None)
    latency, throughput = read_times(run, "latency"), read_times(run, "throughput")
    same = comparable(rows, reference)
    methods = {name: _method(run, name, tables, latency) | {"same_questions": same[name]} for name, tables in rows.items()}
    codebook = read_functions(run, recipe, REFERENCE, segments_per_code, rows.get(REFERENCE, {}))
    test = _test(run)
    problems = _rows(run.at("problems") / "train.jsonl")
    training = {name: found for name in methods if (found := read_training(run.at(f"models/{name}")))}
    for name, found in training.items():
        found["settings"] = read_settings(run.at(f"models/{name}"))
    trained = {
        name: as_trained(recipe, found["settings"], name, frozen=found["numbers"].get("adaptation") == "frozen")
        for name, found in training.items()
    }
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
        "throughput": throughput,
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
        "examples": pick_examples(test, rows, examples),
        "questions": read_questions(test, rows),
        "data": _data(run, problems),
        "recipe": recipe,
        "environment": dict(environment) if environment is not None else _environment(folder),
    }


def _recipe(run: Path) -> Data:
    path = run / "recipe.yaml"
    if not path.exists():
        return {}
    from cirf.recipe_io import load

    return load(str(path)).model_dump(mode="json")


def _environment(run: Path) -> Data:
    """What the run was begun in, else what this report is written in."""
    from cirf.environment import describe

    found = load_object(run / "environment.json") or describe()
    return {key: value for key, value in found.items() if key not in ("cache", "bundled models")}


def _json(path: Path) -> Data:
    """The object of a JSON file; empty where there is no such file."""
    return load_object(path) or {}


def _rows(path: Path) -> list[Row]:
    return read_rows(path) if path.exists() else []


def _methods(run: Shown, recipe: Mapping[str, Any]) -> list[str]:
    """The recipe's methods that have an evaluation, in its order; all that have one where it names none of them."""
    stages = [stage for stage in run.each("evaluation/*") if (run.at(stage) / "scores.json").is_file()]
    there = [stage.partition("/")[2] for stage in stages]
    asked = [name for name in recipe.get("methods", ()) if name in there]
    return asked + ([] if asked else there)


def _evaluation_rows(folder: Path) -> dict[str, list[Row]]:
    """Rows by task, in the order of ``scores.json``."""
    names = list(_json(folder / "scores.json").get("tasks", ()))
    return {name: read_rows(folder / f"{name}.jsonl") for name in names}


def _test(run: Shown) -> dict[str, dict[str, Row]]:
    """Test problems by task and id."""
    files = sorted((run.at("problems") / "test").glob("*.jsonl"))
    return {path.stem: {row["id"]: row for row in read_rows(path)} for path in files}


def _method(run: Shown, name: str, tables: Mapping[str, Sequence[Row]], latency: Mapping[str, Any]) -> Data:
    """One method's accuracies and its latency."""
    told = numbers(tables)
    return {
        **told,
        **latency_of(latency, name),
        "trained": bool(_json(run.at(f"evaluation/{name}") / "scores.json").get("trained", False)),
        "sampled": _sampled(run.at(f"sampled/{name}")),
        "caveats": _json(run.at(f"evaluation/{name}") / "stage.json").get("summary", {}).get("notes", []),
        "tasks": {task: row | task_latency_of(latency, name, task) for task, row in told["tasks"].items()},
    }


def _protocol(run: Shown, recipe: Mapping[str, Any]) -> Data | None:
    """The protocol that test problems and sampling are of, and where the test is another than it says.

    ``partial``: tasks of which fewer problems were asked than the protocol names, or where it names all, than there are:
    ``[asked, named]``. ``cut``: tasks whose test is cut from their training file, which no protocol changes, with its size.
    """
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


def _sampled(folder: Path) -> Data | None:
    """The sampled runs beside a greedy evaluation, found again from their rows; ``None`` where there are none."""
    tables = _evaluation_rows(folder)
    return numbers(tables) if tables else None


def _labels_taken(recipe: Mapping[str, Any]) -> dict[int, str]:
    """The codes' labels of models that were taken as they are, where all that have any agree."""
    found = [_json(Path(folder) / "functions.json").get("codes") for folder in recipe.get("models", {}).values()]
    held = [{int(code): row["label"] for code, row in codes.items()} for codes in found if codes]
    return held[0] if held and all(one == held[0] for one in held) else {}


def _data(run: Shown, train: Sequence[Row]) -> Data:
    """Rows in, rows out, and why rows were dropped. Training and validation problems are those used: ``rows`` may draw few.

    In an archive, whose rows were left out, they are what the stages' reports count, and ``None`` where these do not tell.
    """
    validation, test = _rows(run.at("problems") / "validation.jsonl"), _test(run)
    rationales, segments = _rows(run.at("rationales") / "rationales.jsonl"), _rows(run.at("segments") / "segments.jsonl")
    lost = {stage: _rows(run.at(stage) / "dropped.jsonl") for stage in ("problems", "rationales", "segments")}
    cut = _json(run.at("segments") / "report.json")
    used = {row["problem"] for row in segments} or {row["id"] for row in [*train, *validation]}
    lengths = [len(row["segments"]) for row in segments]
    reports = {
        "problems": _json(run.at("problems") / "problems.json"),
        **{stage: _json(run.at(stage) / "report.json") for stage in ("rationales", "segments", "results", "traces")},
        **{stage: _json(run.at(stage) / "report.json") for stage in run.each("prepared/*")},
    }
    counted = _counted(run, reports) if reports["problems"] and not (run.at("problems") / "train.jsonl").is_file() else {}
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
    } | counted


def _counted(run: Shown, reports: Mapping[str, Mapping[str, Any]]) -> Data:
    """Of `_data`, what the reports of stages tell whose rows are not there."""
    problems, rationales, cut = (reports[stage] for stage in ("problems", "rationales", "segments"))
    tasks = problems.get("tasks", {})
    drawn = cut.get("problems_used") not in (None, sum(row["train"] + row["validation"] for row in tasks.values()))
    told = {
        part: {task: None if drawn else row[part] for task, row in tasks.items() if row[part]} for part in ("train", "validation")
    }
    segmented, steps = _json(run.at("segments") / "stage.json").get("summary", {}).get("rows"), reports["results"].get("steps")
    lost = {stage: dict(reports[stage].get(key) or {}) for stage, key in _REASONS.items()}
    return told | {
        "test": {task: row["test"] for task, row in tasks.items() if row["test"]},
        "rationales": rationales.get("rationales", 0),
        "segmented": segmented or 0,
        "steps": steps,
        "steps_mean": steps / segmented if steps is not None and segmented else None,
        "rules": {} if drawn else cut.get("rules", {}),
        "dropped": {stage: dict(sorted(rows.items(), key=lambda item: (-item[1], item[0]))) for stage, rows in lost.items()},
    }
