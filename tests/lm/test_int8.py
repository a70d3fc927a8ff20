"""Layers in int8 compute what their rounded weights say, near what the plain ones do, whatever is asked beside it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import tinyrun
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from cirf.errors import CirfError
from cirf.lm import int8
from cirf.lm.int8 import FEW, Int8Linear, quantise, settle_weights
from cirf.lm.memory import weight_bytes

pytestmark = pytest.mark.skipif(not int8._is_there(), reason="this torch has no product of int8 weights")


def layer(inputs: int, outputs: int, bias: bool = True, scale: float = 1.0) -> nn.Linear:
    torch.manual_seed(inputs)
    made = nn.Linear(inputs, outputs, bias=bias)
    made.weight.data *= scale * torch.logspace(-3, 3, outputs)[:, None]  # rows of every size
    return made


@given(
    inputs=st.integers(1, 70), outputs=st.integers(1, 70), rows=st.integers(1, 2 * FEW), bias=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)  # fmt: skip
def test_products_are_those_of_the_rounded_weights(inputs: int, outputs: int, rows: int, bias: bool, dtype: torch.dtype) -> None:
    plain = layer(inputs, outputs, bias).to(dtype)
    eight = Int8Linear(plain)
    dense = eight._int8[:outputs, :inputs].float() * eight._scale[:outputs, None].float()
    largest = plain.weight.float().abs().amax(dim=1, keepdim=True)
    # A scale in bfloat16 is right to 1/256: half a step, and what the largest weights are cut by.
    assert ((dense - plain.weight.float()).abs() <= largest * (0.5 / 127 + 1 / 256) + 1e-30).all()
    x = torch.randn(rows, inputs).to(dtype)
    with torch.inference_mode():
        found = eight(x)
    assert found.shape == (rows, outputs) and found.dtype == dtype
    wanted = x.float() @ dense.t() + (plain.bias.detach().float() if bias else 0)
    room = 0.02 * (x.float().norm(dim=1, keepdim=True) * dense.norm(dim=1) + wanted.abs())
    assert ((found.float() - wanted).abs() <= room).all()


def test_a_row_does_not_hang_on_the_others_and_shapes_are_kept() -> None:
    eight = Int8Linear(layer(64, 96))
    x = torch.randn(FEW, 64)
    with torch.inference_mode():
        torch.testing.assert_close(eight(x), torch.cat([eight(row[None]) for row in x]))
        torch.testing.assert_close(eight(x.reshape(2, FEW // 2, 64)), eight(x).reshape(2, FEW // 2, 96))


def test_zeros_stay_zeros() -> None:
    empty = nn.Linear(8, 3)
    nn.init.zeros_(empty.weight)
    with torch.inference_mode():
        assert torch.equal(Int8Linear(empty)(torch.ones(1, 8))[0], empty.bias)


@pytest.mark.parametrize(("kind", "tied"), [("llama", True), ("qwen2", False)])
def test_a_model_in_int8_is_nearly_the_model(tiny: Any, tokenizer: Any, kind: str, tied: bool) -> None:
    model, ids = tiny.build_model(kind, tied), torch.tensor([tokenizer("What is 12 plus 7?").input_ids])
    embeddings = model.get_input_embeddings().weight.clone()
    with torch.inference_mode():
        plain = model(input_ids=ids[:, :FEW]).logits
        linear = sum(isinstance(module, nn.Linear) for module in model.modules())
        before = weight_bytes(model)
        assert quantise(model, smallest=1) == linear and not any(isinstance(part, nn.Linear) for part in model.modules())
        assert before / 4 < weight_bytes(model) < before
        few, many = model(input_ids=ids[:, :FEW]).logits, model(input_ids=ids).logits
    assert torch.equal(model.get_input_embeddings().weight, embeddings)
    for found in (few, many[:, :FEW]):
        assert 0 < float((found - plain).abs().max()) < 0.05 * float(plain.abs().max())


def test_what_cannot_be_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CirfError, match="0 of this model's 72 weights could be held as int8"):
        quantise(nn.Sequential(nn.Linear(8, 8)))  # too small to gain
    with pytest.raises(CirfError, match="too few"):
        quantise(nn.Sequential(nn.Linear(8, 8), nn.Bilinear(8, 8, 8)), smallest=1)
    with pytest.raises(CirfError, match="for CPUs"):
        quantise(nn.Sequential(nn.Linear(8, 8, device="meta")), smallest=1)
    with pytest.raises(RuntimeError, match="not saved"):
        Int8Linear(nn.Linear(8, 8)).state_dict()
    monkeypatch.setattr(int8, "_is_there", lambda: False)
    with pytest.raises(CirfError, match="this torch has no product"):
        quantise(nn.Sequential(nn.Linear(8, 8)), smallest=1)


def test_a_run_that_could_not_answer_so_is_told_before_it_begins(
    workshop: tinyrun.Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(int8, "_is_there", lambda: False)
    recipe = workshop.recipe(tmp_path / "recipe.yaml", evaluate__weights="int8")
    said = tinyrun.cirf("run", recipe, "--out", tmp_path / "run")
    assert "this torch has no product" in said.error() and not (tmp_path / "run" / "segments").exists()


@pytest.mark.parametrize("largest", [1e-4, 1e-7])
def test_small_weights_keep_their_size_in_float16(largest: float) -> None:
    plain = nn.Linear(64, 8, bias=False)
    plain.weight.data *= largest / plain.weight.data.abs().max()
    dense = Int8Linear(plain)._dense(slice(0, 8), torch.float16).float()
    torch.testing.assert_close(dense, plain.weight.data, rtol=0, atol=largest / 64 + 6e-8)


def test_a_view_is_held_like_its_copy() -> None:
    view, copy = nn.Linear(64, 64), nn.Linear(64, 64)
    view.weight = nn.Parameter(torch.randn(64, 64).t())
    copy.weight, copy.bias = nn.Parameter(view.weight.detach().clone().contiguous()), view.bias
    with torch.inference_mode():
        assert torch.equal(Int8Linear(view)(torch.eye(64)[:3]), Int8Linear(copy)(torch.eye(64)[:3]))


def test_a_run_evaluated_in_int8_keeps_its_models_and_says_so(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def small(model: Any, weights: str, attention: str) -> None:
        made.append(quantise(model, smallest=1)) if weights == "int8" else settle_weights(model, weights, attention)

    monkeypatch.setattr("cirf.lm.int8.settle_weights", small)
    said = tinyrun.cirf("evaluate", finished, "--set", "evaluate.weights=int8", "--out", tmp_path / "out")
    assert said.code == 0, said.err
    assert made and "models/cirf_full ..." not in said.err and (tmp_path / "out/evaluation/cirf_full/sums.jsonl").is_file()
    assert '"dtype": "float32, weights in int8"' in (tmp_path / "out/latency/timings.json").read_text()
    held = len(made)
    said = tinyrun.cirf("evaluate", finished, "--out", tmp_path / "as saved")
    assert said.code == 0 and len(made) == held, said.err
    assert "answered with weights in int8" in (tmp_path / "out/report.html").read_text()
    asked = tinyrun.cirf("ask", finished, "How many?", "--int8", "--json")
    assert asked.code == 0 and len(made) == held + 1, asked.err

    run = tmp_path / "run"
    shutil.copytree(finished, run)
    for path in (run / "recipe.yaml", run / "models/cirf_full/recipe.yaml"):
        text = path.read_text()
        assert "weights: saved" in text
        path.write_text(text.replace("weights: saved", "weights: int8"))
    for options, more in (((), 2), (("--no-int8",), 2), (("--int8",), 3)):
        asked = tinyrun.cirf("ask", run, "How many?", *options, "--json")
        assert asked.code == 0 and len(made) == held + more, asked.err
