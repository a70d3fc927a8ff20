"""What is computed does not depend on how many threads compute it, but for rounding."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from cirf.codebook.sinkhorn import assign
from cirf.lm.decoding.generate import generate
from cirf.lm.prompt import prompt_text
from cirf.lm.training.batches import Row
from cirf.lm.training.finetune import finetune
from cirf.lm.training.spec import TrainingSpec
from cirf.recipe import schema

pytestmark = pytest.mark.slow

COUNTS = (1, 2, 4)
QUESTIONS = ["Hi?", "What is 12 plus 7?", "Anna has 3 apples and buys 4 more. How many?", "yes", "A coin is heads up."]


@pytest.fixture
def counts() -> Iterator[Any]:
    """Sets torch's threads to each number in turn."""
    before = torch.get_num_threads()

    def each() -> Iterator[int]:
        for count in COUNTS:
            torch.set_num_threads(count)
            yield count

    yield each
    torch.set_num_threads(before)


def test_answers_are_the_same(tiny: Any, tokenizer: Any, counts: Any) -> None:
    model = tiny.build_model("qwen2", width=256, tied=False)
    prompts = [prompt_text(tokenizer, question) for question in QUESTIONS]
    found = [generate(model, tokenizer, prompts, 16, batch_size=5) for _ in counts()]
    assert found[0] == found[1] == found[2] and len({output.ids for output in found[0]}) > 1


def test_codes_are_the_same(counts: Any) -> None:
    draw = torch.Generator().manual_seed(1)
    points, anchors = torch.randn(20_000, 64, generator=draw), torch.randn(32, 64, generator=draw)
    found = [assign(points, anchors, schema.Sinkhorn()) for _ in counts()]
    assert all(torch.equal(found[0].codes, other.codes) for other in found[1:])


def test_losses_of_a_training_are_alike(tiny: Any, tokenizer: Any, tmp_path: Path, counts: Any) -> None:
    """After 24 updates with AdamW, apart by a thousandth of themselves at most."""
    rows = [
        Row(prompt_text(tokenizer, f"{question} {number}"), f"{number}") for number in range(24) for question in QUESTIONS[:2]
    ]
    section = schema.Finetune(
        adaptation="full", epochs=1.0, batch_size=2, gradient_accumulation_steps=1, learning_rate=1e-3, warmup_steps=2, bf16=False
    )
    found = []
    for count in counts():
        model = tiny.build_model("llama", width=256)
        _, history, _ = finetune(
            model, tokenizer, rows, [], TrainingSpec(section, "sft_cot", [], tmp_path / str(count), 1, device="cpu")
        )
        found.append([update["loss"] for update in history.losses])
    assert len(found[0]) == 24 and found[0][-1] < found[0][0]
    for other in found[1:]:
        torch.testing.assert_close(torch.tensor(other), torch.tensor(found[0]), rtol=1e-3, atol=1e-5)
