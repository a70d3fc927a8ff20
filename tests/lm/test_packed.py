"""Packed layers compute what plain ones do, and are saved as plain ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cirf.cpu.memory import weight_bytes
from cirf.cpu.packed import PackedLinear, can_pack, pack, unpack

pytestmark = pytest.mark.skipif(not can_pack(torch.zeros(8, 8)), reason="this torch has no oneDNN that packs weights")

FORMATS = [torch.float32, *([torch.bfloat16] if can_pack(torch.zeros(8, 8, dtype=torch.bfloat16)) else [])]


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("inputs", "outputs"), [(32, 32), (33, 7), (48, 200)])
def test_products_are_those_of_the_plain_layer(dtype: torch.dtype, bias: bool, inputs: int, outputs: int) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(inputs, outputs, bias=bias).to(dtype)
    packed = PackedLinear(layer)
    assert torch.equal(packed.weight, layer.weight)
    for shape in ((1, inputs), (4, inputs), (2, 5, inputs), (40, inputs)):
        x = torch.randn(shape).to(dtype)
        with torch.inference_mode():
            found, wanted = packed(x), layer(x)
        assert found.shape == wanted.shape and found.dtype == dtype
        if dtype == torch.bfloat16:
            assert torch.equal(found, wanted)
        torch.testing.assert_close(found, wanted)


def test_weights_count_in_whatever_form_they_are_held() -> None:
    model = nn.Sequential(nn.Embedding(9, 64), nn.Linear(64, 32), nn.Linear(32, 64, bias=False))
    wanted = 4 * (9 * 64 + 64 * 32 + 32 + 32 * 64)
    assert weight_bytes(model) == wanted
    assert pack(model, smallest=1) == 2 and len(list(model.parameters())) == 1
    assert weight_bytes(model) == wanted


def test_a_row_does_not_hang_on_the_others() -> None:
    torch.manual_seed(0)
    packed = PackedLinear(nn.Linear(64, 96).to(FORMATS[-1]))
    x = torch.randn(9, 64).to(FORMATS[-1])
    with torch.inference_mode():
        alone = torch.cat([packed(row[None]) for row in x])
        torch.testing.assert_close(packed(x), alone)


@pytest.mark.parametrize(("kind", "tied"), [("llama", True), ("qwen2", False)])
def test_a_packed_model_answers_and_is_saved_as_a_plain_one(
    tiny: Any, tokenizer: Any, tmp_path: Path, kind: str, tied: bool
) -> None:
    from transformers import AutoModelForCausalLM

    from cirf.lm.decoding.generate import generate
    from cirf.lm.prompt import prompt_text

    model = tiny.build_model(kind, tied)
    prompts = [prompt_text(tokenizer, question) for question in ("Hi?", "What is 12 plus 7?")]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    plain = generate(model, tokenizer, prompts, 8)
    assert pack(model) == 0  # too small to gain
    linear = sum(isinstance(module, nn.Linear) for module in model.modules())
    assert pack(model, smallest=1) == linear and not any(isinstance(module, nn.Linear) for module in model.modules())
    assert generate(model, tokenizer, prompts, 8) == plain
    assert {name: value.tolist() for name, value in model.state_dict().items()} == {
        name: value.tolist() for name, value in before.items()
    }
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert generate(loaded, tokenizer, prompts, 8) == plain
    unpack(model)
    assert sum(type(module) is nn.Linear for module in model.modules()) == linear
    assert (model.lm_head.weight is model.get_input_embeddings().weight) == tied
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert generate(model, tokenizer, prompts, 8) == plain


def test_what_torch_cannot_pack_stays_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(weight: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("not for this processor")

    model = nn.Sequential(nn.Linear(8, 8))
    monkeypatch.setattr("cirf.cpu.packed.packed_weight", refuse)
    assert pack(model, smallest=1) == 0 and type(model[0]) is nn.Linear
    assert pack(nn.Sequential(nn.Linear(8, 8, device="meta")), smallest=1) == 0
