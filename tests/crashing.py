"""Dies at the n-th thing it does to the disk, for every n, and is started again: ``crashing.py FOLDER``.

The stages below are made in a fork that kills itself just before its n-th open, rename, mkdir or removal under FOLDER
(Python announces each to audit hooks), then again in one that may live. One line of JSON a crash goes to standard
output: n, how many rows were computed in all, and whether the folder ended like an unbroken one.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from cirf.store.files import RowLog, to_json, write_atomic, write_rows
from cirf.store.run_folder import RunFolder, StagePlan

EVENTS = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.chmod")
ROWS = 4


def arm(folder: Path, last: int) -> None:
    """Kill this process at its ``last``-th change of something under ``folder``."""
    count = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if event in EVENTS and any(str(argument).startswith(str(folder)) for argument in arguments[:2]):
            if event == "open" and not set(str(arguments[1] or "")) & set("wa"):
                return
            count += 1
            if count == last:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def plans(computed: Path, size: int) -> list[StagePlan]:
    """Two stages: one that goes row by row, one made of it."""

    def rows(work: Path) -> dict[str, Any]:
        log = RowLog(work / "scratch" / "rows.jsonl")
        for number in range(len(log.rows()), ROWS):
            with open(computed, "a") as file:
                file.write("row\n")
            log.append({"row": number, "size": size})
        write_rows(work / "deep" / "rows.jsonl", log.rows())
        write_atomic(work / "report.json", to_json({"rows": ROWS}))
        return {"rows": ROWS}

    def sums(work: Path) -> None:
        write_atomic(work / "sum.txt", str(size * ROWS))

    first = StagePlan("models/rows", {"size": size}, {"file": "abc"}, rows)
    return [first, StagePlan("sums", {}, {"rows": first}, sums)]


def make(folder: Path, computed: Path, size: int) -> None:
    """All stages of one size, in order."""
    run = RunFolder(folder)
    run.sweep()
    for plan in plans(computed, size):
        run.run(plan)


def fork(folder: Path, computed: Path, last: int, size: int) -> int:
    """Make the stages in a child that dies at its ``last``-th change of the disk (0: never); how it ended."""
    child = os.fork()
    if child == 0:
        try:
            if last:
                arm(folder, last)
            make(folder, computed, size)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def tree(folder: Path) -> dict[str, bytes | None]:
    """Every file and folder but what a clock touched."""
    kept = (path for path in sorted(folder.rglob("*")) if path.name != "timings.json")
    return {path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None for path in kept}


def main() -> None:
    """See the module."""
    root = Path(sys.argv[1])
    old, new = root / "old", root / "new"
    assert fork(old, root / "computed", 0, 1) == 0
    shutil.copytree(old, new)
    assert fork(new, root / "computed", 0, 2) == 0  # the stages of size 1 give way to those of size 2
    for start, size, wanted in ((None, 1, tree(old)), (old, 2, tree(new))):
        last = 0
        while True:
            last += 1
            folder, computed = root / "crashed", root / "computed"
            shutil.rmtree(folder, ignore_errors=True)
            computed.unlink(missing_ok=True)
            if start is not None:
                shutil.copytree(start, folder)
            ended = fork(folder, computed, last, size)
            if ended == 0:
                break
            assert ended == -signal.SIGKILL, ended
            before = computed.read_text().count("row") if computed.exists() else 0
            assert fork(folder, computed, 0, size) == 0
            again = computed.read_text().count("row") - before
            print(json.dumps({"crash": last, "before": before, "again": again, "same": tree(folder) == wanted}))


if __name__ == "__main__":
    main()
