"""Products by oneDNN are torch's own, with their gradients."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cirf import products
from cirf.products import by_onednn, linear

SIZES = st.integers(1, 40)


@given(rows=SIZES, inputs=SIZES, outputs=SIZES, biased=st.booleans(), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_values_and_gradients_are_torchs_own(rows: int, inputs: int, outputs: int, biased: bool, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    made = [torch.randn(shape, generator=draw) for shape in ((rows, inputs), (outputs, inputs), (outputs,))]
    sides = []
    for function in (linear, torch.nn.functional.linear):
        x, weight, bias = (value.clone().requires_grad_() for value in made)
        given_bias = bias if biased else None
        found = function(x, weight, given_bias)
        found.square().sum().backward()
        sides.append([found.detach(), x.grad, weight.grad, bias.grad if biased else None])
    for ours, theirs in zip(*sides, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_other_number_formats_and_a_torch_without_it_take_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = torch.randn(3, 4, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64)
    assert torch.equal(linear(x, weight), torch.nn.functional.linear(x, weight))
    monkeypatch.setattr(products, "_is_there", lambda: False)
    x, weight = x.float(), weight.float()
    assert torch.equal(linear(x, weight), torch.nn.functional.linear(x, weight))


def test_the_layers_of_a_module_go_by_it_and_keep_their_names() -> None:
    torch.manual_seed(0)
    whole = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3, bias=False))
    x = torch.randn(2, 5, 8)
    wanted = whole(x)
    wanted.square().sum().backward()
    gradients = [value.grad.clone() for value in whole.parameters() if value.grad is not None]
    names = list(whole.state_dict())
    whole.zero_grad()
    found = by_onednn(whole)(x)
    torch.testing.assert_close(found, wanted)
    found.square().sum().backward()
    assert list(whole.state_dict()) == names
    for value, gradient in zip(whole.parameters(), gradients, strict=True):
        torch.testing.assert_close(value.grad, gradient, rtol=1e-4, atol=1e-4)
