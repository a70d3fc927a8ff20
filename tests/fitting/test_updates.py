"""How many updates rows make, what is too few, and what to do about it; how large a model is by its name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cirf.fitting import size_in_name, updates_of
from cirf.fitting.updates import in_words
from cirf.lm.training.spec import plan_updates
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


@pytest.mark.parametrize(
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
