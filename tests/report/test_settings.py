"""A report of a run whose recipe, machine or labels have changed since its models were trained."""

import json

import pytest
import synthetic
from hypothesis import given
from hypothesis import strategies as st

from cirf.analysis.traces import read_codes
from cirf.assets import published_hash
from cirf.recipe_io import dump
from cirf.records import Trace
from cirf.report.collect import collect
from cirf.report.page import render
from cirf.report.settings import as_trained, read_settings
from cirf.rows import read_rows

ENVIRONMENT = {"cpu": "a CPU"}


def section(recipe, **changes):
    """What `cirf.run` keeps of a recipe in a model's ``stage.json``."""
    finetune = recipe.finetune.model_dump(mode="json", exclude={"overrides", "save_every", "report_to"})
    backbone = recipe.backbone.model_dump(mode="json", include={"dtype", "attention", "empty_system"})
    found = {"finetune": finetune, "override": None, "seed": recipe.seed}
    return found | {"backbone": backbone | {"content": published_hash(recipe.backbone.model)}} | changes


def put(folder, name, value):
    (folder / name).write_text(json.dumps(value))


def test_settings_are_read_from_the_models_folder(tmp_path):
    assert read_settings(tmp_path) is None
    recipe = synthetic.recipe()
    for content, known in (
        (published_hash(recipe.backbone.model), {"model": recipe.backbone.model}),
        ("Qwen/Qwen3-8B", {"model": "Qwen/Qwen3-8B", "revision": None}),
        ("Qwen/Qwen3-8B@main", {"model": "Qwen/Qwen3-8B", "revision": "main"}),
    ):
        put(tmp_path, "stage.json", {"section": section(recipe, backbone={"dtype": "float32", "content": content})})
        assert read_settings(tmp_path)["backbone"] == known | {"dtype": "float32"}
    put(tmp_path, "stage.json", {"section": section(recipe, backbone={"content": "0" * 64})})
    assert read_settings(tmp_path)["backbone"] == {}, "a folder is known by its hash alone"
    put(tmp_path, "functions.json", {"backbone": "/a/folder"})
    assert read_settings(tmp_path)["backbone"] == {"model": "/a/folder"}
    put(tmp_path, "stage.json", {"key": "of an older version"})
    assert read_settings(tmp_path) is None


def test_an_unchanged_recipe_is_the_one_trained_by(run):
    for name in ("cirf_full", "sft_cot"):
        put(run / "models" / name, "stage.json", {"section": section(synthetic.recipe())})
    data = collect(run, environment=ENVIRONMENT)
    assert data["changed"] == []
    assert data["training"]["sft_cot"]["settings"]["finetune"]["learning_rate"] == 1e-3
    assert data["training"]["direct_sft"]["settings"] is None
    assert as_trained(data["recipe"], data["training"]["sft_cot"]["settings"], "sft_cot") == data["recipe"]
    assert "has changed since" not in render(data)


def test_a_model_of_whole_trials_is_told_from_those_of_short_ones(run):
    recipe = synthetic.recipe()
    whole = recipe.model_copy(update={"finetune": recipe.finetune.model_copy(update={"trials": (1e-3, 1e-2)})})
    short = recipe.model_copy(update={"finetune": whole.finetune.model_copy(update={"trial_epochs": 0.5})})
    (run / "recipe.yaml").write_text(dump(short))
    for name, trained in (("cirf_full", short), ("sft_cot", whole), ("direct_sft", short)):
        known = section(trained)
        if trained is whole:
            del known["finetune"]["trial_epochs"]  # where it is not read it is not kept
        put(run / "models" / name, "stage.json", {"section": known})
    assert collect(run, environment=ENVIRONMENT)["changed"] == ["sft_cot"]


def test_a_model_of_exact_products_is_told_from_those_of_rounded_ones(run):
    recipe = synthetic.recipe()
    rounded = recipe.model_copy(update={"finetune": recipe.finetune.model_copy(update={"weights": "int8"})})
    (run / "recipe.yaml").write_text(dump(rounded))
    for name, adaptation in (("cirf_full", "lora"), ("sft_cot", "lora"), ("direct_sft", "frozen")):
        known = section(rounded)
        if name != "cirf_full":
            del known["finetune"]["weights"]  # where it is not read it is not kept
        put(run / "models" / name, "stage.json", {"section": known})
        history = json.loads((run / "models" / name / "history.json").read_text())
        put(run / "models" / name, "history.json", history | {"adaptation": adaptation})
    data = collect(run, environment=ENVIRONMENT)
    assert data["changed"] == ["sft_cot"]
    found = as_trained(data["recipe"], data["training"]["sft_cot"]["settings"], "sft_cot")
    assert found["finetune"]["weights"] == "saved"


def test_a_model_that_opens_its_traces_is_told_from_one_whose_prompt_does(run):
    vocabulary = synthetic.recipe().vocabulary.model_dump(mode="json")
    written = {name: value for name, value in vocabulary.items() if name != "opening"}  # where it is not read it is not kept
    for kept, opening in ((written, "written"), (vocabulary, "prompt")):
        put(run / "models" / "cirf_full", "stage.json", {"section": section(synthetic.recipe(), vocabulary=kept)})
        data = collect(run, environment=ENVIRONMENT)
        found = as_trained(data["recipe"], data["training"]["cirf_full"]["settings"], "cirf_full")
        assert found["vocabulary"] == vocabulary | {"opening": opening}


def test_a_recipe_changed_since_is_told_and_not_mixed_in(run):
    recipe = synthetic.recipe()
    for name in ("cirf_full", "direct_sft", "sft_cot"):
        put(run / "models" / name, "stage.json", {"section": section(recipe)})
    faster = recipe.finetune.model_copy(update={"learning_rate": 5e-5})
    other = recipe.backbone.model_copy(update={"model": "Qwen/Qwen3-8B"})
    (run / "recipe.yaml").write_text(dump(recipe.model_copy(update={"finetune": faster, "seed": 77, "backbone": other})))
    data = collect(run, environment=ENVIRONMENT)
    assert data["recipe"]["seed"] == 77 and data["changed"] == ["cirf_full", "direct_sft", "sft_cot"]
    assert (data["seed"], data["backbone"]) == (recipe.seed, recipe.backbone.model)
    trained = as_trained(data["recipe"], data["training"]["cirf_full"]["settings"], "cirf_full")
    assert trained["finetune"]["learning_rate"] == 1e-3 and trained["seed"] == recipe.seed
    html = render(data)
    assert "since CIRF, Direct, fine-tuned and Chain-of-thought, fine-tuned were trained" in html
    assert f"Backbone {recipe.backbone.model} · seed {recipe.seed}<" in html.replace(" · coin_flip, svamp", "")


def test_the_environment_is_that_of_the_run(run):
    here = collect(run)["environment"]
    assert here["python"] and "cache" not in here
    put(run, "environment.json", {"cpu": "another CPU", "cache": "/home/me", "bundled models": {}, "packages": {"torch": "1"}})
    assert collect(run)["environment"] == {"cpu": "another CPU", "packages": {"torch": "1"}}


def test_labels_are_those_that_the_model_carries(run):
    plain = {row["code"]: row["label"] for row in collect(run, environment=ENVIRONMENT)["codebook"]["codes"]}
    training = {row["id"] for row in read_rows(run / "problems" / "train.jsonl")}
    used = {c for row in read_rows(run / "codebook-24" / "codes.jsonl") if row["problem"] in training for c in row["codes"]}
    codes = {str(code): {"label": f"does {code}", "count": 1, "examples": ["x"]} for code in used}
    put(run / "models" / "cirf_full", "functions.json", {"size": 24, "delimiters": "cirf", "codes": codes})
    labels = {row["code"]: row["label"] for row in collect(run, environment=ENVIRONMENT)["codebook"]["codes"]}
    assert labels == {code: f"does {code}" if code in used else "unused" for code in range(24)}
    codes.popitem()
    put(run / "models" / "cirf_full", "functions.json", {"size": 24, "delimiters": "cirf", "codes": codes})
    again = {row["code"]: row["label"] for row in collect(run, environment=ENVIRONMENT)["codebook"]["codes"]}
    assert again == plain, "labels of other codes are not taken"


def test_the_codebook_is_the_models_and_not_the_one_a_changed_recipe_names(run):
    put(run / "models" / "cirf_full", "functions.json", {"size": 24, "delimiters": "cirf", "codes": {}})
    (run / "codebook-8").mkdir()
    put(run / "codebook-8", "codebook.json", {"size": 8, "report": {}})
    (run / "codebook-8" / "codes.jsonl").write_text("")
    recipe = synthetic.recipe()
    (run / "recipe.yaml").write_text(dump(recipe.model_copy(update={"codebook": recipe.codebook.model_copy(update={"size": 8})})))
    assert collect(run, environment=ENVIRONMENT)["codebook"]["size"] == 24


RESULTS = st.text(alphabet="0123456789+-= abc", max_size=6)


@given(st.lists(st.tuples(st.integers(0, 1200), RESULTS), max_size=5), RESULTS, st.sampled_from(["cirf", "think"]))
def test_traces_are_read_as_the_models_side_reads_them(steps, answer, delimiters):
    vocabulary = pytest.importorskip("cirf.lm.vocabulary")
    names = vocabulary.token_names(1201, delimiters)
    trace = Trace("p", 0, tuple(code for code, _ in steps), tuple(result for _, result in steps), answer)
    output = vocabulary.write_trace(trace, names)
    theirs = vocabulary.parse_trace(vocabulary.read_trace(output, names)[0])
    assert read_codes(output) == [(code, result.strip()) for code, result in theirs]
