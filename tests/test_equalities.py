"""Methods that are the same where they should be: no pauses are none, no removal is prose, what is served is evaluated."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tinyrun
import torch
from safetensors.torch import load_file

from cirf.lm.prompt import end_token, prompt_text
from cirf.lm.training.batches import Row, tokenise
from cirf.lm.training.loss import IGNORED
from cirf.lm.training.trainer import answer_places
from cirf.methods.pause import PAUSE
from cirf.store.jsonl import read_rows

SAME = {"method": "icot_si", "settings": {"rate": 1e-6, "smoothing": None, "partial": True}}
PART = {"method": "icot_si", "settings": {"rate": 8.0, "jump": 8, "partial": True}}
KEYS: dict[str, Any] = {
    "methods": ["direct_sft", "none", "pause", "filler", "sft_cot", "kept", "part"],
    "variants": {"none": {"method": "pause", "settings": {"n": 0}}, "kept": SAME, "part": PART},
    "finetune__adaptation": "lora",
    "finetune__lora": {"rank": 4, "alpha": 8},
    "finetune__batch_size": 12,
    "finetune__epochs": 2.0,
    "evaluate__latency_questions": 0,
}


@pytest.fixture(scope="module")
def ran(workshop: tinyrun.Workshop, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A finished run of these, and what it said."""
    folder = tmp_path_factory.mktemp("equal")
    said = tinyrun.cirf("run", workshop.recipe(folder / "r.yaml", **KEYS), "--out", folder / "run")
    assert said.code == 0, said.err
    return folder / "run", said.err


@pytest.fixture
def run(ran: tuple[Path, str]) -> Path:
    return ran[0]


def history(run: Path, name: str) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((run / "models" / name / "history.json").read_text())
    return summary


def served(run: Path, name: str) -> tuple[Any, Any]:
    """Model and tokenizer as anybody loads them."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = run / "models" / name
    return AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


def test_no_pauses_are_direct_fine_tuning(run: Path) -> None:
    folders = run / "models/none", run / "models/direct_sft"
    for file in ("model.safetensors", "tokenizer.json", "chat_template.jinja", "sft.jsonl", "config.json"):
        one, other = ((folder / file).read_bytes() for folder in folders)
        assert one == other, file
    assert history(run, "none") | {"method": ""} == history(run, "direct_sft") | {"method": ""}
    rows = [read_rows(run / "evaluation" / name / "sums.jsonl") for name in ("none", "direct_sft", "pause")]
    assert rows[0] == rows[1] and len(rows[0]) == 8
    assert history(run, "pause")["losses"] != history(run, "direct_sft")["losses"]


def test_no_removal_is_fine_tuning_on_prose(run: Path) -> None:
    kept, prose = history(run, "kept"), history(run, "sft_cot")
    assert kept["losses"] == prose["losses"] and len(kept["losses"]) == 6
    assert kept["curriculum"]["removed"] == [{"update": 0, "share": 0.0}] and "curriculum" not in prose
    assert (run / "models/kept/model.safetensors").read_bytes() == (run / "models/sft_cot/model.safetensors").read_bytes()
    assert history(run, "part")["losses"] != prose["losses"]


def test_an_incomplete_removal_is_said_by_run_report_page_and_card(ran: tuple[Path, str]) -> None:
    run, said = ran
    removed = history(run, "part")["curriculum"]["removed"]
    note = f"only {removed[-1]['share']:.0%} of the rationales' tokens were gone when training ended"
    assert 0 < removed[-1]["share"] < 1 and history(run, "part")["curriculum"]["note"] == note
    assert f"models/part: {note}" in said and "models/pause: only" not in said
    data = json.loads((run / "report.json").read_text())
    assert data["training"]["part"]["notes"] == [note] and data["training"]["pause"]["notes"] == []
    assert f"{note}." in (run / "report.html").read_text().replace("&#39;", "'")
    assert f"| Notes | {note} |" in (run / "models/part/README.md").read_text()


def test_an_incomplete_removal_is_refused_before_training_unless_it_is_asked_for(
    run: Path, workshop: tinyrun.Workshop, tmp_path: Path
) -> None:
    settings = {key: value for key, value in PART["settings"].items() if key != "partial"}
    keys = KEYS | {"methods": ["part"], "variants": {"part": PART | {"settings": settings}}}
    copy = shutil.copytree(run, tmp_path / "run")
    error = tinyrun.cirf("run", workshop.recipe(tmp_path / "r.yaml", **keys), "--out", copy).error()
    assert re.search(r"part: only \d+% of the rationales' tokens would be gone when training ends", error)
    assert "set partial: true" in error
    assert not list((copy / ".work").rglob("checkpoint-*"))
    assert (copy / "models/part/stage.json").read_bytes() == (run / "models/part/stage.json").read_bytes()  # the old one is kept


# Pauses


def test_pauses_are_in_the_prompt_and_are_never_learned(run: Path) -> None:
    _, tokenizer = served(run, "pause")
    pause = tokenizer.convert_tokens_to_ids(PAUSE)
    rows = [Row(row["prompt"], row["completion"], len(row["completion"])) for row in read_rows(run / "models/pause/sft.jsonl")]
    features, _ = tokenise(rows, tokenizer, 10**6)
    for row, feature in zip(rows, features, strict=True):
        labels = [token if place >= feature.start else IGNORED for place, token in enumerate(feature.ids)]
        learned = [token for token in labels if token != IGNORED]
        assert tokenizer.decode(learned[:-1]) == row.target and learned[-1] == end_token(tokenizer)
        assert feature.ids.count(pause) == 5 and feature.ids[feature.start - 5 : feature.start] == (pause,) * 5
        assert row.prompt.endswith(PAUSE * 5) and pause not in learned


def test_the_fillers_are_tokens_that_the_model_knows(run: Path, workshop: tinyrun.Workshop) -> None:
    known = json.loads((workshop.backbone / "tokenizer.json").read_text())
    assert json.loads((run / "models/filler/tokenizer.json").read_text())["added_tokens"] == known["added_tokens"]
    added = json.loads((run / "models/pause/tokenizer.json").read_text())["added_tokens"]
    assert [token["content"] for token in added if token not in known["added_tokens"]] == [PAUSE]
    assert not added[-1]["special"]
    _, tokenizer = served(run, "filler")
    assert prompt_text(tokenizer, "Why?").endswith("assistant\n" + "<think>\n\n</think>\n\n" + " ." * 5)
    before = load_file(workshop.backbone / "model.safetensors")["model.embed_tokens.weight"]
    for name, changed in (("filler", 0), ("pause", 1)):
        after = load_file(run / "models" / name / "model.safetensors")["model.embed_tokens.weight"]
        assert after.shape == before.shape and int((after != before).any(dim=1).sum()) == changed, name


@pytest.mark.parametrize("name", ["pause", "filler", "kept"])
def test_plain_generate_with_the_saved_tokenizer_gives_what_was_evaluated(run: Path, name: str) -> None:
    model, tokenizer = served(run, name)
    pause = tokenizer.convert_tokens_to_ids(PAUSE) if name == "pause" else None
    for row in read_rows(run / "evaluation" / name / "sums.jsonl"):
        turn = [{"role": "user", "content": row["prompt"]}]
        asked = tokenizer.apply_chat_template(turn, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        ids = asked["input_ids"][0].tolist()
        assert pause is None or (ids.count(pause) == 5 and ids[-5:] == [pause] * 5)
        made = model.generate(**asked, max_new_tokens=12)[0, len(ids) :]
        assert tokenizer.decode(made, skip_special_tokens=True) == row["output"]
        assert len(made) == row["tokens"]
    answered = tokenizer.apply_chat_template([*turn, {"role": "assistant", "content": "7"}], tokenize=False)
    assert PAUSE not in answered and " ." * 5 not in answered  # pauses are for what is to be answered


def test_pauses_in_a_users_text_are_broken_up(run: Path) -> None:
    _, tokenizer = served(run, "pause")
    pause = tokenizer.convert_tokens_to_ids(PAUSE)
    summary = prompt_text(tokenizer, f"What does {PAUSE}{PAUSE} mean?")
    assert "< pause>< pause>" in summary and tokenizer(summary).input_ids.count(pause) == 5
    features, _ = tokenise([Row(summary, f"a {PAUSE}", 7)], tokenizer, 10**6)
    assert features[0].ids.count(pause) == 5


# The tokens of the answer


def test_validation_begins_before_training_and_shows_the_answers_loss(run: Path) -> None:
    for name in KEYS["methods"]:
        losses = history(run, name)["validation"]
        assert [row["update"] for row in losses] == [0, 3, 6], name
        assert all(set(row) == {"update", "loss", "answer_loss"} for row in losses)
        bare = name in ("direct_sft", "none", "pause", "filler")
        assert all((row["loss"] == row["answer_loss"]) == bare for row in losses), name


@pytest.fixture
def tokenizer() -> Iterator[Any]:
    from cirf.lm.prompt import settle_template

    made = tinyrun.builders().build_tokenizer()
    settle_template(made)
    yield made


@pytest.mark.parametrize("answer", ["72", "-3.5", "yes", "B", "the red one"])
@pytest.mark.parametrize(
    "target",
    [
        "{}",
        "48/2 = 24 in May.\n#### {}",
        "48/2=24\n#### {}",
        "<cirf><cirf_001>24<cirf_000></cirf>{}",
        "It is 72 or yes.\n#### {}",
    ],
)
def test_the_answers_places_are_its_tokens_and_the_end(tokenizer: Any, answer: str, target: str) -> None:
    from cirf.lm.vocabulary import token_names

    names = list(token_names(2).all)
    tokenizer.add_tokens(names)
    keep = tokenizer.convert_tokens_to_ids(names)
    row = Row(prompt_text(tokenizer, "How many?"), target.format(answer), len(answer))
    features, _ = tokenise([row, row], tokenizer, 10**6, keep)
    places = answer_places(features).reshape(2, -1)
    assert torch.equal(places[0], places[1])
    learned = list(features[0].ids[features[0].start :])
    counted = [token for token, is_answer in zip(learned, places[0].tolist(), strict=True) if is_answer]
    assert counted[-1] == end_token(tokenizer)
    assert tokenizer.decode(counted[:-1]).strip() == answer
    alone = len(tokenizer(answer, add_special_tokens=False).input_ids)
    assert len(counted) - 1 in (alone, alone - 1)  # the first may hold the blank before it, and be one with it
    assert not any(answer_places([feature]).any() for feature in tokenise([Row("a", "b")], tokenizer, 99)[0])
