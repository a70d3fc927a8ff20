"""Training with thoughts: batches are cut where they stand, and the model learns to answer behind them and to stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from thinks import Thinks

from cirf.lm.decoding.generate import generate, generate_one, sample_many
from cirf.lm.prompt import encode, prompt_text
from cirf.lm.training.batches import Feature, Row
from cirf.lm.training.finetune import finetune
from cirf.lm.training.objective import Objective
from cirf.lm.vocabulary import add_tokens
from cirf.methods.base import at_head_of_answer
from cirf.methods.latent.decode import Latent, Thinking, read_latent
from cirf.methods.latent.loss import LatentObjective
from cirf.recipe import schema

LATENT = Latent("<latent>", "</latent>", 3)
ROWS = [
    Feature((5, 9, 30, 41, 90, 91, 20, 21), 6, 7, thoughts=(5, 3)),
    Feature((7, 90, 91, 22, 23, 24, 25), 3, 4, thoughts=(2, 1)),
    Feature((60, 61, 62, 63, 26), 4, 4),
    Feature((11, 12, 90, 91, 27, 28), 4, 5, thoughts=(3, 3)),
]


def test_rows_are_cut_where_their_thoughts_stand() -> None:
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


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2", "gemma2"])
def test_answers_are_those_computed_without_a_cache_however_they_are_asked_for(tiny: Any, kind: str) -> None:
    model, tokenizer, (_, end) = prepared(tiny, kind)
    asked, thinking = prompts(tokenizer), Thinking(model, tokenizer, LATENT)
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
        found = generate(model, tokenizer, asked, 6, batch_size=size, prefixes=thinking)
        assert [output.ids for output in found] == [ids[: len(output.ids)] for ids, output in zip(wanted, found, strict=True)]
        assert all(len(output.ids) == 6 or not output.truncated for output in found)
    ones = [generate_one(model, tokenizer, prompt, 6, prefixes=thinking) for prompt in asked]
    assert [one.text for one in ones] == [output.text for output in found] and all(one.first_token_seconds for one in ones)
    for count in (1, 3):
        greedy = sample_many(model, tokenizer, asked[1], 6, count, 0.0, 1.0, 1, prefixes=thinking)
        assert [output.ids for output in greedy] == [found[1].ids] * count
    drawn = sample_many(model, tokenizer, asked[1], 6, 4, 1.0, 1.0, 1, prefixes=thinking)
    later = sample_many(model, tokenizer, asked[1], 6, 2, 1.0, 1.0, 1, 2, prefixes=thinking)
    assert len({output.ids for output in drawn}) > 1 and drawn[2:] == later
    without = generate(model, tokenizer, asked, 6)
    assert without != found


def test_thinking_wants_its_marks(tiny: Any, tokenizer: Any, tmp_path: Path) -> None:
    from cirf.errors import CirfError

    model, own, _ = prepared(tiny)
    with pytest.raises(CirfError, match=r"must end in <latent>; render it in its own chat template"):
        generate(model, own, ["How many?"], 3, prefixes=Thinking(model, own, LATENT))
    with pytest.raises(CirfError, match="does not know <latent>"):
        Thinking(model, tokenizer, LATENT)
    assert read_latent(tmp_path) is None
    LATENT.save(tmp_path)
    assert read_latent(tmp_path) == LATENT
    (tmp_path / "latent.json").write_text("{}")
    with pytest.raises(CirfError, match="damaged"):
        read_latent(tmp_path)


@pytest.mark.parametrize(("adaptation", "tied"), [("full", True), ("lora", False)])
def test_overfitted_on_four_rows_it_thinks_answers_and_stops(tiny: Any, tmp_path: Path, adaptation: Any, tied: bool) -> None:
    model, tokenizer, ids = prepared(tiny, tied=tied, scale=12.0)
    first = model.get_input_embeddings().weight[ids].clone()
    rows = [Row(prompt_text(tokenizer, f"What is {i} plus {i + 1}?"), str(2 * i + 1)) for i in range(4)]
    section = schema.Finetune(
        adaptation=adaptation, epochs=60, batch_size=4, gradient_accumulation_steps=1, learning_rate=1e-2, warmup_steps=10,
        weight_decay=0.0,        lora=schema.Lora(rank=32, alpha=32), bf16=False, eval_steps=60,
    )  # fmt: skip
    trained, history, _ = finetune(
        model, tokenizer, rows, rows[:2], section, "coconut", [], tmp_path, 0,
        input_ids=ids, teach=lambda train, *_: Thinks(train, ids[1], LATENT.count), objective=LatentObjective(),
    )  # fmt: skip
    outputs = generate(trained, tokenizer, [row.prompt for row in rows], 8, prefixes=Thinking(trained, tokenizer, LATENT))
    right = [output.text == row.target for output, row in zip(outputs, rows, strict=True)]
    assert sum(right) >= 3  # of a net that was random, adapters may miss one
    assert not any(output.truncated for output in outputs)
    assert history.validation[-1]["loss"] < history.validation[0]["loss"]
    moved = (trained.get_input_embeddings().weight[ids] - first).abs().amax(dim=1)
    assert moved.gt(0).all()  # both marks learn
