"""``python -m cirf``, and the command ``cirf``."""

import os
import sys

from cirf.environment import with_large_pages


def start() -> None:
    """Run the command line in a process whose allocator uses large pages."""
    if (environment := with_large_pages(os.environ)) is not None:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)
    from cirf.cli import main

    main()


if __name__ == "__main__":
    start()
