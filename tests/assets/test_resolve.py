"""From a name to what loads: bundled models made once, folders and hub ids, and one line for what is neither."""

from __future__ import annotations

import importlib
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import constants
from huggingface_hub.utils import http_backoff
from shop import Shop

from cirf.assets import catalogue, listing, published_hash, resolve
from cirf.assets import fetch as fetch_module
from cirf.assets.hub import snapshot
from cirf.errors import CirfError

resolve_module = importlib.import_module("cirf.assets.resolve")  # the package's name for it is the function's


def test_a_bundled_model_is_made_once_and_leaves_nothing_behind(shop: Shop, tmp_path: Path) -> None:
    assert "not fetched yet" in listing()["bundled:fake"]
    folder = resolve("bundled:fake")
    assert isinstance(folder, Path)
    assert folder == tmp_path / "cache" / "models" / "fake"
    assert sorted(path.name for path in folder.iterdir()) == ["cirf-asset.json", "cirf-files.json", "config.json", "weights"]
    assert not list((tmp_path / "cache" / "downloads").iterdir())
    assert [path.name for path in folder.parent.iterdir()] == ["fake"]
    shutil.rmtree(shop.links)
    assert resolve("bundled:fake") == folder
    assert listing()["bundled:fake"] == str(folder)


def test_a_model_made_from_another_file_or_by_an_older_conversion_is_made_again(shop: Shop) -> None:
    folder = resolve("bundled:fake")
    assert isinstance(folder, Path)
    (folder / "cirf-asset.json").write_text('{"sha256": "old"}')
    (folder / "stray").write_text("of the old one")
    assert resolve("bundled:fake") == folder
    assert not (folder / "stray").exists()


@pytest.mark.parametrize("damage", ["changed", "cut", "gone", "list"])
def test_a_model_with_a_damaged_file_is_made_again(shop: Shop, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = resolve("bundled:fake")
    assert isinstance(folder, Path)
    weights = folder / "weights"
    whole = weights.read_bytes()
    if damage == "gone":
        weights.unlink()
    elif damage == "list":
        (folder / "cirf-files.json").write_text("[")
    else:
        weights.write_bytes(whole[:-1] + (bytes([whole[-1] ^ 1]) if damage == "changed" else b""))
    monkeypatch.setattr(resolve_module, "VERIFIED", set())  # as another process
    assert resolve("bundled:fake") == folder
    assert weights.read_bytes() == whole


def test_a_half_made_folder_is_no_model(shop: Shop, tmp_path: Path) -> None:
    left = tmp_path / "cache" / "models" / ".fake.making"
    left.mkdir(parents=True)
    (left / "stray").write_text("of a killed conversion")
    folder = resolve("bundled:fake")
    assert sorted(os.listdir(folder)) == ["cirf-asset.json", "cirf-files.json", "config.json", "weights"]
    assert not left.exists()


@pytest.mark.slow
def test_two_processes_make_it_once(shop: Shop) -> None:
    code = """if True:
        import sys
        from cirf.assets import catalogue, fetch, resolve
        from cirf.assets.catalogue import Asset, Wheel
        catalogue.ASSETS["fake"] = eval(sys.argv[1])
        made, real = [], fetch.fetch
        fetch.fetch = lambda *args: made.append(1) or real(*args)
        resolve("bundled:fake")
        print(len(made))
    """
    command = [sys.executable, "-c", code, repr(shop.asset)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = sorted(process.communicate(timeout=120)[0].strip() for process in both)
    assert [process.returncode for process in both] == [0, 0]
    assert said == ["0", "1"]
    assert sorted(os.listdir(resolve("bundled:fake"))) == ["cirf-asset.json", "cirf-files.json", "config.json", "weights"]


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(
        CirfError, match=r"^bundled:smollm2: no such bundled model; did you mean bundled:smollm2-135m-instruct\?$"
    ):
        resolve("bundled:smollm2")
    with pytest.raises(CirfError, match="there are bundled:smollm2-135m-instruct, "):
        resolve("bundled:xyzzy")


def test_the_published_hash_identifies_file_and_conversion() -> None:
    hashes = {published_hash(f"bundled:{name}") for name in catalogue.ASSETS}
    assert len(hashes) == len(catalogue.ASSETS)
    assert all(each.endswith(f"-{catalogue.FORMAT}") for each in hashes)


def test_a_full_disk_is_said_before_anything_is_fetched(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(catalogue.ASSETS, "fake", replace(shop.asset, installed=10**18))
    monkeypatch.setattr(fetch_module, "fetch", lambda *_: pytest.fail("fetched"))
    with pytest.raises(CirfError, match=r"^bundled:fake: .* GB are needed in .* GB are free; free some space"):
        resolve("bundled:fake")


def test_a_disk_that_fills_up_on_the_way_is_one_sentence(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fetch_module, "fetch", full)
    with pytest.raises(CirfError, match=r"cannot write to the cache .* \(No space left on device\); free some space"):
        resolve("bundled:fake")


def test_a_cache_that_cannot_be_written_is_one_sentence(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CIRF_CACHE", str(tmp_path / "file"))
    with pytest.raises(CirfError, match="cannot write to the cache"):
        resolve("bundled:fake")


# Folders and hub ids


def test_a_folder_with_a_model_and_a_hub_id_are_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, file in [("plain", "config.json"), ("sentences", "modules.json")]:
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("{}")
    assert resolve(str(tmp_path / "plain")) == str(tmp_path / "plain")
    assert resolve("sentences") == "sentences"
    assert resolve("./plain") == "./plain"
    assert resolve("Qwen/Qwen3-8B") == "Qwen/Qwen3-8B"
    assert resolve("gpt2") == "gpt2"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve("~/plain") == tmp_path / "plain"


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("./none", "./none: no such folder; name a folder that holds a model, a hub id, or bundled:NAME"),
        ("/none/at/all", "/none/at/all: no such folder"),
        ("empty", "empty: the folder holds no config.json, so no model"),
        ("adapter", "adapter: the folder holds only adapters; merge them into their model first"),
        ("file", "file: a file, not a folder that holds a model"),
        ("a/b/c", "a/b/c: neither a folder that exists, nor a hub id"),
        ("two words", "two words: neither a folder that exists, nor a hub id"),
        ("", "model: neither a folder that exists, nor a hub id"),
    ],
)
def test_what_is_no_model_is_said_in_one_line(model: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    (tmp_path / "file").write_text("")
    with pytest.raises(CirfError) as caught:
        resolve(model)
    assert str(caught.value).startswith(words)
    assert "\n" not in str(caught.value)


# Models on the hub: taken from its cache; a hub that does not answer is reported once

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What the hub's library says, with an empty cache and a hub that refuses every connection."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", NOWHERE)
    chatter = logging.getLogger("huggingface_hub.utils._http")
    level = chatter.level
    chatter.setLevel(logging.NOTSET)
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("huggingface_hub").addHandler(handler)
    yield said
    chatter.setLevel(level)
    logging.getLogger("huggingface_hub").removeHandler(handler)


def knock() -> None:
    """Two attempts to reach the hub, as a loader makes them."""
    with pytest.raises(Exception, match="refused"):
        http_backoff("HEAD", f"{NOWHERE}/some/model/resolve/main/config.json", max_retries=1, base_wait_time=0.01)


def test_attempts_to_reach_the_hub_are_not_reported_one_by_one(lines: list[str]) -> None:
    knock()
    assert len(lines) == 3, "two refusals and a retry"
    del lines[:]
    assert resolve("some/model") == "some/model"
    knock()
    assert lines == []


def test_a_hub_that_does_not_answer_is_one_sentence(lines: list[str]) -> None:
    with pytest.raises(CirfError, match=r"^some/model at v1: the hub cannot be reached \(.*refused\) and it is not in the cache"):
        snapshot("some/model", "v1")
    assert lines == []


def test_the_cache_answers_where_the_hub_does_not(lines: list[str], tmp_path: Path) -> None:
    repo = tmp_path / "hub" / "models--some--model"
    kept = repo / "snapshots" / ("c" * 40)
    kept.mkdir(parents=True)
    (kept / "config.json").write_text("{}")
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("c" * 40)
    assert snapshot("some/model") == kept
    assert lines == []
