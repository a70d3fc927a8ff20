"""The cost of a training: how many updates rows make, what is too few, and what to do about it; memory, more in float32 than in
16 bits; time, by operations and a timed product. How large a model is by its name.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tables import each_row

from cirf.fitting.cost import (
    idle,
    in_hours,
    in_words,
    operations,
    shard_memory,
    shares,
    size_in_name,
    speed,
    training_memory,
    updates_of,
)
from cirf.lm.training.spec import plan_updates
from cirf.recipe import schema
from cirf.recipe.schema import TOO_FEW_UPDATES, Finetune


def test_a_worked_example_says_what_to_do() -> None:
    found = updates_of(Finetune(epochs=2.0, batch_size=8, gradient_accumulation_steps=2), 285)
    assert (found.rows, found.updates, found.passes, found.too_few) == (285, 36, 2.0, True)
    assert found.summary == (
        "updates: 285 rows make 36 updates in 2 passes; fewer than 60 are too few for new tokens to be learned: "
        "set finetune.epochs: auto, or lower finetune.gradient_accumulation_steps"
    )
    assert (
        "gradient_accumulation_steps"
        not in updates_of(Finetune(epochs=2.0, batch_size=8, gradient_accumulation_steps=1), 285).summary
    )


def test_auto_makes_enough_and_where_it_cannot_other_keys_are_named() -> None:
    enough = updates_of(Finetune(epochs="auto", batch_size=8, gradient_accumulation_steps=2), 285)
    assert not enough.too_few and enough.summary == "updates: 285 rows make 162 updates in 9 passes"
    few = updates_of(Finetune(epochs="auto", batch_size=8, gradient_accumulation_steps=2), 14)
    assert few.too_few and few.summary.endswith(": lower finetune.gradient_accumulation_steps, or add rows")
    assert updates_of(Finetune(epochs="auto", batch_size=8, gradient_accumulation_steps=1), 8).summary.endswith(
        "batch_size, or add rows"
    )
    assert updates_of(Finetune(), 0).summary.startswith("updates: 0 rows make 0 updates")
    assert updates_of(Finetune(), 1).summary.startswith("updates: 1 row makes 30 updates in 30 passes; ")


@given(
    st.integers(1, 5000),
    st.one_of(st.just("auto"), st.floats(0.1, 50)),
    st.integers(1, 16),
    st.integers(1, 16),
)
def test_they_are_those_that_a_training_plans(
    rows: int, epochs: float | str, batch: int, gradient_accumulation_steps: int
) -> None:
    section = Finetune.model_validate(
        {"epochs": epochs, "batch_size": batch, "gradient_accumulation_steps": gradient_accumulation_steps}
    )
    found = updates_of(section, rows)
    settled = section.settled(rows)
    assert isinstance(settled.epochs, float)
    assert found.updates == plan_updates(rows, settled, settled.epochs).total
    assert found.too_few == (found.updates < TOO_FEW_UPDATES) == ("too few" in found.summary)


@each_row(
    ("name", "size"),
    [
        ("Qwen/Qwen3-1.7B", 1_700_000_000),
        ("meta-llama/Llama-3.1-8B-Instruct", 8_000_000_000),
        ("Qwen/Qwen3-30B-A3B", 30_000_000_000),
        ("bundled:smollm2-135m-instruct", 135_000_000),
        ("8B-lab/tiny", None),
        ("mistral-large", None),
        ("model-0b", None),
    ],
)
def test_the_size_in_a_name(name: str, size: int | None) -> None:
    assert size_in_name(name) == size


def test_sizes_in_words() -> None:
    assert [in_words(size) for size in (40_000, 494_000_000, 999_900_000, 1_700_000_000)] == [
        "40,000", "494 million", "1.0 billion", "1.7 billion",
    ]  # fmt: skip


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


def test_processes_that_share_the_weights_hold_a_part_and_what_is_gathered() -> None:
    shape = SIZES | {"inside": 800_000, "layer": 80_000, "layer_per_rank": 100, "matrices": 2}
    full, lora = (schema.Finetune.model_validate({"adaptation": name, "lora": {"rank": 2}}) for name in ("full", "lora"))
    found = shard_memory(full, shape, 2.0, 4)
    assert found == {"weights": 1e6, "gradients": 1e6, "moments": 2e6, "gathered": 3 * 4 * 100_000}
    found = shard_memory(lora, shape, 2.0, 4, new_rows=3)
    assert found["weights"] == (2e6 + 4 * 2600) / 4 and found["gradients"] == 2600 and found["moments"] == 2 * 2600
    assert found["gathered"] == 2 * (2 * 100_000 + 4 * 300) + 4 * 300
    tied = shard_memory(full, shape | {"inside": 900_000, "matrices": 1}, 2.0, 4)
    assert tied["gathered"] == 4 * (100_000 + 80_000) + 4 * 100_000


@each_row(
    ("passes", "batch", "processes", "said"),
    [
        (8, 4, 1, None),
        (8, 4, 8, None),
        (16, 4, 8, None),
        (8, 4, 16, "8 is not a multiple of the 16 processes, which idle 50% of the time in training; set it to 16, and "),
        (8, 4, 3, "8 is not a multiple of the 3 processes, which idle 11% of the time in training; set it to 9"),
    ],
)
def test_processes_that_idle_are_reported(passes: int, batch: int, processes: int, said: str | None) -> None:
    section = Finetune(gradient_accumulation_steps=passes, batch_size=batch)
    found = idle(section, processes)
    if said is None:
        assert found is None
    else:
        assert str(found).startswith(f"finetune.gradient_accumulation_steps: {said}")
    assert shares(section, processes) == max(1, -(-passes // processes)) / passes
    if processes == 16:
        assert str(found).endswith("and finetune.batch_size to 2 for as many rows an update")
