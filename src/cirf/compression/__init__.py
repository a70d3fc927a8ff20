"""Result compression: which results a trace can do without (paper 3.4)."""
