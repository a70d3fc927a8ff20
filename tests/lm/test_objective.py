"""A training with an objective of its own: what it collates, what it minimises, and what is trained beside the model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from cirf.lm.prompt import prompt_text
from cirf.lm.training.finetune import Row, finetune
from cirf.lm.training.objective import Objective
from cirf.lm.vocabulary import add_tokens
from cirf.recipe import schema


class _Broken(Exception):
    pass


class _Breaking:
    """A progress bar that ends the training after some updates (0: never)."""

    def __init__(self, after: int) -> None:
        self.left = after

    @contextmanager
    def task(self, name: str, total: int | None, unit: str = "rows", done: int = 0) -> Iterator[Any]:
        def advance(count: int) -> None:
            self.left -= count
            if self.left == 0:
                raise _Broken

        yield advance


class Beside(Objective):
    """The usual loss, and an auxiliary module that learns to tell a row's length from its first embedding."""

    def __init__(self, width: int) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.module = torch.nn.Linear(width, 1)

    def collate(self, features: Any, padding: int) -> dict[str, torch.Tensor]:
        return super().collate(features, padding) | {"lengths": torch.tensor([float(len(row.ids)) for row in features])}

    def loss(self, model: Any, batch: Any, count: Any) -> torch.Tensor:
        assert self.module is not None
        first = model.get_input_embeddings()(batch["input_ids"][:, 0]).detach()
        summary = self.module(first.float())[:, 0]
        return super().loss(model, batch, count) + 0.1 * (summary - batch["lengths"] / 50).square().mean()


def train(tiny: Any, work: Path, adaptation: str, objective: Objective | None, breaks: tuple[int, ...] = (0,)) -> Any:
    for after in breaks:
        model, tokenizer = tiny.build_model("llama", tied=False), tiny.build_tokenizer()
        new = add_tokens(model, tokenizer, ["<latent>"])
        rows = [Row(prompt_text(tokenizer, f"What is {i} plus {i + 1}?"), f"It is {2 * i + 1}.") for i in range(8)]
        section = schema.Finetune(
            adaptation=adaptation, epochs=4, batch_size=4, gradient_accumulation_steps=1, learning_rate=1e-2, warmup_steps=2,
            save_steps=4, lora=schema.Lora(rank=4, alpha=8),
        )  # fmt: skip
        fresh = type(objective)(32) if isinstance(objective, Beside) else objective
        try:
            made = finetune(
                model, tokenizer, rows, rows[:2], section, "x", [], work, 0, _Breaking(after), input_ids=new, objective=fresh
            )
            return (*made[:2], fresh)
        except _Broken:
            continue
    raise AssertionError("it was never finished")


@pytest.mark.parametrize("adaptation", ["full", "lora"])
def test_a_module_is_trained_beside_the_model_kept_over_a_kill_and_no_part_of_what_comes_out(
    tiny: Any, tmp_path: Path, adaptation: str
) -> None:
    whole, history, objective = train(tiny, tmp_path / "whole", adaptation, Beside(32))
    assert not torch.equal(objective.module.weight, Beside(32).module.weight)  # type: ignore[union-attr]
    names = set(dict(tiny.build_model("llama", tied=False).named_parameters()))
    assert set(dict(whole.named_parameters())) == names == set(whole.state_dict())
    _, plainly, _ = train(tiny, tmp_path / "plain", adaptation, None)
    assert history.trainable_parameters == plainly.trainable_parameters + 33
    assert history.losses[0]["loss"] > plainly.losses[0]["loss"]
    assert history.validation[0] == plainly.validation[0]  # of the targets alone
    again, other, resumed = train(tiny, tmp_path / "broken", adaptation, Beside(32), (7, 0))
    assert other == history and torch.equal(resumed.module.weight, objective.module.weight)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in whole.state_dict().items())


def test_the_usual_objective_is_none(tiny: Any, tmp_path: Path) -> None:
    found = [train(tiny, tmp_path / str(place), "full", given) for place, given in enumerate((None, Objective()))]
    assert found[0][1] == found[1][1]
    assert all(torch.equal(value, found[1][0].state_dict()[name]) for name, value in found[0][0].state_dict().items())
