"""Rows become ids that end in the end token, and batches of like length in an order of the seed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cirf.errors import CirfError
from cirf.lm.prompt import end_token, prompt_text
from cirf.lm.training.batches import LengthSampler, Row, collate, tokenise
from cirf.lm.training.finetune import plan_updates
from cirf.lm.vocabulary import extend
from cirf.recipe import schema


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
    assert plan_updates(33, section, 2.0).__repr__() == "Plan(epoch=5, total=10, warmup=1)"
    assert plan_updates(330, section, 0.5).total == 21
    assert plan_updates(330, section, 2.0).warmup == 10
