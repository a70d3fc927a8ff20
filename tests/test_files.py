"""Files that are written only where they change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cirf.files import write_changed


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
