"""The stages of a run's folder that a report shows: those that the recipe asks for, if that is known.

A folder may hold more: stages of an earlier recipe, of methods that are no longer asked for, and stages that a kill prevented
from being made again. In one table they would mix different questions or settings.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

_REPORTED = ("evaluation", "sampled", "probes", "latency", "voting", "compressed")
_NOWHERE = ".left-out"


@dataclass(frozen=True, slots=True)
class RunView:
    """A run's folder and the names of its stages to show; ``None``: all that are there."""

    root: Path
    names: Collection[str] | None = None

    def at(self, stage: str) -> Path:
        """A stage's folder; an empty place if it is not to be shown."""
        return self.root / stage if self.names is None or stage in self.names else self.root / _NOWHERE / stage

    def each(self, pattern: str) -> list[str]:
        """The stages to show that match a pattern such as ``evaluation/*``, by name."""
        found = sorted(path for path in self.root.glob(pattern) if path.is_dir())
        return [name for path in found if self.at(name := path.relative_to(self.root).as_posix()).is_dir()]

    def left_out(self) -> list[str]:
        """Finished stages with numbers that are not shown."""
        there = [path.parent for kind in _REPORTED for path in sorted(self.root.glob(f"{kind}/**/stage.json"))]
        names = (path.relative_to(self.root).as_posix() for path in there)
        return [name for name in names if self.names is not None and name not in self.names]
