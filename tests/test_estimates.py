"""The memory that a training is estimated to take: more in float32 than in 16 bits."""

from __future__ import annotations

from typing import Any

import pytest

from cirf.fitting.memory import training_memory
from cirf.recipe import schema

SIZES = {"parameters": 10**6, "layers": 10, "width": 100, "inner": 500, "vocabulary": 1000, "lora_per_rank": 1000}


def summary(keys: dict[str, Any], longest: int = 100, target: int = 0) -> float:
    section = schema.Finetune.model_validate({"batch_size": 1, "lora": {"rank": 1}} | keys)
    return training_memory(schema.Backbone(device="cpu"), section, SIZES, longest, target)


@pytest.mark.parametrize(("sixteen", "size"), [(True, 2), (False, 4)])
def test_activations_have_the_size_of_the_numbers_computed_with(
    sixteen: bool, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cirf.cpu.number_formats._multiplies", lambda dtype: sixteen or dtype == "float32")
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
