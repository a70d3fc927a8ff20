"""A whole run in miniature: a changed key makes again what depends on it and nothing else, and ``status`` knows before. Where
functional tokens begin: at the words of the steps that they represent (`vocabulary.init: words`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tinyrun
import torch

from cirf.commands.run import prepare, print_methods
from cirf.environment import processor
from cirf.lm.backbone import load_model, load_tokenizer
from cirf.lm.prompt import encode
from cirf.recipe.schema import Backbone
from cirf.run import execute
from cirf.store.jsonl import read_rows

TRAINING = {"problems", "rationales", "segments", "results", "embeddings", "codebook-4", "traces"}
ALL = (
    TRAINING
    | {
        f"{stage}/{method}"
        for stage in ("models", "evaluation")
        for method in ("cirf_full", "direct_sft", "cot")
        if (stage, method) != ("models", "cot")
    }
    | {"latency"}
)
EVALUATION = {f"evaluation/{method}" for method in ("cirf_full", "direct_sft", "cot")}


def of(method: str) -> set[str]:
    """The stages that a trained method's model goes into: its own, and the latency of all."""
    return {f"models/{method}", f"evaluation/{method}", "latency"}


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two updates of rows."""
    return tinyrun.write_jsonl(tmp_path_factory.mktemp("few") / "train.jsonl", tinyrun.sums(16))


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """A finished run to change."""
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def states(folder: Path) -> dict[str, str]:
    said = tinyrun.cirf("status", folder, "--json")
    assert said.code == 0, said.err
    return {row["stage"]: row["state"] for row in json.loads(said.out)}


def rerun(folder: Path, recipe: Path, *more: str) -> set[str]:
    """Run again and return the stages that ran, after checking that ``--dry-run`` predicted them."""
    said = tinyrun.cirf("run", recipe, "--out", folder, "--dry-run", "--json", *more)
    assert said.code == 0, said.err
    predicted = {row["stage"]: row["state"] for row in json.loads(said.out)["stages"]}
    before = tinyrun.stages(folder)
    said = tinyrun.cirf("run", recipe, "--out", folder, *more)
    assert said.code == 0, said.err
    made = tinyrun.remade(before, tinyrun.stages(folder))
    not_done = {stage for stage, state in predicted.items() if state != "done"}
    assert made <= not_done  # what is called done is never touched
    assert bool(made) == bool(not_done)
    assert set(states(folder).values()) == {"done"}
    announced = {line.removesuffix(" ...") for line in said.err.splitlines() if line.endswith(" ...")}
    assert announced == made
    return made


def predicted(folder: Path, recipe: Path, *more: str) -> list[str]:
    """The stages that are not done, in order, by ``--dry-run``."""
    said = tinyrun.cirf("run", recipe, "--out", folder, "--dry-run", "--json", *more)
    assert said.code == 0, said.err
    return [row["stage"] for row in json.loads(said.out)["stages"] if row["state"] != "done"]


def test_a_run_makes_every_stage_and_status_calls_them_done(finished: Path) -> None:
    assert set(tinyrun.stages(finished)) == ALL
    assert states(finished) == dict.fromkeys(ALL, "done")
    assert list(states(finished))[:3] == ["problems", "rationales", "segments"]
    assert (finished / "report.html").stat().st_size > 10_000
    for stage in ALL:
        assert (finished / stage / "recipe.yaml").read_bytes() == (finished / "recipe.yaml").read_bytes(), stage
    assert "a stage of one" in tinyrun.cirf("status", finished / "models" / "cirf_full").error()
    report = json.loads((finished / "report.json").read_text())
    fields = {"accuracy", "n", "interval", "tokens", "latency_mean_s", "latency_p50_s", "latency_p95_s", "truncated", "unparsed"}
    assert list(report["methods"]) == ["cirf_full", "direct_sft", "cot"]
    for row in report["methods"].values():
        assert fields <= row.keys() and row["n"] == 8
    timings = json.loads((finished / "latency/timings.json").read_text())
    assert (timings["device"], timings["threads"], timings["dtype"]) == (f"cpu ({processor('cpu')})", 1, "float32")
    assert list(timings["methods"]) == ["cirf_full", "direct_sft", "cot"] and timings["loads"][0]["together"] is True
    assert not list(finished.glob(".work/*"))


def test_a_training_and_an_evaluation_say_what_they_were_computed_in(finished: Path) -> None:
    assert json.loads((finished / "models/cirf_full/history.json").read_text())["computed_in"] == "float32"
    assert json.loads((finished / "evaluation/cirf_full/stage.json").read_text())["summary"]["engine"].endswith(", float32")


def test_the_table_fits_eighty_columns_and_cuts_nothing_off(capsys: pytest.CaptureFixture[str]) -> None:
    row = {
        "accuracy": 0.904,
        "interval": [0.86, 0.935],
        "n": 1319,
        "tokens": 133.46,
        "truncated": 0.621,
        "unparsed": 0.02,
        "well_formed": 0.99,
    }
    row |= {"latency_mean_s": 14.289, "latency_p50_s": 4.289, "latency_p95_s": None}
    print_methods({"methods": {"chain_of_draft": row}})
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 80
    said = next(line for line in lines if "chain_of_draft" in line)
    assert said.split() == ["chain_of_draft", "90.4%", "(86.0-93.5)", "1319", "133.5", "14.3", "-", "99.0%", "62.1%", "2.0%"]
    print_methods({"methods": {"a_method_of_somebody_with_a_very_long_name_of_its_own": row}})
    long = capsys.readouterr().out
    assert "a_method_of_somebody_with_a_very_long_name_of_its_own 90.4%" in " ".join(long.split()) and "…" not in long


def test_running_again_makes_nothing(copy: Path, workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    before = tinyrun.artefacts(copy)
    assert rerun(copy, workshop.recipe(tmp_path / "recipe.yaml")) == set()
    assert tinyrun.artefacts(copy) == before


def test_a_moved_run_is_intact_and_its_own_recipe_runs_it(copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = copy.rename(tmp_path / "elsewhere")
    monkeypatch.chdir(moved)
    assert states(Path(".")) == dict.fromkeys(ALL, "done")
    assert rerun(moved, moved / "recipe.yaml") == set()


FEW = ("codebook.size",)
"""These are run; the others are with ``-m slow``, and otherwise predicted."""

BOOK = {"traces"} | of("cirf_full")
CHANGES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "codebook.size": ({"codebook__size": 5}, {"codebook-5"} | BOOK),
    "codebook.sizes": ({"codebook__sizes": [4, 3]}, {"codebook-3"}),
    "vocabulary.alpha": ({"vocabulary__alpha": 0.5}, of("cirf_full")),
    "evaluate.latency_questions": ({"evaluate__latency_questions": 3}, {"latency"}),
    "evaluate.batch_size": ({"evaluate__batch_size": 8}, EVALUATION),
    "evaluate.max_new_tokens": ({"evaluate__max_new_tokens": 9}, {"evaluation/cot", "latency"}),
    "evaluate.max_trace_tokens": ({"evaluate__max_trace_tokens": 25}, {"evaluation/cirf_full", "latency"}),
    "evaluate.max_completion_tokens, above prose alone": (
        {"evaluate__max_completion_tokens": 9},
        {"evaluation/cirf_full", "evaluation/direct_sft", "latency"},
    ),
    "backbone.threads": ({"backbone__threads": 2}, {"latency"}),
    "backbone.trust_remote_code, revision of a folder": ({"backbone__trust_remote_code": True, "backbone__revision": "x"}, set()),
    "finetune.lora, where all weights are trained": ({"finetune__lora": {"rank": 3}}, set()),
    "one method's rate": ({"finetune__overrides": {"direct_sft": {"learning_rate": 0.02}}}, of("direct_sft")),
    "finetune.save_steps, notes": ({"finetune__save_steps": 3, "notes": "new"}, set()),
    "another method": ({"methods": ["cirf_full", "direct_sft", "cot", "direct"]}, {"evaluation/direct", "latency"}),
    "fewer methods": ({"methods": ["cirf_full", "cot"]}, {"latency"}),
    "nothing to train": ({"methods": ["cot"]}, {"problems", "latency"}),  # whose reports then have no training
    "no latency": ({"evaluate__latency_questions": 0}, set()),
    "problems.near_duplicates": ({"problems__near_duplicates": "drop"}, {"problems"}),
    "segments.maximum, which drops no row": ({"segments__maximum": 31}, {"segments"}),
    "results.max_characters, which empties none": ({"results__max_characters": 39}, {"results"}),
    "test rows": ({"problems__test": 6}, {"problems"} | EVALUATION | {"latency"}),
    "kind of answers": (
        {"problems__answer": "text"},
        {"problems", "rationales", "segments", "results"} | EVALUATION | {"latency"},
    ),
    "segments.options, of which there are none": ({"segments__options": "together"}, {"segments"}),
    "embeddings.choices, of which there are none": (
        {"embeddings__choices": "mask"},
        {"embeddings", "codebook-4", "traces", "models/cirf_full"},
    ),
    "results.by": ({"results__by": "none"}, {"results"} | BOOK),
}


def test_short_trials_choose_the_rate_of_a_training_like_any_other(workshop: tinyrun.Workshop, few: Path, tmp_path: Path) -> None:
    keys: dict[str, Any] = {"train": few, "methods": ["direct_sft"], "evaluate__latency_questions": 0}
    trials = {"finetune__learning_rates": [0.0001, 0.03], "finetune__trial_epochs": 0.5}
    recipe = workshop.recipe(tmp_path / "recipe.yaml", **keys, **trials)
    said = tinyrun.cirf("run", recipe, "--dry-run", "--out", tmp_path / "run")
    assert said.code == 0 and "updates after 2 trials of" in said.out, said
    said = tinyrun.cirf("run", recipe, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    model = tmp_path / "run/models/direct_sft"
    rows = json.loads((model / "trials.json").read_text())["trials"]
    assert [(row["learning_rate"], row["epochs"]) for row in rows] == [(0.0001, 0.5), (0.03, 0.5)]
    whole = json.loads((model / "history.json").read_text())
    for row in rows:
        folder = tmp_path / f"run/trials/direct_sft/{row['learning_rate']}"
        history = json.loads((folder / "history.json").read_text())
        assert history["validation"][-1]["loss"] == row["validation_loss"] and history["updates"] < whole["updates"]
        assert not (folder / "model.safetensors").exists()
    [best] = [row for row in rows if row["chosen"]]
    assert best["validation_loss"] == min(row["validation_loss"] for row in rows)
    assert "Direct, fine-tuned</span>, epochs per trial: 0.5</h3>" in (tmp_path / "run/report.html").read_text()
    alone = {"finetune__learning_rate": best["learning_rate"]}
    said = tinyrun.cirf("run", workshop.recipe(tmp_path / "recipe.yaml", **keys, **alone), "--out", tmp_path / "alone")
    assert said.code == 0, said.err
    for file in ("model.safetensors", "history.json", "sft.jsonl"):
        assert (model / file).read_bytes() == (tmp_path / "alone/models/direct_sft" / file).read_bytes(), file
    left = predicted(tmp_path / "run", workshop.recipe(tmp_path / "recipe.yaml", **keys, **trials | {"finetune__epochs": 3.0}))
    assert "models/direct_sft" in left and not any(stage.startswith("trials/") for stage in left)
    one_more = workshop.recipe(tmp_path / "recipe.yaml", **keys, **trials | {"finetune__learning_rates": [0.0001, 0.03, 0.002]})
    left = predicted(tmp_path / "run", one_more)
    assert {stage for stage in left if stage.startswith("trials/")} == {"trials/direct_sft/0.002"}
    said = tinyrun.cirf("run", one_more, "--dry-run", "--out", tmp_path / "run")
    assert said.code == 0 and " after 1 trial of " in said.out, said
    given = {"finetune__overrides": {"direct_sft": {"learning_rate": 0.01}}}
    left = predicted(tmp_path / "run", workshop.recipe(tmp_path / "recipe.yaml", **keys, **trials, **given))
    assert "models/direct_sft" in left and not any(stage.startswith("trials/") for stage in left)


@pytest.mark.parametrize(
    ("finetune", "said"),
    [
        (
            {"learning_rates": [0.001, 0.01], "trial_epochs": 5.0},
            "trials of 5 epochs are no shorter than the training of direct_sft, 5",
        ),
        (
            {"learning_rates": [1e-9, 3e4], "trial_epochs": 0.2, "epochs": 6.0, "warmup_steps": 0},
            "30000 won the trials of direct_sft",
        ),
    ],
)
def test_short_trials_that_cannot_choose_are_reported(
    workshop: tinyrun.Workshop, tmp_path: Path, finetune: dict[str, Any], said: str
) -> None:
    keys: dict[str, Any] = {"methods": ["direct_sft"], "evaluate__latency_questions": 0, "finetune__epochs": 5.0}
    keys |= {f"finetune__{name}": value for name, value in finetune.items()}
    assert said in tinyrun.cirf("run", workshop.recipe(tmp_path / "recipe.yaml", **keys), "--out", tmp_path / "run").error()


def test_one_rate_is_chosen_among_none(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    keys = {"methods": ["direct_sft"], "finetune__learning_rates": [0.01], "finetune__trial_epochs": 0.5}
    said = tinyrun.cirf("run", workshop.recipe(tmp_path / "recipe.yaml", **keys), "--dry-run", "--out", tmp_path / "run")
    assert said.code == 0 and "models/direct_sft" in said.out and "trial" not in said.out


def test_a_schedule_that_does_not_fit_in_a_short_trial_is_reported(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    keys = {
        "methods": ["icot_si"],
        "finetune__learning_rates": [0.001, 0.01],
        "finetune__trial_epochs": 0.4,
        "evaluate__latency_questions": 0,
    }
    keys["variants"] = {"icot_si": {"settings": {"pretrain": 0.5}}}
    said = tinyrun.cirf("run", workshop.recipe(tmp_path / "recipe.yaml", **keys), "--out", tmp_path / "run").error()
    assert "finetune.trial_epochs: too few for icot_si" in said and "learning_rate in finetune.overrides" in said


def test_a_learning_rate_that_comes_to_no_number_has_lost(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    keys: dict[str, Any] = {"methods": ["direct_sft"], "evaluate__latency_questions": 0, "finetune__epochs": 2.0}
    recipe = workshop.recipe(tmp_path / "recipe.yaml", finetune__learning_rates=[1e30, 0.01], **keys)
    said = tinyrun.cirf("run", recipe, "--out", tmp_path / "run")
    assert said.code == 0 and "trials/direct_sft/1e+30: no model: the gradient is not a number in update 3 (" in said.err
    rows = json.loads((tmp_path / "run/models/direct_sft/trials.json").read_text())["trials"]
    assert [(row["learning_rate"], row["chosen"]) for row in rows] == [(1e30, False), (0.01, True)]
    assert rows[0]["validation_loss"] is None and rows[1]["validation_loss"] > 0
    assert "not finite" in (tmp_path / "run" / "report.html").read_text()
    assert rerun(tmp_path / "run", recipe) == set()
    recipe = workshop.recipe(tmp_path / "recipe.yaml", finetune__learning_rates=[1e30, 1e29], **keys)
    assert "no learning rate gave direct_sft a finite" in tinyrun.cirf("run", recipe, "--out", tmp_path / "none").error()


def test_an_untrained_method_has_nothing_to_override(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    recipe = workshop.recipe(tmp_path / "recipe.yaml", finetune__overrides={"cot": {"epochs": 3}})
    assert "finetune.overrides.cot: cot is not trained" in tinyrun.cirf("run", recipe, "--out", tmp_path / "run").error()


def test_untrained_methods_need_no_rationale_file(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    keys: dict[str, Any] = {"methods": ["cot"], "rationales__files": ["nowhere"]}
    said = tinyrun.cirf("run", workshop.recipe(tmp_path / "recipe.yaml", **keys), "--out", tmp_path / "run")
    assert said.code == 0, said.err
    assert set(tinyrun.stages(tmp_path / "run")) == {"problems", "evaluation/cot", "latency"}


def test_codebooks_of_several_sizes_are_compared(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    recipe = workshop.recipe(tmp_path / "recipe.yaml", methods=["cot"], codebook__sizes=[3, 4], evaluate__latency_questions=0)
    said = tinyrun.cirf("run", recipe, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    rows = json.loads((tmp_path / "run" / "report.json").read_text())["codebooks"]
    assert [(row["size"], row["trained"]) for row in rows] == [(3, False), (4, True)]
    for row in rows:
        usage = json.loads((tmp_path / "run" / f"codebook-{row['size']}" / "codebook.json").read_text())["report"]["usage"]
        assert (row["used"], row["least"]) == (sum(count > 0 for count in usage), min(usage))
        assert 1 <= row["perplexity"] <= row["size"] and row["vq"] >= 0 and row["autoencoder"] >= 0
    assert "Codebooks by size" in (tmp_path / "run" / "report.html").read_text()


def test_trials_need_a_validation_row(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    keys = {"finetune__learning_rates": [0.001, 0.01], "finetune__trial_epochs": 0.5, "problems__validation": 0}
    recipe = workshop.recipe(tmp_path / "recipe.yaml", methods=["direct_sft"], **keys)
    said = tinyrun.cirf("run", recipe, "--out", tmp_path / "run")
    assert "finetune.learning_rates" in said.error() and "problems.validation" in said.error()


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in FEW else pytest.mark.slow) for name in CHANGES])
def test_a_changed_key_makes_again_just_what_depends_on_it(
    copy: Path, workshop: tinyrun.Workshop, tmp_path: Path, name: str
) -> None:
    recipe, sets = changed_recipe(workshop, tmp_path, name)
    assert rerun(copy, recipe, *sets) == CHANGES[name][1]


def changed_recipe(workshop: tinyrun.Workshop, folder: Path, name: str) -> tuple[Path, list[str]]:
    """The recipe with a change, and what else the command line says."""
    keys = dict(CHANGES[name][0])
    sets = [
        f"--set=problems.tasks.0.{key}={keys.pop(f'problems__{key}')}" for key in ("test", "answer") if f"problems__{key}" in keys
    ]
    return workshop.recipe(folder / "recipe.yaml", **keys), sets


@pytest.mark.parametrize("name", [name for name in CHANGES if name not in FEW])
def test_what_a_changed_key_makes_again_is_predicted(
    finished: Path, workshop: tinyrun.Workshop, tmp_path: Path, name: str
) -> None:
    recipe, sets = changed_recipe(workshop, tmp_path, name)
    left, expected = predicted(finished, recipe, *sets), CHANGES[name][1]
    assert expected <= set(left) and set(left[:1]) <= expected  # nothing before it


def test_a_budget_counts_where_it_is_below_a_cap(finished: Path, workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    from cirf.recipe.load import load
    from cirf.stages.context import Context
    from cirf.stages.planning import plans
    from cirf.store.run_folder import RunFolder

    def keys(budget: int | None) -> dict[str, str | None]:
        path, folder = workshop.recipe(tmp_path / "recipe.yaml", evaluate__max_completion_tokens=budget), RunFolder(finished)
        recipe = load(str(path))
        return {stage.name: folder.key(stage) for stage in plans(Context(recipe, folder)) if stage.name in EVALUATION}

    free, below = keys(None), keys(40)  # which is below the cap of traces with their answers alone
    assert free.keys() == EVALUATION and None not in free.values() and keys(900) == free
    assert {name for name in free if below[name] != free[name]} == {"evaluation/cirf_full"}


def test_what_is_trained_is_not_counted_again(copy: Path, workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    def predicted(**keys: Any) -> tuple[set[str], str]:
        recipe = workshop.recipe(tmp_path / "recipe.yaml", **keys)
        people, data = (tinyrun.cirf("run", recipe, "--out", copy, "--dry-run", *more).out for more in ([], ["--json"]))
        return set(json.loads(data).get("methods", {})), people

    methods, people = predicted()
    assert not methods and "nothing is left to train" in people
    methods, people = predicted(finetune__overrides={"direct_sft": {"epochs": 2}})
    assert methods == {"direct_sft"} and "direct_sft: 36 rows" in people and "cirf_full: " not in people


def changed(path: Path, source: Path, change: Callable[[list[dict[str, Any]]], Any]) -> Path:
    rows = read_rows(source)
    change(rows)
    return tinyrun.write_jsonl(path, rows)


def test_a_file_written_anew_is_known_and_a_changed_row_of_the_same_size_is_not(
    workshop: tinyrun.Workshop, tmp_path: Path
) -> None:
    train, run, until = Path(shutil.copy(workshop.train, tmp_path)), tmp_path / "run", ("--until", "segments")
    recipe = workshop.recipe(tmp_path / "recipe.yaml", train=train)
    assert tinyrun.cirf("run", recipe, "--out", run, *until).code == 0
    train.write_text(train.read_text())
    assert predicted(run, recipe, *until) == []
    changed(train, train, lambda rows: rows[5].update(question=rows[5]["question"].replace("How many", "how many")))
    assert train.stat().st_size == workshop.train.stat().st_size
    assert predicted(run, recipe, *until)[0] == "problems"


@pytest.mark.slow
def test_a_changed_row_is_noticed_where_it_counts_and_a_copied_file_is_not(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    train = tinyrun.write_jsonl(tmp_path / "train.jsonl", tinyrun.sums(16))
    test = tinyrun.write_jsonl(tmp_path / "test.jsonl", tinyrun.sums(4, seed=9, steps=2))
    texts = train.read_text(), test.read_text()
    keys: dict[str, Any] = {"methods": ["cirf_full", "cot"], "evaluate__latency_questions": 0}
    recipe = workshop.recipe(tmp_path / "recipe.yaml", train=train, test=test, **keys)
    assert tinyrun.cirf("run", recipe, "--out", tmp_path / "run").code == 0
    first = tinyrun.artefacts(tmp_path / "run")

    train.write_text(train.read_text())  # touched, not changed
    assert rerun(tmp_path / "run", recipe) == set()

    same_size = train.stat().st_size
    changed(train, train, lambda rows: rows[5].update(question=rows[5]["question"].replace("How many", "how many")))
    assert train.stat().st_size == same_size
    assert rerun(tmp_path / "run", recipe) == TRAINING | {"models/cirf_full", "evaluation/cirf_full"}  # and not cot's
    changed(test, test, lambda rows: rows[0].update(question=f"{rows[0]['question']} Tell me."))
    assert rerun(tmp_path / "run", recipe) == {"problems", "evaluation/cirf_full", "evaluation/cot"}

    train.write_text(texts[0])
    test.write_text(texts[1])
    rerun(tmp_path / "run", recipe)
    assert tinyrun.artefacts(tmp_path / "run") == first  # the same bytes by another way


@pytest.mark.slow
def test_rationale_files_and_result_files_count_with_their_content(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    rows = tinyrun.sums(16)
    bare = tinyrun.write_jsonl(tmp_path / "bare.jsonl", [{"question": row["question"], "answer": row["answer"]} for row in rows])
    summary = tinyrun.write_jsonl(
        tmp_path / "shown.jsonl", [{key: row[key] for key in ("question", "rationale")} for row in rows]
    )
    keys = {"train": bare, "methods": ["cirf_full"], "rationales__files": [str(summary)], "evaluate__latency_questions": 0}
    recipe = workshop.recipe(tmp_path / "recipe.yaml", **keys)
    run = tmp_path / "run"
    assert tinyrun.cirf("run", recipe, "--out", run).code == 0
    assert rerun(run, recipe) == set()
    said = [
        {"problem": row["problem"], "sample": row["sample"], "results": [f"{number}" for number in range(len(row["segments"]))]}
        for row in read_rows(run / "segments" / "segments.jsonl")
    ]
    results = tinyrun.write_jsonl(tmp_path / "results.jsonl", said)
    recipe = workshop.recipe(tmp_path / "recipe.yaml", **keys, results__by="file", results__file=str(results))
    after_results = {"results", "traces", "models/cirf_full", "evaluation/cirf_full"}
    assert rerun(run, recipe) == after_results
    changed(results, results, lambda rows: rows[0].update(results=["9"] * len(rows[0]["results"])))
    assert rerun(run, recipe) == after_results
    changed(summary, summary, lambda rows: rows[0].update(rationale=rows[0]["rationale"].replace("There are", "We have")))
    assert {"rationales", "segments", "embeddings", "models/cirf_full"} <= rerun(run, recipe)


def test_another_backbone_or_embedder_is_noticed_by_content_not_by_place(
    finished: Path, workshop: tinyrun.Workshop, tmp_path: Path
) -> None:
    moved = shutil.copytree(workshop.backbone, tmp_path / "moved")
    assert predicted(finished, workshop.recipe(tmp_path / "recipe.yaml", backbone__model=str(moved))) == []
    other = tinyrun.write_backbone(tmp_path / "other", seed=7)
    left = predicted(finished, workshop.recipe(tmp_path / "recipe.yaml", backbone__model=str(other)))
    assert left[0] == "codebook-4" and set(left) >= of("cirf_full") | of("direct_sft") | {"evaluation/cot", "latency"}
    vectors = tinyrun.write_embedder(tmp_path / "embedder", seed=7)
    left = predicted(finished, workshop.recipe(tmp_path / "recipe.yaml", embeddings__model=str(vectors)))
    assert left[0] == "embeddings" and {"codebook-4", "models/cirf_full"} <= set(left) and "models/direct_sft" not in left


def test_until_stops_and_a_later_run_goes_on(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    recipe, run = workshop.recipe(tmp_path / "recipe.yaml"), tmp_path / "run"
    assert tinyrun.cirf("run", recipe, "--out", run, "--until", "segments").code == 0
    assert set(tinyrun.stages(run)) == {"problems", "rationales", "segments"}
    assert not (run / "report.html").exists()
    found = states(run)
    assert set(found) == ALL
    assert {stage for stage, state in found.items() if state == "done"} == set(tinyrun.stages(run))
    assert set(found.values()) == {"done", "open"}
    said = tinyrun.cirf("run", recipe, "--out", run, "--until", "segment")
    assert "--until segment: there is no such stage" in said.error()
    assert tinyrun.cirf("run", recipe, "--out", run, "--until", "codebook").code == 0  # whatever its size
    needed = TRAINING - {"traces", "results"}
    assert set(tinyrun.stages(run)) == needed
    said = tinyrun.cirf("run", recipe, "--out", run, "--until", "models", "--dry-run")
    stages = [line.split()[0] for line in said.out.splitlines()]
    assert said.code == 0 and {"models/cirf_full", "models/direct_sft", "traces", "results"} <= set(stages), said.out
    assert not any(name.startswith(("evaluation", "latency")) for name in stages)  # none in between
    assert tinyrun.cirf("run", recipe, "--out", run, "--until", "evaluation/cot").code == 0
    assert set(tinyrun.stages(run)) == needed | {"evaluation/cot"}  # which no model is trained for


def test_a_dry_run_counts_no_training_of_a_model_that_is_there(
    workshop: tinyrun.Workshop, finished: Path, tmp_path: Path
) -> None:
    for taken in (["cirf_full"], ["cirf_full", "direct_sft"]):
        saved = {name: str(finished / "models" / name) for name in taken}
        recipe = workshop.recipe(tmp_path / "recipe.yaml", methods=["cirf_full", "direct_sft", "cot"], models=saved)
        said = tinyrun.cirf("run", recipe, "--out", tmp_path / "run", "--dry-run", "--json")
        assert said.code == 0, said.err
        left = [name for name in ("cirf_full", "direct_sft") if name not in taken]
        assert list(json.loads(said.out).get("methods", {})) == left


def test_a_dry_run_predicts_trainings_up_to_the_stage_asked_for(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    recipe = workshop.recipe(tmp_path / "recipe.yaml", methods=["cirf_full", "direct_sft", "cot"])
    wanted = {"evaluation/direct_sft": ["direct_sft"], "models": ["cirf_full", "direct_sft"], "segments": [], "problems": []}
    for until, left in wanted.items():
        said = tinyrun.cirf("run", recipe, "--out", tmp_path / "run", "--dry-run", "--json", "--until", until)
        assert said.code == 0, said.err
        summary = json.loads(said.out)
        assert list(summary.get("methods", {})) == left and ("segments" in summary) == (until != "problems")
    said = tinyrun.cirf("run", recipe, "--out", tmp_path / "run", "--dry-run", "--until", "models")
    assert re.search(r"^all 2 trainings: about ", said.out, re.M), said.out
    tried = workshop.recipe(tmp_path / "tried.yaml", methods=["cirf_full", "cot"], finetune={"learning_rates": [1e-3, 2e-3]})
    said = tinyrun.cirf("run", tried, "--out", tmp_path / "run", "--dry-run", "--json", "--until", "trials")
    assert list(json.loads(said.out)["methods"]) == ["cirf_full"], said.err
    pruned = workshop.recipe(tmp_path / "pruned.yaml", methods=["cirf_lean", "cot"])
    said = tinyrun.cirf("run", pruned, "--out", tmp_path / "run", "--dry-run", "--json", "--until", "models/cirf_lean")
    assert list(json.loads(said.out)["methods"]) == ["cirf_full", "cirf_lean"], said.err  # what prunes its traces is trained, too
    tried = workshop.recipe(
        tmp_path / "tried.yaml", methods=["direct_sft"], finetune={"learning_rates": [1e-3, 2e-3], "trial_epochs": 0.2}
    )
    said = tinyrun.cirf("run", tried, "--out", tmp_path / "run", "--dry-run", "--until", "trials")
    assert re.search(r"^direct_sft: 36 rows, 2 trials of [\d,]+ tokens in \d+ updates each, ", said.out, re.M), said.out
    large = workshop.recipe(tmp_path / "large.yaml", methods=["cirf_full", "cot"], codebook={"size": 60_000})
    said = tinyrun.cirf("run", recipe, "--out", tmp_path / "run", "--dry-run", "--until", "segments")
    assert "nothing is trained" in said.out, said.out
    assert "codes for" in tinyrun.cirf("run", large, "--out", tmp_path / "run", "--dry-run", "--until", "codebook").error()


def test_a_dry_run_for_several_processes_shards_as_the_launch_asks(
    workshop: tinyrun.Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: dict[str, Any] = {"methods": ["direct_sft"], "finetune__gradient_accumulation_steps": 2, "finetune__batch_size": 4}
    recipe = workshop.recipe(tmp_path / "recipe.yaml", **keys)
    run = ("run", recipe, "--out", tmp_path / "run")
    monkeypatch.setattr("cirf.commands.dry_run.GIB", 1.0)  # the model is tiny
    monkeypatch.setattr("cirf.commands.dry_run.free_memory", lambda device: 10_000)
    one, several = (tinyrun.cirf(*run, "--dry-run", *more) for more in ((), ("--processes", "4")))
    assert " a process" not in one.out and "idle" not in one.out
    assert "GiB of memory a process, " in several.out
    line = "finetune.gradient_accumulation_steps: 2 is not a multiple of the 4 processes, which idle 50% of the time"
    assert f"warning: {line} in training; set it to 4, and finetune.batch_size to 2 for" in several.out
    assert "WARNING: direct_sft: more memory than is free (10000.0 GiB), even with one row a forward pass" in one.out
    assert "(2500.0 GiB for each process)" in several.out  # they share a CPU's memory

    def found() -> float:
        said = tinyrun.cirf(*run, "--dry-run", "--json", "--processes", "4")
        return float(json.loads(said.out)["methods"]["direct_sft"]["memory_gib"])

    plain = found()
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    assert found() < plain and "--processes N estimates it" in tinyrun.cirf(*run, "--dry-run").out
    assert "GiB of memory a process, sharded over 4, " in tinyrun.cirf(*run, "--dry-run", "--processes", "4").out
    assert "only with --dry-run" in tinyrun.cirf(*run, "--processes", "4").error()
    latent = workshop.recipe(tmp_path / "latent.yaml", **keys | {"methods": ["coconut"]})
    assert "sharded" in tinyrun.cirf("run", latent, "--out", tmp_path / "run", "--dry-run", "--processes", "2").error()
    monkeypatch.setenv("WORLD_SIZE", "4")  # as torchrun sets it
    assert "sharded over 4" in tinyrun.cirf(*run, "--dry-run").out
    monkeypatch.setenv("RANK", "1")
    assert tinyrun.cirf(*run, "--dry-run") == tinyrun.Said(0, "", "")


def test_a_run_says_that_processes_will_idle(workshop: tinyrun.Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = list[str]()
    monkeypatch.setattr("cirf.run._bring_up_to_date", lambda context, stages, say, others: None)
    monkeypatch.setattr("cirf.run.world_size", lambda: 3)
    recipe = workshop.recipe(
        tmp_path / "recipe.yaml",
        methods=["cirf_full", "direct_sft", "cot"],
        finetune__gradient_accumulation_steps=2,
        finetune__overrides={"cirf_full": {"gradient_accumulation_steps": 6}},
    )
    execute(prepare(str(recipe), [], None, tmp_path / "run", None, True), None, said.append)
    (line,) = said
    assert line.startswith("WARNING: finetune.gradient_accumulation_steps: 2 is not a multiple of the 3 processes")
    execute(prepare(str(recipe), [], None, tmp_path / "run", None, True), "models/cirf_full", said.append)
    assert len(said) == 1  # what is trained has a multiple


def test_a_dry_run_writes_nothing(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    said = tinyrun.cirf("run", workshop.recipe(tmp_path / "recipe.yaml"), "--out", tmp_path / "run", "--dry-run", "--json")
    assert said.code == 0, said.err
    summary = json.loads(said.out)
    assert not (tmp_path / "run").exists()
    assert {row["state"] for row in summary["stages"]} == {"open"}
    assert summary["problems"] == {"train": 36, "validation": 4, "test": {"sums": 8}}
    assert set(summary["methods"]) == {"cirf_full", "direct_sft"}
    assert summary["methods"]["cirf_full"]["rows"] == 36 and summary["methods"]["cirf_full"]["updates"] == 5


def test_limit_takes_so_many_rows_of_each(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    said = tinyrun.cirf(
        "run", workshop.recipe(tmp_path / "recipe.yaml"), "--out", tmp_path / "run", "--until", "problems", "--limit", "5"
    )
    assert said.code == 0, said.err
    counts = {
        name: len(read_rows(tmp_path / "run" / "problems" / name))
        for name in ("train.jsonl", "validation.jsonl", "test/sums.jsonl")
    }
    assert counts == {"train.jsonl": 4, "validation.jsonl": 1, "test/sums.jsonl": 5}


@pytest.mark.parametrize(("limit", "counts"), [(20, [16, 4, 8]), (5, [4, 1, 5])])
def test_limit_takes_no_more_of_an_only_file_for_the_test_than_a_whole_run(
    workshop: tinyrun.Workshop, tmp_path: Path, limit: int, counts: list[int]
) -> None:
    made = tinyrun.recipe(workshop.backbone, workshop.embedder, workshop.train)
    made["problems"]["validation"] = 0.2
    recipe = tinyrun.write_recipe(tmp_path / "recipe.yaml", made)
    said = tinyrun.cirf("run", recipe, "--out", tmp_path / "run", "--until", "problems", "--limit", str(limit))
    assert said.code == 0, said.err
    files = ("train.jsonl", "validation.jsonl", "test/sums.jsonl")
    found = [len(read_rows(tmp_path / "run" / "problems" / name)) for name in files]
    assert found == counts  # of 40 rows, 8 are the test


def test_limit_leaves_a_saved_codebook_and_a_saved_model_their_codes(
    finished: Path, workshop: tinyrun.Workshop, tmp_path: Path
) -> None:
    saved = {"models": {"cirf_full": str(finished / "models/cirf_full")}}
    for name, keys in (("reused", {"codebook__reuse": str(finished / "codebook-4")}), ("saved", saved)):
        recipe = workshop.recipe(tmp_path / f"{name}.yaml", methods=["cirf_full"], **keys)
        said = tinyrun.cirf("run", recipe, "--out", tmp_path / name, "--limit", "3", "--dry-run", "--json")
        assert said.code == 0, said.err
        assert ("codebook-4" in said.out) == (name == "reused")


def test_limit_counts_problems_that_have_a_rationale(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    rows = tinyrun.sums(40)
    bare = tinyrun.write_jsonl(tmp_path / "bare.jsonl", [{"question": row["question"], "answer": row["answer"]} for row in rows])
    summary = tinyrun.write_jsonl(tmp_path / "shown.jsonl", rows[30:])
    recipe = workshop.recipe(tmp_path / "recipe.yaml", train=bare, rationales__files=[str(summary)])
    said = tinyrun.cirf("run", recipe, "--out", tmp_path / "run", "--until", "segments", "--limit", "5")
    assert said.code == 0, said.err
    assert len(read_rows(tmp_path / "run" / "segments" / "segments.jsonl")) == 5 + 1  # to train on, and held out


@pytest.mark.parametrize("text", ['{"cirf": "0.1', "[]"])
def test_what_a_run_rests_on_is_written_anew_where_it_cannot_be_read(finished: Path, tmp_path: Path, text: str) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    (run / "environment.json").write_text(text)
    assert "environment.json" in tinyrun.cirf("report", run).error()
    said = tinyrun.cirf("run", run / "recipe.yaml", "--out", run, "--until", "problems")
    assert said.code == 0, said.err
    assert json.loads((run / "environment.json").read_text())["cores"] == os.cpu_count()


def test_the_saved_recipe_is_what_was_run(finished: Path, workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    from cirf.recipe.load import load

    assert load(str(finished / "recipe.yaml")) == load(str(workshop.recipe(tmp_path / "recipe.yaml")))
    saved = read_rows(finished / "models" / "direct_sft" / "sft.jsonl")
    assert len(saved) == 36 and all(set(row) == {"prompt", "completion"} for row in saved)


def test_trackers_write_where_the_run_keeps_it(
    workshop: tinyrun.Workshop, few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import TrainerCallback
    from transformers.integrations import integration_utils

    class Recorder(TrainerCallback):
        """As TensorBoard's, in one line."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            folder = Path(os.environ["TENSORBOARD_LOGGING_DIR"])
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "events").write_text(args.run_name)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            with open(Path(os.environ["TENSORBOARD_LOGGING_DIR"]) / "events", "a") as file:
                file.write(f" {state.global_step}" if "loss" in logs else "")

    monkeypatch.delenv("TENSORBOARD_LOGGING_DIR", raising=False)
    monkeypatch.setattr(integration_utils, "get_available_reporting_integrations", lambda: ["tensorboard"])
    monkeypatch.setitem(integration_utils.INTEGRATION_TO_CALLBACK, "tensorboard", Recorder)
    keys = {"train": few, "methods": ["direct_sft"], "finetune__report_to": ["tensorboard"], "evaluate__latency_questions": 0}
    said = tinyrun.cirf("run", workshop.recipe(tmp_path / "recipe.yaml", **keys), "--out", tmp_path / "run")
    assert said.code == 0, said.err
    assert (tmp_path / "run/trackers/direct_sft/events").read_text() == "direct_sft 1 2"
    sets = ("--set", "finetune.learning_rates=[0.001,0.01]", "--set", "finetune.epochs=2")
    said = tinyrun.cirf("run", tmp_path / "recipe.yaml", "--out", tmp_path / "tried", *sets)
    assert said.code == 0, said.err
    for rate in ("0.001", "0.01"):
        assert (tmp_path / f"tried/trackers/direct_sft/{rate}/events").read_text() == f"direct_sft/{rate} 1 2"
    assert "TENSORBOARD_LOGGING_DIR" not in os.environ


def test_rows_that_were_not_drawn_are_not_reported_as_trained_on(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    keys = {"methods": ["direct_sft"], "evaluate__latency_questions": 0, "problems__validation": 0.25}
    recipe = workshop.recipe(tmp_path / "recipe.yaml", **keys)
    said = tinyrun.cirf("run", recipe, "--out", tmp_path / "run", "--set", "problems.tasks.0.rows=8")
    assert said.code == 0, said.err
    history = json.loads((tmp_path / "run/models/direct_sft/history.json").read_text())
    assert (history["rows"], history["validation_rows"]) == (8, 2)
    summary = json.loads((tmp_path / "run/report.json").read_text())["data"]
    assert summary["train"] == {"sums": 8} and summary["validation"] == {"sums": 2} and summary["segmented"] == 10
    assert summary["segmentable"] == 1.0 and summary["cut"] == 40
    assert "| Training questions | sums 8 |" in (tmp_path / "run/models/direct_sft/README.md").read_text()
    assert len(read_rows(tmp_path / "run/problems/train.jsonl")) == 30


def test_what_was_dropped_is_said_as_it_happens(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    rows = tinyrun.sums(40)
    rows[3] |= {"question": tinyrun.sums(8, seed=9, steps=2)[0]["question"]}  # a test question
    rows[5] |= {"rationale": "Step 1: 1 + 1 = 2\nStep 2: The answer is 99999."}
    recipe = workshop.recipe(
        tmp_path / "recipe.yaml", train=tinyrun.write_jsonl(tmp_path / "train.jsonl", rows), problems__validation=0
    )
    said = tinyrun.cirf("run", recipe, "--out", tmp_path / "run", "--set", "problems.tasks.0.test=50", "--until", "segments")
    assert said.code == 0, said.err
    for line in (
        "problems: 1 dropped: question is also in the test",
        "problems: sums: 50 test rows were requested, 8 exist",
        "rationales: 1 dropped: another answer",
    ):
        assert line in said.err.splitlines()


# A training that fails says so: it ends early, or is warned of in the log, the report and its JSON


@pytest.fixture(scope="module")
def run(workshop: tinyrun.Workshop, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tinyrun.Said]:
    """One update is far too few for a net that knows nothing."""
    folder = tmp_path_factory.mktemp("failing")
    keys: dict[str, Any] = {"methods": ["cirf_full", "direct_sft"], "finetune__learning_rate": 1e-5}
    keys |= {"evaluate__check_questions": 3, "evaluate__latency_questions": 0}
    made = workshop.recipe(folder / "recipe.yaml", **keys)
    return folder / "run", tinyrun.cirf("run", made, "--out", folder / "run")


def test_the_log_the_end_and_the_report_warn(run: tuple[Path, tinyrun.Said]) -> None:
    folder, said = run
    assert said.code == 0, said.err
    summary = "cirf_full is not trained enough to be used: only 0% of its answers to 3 held-out questions are well-formed"
    assert f"checks/cirf_full: WARNING: {summary}" in said.err
    assert f"warning: {summary}" in said.out
    found = json.loads((folder / "report.json").read_text())["checks"]
    assert found["cirf_full"]["n"] == 3 and found["cirf_full"]["well_formed"] == 0.0
    assert any(summary in line for line in found["cirf_full"]["faults"]) and "well_formed" in found["direct_sft"]
    page = (folder / "report.html").read_text()
    assert summary in page and page.index(summary) < page.index("Accuracy and cost")


def test_a_check_asks_held_out_questions_alone(run: tuple[Path, tinyrun.Said]) -> None:
    folder, _ = run
    held_out = {row["id"] for row in read_rows(folder / "problems" / "validation.jsonl")}
    asked = {row["id"] for row in read_rows(folder / "checks" / "cirf_full" / "sums.jsonl")}
    assert len(asked) == 3 and asked <= held_out


def test_the_prompt_ends_with_the_opening_delimiter(run: tuple[Path, tinyrun.Said]) -> None:
    rows = read_rows(run[0] / "models" / "cirf_full" / "sft.jsonl")
    assert all(row["prompt"].endswith("<cirf>") and row["completion"].startswith("<cirf_0") for row in rows)
    assert not any("<cirf>" in row["prompt"] for row in read_rows(run[0] / "models" / "direct_sft" / "sft.jsonl"))


def test_a_hopeless_training_ends_early_and_the_other_methods_go_on(
    workshop: tinyrun.Workshop, few: Path, tmp_path: Path
) -> None:
    keys = {
        "train": few,
        "problems__validation": 0.25,
        "methods": ["cirf_full", "direct_sft"],
        "variants": {"cirf_full": {"settings": {"budget": 4}}},  # constrained answers would all be well-formed
        "finetune__min_well_formed": 0.5,
        "finetune__epochs": 3.0,
        "evaluate__check_questions": 3,
        "evaluate__latency_questions": 0,
    }
    made = workshop.recipe(tmp_path / "recipe.yaml", **keys, finetune__learning_rate=1e-5)
    said = tinyrun.cirf("run", made, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    history = json.loads((tmp_path / "run" / "models" / "cirf_full" / "history.json").read_text())
    epoch, total = history["updates_per_epoch"], 3 * history["updates_per_epoch"]
    summary = f"the training of cirf_full was ended after {epoch} of {total} updates"
    assert history["ended"].startswith(summary) and history["updates"] == len(history["losses"]) == epoch
    assert f"warning: {summary}" in said.out and "finetune.epochs: auto" in said.out and "finetune.min_well_formed: 0" in said.out
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["checks"]["cirf_full"]["faults"][0].startswith(summary) and set(report["methods"]) == {
        "cirf_full",
        "direct_sft",
    }
    whole = tinyrun.cirf("run", made, "--out", tmp_path / "run", "--set", "finetune.min_well_formed=0")
    assert whole.code == 0, whole.err
    history = json.loads((tmp_path / "run" / "models" / "cirf_full" / "history.json").read_text())
    assert history["updates"] == total and "ended" not in history
    check = json.loads((tmp_path / "run" / "checks" / "cirf_full" / "check.json").read_text())
    assert check["well_formed"] < 0.5 and any("not trained enough" in fault for fault in check["faults"])
    rows = read_rows(tmp_path / "run" / "evaluation" / "cirf_full" / "sums.jsonl")
    assert all(row["output"].count("<cirf_") <= 4 for row in rows), "the answers of the table are within the budget"


def test_a_token_begins_at_the_mean_of_its_steps_words_less_that_of_all_steps(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    keys = {
        "vocabulary__init": "words",
        "vocabulary__alpha": 0.5,
        "finetune__learning_rate": 1e-12,
        "finetune__weight_decay": 0.0,
    }
    made = workshop.recipe(tmp_path / "recipe.yaml", methods=["cirf_full"], evaluate__latency_questions=0, **keys)
    said = tinyrun.cirf("run", made, "--out", tmp_path / "run", "--until", "models/cirf_full")
    assert said.code == 0, said.err
    run, section = tmp_path / "run", Backbone(dtype="float32", device="cpu")
    backbone, tokenizer = workshop.backbone, load_tokenizer(workshop.backbone, section)
    words = load_model(backbone, section, training=None).get_input_embeddings().weight.detach()
    training = {row["id"] for row in read_rows(run / "problems" / "train.jsonl")}
    traces = {(row["problem"], row["sample"]): row["codes"] for row in read_rows(run / "traces" / "traces.jsonl")}
    steps: dict[int, list[torch.Tensor]] = {}
    for row in read_rows(run / "segments" / "segments.jsonl"):
        if row["problem"] in training:
            for code, segment in zip(traces[row["problem"], row["sample"]], row["segments"], strict=True):
                steps.setdefault(code, []).append(words[encode(tokenizer, segment)].mean(dim=0))
    middle = torch.stack([vector for some in steps.values() for vector in some]).mean(dim=0)
    folder = run / "models" / "cirf_full"
    rows = load_model(folder, section, training=None).get_input_embeddings().weight.detach()
    saved = load_tokenizer(folder, section)
    assert len(steps) > 1
    for code, some in steps.items():
        wanted = torch.nn.functional.normalize(torch.stack(some).mean(dim=0) - middle, dim=0) * 0.5
        torch.testing.assert_close(rows[saved.convert_tokens_to_ids(f"<cirf_{code:03d}>")], wanted, atol=1e-4, rtol=1e-3)


def test_threads_are_those_of_each_recipe(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    import torch

    from cirf.commands.run import set_threads
    from cirf.recipe.load import load

    plain = load(str(workshop.recipe(tmp_path / "recipe.yaml")))
    set_threads(plain.model_copy(update={"backbone": plain.backbone.model_copy(update={"threads": None})}))
    usual = torch.get_num_threads()
    for threads, used in ((usual + 1, usual + 1), (None, usual)):
        set_threads(plain.model_copy(update={"backbone": plain.backbone.model_copy(update={"threads": threads})}))
        assert torch.get_num_threads() == used
