"""Recipes and sweeps: their keys, reading, and writing."""

from cirf.recipe.schema import Evaluate, Section, key

__all__ = ["Evaluate", "Section", "key"]
