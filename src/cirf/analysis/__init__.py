"""Tables and figures of the paper and beyond it, by name (`cirf.analysis.registry`)."""

from cirf.analysis.registry import get, names

__all__ = ["get", "names"]
