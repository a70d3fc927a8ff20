from __future__ import annotations

import copy
import json
import re

import pytest
import yaml
from tables import each_row

from cirf.recipe.schema import Recipe
from cirf.report.model_cards import DataSource, card_from_report, cell, sources
from cirf.tasks import get, names

FUNCTIONS = {
    "size": 24,
    "delimiters": "think",
    "codes": {
        "3": {"label": "multiplies", "count": 5, "examples": ["4 * 5 | 20\nand `so`"]},
        "11": {"label": "flips", "count": 50, "examples": ["Kim flips"]},
    },
}


def card_of(method, data, recipe, functions=None, **more):
    """A card of a model that was not evaluated."""
    return card_from_report(method, data | {"recipe": recipe, "methods": {}, "training": {}, "examples": {}}, functions, **more)


def parts(card):
    _, front, body = card.split("---\n", 2)
    return yaml.safe_load(front), body


def test_a_card_says_what_it_is_and_how_to_load_it(data):
    front, body = parts(card_from_report("cirf_full", data, FUNCTIONS))
    assert front["base_model"] == "HuggingFaceTB/SmolLM2-135M-Instruct" and front["license"] == "apache-2.0"
    assert front["library_name"] == "transformers"
    found = {row["dataset"]["name"]: row["metrics"][0]["value"] for row in front["model-index"][0]["results"]}
    assert found == {task: round(100 * row["accuracy"], 2) for task, row in data["methods"]["cirf_full"]["tasks"].items()}
    names = {row["dataset"]["name"]: row["metrics"][0]["name"] for row in front["model-index"][0]["results"]}
    assert all("95 % interval" in name and "0.0% truncated, 0.0% unparsed" in name for name in names.values())
    assert "vllm serve MODEL --reasoning-parser hf" in body and 'partition("</think>")' in body
    assert body.index("| `<cirf_011>` | flips | 50 |") < body.index("| `<cirf_003>` | multiplies | 5 |")
    low, high = data["methods"]["cirf_full"]["interval"]
    assert f"{100 * low:.1f} % to {100 * high:.1f} %" in body.replace("\xa0", " ")
    assert (
        "| Training rows | 108 |" in body
        and "coin_flip 54, svamp 54" in body
        and "| Peak learning rate | 0.001 (cosine) |" in body
    )


@pytest.mark.parametrize("opening", ["prompt", "written"])
def test_a_card_shows_an_output_as_it_is_written(data, opening):
    recipe = copy.deepcopy(data["recipe"])
    recipe["vocabulary"]["opening"] = opening
    examples = {"cirf_full": "<cirf_011>5<cirf_003>8</think>8"}
    card = card_from_report("cirf_full", data | {"recipe": recipe, "training": {}, "examples": examples}, FUNCTIONS)
    assert "An output for a held-out question:\n\n```\n<cirf_011>5<cirf_003>8</think>8\n```" in card
    assert "An output for" not in card_of("cirf_full", data, recipe, FUNCTIONS)
    assert ("ends the prompt with `<think>`" in card) == (opening == "prompt")
    assert "split it at `</think>`" in card and "split it" not in card_of("sft_cot", data, recipe)


@pytest.mark.parametrize("opening", ["prompt", "written"])
def test_a_card_has_the_expression_of_a_budget_for_vllm(data, opening):
    recipe = copy.deepcopy(data["recipe"])
    recipe["vocabulary"]["opening"] = opening
    assert "structured_outputs" not in card_of("cirf_full", data, recipe, FUNCTIONS)
    recipe["variants"]["cirf_full"] = {"settings": {"budget": 2}}
    card = card_of("cirf_full", data, recipe, FUNCTIONS)
    (line,) = [line for line in card.splitlines() if line.startswith('"structured_outputs"')]
    form = json.loads(f"{{{line}}}")["structured_outputs"]["regex"]
    start = "" if opening == "prompt" else "<think>"
    assert re.fullmatch(form, f"{start}<cirf_011>5*8=40<cirf_003>8</think>8")
    assert not re.fullmatch(form, f"{start}<cirf_011>5<cirf_003>8<cirf_003>9</think>9")
    assert "structured_outputs" not in card_of("sft_cot", data, recipe)
    recipe["variants"]["cirf_full"] = {"settings": {"results": False}}
    card = card_of("cirf_full", data, recipe, FUNCTIONS)
    assert "constrained to the form of traces" in card and '{"regex": "' + start in card
    recipe["variants"]["cirf_full"] = {"settings": {"budget": 2, "result_tokens": 3}}  # which no expression has
    assert "structured_outputs" not in card_of("cirf_full", data, recipe, FUNCTIONS)


def test_the_code_of_a_card_is_python(data):
    for card in (card_from_report("cirf_full", data, FUNCTIONS), card_from_report("sft_cot", data)):
        compile(card.split("```python\n")[1].split("```")[0], "card", "exec")


def test_a_baselines_card_speaks_of_no_tokens(data):
    card = card_from_report("sft_cot", data)
    assert "no functional tokens" in card and "What the tokens mean" not in card and "reasoning-parser" not in card


def test_a_card_can_be_written_before_any_evaluation(data):
    front, body = parts(card_of("cirf_full", data, data["recipe"], FUNCTIONS))
    assert "model-index" not in front and "Not evaluated" in body


@pytest.mark.parametrize(
    ("source", "base"), [("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"), ("./a/model", None), ("/home/me/model", None), ("../model", None)]
)
def test_only_a_hub_id_is_a_base_model(data, source, base):
    recipe = copy.deepcopy(data["recipe"])
    recipe["backbone"]["model"] = source
    front, _ = parts(card_of("direct_sft", data, recipe))
    assert front.get("base_model") == base and "license" not in front


def test_an_override_of_the_method_is_what_counts(data):
    recipe = copy.deepcopy(data["recipe"])
    recipe["finetune"]["overrides"] = {"direct_sft": {"learning_rate": 3e-4, "epochs": None}}
    assert "0.0003 (cosine)" in card_of("direct_sft", data, recipe) and "0.001 (cosine)" in card_of("cirf_full", data, recipe)


def test_the_settings_are_those_of_the_training_and_not_of_a_recipe_changed_since(data):
    changed = copy.deepcopy(data)
    changed["training"]["cirf_full"]["settings"] = {
        "finetune": {"learning_rate": 2e-4, "batch_size": 5, "gradient_accumulation_steps": 3},
        "override": {"epochs": 7.0, "learning_rate": None},
        "seed": 41,
        "backbone": {"model": "Qwen/Qwen3-8B"},
        "vocabulary": {"delimiters": "think"},
    }
    changed["codebook"] |= {"settings": {"size": 24, "representation": "raw"}, "embedder": {"model": "a/b", "revision": None}}
    changed["recipe"]["finetune"]["overrides"] = {"cirf_full": {"epochs": 99.0}}
    changed["recipe"]["codebook"]["size"] = 512
    front, body = parts(card_from_report("cirf_full", changed, FUNCTIONS))
    assert "| Peak learning rate | 0.0002 (cosine) |" in body and "| Rows an update | 15 |" in body and "| Epochs | 7" in body
    assert "| Seed | 41 |" in body and "| Codebook | 24 codes from raw embeddings of a/b |" in body
    assert front["base_model"] == "Qwen/Qwen3-8B" and "license" not in front
    _, other = parts(card_from_report("sft_cot", changed))
    assert "| Peak learning rate | 0.001 (cosine) |" in other and "| Seed | 41 |" not in other


def test_the_cap_of_the_example_is_that_of_the_trace_and_the_longest_answer(data, monkeypatch):
    from dataclasses import replace

    from cirf.tasks.benchmarks import public

    recipe = copy.deepcopy(data["recipe"])
    recipe["evaluate"] |= {"max_trace_tokens": 100, "max_new_tokens": 300}
    monkeypatch.setattr(public, "SVAMP", replace(public.SVAMP, cap=50))
    assert "max_new_tokens=150)" in card_of("cirf_full", data, recipe, FUNCTIONS)
    assert "max_new_tokens=300)" in card_of("sft_cot", data, recipe)


def test_a_card_says_which_libraries_read_the_model(data):
    for name, functions in (("cirf_full", FUNCTIONS), ("sft_cot", None)):
        assert "transformers 5 or later" in card_from_report(name, data, functions)
    assert "vLLM 0.32 or later" in card_from_report("cirf_full", data, FUNCTIONS)


def test_cells_stay_in_their_table():
    assert cell("a | b\nc `d`") == r"a \| b c \`d\`"
    assert len(cell("x" * 500)) == 110 and cell("x" * 500).endswith("…")


def test_cards_depend_on_no_clock(data):
    other = copy.deepcopy(data)
    for row in other["methods"].values():
        row["latency_mean_s"] = 99.0
    for row in other["training"].values():
        row["timings"] = {"seconds": 1.0}
    assert card_from_report("cirf_full", other, FUNCTIONS) == card_from_report("cirf_full", data, FUNCTIONS)


def test_a_card_names_the_data_their_licences_and_every_engine(data):
    card = card_from_report("cirf_full", data, FUNCTIONS)
    rows = card.partition("## Data and licences")[2].partition("## Intended use")[0]
    assert "| svamp | [ChilleD/SVAMP](https://huggingface.co/datasets/ChilleD/SVAMP) | mit |" in rows
    assert "also under the licence of `HuggingFaceTB/SmolLM2-135M-Instruct`" in rows
    use = card.partition("## How to use it")[2].partition("## Results")[0]
    for command in ("vllm serve MODEL", "cirf serve MODEL", "cirf export model --gguf", "llama-server -m"):
        assert command in use, command
    thinks = card_from_report("cirf_full", data, None, latents=3)
    assert "Plain engines cannot" in thinks and "llama-server" not in thinks and "cirf serve" not in thinks


def test_a_card_names_no_folder_of_the_makers_machine(data):
    recipe = copy.deepcopy(data["recipe"])
    recipe["backbone"]["model"], recipe["embeddings"]["model"] = "/home/ann/models/base", "~/minilm"
    recipe["problems"]["tasks"] = [{"task": "jsonl", "name": "mine", "train_file": "/data/mine/train.jsonl"}]
    recipe["rationales"] |= {"source": "files", "files": ["/data/mine/written.jsonl"]}
    own = {"settings": {"method": {"settings": {"guide": "/home/ann/guide"}}}}
    made = data | {"recipe": recipe, "training": {"cirf_full": own}, "codebook": None}
    card = card_from_report("cirf_full", made, FUNCTIONS, guide="/home/ann/guide")
    for place in ("/home", "/data", "~/"):
        assert place not in card
    assert "`base`, fine-tuned on mine" in card and "embeddings of minilm" in card and '"guide": "guide"' in card
    assert "| mine | the author's own rows (train.jsonl) | unknown to `cirf`" in card
    assert "| rationales | a file, written.jsonl | unknown to `cirf`" in card


# Whose data it is: every task says


def made(*tasks, **rationales):
    """A resolved recipe of those tasks."""
    recipe = Recipe.model_validate(
        {"name": "r", "problems": {"tasks": [{"task": task} for task in tasks]}, "rationales": rationales}
    )
    return recipe.model_dump(mode="json")


@each_row("name", names())
def test_every_task_of_ours_has_a_licence(name):
    assert get(name).licence
    source = sources(made(name))[0]
    assert source.licence == get(name).licence and source.evaluation_only == get(name).evaluation_only


def test_a_teacher_is_named():
    endpoints = [{"url": "http://localhost:1/v1", "model": "big"}, {"url": "http://localhost:2/v1", "model": "big"}]
    found = sources(made("gsm8k", source="teacher", teacher={"endpoints": endpoints}))
    assert found[1:] == [DataSource("rationales", "written by big", "")]
