"""What the outside of a run holds, as keys see it: contents, wherever they lie."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import tinyrun

from cirf.errors import CirfError
from cirf.fingerprints import file_hash, model_hash

LARGE = 130 * 2**20


def sparse(path: Path, at: int | None = None) -> Path:
    """A large file of zeros, with one other megabyte somewhere."""
    with open(path, "wb") as file:
        file.truncate(LARGE)
        if at is not None:
            file.seek(at)
            file.write(b"x" * 2**20)
    return path


@pytest.mark.parametrize("at", [LARGE // 3, LARGE - 2**20])
def test_other_large_weights_are_noticed(tmp_path: Path, at: int) -> None:
    one, other = sparse(tmp_path / "a.safetensors"), sparse(tmp_path / "b.safetensors", at)
    assert file_hash(one) != file_hash(other)
    os.link(other, tmp_path / "c.safetensors")
    assert file_hash(tmp_path / "c.safetensors") == file_hash(other)


def test_one_changed_byte_of_a_large_data_file_is_noticed(tmp_path: Path) -> None:
    path = sparse(tmp_path / "rows.jsonl")
    before = file_hash(path)
    with open(path, "r+b") as file:
        file.seek(LARGE // 7)
        file.write(b"x")
    assert file_hash(path) != before


def test_a_model_is_its_files_by_any_path(workshop: tinyrun.Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = shutil.copytree(workshop.backbone, tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    assert model_hash(str(workshop.backbone)) == model_hash(str(moved)) == model_hash("./model") == model_hash("model")
    (moved / "timings.json").write_text("{}")
    assert model_hash(str(workshop.backbone)) == model_hash(str(moved))
    with open(moved / "model.safetensors", "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\1")
    assert model_hash(str(workshop.backbone)) != model_hash(str(moved))
    assert model_hash("Qwen/Qwen3-8B") != model_hash("Qwen/Qwen3-4B")


def test_what_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    for path, says in ((tmp_path / "none", "no such file"), (tmp_path, "cannot be read")):
        with pytest.raises(CirfError, match=says):
            file_hash(path)
    for model in (str(tmp_path / "none"), str(tmp_path), "./none", "not a model", ""):
        with pytest.raises(CirfError):
            model_hash(model)
