"""Print the oldest versions that pyproject.toml allows, as constraints for pip.

    python -m benchmarks.oldest > oldest.txt

Each lower bound in the requirements of cirf, its extra ``dev`` and its build becomes an exact version. torch is left out, since
its builds are chosen by hand (`make oldest TORCH=torch==X`). Indirect requirements are left to pip, which takes the newest. Only
the standard library is used, since this runs before anything is installed.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parent.parent / "pyproject.toml"
_BOUND = re.compile(r"([\w.-]+)(?:\[[^]]*\])?>=([\w.]+)")


def lowest(project: Path = PROJECT) -> dict[str, str]:
    """The lower bound of each requirement except torch. ``ValueError`` for a requirement that is not a single lower bound."""
    summary = tomllib.loads(project.read_text(encoding="utf-8"))
    found = {}
    asked = (
        summary["project"]["dependencies"]
        + summary["project"]["optional-dependencies"]["dev"]
        + summary["build-system"]["requires"]
    )
    for line in asked:
        bound = _BOUND.fullmatch(line)
        if bound is None:
            raise ValueError(f"{project}: {line!r} is not a lower bound alone")
        found[bound[1]] = bound[2]
    return {name: version for name, version in found.items() if name != "torch"}


if __name__ == "__main__":
    print("\n".join(f"{name}=={version}" for name, version in lowest().items()))
