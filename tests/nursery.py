"""Child processes forked from a server process that has imported the libraries once, since imports take many seconds.

The server is a fork of the process that runs the tests, made before the first of them (`open_nursery`): it has imported the
libraries and the test modules, and no test has run in it. A child is like ``python ARGUMENTS``: it has its own session,
environment, folder and output, and can be killed at any time. There are two differences. Children share the seed for hashes of
strings, so tests that depend on it need a new interpreter (`tinyrun.command`). Children end without ``atexit``.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import multiprocessing
import os
import runpy
import signal
import sys
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple, NoReturn


class _Order(NamedTuple):
    """What a child is to do, and where."""

    arguments: tuple[str, ...]
    environment: dict[str, str]
    out: Path
    err: Path
    folder: Path


_line: Connection | None = None


def open_nursery() -> None:
    """Fork the process that children are forked from; called when the libraries are imported and no test has run."""
    global _line
    ours, theirs = multiprocessing.Pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    if os.fork() == 0:
        _serve(theirs)
    theirs.close()
    _line = ours


def _serve(line: Connection) -> NoReturn:
    """Fork children and say how they ended, as long as the process that runs the tests is there."""
    status = 1
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for name in os.listdir("/dev/fd"):  # what the other process holds open must close when that closes it
            if int(name) not in (2, nothing, line.fileno()):
                with contextlib.suppress(OSError):  # the one that listed the folder
                    os.dup2(nothing, int(name))
        sys.stdout, sys.stderr = (os.fdopen(number, "w", 1, errors="backslashreplace", closefd=False) for number in (1, 2))
        children: dict[int, BaseProcess] = {}
        with contextlib.suppress(EOFError, KeyboardInterrupt):
            while True:
                asked = line.recv()
                if isinstance(asked, _Order):
                    child = multiprocessing.get_context("fork").Process(target=_live, args=(asked, line))
                    child.start()
                    assert child.pid is not None
                    children[child.pid] = child
                    line.send(child.pid)
                else:
                    line.send(children[asked].exitcode)
        status = 0
    finally:
        os._exit(status)


class Child:
    """A process that was started, as far as needed like ``subprocess.Popen``."""

    def __init__(self, order: _Order) -> None:
        assert _line is not None, "no nursery is open"
        _line.send(order)
        self.pid: int = _line.recv()
        self._code: int | None = None

    def poll(self) -> int | None:
        """How it ended, negative by a signal; ``None`` while it runs."""
        if self._code is None and _line is not None:
            _line.send(self.pid)
            self._code = _line.recv()
        return self._code

    def wait(self, timeout: float) -> int:
        """How it ends; after ``timeout`` seconds it is killed, and that is an error."""
        until = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                self.send_signal(signal.SIGKILL)
                raise TimeoutError(f"still running after {timeout:g} s")
            time.sleep(0.01)
        return code

    def send_signal(self, number: int) -> None:
        """A signal to it and what it has started, if it is there."""
        if self.poll() is None:
            for send in (os.killpg, os.kill):  # it may have no session of its own yet, or have ended just now
                with contextlib.suppress(ProcessLookupError):
                    return send(self.pid, number)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *of: Any) -> None:
        self.send_signal(signal.SIGKILL)
        self.wait(60)


def python(*arguments: str | Path, env: Mapping[str, str], out: Path, err: Path, cwd: Path | None = None) -> Child:
    """Start ``python ARGUMENTS`` (``-m MODULE ...``, ``-c CODE ...`` or ``FILE ...``); what it says is added to the two files."""
    return Child(_Order(tuple(map(str, arguments)), dict(env), out, err, cwd or Path.cwd()))


def _live(order: _Order, line: Connection) -> None:
    """The child's life."""
    import numpy
    import torch

    line.close()
    gc.freeze()  # the libraries' million objects: a garbage collection would copy their memory pages
    os.setsid()
    for path, number in ((order.out, 1), (order.err, 2)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, number)
        os.close(file)
    logging.getLogger().handlers.clear()  # those of the tests
    os.environ.clear()
    os.environ.update(order.environment)
    os.chdir(order.folder)
    sys.path[:0] = [entry for entry in order.environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    numpy.random.seed()  # else that of all children
    torch.set_num_threads(1)
    first, *rest = order.arguments
    if first == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = list(order.arguments)
        runpy.run_path(first, run_name="__main__")
