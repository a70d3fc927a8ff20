"""Every shipped recipe, with tiny models and few rows in place of its own, trains four updates of each method and evaluates.

The sweeps' recipes, too: the first run of each part, with the passes that its presets say.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
import tinyrun

from cirf import methods, tasks
from cirf.lm.backbone import load_model, load_tokenizer
from cirf.lm.decoding.generate import generate
from cirf.lm.prompt import prompt_text
from cirf.recipe import sweep as sweep_io
from cirf.recipe.load import dump, load, shipped
from cirf.recipe.schema import Backbone, Recipe
from cirf.store.jsonl import read_rows
from cirf.tasks.benchmarks.bbh import KINDS

UPDATES, TEST = 4, 2
KEPT = {
    "compare-qwen2.5-0.5b": ("sft_cot", "cirf_subjects_after_cot"),
    "paper-llama3.1-8b": ("cirf_fast", "sft_cot"),
    "paper-qwen3-8b": ("cirf_full", "cirf_faster", "direct"),
}
"""Methods to try in recipes that share methods with another recipe, which covers the rest."""


@pytest.fixture(scope="module")
def workshop(workshop: tinyrun.Workshop, tmp_path_factory: pytest.TempPathFactory) -> tinyrun.Workshop:
    """With a language model that ends its answers, of which these runs ask for thousands and look at none."""
    folder = tmp_path_factory.mktemp("taught") / "backbone"
    return dataclasses.replace(workshop, backbone=tinyrun.teach_to_end(tinyrun.write_backbone(folder)))


def mirror_row(task: str, number: int, test: bool) -> tuple[dict[str, Any], str, str]:
    """One row of a published data set with the hub's columns, and its question and rationale. Made here, not copied."""
    draw = random.Random(f"{task} {number} {test}")
    a, b = draw.randint(2, 50), draw.randint(2, 50)
    label = f"{'test' if test else 'train'} {number}"
    steps = f"Step 1: Crate {label} holds {a} tins.\nStep 2: Then {a} + {b} = {a + b} tins stand in crate {label}."
    question = f"Crate {label} holds {a} tins and gets {b} more. How many tins are in it?"
    if task == "gsm8k":
        return {"question": question, "answer": f"{a} + {b} = <<{a}+{b}={a + b}>>{a + b}\n#### {a + b}"}, question, steps
    if task == "svamp":
        body, asked = question.split(". ")
        row = {
            "ID": f"chal-{label.replace(' ', '-')}",
            "Body": f"{body}.",
            "Question": asked,
            "Equation": "",
            "Answer": float(a + b),
            "Type": "",
        }
        return row, question, steps
    if task == "multiarith":
        return {"question": question, "final_ans": str(a + b)}, question, steps
    if task == "coin_flip":
        flips = [draw.random() < 0.5 for _ in range(2)]
        says = " ".join(
            f"Ann{number}{'ab'[place]} {'flips' if flip else 'does not flip'} the coin." for place, flip in enumerate(flips)
        )
        question = f"A coin is heads up. {says} Is the coin still heads up?"
        states = ["heads" if sum(flips[: place + 1]) % 2 == 0 else "tails" for place in range(2)]
        steps = "\n".join(f"Step {place + 1}: Turn {label}: the coin is {state} up." for place, state in enumerate(states))
        return {"inputs": f"Q: {question}", "targets": "yes" if states[-1] == "heads" else "no"}, question, steps
    if task == "math500":
        answer = f"\\frac{{{a}}}{{{b}}}"
        row = {"problem": question, "solution": f"It is ${answer}$.", "answer": answer, "subject": "Algebra", "unique_id": label}
        return row, question, steps
    if task == "strategyqa":
        return {"qid": label, "question": f"Would {a} tins fit into crate {label}?", "answer": a % 2 == 0}, question, steps
    if task == "scienceqa":
        row = {
            "id": label,
            "question": question,
            "choices": [str(a + b), str(a)],
            "answer": 0,
            "hint": f"Tins are round {number}.",
        }
        return row, question, steps
    if task.startswith("bbh/"):
        targets = {"truth": "True", "yesno": "Yes", "brackets": ") ]", "validity": "valid", "number": str(a + b), "list": "a b"}
        kind = KINDS.get(task.removeprefix("bbh/"))
        options = "" if kind else f"\nOptions:\n(A) {a}\n(B) {a + b}"
        return {"input": f"{question}{options}", "target": targets[kind] if kind else "(B)"}, question, steps
    assert task == "commonsense_qa", f"write rows of {task} here"
    texts = [f"{thing} {number}" for thing in ("spoon", "river", "cloud", "stone", "lamp")]
    right = draw.randrange(5)
    question = f"What would you eat soup with on day {label}?"
    steps = f"Step 1: On day {label} soup is eaten with {texts[right]}.\nStep 2: So the answer is {'ABCDE'[right]}."
    row = {"id": label, "question": question, "choices": {"label": list("ABCDE"), "text": texts}, "answerKey": "ABCDE"[right]}
    return row, question, steps


TAUGHT = ["one-teacher", "another-teacher"]


def write_mirror(folder: Path, recipe: Recipe, each: int) -> None:
    """Data sets and rationale files such as the recipe reads."""
    summary: list[dict[str, str]] = []
    for entry in recipe.problems.tasks:
        if entry.task == "jsonl" or tasks.get(entry.task).generated:
            continue
        source = tasks.get(entry.task).hub
        assert source is not None
        for split, count in (("train", each), ("test", TEST)):
            for part in source.parts(split):
                kind = f"{entry.task}/{part.config}" if part.config else entry.task
                made = [mirror_row(kind, number, split == "test") for number in range(count)]
                tinyrun.write_jsonl(folder / entry.task / f"{part.stem}.jsonl", [row for row, _, _ in made])
                summary += [{"question": question, "rationale": rationale} for _, question, rationale in made if split == "train"]
    for place, name in enumerate(recipe.rationales.files or TAUGHT):
        texts = (
            summary
            if place == 0
            else [row | {"rationale": row["rationale"].replace("Step 2: ", "Step 2: Well, ")} for row in summary]
        )
        path = folder / name if name.endswith(".jsonl") else folder / "rationales" / f"{name}.jsonl"
        tinyrun.write_jsonl(path, texts)


def overrides(recipe: Recipe, workshop: tinyrun.Workshop, each: int) -> list[str]:
    """What makes a recipe tiny. All else, the schedule, the adaptation and the number formats too, stays as shipped."""
    sets = {
        "backbone.model": str(workshop.backbone),
        "backbone.architecture": {},
        "backbone.device": "cpu",
        "embeddings.model": str(workshop.embedder),
        "embeddings.dtype": "float32",
        "codebook.dimension": "backbone",
        "codebook.size": 4 if recipe.codebook.sizes else 2,  # where numbers are masked few steps differ
        "codebook.sizes": [2, 4] if recipe.codebook.sizes else [],
        "codebook.autoencoder_epochs": 1,
        "codebook.vq_epochs": 1,
        "finetune.batch_size": 2,
        "finetune.gradient_accumulation_steps": 1,
        "finetune.overrides": {},
        "finetune.learning_rates": [],
        "finetune.max_length": 256,
        "finetune.min_well_formed": 0,  # two tokens hold no answer in form
        "evaluate.max_new_tokens": 2,
        "evaluate.max_trace_tokens": 2,
        "evaluate.latency_questions": 1,
        "evaluate.latency_warmup": 0,
        "evaluate.batch_size": 4,
        "methods": list(recipe.methods),
    }
    if recipe.evaluate.voting.votes:
        sets["evaluate.voting.votes"] = [1, 2]
    if recipe.rationales.source == "teacher":  # asked in tests/test_taught_run.py; here the answers are in files
        sets |= {"rationales.source": "files", "rationales.files": TAUGHT, "results.by": "rule"}
    for place, entry in enumerate(recipe.problems.tasks):
        sets[f"problems.tasks.{place}.test"] = TEST
        if entry.task != "jsonl" and tasks.get(entry.task).evaluation_only:
            continue
        sets |= {
            f"problems.tasks.{place}.test_from_train": 0,
            f"problems.tasks.{place}.train": each,
            f"problems.tasks.{place}.rows": None,
        }
    return list(itertools.chain.from_iterable(("--set", f"{key}={json.dumps(value)}") for key, value in sets.items()))


def prepared(workshop: tinyrun.Workshop, recipe: Recipe, folder: Path, each: int) -> list[str | Path]:
    """Data where the recipe's tasks have any, and overrides."""
    write_mirror(folder, recipe, each)
    data = [] if all(tasks.get(entry.task).generated for entry in recipe.problems.tasks) else ["--data", folder]
    return [*data, *overrides(recipe, workshop, each)]


@pytest.mark.slow
def test_the_language_model_of_these_runs_ends_its_answers(workshop: tinyrun.Workshop) -> None:
    section = Backbone(dtype="float32", device="cpu")
    model, tokenizer = load_model(workshop.backbone, section), load_tokenizer(workshop.backbone, section)
    prompts = [prompt_text(tokenizer, row["question"]) for row in tinyrun.sums(8, seed=9)]
    assert not any(output.truncated for output in generate(model, tokenizer, prompts, 8))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(shipped()))
def test_a_shipped_recipe_trains_and_evaluates(workshop: tinyrun.Workshop, tmp_path: Path, name: str) -> None:
    recipe = load(name)
    recipe = recipe.model_copy(update={"methods": list(KEPT.get(name, recipe.methods))})
    each = 8
    given = prepared(workshop, recipe, tmp_path / "data", each)
    run = tmp_path / "run"
    said = tinyrun.cirf("run", name, *given, "--out", run, "--until", "segments")
    assert said.code == 0, said.err
    training = {row["id"] for row in read_rows(run / "problems" / "train.jsonl")}
    rows = sum(row["problem"] in training for row in read_rows(run / "segments" / "segments.jsonl"))
    assert rows >= UPDATES
    given += ["--set", f"finetune.epochs={UPDATES / -(-rows // 2)!r}"]
    said = tinyrun.cirf("run", name, *given, "--out", run)
    assert said.code == 0, said.err
    report = json.loads((run / "report.json").read_text())
    assert list(report["methods"]) == list(recipe.methods)
    asked = TEST * len(recipe.problems.tasks)
    for method, row in report["methods"].items():
        assert row["n"] == asked and row["latency_mean_s"] > 0
        made = methods.get(method, recipe)
        own = made.trained and made.learner == method  # a variant may answer with another's model
        assert ("updates" in report["training"].get(method, {}).get("numbers", {})) == own
    for method in report["training"]:
        numbers = json.loads((run / "models" / method / "history.json").read_text())
        assert len(numbers["losses"]) == numbers["updates"]
        assert numbers["updates"] == UPDATES or (methods.get(method, recipe).reward is not None and "ended" in numbers)
        assert numbers["adaptation"] == ("frozen" if methods.get(method, recipe).frozen else recipe.finetune.adaptation)
    assert tinyrun.cirf("status", run).out.endswith("a rerun would do nothing\n")


OFFLINE = {
    "variants.token_skip_paper.settings": {"scorer": "rules"},  # the classifier comes from the hub
    "variants.sem_cot_paper.settings": {"short_by": "rule"},  # nobody is asked here
}
PARTS = [(name, part.name) for name, path in sorted(sweep_io.shipped().items()) for part in sweep_io.load(str(path)).sweep.parts]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "part"), PARTS)
def test_a_part_of_a_shipped_sweep_trains_and_evaluates(workshop: tinyrun.Workshop, tmp_path: Path, name: str, part: str) -> None:
    point = next(point for point in sweep_io.load(name).points() if point.part == part)
    file = tmp_path / f"{name}.yaml"
    file.write_text(dump(point.recipe))
    given = prepared(workshop, point.recipe, tmp_path / "data", 8)
    for key, value in OFFLINE.items():
        given += ["--set", f"{key}={json.dumps(value)}"] if key.split(".")[1] in point.recipe.variants else []
    said = tinyrun.cirf("run", file, *given, "--out", tmp_path / "run", *(["--until", point.until] if point.until else []))
    assert said.code == 0, said.err
    if not point.until:
        report = json.loads((tmp_path / "run" / "report.json").read_text())
        assert list(report["methods"]) == list(point.recipe.methods)


def test_recipes_of_the_published_results_have_todays_keys() -> None:
    archives = sorted(Path(__file__).parents[1].glob("results/*/measured.json"))
    runs = [run for path in archives for run in json.loads(path.read_text(encoding="utf-8"))["runs"].values()]
    assert len(runs) > 30
    for run in runs:
        Recipe.model_validate(run["report"]["recipe"])
