"""The loss on chosen positions is the loss on all of them, masked; and padding changes nothing. A training with an objective of
its own: what it collates, what it minimises, and what is trained beside the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from cirf.lm.prompt import prompt_text
from cirf.lm.training.batches import Feature, Row, collate
from cirf.lm.training.finetune import TrainableRows, finetune
from cirf.lm.training.loss import summed, target_logits
from cirf.lm.training.objective import Objective
from cirf.lm.training.spec import TrainingSpec
from cirf.lm.vocabulary import add_tokens, extend, matrices
from cirf.recipe import schema

KINDS = [("llama", True), ("llama", False), ("qwen2", True), ("qwen2", False), ("gpt2", True), ("gpt2", False), ("gemma2", True)]


def _batch(seed: int = 0) -> tuple[list[Feature], dict[str, torch.Tensor]]:
    draw = torch.Generator().manual_seed(seed)
    lengths = [(5, 9), (3, 20), (12, 13), (7, 11)]
    features = [Feature(tuple(torch.randint(0, 400, (n,), generator=draw).tolist()), start) for start, n in lengths]
    return features, collate(features, 0)


def _loss(model: Any, count: int | None = None, **batch: torch.Tensor) -> torch.Tensor:
    return summed(*target_logits(model, **batch), count)


def _full(model: Any, input_ids: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    logits = model(input_ids=input_ids, attention_mask=mask).logits[:, :-1].float()
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)


@pytest.mark.parametrize(("kind", "tied"), KINDS)
def test_value_and_gradient_equal_those_of_full_logits_with_a_mask(tiny: Any, kind: str, tied: bool) -> None:
    features, batch = _batch()
    mask = torch.tensor([[1] * len(f.ids) + [0] * (20 - len(f.ids)) for f in features])
    gradients, values = [], []
    for ours in (True, False):
        model = tiny.build_model(kind, tied)
        loss = _loss(model, **batch) if ours else _full(model, **batch, mask=mask)
        loss.backward()
        values.append(loss.detach())
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    torch.testing.assert_close(values[0], values[1], atol=1e-5, rtol=1e-5)
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], atol=1e-5, rtol=1e-4, msg=lambda text, at=name: f"{at}: {text}")


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_a_batch_is_the_token_mean_of_its_rows(tiny: Any, kind: str) -> None:
    model = tiny.build_model(kind)
    features, batch = _batch()
    alone = [_loss(model, **collate([feature], 0), count=1) for feature in features]
    count = sum(len(feature.ids) - feature.start for feature in features)
    torch.testing.assert_close(_loss(model, **batch), sum(alone) / count, atol=1e-5, rtol=1e-5)


def test_only_the_target_positions_reach_the_head(tiny: Any) -> None:
    model = tiny.build_model()
    seen: list[int] = []
    model.get_output_embeddings().register_forward_hook(lambda module, args, output: seen.append(output.shape[:-1].numel()))
    features, batch = _batch()
    _loss(model, **batch)
    assert seen == [sum(len(feature.ids) - feature.start for feature in features)]


@pytest.mark.parametrize(("kind", "tied"), KINDS)
def test_laid_over_rows_act_and_learn_as_rows_of_the_matrix(tiny: Any, kind: str, tied: bool) -> None:
    results = []
    for laid_over in (True, False):
        model = tiny.build_model(kind, tied)
        ids = extend(model, tiny.build_tokenizer(), None, schema.Vocabulary(alpha="mean"), 8, 0)
        _, batch = _batch()
        batch["input_ids"][0, 1:5] = torch.tensor(ids[:4])
        batch["input_ids"][1, 6:10] = batch["labels"][1, 6:10] = torch.tensor(ids[2:6])
        if laid_over:
            model.requires_grad_(False)
            rows = TrainableRows(model, ids)
            names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
            assert len(names) == (1 if tied else 2) and all(name.endswith("cirf_rows") for name in names)
        loss = _loss(model, **batch)
        loss.backward()
        inner, head = model.get_input_embeddings(), model.get_output_embeddings()
        modules = [inner] if tied else [inner, head]
        gradients = [module.cirf_rows.grad if laid_over else module.weight.grad[ids] for module in modules]
        with torch.no_grad():
            for module, gradient in zip(modules, gradients, strict=True):
                (module.cirf_rows if laid_over else module.weight[ids]).sub_(0.5 * gradient)
                if not laid_over:
                    module.weight[ids] = module.weight[ids] - 0.5 * gradient
        with torch.no_grad():
            after = _loss(model, **batch)
            if laid_over:
                rows.merge()
                torch.testing.assert_close(_loss(model, **batch), after, atol=1e-6, rtol=1e-6)
                assert not [name for name, _ in [*model.named_parameters(), *model.named_buffers()] if "cirf" in name]
        results.append((loss.detach(), after, *gradients))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("tied", [True, False])
def test_rows_that_are_only_read_are_in_the_input_matrix_alone_and_what_is_trained_is_what_is_saved(
    tiny: Any, tied: bool
) -> None:
    model, tokenizer = tiny.build_model("llama", tied), tiny.build_tokenizer()
    ids = add_tokens(model, tokenizer, ["<pause>"])
    before = [weight.detach().clone() for weight in matrices(model)]
    _, batch = _batch()
    batch["input_ids"][0, 1:5] = ids[0]
    model.requires_grad_(False)
    rows = TrainableRows(model, [], ids)
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert names == ["model.embed_tokens.cirf_rows"] and model.get_input_embeddings().cirf_rows.shape == (1, 32)
    _loss(model, **batch).backward()
    with torch.no_grad():
        row = model.get_input_embeddings().cirf_rows
        assert row.grad is not None and float(row.grad.norm()) > 0
        row.add_(1.0)
        trained = model(input_ids=batch["input_ids"]).logits
        rows.merge()
        saved = model(input_ids=batch["input_ids"]).logits
    torch.testing.assert_close(saved, trained, atol=1e-5, rtol=1e-5)
    for number, (weight, old) in enumerate(zip(matrices(model), before, strict=True)):
        changed = (weight != old).any(dim=1).nonzero().flatten().tolist()
        assert changed == (ids if number == 0 else []), number


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_what_is_behind_a_gap_in_the_positions_sees_what_is_before_it(tiny: Any, kind: str) -> None:
    model = tiny.build_model(kind)
    losses = [
        _loss(model, **collate([Feature((first, 6, 7, 8, 9), 3, skipped=(2, 4))], 0), count=1).detach() for first in (5, 50)
    ]
    assert abs(losses[0] - losses[1]) > 1e-3


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
    """The usual loss, and an auxiliary module that learns to predict a row's length from its first embedding."""

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
                model,
                tokenizer,
                rows,
                rows[:2],
                TrainingSpec(section, "x", [], work, 0, input_ids=new, objective=fresh),
                _Breaking(after),
            )
            return (*made[:2], fresh)
        except _Broken:
            continue
    raise AssertionError("it was never finished")


@pytest.mark.parametrize("adaptation", [pytest.param("full", marks=pytest.mark.slow), "lora"])
def test_a_module_is_trained_next_to_the_model_kept_over_a_kill_and_no_part_of_what_comes_out(
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
