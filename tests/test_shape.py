"""The benchmark of a shape (`benchmarks.shape`), at a tiny one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks import shape, shape_decode, shape_model
from benchmarks.shape_model import Lengths

from cirf.errors import CirfError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def answering() -> tuple[Any, Any]:
    """A tiny model that never ends, and its tokenizer."""
    model, tokenizer = shape_model.build_model("tiny", "cpu", "float32"), shape_model.build_tokenizer()
    shape_model.never_end(model, tokenizer)
    return model, tokenizer


def test_the_large_shape_has_as_many_weights_as_the_published_model() -> None:
    model = shape_model.build_model("qwen3-8b", "meta", "bfloat16")
    assert sum(parameter.numel() for parameter in model.parameters()) == 8_190_735_360


def test_lengths_are_those_of_the_papers_tables() -> None:
    lengths = shape_model.paper_lengths("gsm8k")
    assert lengths == {
        "cirf_full": Lengths(34, 4),
        "cirf_fast": Lengths(26, 4),
        "cirf_faster": Lengths(19, 4),
        "cot": Lengths(195),
    }


def test_rows_have_the_lengths_asked_for(answering: tuple[Any, Any]) -> None:
    from cirf.lm.training.batches import tokenise

    model, tokenizer = shape_model.build_model("tiny", "cpu", "float32"), shape_model.build_tokenizer()
    new = shape_model.new_tokens(model, tokenizer)
    features, dropped = tokenise(shape_model.rows(200, Lengths(30, 4), 40), tokenizer, 1024, new)
    asked, written = (
        torch.tensor(counts).double() for counts in zip(*((f.start, len(f.ids) - f.start) for f in features), strict=True)
    )
    assert not dropped
    assert asked.mean() == pytest.approx(40, rel=0.05) and (asked.min(), asked.max()) >= (20, 60)
    assert written.mean() == pytest.approx(30, rel=0.05)
    assert all(sum(token in new[2:] for token in feature.ids) == 4 for feature in features)


def test_operations_of_a_training_by_hand() -> None:
    model = torch.nn.Module()
    model.body, model.head = torch.nn.Linear(8, 8, bias=False), torch.nn.Linear(8, 20, bias=False)
    model.config = type("Config", (), {"num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 4})()
    model.config.get_text_config = lambda: model.config
    model.get_output_embeddings = lambda: model.head
    full = 6 * 10 * 64 + 6 * 3 * 160 + 3 * 2 * 100 * 8  # layers, head at three targets, half of the square of attention
    assert shape_model.training_flops(model, [(10, 3)], None) == full
    adapted = 10 * (4 * 64 + 6 * 16) + 4 * 3 * 160 + 3 * 2 * 100 * 8
    assert shape_model.training_flops(model, [(10, 3)], 16) == adapted


def test_bytes_of_a_step_leave_the_input_matrix_out(answering: tuple[Any, Any]) -> None:
    model, _ = answering
    weights = sum(parameter.numel() for parameter in model.parameters()) - 640 * 64
    keys_and_values = 2 * 2 * 2 * 16
    assert shape_model.decode_bytes(model, 3, 50) == 4 * (weights + 3 * 64 + 3 * 50 * keys_and_values)


@pytest.mark.parametrize("batch", [1, 3])
def test_all_engines_write_the_same_tokens(answering: tuple[Any, Any], batch: int) -> None:
    model, tokenizer = answering
    prompts = shape_model.prompts(batch, 7)
    own, *others = shape.engines(model, tokenizer, batch, 7 + 20)
    wanted = own.write(prompts, 18)
    assert [len(row) for row in wanted] == [18] * batch
    for engine in others:
        engine.write(prompts, 5)  # what a call leaves in the cache does not matter to the next
        assert engine.write(prompts, 18) == wanted
        engine.forget()
    other = [(*row[:9], (row[9] + 1) % 500, *row[10:]) for row in wanted]
    found = shape_decode.apart(model, tokenizer, prompts, wanted, other)
    assert found["same"] == 0 and found["of"] == batch and found["largest_lead"] > 0


def test_a_cell_without_room_or_with_a_fault_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    def full() -> dict[str, Any]:
        try:
            raise torch.OutOfMemoryError("CUDA out of memory")
        except torch.OutOfMemoryError:
            raise CirfError("the memory of cuda is too small") from None

    def broken() -> dict[str, Any]:
        raise RuntimeError("no compiler\nand more")

    assert shape.attempt(full) == {"failed": "out of memory"}
    assert shape.attempt(broken) == {"failed": "RuntimeError: no compiler"}


def test_every_part_at_the_tiny_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shape, "ROWS_AN_UPDATE", 4)
    lengths = {"cirf_full": Lengths(9, 2), "cot": Lengths(12)}
    monkeypatch.setattr(shape_model, "paper_lengths", lambda task: lengths)
    sizes = ["--prompt", "8", "--rank", "2", "--batches-trained", "2", "--updates", "1", "--warmup", "1", "--batches", "1", "2"]
    small = ["--shape", "tiny", "--device", "cpu", "--steps", "8", "--repeats", "1", "--methods", "cirf_full"]
    shape.main([*sizes, *small, "--out", str(tmp_path / "shape.json")])
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert line == json.loads((tmp_path / "shape.json").read_text())
    cells = [*line["training"], *line["decoding"], *line["latency"]]
    assert not [cell for cell in cells if "failed" in cell]
    assert [(cell["adaptation"], cell["recomputed"]) for cell in line["training"]] == [
        ("lora", False),
        ("full", True),
        ("full", False),
    ]
    assert all(cell["tokens_per_s"] > 0 and 0 < cell["share_of_peak"] < 1 for cell in line["training"])
    assert len(line["decoding"]) == 6 and all(cell["same"] == cell["of"] for cell in line["decoding"])
    assert len(line["latency"]) == 12
