"""How long a training takes: its operations by rows and kind of training, the speed of a matrix product, and the words for it."""

from __future__ import annotations

import time

import pytest
import torch

from cirf.fitting.duration import in_hours, operations, speed
from cirf.recipe import schema

SIZES = {"inside": 10_000, "width": 64, "inner": 128, "vocabulary": 1000}


def test_every_weight_costs_six_operations_a_token_and_adapters_four() -> None:
    full, lora = (schema.Finetune.model_validate({"adaptation": name}) for name in ("full", "lora"))
    assert operations(full, SIZES, 10, 0) == 6 * 10_000 * 10
    assert operations(lora, SIZES, 10, 3) == 4 * (10_000 * 10 + 64 * 1000 * 3)


def test_the_speed_follows_the_time_of_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    product = torch.Tensor.__matmul__

    def slower(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        time.sleep(0.02)
        return product(left, right)

    monkeypatch.setattr(torch.Tensor, "__matmul__", slower)
    found = speed(schema.Backbone(device="cpu"), schema.Finetune(batch_size=4), SIZES, 64)
    assert 0 < found < 2.0 * 256 * 64 * 128 / 0.02


def test_time_in_words() -> None:
    assert [in_hours(seconds) for seconds in (1, 60, 119, 80 * 60, 2 * 3600 + 900)] == [
        "1 minute", "1 minute", "2 minutes", "80 minutes", "2.2 hours",
    ]  # fmt: skip
