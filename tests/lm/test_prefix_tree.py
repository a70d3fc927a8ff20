"""A batch as a prefix tree: the same loss, the same gradients and the same training as rows with padding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from cirf.lm.prompt import prompt_text
from cirf.lm.training import attention
from cirf.lm.training import finetune as training
from cirf.lm.training.attention import as_trees, tree_of
from cirf.lm.training.batches import Feature, Row
from cirf.lm.training.finetune import finetune
from cirf.lm.training.objective import Objective
from cirf.lm.training.spec import TrainingSpec
from cirf.lm.vocabulary import extend
from cirf.recipe import schema

ROWS = [
    Feature((5, 6, 7, 8, 9), 2),
    Feature((5, 6, 7, 8, 1, 2, 3, 4), 4),  # begins as the first one does, targets and all
    Feature((5, 6, 7), 2),  # is the beginning of both
    Feature((9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9), 5),  # shares nothing
    Feature((5, 6, 7, 8, 1, 2, 3, 4), 4, skipped=(5, 3)),  # moves away from the second one
]


def test_nodes_are_what_rows_begin_with() -> None:
    ids, positions, tree = tree_of([Feature((1, 2, 3, 4), 1), Feature((1, 2, 5), 1), Feature((2, 1), 1)])
    assert ids.tolist() == [[1, 2, 3, 4, 5, 2, 1]]
    assert positions.tolist() == [[0, 1, 2, 3, 2, 0, 1]]
    assert tree["places"].tolist() == [[0, 1, 2, 3], [0, 1, 4, 0], [5, 6, 0, 0]]
    assert tree["first"].tolist() == [0, 1, 2, 3, 6, 8, 9]
    assert tree["again"].tolist() == [4, 5]


@pytest.mark.parametrize("short", [256, 4])  # plain products, or the fused kernel
@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2"])
@pytest.mark.parametrize("tied", [True, False])
def test_loss_and_gradients_are_those_of_rows(tiny: Any, monkeypatch: Any, kind: str, tied: bool, short: int) -> None:
    monkeypatch.setattr(attention, "SHORT", short)
    losses, gradients = [], []
    for trees in (True, False):
        model, objective = tiny.build_model(kind, tied).train(), Objective()
        with as_trees(model, 11, "cpu") if trees else nullcontext(False) as fits:
            assert fits == trees
            objective.trees = fits
            batch = objective.collate(ROWS, 0)
            assert batch["input_ids"].numel() == (5 + 4 + 11 + 3 if trees else 55)
            loss = objective.loss(model, batch, None)
            loss.backward()  # type: ignore[no-untyped-call]
        losses.append(loss.detach())
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    torch.testing.assert_close(*losses, atol=1e-5, rtol=1e-5)
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], atol=2e-5, rtol=1e-4, msg=lambda text, at=name: f"{at}: {text}")


def _train(tiny: Any, work: Path, **keys: Any) -> tuple[dict[str, torch.Tensor], list[float], list[float]]:
    model, tokenizer = tiny.build_model("llama", tied=False), tiny.build_tokenizer()
    ids = extend(model, tokenizer, None, schema.Vocabulary(alpha="mean"), 4, 0)
    rows = [
        Row(prompt_text(tokenizer, f"What is {i % 4} plus {i % 3}?"), f"<cirf><cirf_00{i % 4}>{i}</cirf>{i % 4 + i % 3}")
        for i in range(14)
    ]
    section = schema.Finetune.model_validate(
        {"batch_size": 4, "gradient_accumulation_steps": 2, "epochs": 3, "learning_rate": 1e-3, "warmup_steps": 1, "bf16": False,
         "lora": {"rank": 4, "alpha": 8}, **keys}
    )  # fmt: skip
    made, history, _ = finetune(model, tokenizer, rows[:12], rows[12:], TrainingSpec(section, "cirf_full", ids, work, 3))
    weights = {name: value.detach().clone() for name, value in made.named_parameters()}
    return weights, [row["loss"] for row in history.losses], [row["loss"] for row in history.validation]


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param({"adaptation": "full"}, marks=pytest.mark.slow),
        {"adaptation": "lora"},
        {"adaptation": "full", "gradient_checkpointing": True, "new_token_lr_multiplier": 3.0},
    ],
    ids=["full", "lora", "checkpointing"],
)
def test_training_comes_to_the_same(tiny: Any, tmp_path: Path, monkeypatch: Any, keys: dict[str, Any]) -> None:
    fitted: list[bool] = []

    @contextmanager
    def noted(*args: Any) -> Iterator[bool]:
        with as_trees(*args) as fits:
            fitted.append(fits)
            yield fits

    monkeypatch.setattr(training, "as_trees", noted)
    weights, losses, validation = _train(tiny, tmp_path / "trees", **keys)
    monkeypatch.setattr(training, "as_trees", lambda *_: nullcontext(False))
    plain, plain_losses, plain_validation = _train(tiny, tmp_path / "rows", **keys)
    assert fitted == [True]
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(plain_losses), atol=0, rtol=1e-3)
    torch.testing.assert_close(torch.tensor(validation), torch.tensor(plain_validation), atol=0, rtol=1e-3)
    for name, value in weights.items():
        torch.testing.assert_close(value, plain[name], atol=2e-4, rtol=1e-3, msg=lambda text, at=name: f"{at}: {text}")


def _windowed(model: Any) -> None:
    for layer in model.model.layers:
        layer.self_attn.sliding_window = 20


def _dropout(model: Any) -> None:
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.1


def _position_free(model: Any) -> None:
    forward = model.forward
    model.forward = lambda *args, position_ids=None, **keys: forward(*args, **keys)


@pytest.mark.parametrize("change", [_windowed, _dropout, _position_free])
def test_a_model_that_makes_something_else_of_it_keeps_rows(tiny: Any, change: Callable[[Any], None]) -> None:
    model = tiny.build_model("qwen2").train()
    change(model)
    with as_trees(model, 21, "cpu") as fits:
        assert not fits and model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize(("kind", "device"), [("gemma2", "cpu"), ("llama", "cuda")])
def test_other_kernels_and_devices_keep_theirs(tiny: Any, kind: str, device: str) -> None:
    model = tiny.build_model(kind).train()
    before = model.config._attn_implementation
    with as_trees(model, 12, device) as fits:
        assert not fits and model.config._attn_implementation == before


def test_an_objective_of_its_own_has_rows() -> None:
    class Other(Objective):
        def loss(self, *args: Any) -> torch.Tensor:
            return super().loss(*args)

    assert Objective().plain and not Other().plain
