"""The method as Python functions; ``import cirf`` has them by the same names."""
