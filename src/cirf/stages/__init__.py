"""The stages of a run: each a function that fills one folder from the folders before it."""
