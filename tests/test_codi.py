"""CODI: its settings, and a whole run of it: trained by adapters, saved, loaded anew in another process, answering and timed."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tinyrun
import torch
from safetensors.torch import load_file

from cirf import methods, tasks
from cirf.errors import CirfError
from cirf.recipe.schema import Recipe
from cirf.records import Example, Problem, Trace
from cirf.store.jsonl import read_rows


def _recipe(preset: str | None = None, finetune: dict[str, Any] | None = None, **settings: Any) -> Recipe:
    variants = {"codi": {"settings": settings, "preset": preset}}
    made = {"name": "r", "problems": {"tasks": [{"task": "gsm8k"}]}, "variants": variants, "finetune": finetune or {}}
    return Recipe.model_validate(made)


def _example(answer: str = "-72", steps: tuple[str, ...] = ("48/2 = 24 in May.", "48+24 = 72 in all.")) -> Example:
    problem = Problem("p", "gsm8k", "How many clips?", answer)
    return Example(problem, steps, Trace("p", 0, (), (), answer))


def test_it_teaches_the_teacher_unless_there_is_none() -> None:
    assert methods.get("codi", _recipe()).target(_example()) == "48/2 = 24 in May.\nThe answer is: -72"
    assert methods.get("codi", _recipe()).target(_example(steps=("It is.",))) == "The answer is: -72"
    assert methods.get("codi", _recipe(gamma=0.0)).target(_example()) == "48/2 = 24 in May.\nThe answer is: -72"
    assert methods.get("codi", _recipe(gamma=0.0, rho=0.0)).target(_example()) == "The answer is: -72"
    assert methods.get("codi", _recipe(anchor="")).target(_example()) == "48/2 = 24 in May.\n-72"


@pytest.mark.parametrize("settings", [{}, {"anchor_given": False}, {"anchor": "So:", "anchor_given": False}, {"anchor": ""}])
@pytest.mark.parametrize("answer", ["72", "-72", "1/2", "0.5"])
def test_what_it_writes_is_read_by_the_tasks_own_parser(settings: dict[str, Any], answer: str) -> None:
    method, task = methods.get("codi", _recipe(**settings)), tasks.get("gsm8k")
    problem = _example(answer).problem
    given = settings.get("anchor_given", True)
    written = f" {answer}" if given else f"{settings.get('anchor', 'The answer is:')} {answer}"
    for output in (written, f"24 first. {written}") if not given else (written,):
        parsed = task.parse(method.read(output)[1], problem)
        assert parsed is not None and task.equal(parsed, problem)
    words = 0 if given and settings.get("anchor", "x") else len(settings.get("anchor", "The answer is:"))
    assert method.cap(task, _recipe().evaluate) == task.cap + words


@pytest.mark.parametrize(
    ("settings", "finetune", "said"),
    [
        ({"thoughts": 0, "projector_width": 8}, {}, "there is nothing to project"),
        ({}, {"gradient_checkpointing": True}, "continues from its own cache in training"),
        ({"gamma": -1.0}, {}, r"variants\.codi\.settings\.gamma: "),
    ],
)
def test_what_cannot_be_meant_is_refused(settings: dict[str, Any], finetune: dict[str, Any], said: str) -> None:
    with pytest.raises(CirfError, match=said):
        methods.get("codi", _recipe(finetune=finetune, **settings))
    methods.get("codi", _recipe(finetune={"gradient_checkpointing": True}, thoughts=0))


VARIANTS: dict[str, Any] = {
    "none": {"method": "codi", "settings": {"thoughts": 0, "gamma": 0.0, "rho": 0.0, "anchor": ""}},
    "other": {
        "method": "codi",
        "settings": {"thoughts": 2, "projector_width": 8, "train_new_tokens": False, "anchor_given": False, "gamma": 1.0},
    },
}
KEYS: dict[str, Any] = {
    "methods": ["direct_sft", "codi", "none", "other"],
    "variants": VARIANTS,
    "finetune__adaptation": "lora",
    "finetune__lora": {"rank": 4, "alpha": 8},
    "finetune__save_steps": 2,
    "evaluate__max_completion_tokens": 12,
    "evaluate__voting": {"votes": [1, 2], "method": "codi"},
}


@pytest.fixture(scope="module")
def run(workshop: tinyrun.Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("codi")
    with pytest.MonkeyPatch.context() as patch:  # batches of rows for all methods: a tree rounds otherwise
        patch.setattr("cirf.lm.training.finetune.as_trees", lambda *_: contextlib.nullcontext(False))
        said = tinyrun.cirf("run", workshop.recipe(folder / "r.yaml", **KEYS), "--out", folder / "run")
    assert said.code == 0, said.err
    return folder / "run"


def _model(run: Path, name: str, file: str = "model.safetensors") -> dict[str, torch.Tensor]:
    return load_file(run / "models" / name / file)


def _rows(folder: Path, name: str) -> list[dict[str, Any]]:
    return read_rows(folder / "evaluation" / name / "sums.jsonl")


def test_without_thoughts_and_teacher_it_is_direct_sft_to_the_bit(run: Path) -> None:
    folders = run / "models/none", run / "models/direct_sft"
    for file in ("model.safetensors", "tokenizer.json", "chat_template.jinja", "sft.jsonl", "config.json"):
        one, other = ((folder / file).read_bytes() for folder in folders)
        assert one == other, file
    summary = [json.loads((folder / "history.json").read_text()) | {"method": ""} for folder in folders]
    assert summary[0] == summary[1] and _rows(run, "none") == _rows(run, "direct_sft")
    assert not (folders[0] / "latent.json").exists() and not (folders[0] / "latent").exists()


def test_a_run_trains_answers_votes_and_is_timed(run: Path) -> None:
    history = json.loads((run / "models/codi/history.json").read_text())
    assert history["curriculum"] == {"kind": "distillation", "thoughts": 6, "rows_with_steps": 36}
    assert history["validation"][-1]["loss"] < history["validation"][0]["loss"] and history["losses"][-1]["loss"] > 0
    latent = json.loads((run / "models/codi/latent.json").read_text())
    assert latent == {"begin": "<latent>", "end": "</latent>", "count": 6, "after": "The answer is:", "projector": 32}
    other = json.loads((run / "models/other/latent.json").read_text())
    assert (other["count"], other["after"], other["projector"]) == (2, "", 8)
    assert "codi" in json.loads((run / "latency" / "timings.json").read_text())["methods"]
    assert (run / "voting/codi/voting.json").is_file() and len(_rows(run, "codi")) == 8
    taught = read_rows(run / "models/codi/sft.jsonl")
    assert all(row["prompt"].endswith("<latent>") and "The answer is: " in row["completion"] for row in taught)


def test_the_net_is_trained_and_kept_and_the_marks_learn_where_they_may(run: Path, workshop: tinyrun.Workshop) -> None:
    from cirf.methods.latent.loop import Projector

    for name, inner in (("codi", 32), ("other", 8)):
        kept = _model(run, name, "latent/projector.safetensors")
        first = Projector(32, inner, 1).state_dict()
        assert kept.keys() == first.keys() and all(not torch.equal(kept[key], first[key]) for key in first), name
    before = load_file(workshop.backbone / "model.safetensors")["model.embed_tokens.weight"]
    marks = [json.loads((run / f"models/{name}/tokenizer.json").read_text())["added_tokens"][-2:] for name in ("codi", "other")]
    ids = [token["id"] for token in marks[0]]
    assert [token["content"] for token in marks[0]] == ["<latent>", "</latent>"] and marks[0] == marks[1]
    rows = {name: _model(run, name)["model.embed_tokens.weight"][ids] for name in ("codi", "other")}
    assert not torch.equal(rows["codi"][0], rows["codi"][1]) and torch.equal(rows["other"][0], rows["other"][1])
    known = len(before) if len(before) <= min(ids) else min(ids)
    torch.testing.assert_close(rows["other"][0], before[:known].mean(dim=0), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", ["codi", pytest.param("other", marks=pytest.mark.slow)])
def test_a_saved_model_answers_the_same_in_another_process(run: Path, tmp_path: Path, name: str) -> None:
    moved = shutil.copytree(run / "models" / name, tmp_path / "moved")
    sets = ("--protocol", "own", "--set", "evaluate.latency_questions=0")
    sets += ("--set", "evaluate.voting.votes=[]")
    said = (tinyrun.forked if name == "codi" else tinyrun.cirf)("evaluate", moved, *sets, "--out", tmp_path / "out")
    assert said.code == 0, said.err
    assert _rows(tmp_path / "out", name) == _rows(run, name)
    asked = tinyrun.cirf("ask", moved, "How many?", "--json")
    assert asked.code == 0 and json.loads(asked.out)["tokens"] > 0, asked.err
    (moved / "latent/projector.safetensors").unlink()
    assert "projector.safetensors: missing, damaged" in tinyrun.cirf("ask", moved, "How many?").error()


def test_what_is_asked_holds_no_answer(run: Path) -> None:
    """Nor does what the model is given behind its thoughts."""
    from cirf.lm.backbone import load_model, load_tokenizer, prompt_text
    from cirf.lm.prompt import encode
    from cirf.methods.latent.decode import read_latent, thinking
    from cirf.recipe.schema import Backbone

    folder = run / "models/codi"
    tokenizer, model, latent = load_tokenizer(folder), load_model(folder, Backbone(dtype="float32")), read_latent(folder)
    assert latent is not None
    begins = thinking(model, tokenizer, latent, folder)
    for problem in read_rows(run / "problems/test/sums.jsonl"):
        prompt = prompt_text(tokenizer, problem["question"])
        begun = begins.begin([encode(tokenizer, prompt)])
        assert tokenizer.decode(begun.prompts[0]) == prompt + "<latent>" * 6 + "</latent>The answer is:"
