"""Coconut's curriculum: which steps a row has lost at which update, where its thoughts stand, and that the end is as asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cirf.lm.prompt import prompt_text
from cirf.lm.training.batches import Feature, Row, tokenise
from cirf.lm.training.objective import CurriculumRow
from cirf.methods.base import at_head_of_answer
from cirf.methods.curricula import Course, Staged
from cirf.methods.latent.coconut import BEGIN, END, CoconutSettings

STEPS = [("3+4 = 7.", "7+2 = 9.", "So 9."), ("1+1 = 2.",), tuple(f"{i}+1 = {i + 1}." for i in range(5))]


def write(steps: Sequence[str], answer: str) -> str:
    return "\n".join((*steps, f"#### {answer}")) if steps else answer


def staged(tokenizer: Any, first: int = 1, epochs: float = 10, updates: int = 2, **keys: Any) -> Staged:
    settings = CoconutSettings(**keys)
    if settings.count(settings.stages) and BEGIN not in tokenizer.get_vocab():
        tokenizer.add_tokens([BEGIN, END])
        tokenizer.chat_template = at_head_of_answer(tokenizer.chat_template, BEGIN)
    rows = [Row(prompt_text(tokenizer, f"How many {i}?"), write(steps, str(10 + i)), 2, steps) for i, steps in enumerate(STEPS)]
    features, dropped = tokenise(rows, tokenizer, 500)
    assert not dropped
    lessons = [CurriculumRow(row, feature) for row, feature in zip(rows, features, strict=True)]
    return Staged(lessons, lessons[:2], tokenizer, write, settings, Course(END, first, epochs, updates, seed=1))


def shown(tokenizer: Any, row: Feature) -> tuple[str, int, str, str]:
    """The last mark of what stands before a row's thoughts, their number, what stands behind them unlearned, what is learned."""
    place, count = row.thoughts or (row.start, 0)
    head, marks, learned = row.ids[:place], row.ids[place : row.start], row.ids[row.start :]
    assert row.answer is not None
    assert tokenizer.decode(row.ids[row.answer : -1]).strip() in ("10", "11", "12")
    return tokenizer.decode(head)[-len(BEGIN) :], count, tokenizer.decode(marks), tokenizer.decode(learned)


def test_a_stage_takes_a_step_and_gives_thoughts_and_the_last_takes_all(tokenizer: Any) -> None:
    made = staged(tokenizer, stage_epochs=1.0)
    assert [made.stage(update) for update in range(20)] == [1, 1, 2, 2, 3, 3, *[4] * 14] and made.final == 4
    found = [[shown(tokenizer, made.feature(index, update)) for update in (0, 2, 4, 6)] for index in range(3)]
    end = "<|im_end|>"
    assert found[0] == [
        (BEGIN, 2, END, f"7+2 = 9.\nSo 9.\n#### 10{end}"),
        (BEGIN, 4, END, f"So 9.\n#### 10{end}"),
        (BEGIN, 6, END, f"10{end}"),
        (BEGIN, 6, END, f"10{end}"),
    ]
    assert found[1] == [(BEGIN, count, END, f"11{end}") for count in (2, 4, 6, 6)]
    assert found[2][2:] == [(BEGIN, 6, END, f"3+1 = 4.\n4+1 = 5.\n#### 12{end}"), (BEGIN, 6, END, f"12{end}")]
    assert [shown(tokenizer, row) for row in made.validation] == [found[0][3], found[1][3]]
    assert [update for update in range(20) if made.fresh(update)] == [2, 4, 6]
    summary = made.summary()
    assert [(row["stage"], row["thoughts"], row["steps_left"]) for row in summary["stages"]] == [
        (1, 2, 0.6667), (2, 4, 0.4444), (3, 6, 0.2222), (4, 6, 0.0)
    ]  # fmt: skip
    assert "note" not in summary


def test_thoughts_stop_at_the_most_and_follow_the_steps_where_they_are_not_padded(tokenizer: Any) -> None:
    made = staged(tokenizer, stage_epochs=1.0, most=5)
    assert [made.feature(0, update).thoughts[1] for update in (0, 2, 4, 6)] == [2, 4, 5, 5]  # type: ignore[index]
    made = staged(tokenizer, stage_epochs=1.0, pad_latent_to_max=False)
    assert [made.feature(1, update).thoughts[1] for update in (0, 2, 4, 6)] == [2, 2, 2, 2]  # type: ignore[index]
    assert all(row.thoughts is not None and row.thoughts[1] == 6 for row in made.validation)


def test_stage_0_is_the_row_of_plain_rationales(tokenizer: Any) -> None:
    plain = staged(tokenizer, first=0, stages=1, thoughts=0, stage_epochs=1.0)
    row = plain.feature(0, 0)
    assert row.thoughts is None and shown(tokenizer, row)[3] == "3+4 = 7.\n7+2 = 9.\nSo 9.\n#### 10<|im_end|>"
    assert [plain.feature(0, update).thoughts for update in (2, 4)] == [None, None]
    assert shown(tokenizer, plain.feature(0, 2))[3] == "7+2 = 9.\nSo 9.\n#### 10<|im_end|>"
    made = staged(tokenizer, first=0, stage_epochs=1.0)
    assert made.feature(0, 0) == row  # marks are there, and not in a row without thoughts
    assert [made.stage(update) for update in (0, 2, 4, 6, 8)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("epochs", "updates"), [(10, 7), (2, 3), (1, 4), (1.4, 30)])
def test_by_default_the_last_stage_comes_in_time(tokenizer: Any, epochs: float, updates: int) -> None:
    for first in (0, 1):
        made = staged(tokenizer, first, epochs, updates)
        found = [made.stage(update) for update in range(made.last + 1)]
        assert found == sorted(found) and found[0] == first and found[-1] == made.final
        if made.last > 20:
            assert 0.55 < found.index(made.final) / len(found) < 0.65 and set(found) == set(range(first, 5))


def test_stages_may_be_drawn_by_row_and_update(tokenizer: Any) -> None:
    made, again = (staged(tokenizer, stage_epochs=1.0, uniform_prob=0.5) for _ in range(2))
    counts = [made.feature(2, update).thoughts for update in range(6, 20)]
    assert len(set(counts)) > 2 and counts == [again.feature(2, update).thoughts for update in range(6, 20)]
    sure = staged(tokenizer, stage_epochs=1.0, uniform_prob=1.0)
    lengths = {len(sure.feature(1, update).ids) for update in range(40)}
    assert len(lengths) == 2  # of one step: with it, and without


def test_the_optimiser_may_be_fresh_by_epoch_or_never_and_an_early_end_is_told(tokenizer: Any) -> None:
    made = staged(tokenizer, stage_epochs=3.0, fresh_optimizer="epoch", epochs=4)
    assert [update for update in range(8) if made.fresh(update)] == [2, 4, 6]
    assert made.summary()["note"] == "training ended at stage 2 of 4, before all steps were gone"
    assert not any(staged(tokenizer, stage_epochs=1.0, fresh_optimizer="never").fresh(update) for update in range(20))
