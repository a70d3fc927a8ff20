"""Whether two formulas stand for the same thing, by math-verify, and never for longer than a limit.

math-verify stops itself by an alarm signal, which works in the main thread alone and not while C code runs. So a process
of its own does the work; it is started once, kept, and killed when a pair takes too long. Processor time is what counts, so
that a verdict does not depend on what else the machine does; by the clock there is a second, wider limit.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import subprocess
import sys
import threading
from functools import lru_cache
from pathlib import Path

from cirf.errors import CirfError

LIMIT = 3.0
"""Seconds of processor time for one pair; one that needs more is not equal."""

_CLOCK = 5 * LIMIT
_START = 600.0  # seconds by the clock until the process is ready: a busy machine may take long to read sympy
_LONGEST = 600  # characters; what is longer is no answer
_WORKER = Path(__file__).with_name("symbolic_worker.py")


@lru_cache(maxsize=65_536)
def same_formula(parsed: str, gold: str) -> bool:
    """Whether two LaTeX formulas, without delimiters, are mathematically the same; ``False`` where it cannot be told."""
    if max(len(parsed), len(gold)) > _LONGEST:
        return False
    return _SHARED.same(parsed, gold)


class _Comparer:
    """The process and the pipes to it. One pair at a time, from any thread."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None
        self.owner = 0

    def same(self, parsed: str, gold: str) -> bool:
        with self.lock:
            if self.process is None or self.owner != os.getpid() or self.process.poll() is not None:
                self.start()
            assert self.process is not None and self.process.stdin is not None
            answer = b""
            with contextlib.suppress(OSError):
                self.process.stdin.write(json.dumps([parsed, gold]).encode() + b"\n")
                self.process.stdin.flush()
                answer = self.line(_CLOCK)
            if not answer:
                self.stop()
            return answer == b"1\n"

    def start(self) -> None:
        if self.owner == os.getpid():
            self.stop()
        command = [sys.executable, "-P", str(_WORKER), str(LIMIT)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.owner = os.getpid()
        if self.line(_START) != b"ready\n":
            self.stop()
            raise CirfError(
                "the process that compares formulas does not start; see that `python -c 'import math_verify'` works, "
                "else pip install 'math-verify[antlr4_13_2]'"
            )

    def line(self, seconds: float) -> bytes:
        """The next line of the process; nothing if it ended or takes too long."""
        assert self.process is not None and self.process.stdout is not None
        there, _, _ = select.select([self.process.stdout], [], [], seconds)
        return self.process.stdout.readline() if there else b""

    def stop(self) -> None:
        if self.process is not None and self.owner == os.getpid():
            self.process.kill()
            for pipe in (self.process.stdin, self.process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            self.process.wait()
        self.process = None


_SHARED = _Comparer()
atexit.register(_SHARED.stop)
