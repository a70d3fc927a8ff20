"""Files that are written only where they change, and objects that are read from them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cirf.errors import CirfError
from cirf.files import load_object, write_changed


def test_what_is_there_already_is_not_written_again_but_is_of_now(tmp_path: Path) -> None:
    path = tmp_path / "told.json"
    write_changed(path, "one")
    os.utime(path, (1, 1))
    node = path.stat().st_ino
    write_changed(path, "one")
    assert path.stat().st_ino == node and path.stat().st_mtime > 1
    write_changed(path, "two")
    assert path.read_text() == "two" and path.stat().st_ino != node


def test_what_cannot_be_read_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "told.json"
    path.write_text("one")

    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(self))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", refuse)
        write_changed(path, "one")
    assert path.read_text() == "one"
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(IsADirectoryError):
        write_changed(folder, "one")


def test_of_a_damaged_file_its_stage_is_to_be_removed_where_it_is_in_one(tmp_path: Path) -> None:
    path = tmp_path / "trials.json"
    assert load_object(path) is None
    path.write_text('{"a": 1}')
    assert load_object(path) == {"a": 1}
    path.write_text("[]")
    with pytest.raises(CirfError, match=r"expected a JSON object; remove the file$"):
        load_object(path)
    (tmp_path / "stage.json").write_text("{}")
    with pytest.raises(CirfError, match=rf"expected a JSON object; remove the folder {tmp_path} and run again$"):
        load_object(path)
    path.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(CirfError, match="not valid JSON"):
        load_object(path)
