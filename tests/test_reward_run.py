"""Variants trained by reward in a whole run: their stages, what they start from, rewards of a user's own, and mistakes."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import tinyrun
from docs.research.without_results import without_results
from tables import each_row

from cirf import methods
from cirf.errors import CirfError
from cirf.evaluation.harness import hide
from cirf.lm.decoding.generate import Output
from cirf.methods import get, learners
from cirf.recipe.schema import Recipe, Reward
from cirf.records import Problem
from cirf.report.data.collect import collect
from cirf.report.data.measures import read_training
from cirf.report.model_cards import card_from_report
from cirf.stages.rewards import own_reward, rewarded, unchanged
from cirf.tasks import get as task_of

LONG = "def reward(answer):\n    return answer['tokens'] / 10\n\nREWARD = reward\n"
SETTINGS = {
    "max_steps": 3,
    "questions": 2,
    "num_generations": 4,
    "eval_steps": 2,
    "warmup_steps": 0,
    "learning_rate": 0.003,
    "min_entropy": 0.0,
}


@pytest.fixture(scope="module")
def trained(workshop: tinyrun.Workshop, finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of `finished` with two variants more: one of functional tokens, and one on from it."""
    folder = tmp_path_factory.mktemp("reward")
    shutil.copytree(finished, folder / "run")
    (folder / "long.py").write_text(LONG)
    variants = {
        "longer": {"method": "cirf_full", "reward": {"function": str(folder / "long.py")}},
        "again": {"method": "longer", "reward": {"form": 1.0, "token_price": 0.01}},
        "guided": {"method": "cirf_full", "model": "cirf_full", "settings": {"grammar": True}},
    }
    names = ["cirf_full", "direct_sft", "cot", "longer", "again"]
    recipe = workshop.recipe(folder / "recipe.yaml", methods=names, variants=variants, reward=SETTINGS)
    said = tinyrun.cirf("run", recipe, "--out", folder / "run")
    assert said.code == 0, said.err
    assert "models/cirf_full: finished before" in said.err
    assert "of the validation answers were right before" in said.err
    return folder / "run"


def test_a_variant_goes_on_from_its_start_and_is_evaluated_as_it(trained: Path) -> None:
    history = json.loads((trained / "models/longer/history.json").read_text())
    assert (history["method"], history["start"], history["updates"]) == ("longer", "cirf_full", 3)
    assert history["answers"] == sum(row["questions"] for row in history["losses"]) * 4
    assert [row["update"] for row in history["validation"]] == [0, 2, 3]
    again = json.loads((trained / "models/again/history.json").read_text())
    assert again["start"] == "longer" and all(row["reward"] < 1 for row in again["losses"])  # form, less a price
    assert (trained / "models/again/asked_by.json").read_bytes() == (trained / "models/cirf_full/asked_by.json").read_bytes()
    scores = json.loads((trained / "evaluation/longer/scores.json").read_text())
    assert scores["overall"]["well_formed"] is not None  # it is read as its start is
    assert {path.name for path in (trained / "models/longer").iterdir()} >= {
        "model.safetensors",
        "functions.json",
        "asked_by.json",
    }
    assert not (trained / "models/longer/scratch").exists()


def test_a_model_that_no_update_made_better_is_reported_as_its_start(
    finished: Path, workshop: tinyrun.Workshop, tmp_path: Path
) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    variants = {"on": {"method": "cirf_full", "reward": {"max_steps": 1, "learning_rate": 1e-12}}}
    keys = {"methods": ["cirf_full", "on"], "variants": variants, "reward": SETTINGS, "evaluate__check_questions": 3}
    said = tinyrun.cirf("run", workshop.recipe(tmp_path / "r.yaml", **keys), "--out", run)
    line = "the model of on is its start, cirf_full: no update was better"
    assert said.code == 0 and f"models/on: {line}" in said.err and f"warning: {line}" in said.out, said.err
    assert line in (run / "report.html").read_text()
    assert unchanged({"method": "on", "start": "cirf_full", "best_update": 2}) == [] == unchanged({"losses": []})


def test_its_curves_are_in_the_report(trained: Path) -> None:
    found = read_training(trained / "models/longer")
    assert found is not None and found["train"] == [] == found["validation"]
    assert [update for update, _ in found["right"]["sampled"]] == [1, 2, 3]
    assert "Training by reward" in (trained / "report.html").read_text()


def test_a_saved_model_is_a_start_without_training(trained: Path, workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    models = {"cirf_full": str(trained / "models/cirf_full")}
    recipe = workshop.recipe(
        tmp_path / "r.yaml",
        methods=["on"],
        variants={"on": {"method": "cirf_full", "reward": {}}},
        models=models,
        reward=SETTINGS | {"form": 1.0, "max_steps": 1},
    )
    said = tinyrun.cirf("run", recipe, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    made = {path.name for path in (tmp_path / "run").iterdir() if path.is_dir()}
    assert made >= {"problems", "models", "evaluation"} and not made & {"rationales", "segments", "codebook-4", "traces"}


def test_another_reward_is_trained_anew_and_its_start_is_not(trained: Path, workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    names, reward = ["cirf_full", "longer"], {"function": str(trained.parent / "long.py")}
    variants = {"longer": {"method": "cirf_full", "reward": reward}}
    (tmp_path / "long.py").write_text(LONG.replace("/ 10", "/ 5"))
    plain = workshop.recipe(tmp_path / "a.yaml", methods=names, variants=variants, reward=SETTINGS)
    said = tinyrun.cirf("run", plain, "--out", trained, "--dry-run").out
    assert "models/longer                done" in said
    reward["function"] = str(tmp_path / "long.py")
    other = workshop.recipe(tmp_path / "b.yaml", methods=names, variants=variants, reward=SETTINGS)
    said = tinyrun.cirf("run", other, "--out", trained, "--dry-run").out
    assert "models/cirf_full             done" in said and "models/longer                will be redone" in said
    assert re.search(
        "longer: trained by reward with 24 sampled answers or more in 3 updates; about 1 minute on this machine if each has "
        r"\d+ tokens, the most; [\d.]+ GiB of memory",
        said,
    )


def test_it_answers_with_other_settings_and_is_asked_on_its_own(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    without_results(trained, "again", 2)
    assert "functional tokens alone" in capsys.readouterr().out
    said = tinyrun.cirf("evaluate", str(trained), "--method", "again", "--limit", "2", "--out", str(tmp_path / "asked"))
    assert said.code == 0 and "again" in said.out, said.err


def test_it_has_no_rows_for_other_trainers(trained: Path, tmp_path: Path) -> None:
    said = tinyrun.cirf("export", trained, "--format", "trl", "--out", tmp_path / "rows", "--method", "longer").error()
    assert "longer is trained by reward and has no rows of its own; see docs/how-to/reward.md" in said


def test_its_card_shows_how_it_was_trained(trained: Path) -> None:
    card = card_from_report("again", collect(trained))
    assert "Trained by reward" in card and "4 to each of 2 questions" in card and "Epochs" not in card


def _recipe(variants: dict[str, Any], **keys: Any) -> Recipe:
    return Recipe.model_validate({"name": "r", "problems": {"tasks": [{"task": "gsm8k"}]}, "variants": variants} | keys)


@each_row(
    ("start", "reward", "said"),
    [
        ("cirf_ful", {}, "nearest is 'cirf_full'"),
        ("cot", {}, "on.method: cot is not trained"),
        ("coconut", {}, "on.method: coconut does not reason in tokens only"),
        ("on", {}, "on -> on; name a start trained without reward"),
        (None, {}, "on -> nothing; name a start"),
        ("mine.py", {}, "on -> mine.py; name a start"),
        ("cirf_full", {"num_generations": 1}, "reward.num_generations: expected"),
        ("cirf_full", {"prize": 1}, "reward.prize: `reward` has no such setting; did you mean"),
        ("cirf_full", {"adaptation": "full", "beta": 0.1}, "reward.beta: the start model is kept only with adapters"),
        ("cirf_full", {"function": "reward.txt"}, "reward.function"),
    ],
)
def test_mistakes_are_one_line(start: str | None, reward: dict[str, Any], said: str) -> None:
    with pytest.raises(CirfError, match=said):
        get("on", _recipe({"on": {"method": start, "reward": reward}}))


def test_a_variant_by_reward_has_a_name_and_a_model_of_its_own() -> None:
    with pytest.raises(CirfError, match="with preset and model of its start; remove both keys"):
        get("on", _recipe({"on": {"method": "terse", "model": "terse", "reward": {}}}))
    with pytest.raises(CirfError, match="give the variant another name"):
        get("terse", _recipe({"terse": {"method": "cirf_full", "reward": {}}}))


def test_it_is_the_method_of_its_start_with_its_settings_and_those_of_the_recipe() -> None:
    variants = {
        "own": {"method": "cirf_full", "settings": {"subjects": True}},
        "on": {"method": "own", "reward": {"num_generations": 16}, "settings": {"grammar": True}},
    }
    recipe = _recipe(variants, reward={"max_steps": 7}, methods=["on"])
    method = get("on", recipe)
    assert type(method) is methods.named("cirf_full") and method.settings.subjects and method.settings.grammar
    assert method.reward is not None and (method.reward.max_steps, method.reward.num_generations) == (7, 16)
    assert [one.name for one in learners(recipe)] == ["own", "on"]
    steered = {"method": "cirf_full", "model": "on", "settings": {"subjects": True, "budget": 2}}
    recipe = _recipe({**variants, "two": steered}, methods=["two"])
    assert [one.name for one in learners(recipe)] == ["own", "on"]


PROBLEM = Problem("p", "gsm8k", "How many?", "4")


@pytest.mark.parametrize(
    ("text", "truncated", "reward", "right"),
    [
        ("<cirf_001>4</cirf>4", False, 1 + 0.5 - 0.3, True),
        ("<cirf_001>4</cirf>5", False, 0.5 - 0.3, False),
        ("<cirf_001>4 4", False, 1 - 0.3, True),
        ("<cirf_001>4</cirf>4", True, -0.3, False),  # as an answer that never ends
    ],
)
def test_a_reward_is_verdict_form_and_price(text: str, truncated: bool, reward: float, right: bool) -> None:
    method = get("cirf_full", _recipe({}))
    how = Reward(form=0.5, token_price=0.1)
    found = rewarded(method, task_of("gsm8k"), how, None, PROBLEM, Output(text, 3, truncated, (1, 2, 3)))
    assert found[0] == pytest.approx(reward) and found[1] == right


def test_a_users_reward_sees_the_answer_and_adds_to_the_others(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    checked = "assert answer['gold'] == '4' and answer['trace'] == '<cirf_001>4'"
    path.write_text(f"def REWARD(answer):\n    {checked}\n    return len(answer['trace'])\n")
    method, output = get("cirf_full", _recipe({})), Output("<cirf_001>4</cirf>4", 3, False, (1, 2, 3))
    assert hide(PROBLEM).answer == ""
    assert rewarded(method, task_of("gsm8k"), Reward(), own_reward(str(path)), PROBLEM, output) == (1 + len("<cirf_001>4"), True)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("x = 1", "defines no REWARD"),
        ("REWARD = 3", "defines no REWARD"),
        ("def REWARD(answer):\n    return answer['nothing']", "REWARD failed on an answer to 'How many.': KeyError"),
        ("def REWARD(answer):\n    return None", "REWARD failed on an answer"),
        ("def REWARD(answer):\n    return float('nan')", "REWARD gave nan"),
    ],
)
def test_a_users_reward_that_fails_is_one_line(tmp_path: Path, code: str, said: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(code)
    method, output = get("cirf_full", _recipe({})), Output("4", 1, False, (1,))
    with pytest.raises(CirfError, match=said):
        rewarded(method, task_of("gsm8k"), Reward(), own_reward(str(path)), PROBLEM, output)
