"""Coconut: its settings, what it is asked, and a whole run of it: trained, killed, saved, loaded anew, answering and timed."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tinyrun
from tables import each_row

from cirf import methods, tasks
from cirf.errors import CirfError
from cirf.recipe.schema import Recipe
from cirf.records import Example, Problem, Trace
from cirf.store.jsonl import read_rows


def _recipe(preset: str | None = None, finetune: dict[str, Any] | None = None, **settings: Any) -> Recipe:
    variants = {"coconut": {"settings": settings, "preset": preset}}
    made = {"name": "r", "problems": {"tasks": [{"task": "gsm8k"}]}, "variants": variants, "finetune": finetune or {}}
    return Recipe.model_validate(made)


def test_it_thinks_as_often_as_its_stages_say() -> None:
    counts = [methods.get("coconut", recipe).latents for recipe in (_recipe(), _recipe("paper"), _recipe("official"))]
    assert counts == [6, 5, 6]
    none = methods.get("coconut", _recipe(thoughts=0))
    assert none.latents == 0 and none.tokens == () and none.beginnings(None, None, "") is None


def test_without_a_mark_all_is_answer_and_with_one_it_is_prose() -> None:
    method = methods.get("coconut", _recipe())
    problem = Problem("p", "gsm8k", "How many clips?", "72")
    example = Example(problem, ("48/2 = 24 in May.", "48+24 = 72 in all."), Trace("p", 0, (), (), "72"))
    assert method.target(example) == methods.get("sft_cot", _recipe()).target(example)
    assert method.read("72") == ("", "72") and method.read("48+24 = 72.\n#### 72") == ("48+24 = 72.", "#### 72")
    assert method.cap(tasks.get("gsm8k"), _recipe().evaluate) == tasks.get("gsm8k").cap


@each_row(
    ("settings", "finetune", "said"),
    [
        ({"thoughts": 0, "most": 3}, {}, "there are no thoughts and no <latent> tokens"),
        ({"stage_epochs": 1.0}, {"epochs": 3}, "the last stage would begin after 3 of 3 epochs"),
        ({"stage_epochs": 1.0, "start": "backbone"}, {"epochs": 4}, "the last stage would begin after 4 of 4 epochs"),
        ({}, {"gradient_checkpointing": True}, "continues from its own cache in training"),
        ({"stages": 0}, {}, "variants.coconut.settings.stages: "),
        ({"start": "terse_equations"}, {}, "variants.coconut.settings.start: "),
    ],
)
def test_what_cannot_be_meant_is_refused(settings: dict[str, Any], finetune: dict[str, Any], said: str) -> None:
    with pytest.raises(CirfError, match=said):
        methods.get("coconut", _recipe(finetune=finetune, **settings))
    if "stage_epochs" in settings:
        methods.get("coconut", _recipe(finetune=finetune, partial=True, **settings))


def test_it_goes_on_from_the_model_of_sft_cot() -> None:
    def taught(**more: Any) -> list[str]:
        recipe = _recipe(**more).model_copy(update={"methods": ("coconut",)})
        return [method.name for method in methods.learners(recipe)]

    assert taught() == ["sft_cot", "coconut"] and taught(start="backbone") == ["coconut"]
    other = _recipe().model_copy(update={"methods": ("coconut",)})
    named = {"sft_cot": {"method": "terse_equations"}}
    broken = Recipe.model_validate(other.model_dump() | {"variants": named})
    with pytest.raises(CirfError, match=r"variants\.sft_cot\.method: sft_cot is the name of a method"):
        methods.learners(broken)


SHORT = {"evaluate__max_completion_tokens": 12}
VARIANTS: dict[str, Any] = {
    "none": {"method": "coconut", "settings": {"start": "backbone", "thoughts": 0, "stage_epochs": 9.0, "partial": True}},
    "drawn": {"method": "coconut", "settings": {"start": "backbone", "uniform_prob": 0.3, "init_from_token": "?", "stages": 1}},
}


def _keys(*names: str, **more: Any) -> dict[str, Any]:
    return {"methods": list(names), "variants": VARIANTS, "finetune__save_steps": 2, "finetune__epochs": 2.0} | SHORT | more


@pytest.fixture(scope="module")
def run(workshop: tinyrun.Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("coconut")
    more = {"evaluate__voting": {"votes": [1, 2], "method": "coconut"}}
    recipe = workshop.recipe(folder / "r.yaml", **_keys("coconut", "none", "drawn", "sft_cot", **more))
    with pytest.MonkeyPatch.context() as patch:  # batches of rows for all methods: a tree rounds otherwise
        patch.setattr("cirf.lm.training.finetune.as_trees", lambda *_: contextlib.nullcontext(False))
        said = tinyrun.cirf("run", recipe, "--out", folder / "run")
    assert said.code == 0, said.err
    return folder / "run"


def _rows(folder: Path, name: str) -> list[dict[str, Any]]:
    return read_rows(folder / "evaluation" / name / "sums.jsonl")


def test_a_run_trains_answers_votes_and_is_timed(run: Path) -> None:
    history = json.loads((run / "models" / "coconut" / "history.json").read_text())
    stages = history["curriculum"]["stages"]
    assert [(row["stage"], row["thoughts"]) for row in stages] == [(1, 2), (2, 4), (3, 6), (4, 6)]
    assert stages[-1]["steps_left"] == 0 and "note" not in history["curriculum"]
    assert all(row["loss"] > 0 for row in history["losses"]) and len(history["validation"]) > 1
    assert json.loads((run / "models" / "coconut" / "latent.json").read_text())["count"] == 6
    assert not (run / "models" / "none" / "latent.json").exists()
    timed = json.loads((run / "latency" / "timings.json").read_text())["methods"]
    assert set(timed) == {"coconut", "none", "drawn", "sft_cot"}
    assert (run / "voting" / "coconut" / "voting.json").is_file()
    assert len(_rows(run, "coconut")) == 8 and all(row["prompt"] for row in _rows(run, "coconut"))


def test_what_is_asked_holds_no_answer_and_was_learned_so(run: Path, workshop: tinyrun.Workshop) -> None:
    """The prompt is the question's and nothing more, ends where thoughts begin, and is a training row's."""
    from cirf.lm.backbone import load_tokenizer, prompt_text

    tokenizer = load_tokenizer(run / "models" / "coconut")
    problems = read_rows(run / "problems" / "test" / "sums.jsonl")
    for problem in problems:
        prompt = prompt_text(tokenizer, problem["question"])
        assert prompt.endswith("<latent>") and prompt.count("<latent>") == 1
        head, question, rest = prompt.partition(problem["question"])
        assert question and problem["answer"] not in head + rest
    taught = read_rows(run / "models" / "coconut" / "sft.jsonl")
    frame = prompt_text(tokenizer, "QUESTION").partition("QUESTION")
    assert all(row["prompt"].startswith(frame[0]) and row["prompt"].endswith(frame[2]) for row in taught)
    assert "< latent>" in prompt_text(tokenizer, "Say <latent> now.")


def test_without_thoughts_at_stage_0_it_is_sft_cot_to_the_bit(run: Path) -> None:
    weights = [(run / "models" / name / "model.safetensors").read_bytes() for name in ("none", "sft_cot")]
    assert weights[0] == weights[1]
    note = json.loads((run / "models" / "none" / "history.json").read_text())["curriculum"]["note"]
    assert note == "training ended at stage 0 of 4, before all steps were gone"


@pytest.mark.slow
def test_a_saved_model_answers_the_same_in_another_process(run: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(run / "models" / "coconut", tmp_path / "moved")
    sets = ("--protocol", "own", "--set", "evaluate.latency_questions=0")
    said = tinyrun.forked("evaluate", moved, *sets, "--out", tmp_path / "out")
    assert said.code == 0, said.err
    assert _rows(tmp_path / "out", "coconut") == _rows(run, "coconut")
    asked = tinyrun.cirf("ask", moved, "How many?", "--json")
    assert asked.code == 0 and json.loads(asked.out)["tokens"] > 0, asked.err


def test_who_cannot_think_says_so(run: Path, tmp_path: Path) -> None:
    card = (run / "models" / "coconut" / "README.md").read_text()
    assert "Plain engines cannot serve this model" in card and "reasons in 6 vectors" in card and "vllm serve" not in card
    assert "vllm serve" in (run / "models" / "none" / "README.md").read_text()
    said = tinyrun.cirf("lm-eval", tmp_path / "harness", "--tasks", "chain_sum", "--method", "coconut").error()
    assert "reasons in vectors before it answers, which the harness cannot" in said
    bare = shutil.copytree(run / "models" / "coconut", tmp_path / "bare")
    (bare / "recipe.yaml").unlink()
    said = tinyrun.cirf("evaluate", bare, "--tasks", "chain_sum", "--out", tmp_path / "out").error()
    assert "reasons in vectors, but has no recipe" in said
    recipe = tmp_path / "other.yaml"
    text = (run / "recipe.yaml").read_text()
    assert "\nmodels: {}\n" in text
    recipe.write_text(text.replace("\nmodels: {}\n", f"\nmodels: {{none: {bare}}}\n"))
    said = tinyrun.cirf("run", recipe, "--out", tmp_path / "out").error()
    assert "reasons in 6 vectors before it answers, but none of this recipe in 0" in said


@pytest.mark.slow
def test_a_killed_training_ends_with_the_same_bytes(
    run: Path, workshop: tinyrun.Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cirf.lm.training import trainer

    recipe = workshop.recipe(tmp_path / "r.yaml", **_keys("drawn", evaluate__latency_questions=0))
    original, killed = trainer.TrainingControl.on_step_end, []

    def on_step_end(self: Any, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        original(self, args, state, control, **kwargs)
        if state.global_step == 5 and not killed:
            killed.append(True)
            raise KeyboardInterrupt

    monkeypatch.setattr(trainer.TrainingControl, "on_step_end", on_step_end)
    assert tinyrun.cirf("run", recipe, "--out", tmp_path / "run").code != 0 and killed
    said = tinyrun.cirf("run", recipe, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    for name in ("model.safetensors", "history.json", "latent.json"):
        assert (tmp_path / "run" / "models" / "drawn" / name).read_bytes() == (run / "models" / "drawn" / name).read_bytes(), name
    assert _rows(tmp_path / "run", "drawn") == _rows(run, "drawn")
