"""Vectors on disk are the vectors in memory, whichever of them are asked for."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest
import tinyrun
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cirf.codebook import rows
from cirf.codebook.rows import FileRows, Joined, Picked, Rows, room_for
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


def test_only_what_is_too_large_lies_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "HELD", 480)
    assert isinstance(room_for((40, 3), tmp_path / "a"), np.ndarray)
    assert isinstance(room_for((41, 3), None), np.ndarray)
    assert isinstance(room_for((41, 3), tmp_path / "a"), FileRows)


def test_a_full_disk_is_told_with_the_file(tmp_path: Path) -> None:
    with tinyrun.files_no_longer_than(256), pytest.raises(OSError) as caught:
        FileRows.made(tmp_path / "vectors", (40, 3))[:] = DATA
    assert caught.value.errno == errno.EFBIG and caught.value.filename == str(tmp_path / "vectors")
    with tinyrun.files_no_longer_than(256), pytest.raises(OSError) as caught:
        FileRows(tmp_path / "vectors", (40, 3))[:] = DATA
    assert caught.value.errno == errno.EFBIG and caught.value.filename == str(tmp_path / "vectors")
