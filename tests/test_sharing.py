"""Stages taken over from another run: the same files, whole or not at all, and neither run can change the other's. Embedding,
pruning and evaluation shared by processes: the files of one process, and no piece made twice, also after a death.
"""

from __future__ import annotations

import copy
import errno
import json
import os
import random
import shutil
import stat
import subprocess
import sys
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
from cirf.errors import CirfError
from cirf.evaluation.harness import Answerer, Questions, evaluate
from cirf.lm import backbone
from cirf.methods import get
from cirf.progress import SILENT
from cirf.recipe import schema
from cirf.recipe.load import load
from cirf.records import Problem
from cirf.stages import compress
from cirf.stages.context import Context
from cirf.stages.lineage import file_hash, model_hash
from cirf.store import files
from cirf.store.files import write_atomic
from cirf.store.run_folder import RunFolder, StagePlan, record
from cirf.tasks import get as get_task

HERE = Path(__file__).parent


def vectors(number: int = 1) -> StagePlan:
    def make(work: Path) -> dict[str, Any]:
        write_atomic(work / "deep" / "large.bin", bytes([number]) * files.LINKED_FROM)
        write_atomic(work / "small.json", f"[{number}]\n")
        write_atomic(work / "timings.json", '{"device": "cpu"}')
        return {"rows": number}

    return StagePlan("models/some", {"number": number}, {"file": "abc"}, make)


def never(work: Path) -> None:
    raise AssertionError("made, though another run has it")


@pytest.fixture
def other(tmp_path: Path) -> RunFolder:
    """A run that has the stage."""
    run = RunFolder(tmp_path / "other")
    write_atomic(run.root / "recipe.yaml", "name: other\n")
    run.run(vectors())
    return run


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """One that has not."""
    run = RunFolder(tmp_path / "run")
    write_atomic(run.root / "recipe.yaml", "name: run\n")
    return run


def test_a_stage_taken_over_is_what_it_would_be_had_it_been_made(tmp_path: Path, run: RunFolder, other: RunFolder) -> None:
    (other.folder("models/some") / "README.md").write_text("a card that a report wrote later")
    run.take(vectors(), other)
    assert run.is_done(vectors()) and run.run(StagePlan("models/some", {"number": 1}, {"file": "abc"}, never))
    alone = RunFolder(tmp_path / "alone")
    write_atomic(alone.root / "recipe.yaml", "name: run\n")
    alone.run(vectors())
    assert tinyrun.artefacts(run.root) == tinyrun.artefacts(alone.root)
    summary, there = (json.loads((each.folder("models/some") / "timings.json").read_text()) for each in (run, other))
    assert summary == there and summary["device"] == "cpu"
    assert run.finished("models/some").seconds == other.finished("models/some").seconds
    assert not any((run.root / ".work").iterdir())


def test_large_files_are_linked_and_read_only_small_ones_are_copies(run: RunFolder, other: RunFolder) -> None:
    folder, source = run.take(vectors(), other), other.folder("models/some")
    one, two = (each / "deep" / "large.bin" for each in (folder, source))
    assert one.samefile(two) and not one.stat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)
    if os.geteuid():  # the superuser may write anything
        with pytest.raises(PermissionError):
            open(one, "r+b").close()
    for name in ("small.json", "stage.json", "recipe.yaml", "timings.json"):
        assert (folder / name).stat().st_nlink == 1 == (source / name).stat().st_nlink
    (folder / "small.json").write_text("edited by hand")
    assert (source / "small.json").read_text() == "[1]\n"


def test_a_run_that_makes_its_stage_again_leaves_the_other_as_it_was(run: RunFolder, other: RunFolder) -> None:
    run.take(vectors(), other)
    before = tinyrun.artefacts(other.root)
    run.run(vectors(2))
    assert (run.folder("models/some") / "deep" / "large.bin").read_bytes()[0] == 2
    assert tinyrun.artefacts(other.root) == before
    run.take(vectors(), other)
    other.run(vectors(3))
    assert (run.folder("models/some") / "deep" / "large.bin").read_bytes()[0] == 1
    shutil.rmtree(other.root)
    assert run.is_done(vectors()) and (run.folder("models/some") / "deep" / "large.bin").read_bytes()[0] == 1


def test_where_links_cannot_be_had_files_are_copied(run: RunFolder, other: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(source: Path, target: Path) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(files.os, "link", no_links)
    folder, source = run.take(vectors(), other), other.folder("models/some")
    one, two = (each / "deep" / "large.bin" for each in (folder, source))
    assert one.read_bytes() == two.read_bytes() and not one.samefile(two)
    assert one.stat().st_mode & stat.S_IWUSR and two.stat().st_mode & stat.S_IWUSR


def changed(source: Path) -> str:
    (source / "small.json").write_text("[7]\n")
    return "small.json: changed since the stage was made"


def gone(source: Path) -> str:
    (source / "deep" / "large.bin").unlink()
    return "large.bin: missing, though the stage's record names it"


def outside(source: Path) -> str:
    summary = json.loads((source / "stage.json").read_text())
    summary["files"]["../../../stolen.txt"] = summary["files"]["small.json"]
    (source / "stage.json").write_text(record(summary))
    return "models/some/stage.json: damaged"


@pytest.mark.parametrize("spoil", [changed, gone, outside])
def test_what_is_not_as_its_record_says_is_not_taken_over(run: RunFolder, other: RunFolder, spoil: Any) -> None:
    says = spoil(other.folder("models/some"))
    with pytest.raises(CirfError, match=says):
        run.take(vectors(), other)
    assert not run.folder("models/some").exists() and not (run.root.parent / "stolen.txt").exists()
    run.run(vectors())  # what was left does not get in the way
    run.sweep([vectors()])
    assert not any((run.root / ".work").iterdir())


def test_another_key_a_damaged_record_and_no_run_are_no_offer(run: RunFolder, other: RunFolder, tmp_path: Path) -> None:
    key = other.key(vectors())
    assert key is not None and other.found("models/some", key) is not None
    assert other.found("models/some", "0" * 64) is None and other.found("models/other", key) is None
    assert RunFolder(tmp_path / "none").found("models/some", key) is None
    with pytest.raises(CirfError, match="not the requested stage"):
        run.take(vectors(2), other)
    (other.folder("models/some") / "stage.json").write_text("{}")
    assert other.found("models/some", key) is None


def test_a_stage_begun_here_gives_way_to_the_finished_one(run: RunFolder, other: RunFolder) -> None:
    def dies(work: Path) -> None:
        write_atomic(work / "scratch" / "half", "x")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.run(StagePlan("models/some", {"number": 1}, {"file": "abc"}, dies))
    assert run.state(vectors()).state == "part"
    run.take(vectors(), other)
    assert run.state(vectors()).state == "done" and not any((run.root / ".work").iterdir())


@pytest.mark.slow
def test_a_kill_at_any_change_of_the_disk_leaves_nothing_half(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, HERE / "taking.py", tmp_path],
        env=tinyrun.ENVIRONMENT, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    crashes = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(crashes) > 40
    for crash in crashes:
        assert crash["same"] and crash["other"], crash
        assert crash["rows"] in ((0,) if crash["taken"] else (0, 4)), crash
    assert any(crash["rows"] == 4 for crash in crashes)  # where the other run was gone, and nothing of it had landed


# Files outside a run count by content in keys, wherever they are

LARGE = 130 * 2**20


def sparse(path: Path, at: int | None = None) -> Path:
    """A large file of zeros, with one other megabyte somewhere."""
    with open(path, "wb") as file:
        file.truncate(LARGE)
        if at is not None:
            file.seek(at)
            file.write(b"x" * 2**20)
    return path


@pytest.mark.parametrize("at", [LARGE // 3, LARGE - 2**20])
def test_other_large_weights_are_noticed(tmp_path: Path, at: int) -> None:
    one, other = sparse(tmp_path / "a.safetensors"), sparse(tmp_path / "b.safetensors", at)
    assert file_hash(one) != file_hash(other)
    os.link(other, tmp_path / "c.safetensors")
    assert file_hash(tmp_path / "c.safetensors") == file_hash(other)


def test_one_changed_byte_of_a_large_data_file_is_noticed(tmp_path: Path) -> None:
    path = sparse(tmp_path / "rows.jsonl")
    before = file_hash(path)
    with open(path, "r+b") as file:
        file.seek(LARGE // 7)
        file.write(b"x")
    assert file_hash(path) != before


def test_a_model_is_its_files_by_any_path(workshop: tinyrun.Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = shutil.copytree(workshop.backbone, tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    assert model_hash(str(workshop.backbone)) == model_hash(str(moved)) == model_hash("./model") == model_hash("model")
    (moved / "timings.json").write_text("{}")
    assert model_hash(str(workshop.backbone)) == model_hash(str(moved))
    with open(moved / "model.safetensors", "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\1")
    assert model_hash(str(workshop.backbone)) != model_hash(str(moved))
    assert model_hash("Qwen/Qwen3-8B") != model_hash("Qwen/Qwen3-4B")


def test_what_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    for path, says in ((tmp_path / "none", "no such file"), (tmp_path, "cannot be read")):
        with pytest.raises(CirfError, match=says):
            file_hash(path)
    for model in (str(tmp_path / "none"), str(tmp_path), "./none", "not a model", ""):
        with pytest.raises(CirfError):
            model_hash(model)


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


def files_of_shared_work(folder: Path) -> dict[str, bytes]:
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
    monkeypatch.setattr(embedding, "load_encoder", lambda *_: embedder.model)
    for found in together(lambda share: embedding.embed(texts, *how, tmp_path / "both", SILENT, share)):
        assert found[:].tobytes() == alone[:].tobytes()
    assert sorted(read) == sorted(set(texts))
    assert files_of_shared_work(tmp_path / "both") == files_of_shared_work(tmp_path / "alone")
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
    assert files_of_shared_work(tmp_path / "both") == files_of_shared_work(tmp_path / "alone")
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
        return compress.search_removals(Context(settings, RunFolder(finished)), "greedy", work)

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
