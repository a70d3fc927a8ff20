"""CIRF, its controls, and CIRF trained on its own traces."""
