"""The terse chain-of-thought: a line a step that has something to say, in both of its forms, and what they depend on. Traces in
which the subject of a step comes before its functional token (`subjects: true`).
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tinyrun
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer

from cirf import methods, tasks
from cirf.errors import CirfError
from cirf.methods import get
from cirf.methods.base import Method, PreparationData
from cirf.progress import SILENT
from cirf.recipe.load import parse
from cirf.recipe.schema import Recipe
from cirf.records import Example, Problem, Steps, Trace
from cirf.store.jsonl import read_rows

CLIPS = Problem("n", "gsm8k", "Natalia sold clips to 48 friends in April, and half as many in May. How many in all?", "72")
COIN = Problem("c", "coin_flip", "A coin is heads up. Rosa flips the coin. Jean does not. Is the coin still heads up?", "no")
STEPS = {
    "n": (
        "First, let us see what is asked.",
        "In May she sold 48 / 2 = <<48/2=24>>24 clips.",
        "Every one of them was a gift.",
        "In April and May together: 48 clips + 24 clips = 72 clips.",
    ),
    "c": (
        "The coin starts heads up.",
        "Rosa flips the coin, so it is tails up now.",
        "Jean does not flip it: it stays tails up.",
    ),
}


def method(form: str, more: str = "") -> tuple[Method, Recipe]:
    tasks_of = "problems: {tasks: [{task: gsm8k}, {task: coin_flip}]}"
    recipe = parse(f"name: r\n{tasks_of}\nvariants: {{x: {{method: terse_equations, settings: {{form: {form}{more}}}}}}}")
    return methods.get("x", recipe), recipe


def prepared(made: Method, recipe: Recipe, scratch: Path) -> dict[str, Any]:
    """What it makes of the steps, by problem."""
    annotated = [Steps(problem, 0, "ordinal", segments) for problem, segments in STEPS.items()]

    def none(*given: Any) -> Any:
        raise AssertionError("no model is needed")

    named = {name: tasks.get(name) for name in ("gsm8k", "coin_flip")}
    problems = {"n": CLIPS, "c": COIN}
    material = PreparationData(
        recipe, problems, named, annotated, annotated, none, scratch, SILENT, scratch, frozenset(), none, none
    )
    rows, report = made.prepare(material)
    assert report["steps"] == 7 and report["share_empty"] == round(2 / 7, 4)
    assert all(row["sample"] == 0 for row in rows)
    return {row["problem"]: row for row in rows}


def test_equations_of_numbers_and_states_of_coins_without_empty_lines(tmp_path: Path) -> None:
    made, recipe = method("equations")
    found = prepared(made, recipe, tmp_path)
    assert made.prepares() and not made.results
    targets = {
        problem.id: made.target(
            Example(problem, STEPS[problem.id], Trace(problem.id, 0, (), (), problem.answer), found[problem.id])
        )
        for problem in (CLIPS, COIN)
    }
    assert targets == {"n": "48/2=24\n48+24=72\n#### 72", "c": "heads\ntails\ntails\n#### no"}
    assert made.read(targets["n"]) == ("48/2=24\n48+24=72", "#### 72")
    task = tasks.get("gsm8k")
    assert task.parse(made.read(targets["n"])[1], CLIPS) == "72"


def test_results_are_those_that_cirf_would_write() -> None:
    made, _ = method("results")
    assert made.results and not made.prepares()
    trace = Trace("n", 0, (), ("", "24", "", "72"), "72")
    assert made.target(Example(CLIPS, STEPS["n"], trace)) == "24\n72\n#### 72"
    empty = Trace("n", 0, (), ("", "", "", ""), "72")
    assert made.target(Example(CLIPS, STEPS["n"], empty)) == "#### 72"


@pytest.mark.parametrize("form", ["equations", "results"])
def test_subjects_are_before_the_lines_of_all_steps_but_the_first(form: str) -> None:
    made, _ = method(form, ", subjects: true")

    def target(steps: tuple[str, ...], lines: tuple[str, ...]) -> str:
        trace = Trace("c", 0, (), lines if made.results else (), "no")
        return made.target(Example(COIN, steps, trace, None if made.results else {"lines": lines}))

    assert target(STEPS["c"], ("heads", "tails", "")) == "heads\nRosa tails\nJean\n#### no"
    assert target(STEPS["c"], ("", "tails", "tails")) == "Rosa tails\nJean tails\n#### no"  # the first line is a second step's
    opened = ("Rosa flips the coin.", "Jean does not.", "So it is tails up.")  # of three steps two have subjects
    assert target(opened, ("heads", "tails", "")) == "heads\nJean tails\n#### no"


def test_subjects_are_those_of_traces(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    """What traces with subjects say, in order; each subject is in the line of its own step."""
    variants = {
        "lines": {"method": "terse_equations", "settings": {"form": "results", "subjects": True, "start": "sft_cot"}},
        "traces": {"method": "cirf_full", "settings": {"subjects": True}},
    }
    coins = {"problems__tasks": [{"task": "made_coin_flip", "train": 12, "test": 4}]}
    assert make(workshop, tmp_path, methods=["lines", "traces"], variants=variants, **coins) == ""
    lines, traces = (
        [row["completion"] for row in read_rows(tmp_path / f"run/models/{name}/sft.jsonl")] for name in ("lines", "traces")
    )
    assert (tmp_path / "run/models/sft_cot/config.json").is_file()  # what it goes on from
    assert lines and any(len(text.splitlines()) > 2 for text in lines)
    assert any(re.fullmatch(r"[A-Za-z]+ (heads|tails)", line) for text in lines for line in text.splitlines()[1:])
    for summary, trace in zip(lines, traces, strict=True):
        inner, answer = trace.removeprefix("<cirf>").split("</cirf>")
        said = re.sub(r"<cirf_\d+>", " ", inner).split()
        assert " ".join(summary.split()) == " ".join((*said, "####", answer))


def test_settings_at_their_defaults_leave_keys_alone_and_a_start_is_a_training_before_it() -> None:
    plain, _ = method("results")
    assert plain.start is None and set(plain.taught_by["settings"]) == {"form"}
    started, _ = method("results", ", start: sft_cot, subjects: true")
    assert started.start == "sft_cot"
    assert started.taught_by["settings"] == {"form": "results", "start": "sft_cot", "subjects": True}


@pytest.fixture(scope="module")
def ran(workshop: tinyrun.Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both forms trained on sums and on coins, beside CIRF's traces."""
    folder = tmp_path_factory.mktemp("terse")
    assert make(workshop, folder) == ""
    return folder


def make(workshop: tinyrun.Workshop, folder: Path, **keys: Any) -> str:
    coins = {"task": "made_coin_flip", "train": 12, "test": 4}
    sums = {"task": "jsonl", "name": "sums", "train_file": str(workshop.train), "test_file": str(workshop.test), "train": 12}
    variants = {"short": {"method": "terse_equations", "settings": {"form": "results"}}}
    keys = {"methods": ["terse_equations", "short"], "variants": variants, "problems__tasks": [sums, coins], **keys}
    said = tinyrun.cirf("run", workshop.recipe(folder / "r.yaml", **keys), "--out", folder / "run", "--until", "models")
    return "" if said.code == 0 else said.err


def test_what_is_trained_on(ran: Path) -> None:
    run = ran / "run"
    assert (run / "prepared/terse_equations/rows.jsonl").is_file() and not (run / "prepared/short").exists()
    segments = {row["problem"]: row for row in read_rows(run / "segments/segments.jsonl")}
    lines = {row["problem"]: row["lines"] for row in read_rows(run / "prepared/terse_equations/rows.jsonl")}
    results = {row["problem"]: row["results"] for row in read_rows(run / "results/results.jsonl")}
    assert set(lines) == set(segments) == set(results)
    problems = {row["id"]: row for row in read_rows(run / "problems/train.jsonl")}
    for name, by_problem in (("terse_equations", lines), ("short", results)):
        taught = [row["completion"] for row in read_rows(run / f"models/{name}/sft.jsonl")]
        wanted = [
            "\n".join([*filter(None, by_problem[problem]), f"#### {problems[problem]['answer']}"])
            for problem in segments
            if problem in problems
        ]
        assert taught == wanted and not any("\n\n" in text for text in taught)
    sums = [lines[problem] for problem, row in problems.items() if row["task"] == "sums"]
    coins = [lines[problem] for problem, row in problems.items() if row["task"] == "made_coin_flip"]
    assert sums and all("+" in line and "=" in line for row in sums for line in row)
    assert coins and all(set(row) <= {"heads", "tails", ""} and any(row) for row in coins)
    report = json.loads((run / "prepared/terse_equations/report.json").read_text())
    assert report["steps"] == sum(map(len, lines.values()))


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"results__max_characters": 5}, {"results", "prepared/terse_equations", "models/terse_equations"}),
        ({"results__by": "none"}, {"results", "models/short"}),
        pytest.param({"results__working": "keep"}, {"results", "models/short"}, marks=pytest.mark.slow),
        ({"finetune__learning_rate": 0.02}, {"models/terse_equations", "models/short"}),
    ],
)
def test_each_form_is_made_again_by_what_it_reads(
    ran: Path, workshop: tinyrun.Workshop, tmp_path: Path, keys: dict[str, Any], expected: set[str]
) -> None:
    shutil.copytree(ran, tmp_path / "copy")
    before = tinyrun.stages(tmp_path / "copy/run")
    assert make(workshop, tmp_path / "copy", **keys) == ""
    made = tinyrun.remade(before, tinyrun.stages(tmp_path / "copy/run"))
    assert {stage for stage in made if not stage.startswith("evaluation")} == expected


# Functional tokens learned by a model that has learned the rationales in words first (`start: sft_cot`)

HEAD = "name: r\nproblems: {tasks: [{task: gsm8k}]}\nmethods: [%s]\nvariants: {%s}\n"
AFTER = "after: {method: cirf_full, settings: {start: sft_cot}}"


def test_it_goes_on_from_the_model_of_sft_cot() -> None:
    recipe = parse(HEAD % ("after", AFTER))
    assert [method.name for method in methods.learners(recipe)] == ["sft_cot", "after"]
    after = methods.get("after", recipe)
    assert after.taught_by["settings"] == after.identity["settings"] == {"start": "sft_cot"}
    usual = parse(HEAD % ("x", "x: {method: cirf_full, settings: {start: backbone}}"))
    assert [method.name for method in methods.learners(usual)] == ["x"] and "settings" not in methods.get("x", usual).taught_by


@pytest.mark.parametrize(
    ("name", "variant", "more", "said"),
    [
        ("cirf_full", "cirf_full: {settings: {start: sft_cot}}", "", "give the variant another name"),
        ("x", "x: {method: cirf_full, settings: {start: coconut}}", "", "variants.x.settings.start"),
    ],
)
def test_a_start_that_is_taken_is_named(name: str, variant: str, more: str, said: str) -> None:
    with pytest.raises(CirfError, match=said):
        methods.get(name, parse(HEAD % (name, variant) + more))


@pytest.mark.slow
def test_it_learns_the_traces_from_there(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    keys: dict[str, Any] = {
        "methods": ["cirf_full", "after", "pruned"],
        "variants": {
            "after": {"method": "cirf_full", "settings": {"start": "sft_cot"}},
            "pruned": {"method": "cirf_fast", "settings": {"start": "sft_cot"}},
        },
        "finetune__overrides": {name: {"learning_rate": 1e-30} for name in ("after", "pruned")},
        "evaluate__latency_questions": 0,
    }
    said = tinyrun.cirf("run", workshop.recipe(tmp_path / "recipe.yaml", **keys), "--out", tmp_path / "run")
    assert said.code == 0, said.err
    models = tmp_path / "run" / "models"
    assert list(read_rows(models / "after" / "sft.jsonl")) == list(read_rows(models / "cirf_full" / "sft.jsonl"))
    words = len(AutoTokenizer.from_pretrained(workshop.backbone))
    untrained = load_file(workshop.backbone / "model.safetensors")
    begun = load_file(models / "sft_cot" / "model.safetensors")
    for name in ("after", "pruned"):
        made = load_file(models / name / "model.safetensors")
        assert made.keys() == begun.keys()
        for key, weight in begun.items():
            known = words if "embed" in key or "head" in key else len(weight)  # rows behind them are the functional tokens'
            assert torch.equal(made[key][:known], weight[:known]), key
    assert any(not torch.equal(begun[key][: len(weight)], weight) for key, weight in untrained.items()), "sft_cot has learned"


COIN_SUBJECT_TRACES = Example(
    Problem("p", "coin_flip", "A coin is heads up. ann flips it. bob does not flip it. Is it still heads up?", "no"),
    ("The coin is heads up.", "Ann flips it, so it is tails up.", "Bob does not flip it."),
    Trace("p", 0, (3, 1, 2), ("heads", "tails", "tails"), "no"),
)
HEAD_SUBJECT_TRACES = "name: r\nproblems: {tasks: [{task: gsm8k}]}\nmethods: [x]\n"


@pytest.mark.parametrize(
    ("variant", "target"),
    [
        ("method: cirf_full", "<cirf_003>heads<cirf_001>tails<cirf_002>tails</cirf>no"),
        ("method: cirf_full, settings: {subjects: true}", "<cirf_003>heads ann<cirf_001>tails bob<cirf_002>tails</cirf>no"),
        ("method: cirf_bare, settings: {subjects: true}", "<cirf_003> ann<cirf_001> bob<cirf_002></cirf>no"),
    ],
)
def test_a_subject_is_before_its_token(variant: str, target: str) -> None:
    method = get("x", parse(HEAD_SUBJECT_TRACES + f"variants: {{x: {{{variant}}}}}\n"))
    assert method.target(COIN_SUBJECT_TRACES) == target
    assert method.read(target)[1] == "no"
    taught = {"settings": {"subjects": True}} if "subjects" in variant else {}
    assert {key: method.taught_by[key] for key in taught} == taught and ("settings" in method.taught_by) is bool(taught)


@pytest.mark.parametrize(
    ("variants", "name", "said"),
    [
        ("cirf_full: {settings: {subjects: true}}", "cirf_full", "variants.cirf_full.settings.subjects"),
        (
            "s: {method: cirf_full, settings: {subjects: true}}, x: {method: cirf_self, settings: {of: s}}",
            "x",
            "s does not write",
        ),
    ],
)
def test_methods_that_read_other_traces_refuse_them(variants: str, name: str, said: str) -> None:
    with pytest.raises(CirfError, match=said):
        get(name, parse(HEAD_SUBJECT_TRACES.replace("[x]", f"[{name}]") + f"variants: {{{variants}}}\n"))


def test_a_pruned_trace_keeps_them() -> None:
    method = get("x", parse(HEAD_SUBJECT_TRACES + "variants: {x: {method: cirf_fast, settings: {subjects: true}}}\n"))
    pruned = replace(COIN_SUBJECT_TRACES, trace=replace(COIN_SUBJECT_TRACES.trace, results=("", "tails", "")))
    assert method.target(pruned) == "<cirf_003> ann<cirf_001>tails bob<cirf_002></cirf>no"


def test_a_run_learns_them(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    keys: dict[str, Any] = {
        "methods": ["cirf_full", "named"],
        "variants": {"named": {"method": "cirf_full", "settings": {"subjects": True}}},
        "problems__tasks": [{"task": "made_coin_flip", "train": 24, "test": 4}],
        "evaluate__latency_questions": 0,
    }
    said = tinyrun.cirf("run", workshop.recipe(tmp_path / "recipe.yaml", **keys), "--out", tmp_path / "run")
    assert said.code == 0, said.err
    models = tmp_path / "run" / "models"
    plain, summary = ([row["completion"] for row in read_rows(models / name / "sft.jsonl")] for name in ("cirf_full", "named"))
    assert len(plain) == len(summary) and plain != summary
    from cirf.lm.vocabulary import parse_trace

    for short, long in zip(plain, summary, strict=True):
        pairs = list(zip(parse_trace(short), parse_trace(long), strict=True))
        assert all(a == b and new.startswith(old) for (a, old), (b, new) in pairs)
