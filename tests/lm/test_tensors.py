"""Files of tensors that are there whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from cirf.lm.training import phases


@pytest.mark.parametrize("metadata", [None, {"losses": "[1.0]"}])
def test_a_file_is_the_one_that_safetensors_writes(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    values = {"a": torch.arange(6.0).reshape(2, 3).t(), "b": torch.ones(2, dtype=torch.bfloat16, requires_grad=True)}
    phases.save_whole(values, tmp_path / "made" / "x.safetensors", metadata)
    save_file({name: value.detach().contiguous() for name, value in values.items()}, tmp_path / "y.safetensors", metadata)
    assert (tmp_path / "made" / "x.safetensors").read_bytes() == (tmp_path / "y.safetensors").read_bytes()


def test_what_is_killed_while_writing_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.safetensors"
    phases.save_whole({"a": torch.zeros(2)}, path)
    before = path.read_bytes()

    def half(values: object, place: Path, metadata: object) -> None:
        place.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(phases, "save_file", half)
    with pytest.raises(KeyboardInterrupt):
        phases.save_whole({"a": torch.ones(2)}, path)
    assert path.read_bytes() == before and [place.name for place in tmp_path.iterdir()] == [path.name]
