"""Vectors on disk are the vectors in memory, whichever of them are asked for."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest
import tinyrun
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from cirf.codebook import rows
from cirf.codebook.rows import FileRows, Joined, Picked, Rows, open_rows, room_for, save_rows
from cirf.errors import CirfError

DATA = np.random.default_rng(0).standard_normal((40, 3)).astype(np.float32)


def _kinds(path: Path) -> dict[str, Rows]:
    """The same vectors as an array, in files and in pieces."""
    whole = FileRows.made(path / "whole", (40, 3))
    whole[:] = DATA
    shuffle = np.random.default_rng(1).permutation(40)
    other = FileRows.made(path / "other", (40, 3))
    other[shuffle] = DATA[shuffle]
    (path / "later").write_bytes(b"before" + DATA.tobytes())
    moved = FileRows.made(path / "moved", (40, 3))
    moved[shuffle] = DATA
    return {
        "array": DATA,
        "file": whole,
        "written in any order": other,
        "behind something else": FileRows(path / "later", (40, 3), offset=6),
        "picked": Picked(moved, shuffle),
        "joined": Joined([DATA[:7], Picked(whole, np.arange(7, 7)), Picked(whole, np.arange(7, 39)), DATA[39:]]),
    }


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(start=st.integers(0, 45), length=st.integers(0, 45), indices=st.lists(st.integers(0, 39), max_size=50))
def test_a_slice_and_any_rows_are_those_of_the_array(tmp_path: Path, start: int, length: int, indices: list[int]) -> None:
    for name, found in _kinds(tmp_path).items():
        assert found.shape == (40, 3) and len(found) == 40, name
        for where in (slice(start, start + length), np.array(indices, np.int64)):
            np.testing.assert_array_equal(found[where], DATA[where], err_msg=name)
            assert found[where].dtype == np.float32


def test_half_precision_is_read_as_single(tmp_path: Path) -> None:
    half = DATA.astype(np.float16)
    (tmp_path / "half").write_bytes(half.tobytes())
    np.testing.assert_array_equal(FileRows(tmp_path / "half", (40, 3), "<f2")[3:9], half[3:9].astype(np.float32))


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    found = FileRows.made(tmp_path / "file", (40, 3))
    for bad in (np.array([40]), np.array([-1, 3])):
        with pytest.raises(IndexError):
            found[bad]
    with pytest.raises(ValueError, match="step"):
        found[::2]
    with pytest.raises(ValueError, match="places"):
        found[:3] = DATA[:2]


def test_a_file_that_ends_too_soon_is_one_sentence(tmp_path: Path) -> None:
    found = FileRows.made(tmp_path / "file", (40, 3))
    found[:] = DATA
    (tmp_path / "file").write_bytes(DATA.tobytes()[:-1])
    np.testing.assert_array_equal(found[:39], DATA[:39])
    with pytest.raises(CirfError, match=r"file: damaged, it ends before its last vector; run the same command"):
        found[38:]


def test_only_what_is_too_large_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "HELD", 480)
    assert isinstance(room_for((40, 3), tmp_path / "a"), np.ndarray)
    assert isinstance(room_for((41, 3), None), np.ndarray)
    assert isinstance(room_for((41, 3), tmp_path / "a"), FileRows)


def test_a_full_disk_is_reported_with_the_file(tmp_path: Path) -> None:
    with tinyrun.files_no_longer_than(256), pytest.raises(OSError) as caught:
        FileRows.made(tmp_path / "vectors", (40, 3))[:] = DATA
    assert caught.value.errno == errno.EFBIG and caught.value.filename == str(tmp_path / "vectors")
    with tinyrun.files_no_longer_than(256), pytest.raises(OSError) as caught:
        FileRows(tmp_path / "vectors", (40, 3))[:] = DATA
    assert caught.value.errno == errno.EFBIG and caught.value.filename == str(tmp_path / "vectors")


# What is written piece by piece is, byte for byte, what the safetensors library writes at once

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
