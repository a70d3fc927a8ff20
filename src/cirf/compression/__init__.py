"""Result compression: which results can be removed from a trace (paper 3.4)."""
