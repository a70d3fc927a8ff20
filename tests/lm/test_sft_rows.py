"""Rows for stock trainers: encoded as a trainer does, prompt and completion are the ids that we train on."""

from __future__ import annotations

from typing import Any

import pytest

from cirf.lm.prompt import end_token, prompt_text, settle_template
from cirf.lm.training.batches import Row, sft_rows, tokenise
from cirf.lm.vocabulary import extend
from cirf.recipe import schema

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
