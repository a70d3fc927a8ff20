"""The tasks, by name (`cirf.tasks.registry`)."""

from cirf.tasks.registry import JSONL, OWN, TASKS, get, names, resolve

__all__ = ["JSONL", "OWN", "TASKS", "get", "names", "resolve"]
