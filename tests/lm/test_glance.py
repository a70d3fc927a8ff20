"""When a training is looked at, and how one that is not worth its time ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from cirf.lm.prompt import prompt_text, settle_template
from cirf.lm.training.batches import Row
from cirf.lm.training.callbacks import look_at
from cirf.lm.training.finetune import finetune
from cirf.lm.training.history import History
from cirf.recipe import schema


@given(st.integers(1, 500), st.integers(1, 5000))
def test_a_training_is_looked_at_behind_an_epoch_and_a_third_of_it(epoch: int, total: int) -> None:
    at = look_at(epoch, total)
    ends = [update for update in range(epoch, total, epoch) if update >= total / 3]
    assert at == (ends[0] if ends else None)


def _train(folder: Path, look: Callable[[Any, int, int], str | None]) -> History:
    """Three epochs of four updates, looked at behind the first."""
    tokenizer, model = tiny.build_tokenizer(), tiny.build_model("llama", tied=False)
    settle_template(tokenizer)
    rows = [Row(prompt_text(tokenizer, f"What is {i} plus {i}?"), f"{2 * i}") for i in range(8)]
    section = schema.Finetune(adaptation="full", epochs=3, batch_size=2, gradient_accumulation_steps=1, save_steps=4, bf16=False)
    _, history, _ = finetune(model, tokenizer, rows, rows[:2], section, "direct_sft", [], folder, 1, look=look)
    return history


def test_a_look_ends_a_training_and_says_why(tmp_path: Path) -> None:
    history = _train(tmp_path, lambda model, update, updates: f"{update} of {updates}")
    assert history.ended == "4 of 12" and history.updates == 4
    assert [row["update"] for row in history.losses] == [1, 2, 3, 4] and [row["update"] for row in history.validation] == [0, 4]
    assert history.to_dict()["ended"] == "4 of 12"


def test_a_look_that_finds_nothing_changes_nothing(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []

    def look(model: Any, update: int, updates: int) -> None:
        assert not model.training and model.config.use_cache
        seen.append((update, updates))

    looked = _train(tmp_path / "looked", look)
    assert seen == [(4, 12)] and looked.updates == 12 and "ended" not in looked.to_dict()


def test_a_training_killed_while_it_is_looked_at_is_looked_at_again(tmp_path: Path) -> None:
    def killed(model: Any, update: int, updates: int) -> str | None:
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        _train(tmp_path, killed)
    history = _train(tmp_path, lambda model, update, updates: "no use")
    assert history.ended == "no use" and history.updates == len(history.losses) == 4
