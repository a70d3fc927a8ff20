"""Frozen weights multiplied in eight bits: near the exact products, position by position, and no part of what is saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
import tinyrun
import torch
from hypothesis import given
from hypothesis import strategies as st

from cirf import recipe
from cirf.lm import int8_products
from cirf.lm.adapters import add_second, through
from cirf.lm.finetune import Row, finetune
from cirf.lm.int8_products import Frozen, weight_bits
from cirf.lm.lora_linear import in_place
from cirf.lm.vocabulary import extend
from cirf.methods import get
from cirf.stages import keys

DTYPES = [torch.float32, torch.bfloat16]
HERE = torch.backends.mkldnn.is_available() and torch.cpu._is_avx2_supported()  # where seven bits can be tried
BITS = [8, 7] if HERE else [8]
IDS = torch.arange(24).reshape(2, 12) % 300


@given(*map(st.integers, (1, 2, 2), (20, 80, 40)), st.floats(-20, 20), st.sampled_from(DTYPES), st.sampled_from(BITS))
def test_a_product_is_as_near_as_half_a_step_of_each_side_lets_it_be(
    m: int, k: int, n: int, size: float, dtype: torch.dtype, bits: int
) -> None:
    torch.manual_seed(m + 31 * k + 997 * n)
    x, weight = (torch.randn(m, k) * 2.0**size).to(dtype), torch.randn(n, k)
    weight[0] = 0
    gradient, frozen = torch.randn(m, n).to(dtype), Frozen(weight, bits)
    for found, a, b in ((frozen.forwards(x), x.float(), weight.t()), (frozen.backwards(gradient), gradient.float(), weight)):
        assert found.dtype == dtype and found.shape == (m, b.shape[1])
        steps = a.abs().amax(1, keepdim=True) / 127, b.abs().amax(0, keepdim=True) / (127 if bits == 8 else 64)
        bound = steps[0] / 2 * b.abs().sum(0) + steps[1] / 2 * a.abs().sum(1, keepdim=True) + len(b) * steps[0] * steps[1] / 4
        slack = 2.0**-7 if dtype == torch.bfloat16 else 1e-4
        assert ((found.float() - a @ b).abs() <= bound * (1 + slack) + slack * (a.abs() @ b.abs())).all()


@given(st.integers(2, 12), st.integers(0, 11), st.sampled_from(list(map(float, ("nan", "inf", "-inf")))), st.sampled_from(BITS))
def test_a_position_is_rounded_by_itself_and_what_is_no_number_stays_none(m: int, spoilt: int, bad: float, bits: int) -> None:
    torch.manual_seed(m)
    x, frozen = torch.randn(m, 33) * torch.logspace(-3, 3, m)[:, None], Frozen(torch.randn(17, 33), bits)
    together = frozen.forwards(x)
    assert all(torch.equal(frozen.forwards(x[row : row + 1])[0], together[row]) for row in range(m))
    spoilt %= m
    x[spoilt, 5] = bad
    found = frozen.forwards(x)
    assert found[spoilt].isnan().all()
    assert torch.equal(found[torch.arange(m) != spoilt], together[torch.arange(m) != spoilt])
    assert torch.equal(frozen.forwards(torch.zeros(2, 33)), torch.zeros(2, 17))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("m", [512, 513, 1100])
def test_many_positions_are_multiplied_in_blocks_as_few_are(m: int, bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(m)
    sizes: list[int] = []
    for way in (int8_products._Whole, int8_products._Short):
        call = way.__call__
        monkeypatch.setattr(way, "__call__", lambda own, x, call=call: sizes.append(len(x)) or call(own, x))
    x, gradient, frozen = torch.randn(m, 33), torch.randn(m, 17), Frozen(torch.randn(17, 33), bits)
    for product, sides in ((frozen.forwards, x), (frozen.backwards, gradient)):
        found, blocks = product(sides), list(sizes)
        assert sum(blocks) == m and max(blocks) == 512 and len(blocks) == -(-m // 512)
        assert torch.equal(found, torch.cat([product(few) for few in sides.split(100)]))
        sizes.clear()


def _passed(model: Any, bits: int | None, bf16: bool) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model.zero_grad()
    with in_place(model, bits) as (layers, rounded):
        assert (layers, rounded) == (14, 14 if bits else 0)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            logits = model(input_ids=IDS).logits.float()
        logits[..., :7].square().mean().backward()
    return logits.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("bf16", [False, True])
def test_a_models_outputs_and_gradients_are_near_the_exact_ones(bf16: bool, bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, made = tiny.build_adapted(), []
    monkeypatch.setattr(int8_products, "_product", lambda *args, whole=int8_products._product: made.append(1) or whole(*args))
    exact, none = _passed(model, None, bf16), len(made)
    near = _passed(model, bits, bf16)
    assert none == 0 and len(made) == 28 - 3  # nothing trained stands before the first layer's three
    assert 1e-4 < (near[0] - exact[0]).norm() / exact[0].norm() < 0.05
    assert near[1].keys() == exact[1].keys() and len(near[1]) > 20
    for name, gradient in exact[1].items():
        assert torch.cosine_similarity(near[1][name].flatten(), gradient.flatten(), 0) > 0.98, name


def test_a_model_is_judged_and_left_with_exact_products() -> None:
    model = tiny.build_adapted()
    with torch.no_grad():
        wanted = model(input_ids=IDS).logits
        with in_place(model, BITS[-1]):
            rounded = model(input_ids=IDS).logits
            judged = model.eval()(input_ids=IDS).logits
        left = model.train()(input_ids=IDS).logits
    torch.testing.assert_close(judged, wanted)
    assert torch.equal(left, wanted) and not torch.allclose(rounded, wanted, rtol=1e-3, atol=1e-3)


def test_second_adapters_go_through_eight_bits_and_adapters_with_dropout_do_not() -> None:
    model = tiny.build_adapted()
    add_second(model, recipe.Lora(rank=2, alpha=2), "second", 3)
    with torch.no_grad(), through(model, "second"):
        wanted = model(input_ids=IDS).logits
        with in_place(model, BITS[-1]):
            found = model(input_ids=IDS).logits
    assert 1e-4 < (found - wanted).norm() / wanted.norm() < 0.05
    for other, layers in ((tiny.build_adapted(dropout=0.1), 14), (tiny.build_adapted(kind="gpt2"), 0)):
        with in_place(other, BITS[-1]) as counts:
            assert counts == (layers, 0)


def _multiplies(monkeypatch: pytest.MonkeyPatch, vnni: bool, avx2: bool, most: float) -> int | None:
    """Weight bits of a processor with these instructions, whose sums hold at most ``most`` of two products."""

    def summed(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """[m x n] of [m x k] and [k x n]."""
        pairs = one.int().unflatten(1, (-1, 2))[..., None] * other.int().unflatten(0, (-1, 2))[None]
        return pairs.sum(dim=2).clamp(-most - 1, most).sum(dim=1).int()

    def signed(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return summed(one.int() + 128, other) - 128 * other.sum(dim=0).int()

    def raised(x: torch.Tensor, scale: float, zero: int, weight: torch.Tensor, scales: torch.Tensor, *rest: Any) -> torch.Tensor:
        return (summed(x, weight.t()) - zero * weight.sum(dim=1).int()).float() * scale * scales

    monkeypatch.setattr(int8_products.torch.cpu, "_is_vnni_supported", lambda: vnni)
    monkeypatch.setattr(int8_products.torch.cpu, "_is_avx2_supported", lambda: avx2)
    monkeypatch.setattr(int8_products.torch, "_int_mm", signed)
    monkeypatch.setattr(torch.ops.onednn, "qlinear_prepack", lambda weight, shape: weight)
    monkeypatch.setattr(torch.ops.onednn, "qlinear_pointwise", raised)
    return weight_bits("cpu")


def test_weights_have_as_many_bits_as_the_processor_adds_up_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    wide, narrow = float(2**31), float(2**15 - 1)
    assert _multiplies(monkeypatch, True, True, wide) == 8
    assert weight_bits("cuda") is None
    for amx, half, told, bits in (
        (True, True, None, None),
        (True, True, "AVX512_CORE_AMX", None),
        (True, True, "AVX512_CORE_VNNI", 8),
        (True, False, None, 8),
        (False, True, None, 8),
    ):
        monkeypatch.setattr(int8_products.torch.cpu, "_is_amx_tile_supported", lambda amx=amx: amx)
        monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
        if told:
            monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", told)
        assert weight_bits("cpu", half) == bits
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    assert _multiplies(monkeypatch, True, True, narrow) == 7  # told to leave VNNI out
    assert _multiplies(monkeypatch, False, True, narrow) == 7
    assert _multiplies(monkeypatch, False, True, narrow / 2) is None
    assert _multiplies(monkeypatch, False, False, wide) is None
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert _multiplies(monkeypatch, True, True, wide) is None


@pytest.mark.skipif(not HERE, reason="needs AVX2 and oneDNN")
@pytest.mark.parametrize(("m", "k", "n"), [(1, 896, 4864), (450, 896, 128), (450, 4864, 30), (3, 31, 5)])
def test_the_largest_sums_of_seven_bits_are_exact_here(m: int, k: int, n: int) -> None:
    assert int8_products._exact(7)
    x, weight = 127.0 * torch.ones(m, k), 64.0 * torch.ones(n, k)
    x[1::3], weight[::2] = -127.0, -64.0  # rows of one sign: nothing cancels
    assert torch.equal(int8_products._Short(weight)(x.clone()), x @ weight.t())


def _section(**keys: Any) -> recipe.Finetune:
    base = {"lora": {"rank": 2, "alpha": 4}, "epochs": 20, "accumulation": 1, "learning_rate": 1e-2, "weights": "int8"}
    return recipe.Finetune.model_validate(base | {"bf16": False, "warmup_steps": 2} | keys)


def test_a_training_learns_and_the_saved_weights_are_the_exact_ones(
    tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [Row(f"{i} plus {i} is ", f"<cirf><cirf_00{i}>{i}</cirf>{2 * i}") for i in range(8)]
    kept = {}
    for name, bits, weights in (
        ("int8", 8, "int8"),
        ("again", 8, "int8"),
        ("seven", BITS[-1], "int8"),
        ("without", None, "int8"),
        ("saved", 8, "saved"),
    ):
        monkeypatch.setattr("cirf.lm.finetune.weight_bits", lambda device, half, bits=bits: bits)
        model, own = tiny.build_model("llama"), tiny.build_tokenizer()
        own.chat_template = tokenizer.chat_template
        ids = extend(model, own, None, recipe.Vocabulary(alpha="mean"), 8, 0)
        before = {name: value.clone() for name, value in model.state_dict().items() if "_proj" in name}
        trained, history, _ = finetune(model, own, rows, rows[:2], _section(weights=weights), "x", ids, tmp_path / name, 0)
        assert history.losses[-1]["loss"] < history.losses[0]["loss"] - 1.5
        after, changed = trained.state_dict(), 0
        for name_of, value in before.items():
            moved = (after[name_of] - value).double()
            strengths = torch.linalg.svdvals(moved)
            changed += bool(strengths[0] > 1e-3)
            assert strengths[2:].max() <= 1e-5 * (1 + strengths[0]), name_of  # an adapter of rank 2 and nothing else
        assert changed == len(before) == 14
        kept[name] = history
    assert kept["int8"] == kept["again"] and kept["without"] == kept["saved"]
    assert kept["int8"].computed_in == "float32, frozen weights in int8" and kept["saved"].computed_in == "float32"
    assert kept["seven"].computed_in == "float32, frozen weights in 7 bits" or not HERE
    assert (kept["seven"].losses != kept["int8"].losses) == HERE
    assert kept["int8"].validation[0] == kept["saved"].validation[0]
    assert kept["int8"].losses[0]["loss"] != kept["saved"].losses[0]["loss"]


@pytest.mark.parametrize(
    ("bf16", "dtype", "half"), [(False, "float32", False), (True, "float32", True), (False, "bfloat16", True)]
)
def test_a_training_tells_whether_its_floats_have_16_bits(
    tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bf16: bool, dtype: str, half: bool
) -> None:
    told: list[bool] = []
    monkeypatch.setattr("cirf.lm.finetune.weight_bits", lambda device, half: told.append(half))
    monkeypatch.setattr("cirf.lm.number_formats._multiplies", lambda dtype: True)
    model, own = tiny.build_model("llama").to(getattr(torch, dtype)), tiny.build_tokenizer()
    own.chat_template = tokenizer.chat_template
    ids = extend(model, own, None, recipe.Vocabulary(alpha="mean"), 8, 0)
    finetune(model, own, [Row("1 is ", "1")] * 4, [], _section(epochs=1, bf16=bf16), "x", ids, tmp_path, 0)
    assert told == [half]


def test_a_recipe_without_frozen_weights_is_refused(workshop: tinyrun.Workshop, tmp_path: Path) -> None:
    for number, (wrong, said) in enumerate(
        (
            ({"finetune__adaptation": "full"}, "no weight is frozen"),
            ({"finetune__adaptation": "lora", "finetune__lora": {"rank": 4, "dropout": 0.1}}, "without dropout"),
        )
    ):
        given_keys: dict[str, Any] = {"methods": ["direct_sft"], "finetune__weights": "int8"} | wrong
        file = workshop.recipe(tmp_path / "recipe.yaml", **given_keys)
        assert said in tinyrun.cirf("run", file, "--out", tmp_path / str(number)).error()


def test_saved_weights_leave_a_stages_key_as_it_was_and_frozen_models_do_not_read_the_setting() -> None:
    def key(method: str, weights: str) -> Any:
        made = recipe.Recipe.model_validate(
            {
                "name": "x",
                "methods": [method],
                "problems": {"tasks": [{"task": "gsm8k"}]},
                "backbone": {"model": "bundled:smollm2-135m-instruct"},
                "finetune": {"weights": weights},
            }
        )
        return keys.training(made, made.finetune, get(method, made))

    assert "weights" not in key("direct_sft", "saved")["finetune"]
    assert key("direct_sft", "int8") != key("direct_sft", "saved")
    assert key("soft_cot", "int8") == key("soft_cot", "saved")
