"""The estimated cost of a training: memory, more in float32 than in 16 bits; time, by its operations and a timed product."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

from cirf.fitting.cost import in_hours, operations, speed, training_memory
from cirf.recipe import schema

SHAPE = {"inside": 10_000, "width": 64, "inner": 128, "vocabulary": 1000}


def test_every_weight_costs_six_operations_a_token_and_adapters_four() -> None:
    full, lora = (schema.Finetune.model_validate({"adaptation": name}) for name in ("full", "lora"))
    assert operations(full, SHAPE, 10, 0) == 6 * 10_000 * 10
    assert operations(lora, SHAPE, 10, 3) == 4 * (10_000 * 10 + 64 * 1000 * 3)


def test_the_speed_follows_the_time_of_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    product = torch.Tensor.__matmul__

    def slower(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        time.sleep(0.02)
        return product(left, right)

    monkeypatch.setattr(torch.Tensor, "__matmul__", slower)
    found = speed(schema.Backbone(device="cpu"), schema.Finetune(batch_size=4), SHAPE, 64)
    assert 0 < found < 2.0 * 256 * 64 * 128 / 0.02


def test_time_in_words() -> None:
    assert [in_hours(seconds) for seconds in (1, 60, 119, 80 * 60, 2 * 3600 + 900)] == [
        "1 minute", "1 minute", "2 minutes", "80 minutes", "2.2 hours",
    ]  # fmt: skip


SIZES = {"parameters": 10**6, "layers": 10, "width": 100, "inner": 500, "vocabulary": 1000, "lora_per_rank": 1000}


def summary(keys: dict[str, Any], longest: int = 100, target: int = 0) -> float:
    section = schema.Finetune.model_validate({"batch_size": 1, "lora": {"rank": 1}} | keys)
    return training_memory(schema.Backbone(device="cpu"), section, SIZES, longest, target)


@pytest.mark.parametrize(("sixteen", "size"), [(True, 2), (False, 4)])
def test_activations_have_the_size_of_the_numbers_computed_with(
    sixteen: bool, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cirf.cpu.number_formats.is_fast", lambda dtype: sixteen or dtype == "float32")
    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc", ""))
    for adaptation in ("full", "lora"):
        hundred = summary({"adaptation": adaptation}, 200) - summary({"adaptation": adaptation})
        assert hundred == pytest.approx(3 * size * 100 * 10 * (10 * 100 + 4 * 500))
    assert summary({"bf16": False}, 200) - summary({"bf16": False}) == pytest.approx(
        3 * size * 100 * 10 * 3000
    )  # the backbone's format


def test_what_is_freed_is_kept_on_a_cpu_where_the_c_library_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = 3 * 4.0 * SIZES["vocabulary"]
    for library, times in (("glibc", 3), ("", 1)):
        monkeypatch.setattr("platform.libc_ver", lambda library=library: (library, ""))
        assert summary({}, target=10) - summary({}) == pytest.approx(times * 10 * logits)
    monkeypatch.undo()
    monkeypatch.setattr("cirf.lm.backbone.pick_device", lambda device: "cuda")
    assert summary({}, target=10) - summary({}) == pytest.approx(10 * logits)
