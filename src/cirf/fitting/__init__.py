"""Settings for a user's own rows: a short recipe with its reasons, and the number of updates."""
