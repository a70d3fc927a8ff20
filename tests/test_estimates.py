"""What a training is foretold to take: more in float32 than in 16 bits, and more where frozen weights are rounded beside."""

from __future__ import annotations

from typing import Any

import pytest

from cirf import recipe
from cirf.commands.estimates import _memory

SIZES = {"parameters": 10**6, "layers": 10, "width": 100, "inner": 500, "vocabulary": 1000, "lora_per_rank": 1000}


def told(keys: dict[str, Any], longest: int = 100, target: int = 0) -> float:
    section = recipe.Finetune.model_validate({"batch_size": 1, "lora": {"rank": 1}} | keys)
    return _memory(recipe.Backbone(device="cpu"), section, SIZES, False, longest, target)


@pytest.mark.parametrize(("sixteen", "size"), [(True, 2), (False, 4)])
def test_activations_have_the_size_of_the_numbers_computed_with(
    sixteen: bool, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cirf.lm.number_formats._multiplies", lambda dtype: sixteen or dtype == "float32")
    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc", ""))
    for adaptation in ("full", "lora"):
        hundred = told({"adaptation": adaptation}, 200) - told({"adaptation": adaptation})
        assert hundred == pytest.approx(3 * size * 100 * 10 * (10 * 100 + 4 * 500))
    assert told({"bf16": False}, 200) - told({"bf16": False}) == pytest.approx(
        3 * size * 100 * 10 * 3000
    )  # the backbone's format


def test_what_is_freed_is_kept_on_a_cpu_where_the_c_library_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = 3 * 4.0 * SIZES["vocabulary"]
    for library, times in (("glibc", 3), ("", 1)):
        monkeypatch.setattr("platform.libc_ver", lambda library=library: (library, ""))
        assert told({}, target=10) - told({}) == pytest.approx(times * 10 * logits)
    monkeypatch.undo()
    monkeypatch.setattr("cirf.lm.backbone.pick_device", lambda device: "cuda")
    assert told({}, target=10) - told({}) == pytest.approx(10 * logits)


def test_rounded_weights_lie_beside_the_exact_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    halves: list[bool] = []
    monkeypatch.setattr("cirf.lm.int8_products.weight_bits", lambda device, half: halves.append(half))
    for multiplies in (True, False):
        monkeypatch.setattr(
            "cirf.lm.number_formats._multiplies", lambda dtype, multiplies=multiplies: multiplies or dtype == "float32"
        )
        for bf16 in (True, False):
            told({"weights": "int8", "bf16": bf16})
    assert halves == [True, True, False, False]  # the backbone's own format is bfloat16
    for bits in (8, 7, None):
        monkeypatch.setattr("cirf.lm.int8_products.weight_bits", lambda device, half, bits=bits: bits)
        assert told({"weights": "int8"}) - told({}) == (2 * SIZES["parameters"] if bits else 0)
