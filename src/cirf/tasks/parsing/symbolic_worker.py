"""Compares formulas for ``latex.py``, in a process that may be killed: a pair a line comes in, a verdict a line goes out.

Run as a script, by its path: it imports nothing of this package. A pair that takes more processor time than is allowed ends
the process by a signal that no Python code has to notice, so a power tower deep in C ends too; one that takes too much
memory is not equal.
"""

import contextlib
import json
import logging
import resource
import signal
import sys

_MEMORY = 2 * 2**30  # bytes of address space


def main(seconds: float) -> None:
    """Answer until the input ends, each pair within ``seconds`` of processor time."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    logging.disable(logging.CRITICAL)
    with contextlib.suppress(ValueError, OSError):  # where the system knows no such limit
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    configs = (LatexExtractionConfig(), ExprExtractionConfig())

    def same(ours: str, theirs: str) -> bool:
        read = [parse(f"${text}$", configs, parsing_timeout=None) for text in (theirs, ours)]
        return all(read) and bool(verify(*read, timeout_seconds=None))

    same("1", "2")  # the first comparison loads what all need
    print("ready", flush=True)
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            equal = same(*json.loads(line))
        except (Exception, MemoryError, RecursionError):
            equal = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(int(equal), flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]))
