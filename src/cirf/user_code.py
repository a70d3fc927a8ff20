"""What a Python file of the user's own defines: a task or a method, named in a recipe by its path.

The file is run as code with all rights of this process: trust a recipe that names one as you would a program. Its imports do not
include its folder, so helpers must be in the same file or installed.
"""

from __future__ import annotations

import hashlib
import re
import sys
import traceback
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from cirf.errors import CirfError
from cirf.store.paths import user_path

OWN = ".py"
"""How the path of such a file ends."""

_NAMED = re.compile(r"[^\s,=:{}\[\]\"']+\.py\b")
_only_looking: bool | None = None  # not said: a recipe's files do not run, a model's code does where the caller asks for it
_given: frozenset[Path] = frozenset()


def look_only(trust: bool, given: Iterable[str] = ()) -> None:
    """From here on this process runs no such file, and no code of a model, unless the user trusts it or names it in an option of
    the command (``given``): inspecting or evaluating a stranger's run must not run its code. Programs that use recipes of their
    own with such files call ``look_only(trust=True)`` first."""
    global _only_looking, _given
    _only_looking = not trust
    _given = frozenset(user_path(name).resolve() for option in given for name in _NAMED.findall(option))


def may_run(asked: bool) -> bool:
    """Whether code that comes with a model runs where a recipe ``asked`` for it: not while only looking."""
    return asked and not _only_looking


def read_user_code(path: str, where: str) -> tuple[dict[str, Any], str]:
    """The names that a file defines, and the hash of the file; ``where`` is said of a file that is not there.

    ``CirfError`` if the file is not there or fails as code (with the line), or may not be run (`look_only`).
    """
    if _only_looking is not False and user_path(path).resolve() not in _given:
        how = "add --trust-remote-code to run it" if _only_looking else "call cirf.user_code.look_only(trust=True) before"
        raise CirfError(f"{path}: Python code named by this run; if you trust it, {how}")
    try:
        content = user_path(path).read_bytes()
    except FileNotFoundError:
        raise CirfError(f"{path}: no such file; {where}") from None
    except OSError as error:
        raise CirfError(f"{path}: cannot be read ({error.strerror}); name a Python file that this user may read") from None
    return _run(path, content), hashlib.sha256(content).hexdigest()


@lru_cache(maxsize=64)
def _run(path: str, content: bytes) -> dict[str, Any]:
    module = ModuleType(f"cirf_own_{hashlib.sha256(content).hexdigest()[:16]}")
    module.__file__ = path
    sys.modules[module.__name__] = module  # where dataclasses look for the module of a class
    try:
        exec(compile(content, path, "exec"), module.__dict__)
    except SyntaxError as error:
        raise CirfError(f"{path}, line {error.lineno}: not valid Python ({error.msg})") from None
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
        reason = " ".join(str(error).split())[:200]
        raise CirfError(f"{path}, line {lines[-1] if lines else 1}: {type(error).__name__}: {reason}") from None
    return module.__dict__
