"""TokenSkip: what is taught at which ratio, what the prompt asks for, and that ratio 1 is plain fine-tuning on rationales."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tinyrun

from cirf import methods, tasks
from cirf.commands.run import absolute
from cirf.errors import CirfError
from cirf.lm.backbone import load_tokenizer
from cirf.lm.prompt import prompt_text
from cirf.recipe.load import load
from cirf.recipe.schema import Backbone, Recipe, Variant
from cirf.records import Example, Problem, Trace
from cirf.stages import keys
from cirf.stages.context import Context
from cirf.stages.models import load_for
from cirf.store.jsonl import read_rows
from cirf.store.run_folder import RunFolder


def _recipe(**settings: Any) -> Recipe:
    variants = {"token_skip": {"settings": settings}}
    return Recipe.model_validate({"name": "r", "problems": {"tasks": [{"task": "gsm8k"}]}, "variants": variants})


def _example(prepared: dict[str, Any] | None) -> Example:
    problem = Problem("p", "gsm8k", "How many clips?", "72")
    return Example(problem, ("48/2 = 24 in May.", "48+24 = 72 in all."), Trace("p", 0, (), (), "72"), prepared)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_the_prompt_asks_for_the_ratio_in_training_as_in_answering(kind: str, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(tinyrun.write_backbone(tmp_path, kind=kind), Backbone())
    task = tasks.get("gsm8k")
    taught = _example({"ratio": 0.7, "text": "48/2 = 24\n48+24 = 72"})
    learned = prompt_text(tokenizer, methods.get("token_skip", _recipe()).training_prompt(taught, task))
    assert "How many clips?\nRatio: 0.7" in learned
    method = methods.get("token_skip", _recipe(ratio=0.7))
    method.settle(tokenizer, training=True)
    assert learned != prompt_text(tokenizer, method.prompt(taught.problem, task))
    method.settle(tokenizer, training=False)
    assert learned == prompt_text(tokenizer, method.prompt(taught.problem, task))


def test_a_ratio_between_those_that_are_taught_is_reported() -> None:
    assert methods.get("token_skip", _recipe(ratio=0.77)).caveats() == ("asked for ratio 0.77, which was not trained",)
    assert methods.get("token_skip", _recipe(ratio=0.7)).caveats() == ()


def test_at_ratio_one_it_is_sft_cot() -> None:
    task, plain = tasks.get("gsm8k"), methods.get("sft_cot", _recipe())
    whole = _example({"ratio": 1.0, "text": "48/2 = 24 in May.\n48+24 = 72 in all."})
    method = methods.get("token_skip", _recipe(ratio=1.0))
    assert method.training_prompt(whole, task) == method.prompt(whole.problem, task) == plain.prompt(whole.problem, task)
    assert method.target(whole) == plain.target(whole)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"ratio": 0.3}, "ratio 0.3 is not among the trained ratios"),
        ({"ratios": []}, "is not among"),
        ({"scorer": "random", "scorer_model": "x"}, "random uses no model"),
        ({"scorer": "magic"}, "variants.token_skip.settings.scorer: "),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(CirfError, match=said):
        methods.get("token_skip", _recipe(**settings))


@pytest.fixture(scope="module")
def run(workshop: tinyrun.Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with rules, a sweep of the ratio by one model, chance, a classifier, and everything at ratio 1: the rows of all, and
    of some the model and its answers."""
    folder = tmp_path_factory.mktemp("skip")
    other = str(tinyrun.write_classifier(folder / "other", "bert"))
    by: dict[str, dict[str, Any]] = {
        "other": {"settings": {"scorer": "llmlingua2", "scorer_model": other, "keep_numbers": True}},
        "rules": {"settings": {"scorer": "rules"}},
        "at_07": {"model": "rules", "settings": {"scorer": "rules", "ratio": 0.7}},
        "chance": {"settings": {"scorer": "random"}},
        "whole": {"settings": {"scorer": "rules", "ratios": [1.0], "ratio": 1.0}},
    }
    variants = {name: {"method": "token_skip", **variant} for name, variant in by.items()}
    recipe = workshop.recipe(folder / "r.yaml", methods=[*by, "sft_cot"], variants=variants, evaluate__latency_questions=0)
    log = ""
    for until in ("prepared", "models/rules", "evaluation/whole", "evaluation/sft_cot"):
        said = tinyrun.cirf("run", recipe, "--out", folder / "run", "--until", until)
        assert said.code == 0, said.err
        log += said.err
    assert "prepared/rules: share of the tokens left by rules: 1.00 for 1.0, " in log
    return folder / "run"


def _rows(run: Path, name: str) -> list[dict[str, Any]]:
    return read_rows(run / "prepared" / name / "rows.jsonl")


def test_every_rationale_is_taught_once_at_one_of_the_ratios(run: Path) -> None:
    segments = read_rows(run / "segments" / "segments.jsonl")
    whole = {row["problem"]: "\n".join(row["segments"]) for row in segments}
    for name in ("rules", "chance"):
        rows = _rows(run, name)
        assert [row["problem"] for row in rows] == [row["problem"] for row in segments]
        assert {row["ratio"] for row in rows} == {1.0, 0.9, 0.8, 0.7, 0.6, 0.5}
        for row in rows:
            words = iter(whole[row["problem"]].split())
            assert all(word in words for word in row["text"].split())  # a part of them, in order
            assert (row["text"] == whole[row["problem"]]) == (row["ratio"] == 1.0)
    assert [row["ratio"] for row in _rows(run, "rules")] == [row["ratio"] for row in _rows(run, "chance")]
    assert [row["text"] for row in _rows(run, "rules")] != [row["text"] for row in _rows(run, "chance")]


def test_the_achieved_share_is_near_the_one_asked_for(run: Path) -> None:
    for name in ("rules", "chance"):  # not where numbers stay whatever they weigh
        summary = json.loads((run / "prepared" / name / "report.json").read_text())["ratios"]
        assert sum(row["rows"] for row in summary.values()) == len(_rows(run, name))
        assert all(abs(row["achieved"] - float(ratio)) < 0.05 for ratio, row in summary.items())
        assert [row["tokens"] for row in summary.values()] == sorted((row["tokens"] for row in summary.values()), reverse=True)


def test_rules_keep_numbers_and_chance_does_not(run: Path) -> None:
    def digits(name: str) -> int:
        return sum(sign.isdigit() for row in _rows(run, name) if row["ratio"] == 0.5 for sign in row["text"])

    assert digits("rules") > digits("chance")


def test_another_model_may_weigh_and_numbers_may_be_kept_whatever_they_weigh(run: Path) -> None:
    segments = {row["problem"]: "\n".join(row["segments"]) for row in read_rows(run / "segments" / "segments.jsonl")}
    for row in _rows(run, "other"):
        kept = [word for word in row["text"].split() if any(sign.isdigit() for sign in word)]
        assert kept == [word for word in segments[row["problem"]].split() if any(sign.isdigit() for sign in word)]


def test_a_sweep_of_the_ratio_shares_one_model(run: Path) -> None:
    assert not (run / "models" / "at_07").exists() and not (run / "prepared" / "at_07").exists()
    context = Context(load(str(run / "recipe.yaml")), RunFolder(run))
    asked = {name: prompt_text(load_for(context, name)[1], "How many?") for name in ("rules", "at_07", "whole", "rules")}
    found = [name for name, text in asked.items() if "How many?\nRatio: " in text]
    assert found == ["rules", "at_07"] and asked["at_07"] == asked["rules"].replace("0.5", "0.7")


def test_the_saved_model_asks_for_the_ratio_itself(run: Path) -> None:
    from transformers import AutoTokenizer

    asked = [{"role": "user", "content": "How many?"}]
    for name, asking in (("rules", "How many?\nRatio: 0.5"), ("whole", "How many?")):
        tokenizer = AutoTokenizer.from_pretrained(run / "models" / name)
        text = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
        assert asking in text and text.count("Ratio") == asking.count("Ratio")


def test_a_model_that_weighs_is_known_by_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, recipe = tmp_path / "other", _recipe(scorer="llmlingua2", scorer_model=str(tmp_path / "other"))
    found = []
    for seed in (1, 1, 2):
        tinyrun.write_backbone(folder, seed=seed)
        found.append(keys.preparing(recipe, methods.get("token_skip", recipe)))
    assert found[0] == found[1] != found[2]
    assert "reads" not in keys.preparing(_recipe(), methods.get("token_skip", _recipe()))
    monkeypatch.chdir(tmp_path)
    relative = _recipe(scorer="llmlingua2", scorer_model="other")
    assert absolute(relative).variants["token_skip"].settings["scorer_model"] == str(folder.resolve())


def test_taught_at_ratio_one_alone_it_is_sft_cot_to_the_bit(run: Path) -> None:
    weights = [(run / "models" / name / "model.safetensors").read_bytes() for name in ("whole", "sft_cot", "rules")]
    assert weights[0] == weights[1] != weights[2]
    answers = [[row["output"] for row in read_rows(run / "evaluation" / name / "sums.jsonl")] for name in ("whole", "sft_cot")]
    assert answers[0] == answers[1]


def test_what_was_weighed_before_a_kill_is_not_weighed_again(
    workshop: tinyrun.Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cirf.methods.token_skip import token_skip
    from cirf.methods.token_skip.llmlingua2 import LlmLingua2

    monkeypatch.setattr(token_skip, "WINDOW", 8)
    score, seen = LlmLingua2.score, []

    def breaking(self: Any, texts: Any, *more: Any) -> Any:
        seen.extend(texts)
        if len(seen) == 24:
            raise KeyboardInterrupt
        return score(self, texts, *more)

    monkeypatch.setattr(LlmLingua2, "score", breaking)
    source = str(tinyrun.write_classifier(tmp_path / "classifier", "bert"))
    variants = {"token_skip": {"settings": {"scorer": "llmlingua2", "scorer_model": source}}}
    given: dict[str, Any] = {"methods": ["token_skip"], "variants": variants, "evaluate__latency_questions": 0}
    recipe = workshop.recipe(tmp_path / "r.yaml", **given)
    assert tinyrun.cirf("run", recipe, "--out", tmp_path / "killed", "--until", "prepared/token_skip").code != 0
    assert tinyrun.cirf("run", recipe, "--out", tmp_path / "killed", "--until", "prepared/token_skip").code == 0
    assert len(seen) == 40 + 8  # the window that was broken, again
    assert tinyrun.cirf("run", recipe, "--out", tmp_path / "whole", "--until", "prepared/token_skip").code == 0
    files = [(tmp_path / name / "prepared" / "token_skip" / "rows.jsonl").read_bytes() for name in ("killed", "whole")]
    assert files[0] == files[1]


def test_how_it_is_trained_does_not_matter_to_what_is_prepared() -> None:
    def key(variant: dict[str, Any]) -> dict[str, Any]:
        recipe = _recipe().model_copy(update={"variants": {"token_skip": Variant.model_validate(variant)}})
        return keys.preparing(recipe, methods.get("token_skip", recipe))

    assert key({"preset": "paper"}) == key({"preset": "official"}) == key({"settings": {"scorer": "llmlingua2"}}) != key({})
