"""Model cards and data cards."""
