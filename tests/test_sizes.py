"""``codebook.size: auto``: K by answers to held-out questions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tinyrun

from cirf.commands.run import prepare
from cirf.errors import CirfError
from cirf.recipe.load import load, parse
from cirf.run import execute
from cirf.stages import codes, models, scores
from cirf.stages.context import Context
from cirf.store.files import to_json, write_atomic
from cirf.store.jsonl import read_rows
from cirf.store.run_folder import RunFolder

AUTO: dict[str, Any] = {
    "methods": ["cirf_full"],
    "codebook__size": "auto",
    "codebook__sizes": [3, 5],
    "codebook__size_trials": {"questions": 3, "steps": 2},
    "evaluate__latency_questions": 0,
}


@pytest.fixture(scope="module")
def auto(workshop: tinyrun.Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("auto")
    said = tinyrun.cirf("run", workshop.recipe(folder / "r.yaml", **AUTO), "--out", folder / "run")
    assert said.code == 0, said.err
    return folder / "run"


def states(folder: Path) -> dict[str, str]:
    said = tinyrun.cirf("status", folder, "--json")
    assert said.code == 0, said.err
    return {row["stage"]: row["state"] for row in json.loads(said.out)}


def test_every_candidate_answers_held_out_questions_and_the_best_is_trained(auto: Path) -> None:
    summary = json.loads((auto / "codebook-size" / "sizes.json").read_text())
    assert [row["size"] for row in summary["sizes"]] == [3, 5] and all(row["n"] == 3 for row in summary["sizes"])
    held_out = [row["id"] for row in read_rows(auto / "problems" / "validation.jsonl")][:3]
    for size in (3, 5):
        rows = read_rows(auto / "sized" / str(size) / "answers" / "sums.jsonl")
        assert [row["id"] for row in rows] == held_out
        assert json.loads((auto / "sized" / str(size) / "history.json").read_text())["updates"] == 2
        assert not list((auto / "sized" / str(size)).rglob("*.safetensors"))
    best = max(summary["sizes"], key=lambda row: row["accuracy"])["size"]
    assert summary["chosen"] == best
    assert json.loads((auto / "models" / "cirf_full" / "functions.json").read_text())["size"] == best
    recipe = load(str(auto / "recipe.yaml"))
    assert (recipe.codebook.size, recipe.codebook.chosen) == (best, True)
    rows = json.loads((auto / "report.json").read_text())["codebooks"]
    assert [row["validation"]["n"] for row in rows] == [3, 3]
    assert "Held-out answers right" in (auto / "report.html").read_text()


@pytest.mark.slow
def test_it_holds_by_either_recipe_and_is_chosen_again_where_its_inputs_change(
    auto: Path, workshop: tinyrun.Workshop, tmp_path: Path
) -> None:
    copy = shutil.copytree(auto, tmp_path / "run")
    assert set(states(copy).values()) == {"done"}
    before = tinyrun.stages(copy)
    for recipe in (workshop.recipe(tmp_path / "r.yaml", **AUTO), copy / "recipe.yaml"):
        said = tinyrun.cirf("run", recipe, "--out", copy)
        assert said.code == 0, said.err
        assert tinyrun.remade(before, tinyrun.stages(copy)) == set()
    more = AUTO | {"codebook__size_trials": {"questions": 2, "steps": 2}}
    said = tinyrun.cirf("run", workshop.recipe(tmp_path / "more.yaml", **more), "--out", copy, "--until", "codebook-size")
    assert said.code == 0, said.err
    assert tinyrun.remade(before, tinyrun.stages(copy)) == {"sized/3", "sized/5", "codebook-size"}
    evaluated = tinyrun.cirf("evaluate", copy, "--protocol", "own", "--quiet", "--out", tmp_path / "evaluated")
    assert evaluated.code == 0, evaluated.err


def test_the_codebook_chosen_is_the_one_that_is_built_for_that_size_alone(
    auto: Path, workshop: tinyrun.Workshop, tmp_path: Path
) -> None:
    size = load(str(auto / "recipe.yaml")).codebook.codes
    keys = {"methods": ["cirf_full"], "codebook__size": size, "evaluate__latency_questions": 0}
    said = tinyrun.cirf("run", workshop.recipe(tmp_path / "r.yaml", **keys), "--out", tmp_path / "run", "--until", "models")
    assert said.code == 0, said.err
    for path in (f"codebook-{size}/codebook.safetensors", f"codebook-{size}/codes.jsonl", "traces/traces.jsonl"):
        assert (auto / path).read_bytes() == (tmp_path / "run" / path).read_bytes(), path
    assert read_rows(auto / "models/cirf_full/sft.jsonl") == read_rows(tmp_path / "run/models/cirf_full/sft.jsonl")


def test_most_answers_win_and_the_smaller_of_equal_ones(tmp_path: Path) -> None:
    recipe = parse("name: r\nproblems: {tasks: [{task: gsm8k}]}\ncodebook: {size: auto, sizes: [8, 4, 16]}\n", "r", [])
    context = Context(recipe, RunFolder(tmp_path))
    for size, accuracy in ((4, 0.4), (8, 0.6), (16, 0.6)):
        summary = {"accuracy": accuracy, "interval": [0.2, 0.8], "n": 5, "tokens": 7.0, "unparsed": 0.0}
        write_atomic(tmp_path / "sized" / str(size) / "answers" / "scores.json", to_json({"overall": summary}))
    work = tmp_path / "work"
    note = codes.choose(context, (8, 4, 16), work)["notes"][0]
    assert json.loads((work / "sizes.json").read_text())["chosen"] == 8
    assert note.startswith("chose K = 8 (") and note.endswith(
        "on 5 held-out questions: K = 4: 40.0%, K = 8: 60.0%, K = 16: 60.0%"
    )


def test_nothing_is_chosen_where_no_model_has_functional_tokens(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    recipe = workshop.recipe(tmp_path / "r.yaml", **AUTO | {"methods": ["direct_sft"]})
    said = tinyrun.cirf("run", recipe, "--out", tmp_path / "run", "--dry-run", "--json")
    assert said.code == 0, said.err
    stages = {row["stage"] for row in json.loads(said.out)["stages"]}
    assert {"codebook-3", "codebook-5", "evaluation/direct_sft"} <= stages and "codebook-size" not in stages


def test_auto_needs_candidates() -> None:
    with pytest.raises(CirfError, match=r"auto chooses among codebook\.sizes; name some"):
        parse("name: r\nproblems: {tasks: [{task: gsm8k}]}\ncodebook: {size: auto}\n", "r", [])


def test_a_trial_that_was_cut_short_is_not_trained_again(
    workshop: tinyrun.Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[int] = []
    finetune, answer = models.finetune, scores.answer

    def counted(context: Context, *given: Any, **how: Any) -> Any:
        trained.append(context.recipe.codebook.codes)
        return finetune(context, *given, **how)

    def cut(*given: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(models, "finetune", counted)
    monkeypatch.setattr(scores, "answer", cut)
    recipe = str(workshop.recipe(tmp_path / "r.yaml", **AUTO))

    def run() -> None:
        execute(prepare(recipe, [], None, tmp_path / "run", None, True), "codebook-size")

    with pytest.raises(KeyboardInterrupt):
        run()
    monkeypatch.setattr(scores, "answer", answer)
    run()
    assert trained == [3, 5]
    assert json.loads((tmp_path / "run" / "codebook-size" / "sizes.json").read_text())["chosen"] in (3, 5)


def test_what_is_to_be_done_is_reported_up_to_the_choice(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    recipe = workshop.recipe(tmp_path / "r.yaml", **AUTO)
    said = tinyrun.cirf("run", recipe, "--out", tmp_path / "run", "--dry-run", "--json")
    assert said.code == 0, said.err
    assert [row["stage"] for row in json.loads(said.out)["stages"]][-5:] == [
        "sized-traces/3",
        "sized/3",
        "sized-traces/5",
        "sized/5",
        "codebook-size",
    ]
