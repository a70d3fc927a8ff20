"""CIRF, its controls, and CIRF trained on traces of its own."""
