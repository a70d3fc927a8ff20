"""Training with thoughts: batches are split at them, and the model learns to answer after them and to stop. Coconut's
curriculum: which steps a row has lost at which update, where its thoughts are, and that the last stage is as configured.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import Thinks

from cirf.lm.decoding.generate import Decoding, generate, generate_one, sample_many
from cirf.lm.prompt import encode, prompt_text
from cirf.lm.training.batches import Feature, Row, tokenise
from cirf.lm.training.finetune import finetune
from cirf.lm.training.objective import CurriculumRow, Objective
from cirf.lm.training.spec import TrainingSpec
from cirf.lm.vocabulary import add_tokens
from cirf.methods.base import at_head_of_answer
from cirf.methods.curricula import CurriculumPlan, StagedCurriculum
from cirf.methods.latent.coconut import BEGIN, END, CoconutSettings
from cirf.methods.latent.decode import LatentPrefiller, LatentSettings, read_latent
from cirf.methods.latent.loss import LatentObjective
from cirf.recipe import schema

LATENT = LatentSettings("<latent>", "</latent>", 3)
ROWS = [
    Feature((5, 9, 30, 41, 90, 91, 20, 21), 6, 7, thoughts=(5, 3)),
    Feature((7, 90, 91, 22, 23, 24, 25), 3, 4, thoughts=(2, 1)),
    Feature((60, 61, 62, 63, 26), 4, 4),
    Feature((11, 12, 90, 91, 27, 28), 4, 5, thoughts=(3, 3)),
]


def test_rows_are_cut_where_their_thoughts_are() -> None:
    batch = LatentObjective().collate(ROWS, 0)
    assert batch["heads"].tolist() == [[5, 9, 30, 41, 90], [0, 0, 0, 7, 90], [0, 0, 60, 61, 62], [0, 0, 11, 12, 90]]
    assert torch.equal(batch["seen"], (batch["heads"] != 0).long()) and batch["counts"].tolist() == [3, 1, 0, 3]
    assert batch["input_ids"][:3].tolist() == [[91, 20, 21, 0, 0], [91, 22, 23, 24, 25], [63, 26, 0, 0, 0]]
    assert batch["labels"][:3].tolist() == [[-100, 20, 21, -100, -100], [-100, 22, 23, 24, 25], [-100, 26, -100, -100, -100]]
    assert batch["tail_mask"].sum(dim=1).tolist() == [3, 5, 2, 3]
    assert int((batch["labels"] != -100).sum()) == sum(len(row.ids) - row.start for row in ROWS)


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2"])
def test_a_batch_weighs_its_targets_as_its_rows_do_alone(tiny: Any, kind: str) -> None:
    model, objective = tiny.build_model(kind, tied=False), LatentObjective()
    with torch.no_grad():
        together = objective.loss(model, objective.collate(ROWS, 0), 9)
        alone = [objective.loss(model, objective.collate([row], 0), 9) for row in ROWS]
        torch.testing.assert_close(together, torch.stack(alone).sum(), atol=1e-4, rtol=1e-4)
        plainly = Objective().loss(model, Objective().collate(ROWS[2:3], 0), 9)
        assert torch.equal(alone[2], plainly)  # no row thinks: to the bit
        logits, targets = objective.logits(model, objective.collate(ROWS, 0))
    assert targets.tolist() == [token for row in ROWS for token in row.ids[row.start :]] and len(logits) == len(targets)


def prepared(tiny: Any, kind: str = "llama", tied: bool = False, scale: float = 4.0) -> tuple[Any, Any, list[int]]:
    model, tokenizer = tiny.build_model(kind, tied, scale=scale), tiny.build_tokenizer()
    ids = add_tokens(model, tokenizer, [LATENT.begin, LATENT.end])
    tokenizer.chat_template = at_head_of_answer(tokenizer.chat_template, LATENT.begin)
    return model, tokenizer, ids


def prompts(tokenizer: Any) -> list[str]:
    asked = ["Hi?", "What is 12 plus 7?", "Anna has 3 apples and buys 4 more. How many?", "yes", "A coin is heads up."]
    return [prompt_text(tokenizer, text) for text in asked]


@pytest.mark.parametrize("kind", [*(pytest.param(kind, marks=pytest.mark.slow) for kind in ("llama", "qwen2", "gpt2")), "gemma2"])
def test_answers_are_those_computed_without_a_cache_however_they_are_asked_for(tiny: Any, kind: str) -> None:
    model, tokenizer, (_, end) = prepared(tiny, kind)
    asked, thinking = prompts(tokenizer), LatentPrefiller(model, tokenizer, LATENT)
    wanted = []
    with torch.no_grad():
        for prompt in asked:
            given = model.get_input_embeddings()(torch.tensor([encode(tokenizer, prompt)]))
            for _ in range(LATENT.count):
                state = model(inputs_embeds=given, output_hidden_states=True, use_cache=False).hidden_states[-1][:, -1:]
                given = torch.cat([given, state], dim=1)
            written = [end]
            for _ in range(6):
                given = torch.cat([given, model.get_input_embeddings()(torch.tensor([written[-1:]]))], dim=1)
                written.append(int(model(inputs_embeds=given, use_cache=False).logits[0, -1].argmax()))
            wanted.append(tuple(written[1:]))
    for size in (1, 2, 5):
        found = generate(model, tokenizer, asked, 6, Decoding(prefixes=thinking), batch_size=size)
        assert [output.ids for output in found] == [ids[: len(output.ids)] for ids, output in zip(wanted, found, strict=True)]
        assert all(len(output.ids) == 6 or not output.truncated for output in found)
    ones = [generate_one(model, tokenizer, prompt, 6, Decoding(prefixes=thinking)) for prompt in asked]
    assert [one.text for one in ones] == [output.text for output in found] and all(one.first_token_seconds for one in ones)
    for count in (1, 3):
        greedy = sample_many(model, tokenizer, asked[1], 6, count, Decoding(0.0, 1.0, 1, prefixes=thinking))
        assert [output.ids for output in greedy] == [found[1].ids] * count
    drawn = sample_many(model, tokenizer, asked[1], 6, 4, Decoding(1.0, 1.0, 1, prefixes=thinking))
    later = sample_many(model, tokenizer, asked[1], 6, 2, Decoding(1.0, 1.0, 1, prefixes=thinking), first=2)
    assert len({output.ids for output in drawn}) > 1 and drawn[2:] == later
    without = generate(model, tokenizer, asked, 6)
    assert without != found


def test_thinking_wants_its_marks(tiny: Any, tokenizer: Any, tmp_path: Path) -> None:
    from cirf.errors import CirfError

    model, own, _ = prepared(tiny)
    with pytest.raises(CirfError, match=r"must end in <latent>; render it in its own chat template"):
        generate(model, own, ["How many?"], 3, Decoding(prefixes=LatentPrefiller(model, own, LATENT)))
    with pytest.raises(CirfError, match="the model lacks <latent>"):
        LatentPrefiller(model, tokenizer, LATENT)
    assert read_latent(tmp_path) is None
    LATENT.save(tmp_path)
    assert read_latent(tmp_path) == LATENT
    (tmp_path / "latent.json").write_text("{}")
    with pytest.raises(CirfError, match="damaged"):
        read_latent(tmp_path)


@pytest.mark.parametrize(("adaptation", "tied"), [("full", True), pytest.param("lora", False, marks=pytest.mark.slow)])
def test_overfitted_on_four_rows_it_thinks_answers_and_stops(tiny: Any, tmp_path: Path, adaptation: Any, tied: bool) -> None:
    model, tokenizer, ids = prepared(tiny, tied=tied, scale=12.0)
    first = model.get_input_embeddings().weight[ids].clone()
    rows = [Row(prompt_text(tokenizer, f"What is {i} plus {i + 1}?"), str(2 * i + 1)) for i in range(4)]
    section = schema.Finetune(
        adaptation=adaptation, epochs=30, batch_size=4, gradient_accumulation_steps=1, learning_rate=2e-2, warmup_steps=5,
        weight_decay=0.0, lora=schema.Lora(rank=32, alpha=32), bf16=False, eval_steps=30,
    )  # fmt: skip
    spec = TrainingSpec(
        section, "coconut", [], tmp_path, 0,
        input_ids=ids, teach=lambda train, *_: Thinks(train, ids[1], LATENT.count), objective=LatentObjective(),
    )  # fmt: skip
    trained, history, _ = finetune(model, tokenizer, rows, rows[:2], spec)
    outputs = generate(
        trained, tokenizer, [row.prompt for row in rows], 8, Decoding(prefixes=LatentPrefiller(trained, tokenizer, LATENT))
    )
    right = [output.text == row.target for output, row in zip(outputs, rows, strict=True)]
    assert sum(right) >= 3  # of a net that was random, adapters may miss one
    assert not any(output.truncated for output in outputs)
    assert history.validation[-1]["loss"] < history.validation[0]["loss"]
    moved = (trained.get_input_embeddings().weight[ids] - first).abs().amax(dim=1)
    assert moved.gt(0).all()  # both marks learn


STEPS = [("3+4 = 7.", "7+2 = 9.", "So 9."), ("1+1 = 2.",), tuple(f"{i}+1 = {i + 1}." for i in range(5))]


def write(steps: Sequence[str], answer: str) -> str:
    return "\n".join((*steps, f"#### {answer}")) if steps else answer


def staged(tokenizer: Any, first: int = 1, epochs: float = 10, updates: int = 2, **keys: Any) -> StagedCurriculum:
    settings = CoconutSettings(**keys)
    if settings.count(settings.stages) and BEGIN not in tokenizer.get_vocab():
        tokenizer.add_tokens([BEGIN, END])
        tokenizer.chat_template = at_head_of_answer(tokenizer.chat_template, BEGIN)
    rows = [Row(prompt_text(tokenizer, f"How many {i}?"), write(steps, str(10 + i)), 2, steps) for i, steps in enumerate(STEPS)]
    features, dropped = tokenise(rows, tokenizer, 500)
    assert not dropped
    lessons = [CurriculumRow(row, feature) for row, feature in zip(rows, features, strict=True)]
    return StagedCurriculum(lessons, lessons[:2], tokenizer, write, settings, CurriculumPlan(END, first, epochs, updates, seed=1))


def shown(tokenizer: Any, row: Feature) -> tuple[str, int, str, str]:
    """The last token before a row's thoughts, their number, the text after them without loss, and the text with loss."""
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


def test_the_optimiser_may_be_fresh_by_epoch_or_never_and_an_early_end_is_reported(tokenizer: Any) -> None:
    made = staged(tokenizer, stage_epochs=3.0, fresh_optimizer="epoch", epochs=4)
    assert [update for update in range(8) if made.fresh(update)] == [2, 4, 6]
    assert made.summary()["note"] == "training ended at stage 2 of 4, before all steps were gone"
    assert not any(staged(tokenizer, stage_epochs=1.0, fresh_optimizer="never").fresh(update) for update in range(20))
