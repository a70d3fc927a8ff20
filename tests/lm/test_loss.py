"""The loss on chosen positions is the loss on all of them, masked; and padding changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cirf.lm.training.batches import Feature, collate
from cirf.lm.training.loss import summed, target_logits
from cirf.lm.training.new_token_rows import TrainableRows
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
def test_what_stands_behind_a_gap_in_the_positions_sees_what_stands_before_it(tiny: Any, kind: str) -> None:
    model = tiny.build_model(kind)
    losses = [
        _loss(model, **collate([Feature((first, 6, 7, 8, 9), 3, skipped=(2, 4))], 0), count=1).detach() for first in (5, 50)
    ]
    assert abs(losses[0] - losses[1]) > 1e-3
