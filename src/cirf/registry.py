"""Objects by name: those of this package, and those that installed packages bring by entry points."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from cirf.errors import CirfError

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """Objects by name, each imported on first use. This package's names take precedence."""

    def __init__(self, group: str, own: Mapping[str, str]) -> None:
        """``group``: the entry points' group. ``own``: this package's objects as ``module:attribute``, by name."""
        self.group = group
        self._own = own

    @cached_property
    def _others(self) -> dict[str, EntryPoint]:
        found = sorted(entry_points(group=self.group), key=lambda point: (point.name, point.value))
        return {point.name: point for point in found if point.name not in self._own}

    def origin(self, name: str) -> str:
        """The package and version that an object comes from; empty for this package's."""
        point = self._others.get(name) if name not in self._own else None
        return f"{point.dist.name} {point.dist.version}" if point is not None and point.dist is not None else ""

    def __getitem__(self, name: str) -> T:
        """The object; ``CirfError`` where another package's cannot be imported."""
        if name in self._own:
            module, _, attribute = self._own[name].partition(":")
            found: T = getattr(importlib.import_module(module), attribute)
            return found
        try:
            found = self._others[name].load()
        except (ImportError, AttributeError, SyntaxError) as error:
            where = f"{name} of {self.origin(name) or self._others[name].value}"
            raise CirfError(f"{where}: cannot be imported ({type(error).__name__}: {error}); update or uninstall it") from None
        return found

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from self._others

    def __len__(self) -> int:
        return len(self._own) + len(self._others)
