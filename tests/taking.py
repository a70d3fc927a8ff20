"""Dies at the n-th thing it does to the disk while it takes stages over, for every n, and is started again: ``taking.py FOLDER``.

As ``crashing.py``, whose stages these are, with another run that has them. One line of JSON a crash: n, how many rows were
computed (none need be), whether the folder ended like one that made its stages itself, and whether the other run is as it was.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import crashing

from cirf.store import files
from cirf.store.run_folder import RunFolder

files.LINKED_FROM = 1  # every file is linked


def take(folder: Path, computed: Path, other: Path) -> None:
    """All stages in order, from the other run where it has them."""
    run, giver = RunFolder(folder), RunFolder(other)
    run.sweep()
    for plan in crashing.plans(computed, 1):
        if not run.is_done(plan):
            key = run.key(plan)
            assert key is not None
            if giver.found(plan.name, key) is not None:
                run.take(plan, giver)
            else:
                run.run(plan)


def fork(folder: Path, computed: Path, other: Path, last: int) -> int:
    """As ``crashing.fork``."""
    child = os.fork()
    if child == 0:
        try:
            if last:
                crashing.arm(folder, last)
            take(folder, computed, other)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> None:
    """See the module."""
    root = Path(sys.argv[1])
    computed, other, stale = root / "computed", root / "other", root / "stale"
    assert crashing.fork(other, computed, 0, 1) == 0
    assert crashing.fork(stale, computed, 0, 2) == 0  # stages of size 2, which give way to those of size 1
    wanted = crashing.tree(other)
    for start in (None, stale):
        last = 0
        while True:
            last += 1
            folder = root / "crashed"
            shutil.rmtree(folder, ignore_errors=True)
            computed.unlink(missing_ok=True)
            if start is not None:
                shutil.copytree(start, folder)
            ended = fork(folder, computed, other, last)
            if ended == 0:
                break
            assert ended == -signal.SIGKILL, ended
            goes = other if last % 2 else root / "nowhere"  # every second time the other run is gone by then
            assert fork(folder, computed, goes, 0) == 0
            rows = computed.read_text().count("row") if computed.exists() else 0
            same, whole = crashing.tree(folder) == wanted, crashing.tree(other) == wanted
            print(json.dumps({"crash": last, "taken": goes == other, "rows": rows, "same": same, "other": whole}))


if __name__ == "__main__":
    main()
