"""Embedding, pruning and evaluation shared by processes: the files of one process, and no piece made twice, also after a death.

The processes are threads here, which meet where processes would; `tests/test_kill.py` has real ones.
"""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tinyrun

from cirf import distributed
from cirf.codebook import embedding
from cirf.distributed import ALONE, Share
from cirf.evaluation.harness import Answerer, Questions, evaluate
from cirf.lm import backbone
from cirf.methods import get
from cirf.progress import SILENT
from cirf.recipe import schema
from cirf.recipe.load import load
from cirf.records import Problem
from cirf.stages import compress
from cirf.stages.context import Context
from cirf.store.run_folder import RunFolder
from cirf.tasks import get as get_task


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Calls something once a process, with the share of each, and gives what they return; the first error is raised, and keeps
    the others from waiting."""

    def run(work: Callable[[Share], Any], of: int = 2) -> list[Any]:
        meeting, local = threading.Barrier(of, timeout=60), threading.local()
        monkeypatch.setattr(distributed, "barrier", meeting.wait)
        monkeypatch.setattr(Share, "of_launch", classmethod(lambda cls: local.share))
        made: list[Any] = [None] * of
        errors: list[BaseException] = []

        def process(rank: int) -> None:
            local.share = Share(rank, of)
            try:
                made[rank] = work(local.share)
            except threading.BrokenBarrierError:
                pass
            except BaseException as error:
                errors.append(error)
                meeting.abort()

        threads = [threading.Thread(target=process, args=(rank,)) for rank in range(of)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        monkeypatch.setattr(Share, "of_launch", classmethod(lambda cls: ALONE))
        if errors:
            raise errors[0]
        return made

    return run


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_pieces_are_shared_whole_and_once() -> None:
    pieces = list(range(7))
    assert ALONE.mine(pieces) == pieces
    assert sorted(piece for rank in range(3) for piece in Share(rank, 3).mine(pieces)) == pieces
    assert Share(3, 4).mine(pieces[:2]) == []


def test_each_process_keeps_a_file_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "a[b]*.jsonl"
    for rank in (0, 2):
        own = Share(rank, 3).path(path)
        own.parent.mkdir(exist_ok=True)
        own.touch()
    (tmp_path / "process-1").mkdir()
    assert ALONE.paths(path) == [path, tmp_path / "process-2" / "a[b]*.jsonl"]


def test_embedding_is_shared(
    workshop: tinyrun.Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: Callable[..., list[Any]]
) -> None:
    monkeypatch.setattr(embedding, "CHUNK", 8)
    texts = [row["question"] for row in tinyrun.sums(37)] * 2
    section = schema.Embeddings(model="tiny", batch_size=4)
    how = (section, workshop.embedder, "cpu")
    alone = embedding.embed(texts, *how, tmp_path / "alone", SILENT)
    embedder, read = embedding.Embedder(*how), list[str]()
    embedder_call = embedding.Embedder.__call__

    def noted(self: Any, some: Sequence[str]) -> Any:
        read.extend(some)
        return embedder_call(self, some)

    monkeypatch.setattr(embedding.Embedder, "__call__", noted)
    monkeypatch.setattr(embedding, "_load", lambda *_: embedder._model)
    for found in together(lambda share: embedding.embed(texts, *how, tmp_path / "both", SILENT, share)):
        assert found[:].tobytes() == alone[:].tobytes()
    assert sorted(read) == sorted(set(texts))
    assert files(tmp_path / "both") == files(tmp_path / "alone")
    (tmp_path / "both" / "chunk-000001.safetensors").unlink()
    (tmp_path / "both" / "chunk-000004.safetensors").unlink()
    read.clear()
    found = together(lambda share: embedding.embed(texts, *how, tmp_path / "both", SILENT, share), 3)[2]
    assert found[:].tobytes() == alone[:].tobytes()
    assert len(read) == 8 + 5


@dataclass(frozen=True)
class Written:
    text: str
    tokens: int = 3
    truncated: bool = False


@pytest.mark.parametrize("dies_at", [None, 0, 3])
def test_evaluation_is_shared(tmp_path: Path, together: Callable[..., list[Any]], dies_at: int | None) -> None:
    made = schema.Recipe(name="test", problems=schema.Problems(tasks=(schema.TaskEntry(task="svamp"),)))
    draw = random.Random(5)
    asked = [Problem(f"s{i}", "svamp", f"What is {i} + 1?" + " Think." * draw.randrange(4), str(i + 1)) for i in range(30)]
    test = {"svamp": asked, "again": asked[:3]}
    tasks = {name: get_task("svamp") for name in test}
    batches: list[tuple[str, ...]] = []

    def go(work: Path, share: Share, dies: bool = False) -> Any:
        calls = 0

        def generate(prompts: list[str], cap: int, run: int) -> list[Written]:
            nonlocal calls
            if dies and calls == dies_at and share.rank == 1:
                raise KeyboardInterrupt
            calls += 1
            batches.append((str(cap), *prompts))
            return [Written(f"{len(prompts)}\n#### {prompt.split()[2]}") for prompt in prompts]

        section = schema.Evaluate(batch_size=4)
        return evaluate(Answerer(get("cot", made), generate, str), Questions(tasks, test), section, work, SILENT, share)

    scores = go(tmp_path / "alone", ALONE)
    count = len(batches)
    batches.clear()
    if dies_at is not None:
        with pytest.raises(KeyboardInterrupt):
            together(lambda share: go(tmp_path / "both", share, dies=True))
        assert dies_at <= len(batches) < count  # of the other process it is not known how far it came
    assert together(lambda share: go(tmp_path / "both", share)) == [scores, scores]
    assert files(tmp_path / "both") == files(tmp_path / "alone")
    assert len(batches) == count, "no batch was asked twice"
    assert together(lambda share: go(tmp_path / "both", share)) == [scores, scores] and len(batches) == count


def test_pruning_is_shared(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: Callable[..., list[Any]]
) -> None:
    monkeypatch.setattr(compress, "WINDOW", 8)
    settings = load(str(finished / "recipe.yaml"))
    search, searched = compress.search, list[str]()

    def noted(items: Any, *more: Any) -> Any:
        searched.extend(item.problem for item in items)
        return search(items, *more)

    monkeypatch.setattr(compress, "search", noted)
    model = backbone.load_model(finished / "models" / "cirf_full", settings.backbone)
    monkeypatch.setattr(backbone, "load_model", lambda *_, **__: copy.deepcopy(model))  # transformers loads in one thread alone

    def go(work: Path) -> Any:
        work.mkdir(exist_ok=True)
        return compress.searching(Context(settings, RunFolder(finished)), "greedy", work)

    summary = go(tmp_path / "alone")
    wanted = (tmp_path / "alone" / "compression.jsonl").read_bytes()
    assert summary["rows"] == len(searched) > 24
    log = (tmp_path / "alone" / "scratch" / "paths.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "both" / "scratch").mkdir(parents=True)
    (tmp_path / "both" / "scratch" / "paths.jsonl").write_text("".join(log[:11]))  # one window, and part of another
    searched.clear()
    assert together(lambda share: go(tmp_path / "both")) == [summary, summary]
    assert (tmp_path / "both" / "compression.jsonl").read_bytes() == wanted
    assert len(searched) == summary["rows"] - 8
    assert together(lambda share: go(tmp_path / "both"), 3) == [summary] * 3 and len(searched) == summary["rows"] - 8
