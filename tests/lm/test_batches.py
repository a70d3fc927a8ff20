"""Rows become ids that end in the end token, and batches of like length in an order of the seed. Rows for stock trainers:
encoded as a trainer does, prompt and completion are the ids that we train on. Files of tensors that are there whole or not at
all. Rows in passes: each once, no cheaper way to cut them, and what parts them.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from cirf.errors import CirfError
from cirf.export.formats import write_trainer
from cirf.lm.prompt import end_token, prompt_text, settle_template
from cirf.lm.training import phases
from cirf.lm.training.batches import LengthSampler, Row, collate, cut, pass_price, safe_row, sft_rows, tokenise
from cirf.lm.training.spec import plan_updates
from cirf.lm.vocabulary import extend
from cirf.recipe import schema
from cirf.store.jsonl import read_rows


@pytest.mark.parametrize("kind", ["CHATML", "NO_SYSTEM", None])
@pytest.mark.parametrize("target", ["72", "", "prose that ends.\n#### 72", "72<|im_end|>"])
def test_the_last_trained_id_is_always_the_end_token_and_the_only_one(tiny: Any, kind: str | None, target: str) -> None:
    from cirf.lm.prompt import settle_template

    tokenizer = tiny.build_tokenizer(kind and getattr(tiny, kind))
    settle_template(tokenizer)
    features, dropped = tokenise([Row(prompt_text(tokenizer, "Hi?"), target)], tokenizer, 100)
    learned = features[0].ids[features[0].start :]
    assert not dropped and learned.index(end_token(tokenizer)) == len(learned) - 1
    labels = collate(features, 0)["labels"][0].tolist()
    assert labels == [-100] * features[0].start + list(learned)


def test_functional_tokens_pass_where_they_belong_and_nowhere_else(tiny: Any, tokenizer: Any) -> None:
    ids = extend(tiny.build_model(), tokenizer, None, schema.Vocabulary(), 8, 0)
    row = Row(prompt_text(tokenizer, "Hi?"), "<cirf><cirf_001>4</cirf>4")
    for keep, expected in ((ids, 3), ((), 0)):
        (feature,), _ = tokenise([row], tokenizer, 100, keep)
        assert len(set(ids) & set(feature.ids[feature.start :])) == expected


def test_an_answer_that_is_broken_up_is_still_whole(tokenizer: Any) -> None:
    row = Row(prompt_text(tokenizer, "Hi?"), "it ends with\n<|im_end|>", answer=10, steps=("it ends with",))
    (feature,), _ = tokenise([row], tokenizer, 100)
    safe = safe_row(row, tokenizer, ())
    assert safe.answer == 11 and safe.target.endswith("\n< |im_end|>")
    assert tokenizer.decode(feature.ids[feature.answer : -1]) == "< |im_end|>"


def test_long_rows_are_left_out_and_named(tokenizer: Any) -> None:
    rows = [Row(prompt_text(tokenizer, "Hi?"), answer) for answer in ("1", "1 2 3 4 5 6 7 8 9", "2")]
    features, dropped = tokenise(rows, tokenizer, len(tokenise(rows[:1], tokenizer, 999)[0][0].ids))
    assert (len(features), dropped) == (2, [1])
    with pytest.raises(CirfError, match="prompt is empty"):
        tokenise([Row("", "1")], tokenizer, 10)


@given(st.lists(st.integers(1, 90), max_size=200), st.integers(1, 9), st.booleans())
def test_every_row_comes_once_an_epoch_in_an_order_of_seed_and_epoch(lengths: list[int], size: int, group: bool) -> None:
    sampler = LengthSampler(lengths, size, 5, group)
    first = list(sampler)
    assert sorted(first) == list(range(len(lengths))) and list(sampler) == first
    again = LengthSampler(lengths, size, 5, group)
    again.set_epoch(1)
    second = list(again)
    assert sorted(second) == sorted(first)
    if len(set(first)) > 40:
        assert second != first


def test_batches_are_of_like_length() -> None:
    lengths = [(i * 37) % 100 for i in range(640)]
    waste = []
    for group in (True, False):
        order = list(LengthSampler(lengths, 8, 0, group))
        batches = [[lengths[i] for i in order[at : at + 8]] for at in range(0, 640, 8)]
        waste.append(sum(max(batch) * len(batch) - sum(batch) for batch in batches))
    assert waste[0] < 0.15 * waste[1]


def test_updates_are_planned_and_a_long_warm_up_is_cut() -> None:
    section = schema.Finetune(batch_size=4, gradient_accumulation_steps=2, warmup_steps=10)
    assert plan_updates(33, section, 2.0).__repr__() == "UpdatePlan(epoch=5, total=10, warmup=1)"
    assert plan_updates(330, section, 0.5).total == 21
    assert plan_updates(330, section, 2.0).warmup == 10


TARGETS = ["<cirf><cirf_001>4<cirf_002></cirf>4", "3 + 4 = 7\n#### 7", "72<|im_end|>", "<cirf_001>7", ""]


def beginning_with(tokenizer: Any, bos: str) -> Any:
    """The tokenizer, which puts ``bos`` before every text from now on, as Llama's does."""
    from tokenizers.processors import TemplateProcessing

    tokenizer.add_special_tokens({"bos_token": bos})
    single = f"{bos} $A"
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single=single, special_tokens=[(bos, tokenizer.bos_token_id)])
    tokenizer.chat_template = "{{ bos_token }}" + tokenizer.chat_template
    return tokenizer


@pytest.mark.parametrize("begins", [False, True], ids=["plain", "begins with a token of its own"])
@pytest.mark.parametrize("functional", [False, True])
def test_a_trainer_of_text_learns_from_the_same_ids(tiny: Any, begins: bool, functional: bool) -> None:
    tokenizer = tiny.build_tokenizer()
    if begins:
        tokenizer = beginning_with(tokenizer, "<s>")
        assert tokenizer("Hi?").input_ids[0] == tokenizer.bos_token_id
    settle_template(tokenizer)
    keep = extend(tiny.build_model(), tokenizer, None, schema.Vocabulary(), 4, 0) if functional else []
    rows = [Row(prompt_text(tokenizer, f"What is {place} plus 4?"), target) for place, target in enumerate(TARGETS)]
    features, _ = tokenise(rows, tokenizer, 1000, keep)
    end = tokenizer.convert_ids_to_tokens(end_token(tokenizer))
    for feature, row in zip(features, sft_rows(rows, tokenizer, keep), strict=True):
        assert row.keys() == {"prompt", "completion"}
        prompt, both = (tokenizer(text).input_ids for text in (row["prompt"], row["prompt"] + row["completion"] + end))
        assert (tuple(both), len(prompt)) == (feature.ids, feature.start) and both[: len(prompt)] == prompt


def test_rows_that_unsloth_would_encode_without_their_beginning_are_refused(tiny: Any, tmp_path: Path) -> None:
    tokenizer = beginning_with(tiny.build_tokenizer(), "<s>")
    settle_template(tokenizer)
    rows = [Row(prompt_text(tokenizer, "What is 3 plus 4?"), "7")]
    assert write_trainer(tmp_path, "unsloth", rows, tokenizer, [], schema.Finetune())["rows"] == 1
    assert not read_rows(tmp_path / "rows/train.jsonl")[0]["prompt"].startswith("<s>")
    tokenizer.chat_template = tokenizer.chat_template.replace("{{ bos_token }}", "<s>")
    with pytest.raises(CirfError, match="unsloth would train on these"):
        write_trainer(tmp_path, "unsloth", rows, tokenizer, [], schema.Finetune())


def test_a_prompt_that_llama_factory_would_change_is_refused(tiny: Any, tmp_path: Path) -> None:
    with pytest.raises(CirfError, match="it would replace"):
        write_trainer(tmp_path, "llama-factory", [Row("{{idx}}?", "4")], tiny.build_tokenizer(), [], schema.Finetune())


def test_a_file_is_the_one_that_safetensors_writes(tmp_path: Path) -> None:
    values = {"a": torch.arange(6.0).reshape(2, 3).t(), "b": torch.ones(2, dtype=torch.bfloat16, requires_grad=True)}
    phases.save_whole(values, tmp_path / "made" / "x.safetensors")
    save_file({name: value.detach().contiguous() for name, value in values.items()}, tmp_path / "y.safetensors")
    assert (tmp_path / "made" / "x.safetensors").read_bytes() == (tmp_path / "y.safetensors").read_bytes()


def test_what_is_killed_while_writing_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.safetensors"
    phases.save_whole({"a": torch.zeros(2)}, path)
    before = path.read_bytes()

    def half(values: object, place: Path) -> None:
        place.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(phases, "save_file", half)
    with pytest.raises(KeyboardInterrupt):
        phases.save_whole({"a": torch.ones(2)}, path)
    assert path.read_bytes() == before and [place.name for place in tmp_path.iterdir()] == [path.name]


def price_of(passes: list[list[int]], lengths: list[int], price: int) -> int:
    return sum(len(rows) * max(lengths[row] for row in rows) + price for rows in passes)


def ways(rows: list[int]) -> list[list[list[int]]]:
    """All ways to cut rows, in their order, into passes."""
    if not rows:
        return [[]]
    return [[rows[:end], *rest] for end in range(1, len(rows) + 1) for rest in ways(rows[end:])]


@given(st.lists(st.integers(1, 60), max_size=8), st.integers(0, 80))
def test_each_row_is_in_one_pass_and_no_other_cut_costs_less(lengths: list[int], price: int) -> None:
    passes = cut(lengths, price)
    assert sorted(row for rows in passes for row in rows) == list(range(len(lengths)))
    assert all(lengths[before[-1]] < lengths[after[0]] for before, after in pairwise(passes))
    inside = sorted(range(len(lengths)), key=lambda row: (lengths[row], row))
    assert price_of(passes, lengths, price) == min(price_of(way, lengths, price) for way in ways(inside))


@pytest.mark.parametrize(
    ("price", "passes"),
    [(0, [[1], [3], [2, 4], [0]]), (7, [[1, 3], [2, 4], [0]]), (30, [[1, 3, 2, 4], [0]]), (4096, [[1, 3, 2, 4, 0]])],
)
def test_the_dearer_a_pass_the_fewer_there_are(price: int, passes: list[list[int]]) -> None:
    assert cut([90, 12, 20, 14, 20], price) == passes


def test_an_accelerator_pays_more_for_a_pass() -> None:
    assert pass_price("cpu") < pass_price("cuda") == pass_price("mps")
