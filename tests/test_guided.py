"""SoftCoT and SemCoT: their settings, and a whole run: prepared, trained, killed, saved, loaded anew, answering and timed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tinyrun
import torch
from safetensors.torch import load_file

from cirf import methods, tasks
from cirf.commands.run import absolute
from cirf.errors import CirfError
from cirf.recipe.schema import Recipe
from cirf.records import Example, Problem, Trace
from cirf.stages import keys
from cirf.store.jsonl import read_rows


def _recipe(name: str, preset: str | None = None, backbone: str = "some/model", **settings: Any) -> Recipe:
    variants = {name: {"settings": settings, "preset": preset}}
    made = {"name": "r", "problems": {"tasks": [{"task": "gsm8k"}]}, "variants": variants, "backbone": {"model": backbone}}
    return Recipe.model_validate(made)


def test_the_guide_is_the_one_named_or_goes_with_the_backbone_or_is_it(tmp_path: Path) -> None:
    found = [
        methods.get("soft_cot", _recipe("soft_cot", backbone=backbone, **settings)).guide
        for backbone, settings in (
            ("bundled:qwen2.5-coder-0.5b-instruct", {}),
            ("Qwen/Qwen3-8B", {}),
            ("some/model", {}),
            ("Qwen/Qwen3-8B", {"guide": "x/y"}),
            ("some/model", {"guide": str(tmp_path / ".." / tmp_path.name)}),
        )
    ]
    assert found == ["bundled:smollm2-135m-instruct", "Qwen/Qwen3-0.6B", "some/model", "x/y", str(tmp_path.resolve())]


def test_what_is_taught_and_read_is_the_answer_or_prose() -> None:
    problem = Problem("p", "gsm8k", "How many clips?", "72")
    example = Example(problem, ("48/2 = 24.",), Trace("p", 0, (), (), "72"))
    section, task = _recipe("soft_cot").evaluate, tasks.get("gsm8k")
    plain, prose = (methods.get("soft_cot", _recipe("soft_cot", preset)) for preset in ("paper", "official"))
    assert plain.target(example) == "72" and plain.read("72") == ("", "72") and plain.cap(task, section) == task.cap
    assert prose.target(example) == "48/2 = 24.\n#### 72" and prose.read("48/2 = 24.\n#### 72") == ("48/2 = 24.", "#### 72")
    assert prose.cap(task, section) == section.max_new_tokens and prose.caps == ("max_new_tokens",) and plain.caps == ()
    release = methods.get("sem_cot", _recipe("sem_cot", "semcot"))
    assert not release.ends and release.cap(task, section) == 30 and release.latents == 5


def test_a_budget_counts_the_vectors_that_answer() -> None:
    task = tasks.get("gsm8k")
    section = _recipe("sem_cot").evaluate.model_copy(update={"max_completion_tokens": 4})
    one, five = (methods.get("sem_cot", _recipe("sem_cot", **settings)) for settings in ({"answered": 1}, {}))
    assert one.latents == five.latents == 5 and one.budget(task, section) == 3
    with pytest.raises(CirfError, match="sem_cot answers after 5 vectors"):
        five.budget(task, section)


@pytest.mark.parametrize(("name", "preset"), [("soft_cot", "official"), ("soft_cot", "semcot"), ("sem_cot", "paper")])
def test_another_number_when_answering_is_said_and_trains_nothing_anew(name: str, preset: str) -> None:
    asked = methods.get(name, _recipe(name, preset))
    n, answered = asked.settings.n, asked.settings.answered
    note = f"trained with {n} vectors, but answers with {answered}"
    assert answered != n and asked.caveats() == (note,)
    same = methods.get(name, _recipe(name, preset, answered=None))
    assert same.caveats() == () and same.taught_by == asked.taught_by and same.identity != asked.identity


def _small(folder: Path, kind: str, seed: int) -> Path:
    """A model with another template and other rows than the backbone's."""
    tiny = tinyrun.builders()
    tiny.build_model(kind, True, seed=seed, rows=512).save_pretrained(folder)
    tiny.build_tokenizer(tiny.NO_SYSTEM).save_pretrained(folder)
    return folder


def _keys(folder: Path) -> dict[str, Any]:
    settings = {"guide": str(folder / "small"), "n": 3}
    few = {"map_epochs": 2, "encoder_epochs": 1}
    variants = {
        "soft_cot": {"settings": settings | {"lead": " Hints:"}},
        "one": {"method": "soft_cot", "model": "soft_cot", "settings": settings | {"lead": " Hints:", "answered": 1}},
        "sem_cot": {"settings": settings | few},
        "both": {"method": "soft_cot", "settings": {"n": 2, "backbone": "trained"}},
    }
    return {
        "methods": ["soft_cot", "one", "sem_cot", "both"], "variants": variants, "finetune__epochs": 2.0,
        "evaluate__latency_questions": 1, "evaluate__max_completion_tokens": 12,
    }  # fmt: skip


@pytest.fixture(scope="module")
def ran(workshop: tinyrun.Workshop, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("guided")
    _small(folder / "small", "gpt2", 3)
    said = tinyrun.cirf("run", workshop.recipe(folder / "r.yaml", **_keys(folder)), "--out", folder / "run")
    assert said.code == 0, said.err
    return folder / "run", said.err


@pytest.fixture
def run(ran: tuple[Path, str]) -> Path:
    return ran[0]


def _rows(folder: Path, name: str) -> list[dict[str, Any]]:
    return read_rows(folder / "evaluation" / name / "sums.jsonl")


def test_the_backbone_and_the_guide_stay_and_what_is_added_learns(run: Path, workshop: tinyrun.Workshop) -> None:
    backbone = load_file(workshop.backbone / "model.safetensors")
    for name in ("soft_cot", "sem_cot", "both"):
        saved = load_file(run / "models" / name / "model.safetensors")
        assert saved.keys() == backbone.keys()
        assert all(torch.equal(value, backbone[key]) for key, value in saved.items()) == (name != "both")
        history = json.loads((run / "models" / name / "history.json").read_text())
        assert history["adaptation"] == ("full" if name == "both" else "frozen")
        assert all(row["loss"] > 0 for row in history["losses"]) and len(history["validation"]) > 1
        if name == "soft_cot":
            assert history["trainable_parameters"] == 32 * 32 + 32
    read = json.loads((run / "prepared" / "soft_cot" / "report.json").read_text())
    assert read["guide"] == str((run.parent / "small").resolve()) and read["questions"] == 40
    learned, first = (load_file(folder / "model.safetensors") for folder in (run / "models/sem_cot/guide", run.parent / "small"))
    moved = {key for key, value in learned.items() if not torch.equal(value, first[key])}
    assert moved and not any("wte" in key for key in moved)
    weights = load_file(run / "models" / "sem_cot" / "soft.safetensors")
    assert set(weights) == {"weight", "bias", "thought"}


def test_one_answers_with_the_others_model_and_says_what_it_is(ran: tuple[Path, str]) -> None:
    run, said = ran
    assert not (run / "models" / "one").exists()
    assert "evaluation/one: trained with 3 vectors, but answers with 1" in said
    assert "evaluation/soft_cot: trained with" not in said
    assert all(len(_rows(run, name)) == 8 for name in ("soft_cot", "one", "sem_cot", "both"))
    timed = json.loads((run / "latency" / "timings.json").read_text())["methods"]
    assert set(timed) == {"soft_cot", "one", "sem_cot", "both"}
    card = (run / "models" / "soft_cot" / "README.md").read_text()
    assert "| Adaptation | none: the backbone's weights are unchanged |" in card
    assert "it is given 3 vectors" in card and "not part of this folder" in card and "Plain engines cannot serve" in card
    assert "the model in the folder `guide`" in (run / "models" / "sem_cot" / "README.md").read_text()


def test_a_guide_goes_along_to_a_hub_or_must_be_on_one(run: Path) -> None:
    said = tinyrun.cirf("push", run / "models" / "sem_cot", "--to", "me/x", "--dry-run", "--json")
    assert said.code == 0, said.err
    sent = {row["name"] for row in json.loads(said.out)["files"]}
    assert {"soft.json", "soft.safetensors", "guide/config.json", "guide/model.safetensors", "guide/tokenizer.json"} <= sent
    (weights,) = (run / "models" / "sem_cot" / "guide").glob("*.safetensors")
    assert f"guide/{weights.name}" in sent
    refused = tinyrun.cirf("push", run / "models" / "soft_cot", "--to", "me/x", "--dry-run").error()
    assert "its vectors are made by a model of this machine" in refused


def test_states_that_were_kept_are_those_computed_when_answering(run: Path) -> None:
    """By the saved folder alone, one question at a time, from the ids of its prompt."""
    from cirf.lm.backbone import load_model, load_tokenizer
    from cirf.lm.prompt import encode, prompt_text
    from cirf.methods.saved import saved_beginnings
    from cirf.recipe.schema import Backbone

    folder = run / "models" / "soft_cot"
    section = Backbone(dtype="float32", device="cpu")
    model, tokenizer = load_model(folder, section), load_tokenizer(folder)
    begun: Any = saved_beginnings(folder, model, tokenizer)
    kept = load_file(run / "prepared" / "soft_cot" / "states.safetensors")["states"]
    problems = {row["id"]: row for name in ("train", "validation") for row in read_rows(run / "problems" / f"{name}.jsonl")}
    rows = read_rows(run / "prepared" / "soft_cot" / "rows.jsonl")
    assert len(rows) == len(kept) == 40
    for row in rows[:6]:
        ids = encode(tokenizer, prompt_text(tokenizer, problems[row["problem"]]["question"]))
        asked = begun.guide.ids(problems[row["problem"]]["question"], 3)
        with torch.no_grad():
            alone = begun.guide.states(begun.guide.batch([asked]))[0]
            wanted = begun.guide.projection(kept[row["given"]])
        torch.testing.assert_close(alone, kept[row["given"]], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(begun.vectors([ids])[0], wanted, atol=1e-4, rtol=1e-4)
        assert problems[row["problem"]]["answer"] not in begun.guide.tokenizer.decode(asked).replace(
            problems[row["problem"]]["question"], ""
        )


@pytest.mark.parametrize("name", [pytest.param("soft_cot", marks=pytest.mark.slow), "sem_cot"])
def test_a_saved_model_answers_the_same_in_another_process(run: Path, tmp_path: Path, name: str) -> None:
    moved = shutil.copytree(run / "models" / name, tmp_path / "moved")
    sets = ("--protocol", "own", "--set", "evaluate.latency_questions=0")
    said = tinyrun.forked("evaluate", moved, *sets, "--out", tmp_path / "out")
    assert said.code == 0, said.err
    assert _rows(tmp_path / "out", name) == _rows(run, name)
    asked = tinyrun.cirf("ask", moved, "How many?", "--json")
    assert asked.code == 0 and json.loads(asked.out)["tokens"] > 0, asked.err


def test_another_guide_or_none_is_said(run: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(run / "models" / "soft_cot", tmp_path / "moved")
    summary = json.loads((moved / "soft.json").read_text())
    other = _small(tmp_path / "other", "gpt2", 4)
    for guide, fault in ((other, "another model than the one"), (tmp_path / "gone", "cannot be loaded")):
        (moved / "soft.json").write_text(json.dumps(summary | {"guide": str(guide)}))
        assert fault in tinyrun.cirf("ask", moved, "How many?").error()
    (moved / "soft.json").write_text(json.dumps(summary))
    (moved / "soft.safetensors").unlink()
    assert "missing, damaged or of another width" in tinyrun.cirf("ask", moved, "How many?").error()
    (moved / "recipe.yaml").unlink()
    assert "reasons in vectors, but has no recipe" in tinyrun.cirf("evaluate", moved, "--tasks", "chain_sum").error()


def test_other_weights_prompts_or_numbers_are_never_taken_for_the_same(
    run: Path, workshop: tinyrun.Workshop, tmp_path: Path
) -> None:
    """What decides the kept states decides the key of their stage."""
    from cirf.recipe.load import load
    from cirf.stages.context import Context
    from cirf.stages.planning import plans
    from cirf.store.run_folder import RunFolder

    def key(**settings: Any) -> str | None:
        path = workshop.recipe(tmp_path / "r.yaml", **_keys(run.parent))
        recipe = load(str(path))
        variant = recipe.variants["soft_cot"]
        given = variant.model_copy(update={"settings": variant.settings | settings})
        recipe = recipe.model_copy(update={"methods": ("soft_cot",), "variants": {"soft_cot": given}})
        stages = plans(Context(recipe, RunFolder(run)))
        return RunFolder(run).key(next(stage for stage in stages if stage.name == "prepared/soft_cot"))

    first = key()
    manifest = json.loads((run / "prepared" / "soft_cot" / "stage.json").read_text())
    assert first == manifest["key"] == key(answered=2)  # that matters when answering alone
    other = _small(tmp_path / "other", "gpt2", 4)
    found = [key(n=4), key(instruction="Help."), key(guide=str(other))]
    again = tmp_path / "again"
    shutil.copytree(run.parent / "small", again)
    same = key(guide=str(again))
    weights = load_file(again / "model.safetensors")
    from safetensors.torch import save_file

    save_file({name: value + 0.01 for name, value in weights.items()}, again / "model.safetensors", {"format": "pt"})
    found.append(key(guide=str(again)))
    assert None not in found and len({first, same, *found}) == 6


@pytest.mark.slow
def test_a_killed_preparation_does_no_finished_phase_again(
    run: Path, workshop: tinyrun.Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cirf.lm.training import phases
    from cirf.methods.soft import encoder as sentence_encoder

    keys = _keys(run.parent) | {"methods": ["sem_cot"], "evaluate__latency_questions": 0}
    recipe = workshop.recipe(tmp_path / "r.yaml", **keys)
    original, made, read = phases.run_epoch, [], []
    alone = sentence_encoder.TextStates.states

    def states(texts: Any, row: tuple[int, ...]) -> Any:
        read.append(row)
        return alone(texts, row)

    def epoch(phase: Any, *more: Any) -> float:
        if phase.name == "guide_map" and made.count("guide_map") == 1 and "killed" not in made:
            made.append("killed")
            raise KeyboardInterrupt
        made.append(phase.name)
        return original(phase, *more)

    monkeypatch.setattr(phases, "run_epoch", epoch)
    monkeypatch.setattr(sentence_encoder.TextStates, "states", states)
    assert tinyrun.cirf("run", recipe, "--out", tmp_path / "run", "--until", "models").code != 0
    assert read
    read.clear()
    said = tinyrun.cirf("run", recipe, "--out", tmp_path / "run", "--until", "models")
    assert said.code == 0, said.err
    assert made == ["encoder_map", "encoder_map", "encoder", "guide_map", "killed", "guide_map"]
    assert not read  # nor does what the rationales mean need them once more
    for name in ("prepared/sem_cot/map.safetensors", "prepared/sem_cot/encoder.safetensors", "prepared/sem_cot/meant.safetensors",
                 "prepared/sem_cot/report.json",
                 "models/sem_cot/guide/model.safetensors", "models/sem_cot/soft.safetensors"):  # fmt: skip
        assert (tmp_path / "run" / name).read_bytes() == (run / name).read_bytes(), name


def test_an_encoder_of_a_map_alone_is_taken_up_again(
    run: Path, workshop: tinyrun.Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cirf.methods.soft.sem_cot import SemCot

    keys = _keys(run.parent) | {"methods": ["sem_cot"]}
    keys["variants"]["sem_cot"]["settings"]["encoder_epochs"] = 0
    recipe = workshop.recipe(tmp_path / "r.yaml", **keys)
    with monkeypatch.context() as killed:
        killed.setattr(SemCot, "train_map", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
        assert tinyrun.cirf("run", recipe, "--out", tmp_path / "run", "--until", "models").code != 0
    said = tinyrun.cirf("run", recipe, "--out", tmp_path / "run", "--until", "models")
    assert said.code == 0, said.err
    summary = json.loads((tmp_path / "run" / "prepared" / "sem_cot" / "report.json").read_text())
    assert "encoder_map" in summary and "encoder" not in summary


def test_without_meaning_no_encoder_is_made() -> None:
    with pytest.raises(CirfError, match=r"variants\.sem_cot\.settings\.alpha"):
        methods.get("sem_cot", _recipe("sem_cot", alpha=1.5))
    made = methods.get("sem_cot", _recipe("sem_cot", alpha=0.0, short_by="llm"))
    assert "writer" not in made.prepared_by(_recipe("sem_cot"))


def test_how_the_guide_is_asked_and_who_it_is_is_part_of_what_is_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tinyrun.write_backbone(tmp_path / "small")
    for name in ("soft_cot", "sem_cot"):
        base = _recipe(name, backbone="bundled:smollm2-135m-instruct", guide=str(tmp_path / "small"))
        summary = []
        for change in ({}, {"empty_system": False}, {"attn_implementation": "eager"}):
            recipe = base.model_copy(update={"backbone": base.backbone.model_copy(update=change)})
            summary.append(keys.preparing(recipe, methods.get(name, recipe)))
        assert summary[0] != summary[1] != summary[2] != summary[0]
    monkeypatch.chdir(tmp_path)
    relative = absolute(_recipe("soft_cot", guide="small"))
    assert relative.variants["soft_cot"].settings["guide"] == str((tmp_path / "small").resolve())


def test_a_guide_that_is_not_there_is_said_before_anything_is_done(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    variants = {"soft_cot": {"settings": {"guide": str(tmp_path / "smal")}}}
    made = workshop.recipe(tmp_path / "r.yaml", methods=["direct_sft", "soft_cot"], variants=variants)
    said = tinyrun.cirf("run", made, "--out", tmp_path / "run")
    assert "smal" in said.error() and not (tmp_path / "run" / "models").exists()


def test_rows_that_are_all_too_long_are_one_line(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    keys_: dict[str, Any] = {"methods": ["sem_cot"], "variants": {"sem_cot": {"settings": {"alpha": 0.0}}}}
    made = workshop.recipe(tmp_path / "r.yaml", **keys_, finetune__max_length=10)
    said = tinyrun.cirf("run", made, "--out", tmp_path / "run")
    assert "sem_cot: every training row is longer than finetune.max_length; raise it" in said.error()
