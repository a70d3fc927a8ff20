"""What is written piece by piece is, byte for byte, what the safetensors library writes at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from cirf.codebook import rows
from cirf.codebook.tensor_file import open_rows, save_rows
from cirf.errors import CirfError

TENSORS = {
    "segments": np.random.default_rng(0).standard_normal((37, 5)).astype(np.float32),
    "questions": np.random.default_rng(1).standard_normal((11, 5)).astype(np.float32),
}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("names", [("segments",), ("segments", "questions")])
@pytest.mark.parametrize("chunk", [1, 70, 2**23])
def test_same_bytes_as_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, names: tuple[str, ...], chunk: int
) -> None:
    monkeypatch.setattr(rows, "CHUNK", chunk)
    tensors = {name: TENSORS[name] for name in names}
    save_file({name: vectors.astype(dtype) for name, vectors in tensors.items()}, tmp_path / "library")
    save_rows(tmp_path / "ours", tensors, dtype)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "library").read_bytes()
    found, facts = open_rows(tmp_path / "ours")
    assert set(found) == set(names) and facts == {}
    for name, vectors in load_file(tmp_path / "library").items():
        np.testing.assert_array_equal(found[name][:], vectors.astype(np.float32))


def test_facts_are_read_back(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "file", metadata={"key": "abc"})
    found, facts = open_rows(tmp_path / "file")
    assert facts == {"key": "abc"}
    np.testing.assert_array_equal(found["questions"][3:5], TENSORS["questions"][3:5])


def test_no_vectors_are_written_and_read_too(tmp_path: Path) -> None:
    save_file({"segments": np.zeros((0, 5), np.float32)}, tmp_path / "library")
    save_rows(tmp_path / "ours", {"segments": np.zeros((0, 5), np.float32)}, "float32")
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "library").read_bytes()
    assert open_rows(tmp_path / "ours")[0]["segments"][:].shape == (0, 5)


def test_damage_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "embeddings.safetensors"
    save_rows(path, TENSORS, "float32")
    whole = path.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    for bad in (
        b"",
        whole[:5],
        whole[:30],
        whole[:-1],
        whole + b"x",
        b"\xff" * 8 + whole[8:],
        whole[:8] + b"x" * length + whole[8 + length :],
        whole.replace(b'"F32"', b'"I32"'),
        whole.replace(b"[37,5]", b"[37,6]"),
        whole.replace(b'"shape"', b'"sharp"'),
        (8).to_bytes(8, "little") + b"[1,2,3] ",
    ):
        path.write_bytes(bad)
        with pytest.raises(CirfError, match=r"embeddings\.safetensors: damaged \(.*\); run the same command") as caught:
            open_rows(path)
        assert "\n" not in str(caught.value)
    with pytest.raises(FileNotFoundError):
        open_rows(tmp_path / "none")
