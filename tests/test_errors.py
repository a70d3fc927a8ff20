"""How libraries say that a disk is full, and that another process is gone."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest
import tinyrun
from safetensors import SafetensorError

from cirf import cli
from cirf.errors import CirfError, tells_of_a_full_disk, tells_of_a_lost_process

FULL = [
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(errno.EDQUOT, "Disk quota exceeded"),
    OSError(errno.EFBIG, "File too large"),
    OSError("I/O error: No space left on device (os error 28)"),
    SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
    RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0"),
    RuntimeError("PytorchStreamWriter failed writing file data/3: file write failed"),
    RuntimeError("basic_ios::clear: iostream error"),
    Exception("No space left on device (os error 28)"),
]
OTHER = [
    OSError(errno.EACCES, "Permission denied"),
    FileNotFoundError(errno.ENOENT, "No such file or directory", "no space left"),
    RuntimeError("The size of tensor a (3) must match"),
    CirfError("the recipe has no tasks"),
    OSError("413 Client Error: File too large for url"),
    ValueError("recipe key 'disk quota' unknown"),
]


@pytest.mark.parametrize("error", FULL, ids=repr)
def test_a_full_disk_is_known_by_any_of_its_names(error: Exception) -> None:
    assert tells_of_a_full_disk(error)


@pytest.mark.parametrize("error", OTHER, ids=repr)
def test_nothing_else_is_taken_for_one(error: Exception) -> None:
    assert not tells_of_a_full_disk(error)


def test_while_something_is_saved_more_words_tell() -> None:
    error = RuntimeError("error writing file model.safetensors")
    assert tells_of_a_full_disk(error, saving=True) and not tells_of_a_full_disk(error)


DESERTED = """
import os, sys, torch, torch.distributed as dist
from cirf import cli
dist.init_process_group("gloo", init_method=sys.argv[1], rank=int(os.environ["RANK"]), world_size=2)
dist.barrier()
if os.environ["RANK"] == "1":
    os._exit(9)
cli.app = lambda: [dist.all_reduce(torch.ones(1)) for _ in range(1000)]
cli.main()
"""
"""The first of two processes of a run goes on to a place where it waits for the second, which is gone."""


def test_a_process_that_is_left_alone_says_so(tmp_path: Path) -> None:
    command = [sys.executable, "-c", DESERTED, f"file://{tmp_path / 'meet'}"]
    both = [
        subprocess.Popen(command, env=tinyrun.ENVIRONMENT | {"RANK": rank, "WORLD_SIZE": "2"}, stderr=subprocess.PIPE, text=True)
        for rank in "01"
    ]
    said, _ = (process.communicate(timeout=120)[1] for process in both)
    assert [process.returncode for process in both] == [2, 9]
    last = said.splitlines()[-1]
    assert last.startswith("cirf: another process of this run is gone") and "Traceback" not in said


def test_a_process_that_is_alone_has_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    error = RuntimeError("Read error: Connection reset by peer.")
    assert not tells_of_a_lost_process(error)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert tells_of_a_lost_process(error) and not tells_of_a_lost_process(ConnectionResetError(str(error)))


@pytest.mark.parametrize(("code", "said"), [(130, True), (143, True), (1, False)])
def test_what_was_told_to_end_says_how_to_go_on(
    code: int, said: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def app() -> None:
        raise SystemExit(code)

    monkeypatch.setattr(cli, "app", app)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == code and ("run the same command to go on" in capsys.readouterr().err) == said
