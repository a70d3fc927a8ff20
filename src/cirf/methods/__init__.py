"""The methods, by name (`cirf.methods.registry`)."""

from __future__ import annotations

from cirf.methods.base import Method
from cirf.methods.registry import METHODS, SCORED_BY, get, kind, learners, named, names

__all__ = ["METHODS", "SCORED_BY", "Method", "get", "kind", "learners", "named", "names"]
