"""Variants: settings read strictly, presets, models shared where that is right, and what a change of each makes again."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import tinyrun
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tables import each_row

from cirf import methods
from cirf.cpu import linear as products
from cirf.cpu.linear import by_onednn, linear
from cirf.errors import CirfError
from cirf.lm.decoding import generate as decode
from cirf.methods.pause import PAUSE
from cirf.recipe.load import dump, parse
from cirf.recipe.schema import Override, Recipe, Variant
from cirf.report.page import render
from cirf.stages import compress
from cirf.store.jsonl import read_rows

HEAD = "name: r\nproblems: {tasks: [{task: gsm8k}]}\n"


def recipe(*lines: str) -> Recipe:
    return parse(HEAD + "\n".join(lines))


@each_row(
    ("variant", "message"),
    [
        (
            "{method: pause, settings: {nn: 3}}",
            "variants.x.settings.nn: pause has no such setting; did you mean 'n'? It has n, answered, form",
        ),
        (
            "{method: icot_si, settings: {keep_positions: true}}",
            "variants.x.settings.keep_positions: icot_si has no such setting; did you mean 'keep_position'? It has ",
        ),
        ("{method: direct, settings: {n: 3}}", "variants.x.settings.n: direct has no such setting; it has none"),
        ("{method: pause, settings: {n: two}}", 'variants.x.settings.n: expected a whole number of at least 0, found "two"'),
        ('{method: pause, settings: {n: "2"}}', 'variants.x.settings.n: expected a whole number of at least 0, found "2"'),
        ("{method: pause, settings: {n: true}}", "variants.x.settings.n: expected a whole number of at least 0, found true"),
        ("{method: pause, settings: {n: -1}}", "variants.x.settings.n: expected a whole number of at least 0, found -1"),
        ("{method: pause, settings: {n: [1]}}", "variants.x.settings.n: expected a whole number of at least 0, found a list"),
        (
            "{method: pause, settings: {n: 0, answered: 2}}",
            "variants.x.settings: answered is 2, but with n: 0 no pause is ever learned; set n, or leave answered out",
        ),
        (
            "{method: icot_si, settings: {done_by: 2}}",
            "variants.x.settings.done_by: expected a number above 0 and at most 1, found 2",
        ),
        (
            "{method: icot_si, settings: {side: up}}",
            'variants.x.settings.side: expected one of left, right, found "up"',
        ),
        ("{method: pause, preset: papers}", "variants.x.preset: pause has no preset 'papers' (it has: paper, official, semcot)"),
        ("{method: cot, preset: paper}", "variants.x.preset: cot has no preset 'paper' (it has: none)"),
        ("{method: pauses}", "variants.x.method: there is no method 'pauses'; the nearest is 'pause' (all: cirf_full, "),
        ("{preset: paper}", "methods: there is no method 'x'; the nearest is "),
    ],
)
def test_a_mistake_in_a_variant_is_one_line(variant: str, message: str) -> None:
    with pytest.raises(CirfError) as caught:
        methods.get("x", recipe(f"variants: {{x: {variant}}}"))
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("variants", "message"),
    [
        ("{x: {method: pause, model: direct_sft}}", "direct_sft is trained with other settings than x would be"),
        ("{x: {method: pause, model: pause, settings: {n: 2}}}", "pause is trained with other settings than x would be"),
        ("{x: {method: pause, model: filler}}", "filler is trained with other settings than x would be"),
        ("{x: {method: pause, model: pause, preset: paper}}", "pause is trained with other settings than x would be"),
        ("{x: {method: pause, model: cot}}", "cot has no trained model of its own; name one that has"),
        ("{x: {method: pause, model: y}, y: {method: pause, model: pause}}", "y has no trained model of its own"),
        ("{x: {method: cot, model: pause}}", "cot is not trained: the backbone answers for it; remove the key"),
        ("{x: {method: pause, model: paus}}", "there is no method 'paus'; the nearest is 'pause'"),
    ],
)
@pytest.mark.parametrize("listed", ["[x]", "[direct_sft, pause, filler, cot, x]", "[direct_sft]"])
def test_a_model_of_another_kind_is_refused_wherever_it_is_listed(variants: str, listed: str, message: str) -> None:
    with pytest.raises(CirfError) as caught:
        methods.learners(recipe(f"methods: {listed}", f"variants: {variants}"))
    assert str(caught.value).startswith(f"variants.x.model: {message}")


def test_who_is_trained() -> None:
    def trained(listed: str, variants: str = "{}", more: str = "") -> list[str]:
        return [method.name for method in methods.learners(recipe(f"methods: {listed}", f"variants: {variants}", more))]

    once = "{five: {method: pause, settings: {answered: 5}, model: pause}}"
    assert trained("[cot, pause, five]", once) == ["pause"]
    assert trained("[five, direct_sft]", once) == ["pause", "direct_sft"]  # a model that is named nowhere else is trained
    assert trained("[five]", once, "models: {pause: somewhere}") == []
    assert trained("[five, x]", "{five: {method: pause}, x: {method: pause, model: five}}") == ["five"]
    assert trained("[cot]", once) == []
    assert trained("[cirf_lean, direct_sft]") == ["cirf_full", "cirf_lean", "direct_sft"]  # what prunes it is trained, too
    assert trained("[cirf_full, cirf_fast]") == ["cirf_full", "cirf_fast"] == trained("[cirf_fast, cirf_full]")
    assert trained("[cirf_lean]", more="models: {cirf_lean: somewhere}") == []


def test_a_saved_model_is_named_for_the_one_that_has_it(tmp_path: Path, workshop: tinyrun.Workshop) -> None:
    keys: dict[str, Any] = {"methods": ["five"], "variants": {"five": {"method": "pause", "model": "pause"}}}
    made = workshop.recipe(tmp_path / "r.yaml", **keys, models={"five": str(workshop.backbone)})
    said = tinyrun.cirf("run", made, "--out", tmp_path / "run")
    assert "models.five: five answers with the model of pause; name that one" in said.error()


SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-1e9, 1e9) | st.text(max_size=6)
VALUES = st.recursive(SCALARS, lambda part: st.lists(part, max_size=2) | st.dictionaries(st.text(max_size=4), part, max_size=2))


@hypothesis.settings(max_examples=25)
@hypothesis.given(given=st.dictionaries(st.text(max_size=5), VALUES, max_size=3))
def test_any_settings_survive_the_way_to_yaml_and_back(given: dict[str, Any]) -> None:
    made = recipe("methods: [x]").model_copy(update={"variants": {"x": Variant(method="pause", settings=given)}})
    assert parse(dump(made)) == made


def test_a_misspelt_key_of_a_variant_and_a_name_that_is_none() -> None:
    with pytest.raises(CirfError, match=r"variants\.x\.setings: no such key; did you mean variants\.x\.settings\?"):
        recipe("variants: {x: {setings: {n: 1}}}")
    with pytest.raises(CirfError, match="variants: 'a/b' cannot name a folder"):
        recipe("variants: {a/b: {method: pause}}")
    assert recipe("variants: {x: {method: pause}}").variants["x"].settings == {}


def test_settings_go_before_a_presets_and_overrides_before_its_training() -> None:
    lines = (
        "variants: {x: {method: pause, preset: paper, settings: {n: 7}}}",
        "finetune: {overrides: {x: {epochs: 3}}, epochs: 1}",
    )
    made = recipe("methods: [x]", *lines)
    method = methods.get("x", made)
    assert (method.settings.n, method.name, method.base) == (7, "x", "pause")
    section = made.finetune.resolved("x", method.training)
    assert (section.epochs, section.learning_rate, section.weight_decay, section.lora.rank) == (3, 1e-4, 0.01, 128)
    plain = methods.get("pause", made)
    assert plain.settings.n == 5 and plain.training == Override()
    assert made.finetune.resolved("pause", plain.training).epochs == 1


def test_a_learning_rate_that_comes_with_a_preset_is_not_tried_among_others() -> None:
    made = recipe("variants: {x: {method: pause, preset: paper}}", "finetune: {learning_rates: [1.0e-3, 1.0e-2]}")
    assert made.finetune.tried("x", methods.get("x", made).training) == ()
    assert made.finetune.tried("pause", methods.get("pause", made).training) == (1e-3, 1e-2)


def test_what_a_variant_depends_on_knows_its_method() -> None:
    made = recipe("variants: {x: {method: direct_sft}, y: {method: sft_cot}, z: {method: pause}}")
    details = [methods.get(name, made).taught_by for name in ("x", "y", "z", "pause", "direct_sft")]
    assert len({json.dumps(one, sort_keys=True) for one in details}) == 5
    assert details[-1] == {}  # so that runs from before variants existed stay valid
    asked = methods.get("z", recipe("variants: {z: {method: pause, settings: {answered: 1}}}"))
    assert asked.taught_by == details[2] and asked.identity != methods.get("z", made).identity


def test_a_variant_of_a_pruned_method_is_pruned_as_that_is() -> None:
    made = recipe("variants: {x: {method: cirf_fast}, y: {method: cirf_lean}}")
    for variant, name in (("x", "cirf_fast"), ("y", "cirf_lean")):
        rules = [compress.rule(made.compression, methods.get(each, made)) for each in (variant, name)]
        assert rules[0] == rules[1]
    assert rules[0] != compress.rule(made.compression, methods.get("x", made)) == {"gamma": 0.1}


@each_row("name", methods.names())
def test_every_preset_and_default_is_one_that_its_method_takes(name: str) -> None:
    made = methods.named(name)
    for preset in made.presets:
        found = methods.get("x", recipe(f"variants: {{x: {{method: {name}, preset: {preset}}}}}"))
        given = made.presets[preset].settings
        assert {key: getattr(found.settings, key) for key in given} == dict(given)
    assert set(made.answering) <= set(made.Settings.model_fields)
    assert all(field.description for field in made.Settings.model_fields.values())


# The command


def shown(*arguments: str) -> Any:
    said = tinyrun.cirf("methods", *arguments, "--json")
    assert said.code == 0, said.err
    return json.loads(said.out)


@each_row("name", methods.names())
def test_the_command_shows_a_methods_settings_and_presets(name: str) -> None:
    details, made = shown(name), methods.named(name)
    assert (details["name"], details["summary"], details["trained"]) == (name, made.summary, made.trained)
    assert [row["name"] for row in details["settings"] if "." not in row["name"]] == list(made.Settings.model_fields)
    assert all(row["type"] and row["meaning"] for row in details["settings"]) and list(details["presets"]) == list(made.presets)
    said = tinyrun.cirf("methods", name)
    assert said.code == 0 and said.out.startswith(f"{name}: {made.summary}\n") and max(map(len, said.out.splitlines())) < 160
    assert all(f"\n{row['name']}: {row['type']}." in said.out for row in details["settings"])
    assert all(f"preset {preset}\n" in said.out for preset in made.presets)


def test_what_the_command_shows_of_pause() -> None:
    details = shown("pause")
    row = {"name": "n", "type": "a whole number of at least 0", "default": "5", "unit": "tokens", "answering": False}
    assert {key: details["settings"][0][key] for key in row} == row
    assert [setting["answering"] for setting in details["settings"]] == [False, True, False]
    paper = details["presets"]["paper"]
    assert paper["settings"] == {"n": 5} and paper["training"]["weight_decay"] == 0.01
    assert "there is no method 'paus'; the nearest is 'pause'" in tinyrun.cirf("methods", "paus").error()


# Runs

VARIANTS: dict[str, Any] = {
    "one": {"method": "pause", "preset": "semcot"},  # trained with five pauses, asked with one
    "five": {"method": "pause", "preset": "semcot", "settings": {"answered": 5}, "model": "one"},
    "plain": {"method": "direct_sft"},
}
KEYS: dict[str, Any] = {"methods": ["one", "five", "plain"], "finetune__overrides": {"one": {"epochs": 0.5}}}
NEVER = "trained with 5 pauses, but answers with 1"


@pytest.fixture(scope="module")
def ran(workshop: tinyrun.Workshop, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A finished run of these, and what it said."""
    folder = tmp_path_factory.mktemp("variants")
    said = tinyrun.cirf("run", workshop.recipe(folder / "r.yaml", **KEYS, variants=VARIANTS), "--out", folder / "run")
    assert said.code == 0, said.err
    return folder / "run", said.err


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The prompts that models are asked with from here on, by the way they are."""
    found: list[tuple[str, str]] = []
    many, one = decode.generate, decode.generate_one

    def generate(model: Any, tokenizer: Any, prompts: Any, *more: Any, **keys: Any) -> Any:
        found.extend(("many", prompt) for prompt in prompts)
        return many(model, tokenizer, prompts, *more, **keys)

    def generate_one(model: Any, tokenizer: Any, prompt: str, *more: Any, **keys: Any) -> Any:
        found.append(("one", prompt))
        return one(model, tokenizer, prompt, *more, **keys)

    monkeypatch.setattr(decode, "generate", generate)
    monkeypatch.setattr(decode, "generate_one", generate_one)
    return found


def pauses(asked: list[tuple[str, str]], way: str) -> list[int]:
    """How many pauses the prompts hold, each number once a row of like ones."""
    counts = [prompt.count(PAUSE) for how, prompt in asked if how == way]
    return [count for place, count in enumerate(counts) if place == 0 or count != counts[place - 1]]


def test_one_model_answers_for_both_and_each_is_asked_its_own_way(
    ran: tuple[Path, str], asked: list[tuple[str, str]], tmp_path: Path
) -> None:
    run, said = ran
    assert {path.name for path in (run / "models").iterdir()} == {"one", "plain"}
    assert said.count(f"evaluation/one: {NEVER}") == 1 and "evaluation/five: asked" not in said
    again = tinyrun.cirf("evaluate", run, "--protocol", "own", "--out", tmp_path / "out", "--quiet")
    assert again.code == 0, again.err
    assert pauses(asked, "many") == [1, 5, 0]
    assert set(pauses(asked, "one")) == {0, 1, 5}  # latency: in turns
    for name in VARIANTS:
        rows = read_rows(tmp_path / f"out/evaluation/{name}/sums.jsonl")
        assert rows == read_rows(run / f"evaluation/{name}/sums.jsonl") and len(rows) == 8
    alone = tinyrun.cirf("evaluate", run, "--method", "five", "--protocol", "own", "--out", tmp_path / "five", "--quiet")
    assert alone.code == 0 and not (tmp_path / "five/evaluation/one").exists(), alone.err
    assert read_rows(tmp_path / "five/evaluation/five/sums.jsonl") == read_rows(run / "evaluation/five/sums.jsonl")
    said_ = tinyrun.cirf("evaluate", run, "--method", "pause", "--out", tmp_path / "none").error()
    assert "--method pause: the run has no such method (it has: one, five, plain)" in said_


def test_a_model_is_not_taken_for_what_another_method_or_other_settings_would_have_made(
    ran: tuple[Path, str], workshop: tinyrun.Workshop, tmp_path: Path
) -> None:
    run, _ = ran
    same, other = {"form": "semcot", "answered": 2}, {"form": "semcot", "n": 4}
    for name, variant, model, message in (
        ("direct_sft", {}, "one", "was trained as pause, not as direct_sft; give it to that method"),
        ("mine", {"method": "pause", "settings": other}, "one", "was trained with n: 5, and the recipe says 4; set the one"),
        ("mine", {"method": "pause", "settings": same}, "plain", "was trained as direct_sft, not as pause"),
        ("mine", {"method": "pause", "settings": same}, "one", None),
        ("direct_sft", {}, "plain", None),
    ):
        saved: dict[str, Any] = {"models": {name: str(run / "models" / model)}, "variants": {name: variant} if variant else {}}
        made = workshop.recipe(tmp_path / "r.yaml", methods=[name], evaluate__latency_questions=0, **saved)
        said = tinyrun.cirf("run", made, "--out", tmp_path / "run", "--dry-run")
        assert said.code == 0 if message is None else message in said.error(), said.err


def test_report_show_and_card_show_variants(ran: tuple[Path, str]) -> None:
    run, _ = ran
    said = tinyrun.cirf("report", run, "--json")
    assert said.code == 0, said.err
    data = json.loads(said.out)
    assert list(data["methods"]) == ["one", "five", "plain"] and list(data["training"]) == ["one", "plain"]
    assert data["methods"]["one"]["caveats"] == [NEVER] and data["methods"]["five"]["caveats"] == []
    assert data["changed"] == []
    html = render(data)
    assert NEVER in html
    for name in VARIANTS:
        said = tinyrun.cirf("show", run, "--method", name, "--limit", "1")
        assert said.code == 0 and f"{name}: 8 of 8 answers" in said.out, said.err
    card = (run / "models/one/README.md").read_text()
    for fact in ("| Rows an update | 4 |", "| Epochs | 0.5 |", "| Peak learning rate | 5e-05 (constant) |", "| Method | pause |"):
        assert fact in card, fact
    assert '"n": 5' in card and "answered" not in card.partition("## How it was made")[2]
    assert "| Rows an update | 8 |" in (run / "models/plain/README.md").read_text()
    codes = tinyrun.cirf("ask", run / "models/one", "Box 1 gets 2 and 3 coins. How many coins are in it?", "--json")
    assert codes.code == 0 and json.loads(codes.out)["tokens"] > 0


def latency(*stages: str) -> set[str]:
    return {*stages, "latency"}


CHANGES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "nothing": ({}, set()),
    "a setting for answering": ({"five": {"settings": {"answered": 3}}}, latency("evaluation/five")),
    "the model's own setting for answering": ({"one": {"settings": {"answered": 2}}}, latency("evaluation/one")),
    "another method under the same name": ({"plain": {"method": "sft_cot"}}, latency("models/plain", "evaluation/plain")),
    "a variant that nobody names": ({"other": {"method": "filler", "settings": {"n": 1}}}, set()),
    "a setting of the training": (
        {"one": {"settings": {"n": 4}}, "five": {"settings": {"n": 4, "answered": 5}}},
        latency("models/one", "evaluation/one", "evaluation/five"),
    ),
}


MORE = {"the model's own setting for answering", "another method under the same name"}
"""Tried with ``-m slow``."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] if name in MORE else []) for name in CHANGES])
def test_a_change_makes_again_what_depends_on_it_and_nothing_else(
    ran: tuple[Path, str], workshop: tinyrun.Workshop, asked: list[tuple[str, str]], tmp_path: Path, name: str
) -> None:
    run = shutil.copytree(ran[0], tmp_path / "run")
    changes, expected = CHANGES[name]
    variants = {key: VARIANTS.get(key, {}) | changes.get(key, {}) for key in (*VARIANTS, *changes)}
    made = workshop.recipe(tmp_path / "r.yaml", **KEYS, variants=variants)
    before = tinyrun.stages(run)
    said = tinyrun.cirf("run", made, "--out", run)
    assert said.code == 0, said.err
    assert tinyrun.remade(before, tinyrun.stages(run)) == expected
    if expected and "model" not in changes:
        details = {
            "a setting for answering": [3],
            "the model's own setting for answering": [2],
            "a setting of the training": [1, 5],
        }
        assert pauses(asked, "many") == details.get(name, [0])


def test_a_dry_run_counts_what_a_preset_trains(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    keys = KEYS | {"methods": ["one", "five", "plain", "terse_equations"]}
    made = workshop.recipe(tmp_path / "r.yaml", **keys, variants=VARIANTS)
    said = tinyrun.cirf("run", made, "--out", tmp_path / "run", "--dry-run", "--json")
    assert said.code == 0, said.err
    details = json.loads(said.out)
    assert list(details["methods"]) == ["one", "plain"] and details["prepared"] == ["terse_equations"]
    assert (details["methods"]["one"]["updates"], details["methods"]["plain"]["updates"]) == (5, 5)  # half of 9; 5 of 8 rows
    longer = {
        name: row["tokens_trained"] / (0.5 if name == "one" else 1) / row["rows"] for name, row in details["methods"].items()
    }
    assert longer["one"] - longer["plain"] > 5 - 1  # five pauses more and the marks of its prompt, one end token less
    people = tinyrun.cirf("run", made, "--out", tmp_path / "run", "--dry-run").out
    assert re.search(r"terse_equations: .* prepared/terse_equations", people)


def test_what_an_override_makes_the_training_read_is_part_of_its_key() -> None:
    from cirf.stages import keys

    def key(schedule: str, least: float) -> Any:
        finetune = {
            "lr_scheduler_type": "linear",
            "min_lr_ratio": least,
            "overrides": {"direct_sft": {"lr_scheduler_type": schedule}},
        }
        made = {"name": "r", "problems": {"tasks": [{"task": "gsm8k"}]}, "finetune": finetune}
        recipe = Recipe.model_validate(made)
        return keys.training(recipe, recipe.finetune, methods.get("direct_sft", recipe))

    assert key("cosine", 0.1) != key("cosine", 0.5)
    assert key("linear", 0.1) == key("linear", 0.5)  # it is read of a cosine alone


def test_the_rate_of_new_rows_counts_where_there_are_any() -> None:
    from cirf.stages import keys

    def key(name: str, ratio: float, override: dict[str, Any] | None = None) -> Any:
        finetune = {"new_token_lr_multiplier": ratio, "overrides": {name: override} if override else {}}
        recipe = Recipe.model_validate({"name": "r", "problems": {"tasks": [{"task": "gsm8k"}]}, "finetune": finetune})
        return keys.training(recipe, recipe.finetune, methods.get(name, recipe))

    assert key("cirf_full", 1.0) != key("cirf_full", 3.0) != key("cirf_full", 5.0)
    assert key("coconut", 1.0) != key("coconut", 3.0)  # its markers
    assert key("direct_sft", 1.0) == key("direct_sft", 3.0)
    assert key("cirf_full", 1.0) != key("cirf_full", 1.0, {"new_token_lr_multiplier": 3.0})
    assert key("cirf_full", 3.0, {"new_token_lr_multiplier": 5.0}) != key("cirf_full", 3.0)


def test_the_weight_of_functional_tokens_counts_where_there_are_any() -> None:
    from cirf.stages import keys

    def key(name: str, **finetune: Any) -> Any:
        recipe = Recipe.model_validate({"name": "r", "problems": {"tasks": [{"task": "gsm8k"}]}, "finetune": finetune})
        return keys.training(recipe, recipe.finetune, methods.get(name, recipe))

    assert (
        key("cirf_full")
        != key("cirf_full", functional_token_loss_weight=2.0)
        != key("cirf_full", functional_token_loss_weight=3.0)
    )
    assert key("sft_cot") == key("sft_cot", functional_token_loss_weight=2.0)
    assert key("cirf_full") != key("cirf_full", overrides={"cirf_full": {"functional_token_loss_weight": 2.0}})


@pytest.mark.parametrize("base", ["direct_sft", "mine.py"])
def test_a_variant_may_not_go_by_the_name_of_another_method(base: str) -> None:
    made = {"name": "r", "problems": {"tasks": [{"task": "gsm8k"}]}, "variants": {"sft_cot": {"method": base}}}
    with pytest.raises(CirfError, match=r"variants.sft_cot.method: sft_cot is the name of a method"):
        methods.get("sft_cot", Recipe.model_validate(made))


def test_an_override_of_a_variant_that_is_not_trained_itself_is_refused(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    variants = {"five": {"method": "pause", "model": "pause", "settings": {"answered": 3}}}
    keys: dict[str, Any] = {"methods": ["pause", "five"], "variants": variants, "finetune__overrides": {"five": {"epochs": 9}}}
    recipe = workshop.recipe(tmp_path / "r.yaml", **keys)
    said = tinyrun.cirf("run", recipe, "--out", tmp_path / "run").error()
    assert "finetune.overrides.five: it answers with the model of pause; override that one" in said


# Products by oneDNN are torch's own, with their gradients

SIZES = st.integers(1, 40)


@pytest.fixture
def by_other_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products by oneDNN also on processors where torch's own are faster."""
    monkeypatch.setattr(products, "is_faster", lambda: True)


@pytest.mark.usefixtures("by_other_library")
@given(rows=SIZES, inputs=SIZES, outputs=SIZES, biased=st.booleans(), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_values_and_gradients_are_torchs_own(rows: int, inputs: int, outputs: int, biased: bool, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    made = [torch.randn(shape, generator=draw) for shape in ((rows, inputs), (outputs, inputs), (outputs,))]
    sides = []
    for function in (linear, torch.nn.functional.linear):
        x, weight, bias = (value.clone().requires_grad_() for value in made)
        given_bias = bias if biased else None
        found = function(x, weight, given_bias)
        found.square().sum().backward()
        sides.append([found.detach(), x.grad, weight.grad, bias.grad if biased else None])
    for ours, theirs in zip(*sides, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_other_number_formats_and_a_torch_without_it_take_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = torch.randn(3, 4, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64)
    assert torch.equal(linear(x, weight), torch.nn.functional.linear(x, weight))
    monkeypatch.setattr(products, "is_faster", lambda: False)
    x, weight = x.float(), weight.float()
    assert torch.equal(linear(x, weight), torch.nn.functional.linear(x, weight))


@pytest.mark.usefixtures("by_other_library")
def test_the_layers_of_a_module_go_by_it_and_keep_their_names() -> None:
    torch.manual_seed(0)
    whole = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3, bias=False))
    x = torch.randn(2, 5, 8)
    wanted = whole(x)
    wanted.square().sum().backward()
    gradients = [value.grad.clone() for value in whole.parameters() if value.grad is not None]
    names = list(whole.state_dict())
    whole.zero_grad()
    found = by_onednn(whole)(x)
    torch.testing.assert_close(found, wanted)
    found.square().sum().backward()
    assert list(whole.state_dict()) == names
    for value, gradient in zip(whole.parameters(), gradients, strict=True):
        torch.testing.assert_close(value.grad, gradient, rtol=1e-4, atol=1e-4)
