"""Frozen weights multiplied in eight bits: near the exact products, position by position, and no part of what is saved."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import pytest
import tiny
import tinyrun
import torch
from hypothesis import given
from hypothesis import strategies as st

from cirf import recipe
from cirf.errors import CirfError
from cirf.lm import int8_products
from cirf.lm.adapters import put_adapters
from cirf.lm.finetune import Row, finetune
from cirf.lm.int8_products import Frozen, check_products
from cirf.lm.lora_linear import in_place
from cirf.lm.vocabulary import extend

DTYPES = [torch.float32, torch.bfloat16]
IDS = torch.arange(24).reshape(2, 12) % 300


@given(st.integers(1, 20), st.integers(2, 80), st.integers(2, 40), st.floats(-20, 20), st.sampled_from(DTYPES))
def test_a_product_is_as_near_as_half_a_step_of_each_side_lets_it_be(
    m: int, k: int, n: int, size: float, dtype: torch.dtype
) -> None:
    torch.manual_seed(m + 31 * k + 997 * n)
    x, weight = (torch.randn(m, k) * 2.0**size).to(dtype), torch.randn(n, k)
    weight[0] = 0
    gradient, frozen = torch.randn(m, n).to(dtype), Frozen(weight)
    for found, a, b in ((frozen.forwards(x), x.float(), weight.t()), (frozen.backwards(gradient), gradient.float(), weight)):
        assert found.dtype == dtype and found.shape == (m, b.shape[1])
        steps = a.abs().amax(1, keepdim=True) / 127, b.abs().amax(0, keepdim=True) / 127
        bound = steps[0] / 2 * b.abs().sum(0) + steps[1] / 2 * a.abs().sum(1, keepdim=True) + len(b) * steps[0] * steps[1] / 4
        slack = 2.0**-7 if dtype == torch.bfloat16 else 1e-4
        assert ((found.float() - a @ b).abs() <= bound * (1 + slack) + slack * (a.abs() @ b.abs())).all()


@given(st.integers(2, 12), st.integers(0, 11), st.sampled_from([float("nan"), float("inf"), float("-inf")]))
def test_a_position_is_rounded_by_itself_and_what_is_no_number_stays_none(m: int, spoilt: int, bad: float) -> None:
    torch.manual_seed(m)
    x, frozen = torch.randn(m, 33) * torch.logspace(-3, 3, m)[:, None], Frozen(torch.randn(17, 33))
    together = frozen.forwards(x)
    assert all(torch.equal(frozen.forwards(x[row : row + 1])[0], together[row]) for row in range(m))
    spoilt %= m
    x[spoilt, 5] = bad
    found = frozen.forwards(x)
    assert found[spoilt].isnan().all()
    assert torch.equal(found[torch.arange(m) != spoilt], together[torch.arange(m) != spoilt])
    assert torch.equal(frozen.forwards(torch.zeros(2, 33)), torch.zeros(2, 17))


def _adapted(dropout: float = 0.0, kind: str = "qwen2") -> Any:
    torch.manual_seed(1)
    model = put_adapters(tiny.build_model(kind), recipe.Lora(rank=4, alpha=8, dropout=dropout)).train()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.normal_(0, 0.2)
    return model


def _passed(model: Any, int8: bool | None) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model.zero_grad()
    with contextlib.nullcontext() if int8 is None else in_place(model, int8):
        logits = model(input_ids=IDS).logits
        logits[..., :7].square().mean().backward()
    return logits.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def test_a_models_outputs_and_gradients_are_near_the_exact_ones() -> None:
    model = _adapted()
    exact, near = _passed(model, False), _passed(model, True)
    assert 1e-4 < (near[0] - exact[0]).norm() / exact[0].norm() < 0.05
    assert near[1].keys() == exact[1].keys() and len(near[1]) > 20
    for name, gradient in exact[1].items():
        assert torch.cosine_similarity(near[1][name].flatten(), gradient.flatten(), 0) > 0.98, name
    torch.testing.assert_close(_passed(model, None)[0], exact[0])  # and the model is left as it was


def test_where_nothing_would_be_multiplied_so_it_is_refused() -> None:
    for model, said in ((_adapted(dropout=0.1), "dropout"), (_adapted(kind="gpt2"), "no linear layer")):
        with pytest.raises(CirfError, match=said), in_place(model, int8=True):
            pass
    with pytest.raises(CirfError, match="for CPUs"):
        check_products("cuda")


def test_a_torch_without_the_product_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    check_products("cpu")
    monkeypatch.setattr(int8_products.torch, "_int_mm", lambda one, other: (one.float() @ other.float()).int() + 1)
    with pytest.raises(CirfError, match="no product of int8 matrices"):
        check_products("cpu")


def test_a_training_learns_and_the_saved_weights_are_the_exact_ones(tokenizer: Any, tmp_path: Path) -> None:
    base = {"lora": {"rank": 8, "alpha": 16, "targets": "q_proj,v_proj"}, "epochs": 20, "accumulation": 1, "learning_rate": 1e-2}
    section = recipe.Finetune.model_validate(base | {"bf16": False, "warmup_steps": 2, "weights": "int8"})
    rows = [Row(f"{i} plus {i} is ", f"<cirf><cirf_00{i}>{i}</cirf>{2 * i}") for i in range(8)]
    kept = {}
    for name, weights in (("int8", "int8"), ("again", "int8"), ("saved", "saved")):
        model, own = tiny.build_model("llama"), tiny.build_tokenizer()
        own.chat_template = tokenizer.chat_template
        ids = extend(model, own, None, recipe.Vocabulary(alpha="mean"), 8, 0)
        before = {name: value.clone() for name, value in model.state_dict().items() if "down_proj" in name}
        chosen = section.model_copy(update={"weights": weights})
        trained, history, _ = finetune(model, own, rows, rows[:2], chosen, "x", ids, tmp_path / name, 0)
        assert history.losses[-1]["loss"] < history.losses[0]["loss"] - 1.5
        assert history.computed_in == ("float32, frozen weights in int8" if weights == "int8" else "float32")
        after = trained.state_dict()
        assert before and all(torch.equal(value, after[name]) for name, value in before.items())
        kept[name] = history
    assert kept["int8"] == kept["again"]
    assert dataclasses.replace(kept["int8"], computed_in="float32") != kept["saved"]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"finetune__adaptation": "full"}, "no weight is frozen"),
        ({"finetune__adaptation": "lora", "finetune__lora": {"rank": 4, "dropout": 0.1}}, "without dropout"),
    ],
)
def test_a_recipe_in_which_it_would_do_nothing_is_refused(
    workshop: tinyrun.Workshop, tmp_path: Path, keys: dict[str, Any], said: str
) -> None:
    keys = {"methods": ["direct_sft"], "finetune__weights": "int8"} | keys
    assert said in tinyrun.cirf("run", workshop.recipe(tmp_path / "recipe.yaml", **keys), "--out", tmp_path / "run").error()
