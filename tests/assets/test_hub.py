"""Models on the hub: taken from its cache, and a hub that does not answer told of once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants
from huggingface_hub.utils import http_backoff

from cirf.assets import resolve
from cirf.assets.hub import snapshot
from cirf.errors import CirfError

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


def test_attempts_to_reach_the_hub_are_not_told_one_by_one(lines: list[str]) -> None:
    knock()
    assert len(lines) == 3, "two refusals and a retry"
    del lines[:]
    assert resolve("some/model") == "some/model"
    knock()
    assert lines == []


def test_a_hub_that_does_not_answer_is_one_sentence(lines: list[str]) -> None:
    with pytest.raises(
        CirfError, match=r"^some/model at v1: the hub does not give it \(.*refused\) and its cache does not hold it; "
    ):
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
