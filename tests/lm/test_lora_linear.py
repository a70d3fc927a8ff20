"""Adapters computed in place are PEFT's, forwards and backwards, and what is no plain adapter is left to PEFT."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st

from cirf.cpu.linear import AdaptedLinear, in_place
from cirf.lm.adapters import add_second, put_adapters, through
from cirf.recipe import schema

IDS = torch.arange(24).reshape(2, 12) % 300


def made(model: Any, quick: bool, bf16: bool = False) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Logits, and the gradients of all that is trained."""
    model.zero_grad()
    torch.manual_seed(5)
    with in_place(model) if quick else contextlib.nullcontext():
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            logits = model(input_ids=IDS).logits.float()
        logits[..., :7].square().mean().backward()
    return logits.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def close(ours: tuple[Any, Any], theirs: tuple[Any, Any], near: float) -> None:
    assert (ours[0] - theirs[0]).norm() <= near * theirs[0].norm()
    assert ours[1].keys() == theirs[1].keys() and len(ours[1]) > 20
    for name, gradient in theirs[1].items():
        assert ours[1][name].dtype == gradient.dtype == torch.float32
        assert (ours[1][name] - gradient).norm() <= near * gradient.norm() + 1e-9, name


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_outputs_and_gradients_are_those_of_peft(kind: str) -> None:
    model = tiny.build_adapted(kind=kind)
    close(made(model, True), made(model, False), 1e-5)


@pytest.mark.parametrize("alpha", [4, 6, 16])
def test_an_adapter_counts_alpha_over_rank_times(alpha: int) -> None:
    torch.manual_seed(0)
    model = put_adapters(tiny.build_model("qwen2"), schema.Lora(rank=4, alpha=alpha))
    layer = model.get_submodule("base_model.model.model.layers.0.mlp.up_proj")
    a, b, x = layer.lora_A["default"].weight, torch.nn.init.normal_(layer.lora_B["default"].weight), torch.randn(3, 32)
    wanted = layer.base_layer(x) + alpha / 4 * x @ a.t() @ b.t()
    torch.testing.assert_close(layer(x), wanted)
    with in_place(model):
        torch.testing.assert_close(layer(x), wanted)


def test_in_bfloat16_they_are_as_near_to_the_exact_ones_as_those_of_peft() -> None:
    model, exact = tiny.build_adapted(torch.bfloat16), tiny.build_adapted()
    with torch.no_grad():
        for mine, its in zip(exact.parameters(), model.parameters(), strict=True):
            mine.copy_(its)
    right = made(exact, False)

    def error(found: tuple[torch.Tensor, dict[str, torch.Tensor]]) -> float:
        parts = [(found[1][name] - gradient).norm() / gradient.norm() for name, gradient in right[1].items()]
        return float(torch.stack(parts).mean() + (found[0] - right[0]).norm() / right[0].norm())

    ours, theirs = error(made(model, True, bf16=True)), error(made(model, False, bf16=True))
    assert 0 < ours <= 1.1 * theirs < 0.5


@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 6), st.integers(1, 4), st.floats(-3, 3), st.booleans())
def test_its_gradients_are_those_of_its_differences(m: int, k: int, n: int, r: int, scale: float, bias: bool) -> None:
    torch.manual_seed(m + 7 * k + 49 * n)
    x, w, a, b = (torch.randn(shape, dtype=torch.float64) for shape in ((m, k), (n, k), (r, k), (n, r)))
    given_bias = torch.randn(n, dtype=torch.float64) if bias else None
    for tensor in (x, a, b):
        tensor.requires_grad_(True)
    whole = x @ w.t() + scale * (x @ a.t()) @ b.t() + (0 if given_bias is None else given_bias)
    out = AdaptedLinear.apply(x, w, given_bias, a, b, scale)
    torch.testing.assert_close(out, whole)
    asked = torch.randn_like(out)
    ours = torch.autograd.grad(out, (x, a, b), asked)
    theirs = torch.autograd.grad(whole, (x, a, b), asked)
    for mine, its in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.double(), its, rtol=1e-5, atol=1e-5)


def test_what_is_no_plain_adapter_is_left_to_peft() -> None:
    dropped = tiny.build_adapted(dropout=0.5)
    assert torch.equal(made(dropped, True)[0], made(dropped, False)[0])
    gpt2 = tiny.build_adapted(kind="gpt2")
    with in_place(gpt2) as count:
        assert count == 0  # its layers are no linear ones
    assert torch.equal(made(gpt2, True)[0], made(gpt2, False)[0])


def test_switched_off_and_second_adapters_are_honoured() -> None:
    model = tiny.build_adapted()
    add_second(model, schema.Lora(rank=2, alpha=2), "second", 3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B.second" in name:
                parameter.normal_(0, 0.2)
    with torch.no_grad():
        plain = model(input_ids=IDS).logits
        with in_place(model):
            first = model(input_ids=IDS).logits
            with through(model, "second"):
                second = model(input_ids=IDS).logits
            with model.disable_adapter():
                bare = model(input_ids=IDS).logits
        with through(model, "second"):
            wanted = model(input_ids=IDS).logits
        with model.disable_adapter():
            without = model(input_ids=IDS).logits
    torch.testing.assert_close(first, plain)
    torch.testing.assert_close(second, wanted)
    assert torch.equal(bare, without) and not torch.allclose(first, second) and not torch.allclose(first, bare)


def test_the_model_is_left_as_it_was() -> None:
    model = tiny.build_adapted()
    with in_place(model) as count:
        assert count == 14
        assert sum("forward" in vars(module) for module in model.modules()) >= 14
    before = made(model, False)[0]
    assert not any("forward" in vars(module) for module in model.modules() if type(module).__name__ == "Linear")
    merged = model.merge_and_unload()
    torch.testing.assert_close(merged(input_ids=IDS).logits.detach(), before, rtol=1e-4, atol=1e-4)
