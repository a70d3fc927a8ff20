"""Charts as SVG, and tables."""
