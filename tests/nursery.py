"""Child processes forked from a server process that has imported the libraries once, since imports take many seconds.

The server is the standard library's "forkserver" and has no state of any test. A child is like ``python ARGUMENTS``: it has its
own session, environment, folder and output, and can be killed at any time. There are two differences. All children share one seed
for hashes of strings, so tests that depend on it need a new interpreter (`tinyrun.command`). Children end without ``atexit``.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import multiprocessing
import multiprocessing.context
import os
import runpy
import signal
import sys
from collections.abc import Mapping
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import numpy

LIBRARIES = ["accelerate", "matplotlib.figure", "peft", "sentence_transformers", "sklearn.metrics", "transformers.trainer"]


_AT_FIRST = dict(os.environ)  # no test's


@functools.cache
def _forks() -> multiprocessing.context.ForkServerContext:
    """The one to fork from; it has one thread, as those that tests start should have."""
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(LIBRARIES)
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(_AT_FIRST | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"})
    try:
        forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)
    return forks


class Child:
    """A process that was started, as far as needed like ``subprocess.Popen``."""

    def __init__(self, arguments: tuple[str, ...], environment: dict[str, str], out: Path, err: Path, folder: Path) -> None:
        self._process = _forks().Process(target=_live, args=(arguments, environment, out, err, folder))
        self._process.start()

    def poll(self) -> int | None:
        """How it ended, negative by a signal; ``None`` while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float) -> int:
        """How it ends; after ``timeout`` seconds it is killed, and that is an error."""
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            self.send_signal(signal.SIGKILL)
            self._process.join()
            raise TimeoutError(f"still running after {timeout:g} s")
        return code

    def send_signal(self, number: int) -> None:
        """A signal to it and what it has started, if it is there."""
        if self._process.exitcode is None and self._process.pid is not None:
            for send in (os.killpg, os.kill):  # it may have no session of its own yet, or have ended just now
                with contextlib.suppress(ProcessLookupError):
                    return send(self._process.pid, number)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *of: Any) -> None:
        self.send_signal(signal.SIGKILL)
        self._process.join()


def python(*arguments: str | Path, env: Mapping[str, str], out: Path, err: Path, cwd: Path | None = None) -> Child:
    """Start ``python ARGUMENTS`` (``-m MODULE ...``, ``-c CODE ...`` or ``FILE ...``); what it says is added to the two files."""
    return Child(tuple(map(str, arguments)), dict(env), out, err, cwd or Path.cwd())


def _live(arguments: tuple[str, ...], environment: dict[str, str], out: Path, err: Path, folder: Path) -> None:
    """The child's life."""
    gc.freeze()  # the libraries' million objects: a garbage collection would copy their memory pages
    os.setsid()
    for path, number in ((out, 1), (err, 2)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[:0] = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    numpy.random.seed()  # else that of all children
    first, *rest = arguments
    if first == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = list(arguments)
        runpy.run_path(first, run_name="__main__")
