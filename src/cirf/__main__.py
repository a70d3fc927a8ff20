"""``python -m cirf``, and the command ``cirf``."""

import os
import sys
from pathlib import Path

from cirf.environment import with_large_pages


def start() -> None:
    """Run the command line in a process whose allocator uses large pages."""
    environment = with_large_pages(os.environ)
    if environment is not None and _is_own_process():
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)
    from cirf.cli import main

    main()


def _is_own_process() -> bool:
    """Whether this process was started as the command, and not as another program that runs it, which must not be replaced."""
    count = len(sys.argv) - 1
    called, given = sys.orig_argv[: len(sys.orig_argv) - count], sys.orig_argv[len(sys.orig_argv) - count :]
    return given == sys.argv[1:] and (called[-2:] == ["-m", "cirf"] or Path(called[-1]).stem == "cirf")


if __name__ == "__main__":
    start()
